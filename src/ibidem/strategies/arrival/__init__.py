"""Strategies that decide once, when a text is first sent, from it and what came before: free under every cache."""

from .backrefs import SaidOnce
from .dedup import Dedup
from .devboy import Devboy
from .hints import HintStyle

__all__ = ["Dedup", "Devboy", "HintStyle", "SaidOnce"]
