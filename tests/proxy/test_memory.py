"""Memory: what a conversation takes is known, what is let go is freed, and what the page shows is bounded."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ibidem.billing.cache_loss import CacheVerdict
from ibidem.live.live import Rewriter
from ibidem.live.recognition import Conversations
from ibidem.live.types import LiveRequest, RewriteResult
from ibidem.proxy import allocator
from ibidem.proxy.accounting.live_stats import LiveStats
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore
from ibidem.strategies.arrival.line_index import LineIndex
from tests.support.proxied import talk

PROFILES = ("lossless", "recoverable")


class Place:
    """A rewriter and its books, with conversations that read files."""

    def __init__(self, profile: str, memory: int = 2**30) -> None:
        self.conversations = Conversations(profile, MemoryStore(), 1000, memory)
        self.rewriter = Rewriter(self.conversations, False, 2**30)

    def converse(self, name: str, reads: int, arrow: str, again: bool) -> RewriteResult:
        """The outcome of its last request. Of files, every other one is read a second time if `again`."""
        messages: list[Any] = [{"role": "user", "content": f"look at {name}"}]
        for number in range(reads):
            file = number - 1 if again and number % 2 else number
            lines = [f"{line:6}{arrow}value_{line} = '{name} {file * 31 + line}'" for line in range(120)]
            call = {"type": "tool_use", "id": f"{name}-{number}", "name": "Read", "input": {"file_path": f"/{file}.py"}}
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": "\n".join(lines)}
            messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
            outcome = self._send(messages, float(number))
        return outcome

    def _send(self, messages: list[Any], at: float) -> RewriteResult:
        body = json.dumps({"model": "claude-sonnet-4-5", "messages": messages}, ensure_ascii=False).encode()
        outcome = self.rewriter.rewrite_request(LiveRequest("anthropic", "", "", body, at))
        assert outcome.conversation is not None
        return outcome


@contextmanager
def traced() -> Iterator[list[int]]:
    """Bytes that Python took meanwhile and did not free: the last of the list, once it is over."""
    taken: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield taken
        gc.collect()
        taken.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()


TEXTS = {"plain": ("  ", False), "with arrows, read again": ("→", True), "with emoji": ("🙂", False)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("arrow", "again"), TEXTS.values(), ids=TEXTS)
def test_a_conversation_takes_as_much_memory_as_is_counted(profile: str, arrow: str, again: bool) -> None:
    place = Place(profile)
    place.conversations._recent._max_bytes = 0
    place.converse("warm-up", 6, arrow, again)
    before = place.conversations.memory_bytes
    with traced() as taken:
        for number in range(3):
            place.converse(f"part {number}", 12, arrow, again)
    counted = place.conversations.memory_bytes - before
    assert 0.75 <= taken[-1] / counted <= 1.25


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_let_go_is_freed_at_once(profile: str) -> None:
    """Also where nobody looks for objects that hold each other."""
    place = Place(profile)
    gc.collect()
    known = sum(isinstance(each, LineIndex) for each in gc.get_objects())
    gc.disable()
    try:
        for number in range(12):
            place.conversations._max_count = 2
            place.converse(f"part {number}", 3, "→", True)
        live = sum(isinstance(each, LineIndex) for each in gc.get_objects()) - known
    finally:
        gc.enable()
    assert len(place.conversations) == 2
    assert live == 2


@pytest.mark.slow
def test_conversations_stay_below_the_limit() -> None:
    limit = 2**20
    place = Place("recoverable", limit)
    place.converse("warm-up", 3, "→", True)
    with traced() as taken:
        for number in range(20):
            place.converse(f"part {number}", 6, "→", True)
            assert place.conversations.total_bytes <= limit
    assert 1 < len(place.conversations) < 20
    assert taken[-1] <= 1.25 * limit


@pytest.mark.slow
def test_the_books_hold_no_text_beyond_their_share() -> None:
    """However many conversations are still listed."""
    place, books = Place("lossless", 2**20), LiveStats(Settings(memory_mb=4), 0.0)
    place.converse("warm-up", 4, "→", True)
    with traced() as taken:
        for number in range(60):
            outcome = place.converse(f"part {number}", 4, "→", True)
            assert outcome.edits
            row = books.begin_exchange("/v1/messages", outcome, 1.0, "client", "anthropic", 1000)
            books.end_exchange(row, outcome, 200, None, CacheVerdict())
        del outcome
    assert len(books.snapshot(1.0)["conversations"]) == 60
    assert taken[-1] <= 1.25 * 2**20 + 0.25 * 4 * 2**20 + 60 * 6000


def test_what_is_held_is_told() -> None:
    with talk() as found:
        assert found.state["memory"] == {"conversations": 0, "bytes": 0}


def test_the_allocator_is_asked_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def function(name: str) -> Callable[..., int]:
        def called(*given: int) -> int:
            asked.append((name, *given))
            return 1

        return called

    monkeypatch.setattr(allocator, "_find_function", function)
    assert allocator.use_one_arena()
    assert asked == [("mallopt", allocator.M_ARENA_MAX, 1)]
    monkeypatch.setattr(allocator, "_find_function", lambda name: None)
    assert not allocator.use_one_arena()
    allocator.return_free_memory()


def test_memory_is_given_back_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def trim(*_: Any) -> None:
        begun.release()
        go.wait(30)

    monkeypatch.setattr(allocator, "_find_function", lambda name: trim)
    allocator.return_free_memory()
    allocator.return_free_memory()
    assert begun.acquire(timeout=30)
    assert not begun.acquire(blocking=False)
    go.set()
    (thread,) = [each for each in threading.enumerate() if each.name == "ibidem-memory"]
    thread.join(30)
    allocator.return_free_memory()
    assert begun.acquire(timeout=30)
