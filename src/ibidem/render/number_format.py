"""Number formats for people, in the terminal and in HTML pages.

A small number is never shown as zero: a session that costs slightly more is shown as more expensive. `page.js` repeats
these formats for the rows that it writes, and a test compares the two.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite

ROUNDING = 1e-9
"""Shares below this are rounding errors of sums."""

EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
"""More digits than a float can have before its point. Halves are rounded up, as browsers do it."""

NO_NUMBER = "–"
"""Shown if a number is unknown."""


def dollars(amount: float) -> str:
    """Format dollars with two decimals, or four below ten cents."""
    size = abs(amount)
    if 0 < size < 0.00005:
        return f"{sign(amount)}under $0.0001"
    return f"{sign(amount)}${format_fixed(size, 4 if 0 < size < 0.1 else 2)}"


def tokens(count: float) -> str:
    """Format a token count: all digits below 10,000, or else thousands or millions."""
    size = abs(count)
    if size < 10_000:
        return f"{sign(count)}{format_fixed(size, 0)}"
    text = f"{format_fixed(size / 1e3, 1)}k" if size < 1e6 else f"{format_fixed(size / 1e6, 2)}M"
    return f"{sign(count)}{text}"


def percent(share: float | None, signed: bool = False) -> str:
    """Format a share as a percentage with one decimal. `signed` adds a plus sign."""
    if share is None:
        return NO_NUMBER
    size = abs(share)
    before = "+" if signed and share > 0 else sign(share)
    if size < ROUNDING:
        return "0.0%"
    return "<0.1%" if size < 0.0005 and not before else f"{before}{format_fixed(size * 100, 1)}%"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def file_size(count: int) -> str:
    return f"{format_fixed(count / 1e6, 1)} MB" if count >= 1e6 else f"{format_fixed(count / 1e3, 1)} kB"


def format_fixed(number: float, digits: int) -> str:
    """Format a number with `digits` decimals, and commas between thousands."""
    if not isfinite(number):
        return str(number)
    exact = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), context=EXACT)
    return f"{exact:,}"


def sign(number: float) -> str:
    return "−" if number < 0 else ""


def saved_share(before: float, after: float) -> float:
    """Compute the saving as a share of the cost before; negative if the cost grew."""
    return 1 - after / before if before else 0.0


def drop_rounding(share: float) -> float:
    return 0.0 if abs(share) < ROUNDING else share
