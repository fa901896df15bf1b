"""."""

from .lingua import Lingua
from .middle import DropMiddle
from .snippet import Snippet
from .thinking import PruneThinking
from .tool_calls import DedupToolCalls

__all__ = ["DedupToolCalls", "DropMiddle", "Lingua", "PruneThinking", "Snippet"]
