"""What a turn of a conversation costs that is known already: `python -m benchmarks.warm`.

A made-up agent works on a project, message by message, to 4,000 messages. Each of its requests goes through a `Session`
as the proxy has it do: what others noted is read, the request is rewritten, what was noted is written, and once more
when it is answered. `recoverable` is compared with `lossless`, by how its notes are kept. Times are of this process
alone (a Redis server's own are not in it), the smallest of several runs that take turns.
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

import ibidem
from ibidem.engine.journal_store import JournalStore
from ibidem.store import MemoryStore, RedisStore, SqliteStore, Store

from .work import Project, Step, steps

LENGTHS = (500, 1000, 2000, 4000)
TURN_AIM, TOTAL_AIM = 1.5, 2.0
NEAR = 12
"""Requests around a length, of which the cheapest stands for a turn there."""
PROMPT_EVERY = 25
"""Exchanges between two messages of the user."""
BASE = "lossless"

HEAD = b'{"model":"claude-sonnet-4-5","max_tokens":4096,"system":"You are an agent.","messages":['
Open = Callable[[], Store | None]


class Talk:
    """A conversation, of which every beginning is a request."""

    def __init__(self, turns: int, lines: int, seed: int = 0) -> None:
        """`lines` are shown of a result, at most; another seed is another conversation."""
        messages = [{"role": "user", "content": "Make the tests pass."}]
        work = steps(Project("shop", 5 + seed), random.Random(3 + seed))
        for number, step in zip(range(turns), work, strict=False):
            messages += _exchange(number, step, lines)
        parts = [orjson.dumps(message) for message in messages]
        self._joined, self._ends, end = b",".join(parts), list[int](), -1
        for part in parts:
            end += len(part) + 1
            self._ends.append(end)
        self.lengths = range(1, len(parts) + 1, 2)

    def request(self, length: int) -> bytes:
        return HEAD + self._joined[: self._ends[length - 1]] + b"]}"


def _exchange(number: int, step: Step, lines: int) -> list[Any]:
    by_kind: dict[str, dict[str, Any]] = {
        "read": {"file_path": step.file, "offset": step.first, "limit": step.lines},
        "search": {"path": step.file, "pattern": step.old},
        "edit": {"file_path": step.file, "old_string": step.old, "new_string": step.new},
        "run": {"command": f"pytest {step.file} -q"},
    }
    tool = {"read": "Read", "search": "Grep", "edit": "Edit", "run": "Bash"}[step.kind]
    call = f"toolu_{number:024d}"
    thought = f"The {step.kind} of {step.file} may tell what part {number} still lacks. "
    said: list[Any] = [
        {"type": "thinking", "thinking": 3 * thought, "signature": "c2lnbmF0dXJl"},
        {"type": "text", "text": f"Next: {step.kind} {number}."},
        {"type": "tool_use", "id": call, "name": tool, "input": by_kind[step.kind]},
    ]
    output = "\n".join(step.output.split("\n")[:lines])
    came: list[Any] = [{"type": "tool_result", "tool_use_id": call, "content": output}]
    if number % PROMPT_EVERY == PROMPT_EVERY - 1:
        came.append({"type": "text", "text": f"Go on with part {number}."})
    return [{"role": "assistant", "content": said}, {"role": "user", "content": came}]


class Run(NamedTuple):
    """Seconds of this process."""

    turns: dict[int, float]
    """Of a turn that changes nothing of what had been sent, near a length."""
    points: dict[int, float]
    """And of one that does."""
    total: float
    half: float
    """Of the first half of all turns."""
    changes: int


def run(talk: Talk, profile: str, store: Store | None) -> Run:
    """All turns of a conversation. Without a store, notes are kept by the session alone."""
    session = ibidem.Session(profile, store=store or MemoryStore())
    notebook = JournalStore(session, store, "a conversation") if store is not None else None
    turns, points = dict[int, float](), dict[int, float]()
    total = half = now = 0.0
    changes, last = 0, talk.lengths[-1]
    for length in talk.lengths:
        body = talk.request(length)
        now += 10.0
        start = time.process_time()
        if notebook is not None:
            notebook.read()
        found = session.compact(body, at=now)
        if notebook is not None:
            notebook.write()
        size = len(found.request) // 4
        session.answered(at=now + 5.0, context=size, cached=max(0, size - 500))
        if notebook is not None:
            notebook.write()
        took = time.process_time() - start
        total += took
        half += took if 2 * length < last else 0.0
        changed = len(found.plan.points) > changes
        changes = len(found.plan.points)
        near = next((each for each in LENGTHS if each - 2 * NEAR < length <= each + 1), None)
        if near is not None:
            kind = points if changed else turns
            kind[near] = min(took, kind.get(near, took))
    return Run(turns, points, total, half, changes)


def cold(talk: Talk, length: int) -> float:
    """Seconds of a `compact` that knows nothing."""
    body = talk.request(length)
    gc.collect()
    start = time.process_time()
    ibidem.compact(body, profile="recoverable", store=MemoryStore())
    return time.process_time() - start


def measured(talk: Talk, ways: dict[str, tuple[str, Open]], rounds: int) -> dict[str, list[Run]]:
    """Several runs of each, in turns."""
    found: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (profile, opened) in ways.items():
            gc.collect()
            store = opened()
            found[name].append(run(talk, profile, store))
            if store is not None:
                store.close()
    return found


@contextmanager
def redis_server() -> Iterator[str | None]:
    """The address of one of our own on loopback; None where none is installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield f"redis://127.0.0.1:{port}/0" if _answers(port) else None
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


def _ways(folder: Path, redis: str | None) -> dict[str, tuple[str, Open]]:
    made = iter(range(1_000_000))
    ways: dict[str, tuple[str, Open]] = {
        BASE: ("lossless", lambda: None),
        "recoverable, no notes kept": ("recoverable", lambda: None),
        "recoverable, MemoryStore": ("recoverable", MemoryStore),
        "recoverable, SqliteStore": ("recoverable", lambda: SqliteStore(folder / f"{next(made)}.sqlite3")),
    }
    if redis is not None:
        ways["recoverable, RedisStore"] = ("recoverable", lambda: RedisStore(redis, prefix=f"{next(made)}:"))
    return ways


def _print(talk: Talk, found: dict[str, list[Run]], rounds: int) -> None:
    lengths = [length for length in LENGTHS if length < talk.lengths[-1] + 2]
    base = {length: min(each.turns[length] for each in found[BASE]) for length in lengths}
    total = min(each.total for each in found[BASE])
    print(f"{'a turn at so many messages, x lossless':40}{''.join(f'{length:>8}' for length in lengths)}     aim")
    for name, runs in found.items():
        turns = (min(each.turns[length] for each in runs) / base[length] for length in lengths)
        print(f"  {name:38}{''.join(f'{each:8.2f}' for each in turns)}{TURN_AIM:8.1f}")
    last = talk.lengths[-1]
    sizes = {length: len(talk.request(length)) for length in talk.lengths}
    grown = sum(sizes.values()) / sum(size for length, size in sizes.items() if 2 * length < last)
    print(f"{'all turns':40}{'x lossless':>12}{'aim':>6}{'2n / n':>9}{'of the bytes':>14}{'changes':>9}")
    for name, runs in found.items():
        best = min(runs, key=lambda each: each.total)
        row = f"{best.total / total:12.2f}{TOTAL_AIM:6.1f}{best.total / best.half:9.2f}{grown:14.2f}{best.changes:9}"
        print(f"  {name:38}{row}", flush=True)
    print(f"{'a change of what had been sent, x a turn':40}{'here':>12}{'a cold compact':>16}")
    for length in lengths:
        runs = found["recoverable, MemoryStore"]
        points = [each.points[length] for each in runs if length in each.points]
        afresh = min(cold(talk, length) for _ in range(rounds))
        here = f"{min(points) / base[length]:12.2f}" if points else f"{'none':>12}"
        print(f"  {f'at {length} messages':38}{here}{afresh / base[length]:16.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--lines", type=int, nargs="+", default=[250, 30], help="of a result that are shown, at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="ways whose name has this in it, and lossless")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = _ways(folder, stack.enter_context(redis_server()))
        if args.only:
            ways = {name: way for name, way in ways.items() if name == BASE or any(each in name for each in args.only)}
        for lines in args.lines:
            talk = Talk(args.turns, lines)
            size = len(talk.request(talk.lengths[-1])) / 1e6
            print(f"{args.turns} turns to {talk.lengths[-1]} messages, {size:.1f} MB; smallest of {args.rounds}")
            _print(talk, measured(talk, ways, args.rounds), args.rounds)


if __name__ == "__main__":
    main()
