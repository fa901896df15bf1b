"""Notes of a conversation in a store: whoever goes on with it decides as the one before did, and reads what is new."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import ibidem
from ibidem.billing.revision_budget import CachePricing
from ibidem.engine.journal_store import JournalStore
from ibidem.store import MemoryStore
from ibidem.store.store import JournalPage, JournalPosition
from tests.engine.test_session import begun, file_of, lengths, reads
from tests.support.evict import NO_CLOCKS

CACHED = CachePricing(read=0.1, write=1.25, lifetime=300)
LOOKING = ibidem.Evict(**NO_CLOCKS, economy=CACHED, mask=2)
NAME = "a conversation"


class Counted(MemoryStore):
    """Counts the rows that are read and written."""

    read = written = 0

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        self.written += len(rows)
        return super().note(session, rows, since)

    def notes(self, *given: Any) -> JournalPage:
        found = super().notes(*given)
        self.read += len(found.rows)
        return found


class Replica:
    """A session that goes on with what the store knows, as the proxy does."""

    def __init__(self, store: MemoryStore) -> None:
        self.session = ibidem.Session(strategies=[LOOKING], format="anthropic", store=store)
        self.notebook = JournalStore(self.session, store, NAME)

    def turn(self, body: Any, at: float, context: int | None = None) -> Any:
        self.notebook.read()
        found = self.session.compact(json.dumps(body).encode(), at=at)
        self.notebook.write()
        self.session.answered(at=at, context=context)
        self.notebook.write()
        return found.request


def pauses(request: Any) -> list[tuple[int, float]]:
    """Each request of a conversation, by its length, and when it comes: some find a cold cache."""
    now, found = 0.0, []
    for length in lengths(request):
        now += 400.0 if length in (9, 15) else 5.0
        found.append((length, now))
    return found


def straight(request: Any) -> list[Any]:
    """What one session sends that is never stopped."""
    alone = Replica(MemoryStore())
    return [alone.turn(begun(request, length), at, 500 * length) for length, at in pauses(request)]


def test_replicas_that_take_turns_read_and_write_what_is_new() -> None:
    request, store = reads(*(file_of(60, n) for n in range(10))), Counted()
    expected, replicas = straight(request), [Replica(store) for _ in range(2)]
    for turn, (length, at) in enumerate(pauses(request)):
        assert replicas[turn % 3 % 2].turn(begun(request, length), at, 500 * length) == expected[turn]
    turns = len(expected)
    assert store.written == 2 * turns, "when it was sent, and when it was answered"
    assert store.read <= 2 * turns
    assert Replica(store).turn(request, at, 500 * length) == expected[-1], "and so does one who comes later"


@pytest.mark.parametrize("how", ["forgotten", "replaced"])
def test_a_conversation_whose_notes_are_lost_writes_them_again(how: str) -> None:
    request, store = reads(*(file_of(60, n) for n in range(10))), MemoryStore()
    expected, one = straight(request), Replica(store)
    for turn, (length, at) in enumerate(pauses(request)):
        if turn == 6:
            store.forget_all()
            if how == "replaced":
                Replica(store).turn(begun(reads(file_of(20, 99)), 3), at)
        assert one.turn(begun(request, length), at, 500 * length) == expected[turn]
    assert Replica(store).turn(request, at, 500 * length) == expected[-1]


def test_branches_share_what_is_kept_and_know_nothing_of_each_other() -> None:
    trunk = [file_of(60, n) for n in range(4)]
    requests = [reads(*trunk, *(file_of(60, seed + n) for n in range(5))) for seed in (10, 20)]
    store = MemoryStore()
    expected, replicas = [straight(request) for request in requests], [Replica(store) for _ in requests]
    for turn in range(len(expected[0])):
        for request, replica, sent in zip(requests, replicas, expected, strict=True):
            length, at = pauses(request)[turn]
            assert replica.turn(begun(request, length), at, 500 * length) == sent[turn]


def test_two_who_write_at_once_lose_nothing() -> None:
    request, store = reads(file_of(60)), MemoryStore()
    one, other = Replica(store), Replica(store)
    for each in (one, other):
        each.notebook.read()
        each.session.compact(request, at=1.0)
    one.session.answered(at=2.0, context=700)
    other.session.sent_otherwise(request, 1, refused=True)
    one.notebook.write()
    other.notebook.write()
    one.notebook.read()
    rows = json.loads(one.session.state())["notes"], json.loads(other.session.state())["notes"]
    assert rows[0] == rows[1]
    ((_, _, _, as_is, at, context, _, refused, *_),) = rows[0]
    assert (as_is, at, context, refused) == (1, 2.0, 700, True)


def test_notes_of_the_former_shape_are_gone_on_with() -> None:
    request, store = reads(*(file_of(60, n) for n in range(10))), MemoryStore()
    expected, before = straight(request), ibidem.Session(strategies=[LOOKING], format="anthropic", store=store)
    for length, at in pauses(request)[:6]:
        before.compact(begun(request, length), at=at)
        before.answered(at=at, context=500 * length)
    store.save(NAME, before.state(), [])
    for turn, (length, at) in list(enumerate(pauses(request)))[6:]:
        assert Replica(store).turn(begun(request, length), at, 500 * length) == expected[turn]
    store.save(NAME, b"", [])
    assert Replica(store).turn(request, at, 500 * length) == expected[-1], "by then rows say all of it"


def test_a_note_of_another_version_is_left_out() -> None:
    request, store = reads(*(file_of(60, n) for n in range(3))), MemoryStore()
    one = Replica(store)
    sent = one.turn(request, 1.0)
    place = store.notes(NAME).place
    store.note(NAME, [b"[99]", b"[6,1]", b"{}", b"no note", b"null"], place)
    for each in (one, Replica(store)):
        assert each.turn(request, 2.0) == sent
