"""Student's t distribution without a numerical library: tail probabilities and quantiles.

`anytime_quantile` replaces the quantile if a result is checked more than once.

Both use the regularized incomplete beta function. Its continued fraction (Lentz's algorithm) has about 14 correct
digits for the arguments of a trial.
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, inf, lgamma, log, log1p, sqrt

MOST_TERMS = 10_000
ENOUGH = 1e-16
TINY = 1e-300
"""Replacement for a denominator of zero."""
SOON = 10.0
"""Scale of `anytime_quantile`, in pairs. The quantile is smallest at about eight times as many, and little larger at a
hundred times."""


def beta_below(x: float, a: float, b: float) -> float:
    """Return I_x(a, b), the share of Beta(a, b) below `x`."""
    if not (a > 0 and b > 0):
        raise ValueError(f"invalid parameters of a beta distribution: {a} and {b}. Both must be above zero")
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side only
        return 1 - beta_below(1 - x, b, a)
    log_front = lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)
    return exp(log_front) * _continued_fraction(x, a, b) / a


def _continued_fraction(x: float, a: float, b: float) -> float:
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
    """Return the share of Student's t distribution above `t`."""
    if t == inf:
        return 0.0
    if t == -inf:
        return 1.0
    beyond = beta_below(df / (df + t * t), df / 2, 0.5) / 2
    return beyond if t >= 0 else 1 - beyond


@lru_cache(maxsize=1024)
def t_quantile(share: float, df: float) -> float:
    """Return the value below which this share of Student's t distribution is."""
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


def anytime_quantile(coverage: float, pairs: float, df: float) -> float:
    """Return the half-width, in standard errors, of an interval that holds for all checks with this coverage.

    `pairs` is the number of pairs at the current check. This is Robbins' boundary for a mixture of normal
    distributions. It assumes a known variance, so the t quantile with the same tail probability is returned.
    """
    scaled_pairs = pairs / SOON
    normal = sqrt((1 + 1 / scaled_pairs) * (log1p(scaled_pairs) - 2 * log(1 - coverage)))
    return t_quantile(1 - erfc(normal / sqrt(2)) / 2, df)


def unseen_share(points: float, chance: float = 0.025) -> float:
    """Return the largest share of all points that `points` random ones miss with this probability.

    It is the minimum half-width of an interval if no samples differ. For 100 points it is 3.6 %, the well-known rule of
    three at 97.5 %.
    """
    return 1.0 if points <= 0 else 1 - chance ** (1 / points)


def minimum_points(share: float, chance: float = 0.025) -> float:
    """Return the points for which `unseen_share` is at most `share`. With fewer, no result could exclude that share."""
    return 0.0 if share >= 1 else log(chance) / log1p(-share)
