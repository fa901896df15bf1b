"""`ibidem proxy --workers 2`, as processes: all of them serve, what they say is one, and they end together."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ibidem.proxy.page.together import summed
from ibidem.store import open_store
from ibidem.testing.answers import Answer, Says
from ibidem.testing.seen import Seen
from ibidem.testing.upstream import Upstream
from tests.support.proxied import PATHS, PATIENCE, dumped, growing, requests, stale, talk, waited_for

pytestmark = [
    pytest.mark.slow,  # each starts processes
    pytest.mark.skipif(os.name == "nt", reason="processes cannot share a port there"),
]


COMMAND = (sys.executable, "-m", "ibidem.cli", "proxy", "--workers", "2", "--port", "0")


class Connection:
    """One that is kept."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._open = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> bytes:
        sent = {"content-type": "application/json", "x-api-key": "k", **headers}
        self._open.request(method, target, body, sent)
        with self._open.getresponse() as answer:
            found = answer.read()
            assert answer.status == 200, (answer.status, found)
            return found

    def send(self, body: Any) -> bytes:
        return self.ask("POST", PATHS["anthropic"], dumped(body))

    def close(self) -> None:
        self._open.close()


class RunningFleet:
    """`ibidem proxy --workers 2` and the provider behind it."""

    def __init__(self, home: Path, provider: Upstream, *options: str, command: Sequence[str] = COMMAND) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
        self.provider = provider
        self.opened: list[Connection] = []
        self.process = subprocess.Popen(
            [*command, "--upstream", f"anthropic={provider.url}", *options],
            env={**kept, "HOME": str(home), "IBIDEM_BUDGET_MS": "60000", "PYTHONUNBUFFERED": "1"},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        found = re.search(r"http://127\.0\.0\.1:[0-9]+", self.process.stdout.readline())
        watch.cancel()
        assert found is not None, self.process.communicate()
        self.url = found[0]

    def page(self, path: str) -> Any:
        return json.loads(self.asked("GET", f"/ibidem/api/{path}"))

    def asked(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """Over a connection of its own, so that any of them may answer."""
        connection = Connection(self.url)
        try:
            return connection.ask(method, target, body)
        finally:
            connection.close()

    def both(self, name: str) -> tuple[dict[str, Connection], int]:
        """A connection to each of two workers, by the beginning of its ids, and how many requests that took."""
        titles = [f"{name} {number}" for number in range(4)]
        opened = [self.connection() for _ in titles]
        for connection, title in zip(opened, titles, strict=True):  # each is handed to the next worker
            connection.send(next(growing("anthropic", 1, first=title)))
        owners = [self.conversation(title)["id"].partition("-")[0] for title in titles]
        found = dict(zip(owners, opened, strict=True))
        assert Counter(owners) == dict.fromkeys(found, 2), "they take turns"
        return found, len(titles)

    def connection(self) -> Connection:
        self.opened.append(Connection(self.url))
        return self.opened[-1]

    def conversation(self, title: str) -> Any:
        return next(each for each in self.page("state")["conversations"] if each["title"] == title)

    def settled(self, requests: int) -> Any:
        def over() -> Any:
            state = self.page("state")
            going = any(each["active"] for each in state["conversations"])
            return state if state["totals"]["requests"] == requests and not going else None

        return waited_for(over)

    def end(self, number: int) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def fleet(
    home: Path, *options: str, script: Callable[[Seen], Answer] = lambda _: Says("ok"), command: Sequence[str] = COMMAND
) -> Iterator[RunningFleet]:
    with Upstream(script) as provider:
        found = RunningFleet(home, provider, *options, command=command)
        try:
            yield found
        finally:
            for connection in found.opened:
                connection.close()
            found.process.kill()  # the workers notice
            found.process.communicate()


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_all_of_them_serve_and_speak_as_one(tmp_path: Path) -> None:
    with fleet(tmp_path, "--json-log", str(tmp_path / "log")) as found:
        both, sent = found.both("go")
        for owner, connection in both.items():
            for body in list(growing("anthropic", 4, first=f"stay with {owner}"))[:4]:
                connection.send(body)
                sent += 1
            row = found.conversation(f"stay with {owner}")
            assert (row["id"].partition("-")[0], row["requests"]) == (owner, 4), "a kept connection stays"
            assert len(found.page(f"conversation/{row['id']}")["exchanges"]) == 4, "whoever is asked for it"

        state = found.settled(sent)
        about = state["workers"]
        assert (about["count"], about["running"], about["replaced"], len(about["pids"])) == (2, 2, 0, 2)
        assert state["lookups"] == {"warm": 6, "store": 0, "cold": 0, "new": sent - 6}
        for _ in range(4):  # any of them
            metrics = found.asked("GET", "/ibidem/metrics").decode()
            counted = re.findall(r"^ibidem_requests_total\{.*\} (\d+)", metrics, re.MULTILINE)
            assert sum(map(int, counted)) == sent
            assert 'ibidem_conversation_lookups_total{found="warm"} 6' in metrics
        rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert len({row["id"] for row in rows}) == len(rows) == sent
        assert len({row["started"] for row in rows}) == 1

        one, other = both
        mine = found.conversation(f"stay with {one}")["id"]
        found.asked("POST", "/ibidem/api/off", dumped({"conversation": mine}))
        moved = list(growing("anthropic", 6, first=f"stay with {one}"))[-1]
        both[other].send(moved)
        assert found.settled(sent + 1)["lookups"]["cold"] == 1
        rows = found.page(f"conversation/{newest(found, other)}")["exchanges"]
        assert rows[-1]["outcome"] == "off", "also where it was not in use"
        assert rows[-1]["edits"], "and what was sent there stays as it was sent"

        found.asked("POST", "/ibidem/api/off", dumped({"all": True}))
        for connection in both.values():
            connection.send(next(growing("anthropic", 1, first="those to come")))
        found.settled(sent + 3)
        assert {each["id"] for each in found.page("state")["conversations"]} == {*found.page("state")["off"]}
        code, out, err = found.end(signal.SIGTERM)
        assert (code, err) == (0, "")
        assert out.splitlines()[-1].startswith(f"{sent + 3} requests. ")
        assert not any(map(is_there, state["workers"]["pids"]))


def newest(found: RunningFleet, owner: str) -> str:
    ids: list[str] = [each["id"] for each in found.page("state")["conversations"]]
    return next(each for each in ids if each.startswith(f"{owner}-"))


def test_one_that_dies_is_replaced_and_what_it_counted_stays(tmp_path: Path) -> None:
    with fleet(tmp_path) as found:
        _, sent = found.both("go")
        found.asked("POST", "/ibidem/api/off", dumped({"all": True}))
        waited_for(lambda: found.page("state")["totals"]["requests"] == sent)
        threading.Event().wait(3)  # what it counted is told to the parent twice a second
        gone = found.page("state")["workers"]["pids"][0]
        os.kill(gone, signal.SIGKILL)
        for number in range(20):
            found.asked("POST", PATHS["anthropic"], dumped(next(growing("anthropic", 1, first=f"later {number}"))))
        state = waited_for(lambda: (now := found.page("state"))["workers"]["running"] == 2 and now)
        assert gone not in state["workers"]["pids"]
        assert state["workers"]["replaced"] == 1
        waited_for(lambda: found.page("state")["totals"]["requests"] == sent + 20)
        found.both("and")
        late = [each for each in found.page("state")["conversations"] if each["id"].startswith("w3-")]
        assert late, "the new one serves"
        assert {each["id"] for each in late} <= {*found.page("state")["off"]}, "and knows what is off"
        code, _, err = found.end(signal.SIGINT)
        assert code == 0
        (line,) = err.splitlines()
        when = "(now|in 0.5 s, since it had only just begun)"
        assert re.fullmatch(
            rf"ibidem: a worker process \(pid {gone}\) ended by SIGKILL: another is started {when}", line
        )


def test_without_their_parent_they_end(tmp_path: Path) -> None:
    with fleet(tmp_path) as found:
        pids = found.page("state")["workers"]["pids"]
        assert all(map(is_there, pids))
        found.process.kill()
        found.process.wait()
        waited_for(lambda: not any(map(is_there, pids)))


class Held:
    """A provider that answers what is in the middle of something only when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def __call__(self, seen: Seen) -> Answer:
        if b"in the middle" in seen.body:
            self.asked.set()
            assert self.go.wait(PATIENCE)
        return Says("ok")


def test_new_settings_are_taken_by_new_processes_and_nothing_is_cut_off(tmp_path: Path) -> None:
    file, held, answers = tmp_path / ".config" / "ibidem" / "ibidem.toml", Held(), []
    file.parent.mkdir(parents=True)
    with fleet(tmp_path, script=held) as found:
        before = found.page("state")["workers"]["pids"]
        for number in range(2):  # each worker has a connection that its client keeps open, and asks nothing on
            found.connection().send(next(growing("anthropic", 1, first=f"once {number}")))
        going = threading.Thread(
            target=lambda: answers.append(found.connection().send(next(growing("anthropic", 1, first="in the middle"))))
        )
        going.start()
        assert held.asked.wait(PATIENCE)
        file.write_text("[proxy]\nobserve = true\n")
        found.process.send_signal(signal.SIGUSR1)
        waited_for(
            lambda: not {*before} & {*(about := found.page("state")["workers"])["pids"]} and about["running"] == 2
        )
        assert found.page("state")["observe"]
        assert any(map(is_there, before)), "who has something to answer is there"
        held.go.set()
        going.join(PATIENCE)
        assert len(answers) == 1
        waited_for(lambda: not any(map(is_there, before)))
        state = waited_for(lambda: (now := found.page("state"))["totals"]["requests"] == 3 and now)
        assert state["workers"]["replaced"] == 0, "none of them died"

        file.write_text("[proxy]\nprofile = 5\n")
        found.process.send_signal(signal.SIGUSR1)
        waited_for(lambda: [each for each in found.page("state")["events"] if "not taken" in each["text"]])
        assert found.page("state")["workers"]["pids"] == state["workers"]["pids"]
        code, _, err = found.end(signal.SIGTERM)
    lines = err.splitlines()
    assert code == 0
    assert lines[0].startswith("ibidem: the settings were read again: new processes serve")
    assert lines[1].startswith(f"ibidem: the settings are not taken: {file}: proxy.profile")
    assert len(lines) == 2


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process cannot be set here")
def test_where_no_other_can_be_started_it_goes_on_as_it_was_and_tries_again(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "ibidem" / "ibidem.toml"
    file.parent.mkdir(parents=True)
    with fleet(tmp_path) as found:
        pid, before = found.process.pid, found.page("state")["workers"]["pids"]
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        file.write_text("[proxy]\nobserve = true\n")
        tried = 0
        while not said(found, "read again") and tried < 12:  # one of these lets the first begin and not the second
            room = len(os.listdir(f"/proc/{pid}/fd")) + 3 + tried
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (room, usual[1]))
            found.process.send_signal(signal.SIGUSR1)
            waited_for(partial(told_more, found, tried))
            tried += 1
            if said(found, "read again"):
                break
            states = [found.page("state") for _ in range(4)]
            assert not any(state["observe"] for state in states), "all of them, or none"
            assert all({*state["workers"]["pids"]} == {*before} for state in states)
        assert said(found, "not taken"), "else nothing was tried"


def told_more(found: RunningFleet, tried: int) -> bool:
    return said(found, "not taken") > tried or said(found, "read again") > 0


def said(found: RunningFleet, words: str) -> int:
    return sum(words in each["text"] for each in found.page("state")["events"])


CRASHING = """
import sys
from ibidem.cli import launch
from ibidem.cli.proxy import many
crash = "import os; os.path.exists({!r}) and os._exit(3); ".format(sys.argv.pop(1))
many.START = many.START.replace("from {}", crash + "from {}")
launch()
"""
"""Its workers end at their start while there is a file."""


def test_one_that_dies_at_its_start_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    command = (sys.executable, "-c", CRASHING, str(flag), *COMMAND[3:])
    with fleet(tmp_path, command=command) as found:
        gone = found.page("state")["workers"]["pids"][0]
        flag.touch()
        os.kill(gone, signal.SIGKILL)

        def told() -> list[str]:
            return [each["text"] for each in found.page("state")["events"] if each["kind"] == "worker"]

        waited_for(lambda: len(told()) >= 3)
        assert found.page("state")["workers"]["running"] == 1
        flag.unlink()
        waited_for(lambda: found.page("state")["workers"]["running"] == 2)
        pauses = [re.search(r"exit code 3: another is started in ([0-9.]+) s", each) for each in reversed(told())][1:]
        waits = [float(each[1]) for each in pauses if each]
        assert waits == [waits[0] * 2**number for number in range(len(waits))], "twice as long each time"
        assert len(waits) >= 2


def test_who_asks_twice_wants_it_to_end_at_once(tmp_path: Path) -> None:
    held = Held()
    with fleet(tmp_path, script=held) as found:
        pids = found.page("state")["workers"]["pids"]

        def ask() -> None:
            with suppress(OSError, http.client.HTTPException):
                found.connection().send(next(growing("anthropic", 1, first="in the middle")))

        going = threading.Thread(target=ask)
        going.start()
        assert held.asked.wait(PATIENCE)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that none of them ends when it is asked to
        found.process.send_signal(signal.SIGTERM)
        threading.Event().wait(0.2)
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(PATIENCE) == -signal.SIGTERM
        waited_for(lambda: not any(map(is_there, pids)))
        held.go.set()
        going.join(PATIENCE)


def wait_for_notes(file: Path, requests: int) -> None:
    """Each has one when it is sent, and one with what its provider counted, for which nobody waits."""
    with closing(sqlite3.connect(file, timeout=PATIENCE)) as store:
        waited_for(lambda: store.execute("SELECT count(*) FROM notes").fetchone()[0] >= 2 * requests)


def test_what_the_store_knows_they_share(tmp_path: Path) -> None:
    """Requests of one conversation that go to one process and the other are sent as by one alone."""
    bodies = [dumped(body) for body in requests("anthropic", *stale(6, after=4))]
    mine, theirs = tmp_path / "mine.sqlite3", tmp_path / "theirs.sqlite3"
    with talk(profile="recoverable", store=open_store(mine)) as alone:
        for number, body in enumerate(bodies, 1):
            alone.send("anthropic", body)
            wait_for_notes(mine, number)
        expected = [seen.body for seen in alone.upstream.seen]
    with fleet(tmp_path, "--profile", "recoverable", "--store", str(theirs)) as found:
        both, sent = found.both("go")
        for number, body in enumerate(bodies, 1):
            list(both.values())[number % 2].ask("POST", PATHS["anthropic"], body)
            wait_for_notes(theirs, sent + number)
        assert [seen.body for seen in found.provider.seen[sent:]] == expected
        assert b"left out" in expected[-1]
        assert found.settled(sent + len(bodies))["lookups"]["store"] == 1


def test_a_store_in_memory_is_refused_and_so_is_what_a_worker_refuses(tmp_path: Path) -> None:
    def line(*options: str) -> str:
        own = {**os.environ, "HOME": str(tmp_path), "IBIDEM_STORE": ""}
        done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=PATIENCE, env=own)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        return done.stderr

    assert line("--store", "memory:").startswith("ibidem: workers: a store in memory cannot be shared: name a file")
    assert line("--json-log", "/no/such/log").startswith("ibidem: /no/such/log: cannot be written")


def test_figures_are_summed_by_name() -> None:
    whole = {"now": 2.0, "started": 1.0, "totals": {"requests": 1, "breaks": {"a": 1}}, "lookups": {"warm": 1}}
    whole |= {"failures": [{"reason": "x", "count": 1}], "strategies": [{"name": "dedup", "edits": 1, "tokens": 5}]}
    whole |= {"events": [{"at": 1.0}], "conversations": [{"last": 1.0}], "off": ["c1"], "all_off": False}
    whole |= {"ledger": {"kept": True, "trouble": ""}}
    other = {**whole, "now": 3.0, "totals": {"requests": 2, "breaks": {"a": 1, "b": 2}}, "events": [{"at": 2.0}]}
    other |= {"failures": [{"reason": "y", "count": 2}], "ledger": {"kept": True, "trouble": "locked"}}
    found = summed([whole, other, {"totals": {"requests": 4}}], {"count": 2})
    assert found["totals"] == {"requests": 7, "breaks": {"a": 2, "b": 2}}
    assert (found["now"], found["started"], found["lookups"]) == (3.0, 1.0, {"warm": 2})
    assert found["failures"] == [{"reason": "y", "count": 2}, {"reason": "x", "count": 1}]
    assert found["strategies"] == [{"name": "dedup", "edits": 2, "tokens": 10}]
    assert [each["at"] for each in found["events"]] == [2.0, 1.0]
    assert (found["ledger"]["trouble"], found["workers"]) == ("locked", {"count": 2})
    assert summed([whole]) == whole, "alone, nothing is touched"
