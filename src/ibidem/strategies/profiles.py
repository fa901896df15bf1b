"""Profiles: named lists of strategies, in the order in which they run."""

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
from .revision.file_protection import NEVER
from .strategy import Strategy, adapt_strategy, is_strategy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PROFILES: dict[str, tuple[Strategy, ...]] = {
    "lossless": (BackReferences(),),
    # Repair comes last in both: it fixes calls and results that the others may have separated.
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


ENTRY_POINT_GROUP = "ibidem.profiles"
"""Entry point group by which a package offers profiles."""


def profile_strategies(name: str) -> tuple[Strategy, ...]:
    """Return the strategies of a profile: a built-in name, an entry point of a package, or `module:attribute`.

    No other entry point is loaded.
    """
    if isinstance(name, str) and name in PROFILES:
        return PROFILES[name]
    if (entry_point := _find_entry_point(name)) is not None:
        return _load_profile(name, entry_point)
    raise IbidemError(f"unknown profile {name!r}: use one of {', '.join(PROFILES)}, or your own as module:attribute")


def is_profile_name(name: str) -> bool:
    """Return True for a name that `profile_strategies` may know. It is not loaded, so loading it may still fail."""
    return name in PROFILES or _find_entry_point(name) is not None


def _find_entry_point(name: Any) -> EntryPoint | None:
    """Return the entry point of a profile that is not built in, or None."""
    from importlib.metadata import EntryPoint, entry_points  # slower to import than the rest of ibidem

    if not isinstance(name, str):
        return None
    module, _, attribute = name.partition(":")
    if all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        return EntryPoint(name, name, ENTRY_POINT_GROUP)
    return next(iter(entry_points(group=ENTRY_POINT_GROUP, name=name)), None)


def _load_profile(name: str, entry_point: EntryPoint) -> tuple[Strategy, ...]:
    """Load a profile: one strategy, a strategy class without required settings, or a list of strategies."""
    try:
        with redirect_stdout(sys.stderr):  # a module that prints must not change the output of a command
            value = entry_point.load()
            value = value() if isinstance(value, type) else value
    except (Exception, SystemExit) as error:
        detail = f"{type(error).__name__}: {error}"
        raise IbidemError(f"profile {name}: cannot be loaded ({detail}): check the name and PYTHONPATH") from error
    return select_strategies("", value if isinstance(value, list | tuple) else [value])


def select_strategies(profile: str, strategies: Any) -> tuple[Strategy, ...]:
    """Return the strategies to run: `strategies` if given, else the profile's. Raises UsageError for invalid ones."""
    if strategies is None:
        return profile_strategies(profile)
    if profile not in ("", "lossless"):  # the default: then only `strategies` was set
        raise UsageError(f"profile={profile!r} and strategies=… are both set: pass only one")
    if isinstance(strategies, str | bytes) or not isinstance(strategies, Iterable):
        suggestion = f"[{strategies!r}]" if is_strategy(strategies) else "[ibidem.BackReferences()]"
        raise UsageError(f"strategies must be a list, not {strategies!r}: pass strategies={suggestion}, or profile=…")
    return tuple(map(adapt_strategy, strategies))


def strategy_labels(strategies: Iterable[Strategy]) -> list[str]:
    """Return the labels of the strategies' edits."""
    return [label for each in strategies for label in each.labels or (each.name,)]
