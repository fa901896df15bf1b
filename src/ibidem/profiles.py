"""Named policies: which strategies run, in which order."""

from __future__ import annotations

from .arrival import Dedup, Devboy, SaidOnce
from .model import IbidemError
from .plan import Strategy
from .repair import RepairPairing
from .revision import DedupToolCalls, DropMiddle, Lingua, PruneThinking, Snippet

PROFILES: dict[str, tuple[Strategy, ...]] = {
    "lossless": (SaidOnce(),),
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
}


def named(name: str) -> tuple[Strategy, ...]:
    try:
        return PROFILES[name]
    except (KeyError, TypeError):
        raise IbidemError(f"unknown profile {name!r}: use one of {', '.join(PROFILES)}") from None
