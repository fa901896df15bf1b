"""The option `cache=` of adapters that work on framework classes, which do not show cache breakpoints."""

from __future__ import annotations

from ..billing.cache_ttl import CACHE_MODES, CacheMode
from ..errors import UsageError

ALTERNATIVES = "or use ibidem.adapters.httpx.Transport(cache=…) or `ibidem proxy --cache`"


def check_cache_mode(cache: object, adapter: str, instead: str, *, auto: bool = True, name: str = "cache") -> CacheMode:
    """Check the option `cache` of such an adapter: `off`, or `auto` if the framework has a setting for it.

    Raises UsageError, which recommends the setting in `instead`. `name` is the name of the option in the adapter.
    """
    modes: tuple[CacheMode, ...] = ("off", "auto") if auto else ("off",)
    for mode in modes:
        if cache == mode:
            return mode
    if cache in CACHE_MODES:
        raise UsageError(
            f"{name}: {adapter} does not support {cache!r}: {instead}, {ALTERNATIVES}; see docs/caching.md"
        )
    raise UsageError(f"{name}: {cache!r} is unknown: use {' or '.join(modes)}, {ALTERNATIVES}; see docs/caching.md")
