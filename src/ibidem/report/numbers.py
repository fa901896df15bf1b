"""How numbers are written wherever a person reads them: in the terminal, in the page, and in its script alike.

What is not nothing never reads as nothing: a session that is a little dearer is dearer. `page.js` says all of this once
more for the rows that it writes, and a test holds the two together.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite

ROUNDING = 1e-9
"""Shares below this are rounding: see `totals.Group.add`."""

EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
"""As many digits as a float can have before its point, and more. Halves are rounded up, as browsers do it."""

NO_NUMBER = "–"
"""Where there is none to write."""


def dollars(amount: float) -> str:
    """Cents, and their hundredths where there are few of them."""
    size = abs(amount)
    if 0 < size < 0.00005:
        return f"{sign(amount)}under $0.0001"
    return f"{sign(amount)}${fixed(size, 4 if 0 < size < 0.1 else 2)}"


def tokens(count: float) -> str:
    """In full up to five digits."""
    size = abs(count)
    if size < 10_000:
        return f"{sign(count)}{fixed(size, 0)}"
    return f"{sign(count)}{fixed(size / 1e3, 1)}k" if size < 1e6 else f"{sign(count)}{fixed(size / 1e6, 2)}M"


def percent(share: float | None, signed: bool = False) -> str:
    """One decimal. `signed` where more and less are told apart."""
    if share is None:
        return NO_NUMBER
    size = abs(share)
    before = "+" if signed and share > 0 else sign(share)
    if size < ROUNDING:
        return "0.0%"
    return "<0.1%" if size < 0.0005 and not before else f"{before}{fixed(size * 100, 1)}%"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def file_size(count: int) -> str:
    return f"{fixed(count / 1e6, 1)} MB" if count >= 1e6 else f"{fixed(count / 1e3, 1)} kB"


def fixed(number: float, digits: int) -> str:
    """So many digits behind the point, and a comma every three before it."""
    if not isfinite(number):
        return str(number)
    exact = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), context=EXACT)
    return f"{exact:,}"


def sign(number: float) -> str:
    return "−" if number < 0 else ""
