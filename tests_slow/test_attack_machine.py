"""Faults of the machine under a real proxy: a full disk, and clocks that jump."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ibidem
from ibidem.store import SqliteStore
from ibidem.testing import Says, Upstream
from tests.store.test_store import assert_consistent
from tests.support.proxied import dumped, requests, stale, waited_for

from .conftest import Tally
from .proxy_process import proxy_process
from .test_attack_kill import IDLE_SECONDS, REFERENCE, run_report

DISK_BYTES = 3 * 2**20
FILLINGS = 6
HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
JUMPS = (DAY, -DAY, YEAR, -YEAR, 0.0, -HOUR, HOUR, 0.5, -0.5)
"""Seconds from the real time, one after the other."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "ibidem-test", str(folder)]
    if os.name == "nt" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Write a file until no byte is left."""
    with (folder / "filler").open("ab", buffering=0) as file:
        for size in (2**16, 2**10, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def conversation(number: int) -> list[bytes]:
    return [dumped(body) for body in requests("anthropic", *stale(6, 60, seed=number, after=16))]


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return str(database.execute("PRAGMA integrity_check").fetchone()[0])


def test_full_disk(small_disk: Path, tmp_path: Path, tally: Tally) -> None:
    """Store, usage database, log and recording share a disk that fills up in mid-conversation and is freed again."""
    store_file, folder, log = small_disk / "store.sqlite3", small_disk / "record", small_disk / "log.jsonl"
    options = ("--profile", "recoverable", "--store", str(store_file), "--record", str(folder), "--json-log", str(log))
    counts = dict.fromkeys(("requests", "while_full", "references_while_full", "failed_open"), 0)
    chance, full = random.Random(3), False
    data = tmp_path / ".local" / "share" / "ibidem"
    data.parent.mkdir(parents=True)
    data.symlink_to(small_disk)
    with (
        Upstream(lambda _: Says("ok"), strict=True) as upstream,
        proxy_process(tmp_path, upstream.url, *options) as proxy,
    ):
        for number in range(FILLINGS):
            bodies = conversation(number)
            start = chance.randrange(2, len(bodies) - 6)
            for turn, body in enumerate(bodies):
                if turn == start:
                    fill(small_disk)
                    full = True
                    proxy.set_clock((number + 1) * IDLE_SECONDS)
                known = len(upstream.seen)
                assert proxy.post(body)[0] == 200
                counts["requests"] += 1
                counts["while_full"] += full
                sent = upstream.seen[known:][-1].text
                counts["references_while_full"] += full and bool(REFERENCE.search(sent))
                # Whatever is sent while the disk is full must restore from what is already in the store.
                with SqliteStore(store_file) as store:
                    expanded = ibidem.expand(json.loads(sent), store=store)
                assert expanded["messages"] == json.loads(body)["messages"]
            (small_disk / "filler").unlink()
            full = False
        counts["failed_open"] = proxy.state["totals"]["failed_open"]

        def evicts_again() -> bool:
            bodies = conversation(100 + counts["requests"])
            proxy.set_clock((FILLINGS + 1) * IDLE_SECONDS + counts["requests"])
            for turn, body in enumerate(bodies):
                if turn == 30:  # with fewer requests after the reads, the results are still needed
                    proxy.set_clock((FILLINGS + 3) * IDLE_SECONDS + counts["requests"])
                assert proxy.post(body)[0] == 200
                counts["requests"] += 1
            return bool(REFERENCE.search(upstream.seen[-1].text))

        assert waited_for(evicts_again)
        assert proxy.stop() == 0
    assert_consistent(store_file)
    rows = [json.loads(line) for line in log.read_bytes().splitlines()]
    usage_files = sorted(small_disk.glob("gains.sqlite3"))
    assert [integrity(path) for path in usage_files] == ["ok"]
    sessions = run_report(folder, tmp_path)["sessions"]
    assert "Traceback" not in proxy.errors.read_text()
    tally(
        "disk full",
        fillings=FILLINGS,
        **counts,
        broken_files=0,
        log_rows=len(rows),
        recorded_sessions=len(sessions),
    )


def test_clock_jumps(tmp_path: Path, tally: Tally) -> None:
    store_file, log = tmp_path / "store.sqlite3", tmp_path / "log.jsonl"
    options = ("--profile", "recoverable", "--store", str(store_file), "--json-log", str(log))
    asked = jumps = references = 0
    with (
        Upstream(lambda _: Says("ok"), strict=True) as upstream,
        proxy_process(tmp_path, upstream.url, *options) as proxy,
    ):
        for number, restart in enumerate((False, True, False)):
            for turn, body in enumerate(conversation(number)):
                proxy.set_clock(JUMPS[turn % len(JUMPS)])
                jumps += 1
                if restart and turn % 8 == 7:
                    assert proxy.stop() == 0
                    proxy.start()
                assert proxy.post(body)[0] == 200
                asked += 1
                sent = upstream.seen[-1].text
                references += bool(REFERENCE.search(sent))
                with SqliteStore(store_file) as store:
                    expanded = ibidem.expand(json.loads(sent), store=store)
                assert expanded["messages"] == json.loads(body)["messages"]
        state = proxy.state
        assert proxy.stop() == 0
    rows = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert len(rows) == asked
    negative = [row for row in rows if any(isinstance(value, int | float) and value < 0 for value in row.values())]
    assert "Traceback" not in proxy.errors.read_text()
    assert_consistent(store_file)
    tally(
        "clock jumps of up to a year, both ways",
        jumps=jumps,
        responses=asked,
        with_references=references,
        failed_open=state["totals"]["failed_open"],
        negative_numbers_in_the_log=len(negative),
    )
    assert not negative, negative[0]
    assert state["totals"]["failed_open"] == 0
    assert references > 0
