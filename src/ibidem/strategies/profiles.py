"""Named policies: which strategies run, in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..model import IbidemError, UsageError
from ..plan import Strategy
from .arrival import BackReferences, Dedup, Devboy, HintStyle
from .ported import DedupToolCalls, DropMiddle, Lingua, PruneThinking, Snippet
from .repair import RepairPairing
from .revision import Evict

PROFILES: dict[str, tuple[Strategy, ...]] = {
    "lossless": (BackReferences(),),
    # Repair comes last in both: it mends what the others may have parted.
    "codetether": (PruneThinking(), Dedup(), Lingua(), RepairPairing(by_place=False)),
    "codetether-all": (
        PruneThinking(),
        DedupToolCalls(),
        Dedup(),
        Snippet(heed_markers=True),
        Lingua(),
        DropMiddle(),
        RepairPairing(by_place=False),
    ),
    "devboy": (Devboy(),),
    "recoverable": (Evict(),),
    "aggressive": (Evict(mask=10, arguments=512, thinking=True),),
}


def named(name: str) -> tuple[Strategy, ...]:
    try:
        return PROFILES[name]
    except (KeyError, TypeError):
        raise IbidemError(f"unknown profile {name!r}: use one of {', '.join(PROFILES)}") from None


def chosen(profile: str, strategies: Any) -> tuple[Strategy, ...]:
    """The strategies that are to run. Raises UsageError for what is none."""
    if strategies is None:
        return named(profile)
    if isinstance(strategies, str | bytes) or not isinstance(strategies, Iterable):
        wanted = f"[{strategies!r}]" if _is_strategy(strategies) else "[ibidem.BackReferences()]"
        raise UsageError(f"strategies must be a list, not {strategies!r}: pass strategies={wanted}, or profile=…")
    found = tuple(strategies)
    for each in found:
        if isinstance(each, type):
            raise UsageError(f"strategies: {each.__name__} is a class: pass an instance, {each.__name__}()")
        if not _is_strategy(each):
            raise UsageError(
                f"strategies: {each!r} is no strategy: pass instances such as ibidem.Dedup(), or profile=…"
            )
    return found


def _is_strategy(value: Any) -> bool:
    return callable(getattr(value, "plan", None)) and hasattr(value, "name") and hasattr(value, "touches")


ARRIVAL = (Dedup, Devboy, BackReferences)
"""Strategies that decide once: what they sent stays as it was sent (law 2)."""


def final(strategies: Iterable[Strategy]) -> bool:
    """Whether a longer history is sent as the shorter one was, and more."""
    return all(isinstance(strategy, ARRIVAL) for strategy in strategies)


def lossless(strategies: Iterable[Strategy]) -> bool:
    """Whether `expand` gives back what was said, from the request alone (law 6)."""
    return all(isinstance(each, BackReferences) and each.hints is HintStyle.IBIDEM for each in strategies)
