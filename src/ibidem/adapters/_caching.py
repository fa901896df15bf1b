"""The option `cache=` of adapters that work on framework classes, which do not show cache breakpoints."""

from __future__ import annotations

from ..billing.lifetimes import CACHE_MODES, CacheMode
from ..errors import UsageError

WIRE = "or use ibidem.adapters.httpx.Transport(cache=…) or `ibidem proxy --cache`"


def checked_cache(cache: object, adapter: str, instead: str, *, auto: bool = True, name: str = "cache") -> CacheMode:
    """Check the option `cache` of such an adapter: `off`, or `auto` if the framework has a setting for it.

    Raises UsageError, which recommends the setting in `instead`. `name` is the name of the option in the adapter.
    """
    known: tuple[CacheMode, ...] = ("off", "auto") if auto else ("off",)
    for mode in known:
        if cache == mode:
            return mode
    if cache in CACHE_MODES:
        raise UsageError(f"{name}: {adapter} does not support {cache!r}: {instead}, {WIRE}; see docs/caching.md")
    raise UsageError(f"{name}: {cache!r} is unknown: use {' or '.join(known)}, {WIRE}; see docs/caching.md")
