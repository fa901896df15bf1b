"""Fail open, always (law 12): whatever goes wrong in us, the request goes out, and that is counted."""

import errno
import gzip
import io
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ibidem
from ibidem.engine.session import Session
from ibidem.live import live as rewriter
from ibidem.live.recognition import Conversations
from ibidem.store import MemoryStore, StoreError
from ibidem.store.store import JournalPage
from ibidem.testing.answers import Says
from ibidem.testing.scripts import build
from ibidem.wire import zstd
from tests.support.proxied import PATHS, Clock, Talk, dumped, growing, requests, stale, talk, turns, waited_for

FORMATS = list(PATHS)


def conversation(format: str = "anthropic", count: int = 5, **more: Any) -> list[bytes]:
    return [dumped(body) for body in growing(format, count, **more)]


def failures(found: Talk) -> dict[str, int]:
    return {each["reason"]: each["count"] for each in found.state["failures"]}


def after(known: list[Any], body: bytes) -> Any:
    """A request that begins with what is known to the provider, and goes on as it came."""
    came = json.loads(body)
    return {**came, "messages": [*known, *came["messages"][len(known) :]]}


def shown(found: Talk) -> list[str]:
    return [event["text"] for event in found.state["events"] if event["kind"] == "failure"]


# ── what clients send ───────────────────────────────────────────────────────────────────────────────────────────────

ONE = dumped(build(turns(2), "anthropic"))
BROKEN = {
    "cut off": ONE[:-20],
    "nothing": b"",
    "no JSON": b"\x00\xff\xfe not json",
    "a list of numbers": b"[1, 2, 3]",
    "a number": b"17",
    "null": b"null",
    "an empty object": b"{}",
    "an empty history": b'{"model": "m", "messages": []}',
    "a history that is none": b'{"model": "m", "messages": {"role": "user"}}',
    "messages of no shape": b'{"model": "m", "messages": [1, null, [], "x"]}',
    "a history that stands twice": ONE[:-1] + b',"messages":[{"role":"user","content":"other"}]}',
    "NaN": b'{"model": "m", "temperature": NaN, ' + ONE[1:],
    "not UTF-8": ONE.replace(b"make it work", b"make \xff\xfe work"),
    "nested deeply": b'{"model": "m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "something after its end": ONE + b" and more",
    "a late message that is not UTF-8": ONE.replace(b"step 1", b"step \xff"),
}


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_what_clients_send_goes_out_as_it_came(profile: str) -> None:
    with talk(profile=profile, strict=False) as found:
        for name, body in BROKEN.items():
            status, answer = found.send("anthropic", body)
            seen = found.upstream.seen[-1]
            assert seen.body == body or ibidem.expand(seen.body) == body, name
            assert status == int(seen.answer.split()[1]), name
            assert answer == seen.answer.partition(b"\r\n\r\n")[2], name
        state = found.settled(len(BROKEN))
        assert not state["events"], "nothing is wrong with us"
        assert state["totals"]["failed_open"] == 0, "and nothing of ours failed"
        assert not failures(found)


@pytest.mark.parametrize(
    ("format", "body"),
    [
        pytest.param("openai-responses", {"model": "gpt-5", "input": "hello"}, id="a text"),
        pytest.param("gemini", {"contents": {"parts": [{"text": "hello"}]}}, id="an object"),
    ],
)
def test_a_single_message_is_no_failure(format: str, body: Any) -> None:
    with talk(strict=False) as found:
        assert found.send(format, body)[0] == 200
        assert found.upstream.seen[-1].body == dumped(body)
        assert found.settled(1)["totals"]["failed_open"] == 0


@pytest.mark.parametrize("format", FORMATS)
def test_lone_surrogates_are_carried(format: str) -> None:
    bodies = [
        json.dumps(body)
        .replace("make it work", "make \\ud800 work")
        .replace("seen again", "seen \\udfff again")
        .encode()
        for body in growing(format, 6)
    ]
    with talk(strict=False) as found:
        for body in bodies:
            found.send(format, body)
        for body, seen in zip(bodies, found.upstream.seen, strict=True):
            assert ibidem.expand(seen.body, format=format) == body
        assert found.settled(len(bodies))["totals"]["rewritten"] > 2


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_compressed_requests_are_understood_and_broken_ones_pass(encoding: str) -> None:
    bodies = conversation()
    packed = [ENCODINGS[encoding](body) for body in bodies]
    broken = {"cut off": packed[-1][:-9], "another one": bodies[-1], "nothing": b""}
    with talk() as found:
        for body in packed:
            assert found.send("anthropic", body, content_encoding=encoding)[0] == 200
        for body, seen in zip(bodies, found.upstream.seen, strict=True):
            assert ibidem.expand(seen.text) == body
        assert found.settled(len(bodies))["totals"]["rewritten"] > 1
        for name, body in broken.items():
            found.send("anthropic", body, content_encoding=encoding)
            assert found.upstream.seen[-1].body == body, name
        found.send("anthropic", bodies[-1], content_encoding="of our own")
        assert found.upstream.seen[-1].body == bodies[-1]
        assert found.settled(len(bodies) + 4)["totals"]["failed_open"] == 1
        assert failures(found) == {"its encoding is not known here": 1}
        assert not shown(found)


def test_a_body_that_unpacks_to_more_than_is_allowed_passes_as_it_came() -> None:
    body = gzip.compress(dumped({"model": "m", "messages": [{"role": "user", "content": "x" * 2_000_000}]}))
    with talk(max_body=1_000_000) as found:
        assert found.send("anthropic", body, content_encoding="gzip")[0] == 200
        assert found.upstream.seen[-1].body == body
        assert list(failures(found)) == ["it is larger than 1,000,000 bytes when it is unpacked"]


# ── what goes wrong in us ───────────────────────────────────────────────────────────────────────────────────────────


class Wrong(Exception):
    """Not one of ours."""


def raising(*_: Any, **__: Any) -> Any:
    raise Wrong("with a secret of the client in it")


SEAMS = {
    "looking a conversation up": (Conversations, "find_or_create"),
    "beginning a conversation": (Conversations, "_create_conversation"),
    "rewriting": (Conversations, "rewrite_request"),
    "the session": (Session, "compact"),
    "what the session writes": (Session, "_compact_new_messages"),
    "unpacking": (rewriter, "decode_body"),
    "packing": (rewriter, "encode_body"),
    "counting": (rewriter, "_sample_text"),
}


IN_THREADS = ("find_or_create", "decode_body", "_sample_text")
"""What is not done with a request that is soon done."""


@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_an_error_at_any_seam(seam: str, profile: str) -> None:
    bodies = conversation()
    owner, name = SEAMS[seam]
    with talk(profile=profile) as found:
        for body in bodies[:3]:
            found.send("anthropic", body)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, raising)
            if name in IN_THREADS:
                patch.setattr(rewriter.Rewriter, "rewrite_warm", lambda *_: None)
            begins = conversation(first="another one")[3]
            known = found.upstream.seen[-1].json["messages"]
            for body in [bodies[3] if name != "_create_conversation" else begins, begins, begins]:
                assert found.send("anthropic", body) == (200, found.upstream.seen[-1].answer.partition(b"\r\n\r\n")[2])
                if body == begins:
                    assert found.upstream.seen[-1].body == body, "nothing is known of it"
                else:
                    assert found.upstream.seen[-1].json == after(known, body)
        state = found.settled(6)
        expected = 2 if seam == "packing" else 3  # what went out as it came, and comes again, is not packed again
        assert state["totals"]["failed_open"] == expected
        assert sum(failures(found).values()) == expected
        assert len(shown(found)) == len(failures(found)), "each is shown once"
        assert "secret" not in json.dumps(state)
        assert all(reason.startswith("Wrong at ") for reason in failures(found))
        found.send("anthropic", bodies[4])
        assert ibidem.expand(found.upstream.seen[-1].body) == bodies[4]
        assert len(found.upstream.seen[-1].body) < len(bodies[4]), "it goes on afterwards"


def test_an_error_in_a_strategy() -> None:
    bodies = conversation()
    with talk() as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ibidem.strategies.arrival.backrefs.BackReferenceState.feed", raising)
        for body in bodies:
            assert found.send("anthropic", body)[0] == 200
        assert [seen.body for seen in found.upstream.seen] == bodies
        assert failures(found) == {"Wrong": len(bodies)}
        assert shown(found) == ["requests are sent without new edits: Wrong"]


def test_different_reasons_are_counted_up_to_a_number() -> None:
    made = iter(range(1000))

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreError("here", f"reason {next(made)}")

    with talk() as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Conversations, "find_or_create", refuse)
        for _ in range(70):
            found.send("anthropic", ONE)
        assert sum(failures(found).values()) == 70
        assert failures(found)["other reasons"] == 20


# ── stores ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Faulty(MemoryStore):
    """A store in which some verbs fail, as long as they are named."""

    failing: frozenset[str] = frozenset()
    error: Callable[[], Exception] = staticmethod(lambda: StoreError("here", "the disk is full"))

    def _check(self, verb: str) -> None:
        if verb in self.failing:
            raise self.error()

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        self._check("put")
        super().put(session, originals)

    def note(self, *given: Any) -> JournalPage:
        self._check("note")
        return super().note(*given)

    def notes(self, *given: Any) -> JournalPage:
        self._check("notes")
        return super().notes(*given)


ERRORS = {"full": lambda: StoreError("here", "the disk is full"), "broken": lambda: OSError("no such thing")}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("verb", ["notes", "note"])
def test_a_store_that_does_not_remember(verb: str, error: str) -> None:
    store, bodies = Faulty(), conversation(count=7)
    store.error = ERRORS[error]
    with talk(profile="recoverable", store=store) as found:
        for body in bodies[:4]:
            found.send("anthropic", body)
        found.settled(4)
        store.failing = frozenset({verb})
        known = found.upstream.seen[-1].json["messages"]
        for body in bodies[4:7]:
            assert found.send("anthropic", body)[0] == 200
            assert found.upstream.seen[-1].json == after(known, body)
        state = found.settled(7)
        assert state["totals"]["failed_open"] == 3
        assert len(failures(found)) <= 2, "the reason of the store, and that it is not called any more"
        store.failing = frozenset()
        guard = found.service.conversations._store
        waited_for(lambda: guard.health["retry_in"] == 0)
        found.send("anthropic", bodies[7])
        sent = found.upstream.seen[-1].body
        assert len(sent) < len(bodies[7])
        assert ibidem.expand(sent, store=store) == bodies[7]


@pytest.mark.parametrize("error", ERRORS)
def test_what_cannot_be_kept_stays(error: str) -> None:
    store, clock = Faulty(), Clock()
    store.error = ERRORS[error]
    store.failing = frozenset({"put"})
    bodies = [dumped(body) for body in requests("anthropic", *stale(4, after=4))]
    with talk(profile="recoverable", store=store, clock=clock) as found:
        for number, body in enumerate(bodies):
            clock.now += 4000 if number == len(bodies) - 2 else 10
            assert found.send("anthropic", body)[0] == 200
            found.settled(number + 1)
            sent = found.upstream.seen[-1].body
            assert ibidem.expand(sent) == body, "without a store: nothing was let go"
            assert not ibidem.validate(sent)
        assert not found.state["totals"]["breaks"]
        assert not store.stats().originals


def test_a_state_of_another_version_is_begun_without() -> None:
    class Odd(MemoryStore):
        def load(self, session: str) -> bytes | None:
            return b'{"version": 99, "notes": []}'

    store = Odd()
    with talk(profile="recoverable", store=store) as found:
        for body in conversation():
            assert found.send("anthropic", body)[0] == 200
            assert ibidem.expand(found.upstream.seen[-1].body, store=store) == body
        totals = found.settled(6)["totals"]
        assert totals["failed_open"] == 0
        assert totals["rewritten"] > 1


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def held() -> Iterator[threading.Event]:
    """Sessions that do not come to an end before they are told to."""
    go, compact = threading.Event(), Session.compact

    def slowly(self: Session, *args: Any, **more: Any) -> Any:
        assert go.wait(60)
        return compact(self, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "compact", slowly)
        try:
            yield go
        finally:
            go.set()


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_a_request_that_takes_too_long_goes_out_as_it_came(profile: str) -> None:
    bodies = conversation(count=6)
    store = MemoryStore()
    with talk(profile=profile, budget_ms=50, store=store) as found:
        with held() as go:
            assert found.send("anthropic", bodies[3])[0] == 200
            assert found.upstream.seen[-1].body == bodies[3]
            assert failures(found) == {"time-out": 1}
            assert shown(found) == ["requests are sent without new edits: time-out"]
            go.set()
        waited_for(lambda: not stuck())
    with talk(profile=profile, budget_ms=50_000, store=store) as found:  # it may take long on a busy machine
        for body in bodies[4:]:
            found.send("anthropic", body)
            assert ibidem.expand(found.upstream.seen[-1].body, store=store) == body


def stuck() -> bool:
    """Whether a thread is held up."""
    import sys

    names = {thread.ident for thread in threading.enumerate() if thread.name.startswith("ibidem")}
    frames = [frame for ident, frame in sys._current_frames().items() if ident in names]
    return any(code == "slowly" for frame in frames for code in _names(frame))


def _names(frame: Any) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def test_what_the_provider_knows_as_it_came_stays_so() -> None:
    """The first request went out late and untouched: its messages are in the provider's cache that way."""
    bodies = conversation(count=8)
    with talk(budget_ms=200) as found:
        with held():
            found.send("anthropic", bodies[5])
            assert found.upstream.seen[-1].body == bodies[5]
        waited_for(lambda: not stuck())
        for body in bodies[6:]:
            found.send("anthropic", body)
        first = len(json.loads(bodies[5])["messages"])
        for body, seen in zip(bodies[6:], found.upstream.seen[1:], strict=True):
            assert seen.json["messages"][:first] == json.loads(body)["messages"][:first]
            assert ibidem.expand(seen.body) == body


def test_when_all_threads_are_stuck_nobody_waits() -> None:
    bodies = [dumped(build(turns(2, seed=number, first=f"number {number}"), "anthropic")) for number in range(12)]
    with talk(budget_ms=100) as found, held():
        for body in bodies:
            assert found.send("anthropic", body)[0] == 200
            assert found.upstream.seen[-1].body == body
        counted = failures(found)
        assert counted == {"time-out": 4, "busy: earlier requests take too long": 8}
        assert len(shown(found)) == 2


def test_a_slow_store_is_not_waited_for() -> None:
    class Slow(MemoryStore):
        go = threading.Event()

        def notes(self, *given: Any) -> JournalPage:
            assert self.go.wait(60)
            return super().notes(*given)

    store, body = Slow(), conversation()[3]
    with talk(profile="recoverable", store=store, budget_ms=50) as found:
        assert found.send("anthropic", body)[0] == 200
        assert found.upstream.seen[-1].body == body
        assert sum(failures(found).values()) == 1
        store.go.set()


# ── observing, and what is remembered ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", FORMATS)
def test_who_only_observes_changes_nothing_and_says_what_could_be_saved(format: str) -> None:
    bodies = conversation(format, 16)
    with talk(observe=True) as found:
        for body in bodies:
            found.send(format, body)
        totals = found.settled(len(bodies))["totals"]
        assert [seen.body for seen in found.upstream.seen] == bodies
        assert totals["rewritten"] == 0
        assert totals["would_have_paid"] < 0.9 * totals["paid"]
        shown = found.page("conversation/c1")["exchanges"]
        assert {each["outcome"] for each in shown} == {"observed"}


def test_conversations_beyond_the_limit_are_let_go_and_come_back() -> None:
    many = [conversation(count=4, seed=seed, first=f"job {seed}") for seed in range(8)]
    with talk(conversations=3) as found, talk() as roomy:
        for step in range(5):
            for bodies in many:
                found.send("anthropic", bodies[step])
                roomy.send("anthropic", bodies[step])
        sent = [seen.body for seen in found.upstream.seen]
        assert sent == [seen.body for seen in roomy.upstream.seen]
        assert any(len(body) < len(original) for body, original in zip(sent, _in_turn(many), strict=True))
        for body, original in zip(sent, _in_turn(many), strict=True):
            assert ibidem.expand(body) == original


def _in_turn(many: list[list[bytes]]) -> list[bytes]:
    return [bodies[step] for step in range(len(many[0])) for bodies in many]


def test_asking_for_a_size_leaves_no_trace() -> None:
    bodies = conversation(count=4)
    with talk() as found:
        for body in bodies:
            _, told = found.ask("POST", "/v1/messages/count_tokens", body)
            counted = found.upstream.seen[-1]
            found.send("anthropic", body)
            assert counted.body == found.upstream.seen[-1].body, "the size of what is sent"
            assert json.loads(told)["input_tokens"] > 0
        state = found.settled(2 * len(bodies))
        assert len(state["conversations"]) == 1
        assert state["conversations"][0]["requests"] == len(bodies)


def test_answers_of_any_kind_reach_the_client() -> None:
    said = Says("fine")
    with talk([said]) as found:
        status, answer = found.send("anthropic", ONE)
        assert (status, json.loads(answer)["content"][0]["text"]) == (200, "fine")


class SmallDisk(io.RawIOBase):
    """Accept `room` bytes in all, as a file on a disk that is nearly full."""

    def __init__(self, path: Path, room: int) -> None:
        self._handle, self.room = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), room

    def write(self, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(self._handle, data[: self.room])
        self.room -= written
        return written

    def fileno(self) -> int:
        return self._handle

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()


def test_json_log_has_no_partial_row_and_continues_after_a_full_disk(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with talk(json_log=str(log)) as found, SmallDisk(log, 100) as disk:
        assert found.service.log_file is not None
        found.service.log_file.close()
        found.service.log_file = disk  # type: ignore[assignment]
        for requests, room in ((1, 0), (2, 0), (3, 10**6)):
            disk.room = room or disk.room
            assert found.send("anthropic", next(growing("anthropic", 1)))[0] == 200
            found.settled(requests)
            if room:
                waited_for(lambda: log.stat().st_size)
            assert [json.loads(line)["id"] for line in log.read_bytes().splitlines()] == ["e3"] * (requests == 3)
        events = [each["text"] for each in found.state["events"] if each["kind"] == "log"]
    assert len(events) == 1
    assert events[0].endswith("requests are not logged until there is room")
