"""What a request cost, and what it would have cost the other way: money from what its provider counted.

The provider says how many tokens were read from its cache, written to it, and neither. We say how many tokens of the
conversation were taken out, and where. Had they been there, those in the part that was read would have been read too,
and the others would have been paid for like what is new. A request in which something sent before was changed is one
where the provider would have read all of the request before, had nothing been changed; so is the one after it, if the
provider did not find it then.

Our count is not the provider's. How much it differs is seen in how a conversation grows, by both counts (`Account`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from ...billing.calibration import GrowthFit
from ...billing.prices import Price
from ...billing.usage import Usage
from ...plan import Edit


@dataclass
class Account:
    """What was taken out of one conversation, in tokens by our count. The scale of `fit` makes them the provider's."""

    fit: GrowthFit = field(default_factory=GrowthFit)
    edits: tuple[Edit, ...] = ()
    """Of the last request. They hold the texts that were rewritten."""
    _forgotten: frozenset[int] | None = None
    """Fingerprints of these, once the texts were forgotten."""
    by_strategy: Counter[str] = field(default_factory=Counter)
    _messages: list[int] = field(default_factory=list)
    """Of the edits, in order."""
    _sums: list[float] = field(default_factory=lambda: [0.0])

    @property
    def scale(self) -> float:
        return self.fit.scale

    def take(self, edits: tuple[Edit, ...], tokens: tuple[float, ...]) -> Sequence[Edit]:
        """These are the edits of the request that is sent, each with what it frees. Returns those that are new."""
        known = len(self.edits)
        if self._forgotten is not None:
            new = tuple(edit for edit in edits if _fingerprint(edit) not in self._forgotten)
            known, self._forgotten = 0, None
        elif edits[:known] == self.edits:  # the same objects, nearly always
            new = edits[known:]
            if not new:
                return new
        else:
            before = {id(edit) for edit in self.edits}
            new = tuple(edit for edit in edits if id(edit) not in before)
        grown = known and len(new) == len(edits) - known and all(edit.message >= self._messages[-1] for edit in new)
        self._count(list(zip(edits, tokens, strict=True))[known if grown else 0 :], afresh=not grown)
        self.edits = edits
        return new

    def forget_texts(self) -> None:
        """Hold no text. What was counted stays."""
        if self.edits:
            self._forgotten, self.edits = frozenset(map(_fingerprint, self.edits)), ()

    def _count(self, found: Sequence[tuple[Edit, float]], afresh: bool) -> None:
        if afresh:
            self._messages, self._sums = [], [0.0]
            self.by_strategy.clear()
        found = sorted(found, key=lambda one: one[0].message)
        self._messages += [edit.message for edit, _ in found]
        self._sums += list(accumulate((tokens for _, tokens in found), initial=self._sums[-1]))[1:]
        for edit, tokens in found:
            self.by_strategy[edit.strategy] += round(tokens)

    def before(self, message: int) -> float:
        """Taken out of the messages before this one."""
        return self._sums[bisect_left(self._messages, message)]

    @property
    def all(self) -> float:
        return self._sums[-1]


def _fingerprint(edit: Edit) -> int:
    return hash((edit.message, edit.path, edit.op, edit.strategy, edit.added))


class Removed(NamedTuple):
    """Provider tokens that a request does without."""

    read: float = 0.0
    """Of the part that the provider read from its cache, or would have."""
    rest: float = 0.0

    @property
    def all(self) -> float:
        return self.read + self.rest


def paid(usage: Usage, price: Price) -> float:
    """Dollars for the input of a request."""
    rates = price.rates(usage.input)
    return (
        usage.fresh * rates.fresh
        + usage.read * rates.read
        + usage.written * rates.write
        + usage.written_1h * rates.write_1h
    )


def untouched(usage: Usage, removed: Removed, found: float | None = None) -> Usage:
    """The usage of the same request had nothing been taken out, ever.

    `found` is how much the provider would have read then, where what it did read says nothing about that.
    """
    total = usage.input + removed.all
    if found is not None:
        return _split(usage, total, min(found, total))
    if usage.read == usage.input:  # nothing in it was new
        return _split(usage, total, total)
    return _split(usage, total, usage.read + removed.read if usage.read else 0.0)


def rewritten(usage: Usage, removed: Removed, again: float = 0.0, least: int = 0) -> Usage:
    """The other way: of a request that went out as it came, had it been rewritten.

    `again` is how much of it the provider would have had to write again, because it was changed; `least` the smallest
    beginning of a request that the provider finds.
    """
    total = max(0.0, usage.input - removed.all)
    new = max(0.0, usage.input - usage.read - removed.rest)
    read = total - new - again if usage.read else 0.0
    return _split(usage, total, read if read >= least else 0.0)


def _split(usage: Usage, total: float, read: float) -> Usage:
    """What is not read is written, or neither, in the way that the provider did it.

    What is more than it was goes where the end of the request went: with a mark there nearly all of it was written.
    """
    rest, dear = max(0.0, total - read), usage.input - usage.read
    fresh, written, written_1h = usage.fresh, usage.written, usage.written_1h
    if rest < dear:
        share = rest / dear
        fresh, written, written_1h = round(fresh * share), round(written * share), round(written_1h * share)
    elif written > fresh:
        written += round(rest - dear)
    elif written_1h > fresh:
        written_1h += round(rest - dear)
    else:
        fresh += round(rest - dear)
    return Usage(fresh, round(read), written, written_1h, usage.output)
