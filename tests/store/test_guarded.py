"""`GuardedStore`: a store that hangs or fails costs one caller its deadline, and nobody else any time."""

import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ibidem.live.policy import NullStore
from ibidem.store import Limits, MemoryStore, RedisStore, SqliteStore, Store, StoreError, guarded, reference
from ibidem.store.guarded import GuardedStore
from ibidem.store.store import JOURNAL_START, JournalPosition
from tests.support.locked import EXCLUSIVE, held

METHODS = sorted(
    name for name, value in vars(Store).items() if callable(value) and not name.startswith("_") and name != "close"
)
SHORT, LONG = 0.05, 20.0
"""Seconds: a deadline that a test waits for, and one that only a broken test reaches."""
COLLIDING = ("text no. 1908044", "text no. 5173450")
"""Two texts with the same reference."""


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(kw_only=True, eq=False)
class Faulty(MemoryStore):
    """A store in memory that can hang, fail or lose everything."""

    calls: list[str] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    """By the number of the call, from 1 on; 0 is every call."""
    error: Exception = field(default_factory=lambda: StoreError("memory:", "the disk is full"))
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each call that hangs."""
    go_on: threading.Event = field(default_factory=threading.Event)
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each call that hung and has ended."""

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        self.calls.append(name)
        fault = self.faults.get(0) or self.faults.get(len(self.calls))
        if fault == "fails":
            raise self.error
        if fault == "forgets":
            MemoryStore.forget_all(self)
        if fault != "hangs":
            return getattr(MemoryStore, name)(self, *args, **named)
        self.begun.release()
        assert self.go_on.wait(LONG)
        try:
            return getattr(MemoryStore, name)(self, *args, **named)
        finally:
            self.ended.release()


def _overridden(name: str) -> Callable[..., Any]:
    return lambda self, *args, **named: self.call(name, *args, **named)


for each in (*METHODS, "close"):
    setattr(Faulty, each, _overridden(each))


@dataclass
class Bench:
    inner: Faulty
    clock: Clock
    news: list[str]
    store: GuardedStore
    earlier: set[threading.Thread]

    @property
    def threads(self) -> list[threading.Thread]:
        return [each for each in threading.enumerate() if _is_ours(each) and each not in self.earlier]

    def in_background(self, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            with suppress(StoreError):
                work()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def open(self) -> None:
        """Open the breaker, without a call that is stuck."""
        self.inner.faults[0] = "fails"
        for _ in range(2):
            with pytest.raises(StoreError):
                self.store.refs("s")
        del self.inner.faults[0]
        assert self.store.health["open"]


def _is_ours(thread: threading.Thread) -> bool:
    return thread.name.startswith("ibidem-store-")


@pytest.fixture
def bench() -> Iterator[Bench]:
    inner, clock, news = Faulty(), Clock(), list[str]()
    earlier = {each for each in threading.enumerate() if _is_ours(each)}
    found = Bench(inner, clock, news, GuardedStore(inner, on_change=news.append, clock=clock), earlier)
    yield found
    inner.go_on.set()


def by_ref(*texts: str) -> dict[str, str]:
    return {reference(text): text for text in texts}


# --- calls pass through ----------------------------------------------------------------------------


SCRIPT: list[tuple[str, tuple[Any, ...]]] = [
    ("put", ("s", by_ref("a", "b"))),
    ("place", ({reference("a"): "line 1"},)),
    ("save", ("t", b"state", [reference("b")])),
    ("get", ([reference("a"), reference("b")],)),
    ("places", (reference("a"),)),
    ("refs", ("s",)),
    ("load", ("t",)),
    ("stats", ()),
    ("prune", ()),
    ("forget_older", (1e9,)),
    ("notes", ("s",)),
    ("forget", ("s",)),
    ("forget_all", ()),
]


def without_times(result: Any) -> Any:
    return (result.originals, result.sessions, result.bytes_kept) if hasattr(result, "bytes_kept") else result


def ask(store: Store, name: str, args: tuple[Any, ...]) -> Any:
    return without_times(getattr(store, name)(*args))


def test_every_method_of_a_store_is_guarded() -> None:
    assert sorted(name for name in METHODS if name in vars(GuardedStore)) == METHODS
    assert {name for name, _ in SCRIPT} | {"note"} == set(METHODS)


def test_results_are_those_of_the_store(bench: Bench) -> None:
    plain = MemoryStore()
    for name, args in SCRIPT:
        assert ask(bench.store, name, args) == ask(plain, name, args), name
    noted = bench.store.note("s", [b"row"], since=JOURNAL_START)
    assert noted.added
    assert bench.store.notes("s", since=JournalPosition()).rows == [b"row"]
    assert bench.store.where == bench.inner.where
    bench.store.limits = Limits(max_bytes=7)
    assert bench.store.limits is bench.inner.limits
    assert bench.inner.limits.max_bytes == 7
    assert bench.store.health == {"open": False, "timeouts": 0, "errors": 0, "refused": 0, "retry_in": 0.0}


def test_an_error_of_the_store_reaches_the_caller(bench: Bench) -> None:
    bench.inner.faults[1] = "fails"
    with pytest.raises(StoreError) as caught:
        bench.store.refs("s")
    assert caught.value is bench.inner.error


def test_a_guarded_store_can_be_pickled(tmp_path: Path) -> None:
    with GuardedStore(SqliteStore(tmp_path / "store.db")) as store:
        store.put("s", by_ref("a"))
        with pickle.loads(pickle.dumps(store)) as other:
            assert other.get(by_ref("a")) == by_ref("a")


@pytest.mark.parametrize(
    ("inner", "in_memory", "hops"),
    [
        pytest.param(MemoryStore, None, False, id="a plain store in memory is called directly"),
        pytest.param(Faulty, None, True, id="a subclass may hang, and gets threads"),
        pytest.param(NullStore, True, False, id="a subclass that needs none says so"),
    ],
)
def test_only_a_store_that_may_hang_needs_threads(inner: type[MemoryStore], in_memory: bool | None, hops: bool) -> None:
    names: list[str] = []

    def clock() -> float:
        names.append(threading.current_thread().name)
        return 0.0

    store = GuardedStore(inner(clock=clock), in_memory=in_memory)
    store.note("s", [b"row"], JOURNAL_START)
    store.close()
    assert store._threads._running == hops
    assert [name.startswith("ibidem-store-") for name in names] == [hops]


# --- deadlines -------------------------------------------------------------------------------------


def test_nobody_waits_longer_than_the_deadline(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    start = time.monotonic()
    with bench.store.time_limit(SHORT), pytest.raises(StoreError, match=r"^memory:: did not answer within 50 ms: "):
        bench.store.put("s", by_ref("a"))
    assert SHORT * 0.9 < time.monotonic() - start < LONG / 2
    assert bench.store.health["timeouts"] == 1


def test_a_write_that_timed_out_may_still_happen(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    texts = by_ref("a")
    with bench.store.time_limit(SHORT), pytest.raises(StoreError):
        bench.store.put("s", texts)
    texts.clear()  # the caller's own: the call has a copy
    bench.inner.go_on.set()
    assert bench.inner.ended.acquire(timeout=LONG)
    bench.clock.now += 1
    assert bench.store.get(by_ref("a")) == by_ref("a")
    bench.store.put("s", by_ref("a"))
    assert bench.store.refs("s") == {reference("a")}


def test_calls_inside_share_the_time(bench: Bench) -> None:
    bench.inner.faults[2] = "hangs"
    with bench.store.time_limit(10.0):
        bench.store.refs("s")
        bench.clock.now += 9.95
        with pytest.raises(StoreError, match="within 50 ms"):
            bench.store.refs("s")


@pytest.mark.parametrize(("outer", "inner"), [(0.02, 60.0), (60.0, 0.02)])
def test_the_earliest_of_nested_deadlines_counts(bench: Bench, outer: float, inner: float) -> None:
    bench.inner.faults[1] = "hangs"
    with bench.store.time_limit(outer), bench.store.time_limit(inner), pytest.raises(StoreError, match="within 20 ms"):
        bench.store.refs("s")


def test_a_deadline_ends_with_its_block_and_is_for_its_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    make = guarded._Threads.make

    def recorded(self: guarded._Threads, call: guarded._Call, seconds: float) -> bool:
        given.append(seconds)
        return make(self, call, seconds)

    monkeypatch.setattr(guarded._Threads, "make", recorded)
    with bench.store.time_limit(3.0):
        with bench.store.time_limit(2.0):
            bench.store.refs("s")
        bench.store.refs("s")
        bench.in_background(lambda: bench.store.refs("s")).join(LONG)
    bench.store.refs("s")
    bench.store.prune()
    bench.store.close()
    usual = guarded.DEFAULT_SECONDS
    assert given == pytest.approx([2.0, 3.0, usual, usual, guarded.CLEANUP_SECONDS, guarded.CLOSE_SECONDS])


def test_without_time_the_store_is_not_asked(bench: Bench) -> None:
    with bench.store.time_limit(1.0):
        bench.clock.now += 1.0
        for _ in range(3):
            with pytest.raises(StoreError, match="no time was left"):
                bench.store.refs("s")
    assert bench.inner.calls == []
    assert not bench.store.health["open"]


def test_a_time_out_of_a_call_with_hardly_any_time_does_not_open_the_breaker(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    with bench.store.time_limit(guarded.FAIR_SECONDS / 2), pytest.raises(StoreError, match="within 5 ms"):
        bench.store.refs("s")
    assert bench.store.health["timeouts"] == 1
    assert not bench.store.health["open"]


# --- threads ---------------------------------------------------------------------------------------


def test_two_stuck_threads_are_all_there_are(bench: Bench) -> None:
    bench.inner.faults |= {1: "hangs", 2: "hangs"}
    waiting = [bench.in_background(lambda: bench.store.refs("s")) for _ in range(2)]
    for _ in range(2):
        assert bench.inner.begun.acquire(timeout=LONG)
    with bench.store.time_limit(SHORT), pytest.raises(StoreError, match="within 50 ms"):
        bench.store.put("never", by_ref("a"))
    assert len(bench.threads) == 2
    assert bench.store.health["open"]
    bench.inner.go_on.set()
    for thread in waiting:
        thread.join(LONG)
    bench.clock.now += 1
    assert bench.store.refs("never") == set(), "a call that had not begun at its deadline is never made"
    assert bench.inner.calls == ["refs", "refs", "refs"]
    assert len(bench.threads) == 2
    assert (bench.store._threads.stuck, bench.store._threads._unfinished) == (0, 0)


def test_a_call_waits_for_a_free_thread_within_its_deadline(bench: Bench) -> None:
    bench.inner.faults |= {1: "hangs", 2: "hangs"}
    waiting = [bench.in_background(lambda: bench.store.refs("s")) for _ in range(2)]
    for _ in range(2):
        assert bench.inner.begun.acquire(timeout=LONG)
    third = bench.in_background(lambda: bench.store.put("s", by_ref("a")))
    bench.inner.go_on.set()
    for thread in (*waiting, third):
        thread.join(LONG)
    assert bench.inner.get(by_ref("a")) == by_ref("a")


def test_while_both_threads_are_stuck_nobody_waits(bench: Bench) -> None:
    bench.inner.faults[0] = "hangs"
    for _ in range(2):
        with bench.store.time_limit(SHORT), pytest.raises(StoreError, match="did not answer within"):
            bench.store.refs("s")
        bench.clock.now += 30
    with pytest.raises(StoreError, match="is not called yet after it did not answer"):  # it would wait 15 s
        bench.store.refs("s")
    assert bench.store.health["refused"] == 1
    del bench.inner.faults[0]
    bench.inner.go_on.set()
    for _ in range(2):
        assert bench.inner.ended.acquire(timeout=LONG)
    deadline = time.monotonic() + LONG
    while bench.store._threads.stuck == 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert bench.store.refs("s") == set()
    assert not bench.store.health["open"]


def test_threads_are_started_when_needed_and_end_when_idle(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "IDLE_SECONDS", 0.01)
    assert bench.threads == []
    bench.store.refs("s")
    with suppress(IndexError):  # it may be over by now
        assert bench.threads[0].daemon
        bench.threads[0].join(LONG)
    assert bench.threads == []
    assert bench.store.refs("s") == set()


def test_calls_one_after_the_other_need_one_thread(bench: Bench) -> None:
    for _ in range(50):
        bench.store.refs("s")
    assert len(bench.threads) == 1
    assert bench.threads[0].daemon


def test_many_callers_at_once_all_get_their_own_result(bench: Bench) -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        for round_ in range(50):
            text = f"{number}.{round_}"
            bench.store.put(text, by_ref(text))
            if bench.store.refs(text) != {reference(text)}:
                failures.append(text)

    threads = [bench.in_background(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
    for thread in threads:
        thread.join(LONG)
    assert not failures
    assert len(bench.inner.calls) == 8 * 50 * 2
    assert len(bench.threads) <= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own(bench: Bench) -> None:
    bench.inner.faults |= {2: "hangs", 3: "hangs"}
    bench.store.put("s", by_ref("a"))
    for _ in range(2):
        bench.in_background(lambda: bench.store.refs("s"))
    for _ in range(2):
        assert bench.inner.begun.acquire(timeout=LONG)
    with bench.store._lock, bench.store._threads._lock:  # as if another thread were in there
        child = os.fork()
        if not child:
            signal.alarm(int(LONG))  # ends a child that waits for a thread of its parent
            failed = True
            try:
                with bench.store.time_limit(LONG):
                    failed = bench.store.get(by_ref("a")) != by_ref("a") or bench.store.health["open"] != 0
            finally:
                os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0


# --- the breaker -----------------------------------------------------------------------------------


def test_a_time_out_opens_the_breaker(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    with bench.store.time_limit(SHORT), pytest.raises(StoreError):
        bench.store.refs("s")
    for _ in range(20):
        with pytest.raises(StoreError, match=r"^memory:: is not called for 1.0 s after it did not answer$"):
            bench.store.put("s", by_ref("a"))
    assert bench.inner.calls == ["refs"]
    assert bench.store.health == {"open": True, "timeouts": 1, "errors": 0, "refused": 20, "retry_in": 1.0}
    assert bench.news == ["The store memory: is not called for 1 s after it did not answer."]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(StoreError("memory:", "the disk is full"), "it failed (the disk is full)", id="StoreError"),
        pytest.param(OSError("secret"), "it failed (OSError)", id="an error that is not ours is not quoted"),
    ],
)
def test_two_errors_in_a_row_open_the_breaker(bench: Bench, error: Exception, reason: str) -> None:
    bench.inner.error = error
    bench.inner.faults |= {1: "fails", 3: "fails", 4: "fails"}
    opened = []
    for _ in range(4):
        with suppress(type(error)):
            bench.store.refs("s")
        opened.append(bool(bench.store.health["open"]))
    assert opened == [False, False, False, True]
    assert bench.store.health["errors"] == 3
    assert bench.news == [f"The store memory: is not called for 1 s after {reason}."]
    with pytest.raises(StoreError) as caught:
        bench.store.refs("s")
    assert caught.value.what == f"is not called for 1.0 s after {reason}"


def test_one_trial_call_closes_the_breaker(bench: Bench) -> None:
    bench.open()
    bench.clock.now += 0.99
    with pytest.raises(StoreError, match=r"is not called for 0\.1 s"):
        bench.store.refs("s")
    bench.clock.now += 0.01
    bench.inner.faults[3] = "hangs"
    trial = bench.in_background(lambda: bench.store.refs("s"))
    assert bench.inner.begun.acquire(timeout=LONG)
    with pytest.raises(StoreError, match="is not called yet"):
        bench.store.refs("s")
    bench.inner.go_on.set()
    trial.join(LONG)
    assert bench.inner.calls == ["refs"] * 3
    assert not bench.store.health["open"]
    assert bench.store.refs("s") == set()
    assert bench.news[1:] == ["The store memory: answers again."]


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_caller_of_a_trial_does_not_wait_for_the_deadline(bench: Bench, seconds: float) -> None:
    """The breaker closes when the call ends in time, although its caller has gone."""
    bench.open()
    bench.clock.now += 1
    bench.inner.faults[0] = "hangs"
    started = time.perf_counter()
    with bench.store.time_limit(LONG), pytest.raises(StoreError, match="within 50 ms"):
        bench.store.refs("s")
    assert time.perf_counter() - started < LONG / 2
    assert bench.store.health["retry_in"] == 2
    bench.clock.now += LONG * seconds
    bench.inner.go_on.set()
    assert bench.inner.ended.acquire(timeout=LONG)
    deadline = time.perf_counter() + (LONG if seconds < 1 else 0.1)
    while bench.store.health["open"] and time.perf_counter() < deadline:
        time.sleep(0.001)
    assert bench.store.health["open"] == (seconds > 1)


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_the_pause_doubles_up_to_thirty_seconds_and_starts_again(bench: Bench, fault: str) -> None:
    bench.open()
    pauses = []
    for _ in range(7):
        pauses.append(bench.store.health["retry_in"])
        bench.clock.now += bench.store.health["retry_in"]
        bench.inner.faults[0] = fault
        bench.inner.go_on.clear()
        with bench.store.time_limit(0.011), pytest.raises(StoreError):
            bench.store.refs("s")
        bench.inner.go_on.set()
        if fault == "hangs":
            assert bench.inner.ended.acquire(timeout=LONG)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert len(bench.news) == 1, "a trial that failed is not news"
    del bench.inner.faults[0]
    bench.clock.now += 30
    bench.store.refs("s")
    assert len(bench.news) == 2
    bench.open()
    assert bench.store.health["retry_in"] == 1
    assert len(bench.news) == 3


def test_a_call_from_before_does_not_close_the_breaker(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    earlier = bench.in_background(lambda: bench.store.refs("s"))
    assert bench.inner.begun.acquire(timeout=LONG)
    bench.open()
    bench.inner.go_on.set()
    earlier.join(LONG)
    assert bench.store.health == {"open": True, "timeouts": 0, "errors": 2, "refused": 0, "retry_in": 1.0}


def test_an_error_of_a_call_from_before_does_not_prolong_the_pause(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    earlier = threading.Thread(target=_time_out, args=(bench.store,), daemon=True)
    earlier.start()
    assert bench.inner.begun.acquire(timeout=LONG)
    bench.open()
    earlier.join(LONG)
    assert bench.store.health == {"open": True, "timeouts": 1, "errors": 2, "refused": 0, "retry_in": 1.0}


def _time_out(store: GuardedStore) -> None:
    with store.time_limit(1.0), pytest.raises(StoreError, match="within 1000 ms"):
        store.refs("s")


def test_a_trial_whose_caller_is_interrupted_is_followed_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: object, call: object, seconds: float) -> bool:
        raise KeyboardInterrupt

    bench.open()
    bench.clock.now += 1
    with monkeypatch.context() as patch:
        patch.setattr(guarded._Threads, "make", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.store.refs("s")
    assert bench.store.health["open"]
    assert bench.store.refs("s") == set()
    assert not bench.store.health["open"]


def test_news_come_without_a_lock_and_may_fail() -> None:
    inner, locked = Faulty(faults={1: "fails", 2: "fails"}), list[bool]()

    def on_change(news: str) -> None:
        locked.append(store._lock.locked() or store._threads._lock.locked())
        raise RuntimeError(news)

    clock = Clock()
    store = GuardedStore(inner, on_change=on_change, clock=clock)
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            store.refs("s")
    clock.now += 1
    assert store.refs("s") == set()
    assert locked == [False, False]


# --- errors that are the caller's fault --------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        store: Store = MemoryStore()
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "store.db")
    else:
        store = RedisStore(request.getfixturevalue("redis_url"), prefix=f"{tmp_path.name}:")
    with store:
        yield store


@pytest.mark.parametrize(
    ("name", "args"),
    [
        pytest.param("put", ("s", {"0" * 12: "a"}), id="the reference of another text"),
        pytest.param("put", ("s", {"": "a", reference("b"): "b"}), id="an empty reference"),
        pytest.param("put", ("s", {reference(COLLIDING[1]): COLLIDING[1]}), id="a collision"),
        pytest.param("save", ("s", b"", ["nothing"]), id="a word"),
    ],
)
def test_a_store_is_not_to_blame_for_the_callers_references(kept: Store, name: str, args: tuple[Any, ...]) -> None:
    store = GuardedStore(kept, in_memory=False)
    store.put("s", by_ref(COLLIDING[0]))
    for _ in range(3):
        with pytest.raises(StoreError, match="reference"):
            getattr(store, name)(*args)
    assert store.health == {"open": False, "timeouts": 0, "errors": 0, "refused": 0, "retry_in": 0.0}


def test_a_wrong_reference_tells_nothing_about_a_store_that_did_not_answer(bench: Bench) -> None:
    bench.open()
    bench.clock.now += 1
    with pytest.raises(StoreError, match="reference"):
        bench.store.put("s", {"nothing": "a"})
    assert bench.store.health["open"]
    assert bench.store.refs("s") == set()
    assert not bench.store.health["open"]


def test_an_error_of_a_call_with_references_counts(bench: Bench) -> None:
    bench.inner.faults[0] = "fails"
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            bench.store.put("s", by_ref("a"))
    assert bench.store.health["open"]


# --- any call of a script ----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["fails", "hangs", "forgets"])
@pytest.mark.parametrize("number", range(1, len(SCRIPT) + 1))
def test_any_call_may_fail(bench: Bench, fault: str, number: int) -> None:
    """Each call gives what the store gives, or StoreError. When the store works again, so does everything."""
    plain = Faulty(faults={number: "forgets"} if fault == "forgets" else {})
    bench.inner.faults[number] = fault
    refused, start = 0, time.monotonic()
    for place, (name, args) in enumerate(SCRIPT, 1):
        try:
            with bench.store.time_limit(SHORT if place == number else LONG):
                result = ask(bench.store, name, args)
        except StoreError as error:
            refused += "is not called" in str(error)
            assert place == number or fault == "hangs"
        else:
            if fault == "forgets" or place < number:
                assert result == ask(plain, name, args), name
    assert time.monotonic() - start < LONG / 2
    assert refused == (len(SCRIPT) - number if fault == "hangs" else 0), "one call pays for it"
    bench.inner.go_on.set()
    if fault == "hangs":
        assert bench.inner.ended.acquire(timeout=LONG)
    bench.clock.now += guarded.FIRST_PAUSE
    bench.store.forget_all()
    plain = Faulty()
    for name, args in SCRIPT:
        assert ask(bench.store, name, args) == ask(plain, name, args), name
    assert not bench.store.health["open"]


# --- closing ---------------------------------------------------------------------------------------


def test_closing_closes_the_store_also_while_the_breaker_is_open(bench: Bench) -> None:
    bench.open()
    with bench.store:
        pass
    assert bench.inner.calls[-1] == "close"
    bench.clock.now += 1
    assert bench.store.refs("s") == set(), "a later call opens it again"


def test_closing_waits_for_a_store_that_hangs_no_longer_than_its_deadline(bench: Bench) -> None:
    bench.inner.faults[1] = "hangs"
    start = time.monotonic()
    with bench.store.time_limit(SHORT):
        bench.store.close()
    assert time.monotonic() - start < LONG / 2
    assert bench.inner.calls == ["close"]


def test_an_error_while_closing_is_raised(bench: Bench) -> None:
    bench.inner.faults[1] = "fails"
    with pytest.raises(StoreError, match="full"):
        bench.store.close()


# --- real stores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["put", "get", "notes"])
def test_a_locked_file_costs_one_request(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.put("s", by_ref("a"))
    args = {"put": ("s", by_ref("b")), "get": (list(by_ref("a")),), "notes": ("s",)}[name]
    clock = Clock()
    guard = GuardedStore(SqliteStore(path), clock=clock)
    start = time.monotonic()
    with held(path, *EXCLUSIVE):
        messages = []
        for _ in range(40):
            with guard.time_limit(SHORT), pytest.raises(StoreError) as caught:
                getattr(guard, name)(*args)
            messages.append(caught.value.what.split(" after ")[0].split(":")[0])
        assert messages == ["did not answer within 50 ms", *["is not called for 1.0 s"] * 39]
    assert time.monotonic() - start < LONG / 2
    assert guard.health["timeouts"] == 1
    clock.now += 1
    assert guard.get(by_ref("a")) == by_ref("a"), "the lock is gone"
    assert not guard.health["open"]
    guard.close()


def test_a_redis_server_that_accepts_and_does_not_answer() -> None:
    pytest.importorskip("redis")
    with socket.create_server(("127.0.0.1", 0)) as server:
        inner = RedisStore(f"redis://127.0.0.1:{server.getsockname()[1]}/0")
        store = GuardedStore(inner)
        messages = []
        for _ in range(20):
            with store.time_limit(SHORT), pytest.raises(StoreError) as caught:
                store.notes("s")
            messages.append(caught.value.what.split(" for ")[0].split(":")[0])
        assert messages == ["did not answer within 50 ms", *["is not called"] * 19]
        server.accept()[0].close()  # the call ends with an error that nobody waits for
    store.close()
