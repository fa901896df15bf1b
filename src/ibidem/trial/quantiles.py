"""Student's t without a library for it: the share beyond a value, and the value beyond which a share is.

`ever_quantile` is what takes the place of that value for those who look more than once.

All of it comes from the regularized incomplete beta function, by its continued fraction (Lentz's way of running it),
which is good to about 14 digits for the arguments that a trial has.
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, inf, lgamma, log, log1p, sqrt

MOST_TERMS = 10_000
ENOUGH = 1e-16
TINY = 1e-300
"""Stands in for a denominator of zero."""
SOON = 10.0
"""Pairs from which on `ever_quantile` is of use. It is smallest for about eight times as many, and hardly larger for a
hundred times."""


def beta_below(x: float, a: float, b: float) -> float:
    """I_x(a, b): the share of Beta(a, b) that is below `x`."""
    if not (a > 0 and b > 0):
        raise ValueError(f"a beta distribution has two numbers above zero, not {a} and {b}")
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side only
        return 1 - beta_below(1 - x, b, a)
    log_front = lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)
    return exp(log_front) * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    upper, lower = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for step in range(1, MOST_TERMS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            lower = 1 / _not_zero(1 + term * lower)
            upper = _not_zero(1 + term / upper)
            value *= upper * lower
        if abs(upper * lower - 1) < ENOUGH:
            break
    return value


def _not_zero(number: float) -> float:
    return number if abs(number) > TINY else TINY


def t_above(t: float, df: float) -> float:
    """The share of Student's t that is above `t`."""
    if t == inf:
        return 0.0
    if t == -inf:
        return 1.0
    beyond = beta_below(df / (df + t * t), df / 2, 0.5) / 2
    return beyond if t >= 0 else 1 - beyond


@lru_cache(maxsize=1024)
def t_quantile(share: float, df: float) -> float:
    """The value below which this share of Student's t is."""
    if not (0 < share < 1 and df > 0):
        raise ValueError(f"no quantile of t for a share of {share} with {df} degrees of freedom")
    if share < 0.5:
        return -t_quantile(1 - share, df)
    low, high = 0.0, 1.0
    while t_above(high, df) > 1 - share:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_above(middle, df) > 1 - share else (low, middle)
    return high


def ever_quantile(covered: float, pairs: float, df: float) -> float:
    """Standard errors within which a mean is of the truth at all looks together, with this probability; `pairs` have
    been seen at this one.

    It is Robbins' boundary: a bet on a mean that is off, spread over how far by a normal distribution, starts with 1
    and grows by chance to 1 / (1 − `covered`) with a probability of 1 − `covered` at most, whenever one looks. That is
    for means with a known variance, so the probability of being that far out is looked up in Student's t.
    """
    grown = pairs / SOON
    normal = sqrt((1 + 1 / grown) * (log1p(grown) - 2 * log(1 - covered)))
    return t_quantile(1 - erfc(normal / sqrt(2)) / 2, df)


def unseen_share(points: float, chance: float = 0.025) -> float:
    """The largest share of all moments that so many of them, drawn at random, miss with this chance.

    It bounds an interval from below where no two answers differed: nothing seen is not nothing there. For 100 points
    it is 3.6 %, the well-known "three in n" at 97.5 %.
    """
    return 1.0 if points <= 0 else 1 - chance ** (1 / points)


def seen_enough(share: float, chance: float = 0.025) -> float:
    """Points of which `unseen_share` is no more than this: with fewer, nothing seen at all would not exclude it."""
    return 0.0 if share >= 1 else log(chance) / log1p(-share)
