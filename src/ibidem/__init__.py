"""Ibidem rewrites an LLM request just before it is sent, so that nothing is said twice and nothing is lost.

>>> import ibidem
>>> result = ibidem.compact(request)          # a provider body, or a bare list of messages
>>> result.request                            # to be sent instead
>>> result.stats.total_bytes_saved

What is offered here is loaded when it is first asked for, so that importing costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import cache, testing
    from .arrival import Dedup, Devboy, HintStyle, SaidOnce
    from .engine import Compacted, compact, detect, validate
    from .expansion import expand
    from .formats import FormatError
    from .keeping import recall
    from .model import IbidemError
    from .plan import Edit, Plan, Strategy
    from .profiles import PROFILES
    from .repair import RepairPairing
    from .revision import DedupToolCalls, DropMiddle, Lingua, LookBack, PruneThinking, Snippet
    from .rules.rule import Violation
    from .session import Session
    from .stats import Stats
    from .timing import Economy

__version__ = "0.1.0"

__all__ = [
    "PROFILES",
    "Compacted",
    "Dedup",
    "DedupToolCalls",
    "Devboy",
    "DropMiddle",
    "Economy",
    "Edit",
    "FormatError",
    "HintStyle",
    "IbidemError",
    "Lingua",
    "LookBack",
    "Plan",
    "PruneThinking",
    "RepairPairing",
    "SaidOnce",
    "Session",
    "Snippet",
    "Stats",
    "Strategy",
    "Violation",
    "__version__",
    "cache",
    "compact",
    "detect",
    "expand",
    "recall",
    "testing",
    "validate",
]

_HOME = {
    "arrival": ("Dedup", "Devboy", "HintStyle", "SaidOnce"),
    "engine": ("Compacted", "compact", "detect", "validate"),
    "expansion": ("expand",),
    "formats": ("FormatError",),
    "keeping": ("recall",),
    "model": ("IbidemError",),
    "plan": ("Edit", "Plan", "Strategy"),
    "profiles": ("PROFILES",),
    "repair": ("RepairPairing",),
    "revision": ("DedupToolCalls", "DropMiddle", "Lingua", "LookBack", "PruneThinking", "Snippet"),
    "rules.rule": ("Violation",),
    "session": ("Session",),
    "stats": ("Stats",),
    "timing": ("Economy",),
}
_MODULES = ("cache", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    for module, names in _HOME.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return value
    raise AttributeError(f"module 'ibidem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
