"""Law 6 on recorded sessions: what is sent gives back what was said.

Giving back everything takes about as long as leaving it out, and every reference was followed once already, when it
was made. So of most sessions only a share is given back a second time, by whoever reads the request: what every
sixteenth request added, chosen by a hash so that it is always the same ones, and what the last one did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from ..markers.backref import Source
from ..markers.layout import Shown
from ..markers.restore import Budget, restore
from ..recordings import Recording
from ..strategies.arrival.sent import SentText

SHARE = 16
"""One request in so many is chosen."""
NOT_GIVEN_BACK = "law 6: what was sent does not give back what was said"


def is_chosen(session: Recording, number: int) -> bool:
    """Whether what a request added is looked at; it is counted through the session."""
    name = f"{session.agent} {session.id} {session.name} {number}"
    return crc32(name.encode("utf-8", "replace")) % SHARE == 0


def chosen_requests(session: Recording, segment: int, first: int) -> list[int]:
    """Those of a segment whose first request is that one, counted from there."""
    requests = len(session.segments[segment].requests)
    final = requests - 1 if segment == len(session.segments) - 1 else -1
    return [place for place in range(requests) if place == final or is_chosen(session, first + place)]


def all_given_back(told: Iterable[tuple[int, Sequence[SentText]]], tag: str, added: Sequence[range]) -> bool:
    """Whether results in these messages come back from what is sent, as `told` says it, message by message."""
    wanted = {place for each in added for place in each}
    sent: dict[Source, str] = {}
    shown: dict[Source, Shown] = {}
    length = fetched = 0

    def source(of: Source) -> Shown | None:
        if of in sent and of not in shown:
            shown[of] = Shown.of(sent[of], tag)
        return shown.get(of)

    for message, texts in told:
        for text in texts:
            sent[text.place.source] = text.sent
            if message in wanted and text.place.segment is not None:
                budget = Budget(length, fetched)
                found = restore(text.sent, tag, source, budget)
                fetched += budget.used if found is not None else 0
                if (text.sent if found is None else found.original) != text.place.text:
                    return False
            length += len(text.sent)
    return True
