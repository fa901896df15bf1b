"""One contract for every store, and what is special about each of them."""

import os
import pickle
import random
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ibidem import IbidemError
from ibidem.environment import install_command
from ibidem.store import (
    Limits,
    MemoryStore,
    RedisStore,
    SqliteStore,
    Store,
    StoreError,
    StoreStats,
    open_store,
    reference,
)
from ibidem.store.database import BUSY_SECONDS
from ibidem.store.retention import DAY_SECONDS, DEFAULT_BYTES, DEFAULT_DAYS, MOST_NOTES, MOST_ORIGINALS, MOST_SESSIONS
from ibidem.store.schema import APPLICATION_ID, MIGRATIONS
from ibidem.store.sqlite import READ_SECONDS
from ibidem.store.store import JOURNAL_START, JournalPage, JournalPosition
from ibidem.store.value_codec import RAW, encode_value
from tests.support.locked import EXCLUSIVE, held

COLLIDING = ("text no. 1908044", "text no. 5173450")
"""Two texts with the same reference, found by trying."""

SURROGATE = "lone \ud800 surrogate"
TEXTS = [
    pytest.param("", id="nothing"),
    pytest.param("short", id="a short text"),
    pytest.param("the same line again\n" * 5_000, id="a text that compresses well"),
    pytest.param("Größe → 大\r\n\x00\x1b[0m", id="unicode and control characters"),
    pytest.param(SURROGATE, id="a lone surrogate"),
    pytest.param(SURROGATE * 100, id="many lone surrogates"),
]


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """A place for stores of one kind, and the means to do damage there."""

    open: Callable[..., Store]
    spoil: Callable[[Store, str, bytes], None]
    """Write these bytes in place of what is kept under a reference."""
    spoil_note: Callable[[Store, bytes, int], None]
    """Damage the note of that number, of a session by that name."""
    clock: Clock = field(default_factory=Clock)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    opened: list[Store] = []

    def opening(make: Callable[..., Store]) -> Callable[..., Store]:
        def open_one(**options: Any) -> Store:
            opened.append(make(**{"clock": found.clock, **options}))
            return opened[-1]

        return open_one

    if request.param == "memory":
        found = Bench(opening(MemoryStore), _spoil_memory, _spoil_memory_note)
    elif request.param == "sqlite":
        found = Bench(
            opening(lambda **options: SqliteStore(tmp_path / "folder" / "store.db", **options)),
            _spoil_sqlite,
            _spoil_sqlite_note,
        )
    else:
        url, prefix = request.getfixturevalue("redis_url"), f"{tmp_path.name}:"
        found = Bench(
            opening(lambda **options: RedisStore(url, prefix=prefix, **options)), _spoil_redis, _spoil_redis_note
        )
    yield found
    for store in opened:
        store.close()


def _spoil_memory(store: Store, ref: str, body: bytes) -> None:
    assert isinstance(store, MemoryStore)
    kept = store._originals[ref]
    store._originals[ref] = type(kept)(body, kept.size, kept.added)


def _spoil_sqlite(store: Store, ref: str, body: bytes) -> None:
    assert isinstance(store, SqliteStore)
    with_file(store.path, "UPDATE originals SET body = ? WHERE ref = ?", body, ref)


def _spoil_redis(store: Store, ref: str, body: bytes) -> None:
    assert isinstance(store, RedisStore)
    store._open_client().hset(store.prefix + "body", ref, body)


def _spoil_memory_note(store: Store, session: bytes, number: int) -> None:
    assert isinstance(store, MemoryStore)
    store._sessions[session.decode()].notes[number] += b"?"


def _spoil_sqlite_note(store: Store, session: bytes, number: int) -> None:
    assert isinstance(store, SqliteStore)
    with_file(store.path, "UPDATE notes SET body = zeroblob(3) WHERE number = ?", number)


def _spoil_redis_note(store: Store, session: bytes, number: int) -> None:
    assert isinstance(store, RedisStore)
    store._open_client().lset(store.prefix.encode() + b"notes:" + session, number, b"?")


def with_file(path: Path, statement: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def by_ref(*texts: str) -> dict[str, str]:
    return {reference(text): text for text in texts}


def taken(*texts: str) -> int:
    """Bytes that a store needs for these."""
    store = MemoryStore()
    store.put("s", by_ref(*texts))
    return store.stats().bytes_stored


def at_most(max_bytes: int | None = None, max_age: float | None = None, live_for: float = 0) -> Limits:
    """Limits of which those that are not named do not count."""
    return Limits(max_bytes=max_bytes, max_age=max_age, live_for=live_for)


def kept(store: Store, *texts: str) -> list[str]:
    """Those of the texts that the store still has."""
    found = store.get(map(reference, texts))
    assert all(found[reference(text)] == text for text in texts if reference(text) in found)
    return [text for text in texts if reference(text) in found]


# --- the contract -------------------------------------------------------------------------------


def test_a_reference_is_the_beginning_of_sha256() -> None:
    assert reference("abc") == "ba7816bf8f01"
    assert len(reference(SURROGATE)) == 12


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_put_comes_back(bench: Bench, text: str) -> None:
    store = bench.open()
    store.put("s", by_ref(text))
    assert store.get([reference(text)]) == by_ref(text)


def test_get_gives_those_that_are_there(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("a", "b"))
    asked = [reference("a"), reference("a"), reference("unknown"), "", "no reference", SURROGATE, "A" * 12]
    assert store.get(iter(asked)) == by_ref("a")
    assert store.get([]) == {}


def test_a_session_knows_what_was_put_for_it(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("a", "b"))
    store.put("s", by_ref("b", "c"))
    store.put(SURROGATE, by_ref("d"))
    assert store.refs("s") == set(by_ref("a", "b", "c"))
    assert store.refs(SURROGATE) == set(by_ref("d"))
    assert store.refs("nobody") == set()
    store.save("s", b"", by_ref("c", "e"))
    assert store.refs("s") == set(by_ref("c", "e")), "the text of one of them is missing"
    store.forget("s")
    assert store.refs("s") == set()


def test_the_newest_places_of_an_original_are_remembered_as_long_as_it_is(bench: Bench) -> None:
    store, ref = bench.open(), reference("text")
    store.put("one", {ref: "text"})
    assert store.places(ref) == []
    for place in ("first", "second", "third", "first", "a\nline", "first"):
        store.place({ref: place, reference("unknown"): place})
    assert store.places(ref) == ["third", "a\\nline", "first"]
    assert store.places(reference("unknown")) == []
    store.forget("one")
    store.put("one", {ref: "text"})
    assert store.places(ref) == []
    store.place({ref: "again"})
    store.forget_all()
    store.put("one", {ref: "text"})
    assert store.places(ref) == []


def test_putting_twice_changes_nothing(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("a", "b"))
    before = store.stats()
    store.put("s", by_ref("b", "a"))
    assert store.stats() == before


@pytest.mark.slow
def test_a_large_batch(bench: Bench) -> None:
    store = bench.open()
    texts = [f"text {number}" for number in range(4000)]
    store.put("s", by_ref(*texts))
    store.save("s", b"", by_ref(*texts))
    assert len(store.get(by_ref(*texts))) == len(texts)
    assert store.forget("s") == len(texts)


def test_a_wrong_reference_is_refused_and_nothing_of_it_counts(bench: Bench) -> None:
    store = bench.open()
    with pytest.raises(StoreError, match="not the reference of its text"):
        store.put("s", {reference("a"): "a", reference("b"): "c"})
    assert store.stats() == StoreStats(0, 0, 0, 0, None, None)


def test_another_text_with_the_same_reference_is_refused(bench: Bench) -> None:
    first, second = COLLIDING
    assert first != second
    assert reference(first) == reference(second)
    store = bench.open()
    store.put("s", by_ref(first))
    with pytest.raises(StoreError, match=f"another text already has the reference {reference(first)}"):
        store.put("t", by_ref(second, "bystander"))
    assert kept(store, first, "bystander") == [first]
    assert store.stats().sessions == 1


@pytest.mark.parametrize("text", ["short", "the same line again\n" * 100])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing left"),
        pytest.param(b"\x00\x00\x00\x00", id="a part of the head"),
        pytest.param(b"\x00\x00\x00\x00\x00", id="an empty value"),
        pytest.param(b"\x07\x00\x00\x00\x00", id="written in a way nobody knows"),
        pytest.param(b"\x01\x00\x00\x00\x00", id="an empty frame"),
        pytest.param(os.urandom(100), id="noise"),
    ],
)
def test_a_damaged_original_is_not_there_until_it_is_put_again(bench: Bench, text: str, body: bytes) -> None:
    store = bench.open()
    store.put("s", by_ref(text, "whole"))
    bench.spoil(store, reference(text), body)
    assert kept(store, text, "whole") == ["whole"]
    store.put("s", by_ref(text))
    assert kept(store, text, "whole") == [text, "whole"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_text_packed_otherwise_is_the_same_text(bench: Bench, text: str) -> None:
    store = bench.open()
    store.put("s", by_ref(text))
    raw = text.encode("utf-8", "surrogatepass")
    bench.spoil(store, reference(text), RAW + zlib.crc32(raw).to_bytes(4, "big") + raw)
    store.put("t", by_ref(text, "more"))
    assert kept(store, text, "more") == [text, "more"]


def test_a_state_is_loaded_as_it_was_saved(bench: Bench) -> None:
    store = bench.open()
    assert store.load("s") is None
    for state in (b"", b"\x00\xff", b"state " * 1_000, os.urandom(1_000)):
        store.save("s", state, [])
        assert store.load("s") == state
    assert store.load("t") is None


def test_sessions_may_have_any_name(bench: Bench) -> None:
    store = bench.open()
    names = ["", " ", "a:b*?[", "refs:a", "\x00", SURROGATE, "ü" * 1_000]
    for name in names:
        store.save(name, name.encode("utf-8", "surrogatepass"), by_ref(name))
        store.put(name, by_ref(name))
    assert [store.load(name) for name in names] == [name.encode("utf-8", "surrogatepass") for name in names]
    assert [store.forget(name) for name in names] == [1] * len(names)


def test_a_session_with_originals_only_has_no_state(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("a"))
    assert store.load("s") is None


def test_a_state_names_only_references(bench: Bench) -> None:
    store = bench.open()
    with pytest.raises(StoreError, match="'recall' is not a reference"):
        store.save("s", b"state", ["recall"])
    assert store.load("s") is None


def noted(*rows: bytes) -> int:
    """Bytes that notes take as they are kept."""
    return sum(len(encode_value(row)) for row in rows)


def test_notes_are_read_from_where_one_was(bench: Bench) -> None:
    store = bench.open()
    assert store.notes("s") == JournalPage([], JOURNAL_START)
    rows = [b"", b"\x00\xff", b"a note " * 100, os.urandom(300)]
    first = store.note("s", rows[:2], JOURNAL_START)
    assert (first.rows, first.added, first.place.end) == ([], True, 2)
    second = store.note("s", rows[2:], first.place)
    assert (second.added, second.place) == (True, JournalPosition(first.place.log, 4))
    assert [store.notes("s", place).rows for place in (JOURNAL_START, first.place, second.place)] == [
        rows,
        rows[2:],
        [],
    ]
    assert store.notes("s").place == second.place
    assert store.notes("t") == JournalPage([], JOURNAL_START)
    assert store.load("s") is None
    assert store.stats() == StoreStats(0, 1, 0, 0, None, None, noted(*rows))


def test_nobody_adds_a_note_who_has_not_read_those_before(bench: Bench) -> None:
    store = bench.open()
    first = store.note("s", [b"one"], JOURNAL_START).place
    assert store.note("s", [b"two"], JOURNAL_START) == JournalPage([b"one"], first)
    second = store.note("s", [b"two"], first).place
    assert store.note("s", [b"three"], first) == JournalPage([b"two"], second)
    store.forget("s")
    assert store.note("s", [b"three"], second) == JournalPage([], JOURNAL_START)
    again = store.note("s", [b"three"], JOURNAL_START).place
    again = store.note("s", [b"four"], again).place
    assert (again.end, again == second) == (second.end, False)
    assert store.note("s", [b"five"], second) == JournalPage([b"three", b"four"], again), "as many, and others"
    assert store.stats().bytes_states == noted(b"three", b"four")


def test_a_damaged_note_is_left_out(bench: Bench) -> None:
    store = bench.open()
    place = store.note("s", [b"one", b"two", b"three"], JOURNAL_START).place
    bench.spoil_note(store, b"s", 1)
    assert store.notes("s") == JournalPage([b"one", b"three"], place)


def test_the_newest_notes_are_kept(bench: Bench) -> None:
    store = bench.open()
    rows = [b"%d" % number for number in range(MOST_NOTES + 5)]
    place = store.note("s", rows[:3], JOURNAL_START).place
    end = store.note("s", rows[3:], place).place
    assert end.end == len(rows)
    assert store.notes("s").rows == store.notes("s", place).rows == rows[5:]
    assert store.stats().bytes_states == noted(*rows[5:])
    store.forget("s")
    assert store.stats().bytes_states == 0


def test_notes_count_and_go_with_their_session(bench: Bench) -> None:
    row = os.urandom(100)
    store = bench.open(limits=at_most(3 * noted(row), live_for=10))
    for number in range(3):
        store.note(f"s{number}", [row], JOURNAL_START)
        bench.clock.now += 1
    bench.clock.now += 10
    store.note("s3", [row], JOURNAL_START)
    assert [store.notes(f"s{number}").rows for number in range(4)] == [[], [row], [row], [row]]
    assert store.stats().bytes_states == 3 * noted(row)


def test_notes_of_many_at_once_are_all_there(bench: Bench) -> None:
    store = bench.open()

    def work(name: str) -> None:
        place = JOURNAL_START
        for number in range(20):
            while not (found := store.note("s", [f"{name} {number}".encode()], place)).added:
                place = found.place
            place = found.place

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = store.notes("s").rows
    assert [[row for row in rows if row.startswith(name.encode())] for name in "abcd"] == [
        [f"{name} {number}".encode() for number in range(20)] for name in "abcd"
    ]


def test_forgetting_a_session_leaves_what_others_reference(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("shared", "own"))
    store.put("t", by_ref("shared"))
    store.save("s", b"state", by_ref("shared", "own"))
    assert store.forget("s") == 1
    assert kept(store, "shared", "own") == ["shared"]
    assert store.load("s") is None
    assert store.forget("s") == 0
    assert store.forget("t") == 1
    assert store.stats() == StoreStats(0, 0, 0, 0, None, None)


def test_what_a_session_no_longer_names_is_kept_until_there_is_a_reason(bench: Bench) -> None:
    store = bench.open(limits=at_most(max_age=10))
    store.put("s", by_ref("a", "b"))
    store.save("s", b"", by_ref("b"))
    store.put("s", by_ref("c"))
    assert kept(store, "a", "b", "c") == ["a", "b", "c"]
    bench.clock.now += 10.5
    store.load("s")
    store.put("s", {})
    assert kept(store, "a", "b", "c") == ["b", "c"], "first put more than max_age ago, and nobody names it"


def test_a_reference_that_is_named_before_its_original_is_there_protects_it(bench: Bench) -> None:
    store = bench.open(limits=at_most(taken("a"), live_for=10))
    store.save("s", b"", by_ref("a"))
    store.put("t", by_ref("a"))
    assert store.forget("t") == 0
    store.put("t", by_ref("b"))
    assert kept(store, "a", "b") == ["a", "b"]


def test_forgetting_everything(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("a", "b"))
    store.save("t", b"state", by_ref("a", "never put"))
    store.save("s", b"state", [])
    assert store.forget_all() == 2
    assert store.stats() == StoreStats(0, 0, 0, 0, None, None)
    assert (store.load("s"), store.load("t"), store.forget_all()) == (None, None, 0)
    store.put("s", by_ref("a"))
    assert kept(store, "a") == ["a"]


def test_forgetting_what_is_older(bench: Bench) -> None:
    store = bench.open()
    store.put("old", by_ref("old", "shared"))
    bench.clock.now += 100
    store.put("new", by_ref("new", "shared"))
    assert store.forget_older(100) == 0, "used just then"
    bench.clock.now += 1
    assert store.forget_older(100) == 1
    assert kept(store, "old", "new", "shared") == ["new", "shared"]
    assert store.stats().sessions == 1


def test_stats(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref("a", "ü"))
    bench.clock.now += 5
    store.put("t", by_ref("line\n" * 1_000))
    store.save("t", b"state", by_ref("line\n" * 1_000))
    times = bench.clock.now - 5, bench.clock.now
    expected = StoreStats(3, 2, taken("a", "ü", "line\n" * 1_000), 3 + 5_000, *times, len(encode_value(b"state")))
    assert store.stats() == expected
    assert expected.bytes_stored < 200
    store.save("t", b"a longer state", [])
    assert store.stats().bytes_kept == expected.bytes_stored + len(encode_value(b"a longer state"))
    store.forget_all()
    assert store.stats().bytes_kept == 0


# --- limits -------------------------------------------------------------------------------------

A, B, C, D = (f"{letter} " + "x" * 50 for letter in "abcd")
ONE = taken(A)


def test_a_store_forgets_after_thirty_days_or_at_two_gigabytes_unless_told_otherwise(bench: Bench) -> None:
    store = bench.open()
    assert store.limits == Limits(max_age=30 * 86_400, max_bytes=2_000_000_000, live_for=86_400)
    assert (DEFAULT_DAYS, DEFAULT_BYTES) == (30, 2_000_000_000)
    store.put("s", by_ref(A))
    store.save("s", b"state", by_ref(A))
    bench.clock.now += 30 * DAY_SECONDS
    store.put("t", by_ref(B))
    assert kept(store, A, B) == [A, B]
    bench.clock.now += 1
    store.put("t", by_ref(B))
    assert kept(store, A, B) == [B]
    assert store.load("s") is None


def test_without_limits_nothing_goes(bench: Bench) -> None:
    store = bench.open(limits=at_most())
    store.put("s", by_ref(A))
    bench.clock.now += 1e9
    store.put("t", by_ref(B))
    assert store.prune() == 0
    assert kept(store, A, B) == [A, B]


@pytest.mark.parametrize("use", ["put", "save", "load", "note", "notes"])
def test_a_session_lives_for_its_age_after_its_last_use(bench: Bench, use: str) -> None:
    store = bench.open(limits=at_most(max_age=10))
    store.put("s", by_ref(A))
    store.save("s", b"state", by_ref(A))
    bench.clock.now += 10
    if use == "put":
        store.put("s", {})
    elif use == "save":
        store.save("s", b"state", by_ref(A))
    elif use == "note":
        store.note("s", [b"a note"], JOURNAL_START)
    elif use == "notes":
        store.notes("s")
    else:
        store.load("s")
    bench.clock.now += 10
    store.put("t", by_ref(B))
    assert kept(store, A) == [A]
    bench.clock.now += 0.5
    store.put("t", by_ref(B))
    assert kept(store, A) == []
    assert store.load("s") is None, "a session goes whole"


def test_reading_is_no_use(bench: Bench) -> None:
    store = bench.open(limits=at_most(max_age=10))
    store.put("s", by_ref(A))
    bench.clock.now += 10.5
    assert kept(store, A) == [A]
    store.put("t", by_ref(B))
    assert kept(store, A) == []


def test_a_session_that_is_used_again_in_time_lives_on(bench: Bench) -> None:
    store = bench.open(limits=at_most(max_age=10))
    store.put("s", by_ref(A))
    store.save("s", b"state", by_ref(A))
    bench.clock.now += 1_000
    store.put("s", by_ref(B))
    assert kept(store, A, B) == [A, B], "nobody had removed it meanwhile"
    assert store.load("s") == b"state"


def test_a_clock_that_is_set_back_ages_nothing(bench: Bench) -> None:
    store = bench.open(limits=at_most(max_age=10))
    store.put("s", by_ref(A))
    bench.clock.now -= 1_000
    store.put("s", by_ref(B))
    bench.clock.now += 1_009
    store.put("t", by_ref(C))
    assert kept(store, A, B, C) == [A, B, C]


def test_what_live_sessions_refer_to_stays_and_that_is_told_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.open(limits=at_most(2 * ONE, live_for=DAY_SECONDS))
    for number, text in enumerate((A, B, C, D)):
        store.put(f"s{number}", by_ref(text))
        bench.clock.now += DAY_SECONDS / 8
    assert kept(store, A, B, C, D) == [A, B, C, D], "the limit is exceeded rather than a live text lost"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{store.where}: {ONE} bytes above the limit of {2 * ONE}: ")
    assert "used in the last 24 hours" in line
    bench.clock.now += DAY_SECONDS
    store.put("s3", by_ref(D))
    assert kept(store, A, B, C, D) == [C, D], "the oldest conversations first, as many as it takes"
    store.put("s0", by_ref(A))
    store.load("s2")
    assert kept(store, A, C, D) == [A, D], "there was one idle conversation left, and it went"
    assert len(caplog.records) == 1


def test_a_limit_that_was_lowered_counts(bench: Bench) -> None:
    store = bench.open()
    store.put("s", by_ref(A, B, C))
    store.save("s", b"", by_ref(A, B))
    store.limits = at_most(ONE, live_for=10)
    store.put("t", by_ref(A))
    assert kept(store, A, B, C) == [A, B], "what nobody refers to went"
    bench.clock.now += 11
    store.put("t", by_ref(A))
    assert kept(store, A, B, C) == [A], "and what an idle session alone refers to"


def test_what_is_put_again_makes_no_room(bench: Bench) -> None:
    store = bench.open(limits=at_most(2 * ONE))
    store.put("s", by_ref(A))
    bench.clock.now += 1
    store.put("s", by_ref(B))
    store.save("s", b"", [])
    store.forget("u")
    store.put("s", by_ref(A, B))
    store.save("s", b"", by_ref(A))
    store.put("s", by_ref(C))
    assert kept(store, A, B, C) == [A, C], "named again by a state, it stays"


def test_the_oldest_that_nobody_references_make_room_first(bench: Bench) -> None:
    store = bench.open(limits=at_most(3 * ONE + 5))
    store.put("idle", by_ref(D))
    bench.clock.now += 1
    for text in (B, A, C):
        store.put("s", by_ref(text))
        bench.clock.now += 1
        store.save("s", b"", by_ref(B))
    assert kept(store, A, B, C, D) == [B, C, D]


def test_sessions_make_room_from_the_least_recently_used_on(bench: Bench) -> None:
    store = bench.open(limits=at_most(3 * ONE, live_for=10))
    for name, text in (("s", A), ("t", B), ("u", C)):
        store.put(name, by_ref(text))
        bench.clock.now += 1
    assert store.load("s") is None
    bench.clock.now += 10.5
    store.put("v", by_ref(D))
    assert kept(store, A, B, C, D) == [A, C, D], "asked for its state, the first was used again"
    assert store.stats().sessions == 3


def test_what_is_shared_with_a_live_session_outlives_the_other(bench: Bench) -> None:
    store = bench.open(limits=at_most(ONE, max_age=100, live_for=10))
    store.put("old", by_ref(A, B))
    bench.clock.now += 11
    store.put("live", by_ref(A))
    store.put("live", by_ref(C))
    assert kept(store, A, B, C) == [A, C], "also where there is more than there should be"
    bench.clock.now += 101
    store.put("later", by_ref(D))
    assert kept(store, A, B, C, D) == [D]


def test_no_age_is_shorter_than_a_live_session(bench: Bench) -> None:
    store = bench.open(limits=at_most(max_age=1, live_for=10))
    store.put("s", by_ref(A))
    bench.clock.now += 10
    store.put("t", by_ref(B))
    assert kept(store, A, B) == [A, B]


def test_states_count_and_go_too(bench: Bench) -> None:
    state = os.urandom(100)
    store = bench.open(limits=at_most(3 * len(encode_value(state)), live_for=10))
    for number in range(3):
        store.save(f"s{number}", state, [])
        bench.clock.now += 1
    bench.clock.now += 10
    store.save("s3", state, [])
    assert [store.load(f"s{number}") for number in range(4)] == [None, state, state, state]
    assert store.stats().bytes_states == 3 * len(encode_value(state))


def test_nobody_waits_for_all_that_is_over(bench: Bench) -> None:
    """What goes with one put is bounded, however much may go; `prune` removes the rest, slice by slice."""
    store = bench.open(limits=at_most())
    texts = [f"text {number}" for number in range(3 * MOST_ORIGINALS)]
    store.put("large", by_ref(*texts))
    for number in range(3 * MOST_SESSIONS):
        store.save(f"s{number}", b"", [])
    bench.clock.now += 100
    store.limits = at_most(max_age=10)
    before = store.stats()
    store.put("t", by_ref("new"))
    after = store.stats()
    assert 0 < before.originals + 1 - after.originals <= MOST_ORIGINALS
    assert 0 < before.sessions + 1 - after.sessions <= MOST_SESSIONS
    assert store.prune() == after.originals - 1
    left = store.stats()
    assert (left.originals, left.sessions) == (1, 1)
    assert kept(store, "new") == ["new"]
    assert store.prune() == 0


def test_a_store_that_is_used_stays_at_its_limit(bench: Bench) -> None:
    """Each put removes more than it adds, whatever the slices are."""
    store = bench.open(limits=at_most(50 * ONE))
    for number in range(300):
        store.put(f"s{number}", by_ref(f"{number:06} " + "x" * 45))
        bench.clock.now += 1
        assert store.stats().bytes_kept <= 50 * ONE
    assert store.stats().originals >= 45


# --- at once, and again -------------------------------------------------------------------------


def test_threads_share_a_store(bench: Bench) -> None:
    store = bench.open(limits=at_most(10_000_000, max_age=100))
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(30):
                mine = by_ref(f"{name} {number}", f"shared {number}")
                store.put(name, mine)
                assert store.get(mine) == mine
                store.save(name, f"{number}".encode(), mine)
                assert store.load(name) == f"{number}".encode()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.stats().originals == 4 * 30 + 30


def test_a_closed_store_opens_again(bench: Bench) -> None:
    with bench.open() as store:
        store.put("s", by_ref("a"))
    assert kept(store, "a") == ["a"]
    store.close()
    store.close()


def test_a_store_that_several_share_can_be_pickled(bench: Bench) -> None:
    store = bench.open(limits=at_most(10_000, max_age=10.0))
    store.put("s", by_ref("a"))
    if isinstance(store, MemoryStore):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(store)
    else:
        with pickle.loads(pickle.dumps(store)) as copy:
            assert kept(copy, "a") == ["a"]
            assert copy.limits == store.limits


@dataclass
class Model:
    """What is known of a session: once it might have gone, some of it may be there or not."""

    used: float
    states: set[bytes | None] = field(default_factory=lambda: {None})
    """One of these is its state."""
    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    """Texts that it references for sure, and at most."""
    notes: list[bytes] = field(default_factory=list)


class Machine(RuleBasedStateMachine):
    """Any calls in any order, against a dict of sessions."""

    open: Callable[..., Store]
    pool = tuple(f"{number} " + "x" * 10 * number for number in range(6))
    texts = st.sets(st.sampled_from(pool))
    names = st.sampled_from(["s", "t", "u"])

    @initialize(
        age=st.sampled_from([None, 10]),
        size=st.sampled_from([None, taken(*pool[2:4]), taken(*pool[:5])]),
        live=st.sampled_from([0, 4, 12]),
    )
    def start(self, age: float | None, size: int | None, live: float) -> None:
        self.limits, self.clock = Limits(max_age=age, max_bytes=size, live_for=live), Clock()
        self.store = self.open(limits=self.limits, clock=self.clock)
        self.sessions: dict[str, Model] = {}
        self.there: set[str] = set()
        """Texts that may be there."""

    def teardown(self) -> None:
        self.store.forget_all()
        self.store.close()

    def use(self, name: str) -> Model:
        found = self.sessions.setdefault(name, Model(self.clock.now))
        found.used = max(found.used, self.clock.now)
        return found

    def live(self, found: Model) -> bool:
        """Whether nothing of it may go, by its age or to make room."""
        sized = self.limits.max_bytes is not None
        since = self.limits.idle_before if sized else self.limits.over_before
        return found.used >= since(self.clock.now)

    def needed(self) -> set[str]:
        """Texts that must be there, since a live session references them."""
        return set().union(*(each.must for each in self.sessions.values() if self.live(each))) & self.there

    def keep(self, since: float) -> None:
        self.sessions = {name: each for name, each in self.sessions.items() if each.used >= since}

    def pruned(self) -> None:
        """What is over has gone; of the rest, what is not live may have, and has where there is still too much."""
        self.keep(self.limits.over_before(self.clock.now))
        for found in self.sessions.values():
            if not self.live(found):
                found.states.add(None)
                found.must = set()
        stats = self.store.stats()
        if self.limits.excess(stats.bytes_kept):
            self.keep(self.limits.idle_before(self.clock.now))
            most = set().union(*(each.may for each in self.sessions.values())) & self.there
            assert stats.bytes_stored <= taken(*most), "all that could go went"

    @rule(name=names, texts=texts)
    def put(self, name: str, texts: set[str]) -> None:
        self.store.put(name, by_ref(*texts))
        found = self.use(name)
        found.must, found.may = found.must | texts, found.may | texts
        self.there |= texts
        self.pruned()

    @rule()
    def prune(self) -> None:
        self.store.prune()
        self.pruned()

    @rule(name=names, state=st.binary(max_size=3), texts=texts)
    def save(self, name: str, state: bytes, texts: set[str]) -> None:
        self.store.save(name, state, by_ref(*texts))
        found = self.use(name)
        found.states, found.must, found.may = {state}, set(texts), set(texts)
        self.pruned()

    @rule(name=names)
    def load(self, name: str) -> None:
        state = self.store.load(name)
        found = self.sessions.get(name)
        assert state in (found.states if found else {None})
        if found and state is not None:
            self.use(name).states = {state}
        elif found and not found.must:
            self.forget(name)  # it may have gone already or not: now it has
        elif found:
            self.use(name)

    @rule(name=names, row=st.binary(max_size=3))
    def note(self, name: str, row: bytes) -> None:
        before = self.store.notes(name)
        found = self.sessions.get(name)
        known = found.notes if found else []
        assert before.rows == known or (not before.rows and (found is None or None in found.states))
        assert self.store.note(name, [row], before.place).added
        found = self.use(name)
        if before.rows != found.notes:  # it had gone
            found.states, found.must = {None}, set()
        found.notes = [*before.rows, row]
        self.pruned()

    @rule(name=names)
    def forget(self, name: str) -> None:
        self.store.forget(name)
        self.sessions.pop(name, None)

    @rule(seconds=st.integers(0, 20))
    def forget_older(self, seconds: int) -> None:
        self.store.forget_older(seconds)
        self.keep(self.clock.now - seconds)

    @rule(seconds=st.integers(-5, 15))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @invariant()
    def what_is_needed_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        found = set(kept(self.store, *self.pool))
        assert self.needed() <= found <= self.there
        self.there = found
        stats = self.store.stats()
        assert (stats.originals, stats.bytes_stored) == (len(found), taken(*found))


@pytest.mark.slow
def test_any_calls_in_any_order(bench: Bench) -> None:
    slow = [HealthCheck.too_slow]
    limits = settings(max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=slow)
    run_state_machine_as_test(type("Bound", (Machine,), {"open": staticmethod(bench.open)}), settings=limits)


# --- SQLite -------------------------------------------------------------------------------------

WRITER = """
import os, sys
from ibidem.store import SqliteStore, reference
store = SqliteStore(sys.argv[1])
name, rounds = sys.argv[2], int(sys.argv[3])
for number in range(rounds):
    texts = [f"{name} {number} {part} " + "line of output\\n" * (part * 300) for part in range(3)]
    originals = {reference(text): text for text in texts}
    store.put(name, originals)
    print(*originals, flush=True)
    store.save(name, str(number).encode(), originals)
store.close()
"""


def writer(path: Path, name: str, rounds: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def assert_consistent(path: Path) -> None:
    """What is derived agrees with what it is derived from."""
    assert with_file(path, "PRAGMA integrity_check") == [("ok",)]
    (totals,) = with_file(path, "SELECT originals, stored, size FROM totals")
    (counted,) = with_file(path, "SELECT count(*), sum(length(body)), sum(size) FROM originals")
    assert totals == tuple(value or 0 for value in counted)
    states = "SELECT (SELECT coalesce(sum(length(state)), 0) FROM sessions)"
    notes = "(SELECT coalesce(sum(length(body)), 0) FROM notes)"
    assert with_file(path, "SELECT states FROM totals") == with_file(path, f"{states} + {notes}")
    assert with_file(path, "SELECT count(*) FROM notes WHERE session NOT IN (SELECT id FROM sessions)") == [(0,)]
    unlinked = "SELECT ref FROM originals WHERE ref NOT IN (SELECT ref FROM links) ORDER BY ref"
    assert with_file(path, "SELECT ref FROM loose ORDER BY ref") == with_file(path, unlinked)


@pytest.mark.slow
def test_what_put_returned_from_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path, chance = tmp_path / "store.db", random.Random(7)
    promised: list[str] = []
    for attempt in range(10):
        with writer(path, f"s{attempt}", 1_000_000) as process:
            assert process.stdout is not None
            promised += process.stdout.readline().split()
            time.sleep(chance.uniform(0, 0.06))
            process.send_signal(signal.SIGKILL)
            lines = process.stdout.read().splitlines(keepends=True)
            promised += [ref for line in lines if line.endswith("\n") for ref in line.split()]
        with SqliteStore(path) as store:
            assert store.get(promised).keys() == set(promised)
    assert len(promised) > 10 * 3
    assert_consistent(path)


def test_processes_write_at_once_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.db"
    processes = [writer(path, f"s{number}", 20) for number in range(4)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    with SqliteStore(path) as store:
        refs = " ".join(printed).split()
        assert store.get(refs).keys() == set(refs)
        assert [store.load(f"s{number}") for number in range(4)] == [b"19"] * 4
        assert store.stats().originals == 4 * 20 * 3
    assert_consistent(path)


def test_a_turn_that_goes_on_alone_asks_the_file_little(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.db") as store:
        place = store.note("s", [b"a"], JOURNAL_START).place
        connection, asked = store._database._connection, list[str]()
        assert connection is not None
        connection.set_trace_callback(asked.append)
        store.notes("s", place)
        assert [each.split()[0] for each in asked] == ["BEGIN", "SELECT", "COMMIT"]
        asked.clear()
        assert store.note("s", [b"b"], place).added
        ours = dict.fromkeys(each for each in asked if not each.startswith("--"))  # a trigger is told as who set it off
        assert [each.split()[0] for each in ours] == ["BEGIN", "SELECT", "INSERT", "UPDATE", "SELECT", "COMMIT"]


def test_what_need_not_be_durable_leaves_the_rest_durable(tmp_path: Path) -> None:
    def level() -> int:
        connection = store._database._connection
        assert connection is not None
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    normal, full = 1, 2
    with SqliteStore(tmp_path / "store.db") as store:
        for _ in range(2):
            place = store.note("s", [b"a"], store.notes("s").place).place
            assert level() == full
            store.load("s")
            assert level() == normal
        store.note("s", [b"b"], place)
        assert level() == full
        store.close()
        store.load("s")
        store.put("s", {reference("text"): "text"})
        assert level() == full


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_store_goes_through_a_fork(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.put("parent", by_ref("before"))
    child = os.fork()
    if not child:
        failed = True
        try:
            store.put("child", by_ref("child"))
            store.close()
            failed = False
        finally:
            os._exit(failed)
    store.put("parent", by_ref("after"))
    assert os.waitpid(child, 0)[1] == 0
    with store:
        assert kept(store, "before", "child", "after") == ["before", "child", "after"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_nothing_is_open_while_a_process_forks(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
        child = os.fork()
        if not child:
            handles = [os.path.realpath(f"/dev/fd/{handle}") for handle in os.listdir("/dev/fd")]
            os._exit(any(str(path) in handle for handle in handles))
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.name != "posix", reason="modes mean something else here")
def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with SqliteStore(tmp_path / "a" / "b" / "store.db") as store:
            store.put("s", by_ref("a"))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.path.parent.iterdir()}
    finally:
        os.umask(mask)
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with SqliteStore(tmp_path / "store.db") as store:
        store.put("s", by_ref("a"))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_commits_are_made_to_survive_a_loss_of_power(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.db") as store:
        store.load("s")
        store.put("s", by_ref("a"))
        connection = store._database._connection
        assert connection is not None
        settings = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
        }
    assert settings == {"synchronous": 2, "journal_mode": "wal"}


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    assert with_file(path, "PRAGMA user_version") == [(0,)]
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
    assert with_file(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]


def test_a_store_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for statement in MIGRATIONS[0]:
        with_file(path, statement)
    with_file(path, f"PRAGMA application_id = {APPLICATION_ID}")
    with_file(path, "PRAGMA user_version = 1")
    with_file(path, "INSERT INTO sessions (name, used, state) VALUES (?, 1e6, ?)", b"s", encode_value(b"state"))
    with_file(path, "INSERT INTO sessions (name, used) VALUES (?, 1e6)", b"t")
    for text in (A, B):
        values = (reference(text), len(text), 1e6, encode_value(text.encode()))
        with_file(path, "INSERT INTO originals (ref, size, added, body) VALUES (?, ?, ?, ?)", *values)
        with_file(path, "INSERT INTO links (session, ref) VALUES (1, ?)", reference(text))
    with_file(path, "DELETE FROM links WHERE ref = ?", reference(B))
    with SqliteStore(path, clock=Clock(1e6 + 5)) as store:
        assert kept(store, A, B) == [A, B]
        assert store.stats().bytes_states == len(encode_value(b"state"))
        assert store.load("s") == b"state"
        store.save("t", b"another", [])
        assert store.notes("s") == JournalPage([], JOURNAL_START)
        place = store.note("s", [b"one"], JOURNAL_START).place
        assert store.notes("s") == JournalPage([b"one"], place)
    assert_consistent(path)
    assert with_file(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    with SqliteStore(path, clock=Clock(1e6 + 31 * DAY_SECONDS)) as store:
        store.put("u", by_ref(C))
        assert kept(store, A, B, C) == [C]
    assert_consistent(path)


def test_what_went_for_its_age_leaves_a_smaller_file(tmp_path: Path) -> None:
    """By and by, while it is written to: nobody waits for all of it."""
    path, clock = tmp_path / "store.db", Clock()
    with SqliteStore(path, clock=clock) as store:
        for number in range(40):
            store.put(f"s{number}", by_ref(os.urandom(100_000).hex()))
        store.close()
        large = path.stat().st_size
        clock.now += 31 * DAY_SECONDS
        sizes = []
        for number in range(12):
            store.put("t", by_ref(f"text {number}"))
            store.close()
            sizes.append(path.stat().st_size)
    assert large > 4_000_000
    assert sizes[-1] < large // 4
    assert sizes == sorted(sizes, reverse=True)
    assert_consistent(path)


def test_processes_that_forget_at_once_lose_nothing_that_is_live(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path, clock=Clock(1e6)) as store:
        for number in range(3 * MOST_SESSIONS):
            store.put(f"old {number}", by_ref(*(f"old {number} {part}" for part in range(30)), "shared"))
    processes = [writer(path, f"s{number}", 20) for number in range(3)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 3
    with SqliteStore(path) as store:
        refs = " ".join(printed).split()
        store.prune()
        assert store.get(refs).keys() == set(refs)
        assert (store.stats().originals, store.stats().sessions) == (3 * 20 * 3, 3)
    assert_consistent(path)


def test_a_store_moves_with_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteStore(Path("store.db")) as store:
        monkeypatch.chdir("/")
        store.put("s", by_ref("a"))
    assert (tmp_path / "store.db").exists()


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be deleted here")
def test_a_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
        for file in tmp_path.iterdir():
            file.unlink()
        store.put("s", by_ref("b"))
        with SqliteStore(path) as other:
            assert kept(other, "a", "b") == ["b"], "not written where nobody finds it"


def test_what_is_forgotten_is_overwritten_and_room_given_back(tmp_path: Path) -> None:
    secret = "secret " + os.urandom(20_000).hex()
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref(secret, "small secret"))
        assert any(b"small secret" in file.read_bytes() for file in tmp_path.iterdir())
        large = sum(file.stat().st_size for file in tmp_path.glob("store.db*"))
        store.forget("s")
        assert not any(b"small secret" in file.read_bytes() for file in tmp_path.iterdir())
        (log,) = tmp_path.glob("store.db-wal")
        assert path.stat().st_size + log.stat().st_size < large - len(secret) // 2


def _page(path: Path, number: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * number)
        file.write(content)


def _newer(path: Path) -> None:
    with_file(path, "PRAGMA user_version = 99")


def _foreign(path: Path) -> None:
    path.unlink()
    with_file(path, "CREATE TABLE notes (note)")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(lambda path: path.write_text("no database " * 1_000), "damaged or not a database", id="a text"),
        pytest.param(lambda path: os.truncate(path, 4096 * 2), "damaged or not a database", id="cut short"),
        pytest.param(lambda path: _page(path, 1, b"\xff" * 4096 * 9), "damaged or not a database", id="overwritten"),
        pytest.param(_newer, r"a newer ibidem wrote this \(version 99, this one knows 4\): upgrade", id="newer"),
        pytest.param(_foreign, "a database of another program: use another file", id="of another program"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "cannot be opened: check the path", id="a folder"),
    ],
)
def test_a_file_that_is_no_store(tmp_path: Path, harm: Callable[[Path], object], words: str) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref(*(f"text {number}" for number in range(500))))
    harm(path)
    before = path.read_bytes() if path.is_file() else b""
    with SqliteStore(path) as store, pytest.raises(StoreError, match=words) as caught:
        store.put("s", by_ref("a", *(f"text {number}" for number in range(500))))
    assert caught.value.where == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert before == (path.read_bytes() if path.is_file() else b""), "what is not ours is not touched"


@pytest.mark.parametrize("name", ["file/store.db", "file/folder/store.db"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with (
        SqliteStore(tmp_path / name) as store,
        pytest.raises(StoreError, match=r"(Not a directory|File exists): check the path"),
    ):
        store.put("s", by_ref("a"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="modes do not stop this user")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o500)
    with SqliteStore(tmp_path / "folder" / "store.db") as store, pytest.raises(StoreError, match="can be written to"):
        store.put("s", by_ref("a"))


def test_a_store_that_another_process_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.store.database.BUSY_SECONDS", 0.05)
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process keeps it locked"):
            store.put("s", by_ref("b"))
        assert kept(store, "a", "b") == ["a"], "reading goes on"
        other.close()
        store.put("s", by_ref("b"))
        assert kept(store, "b") == ["b"]


def test_who_asks_does_not_wait_for_one_who_writes(tmp_path: Path) -> None:
    """Neither at the first use nor behind a thread of the same process that waits to write."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
    with SqliteStore(path) as store, held(path, "BEGIN IMMEDIATE"):
        waiting = threading.Thread(target=lambda: suppressed(store), daemon=True)
        waiting.start()
        start = time.monotonic()
        assert kept(store, "a") == ["a"]
        assert waiting.is_alive(), "the other still waits"
        assert time.monotonic() - start < BUSY_SECONDS / 2
    waiting.join(30)


def suppressed(store: Store) -> None:
    with suppress(StoreError):
        store.put("s", by_ref("b"))


def test_who_asks_while_all_are_kept_out_is_soon_told_so(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
    told: list[str] = []

    def ask(store: Store) -> None:
        with pytest.raises(StoreError) as caught:
            store.get([reference("a")])
        told.append(str(caught.value))

    assert READ_SECONDS <= 2.5, "what is asked for is answered within three seconds"
    with held(path, *EXCLUSIVE), SqliteStore(path) as store:
        start = time.monotonic()
        threads = [threading.Thread(target=ask, args=(store,), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert time.monotonic() - start < BUSY_SECONDS / 2
    assert told == [f"{path}: another process keeps it locked: try again, or end that process"] * 4
    assert kept(store, "a") == ["a"]


@pytest.mark.skipif(os.name != "posix", reason="no limits here")
def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    script = f"""
    import resource
    from ibidem.store import SqliteStore, StoreError, reference
    store = SqliteStore({str(path)!r})
    store.put("s", {{reference("a"): "a"}})
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    number = 0
    while True:
        text = " ".join(str(hash((number, each))) for each in range(2_000))
        try:
            store.put("s", {{reference(text): text}})
        except StoreError as error:
            print("refused", reference(text), error)
            break
        print("kept", reference(text), flush=True)
        number += 1
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    promised = [line.split()[1] for line in lines[:-1]] + [reference("a")]
    assert len(promised) > 2
    assert lines[-1].startswith("refused")
    assert "check the disk and its free space" in lines[-1]
    with SqliteStore(path) as store:
        assert store.get(promised).keys() == set(promised)
        assert store.get([lines[-1].split()[1]]) == {}
    assert_consistent(path)


# --- Redis --------------------------------------------------------------------------------------


def test_a_redis_server_that_drops_keys_is_refused(redis_url: str) -> None:
    with RedisStore(redis_url, prefix="dropping:") as store:
        server = store._open_client()
        server.config_set("maxmemory", "1gb")
        server.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(StoreError, match=r"deletes keys when its memory is full \(allkeys-lru\)"):
                store.put("s", by_ref("a"))
        finally:
            server.config_set("maxmemory", "0")
            server.config_set("maxmemory-policy", "noeviction")
        store.put("s", by_ref("a"))
        store.forget_all()


def test_a_redis_server_that_takes_no_writes(redis_url: str) -> None:
    with RedisStore(redis_url, prefix="refusing:") as store:
        store.put("s", by_ref("a"))
        server = store._open_client()
        server.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreError, match="takes writes"):
                store.put("s", by_ref("b"))
        finally:
            server.config_set("maxmemory", "0")
        assert kept(store, "a", "b") == ["a"]
        store.forget_all()


def test_nothing_is_left_on_a_redis_server(redis_url: str) -> None:
    with RedisStore(redis_url, prefix="leaving:") as store:
        store.put("s", by_ref("a", "b"))
        store.save("s", b"state", by_ref("a", "never put"))
        store.note("s", [b"a note"], JOURNAL_START)
        store.put("t", by_ref("a"))
        for name in "st":
            store.forget(name)
        left = {key: store._open_client().hgetall(key) for key in store._open_client().keys("leaving:*")}
    assert left == {b"leaving:totals": {b"stored": b"0", b"size": b"0", b"states": b"0"}}


def test_states_that_an_older_version_left_on_a_redis_server_are_counted(redis_url: str) -> None:
    with RedisStore(redis_url, prefix="older:") as store:
        store.save("s", b"state", [])
        store._open_client().hdel("older:totals", "states")
        store.put("t", {})
        assert store.stats().bytes_states == len(encode_value(b"state"))
        store.forget_all()


def test_clients_of_one_redis_server_write_at_once(redis_url: str) -> None:
    """With a limit that holds half of it: what was put by those who are still at it is kept."""
    texts = [[f"{name} {number} " + "x" * 50 for number in range(50)] for name in range(4)]
    limit = taken(*chain(*texts)) // 2
    promised: list[str] = []

    def work(mine: list[str]) -> None:
        with RedisStore(redis_url, prefix="together:", limits=at_most(limit, live_for=1_000)) as store:
            for text in mine:
                store.put(mine[0], by_ref(text))
                promised.append(text)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with RedisStore(redis_url, prefix="together:") as store:
        assert kept(store, *promised) == promised
        assert store.stats().bytes_stored == taken(*promised) > limit
        store.forget_all()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param("redis://:secret@127.0.0.1:1/0", "redis://127.0.0.1:1/0: ", id="nobody there"),
        pytest.param("unix:///nowhere/redis.sock?password=secret", "unix:///nowhere/redis.sock: ", id="no socket"),
        pytest.param("redis://user:secret@host:port/0", "redis: not the address of a Redis server", id="no port"),
        pytest.param(
            "redis://:12/secret@host/0", "redis: not the address of a Redis server", id="a password with a slash"
        ),
    ],
)
def test_a_redis_server_that_is_not_there(url: str, words: str) -> None:
    pytest.importorskip("redis")
    with open_store(url) as store, pytest.raises(StoreError) as caught:
        store.put("s", by_ref("a"))
    assert str(caught.value).startswith(words)
    assert "secret" not in str(caught.value) + repr(store)


def test_without_the_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(StoreError, match=re.escape(f"needs: {install_command('redis')}")):
        RedisStore("redis://localhost").get(["0" * 12])


# --- which one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        pytest.param("memory:", MemoryStore, id="memory"),
        pytest.param("some/store.db", SqliteStore, id="a path as text"),
        pytest.param(Path("some/store.db"), SqliteStore, id="a path"),
        pytest.param("redis://localhost", RedisStore, id="redis"),
        pytest.param("rediss://localhost", RedisStore, id="redis with TLS"),
        pytest.param("unix:///run/redis.sock", RedisStore, id="redis on a socket"),
    ],
)
def test_a_target_says_which_store(target: str | Path, kind: type[Store]) -> None:
    store = open_store(target, limits=Limits(max_bytes=7, max_age=8))
    assert type(store) is kind
    assert store.limits == Limits(max_bytes=7, max_age=8)
    assert open_store(target).limits == Limits()
    assert not Path("some").exists(), "nothing is opened before it is used"


def test_an_unknown_kind_of_store() -> None:
    with pytest.raises(StoreError, match="postgres: no such kind of store"):
        open_store("postgres://user:secret@host")


def test_a_store_error_is_ours_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(StoreError("/path", "full: make room")))
    assert isinstance(error, StoreError)
    assert issubclass(StoreError, IbidemError)
    assert (error.where, error.what, str(error)) == ("/path", "full: make room", "/path: full: make room")


def test_the_front_door_opens_no_store() -> None:
    code = "import sys, ibidem; print(*{'ibidem.store', 'sqlite3', 'redis'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
