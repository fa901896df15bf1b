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
from .revision.gate import NEVER
from .strategy import Strategy, adapted, is_strategy

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


GROUP = "ibidem.profiles"
"""Entry point group by which a package offers profiles."""


def named(name: str) -> tuple[Strategy, ...]:
    """Return the strategies of a profile: a built-in name, an entry point of a package, or `module:attribute`.

    No other entry point is loaded.
    """
    if isinstance(name, str) and name in PROFILES:
        return PROFILES[name]
    if (where := _elsewhere(name)) is not None:
        return _own(name, where)
    raise IbidemError(f"unknown profile {name!r}: use one of {', '.join(PROFILES)}, or your own as module:attribute")


def is_name(name: str) -> bool:
    """Return True for a name that `profile_strategies` may know. It is not loaded, so loading it may still fail."""
    return name in PROFILES or _elsewhere(name) is not None


def _elsewhere(name: Any) -> EntryPoint | None:
    """Return the entry point of a profile that is not built in, or None."""
    from importlib.metadata import EntryPoint, entry_points  # slower to import than the rest of ibidem

    if not isinstance(name, str):
        return None
    module, _, attribute = name.partition(":")
    if all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        return EntryPoint(name, name, GROUP)
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _own(name: str, where: EntryPoint) -> tuple[Strategy, ...]:
    """Load a profile: one strategy, a strategy class without required settings, or a list of strategies."""
    try:
        with redirect_stdout(sys.stderr):  # a module that prints must not change the output of a command
            value = where.load()
            value = value() if isinstance(value, type) else value
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise IbidemError(f"profile {name}: cannot be loaded ({why}): check the name and PYTHONPATH") from error
    return chosen("", value if isinstance(value, list | tuple) else [value])


def chosen(profile: str, strategies: Any) -> tuple[Strategy, ...]:
    """Return the strategies to run: `strategies` if given, else the profile's. Raises UsageError for invalid ones."""
    if strategies is None:
        return named(profile)
    if profile not in ("", "lossless"):  # the default: then only `strategies` was set
        raise UsageError(f"profile={profile!r} and strategies=… are both set: pass only one")
    if isinstance(strategies, str | bytes) or not isinstance(strategies, Iterable):
        wanted = f"[{strategies!r}]" if is_strategy(strategies) else "[ibidem.BackReferences()]"
        raise UsageError(f"strategies must be a list, not {strategies!r}: pass strategies={wanted}, or profile=…")
    return tuple(map(adapted, strategies))


def labels(strategies: Iterable[Strategy]) -> list[str]:
    """Return the labels of the strategies' edits."""
    return [label for each in strategies for label in each.labels or (each.name,)]
