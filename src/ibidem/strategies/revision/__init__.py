"""Strategies that change what was sent before. Each costs a rewrite of the provider's cached prefix."""

from .evict import Evict

__all__ = ["Evict"]
