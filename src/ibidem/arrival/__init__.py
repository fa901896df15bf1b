"""Strategies that decide once, when a text is first sent, from it and what came before: free under every cache."""

from .dedup import Dedup
from .devboy import Devboy
from .hints import HintStyle
from .said_once import SaidOnce

__all__ = ["Dedup", "Devboy", "HintStyle", "SaidOnce"]
