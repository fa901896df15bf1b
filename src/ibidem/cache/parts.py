"""How much a JSON text that somebody else wrote may hold before anybody parses it."""

from __future__ import annotations

MAX_PARTS = 400_000
"""Values and names in a text, at most: made of the smallest, a parsed one takes thirty times its bytes."""
_SIGNS = (b'"', b",", b"{", b"[")
"""One of these stands before every value but the first, and around every name. In texts they may stand too: a long one
that is full of them is not parsed either."""


def too_many_parts(data: bytes) -> bool:
    return len(data) > MAX_PARTS and sum(map(data.count, _SIGNS)) > MAX_PARTS
