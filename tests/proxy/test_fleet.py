"""`ibidem proxy --workers 2`, as processes: all of them serve, what they say is one, and they end together."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ibidem.proxy.page.together import summed
from ibidem.store import open_store
from ibidem.testing.answers import Says
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

    def __init__(self, home: Path, provider: Upstream, *options: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
        self.provider = provider
        self.opened: list[Connection] = []
        self.process = subprocess.Popen(
            [*COMMAND, "--upstream", f"anthropic={provider.url}", *options],
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
def fleet(home: Path, *options: str) -> Iterator[RunningFleet]:
    with Upstream(lambda _: Says("ok")) as provider:
        found = RunningFleet(home, provider, *options)
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
        assert out.splitlines()[-1].startswith(f"{sent + 3} requests, ")
        assert not any(map(is_there, state["workers"]["pids"]))


def newest(found: RunningFleet, owner: str) -> str:
    ids: list[str] = [each["id"] for each in found.page("state")["conversations"]]
    return next(each for each in ids if each.startswith(f"{owner}-"))


def test_one_that_dies_is_replaced_and_what_it_counted_stays(tmp_path: Path) -> None:
    with fleet(tmp_path) as found:
        _, sent = found.both("go")
        found.asked("POST", "/ibidem/api/off", dumped({"all": True}))
        waited_for(lambda: found.page("state")["totals"]["requests"] == sent)
        threading.Event().wait(1.2)  # what it counted is told to the parent twice a second
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
