"""`--record`: what came, what went and what was answered is in the folder, and can be read whatever happens."""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from ibidem import recordings
from ibidem.billing.prices import Prices
from ibidem.errors import IbidemError
from ibidem.proxy.accounting import capture_files, recorder
from ibidem.proxy.accounting.capture import CapturedExchange
from ibidem.proxy.accounting.capture_files import CaptureFiles, CaptureLimits
from ibidem.recordings import proxy_recordings
from ibidem.recordings.body_store import RequestBodies
from ibidem.recordings.log_file import LogError, read_log
from ibidem.report.aggregate import total_row
from ibidem.report.log_summary import paid_requests, read_facts
from ibidem.testing import Answer, Fails, Gzips, Halves, Says, Seen, Upstream
from tests.support.proxied import PATHS, Clock, Talk, dumped, growing, talk, waited_for
from tests.support.signed import Agent, history, thinks

from .test_refused import Choosy, newest_marked

SECRET = "sk-opens-nothing"


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl.gz"))


def rows(folder: Path) -> list[tuple[dict[str, Any], RequestBodies]]:
    """Every exchange, in the order in which they were sent."""
    found = []
    for path in files(folder):
        log = read_log(str(path), path.read_bytes())
        found += list(proxy_recordings.read_bodies(log))
        assert not log.skipped, log.skipped
    return sorted(found, key=lambda each: each[0]["at"])


def written(folder: Path, count: int) -> list[tuple[dict[str, Any], RequestBodies]]:
    """Once they are there: a file that was just made is empty, and its last row may be half written."""

    def whole() -> list[tuple[dict[str, Any], RequestBodies]] | None:
        try:
            found = rows(folder)
        except (LogError, AssertionError):
            return None
        return found if len(found) >= count else None

    return waited_for(whole)  # type: ignore[no-any-return]


def sessions(folder: Path) -> list[recordings.Recording]:
    return [each for path in files(folder) for each in recordings.read(str(path), path.read_bytes())]


def events(found: Talk) -> list[str]:
    return [each["text"] for each in found.state["events"] if each["kind"] == "record"]


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_what_came_and_went_and_was_answered_is_there_to_the_byte(tmp_path: Path, format: str, streams: bool) -> None:
    folder, clock = tmp_path / "record", Clock()
    with talk(record=str(folder), clock=clock) as found:
        came, heard = [], []
        for body in growing(format, 8):
            if streams and format != "gemini":
                body["stream"] = True
            if streams and format == "openai-chat":
                body["stream_options"] = {"include_usage": True}
            came.append(dumped(body))
            clock.now += 10
            path = PATHS[format].replace("generate", "streamGenerate") if streams else PATHS[format]
            query = "?key=" + SECRET if format == "gemini" else ""
            heard.append(found.ask("POST", path + query, came[-1], authorization=SECRET, user_agent="agent/1 more")[1])
        went = [each.body for each in found.upstream.seen]
        listed = written(folder, 9)
    assert [bodies.client_body for _, bodies in listed] == came
    assert [bodies.sent_body for _, bodies in listed] == went
    assert [bodies.sent_body is bodies.client_body for _, bodies in listed] == [
        one == other for one, other in zip(came, went, strict=True)
    ]
    assert came != went
    assert [row["answer"]["text"].encode() for row, _ in listed] == heard
    assert {(row["format"], row["client"], row["status"], row["path"]) for row, _ in listed} == {
        (format, "agent/1", 200, path)
    }
    assert all(row["usage"]["fresh"] + row["usage"]["read"] + row["usage"]["written"] > 0 for row, _ in listed)
    [file] = files(folder)
    assert SECRET not in gzip.decompress(file.read_bytes()).decode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [session] = sessions(folder)
    assert (session.length, session.format, session.agent) == (9, format, "ibidem-recording")
    key = {"openai-responses": "input", "gemini": "contents"}.get(format, "messages")
    assert [body[key] for body, _ in session.requests()] == [json.loads(each)[key] for each in came]
    assert session.head == {name: value for name, value in json.loads(came[-1]).items() if name not in (key, "model")}


def test_what_was_counted_is_paid_and_sizes_only_what_went_as_it_came(tmp_path: Path) -> None:
    with talk(record=str(tmp_path)) as found:
        for body in growing("anthropic", 8, marks=True):
            found.send("anthropic", body)
        listed, state = written(tmp_path, 9), found.settled(9)
    [session] = sessions(tmp_path)
    sent = session.segments[0].requests
    rewritten = [bodies.sent_body is not bodies.client_body for _, bodies in listed]
    assert any(rewritten)
    assert [each.usage is None for each in sent] == rewritten
    assert [each.billed is not None for each in sent] == rewritten
    [file] = files(tmp_path)
    [facts] = read_facts(str(file), file.read_bytes()).sessions
    names = ("fresh", "read", "written", "written_1h", "output")
    assert facts.counted == [tuple(row["usage"][name] for name in names) for row, _ in listed]
    paid = total_row(paid_requests(facts, Prices()), ())
    assert paid.logged == pytest.approx(state["totals"]["paid"]) == pytest.approx(paid.input)
    assert paid.otherwise == pytest.approx(state["totals"]["would_have_paid"])
    assert paid.otherwise > paid.logged


def test_with_observe_all_goes_as_it_came(tmp_path: Path) -> None:
    with talk(record=str(tmp_path), observe=True) as found:
        for body in growing("anthropic", 6):
            found.send("anthropic", body)
        listed = written(tmp_path, 7)
    assert all(bodies.sent_body is bodies.client_body for _, bodies in listed)
    assert all(each.usage and each.otherwise is None for each in sessions(tmp_path)[0].segments[0].requests)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_what_is_compressed_on_its_way_is_told_as_it_was_before(tmp_path: Path, encoding: str) -> None:
    from ibidem.wire.content_encoding import encode_body

    with talk(lambda _: Gzips(Says("ok")), record=str(tmp_path)) as found:
        came = [dumped(body) for body in growing("anthropic", 6)]
        for body in came:
            found.send("anthropic", encode_body(body, encoding), content_encoding=encoding)
        went = [each.text for each in found.upstream.seen]
        listed = written(tmp_path, 7)
    assert [(bodies.client_body, bodies.sent_body) for _, bodies in listed] == list(zip(came, went, strict=True))
    assert all(json.loads(row["answer"]["text"])["content"] for row, _ in listed)


def test_conversations_and_sub_agents_have_files_of_their_own(tmp_path: Path) -> None:
    talks = [list(growing("anthropic", 5, seed=seed, first=f"task {seed}")) for seed in range(3)]
    headers = {"x_claude_code_session_id": "one-session", "user_agent": "claude-cli/2.1.325 (external)"}
    with talk(record=str(tmp_path), strict=False) as found:
        for bodies in zip(*talks, strict=True):
            for body in bodies:
                found.send("anthropic", body, **headers)
        found.ask("POST", "/v1/messages/count_tokens", dumped(talks[0][0]))
        found.ask("GET", "/v1/models")
        found.send("anthropic", b'{"no": "conversation"}')
        found.send("anthropic", b"no json")
        written(tmp_path, 18)
        found.send("openai-responses", {"model": "gpt-5", "input": "a prompt"})
        found.send("openai-responses", {"model": "gpt-5", "input": "another prompt"})
        written(tmp_path, 20)
    told = sessions(tmp_path)
    assert len(files(tmp_path)) == 4
    assert [(each.length, each.id, each.agent, each.title) for each in told[:3]] == [
        (6, "one-session", "claude-code", f"task {seed}") for seed in range(3)
    ]
    assert [each.title for each in told[3:]] == ["a prompt", "another prompt"]


def test_what_was_refused_and_sent_again_is_told(tmp_path: Path) -> None:
    choosy, agent = Choosy(lambda messages: len(messages) == 13 and newest_marked(messages)), Agent()
    with talk(choosy, record=str(tmp_path)) as found:
        for _ in range(8):
            assert agent.ask(found) == 200
        listed = written(tmp_path, 8)
    assert [bodies.client_body for _, bodies in listed] == agent.came
    assert [len(bodies.rejected_bodies) for _, bodies in listed] == [0] * 6 + [1, 0]
    _, refused = listed[6]
    assert [refused.rejected_bodies[0]] == choosy.refused
    assert refused.sent_body == found.upstream.seen[7].body
    assert history(refused.client_body)[:13] == history(agent.came[6])


def test_answers_that_are_errors_or_break_off_are_told_and_are_no_requests(tmp_path: Path) -> None:
    answers = iter([Says("ok"), Fails(529), Halves(Says("half of it")), Says("ok")])
    bodies = list(growing("anthropic", 3))
    with talk(lambda _: next(answers), record=str(tmp_path)) as found:
        found.send("anthropic", bodies[0])
        found.send("anthropic", bodies[1])
        with pytest.raises(Exception, match=r"IncompleteRead|closed|reset"):
            found.send("anthropic", bodies[1])
        found.send("anthropic", bodies[1])
        listed = written(tmp_path, 4)
    assert [row["status"] for row, _ in listed] == [200, 529, 200, 200]
    assert "overloaded" in listed[1][0]["answer"]["text"].lower()
    assert [each.length for each in sessions(tmp_path)] == [3]


def test_an_answer_that_is_no_text_or_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.proxy.accounting.capture.ANSWER_BYTES", 1000)

    def script(seen: Seen) -> Answer:
        return Says("long " * 100_000)

    body = {**next(growing("anthropic", 1)), "stream": True}
    path = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/invoke-with-response-stream"
    with talk(script, record=str(tmp_path)) as found:
        found.send("anthropic", body)
        [(row, _)] = written(tmp_path, 1)
        assert row["answer"]["cut"]
        assert 1000 <= len(row["answer"]["text"]) < 500_000
    taken = CapturedExchange(None, "", path)  # type: ignore[arg-type]
    taken.add_chunk(b"\x00\xff")
    assert b64decode(recorder.response_json(taken)["base64"]) == b"\x00\xff"


# --- bounds, and what goes wrong ----------------------------------------------------------------


def body_of(size: int, number: int = 0) -> RequestBodies:
    data = dumped({"messages": [{"role": "user", "content": os.urandom(size // 2).hex() + str(number)}]})
    return RequestBodies(data, data)


def test_a_file_is_bounded_and_its_conversation_goes_on_in_the_next(tmp_path: Path) -> None:
    found = CaptureFiles(str(tmp_path), CaptureLimits(30, 200_000), 10)
    for number in range(6):
        found.write_exchange("c1", body_of(60_000, number), {"ibidem_recording": 1, "at": number}, 0.0)
    assert len(files(tmp_path)) == 3
    assert [row["at"] for row, _ in rows(tmp_path)] == list(range(6))


def test_the_oldest_files_go_first_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl.gz").write_bytes(b"x" * 500_000)
    found = CaptureFiles(str(tmp_path), CaptureLimits(30, 200_000), 10)
    names: list[Path] = []
    for number in range(5):
        found.write_exchange(f"c{number}", body_of(60_000), {"ibidem_recording": 1, "at": number}, 0.0)
        [new] = set(files(tmp_path)) - {tmp_path / "mine.jsonl.gz", *names}
        names.append(new)
        os.utime(new, (1000 + number, 1000 + number))
        found.delete_expired(1000.0 + number)
    left = [name for name in names if name.exists()]
    assert left == names[-len(left) :]
    assert sum(name.stat().st_size for name in left) <= 200_000
    assert found.delete_expired(1000.0 + 31 * 86_400) == len(left)
    assert files(tmp_path) == [tmp_path / "mine.jsonl.gz"]


def test_a_file_that_was_deleted_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    found = CaptureFiles(str(tmp_path), CaptureLimits(0, 0), 10)
    body = body_of(1000)
    found.write_exchange("c1", body, {"ibidem_recording": 1, "at": 0}, 0.0)
    files(tmp_path)[0].unlink()
    found.write_exchange("c1", body, {"ibidem_recording": 1, "at": 1}, 0.0)
    assert [(row["at"], bodies) for row, bodies in rows(tmp_path)] == [(1, body)]


def test_what_is_held_is_bounded_and_what_was_forgotten_is_told_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_files, "HELD_BYTES", 5000)
    found = CaptureFiles(str(tmp_path), CaptureLimits(0, 0), 10)
    bodies = [body_of(2000, number) for number in range(4)]
    for turn in range(3):
        for number, body in enumerate(bodies):
            found.write_exchange(f"c{number}", body, {"ibidem_recording": 1, "at": 10 * turn + number}, 0.0)
    assert len(files(tmp_path)) == 4
    assert [each for _, each in rows(tmp_path)] == bodies * 3


def test_recordings_that_are_too_old_are_deleted_and_that_is_said_once(tmp_path: Path) -> None:
    old = [tmp_path / f"ibidem-20200101T000000-0000000{number}-1.jsonl.gz" for number in range(2)]
    for each in old:
        each.write_bytes(b"")
        os.utime(each, (0, 0))
    with talk(record=str(tmp_path), record_days=2.0) as found:
        waited_for(lambda: not any(each.exists() for each in old))
        [said] = waited_for(lambda: events(found))
        assert said.startswith("recordings older than 2 days or above 1,000,000,000 bytes in all are deleted: allow")


def test_a_folder_that_cannot_be_used_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below", "x" * 300):
        with pytest.raises(IbidemError, match="name another with --record"), talk(record=str(tmp_path / place)):
            pass


def test_when_it_cannot_go_on_exchanges_do(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    with talk(record=str(folder)) as found:
        bodies = list(growing("anthropic", 4))
        assert found.send("anthropic", bodies[0])[0] == 200
        written(folder, 1)
        files(folder)[0].unlink()
        folder.rmdir()
        for body in bodies[1:]:
            assert found.send("anthropic", body)[0] == 200
        [said] = waited_for(lambda: events(found))
        assert said == f"{folder}: No such file or directory: recording has stopped, requests continue"


def test_what_a_full_disk_leaves_of_a_row_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CaptureFiles(str(tmp_path), CaptureLimits(0, 0), 10)
    found.write_exchange("c1", body_of(1000), {"ibidem_recording": 1, "at": 0}, 0.0)
    write, calls = os.write, []

    def short(handle: int, data: Any) -> int:
        calls.append(handle)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(handle, data[:10])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space"):
        found.write_exchange("c1", body_of(1000), {"ibidem_recording": 1, "at": 1}, 0.0)
    monkeypatch.undo()
    assert [row["at"] for row, _ in rows(tmp_path)] == [0]


def test_where_it_is_too_slow_a_conversation_is_left_out_and_memory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "WAITING_BYTES", 1)
    talks = [list(growing("anthropic", 3, seed=seed, first=f"task {seed}")) for seed in range(2)]
    going, write = threading.Event(), CaptureFiles.write_exchange

    def stuck(self: CaptureFiles, *about: Any) -> None:
        going.wait()
        write(self, *about)

    monkeypatch.setattr(CaptureFiles, "write_exchange", stuck)
    with talk(record=str(tmp_path)) as found:
        for bodies in zip(*talks, strict=True):
            for body in bodies:
                assert found.send("anthropic", body)[0] == 200
        [said] = waited_for(lambda: events(found))
        assert said == "recording is slower than the requests: some conversations are no longer recorded"
        found.settled(8)
        going.set()
        written(tmp_path, 1)
        assert found.send("anthropic", next(growing("anthropic", 1, first="task 3")))[0] == 200
        assert len(written(tmp_path, 2)) == 2, "one that begins is recorded"


# --- a process that is killed -------------------------------------------------------------------

SERVE = """
import sys
from ibidem.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_what_was_written_when_it_is_killed_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    options = ["proxy", "--port", "0", "--store", "memory:", "--record", str(folder)]
    with Upstream(thinks) as upstream:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *options, "--upstream", f"anthropic={upstream.url}"],
            env={**kept, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            found = Talk(upstream, type("Somewhere", (), {"url": url})(), None)  # type: ignore[arg-type]
            agents = [Agent(f"task {number}", lines=400) for number in range(2)]
            for _ in range(6):
                for agent in agents:
                    assert agent.ask(found) == 200
            written(folder, 10)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    told = [
        [json.loads(bodies.client_body) for _, bodies in proxy_recordings.read_bodies(read_log("", path.read_bytes()))]
        for path in files(folder)
    ]
    assert 10 <= sum(map(len, told)) <= 12
    for agent, each in zip(agents, told, strict=True):
        assert each == [json.loads(body) for body in agent.came[: len(each)]]
    assert [each.id.endswith(("-c1", "-c2")) for each in sessions(folder)] == [True, True]
