"""Strategies that change what was sent before. Each costs a rewrite of the provider's cached prefix."""

from .lingua import Lingua
from .look_back import LookBack
from .middle import DropMiddle
from .snippet import Snippet
from .thinking import PruneThinking
from .tool_calls import DedupToolCalls

__all__ = ["DedupToolCalls", "DropMiddle", "Lingua", "LookBack", "PruneThinking", "Snippet"]
