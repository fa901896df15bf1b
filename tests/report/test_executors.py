"""Who works: one process, several, or a cluster; and what becomes of them when it ends early."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ibidem.billing.prices import own_prices
from ibidem.environment import install_command
from ibidem.errors import IbidemError
from ibidem.report.dask_cluster import DaskWorkers
from ibidem.report.executors import LocalWorkers
from ibidem.report.gather import LogGroupTask, MeasuredLogGroup, measure_group
from ibidem.report.measure import ReportSettings
from ibidem.report.report_cache import ReportCache
from tests.report.logs import command, done, put, related, several, spoil
from tests.report.test_report import TWICE, log

posix = pytest.mark.skipif(os.name == "nt", reason="processes, modes and signals of another kind")

NOWHERE = ("tcp://127.0.0.1:1", "nonsense", "tls://127.0.0.1:1")


@pytest.fixture(scope="module")
def nobody_there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Runs that look for a scheduler where none is, side by side."""
    folder = tmp_path_factory.mktemp("nobody")
    [path] = put(folder, one=log(*TWICE))
    running = {each: command(folder, path, "--engine", "dask", "--scheduler", each) for each in NOWHERE}
    yield running
    for each in running.values():
        each.kill()
        each.communicate()


# ── one process, and several ────────────────────────────────────────────────────────────────────────────────────────


def whose(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_one_process_works_in_order_and_by_itself() -> None:
    with LocalWorkers(1) as workers:
        assert list(workers.run_tasks(whose, range(5))) == [(number, os.getpid()) for number in range(5)]


@pytest.mark.parametrize(
    ("numbers", "alone"),
    [
        pytest.param([], False, id="no work"),
        pytest.param([1], False, id="one piece of work"),
        pytest.param([1, 2, 3], True, id="work of which it is said that there is little"),
    ],
)
def test_processes_are_not_started_for(numbers: list[int], alone: bool) -> None:
    with LocalWorkers(2) as workers:
        assert list(workers.run_tasks(whose, numbers, alone)) == [(number, os.getpid()) for number in numbers]
        assert our_workers() == []


@pytest.mark.slow
def test_processes_are_started_once_for_all_that_is_to_be_done() -> None:
    with LocalWorkers(2) as workers:
        found = [pid for _ in range(3) for _, pid in workers.run_tasks(whose, range(8))]
    assert os.getpid() not in found
    assert len(found) == 24
    assert len({*found}) <= 2
    assert gone()


@pytest.mark.slow
def test_two_processes_find_what_one_does(tmp_path: Path) -> None:
    paths = several(tmp_path / "logs", 6)
    paths += put(tmp_path / "logs", bad=b"rubbish", one=log("q.py"), two=log("q.py", "r.py", id="b", known=2))
    settings = ReportSettings(("lossless", "codetether"))
    expected = done(paths, settings)
    memory = ReportCache(tmp_path / "cache", settings)
    assert done(paths, settings, memory, jobs=2) == expected
    for path in paths[:6]:
        spoil(path)
    assert done(paths[:6], settings, memory) == {path: expected[path] for path in paths[:6]}  # both kept theirs


def our_workers() -> list[Any]:
    return [each for each in multiprocessing.active_children() if each.name.startswith("SpawnProcess")]


def gone(seconds: float = 5) -> bool:
    until = time.monotonic() + seconds
    while our_workers() and time.monotonic() < until:
        time.sleep(0.02)
    return not our_workers()


def work(paths: list[str]) -> tuple[Callable[[LogGroupTask], MeasuredLogGroup], list[LogGroupTask]]:
    return partial(measure_group, settings=ReportSettings()), [
        LogGroupTask.from_group(family) for family in related(paths)
    ]


@pytest.mark.slow
@posix
def test_who_stops_asking_stops_the_workers(tmp_path: Path) -> None:
    with LocalWorkers(2) as workers:
        assert next(workers.run_tasks(*work(several(tmp_path, 8))))
        assert len(our_workers()) == 2
    assert gone()


@pytest.mark.slow
@posix
def test_an_error_on_the_way_stops_the_workers(tmp_path: Path) -> None:
    def fail() -> None:
        with LocalWorkers(2) as workers:
            next(workers.run_tasks(*work(several(tmp_path, 8))))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert gone()


@pytest.mark.slow
@posix
def test_a_worker_that_is_killed_ends_the_run_with_a_clear_message(tmp_path: Path) -> None:
    paths = put(tmp_path, **{f"log{n}": log(*TWICE * 8, id=f"x{n}") for n in range(40)})
    with LocalWorkers(2) as workers:
        found = workers.run_tasks(*work(paths))
        assert next(found)
        for worker in our_workers():
            os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(IbidemError, match=r"a worker was stopped.*--jobs 1"):
            list(found)
    assert gone()


# ── a cluster ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_finds_what_this_machine_does(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    paths = several(tmp_path / "logs", 4)
    paths += put(tmp_path / "logs", bad=b"rubbish", one=log("q.py"), two=log("q.py", "r.py", id="b", known=2))
    paths.append(str(tmp_path / "gone.jsonl"))
    settings = ReportSettings(("lossless", "codetether"), prices=own_prices('{"claude-opus-4-6": {"input": 1}}', "p"))
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(**options, processes=True, silence_logs=50) as cluster:
        found = done(paths, settings, workers=DaskWorkers(cluster.scheduler_address))
    assert found == done(paths, settings)


def the_error(running: subprocess.Popen[bytes], seconds: float = 30) -> str:
    out, said = running.communicate(timeout=seconds)
    assert (running.returncode, out, said.count(b"\n")) == (2, b"", 1), said
    assert said.startswith(b"ibidem: ")
    return said.decode()


@pytest.mark.slow
@pytest.mark.parametrize("address", NOWHERE)
def test_no_scheduler_there_is_one_line(nobody_there: dict[str, subprocess.Popen[bytes]], address: str) -> None:
    pytest.importorskip("distributed")
    said = the_error(nobody_there[address])
    assert f"no Dask scheduler at {address}" in said
    assert "start one, or name another" in said


@pytest.mark.slow
def test_another_server_at_that_address_is_told_at_once() -> None:
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as one:
        answered = one.submit(_refuse, server)
        with pytest.raises(IbidemError, match=r"no Dask scheduler at .* \(something else answers there\): start one"):
            DaskWorkers(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        answered.result()


def _refuse(server: socket.socket) -> None:
    with server.accept()[0] as connection:
        connection.send(b"HTTP/1.1 400 Bad Request")


MISSING = {
    "a cluster": (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"], "distributed", "--engine dask"),
    "a URL": (["memory://somewhere/a.jsonl"], "fsspec", "URL"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MISSING)
def test_what_is_not_installed_is_named_with_the_way_to_get_it(tmp_path: Path, case: str) -> None:
    args, module, words = MISSING[case]
    paths = put(tmp_path, one=log(*TWICE))
    with command(tmp_path, *paths, *args, code=f"import sys; sys.modules[{module!r}] = None") as running:
        said = the_error(running)
    assert install_command("dask") in said
    assert words in said
