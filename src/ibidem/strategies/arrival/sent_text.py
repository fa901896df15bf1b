"""How a text is sent, as the strategy state reports it."""

from __future__ import annotations

from typing import NamedTuple

from ...markers.backref import Source
from ...markers.layout import Layout
from ...markers.source_numbers import NumberedText


class SentText(NamedTuple):
    """A text of a message, and how it is sent."""

    place: NumberedText
    sent: str
    targets: tuple[Source, ...] = ()
    """Sources of the texts that it refers to."""


class SentForm(NamedTuple):
    """The form in which a text is sent."""

    text: str
    layout: Layout | None = None
    """Layout of the sent text, if known."""
    is_sent_in_full: bool = False
    """True if the text is sent without references because its call was repeated."""
    targets: tuple[Source, ...] = ()
    """Sources of the texts that it refers to."""
    has_own_marker: bool = False
    """True if its markers are proven to be our own."""
    has_no_layout: bool = False
    """True if the text is sent unchanged because no shorter layout fits."""
    encoded_text: str = ""
    """The encoded text without the marker that names its encoding, if known."""
