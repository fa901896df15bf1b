"""Strategies that decide once, when a text is first sent, from it and what came before: free under every cache."""

from .backrefs import BackReferences
from .dedup import Dedup
from .devboy import Devboy
from .hints import HintStyle

__all__ = ["BackReferences", "Dedup", "Devboy", "HintStyle"]
