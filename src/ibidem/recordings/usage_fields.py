"""Read token counts and model names from the field names of litellm, which many agents copy to their logs."""

from __future__ import annotations

from typing import Any

from ..billing.usage import Usage
from .recording import Json

MAX_TOKENS = 10**12
"""Upper limit of plausible token counts. Larger counts are ignored."""


def first_name(*values: Any) -> str:
    """Return the first value that is a non-empty string."""
    return next((each for each in values if isinstance(each, str) and each), "")


def token_count(value: Any) -> int:
    """Return `value` if it is a valid token count, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def object_at(fields: Json, key: str) -> Json:
    """Return the object at `key`; an empty object if there is something else."""
    inner = fields.get(key)
    return inner if isinstance(inner, dict) else {}


def litellm_usage(fields: Any) -> Usage | None:
    """Convert usage in the field names of litellm; None if there are no input tokens.

    In current releases, `prompt_tokens` includes cache reads and writes. In older releases it excludes the writes, and
    in still older ones both. So a count that is larger than the total is not part of it.
    """
    if not isinstance(fields, dict):
        return None
    input_details = _first_object(fields, "prompt_tokens_details", "input_tokens_details")
    output_details = _first_object(fields, "completion_tokens_details", "output_tokens_details")
    total = _first_count(fields, "prompt_tokens", "input_tokens")
    read = _first_count(
        fields, "cache_read_input_tokens", "cache_read_tokens", "prompt_cache_hit_tokens", "cached_tokens"
    )
    read = read or _first_count(input_details, "cached_tokens")
    write_tokens = _first_count(fields, "cache_creation_input_tokens", "cache_write_tokens")
    write_tokens = write_tokens or _first_count(input_details, "cache_creation_tokens")
    if not total + read + write_tokens:
        return None
    if total >= read + write_tokens:
        total -= read + write_tokens
    elif total >= read:
        total -= read
    output = _first_count(fields, "completion_tokens", "output_tokens")
    reasoning = _first_count(output_details, "reasoning_tokens") or _first_count(fields, "reasoning_tokens")
    return Usage(total, read, write_tokens, output=output, reasoning=reasoning)


def _first_object(fields: Json, *keys: str) -> Json:
    return next((fields[key] for key in keys if isinstance(fields.get(key), dict)), {})


def _first_count(fields: Json, *keys: str) -> int:
    values = (fields.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int) and value > 0), 0)
