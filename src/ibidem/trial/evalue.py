"""When to stop early: a bet against "rewritten requests are not read again more often", made point by point.

At a point where one arm looks again more often than the other, chance alone makes it B in half of the cases. Whoever
bets fairly on B, with a share of wins that is spread evenly over ½ to 1, and starts with 1, has `harm` in the end. If B
is no worse, the bettor ever reaches 20 in one trial out of 20 at most, however often that is looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import comb

from .outcomes import PointResult

HARM_ENOUGH = 20.0
"""Stop when `harm` is this much: at most 1 in 20 trials of a harmless rewriting does."""


def harm(points: Iterable[PointResult]) -> float:
    """The e-value of what has been asked so far. Points without answers in both arms say nothing."""
    wins = losses = 0
    for point in points:
        # Arms of different lengths do not win equally often by chance: of two answers, one that looks is likelier than
        # of one. So as many are compared as both arms have; a dropped answer must not be a vote.
        pairs = list(zip(point.original, point.rewritten, strict=False))
        difference = sum(after.looks_again - before.looks_again for before, after in pairs)
        wins += difference > 0
        losses += difference < 0
    return bet(wins, losses)


def bet(wins: int, losses: int) -> float:
    """∫ 2 θʷ (1 − θ)ˡ dθ from ½ to 1, times 2^(w+l), for w wins and l losses.

    With n = w + l the integral is a tail of a binomial, and all of it a quotient of whole numbers,
    Σ C(n+1, j ≤ w) / ((n+1) C(n, w)): nothing can overflow or cancel before the one division.
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
