"""The name of an original: digits of a digest of its content, so that nothing else can be brought back by it."""

from __future__ import annotations

import hashlib

REFERENCE_DIGITS = 12
"""Of a reference: one in 280 billion texts would have the same, and the store refuses such a one."""


def reference(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:REFERENCE_DIGITS]
