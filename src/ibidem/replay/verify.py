"""Check invariant 6 on recorded sessions: sent texts expand to the original texts.

Expanding everything takes about as long as the rewrite, and each reference was already checked when it was made. So
only a sample is expanded: the new messages of every sixteenth request, chosen by a hash so that the sample never
changes, and those of the last request.
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
"""One of this number of requests is in the sample."""
NOT_GIVEN_BACK = "law 6: what was sent does not give back what was said"


def is_chosen(session: Recording, number: int) -> bool:
    """Whether a request is in the sample. `number` is counted through the session."""
    name = f"{session.agent} {session.id} {session.name} {number}"
    return crc32(name.encode("utf-8", "replace")) % SHARE == 0


def chosen_requests(session: Recording, segment: int, first: int) -> list[int]:
    """List the sampled requests of a segment, counted from its start. `first`: number of its first request."""
    requests = len(session.segments[segment].requests)
    final = requests - 1 if segment == len(session.segments) - 1 else -1
    return [place for place in range(requests) if place == final or is_chosen(session, first + place)]


def all_given_back(told: Iterable[tuple[int, Sequence[SentText]]], tag: str, added: Sequence[range]) -> bool:
    """Whether the results in some messages expand to the original. `told`: place and sent texts of every message."""
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
