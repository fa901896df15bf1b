"""Read token counts and model names from the field names of litellm, which many agents copy to their logs."""

from __future__ import annotations

from typing import Any

from ..billing.usage import Usage
from .recording import Json

MAX_TOKENS = 10**12
"""Upper limit of plausible token counts. Larger counts are ignored."""


def name_of(*found: Any) -> str:
    """Return the first value that is a non-empty string."""
    return next((each for each in found if isinstance(each, str) and each), "")


def count(value: Any) -> int:
    """Return `value` if it is a valid token count, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def within(found: Json, key: str) -> Json:
    """Return the object at `key`; an empty object if there is something else."""
    inner = found.get(key)
    return inner if isinstance(inner, dict) else {}


def usage_of(found: Any) -> Usage | None:
    """Convert usage in the field names of litellm; None if there are no input tokens.

    In current releases, `prompt_tokens` includes cache reads and writes. In older releases it excludes the writes, and
    in still older ones both. So a count that is larger than the total is not part of it.
    """
    if not isinstance(found, dict):
        return None
    inside = _object(found, "prompt_tokens_details", "input_tokens_details")
    outside = _object(found, "completion_tokens_details", "output_tokens_details")
    total = _count(found, "prompt_tokens", "input_tokens")
    read = _count(found, "cache_read_input_tokens", "cache_read_tokens", "prompt_cache_hit_tokens", "cached_tokens")
    read = read or _count(inside, "cached_tokens")
    written = _count(found, "cache_creation_input_tokens", "cache_write_tokens")
    written = written or _count(inside, "cache_creation_tokens")
    if not total + read + written:
        return None
    if total >= read + written:
        total -= read + written
    elif total >= read:
        total -= read
    output = _count(found, "completion_tokens", "output_tokens")
    reasoning = _count(outside, "reasoning_tokens") or _count(found, "reasoning_tokens")
    return Usage(total, read, written, output=output, reasoning=reasoning)


def _object(found: Json, *keys: str) -> Json:
    return next((found[key] for key in keys if isinstance(found.get(key), dict)), {})


def _count(found: Json, *keys: str) -> int:
    values = (found.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int) and value > 0), 0)
