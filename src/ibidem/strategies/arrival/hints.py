"""Wording of a reference to a whole result that was sent before: ours or another system's."""

from __future__ import annotations

import enum

from ...markers import codetether
from ...model import utf8_size


class HintStyle(enum.Enum):
    """System whose wording is used for a reference to a whole result."""

    IBIDEM = "ibidem"
    CODETETHER = "codetether"
    DEVBOY = "devboy"


def render_hint(style: HintStyle, call_id: str, text: str) -> str:
    """Return the reference to a result by its call id, in another system's wording."""
    if style is HintStyle.CODETETHER:
        return codetether.same_result(call_id, utf8_size(text))
    from ...cache import render_reference_hint  # not needed to import ibidem

    return render_reference_hint(call_id)
