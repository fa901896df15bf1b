"""Limit for the number of values in a foreign JSON text, checked before parsing it."""

from __future__ import annotations

MAX_PARTS = 400_000
"""Maximum number of values and names. A parsed text of the smallest values takes thirty times its bytes."""
_VALUE_STARTS = (b'"', b",", b"{", b"[")
"""One of these is before every value but the first, and around every name. They also occur inside strings, so a
long string with many such characters is not parsed either."""


def has_too_many_values(data: bytes) -> bool:
    """Return True if a JSON text may have more values than the limit. Counts bytes without parsing."""
    return len(data) > MAX_PARTS and sum(map(data.count, _VALUE_STARTS)) > MAX_PARTS
