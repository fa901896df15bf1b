"""How texts are sent: what the fold over a conversation says of each."""

from __future__ import annotations

from typing import NamedTuple

from ...markers.backref import Source
from ...markers.layout import Layout
from ...markers.numbering import NumberedText


class SentText(NamedTuple):
    """A text that was taken in, and how it is sent."""

    place: NumberedText
    sent: str
    targets: tuple[Source, ...] = ()
    """What it refers to."""


class SentForm(NamedTuple):
    """How a text is sent."""

    text: str
    layout: Layout | None = None
    """If it is known."""
    in_full: bool = False
    """Because it was asked for again."""
    targets: tuple[Source, ...] = ()
    """What it refers to."""
    ours: bool = False
    """What looks like a marker in it is one that was made here."""
    shapeless: bool = False
    """It is sent as it is because no shape fits it."""
    whole: str = ""
    """All of it, without the marker that says how it was folded, if that is known."""
