"""`cache=` of adapters that go by a framework's own classes: there are no marks in what they see."""

from __future__ import annotations

from ..billing.lifetimes import CACHE_MODES, CacheMode
from ..errors import UsageError

WIRE = "or have ibidem.adapters.httpx.Transport(cache=…) or `ibidem proxy --cache` on the way"


def checked_cache(cache: object, adapter: str, instead: str, *, auto: bool = True, name: str = "cache") -> CacheMode:
    """A mode that such an adapter knows: `off`, and `auto` where that can be said to the framework; UsageError names
    what to set `instead`. `name` is what the setting is called there."""
    known: tuple[CacheMode, ...] = ("off", "auto") if auto else ("off",)
    for mode in known:
        if cache == mode:
            return mode
    if cache in CACHE_MODES:
        raise UsageError(f"{name}: {cache!r} cannot be had from {adapter}: {instead}, {WIRE}; see docs/caching.md")
    raise UsageError(f"{name}: {cache!r} is unknown: use {' or '.join(known)}, {WIRE}; see docs/caching.md")
