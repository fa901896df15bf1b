"""Ibidem rewrites an LLM request just before it is sent, so that nothing is said twice and nothing is lost.

>>> import ibidem
>>> result = ibidem.compact(request)          # a provider body, or a bare list of messages
>>> result.request                            # to be sent instead
>>> result.stats.total_bytes_saved
"""

from .arrival import Dedup, Devboy
from .engine import Compacted, compact, detect, validate
from .formats import FormatError
from .model import IbidemError
from .plan import Edit, Plan, Strategy
from .profiles import PROFILES
from .repair import RepairPairing
from .revision import DedupToolCalls, DropMiddle, Lingua, PruneThinking, Snippet
from .rules.rule import Violation
from .stats import Stats

__version__ = "0.1.0"

__all__ = [
    "PROFILES",
    "Compacted",
    "Dedup",
    "DedupToolCalls",
    "Devboy",
    "DropMiddle",
    "Edit",
    "FormatError",
    "IbidemError",
    "Lingua",
    "Plan",
    "PruneThinking",
    "RepairPairing",
    "Snippet",
    "Stats",
    "Strategy",
    "Violation",
    "__version__",
    "compact",
    "detect",
    "validate",
]
