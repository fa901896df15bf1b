"""Check invariant 6 on recorded sessions: sent texts expand to the original texts.

Expanding everything takes about as long as the rewrite, and each reference was already checked when it was made. So
only a sample is expanded: the new messages of every sixteenth request, chosen by a hash so that the sample never
changes, and those of the last request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from ..markers.backref import Source
from ..markers.layout import VisibleText
from ..markers.restore import ExpansionBudget, restore_text
from ..recordings import Recording
from ..strategies.arrival.sent_text import SentText

SAMPLE_INTERVAL = 16
"""One of this number of requests is in the sample."""
EXPANSION_DIFFERS = "law 6: what was sent does not give back what was said"


def is_sampled(session: Recording, number: int) -> bool:
    """Whether a request is in the sample. `number` is counted through the session."""
    name = f"{session.agent} {session.id} {session.name} {number}"
    return crc32(name.encode("utf-8", "replace")) % SAMPLE_INTERVAL == 0


def sampled_requests(session: Recording, segment: int, first: int) -> list[int]:
    """List the sampled requests of a segment, counted from its start. `first`: number of its first request."""
    requests = len(session.segments[segment].requests)
    final = requests - 1 if segment == len(session.segments) - 1 else -1
    return [place for place in range(requests) if place == final or is_sampled(session, first + place)]


def verify_expansion(arrivals: Iterable[tuple[int, Sequence[SentText]]], tag: str, ranges: Sequence[range]) -> bool:
    """Whether the results in some messages expand to the original. `arrivals`: place and sent texts by message."""
    places = {place for each in ranges for place in each}
    sent_texts: dict[Source, str] = {}
    visible_texts: dict[Source, VisibleText] = {}
    length = fetched_characters = 0

    def find_source(of: Source) -> VisibleText | None:
        if of in sent_texts and of not in visible_texts:
            visible_texts[of] = VisibleText.from_text(sent_texts[of], tag)
        return visible_texts.get(of)

    for message, texts in arrivals:
        for text in texts:
            sent_texts[text.place.source] = text.sent
            if message in places and text.place.segment is not None:
                budget = ExpansionBudget(length, fetched_characters)
                expansion = restore_text(text.sent, tag, find_source, budget)
                fetched_characters += budget.used_characters if expansion is not None else 0
                if (text.sent if expansion is None else expansion.original) != text.place.text:
                    return False
            length += len(text.sent)
    return True
