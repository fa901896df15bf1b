"""Compute the e-value for an early stop, against the hypothesis that rewritten requests do not cause more re-reads.

Consider the points at which one variant re-reads more often than the other. Without harm, it is B in half of the cases.
`harm_evalue` is the payoff of a fair bet on B with stake 1, whose win rate is uniform between ½ and 1. Without harm, it
ever reaches 20 in at most one trial of 20, for any number of checks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import comb

from .outcomes import PointResult

HARM_ENOUGH = 20.0
"""E-value that stops a trial. Without harm, at most 1 in 20 trials reaches it."""


def harm_evalue(points: Iterable[PointResult]) -> float:
    """Return the e-value of these points. Points without samples in one variant have no effect."""
    wins = losses = 0
    for point in points:
        # Two samples have a re-read more often than one by chance. So if samples were dropped in one variant, the same
        # number of samples is compared in the other.
        pairs = list(zip(point.original, point.rewritten, strict=False))
        difference = sum(after.looks_again - before.looks_again for before, after in pairs)
        wins += difference > 0
        losses += difference < 0
    return bet_payoff(wins, losses)


def bet_payoff(wins: int, losses: int) -> float:
    """Return ∫ 2 θʷ (1 − θ)ˡ dθ from ½ to 1, times 2^(w+l), for w wins and l losses.

    With n = w + l the integral is a binomial tail, and the result is a quotient of integers,
    Σ C(n+1, j ≤ w) / ((n+1) C(n, w)). So only the final division can overflow.
    """
    tries = wins + losses
    term = tail = 1
    for place in range(wins):
        term = term * (tries + 1 - place) // (place + 1)
        tail += term
    try:
        return tail / ((tries + 1) * comb(tries, wins))
    except OverflowError:
        return sys.float_info.max
