"""Requests that go on a known conversation by a little are rewritten without a thread: which those are, and how."""

from __future__ import annotations

import gc
import gzip
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import ibidem
from ibidem.live import live as rewriter_module
from ibidem.live import recognition as module
from ibidem.live.live import WARM_BYTES, Rewriter
from ibidem.live.recognition import Conversations
from ibidem.live.types import LiveRequest, RewriteResult
from ibidem.store import MemoryStore
from ibidem.strategies.profiles import PROFILES
from ibidem.wire.request_params import RequestParams
from tests.support.proxied import PATHS, dumped, growing, talk, waited_for


def bodies(format: str = "anthropic", count: int = 9, **more: Any) -> list[bytes]:
    """Without the first, which is shorter than what a conversation is known by."""
    return [dumped(body) for body in growing(format, count, **more)][1:]


class Place:
    """A rewriter, and what it made of requests."""

    def __init__(self, profile: str = "lossless", store: MemoryStore | None = None) -> None:
        self.conversations = Conversations(profile, store or MemoryStore(), 10, 2**30)
        self.rewriter = Rewriter(self.conversations, False, 2**30)

    def rewrite(self, body: bytes, format: str = "anthropic") -> bytes:
        return self._accepted(self.rewriter.rewrite_request(job(body, format))).body or body

    def warm(self, body: bytes, **more: Any) -> RewriteResult | None:
        found = self.rewriter.rewrite_warm(job(body, **more))
        return None if found is None else self._accepted(found)

    def _accepted(self, found: RewriteResult) -> RewriteResult:
        if found.conversation is not None:
            found.conversation.record_accepted(found.sent_request, found.unreported_send)
        return found


def job(body: bytes, format: str = "anthropic", encoding: str = "", **more: Any) -> LiveRequest:
    return LiveRequest(format, "", encoding, body, 1.0, **more)


WAYS = {**{format: (format, False) for format in PATHS}, "with marks that move": ("anthropic", True)}


@pytest.mark.parametrize(("format", "marks"), WAYS.values(), ids=WAYS)
def test_what_is_sent_is_the_same(format: str, marks: bool) -> None:
    place = Place()
    first, *more = bodies(format, count=12, marks=marks, lines=40)[3:]
    assert place.warm(first, format=format) is None, "nothing is known of it yet"
    assert place.rewrite(first, format) == ibidem.compact(first, format=format).request
    for body in more:
        found = place.warm(body, format=format)
        assert found is not None
        assert (found.body or body) == ibidem.compact(body, format=format).request
    assert found is not None
    assert found.result == "rewritten"
    assert place.conversations.lookup_counts == {"warm": len(more), "store": 0, "cold": 1, "new": 0}


def _branch(_: Place, body: bytes) -> bytes:
    return body.replace(b"step 1", b"step one")


def _off(place: Place, body: bytes) -> bytes:
    place.conversations.set_all_paused(True)
    return body


def _mishap(place: Place, body: bytes) -> bytes:
    """One that has to be told to a store."""
    for each in place.conversations._all.values():
        each.session.refuse((0, ""))
    return body


def _elsewhere(_: Place, body: bytes) -> bytes:
    return bodies()[-1]


def _more(_: Place, body: bytes) -> bytes:
    return body.replace(b"step 3", b"step 3" + WARM_BYTES * b"x")


SLOW: dict[str, Callable[[Place, bytes], bytes]] = {
    "another branch": _branch,
    "one that is switched off": _off,
    "one that something happened to": _mishap,
    "one that went on elsewhere": _elsewhere,
    "one with much that is new": _more,
    "another conversation": lambda *_: bodies(first="something else")[4],
    "no conversation": lambda *_: b"{}",
}


@pytest.mark.parametrize("case", SLOW)
def test_whatever_may_take_longer_is_left_to_a_thread(case: str) -> None:
    place = Place()
    *known, body = bodies()[:5]
    for each in known:
        place.rewrite(each)
    assert place.warm(SLOW[case](place, body)) is None


def test_so_is_what_has_to_be_looked_at_closely() -> None:
    place = Place()
    *known, body = bodies()[:5]
    for each in known:
        place.rewrite(each)
    assert place.warm(body, is_count_only=True) is None
    assert place.warm(body, pause_mode="on") is None
    assert place.warm(gzip.compress(body), encoding="gzip") is None
    assert place.warm(body, profile="recoverable") is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_WARM_MESSAGES", 6)
        assert place.warm(body) is None
    (conversation,) = place.conversations._all.values()
    with conversation.lock:
        assert place.warm(body) is None, "nobody is waited for"
    assert place.warm(body) is not None


@pytest.mark.parametrize("profile", ["recoverable", "tests.live.test_warm:OWN"])
def test_only_what_is_known_to_be_quick_is_done_at_once(profile: str) -> None:
    """A profile that asks a store, and one of somebody else."""
    place = Place(profile)
    for body in bodies():
        assert place.warm(body) is None
        place.rewrite(body)


OWN = PROFILES["lossless"]


def test_the_proxy_does_it_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    work = Rewriter._rewrite_match

    def seen(self: Rewriter, *given: Any, **more: Any) -> RewriteResult:
        threads.append(threading.current_thread().name)
        return work(self, *given, **more)

    with talk() as found:
        first, *more = bodies()
        assert found.send("anthropic", first)[0] == 200
        waited_for(lambda: found.service._warmup.is_complete)
        monkeypatch.setattr(Rewriter, "_rewrite_match", seen)
        for body in more:
            assert found.send("anthropic", body)[0] == 200
            assert found.upstream.seen[-1].body == ibidem.compact(body).request
        assert len(threads) == len(more)
        assert not any(name.startswith("ibidem_") for name in threads)
        assert found.settled(len(more) + 1)["totals"]["failed_open"] == 0


def test_a_conversation_grows_by_turns_that_are_done_either_way() -> None:
    place, whole = Place(), bodies(count=12)
    for number, body in enumerate(whole):
        found = place.warm(body) if number % 3 else None
        sent = place.rewrite(body) if found is None else found.body or body
        assert sent == ibidem.compact(body).request


def test_the_last_requests_are_held_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """By them it is known how the next one begins; where there is none, hashes tell."""
    whole = [bodies(first=f"conversation {number}", count=6) for number in range(3)]
    room = sum(len(each[-1]) + 200 for each in whole[1:])  # what stands beside the messages is held once more
    monkeypatch.setattr(module, "RECENT_BYTES", room)
    place = Place()
    recent = place.conversations._recent
    for turn in zip(*whole, strict=True):
        for body in turn:
            assert place.rewrite(body) == ibidem.compact(body).request
            assert 0 < recent.size_bytes <= room
    held = {last.body for last in recent._requests.values()}
    assert held == {each[-1] for each in whole[1:]}, "those that were used last"
    place.conversations._max_count = 1
    place.rewrite(bodies(first="another")[3])
    (last,) = recent._requests.values()
    head = last.params
    assert isinstance(head, RequestParams)
    assert recent.size_bytes == last.size_bytes == len(last.body) + sum([len(head.raw(name)) for name in head])
    assert len(recent._requests) == 1, "with a conversation goes what is held of it"


def test_a_conversation_that_looks_back_is_given_back_when_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not hold itself: Python looks for such objects less often here than elsewhere."""
    monkeypatch.setattr(module, "RELEASE_BYTES", 0)
    given_back: list[None] = []
    place = Place("recoverable")
    place.conversations._release_memory = lambda: given_back.append(None)
    place.conversations._max_count = 1
    gc.disable()
    try:
        first, second, third = (bodies(first=f"conversation {number}")[3] for number in range(3))
        place.rewrite(first)
        (held,) = place.conversations._all.values()
        gone = weakref.ref(held.session._conversation._run.fold)  # type: ignore[union-attr]
        del held
        place.rewrite(second)
        assert gone() is None
        place.rewrite(third)
        assert len(given_back) == 2
    finally:
        gc.enable()


def test_what_only_the_books_want_to_know_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> float:
        raise ValueError("of ours")

    with talk() as found:
        *known, body, last = bodies()
        for each in known:
            assert found.send("anthropic", each)[0] == 200
        waited_for(lambda: found.service._warmup.is_complete)
        monkeypatch.setattr(rewriter_module, "_sample_text", wrong)
        assert found.send("anthropic", body)[0] == 200
        monkeypatch.undo()
        assert found.send("anthropic", last)[0] == 200
        assert found.upstream.seen[-1].body == ibidem.compact(last).request
        state = found.settled(len(known) + 2)
        assert state["totals"]["failed_open"] == 0
        assert [each["text"].partition(":")[0] for each in state["events"]] == ["new part"]
