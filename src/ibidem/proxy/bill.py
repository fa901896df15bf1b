"""What a request cost, and what it would have cost the other way: money from what its provider counted.

The provider says how many tokens were read from its cache, written to it, and neither. We say how many tokens of the
conversation were taken out: of what had been sent before, and of what is new. Had they been there, the former would
have been read and the latter written. A request in which something sent before was changed is one where the provider
would have read all of the request before, had nothing been changed.
"""

from __future__ import annotations

from typing import NamedTuple

from ..prices import Price
from ..sessions.recorded import Usage
from ..timing import Reason


class Removed(NamedTuple):
    """Provider tokens that a request does without, by our count."""

    before: float = 0.0
    """Of what was sent before."""
    new: float = 0.0

    @property
    def all(self) -> float:
        return self.before + self.new


def paid(usage: Usage, price: Price) -> float:
    """Dollars for the input of a request."""
    rates = price.rates(usage.input)
    return (
        usage.fresh * rates.fresh
        + usage.read * rates.read
        + usage.written * rates.write
        + usage.written_1h * rates.write_1h
    )


def untouched(usage: Usage, removed: Removed, last: float, revised: Reason | str) -> Usage:
    """The usage of the same request had nothing been taken out. `last` is the size of the one before, as it came."""
    total = usage.input + removed.all
    if revised and revised != "cold cache":
        read = min(last, total)
    elif usage.read:
        read = min(total, usage.read + removed.before)
    else:
        read = 0.0
    return _split(usage, total, read)


def rewritten(usage: Usage, removed: Removed) -> Usage:
    """The other way: of a request that went out as it came, had it been rewritten."""
    total = max(0.0, usage.input - removed.all)
    return _split(usage, total, max(0.0, usage.read - removed.before))


def _split(usage: Usage, total: float, read: float) -> Usage:
    """What is not read is written, or neither, in the way that the provider did it."""
    dear = usage.input - usage.read
    rest = max(0.0, total - read)
    if not dear:  # all of it was read: what is new would have been written, where that is what the provider does
        return Usage(fresh=round(rest), read=round(read), output=usage.output)
    share = rest / dear
    return Usage(
        fresh=round(usage.fresh * share),
        read=round(read),
        written=round(usage.written * share),
        written_1h=round(usage.written_1h * share),
        output=usage.output,
    )
