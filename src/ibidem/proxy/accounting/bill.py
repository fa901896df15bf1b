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
class RemovedTokens:
    """Tokens removed from one conversation, by our estimate. `scale` converts them to the provider's count."""

    fit: GrowthFit = field(default_factory=GrowthFit)
    edits: tuple[Edit, ...] = ()
    """Edits of the last request, with their texts."""
    _edit_fingerprints: frozenset[int] | None = None
    """Fingerprints of the edits after their texts were deleted."""
    by_strategy: Counter[str] = field(default_factory=Counter)
    _messages: list[int] = field(default_factory=list)
    """Message index of each edit, ascending."""
    _sums: list[float] = field(default_factory=lambda: [0.0])

    @property
    def scale(self) -> float:
        """Provider tokens per estimated token."""
        return self.fit.scale

    def replace_edits(self, edits: tuple[Edit, ...], tokens: tuple[float, ...]) -> Sequence[Edit]:
        """Replace the edits by those of the current request, each with its removed tokens. Return the new edits."""
        counted_edits = len(self.edits)
        if self._edit_fingerprints is not None:
            new = tuple(edit for edit in edits if _edit_fingerprint(edit) not in self._edit_fingerprints)
            counted_edits, self._edit_fingerprints = 0, None
        elif edits[:counted_edits] == self.edits:  # fast: nearly always the same objects
            new = edits[counted_edits:]
            if not new:
                return new
        else:
            before = {id(edit) for edit in self.edits}
            new = tuple(edit for edit in edits if id(edit) not in before)
        is_appended = (
            counted_edits
            and len(new) == len(edits) - counted_edits
            and all(edit.message >= self._messages[-1] for edit in new)
        )
        self._count_edits(
            list(zip(edits, tokens, strict=True))[counted_edits if is_appended else 0 :], afresh=not is_appended
        )
        self.edits = edits
        return new

    def forget_texts(self) -> None:
        """Delete the texts of the edits. Counts stay."""
        if self.edits:
            self._edit_fingerprints, self.edits = frozenset(map(_edit_fingerprint, self.edits)), ()

    def _count_edits(self, edit_tokens: Sequence[tuple[Edit, float]], afresh: bool) -> None:
        if afresh:
            self._messages, self._sums = [], [0.0]
            self.by_strategy.clear()
        edit_tokens = sorted(edit_tokens, key=lambda one: one[0].message)
        self._messages += [edit.message for edit, _ in edit_tokens]
        self._sums += list(accumulate((tokens for _, tokens in edit_tokens), initial=self._sums[-1]))[1:]
        for edit, tokens in edit_tokens:
            self.by_strategy[edit.strategy] += round(tokens)

    def tokens_before(self, message: int) -> float:
        """Return the tokens removed from the messages before this index."""
        return self._sums[bisect_left(self._messages, message)]

    @property
    def total_tokens(self) -> float:
        """Tokens removed from all messages."""
        return self._sums[-1]


def _edit_fingerprint(edit: Edit) -> int:
    return hash((edit.message, edit.path, edit.op, edit.strategy, edit.added))


class RemovedInput(NamedTuple):
    """Provider tokens removed from a request."""

    read: float = 0.0
    """Tokens removed from the part that the provider read from its cache, or would have read."""
    rest: float = 0.0
    """Tokens removed after that part."""

    @property
    def total_tokens(self) -> float:
        """Tokens removed in total."""
        return self.read + self.rest


def input_cost(usage: Usage, price: Price) -> float:
    """Return dollars for the input of a request."""
    rates = price.rates(usage.input)
    return (
        usage.fresh * rates.fresh
        + usage.read * rates.read
        + usage.written * rates.write
        + usage.written_1h * rates.write_1h
    )


def usage_without_edits(usage: Usage, removed: RemovedInput, cached: float | None = None) -> Usage:
    """Return the usage of the same request without any edits.

    `cached` is how much the provider would have read from its cache, if this does not follow from the real usage.
    """
    total = usage.input + removed.total_tokens
    if cached is not None:
        return _split_usage(usage, total, min(cached, total))
    if usage.read == usage.input:  # the whole request was in the cache
        return _split_usage(usage, total, total)
    return _split_usage(usage, total, usage.read + removed.read if usage.read else 0.0)


def usage_with_edits(usage: Usage, removed: RemovedInput, rewritten_tokens: float = 0.0, minimum: int = 0) -> Usage:
    """Return the usage of an unchanged request as if it had been rewritten.

    `rewritten_tokens`: tokens that the provider would have cached again, because of a revision. `minimum`: smallest
    prefix that the provider caches.
    """
    total = max(0.0, usage.input - removed.total_tokens)
    new = max(0.0, usage.input - usage.read - removed.rest)
    read = total - new - rewritten_tokens if usage.read else 0.0
    return _split_usage(usage, total, read if read >= minimum else 0.0)


def _split_usage(usage: Usage, total: float, read: float) -> Usage:
    """Return a usage with `total` input and `read` cached tokens. The rest is split like the real usage.

    Additional tokens are billed like the end of the request: as a cache write, if most of the rest was written.
    """
    rest, uncached = max(0.0, total - read), usage.input - usage.read
    fresh, written, written_1h = usage.fresh, usage.written, usage.written_1h
    if rest < uncached:
        share = rest / uncached
        fresh, written, written_1h = round(fresh * share), round(written * share), round(written_1h * share)
    elif written > fresh:
        written += round(rest - uncached)
    elif written_1h > fresh:
        written_1h += round(rest - uncached)
    else:
        fresh += round(rest - uncached)
    return Usage(fresh, round(read), written, written_1h, usage.output)
