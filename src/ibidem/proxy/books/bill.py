"""Cost of a request, and its cost with or without edits, from the provider's token counts.

The provider reports how many tokens were read from its cache, written to it, and neither. We know how many tokens were
removed from the conversation, and where. Without the removal, tokens in the cached part would have been read too, and
the others billed like new ones. If a request contains a revision, the provider would otherwise have read all of the
previous request. The same holds for the next request, if the provider did not find the revised prefix.

Our token estimates differ from the provider's counts. The growth of a conversation in both counts gives the scale
factor (`RemovedTokens`).
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
    """Tokens removed from one conversation, by our estimate. `scale` converts them to the provider's count."""

    fit: GrowthFit = field(default_factory=GrowthFit)
    edits: tuple[Edit, ...] = ()
    """Edits of the last request, with their texts."""
    _forgotten: frozenset[int] | None = None
    """Fingerprints of the edits after their texts were deleted."""
    by_strategy: Counter[str] = field(default_factory=Counter)
    _messages: list[int] = field(default_factory=list)
    """Message index of each edit, ascending."""
    _sums: list[float] = field(default_factory=lambda: [0.0])

    @property
    def scale(self) -> float:
        """Provider tokens per estimated token."""
        return self.fit.scale

    def take(self, edits: tuple[Edit, ...], tokens: tuple[float, ...]) -> Sequence[Edit]:
        """Replace the edits by those of the current request, each with its removed tokens. Return the new edits."""
        known = len(self.edits)
        if self._forgotten is not None:
            new = tuple(edit for edit in edits if _fingerprint(edit) not in self._forgotten)
            known, self._forgotten = 0, None
        elif edits[:known] == self.edits:  # fast: nearly always the same objects
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
        """Delete the texts of the edits. Counts stay."""
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
        """Return the tokens removed from the messages before this index."""
        return self._sums[bisect_left(self._messages, message)]

    @property
    def all(self) -> float:
        """Tokens removed from all messages."""
        return self._sums[-1]


def _fingerprint(edit: Edit) -> int:
    return hash((edit.message, edit.path, edit.op, edit.strategy, edit.added))


class Removed(NamedTuple):
    """Provider tokens removed from a request."""

    read: float = 0.0
    """Tokens removed from the part that the provider read from its cache, or would have read."""
    rest: float = 0.0
    """Tokens removed after that part."""

    @property
    def all(self) -> float:
        """Tokens removed in total."""
        return self.read + self.rest


def paid(usage: Usage, price: Price) -> float:
    """Return dollars for the input of a request."""
    rates = price.rates(usage.input)
    return (
        usage.fresh * rates.fresh
        + usage.read * rates.read
        + usage.written * rates.write
        + usage.written_1h * rates.write_1h
    )


def untouched(usage: Usage, removed: Removed, found: float | None = None) -> Usage:
    """Return the usage of the same request without any edits.

    `found` is how much the provider would have read from its cache, if this does not follow from the real usage.
    """
    total = usage.input + removed.all
    if found is not None:
        return _split(usage, total, min(found, total))
    if usage.read == usage.input:  # the whole request was in the cache
        return _split(usage, total, total)
    return _split(usage, total, usage.read + removed.read if usage.read else 0.0)


def rewritten(usage: Usage, removed: Removed, again: float = 0.0, least: int = 0) -> Usage:
    """Return the usage of an unchanged request as if it had been rewritten.

    `again`: tokens that the provider would have cached again, because of a revision. `least`: smallest prefix that the
    provider caches.
    """
    total = max(0.0, usage.input - removed.all)
    new = max(0.0, usage.input - usage.read - removed.rest)
    read = total - new - again if usage.read else 0.0
    return _split(usage, total, read if read >= least else 0.0)


def _split(usage: Usage, total: float, read: float) -> Usage:
    """Return a usage with `total` input and `read` cached tokens. The rest is split like the real usage.

    Additional tokens are billed like the end of the request: as a cache write, if most of the rest was written.
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
