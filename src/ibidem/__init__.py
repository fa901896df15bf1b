"""Ibidem rewrites an LLM request just before it is sent, so that repeated text is sent once and no text is lost.

>>> import ibidem
>>> result = ibidem.compact(request)          # a provider body, or a bare list of messages
>>> result.request                            # to be sent instead
>>> result.stats.total_bytes_saved

Each name is loaded on first use, so that importing takes almost no time.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import takes half as long as Python's start

if TYPE_CHECKING:
    from typing import Any

    from . import cache, codetether, devboy, testing
    from .billing.cache_ttl import IdleTimes
    from .billing.revision_budget import CachePricing
    from .engine.expansion import expand
    from .engine.pipeline import Compacted, compact, detect, validate
    from .engine.session import Session
    from .engine.stats import Stats
    from .errors import IbidemError
    from .formats import FormatError
    from .plan import Edit, Plan
    from .rules.demands import Violation
    from .store.recall import recall
    from .strategies.arrival import BackReferences, HintStyle
    from .strategies.ported import Dedup, DedupToolCalls, Devboy, DropMiddle, Lingua, PruneThinking, Snippet
    from .strategies.profiles import PROFILES
    from .strategies.repair import RepairPairing
    from .strategies.revision import Evict
    from .strategies.strategy import ConversationStart, Revision, Strategy, StrategyState

__version__ = "0.1.0"

__all__ = [
    "PROFILES",
    "BackReferences",
    "CachePricing",
    "Compacted",
    "ConversationStart",
    "Dedup",
    "DedupToolCalls",
    "Devboy",
    "DropMiddle",
    "Edit",
    "Evict",
    "FormatError",
    "HintStyle",
    "IbidemError",
    "IdleTimes",
    "Lingua",
    "Plan",
    "PruneThinking",
    "RepairPairing",
    "Revision",
    "Session",
    "Snippet",
    "Stats",
    "Strategy",
    "StrategyState",
    "Violation",
    "__version__",
    "cache",
    "codetether",
    "compact",
    "detect",
    "devboy",
    "expand",
    "recall",
    "testing",
    "validate",
]

_HOME = {
    "strategies.arrival": ("HintStyle", "BackReferences"),
    "engine.pipeline": ("Compacted", "compact", "detect", "validate"),
    "engine.expansion": ("expand",),
    "formats": ("FormatError",),
    "store.recall": ("recall",),
    "errors": ("IbidemError",),
    "plan": ("Edit", "Plan"),
    "strategies.strategy": ("ConversationStart", "Revision", "Strategy", "StrategyState"),
    "strategies.profiles": ("PROFILES",),
    "strategies.repair": ("RepairPairing",),
    "strategies.ported": ("Dedup", "DedupToolCalls", "Devboy", "DropMiddle", "Lingua", "PruneThinking", "Snippet"),
    "strategies.revision": ("Evict",),
    "rules.demands": ("Violation",),
    "engine.session": ("Session",),
    "engine.stats": ("Stats",),
    "billing.revision_budget": ("CachePricing",),
    "billing.cache_ttl": ("IdleTimes",),
}
_MODULES = ("cache", "codetether", "devboy", "testing")
_RENAMED = {"Economy": "CachePricing", "Fold": "StrategyState", "Pauses": "IdleTimes", "Start": "ConversationStart"}
"""Old name → new name. The old names go with 0.2."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _RENAMED:
        from warnings import warn

        new = _RENAMED[name]
        warn(f"ibidem.{name} is now ibidem.{new}; the old name goes with 0.2", DeprecationWarning, stacklevel=2)
        return getattr(import_module(__name__), new)
    for module, names in _HOME.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return value
    raise AttributeError(f"module 'ibidem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
