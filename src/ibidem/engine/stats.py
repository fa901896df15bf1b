"""Savings of a plan, by strategy. Bytes are content bytes. Tokens are counted on first access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..plan import Edit, Plan
from ..tokens import TokenCounter, counter_for

DEDUP_LABELS = ("dedup", "tool_calls")
"""Labels of edits that `dedup_hits` counts."""
SNIPPET_LABELS = ("snippet", "lingua", "thinking", "middle", "pairing")
"""Labels of edits that `snippet_hits` counts."""


class StrategyStats:
    """Hits, bytes and tokens saved by one strategy."""

    def __init__(self, edits: Iterable[Edit], count: TokenCounter | None = None) -> None:
        self._edits = tuple(edits)
        self._count = count

    @cached_property
    def hits(self) -> int:
        """Number of matches of the strategy."""
        return sum(edit.hits for edit in self._edits)

    @cached_property
    def bytes(self) -> int:
        """Content bytes saved."""
        return sum(edit.bytes_saved for edit in self._edits)

    @cached_property
    def tokens(self) -> int:
        """Tokens of the removed texts, minus tokens of the added texts."""
        count = self._count or counter_for()
        return sum(sum(map(count, edit.removed)) - count(edit.added) for edit in self._edits)

    def as_dict(self) -> dict[str, int]:
        return {"hits": self.hits, "bytes": self.bytes, "tokens": self.tokens}

    def __repr__(self) -> str:
        return f"StrategyStats(hits={self.hits}, bytes={self.bytes})"


class _ByStrategy(Mapping[str, StrategyStats]):
    """Statistics of a plan by label. Computed on first access, because a plan may have many edits."""

    def __init__(self, plan: Plan, count: TokenCounter) -> None:
        self._plan = plan
        self._count = count

    @cached_property
    def _stats_by_name(self) -> dict[str, StrategyStats]:
        by_name: dict[str, list[Edit]] = {}
        for edit in self._plan:
            by_name.setdefault(edit.strategy, []).append(edit)
        return {name: StrategyStats(edits, self._count) for name, edits in by_name.items()}

    def __getitem__(self, name: str) -> StrategyStats:
        return self._stats_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stats_by_name)

    def __len__(self) -> int:
        return len(self._stats_by_name)

    def __repr__(self) -> str:
        return repr(self._stats_by_name)


@dataclass(frozen=True)
class Stats:
    """Totals of one request, or of several added up."""

    strategies: Mapping[str, StrategyStats] = field(default_factory=dict)
    """Statistics by label of the edits."""
    failures: tuple[str, ...] = ()
    """Reasons of the requests that were sent unchanged after an error."""

    @classmethod
    def of(cls, plan: Plan, model: str | None = None, failures: tuple[str, ...] = ()) -> Stats:
        """Return the statistics of a plan. `model` selects the token counter."""

        def count_tokens(text: str) -> int:
            return counter_for(model)(text)

        return cls(_ByStrategy(plan, count_tokens), failures)

    @property
    def dedup_hits(self) -> int:
        """Results replaced by a reference to an equal one, and arguments replaced by one to an equal call."""
        return self._sum_hits(*DEDUP_LABELS)

    @property
    def snippet_hits(self) -> int:
        """Results and texts that were shortened, messages that lost thinking, trims, and repairs of pairing."""
        return self._sum_hits(*SNIPPET_LABELS)

    @property
    def total_bytes_saved(self) -> int:
        """Content bytes in UTF-8. An edit that grows its text counts 0."""
        return sum(each.bytes for each in self.strategies.values())

    @property
    def total_tokens_saved(self) -> int:
        """Tokens saved, counted on first access."""
        return sum(each.tokens for each in self.strategies.values())

    def _sum_hits(self, *names: str) -> int:
        return sum(self.strategies[name].hits for name in names if name in self.strategies)

    def as_dict(self) -> dict[str, Any]:
        return {
            "dedup_hits": self.dedup_hits,
            "snippet_hits": self.snippet_hits,
            "total_bytes_saved": self.total_bytes_saved,
            "total_tokens_saved": self.total_tokens_saved,
            "strategies": {name: each.as_dict() for name, each in self.strategies.items()},
            "failures": list(self.failures),
        }
