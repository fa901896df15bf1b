"""Named policies: which strategies run, in which order."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from ..errors import IbidemError, UsageError
from .arrival import BackReferences
from .ported import Dedup, DedupToolCalls, Devboy, DropMiddle, Lingua, PruneThinking, Snippet
from .repair import RepairPairing
from .revision import Evict
from .revision.gate import NEVER
from .strategy import Strategy, adapted, is_strategy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
    "balanced": (Evict(working_set=(NEVER, 25), pending=(0, 0), arguments=None),),
    "recoverable": (Evict(),),
    "aggressive": (Evict(working_set=(12, 4), pending=(20, 10), edit_arguments=(60, 30), credit=0.05),),
}


GROUP = "ibidem.profiles"
"""The entry points by which a package offers profiles of its own."""


def named(name: str) -> tuple[Strategy, ...]:
    """The strategies of a profile: one of ours, an entry point of a package, or `module:attribute`.

    Nothing is loaded but what is named.
    """
    if isinstance(name, str) and name in PROFILES:
        return PROFILES[name]
    if (where := _elsewhere(name)) is not None:
        return _own(name, where)
    raise IbidemError(f"unknown profile {name!r}: use one of {', '.join(PROFILES)}, or your own as module:attribute")


def is_name(name: str) -> bool:
    """Whether it is the name of a profile, ours or another's. That is not loaded, so it may still be a mistake."""
    return name in PROFILES or _elsewhere(name) is not None


def _elsewhere(name: Any) -> EntryPoint | None:
    """Where a profile stands that is not ours."""
    from importlib.metadata import EntryPoint, entry_points  # takes longer than the rest of us

    if not isinstance(name, str):
        return None
    module, _, attribute = name.partition(":")
    if all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        return EntryPoint(name, name, GROUP)
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _own(name: str, where: EntryPoint) -> tuple[Strategy, ...]:
    """Somebody's strategy, a class of one that needs no settings, or several in a list."""
    try:
        with redirect_stdout(sys.stderr):  # what a module prints is no part of what a command prints
            value = where.load()
            value = value() if isinstance(value, type) else value
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise IbidemError(f"profile {name}: cannot be loaded ({why}): check the name and PYTHONPATH") from error
    return chosen("", value if isinstance(value, list | tuple) else [value])


def chosen(profile: str, strategies: Any) -> tuple[Strategy, ...]:
    """The strategies that are to run. Raises UsageError for what is none."""
    if strategies is None:
        return named(profile)
    if profile not in ("", "lossless"):  # the default: then only `strategies` was set
        raise UsageError(f"profile={profile!r} and strategies=… are both set: pass one of them")
    if isinstance(strategies, str | bytes) or not isinstance(strategies, Iterable):
        wanted = f"[{strategies!r}]" if is_strategy(strategies) else "[ibidem.BackReferences()]"
        raise UsageError(f"strategies must be a list, not {strategies!r}: pass strategies={wanted}, or profile=…")
    return tuple(map(adapted, strategies))


def labels(strategies: Iterable[Strategy]) -> list[str]:
    """The names that their edits go by."""
    return [label for each in strategies for label in each.labels or (each.name,)]
