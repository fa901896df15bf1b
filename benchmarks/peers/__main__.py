"""`python -m benchmarks.peers FOLDER`: see docs/benchmarks.md, "Side by side with others"."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from . import table
from .environments import Environment, UnavailableError, Worker, WorkerError, made, without_network
from .peers import PEERS, Peer, Setting
from .pricing import Outcome, Provider, failed, priced
from .sessions import Json, Sampled, floor_seconds, handed_over, sampled

START_SECONDS = 300.0


@dataclasses.dataclass(frozen=True)
class Limits:
    seconds: float
    """For one session."""
    memory: float
    """Gigabytes."""


class Results:
    """What was measured, kept in a file if there is one: a run of hours goes on where it stopped."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Outcome] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                key, values = json.loads(line)
                self._known[key] = Outcome(**values)

    def get(self, key: str) -> Outcome | None:
        return self._known.get(key)

    def add(self, key: str, outcome: Outcome) -> None:
        self._known[key] = outcome
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps([key, dataclasses.asdict(outcome)]) + "\n")


class Bench:
    """Sessions, and what every peer makes of them."""

    def __init__(self, sessions: Sequence[Sampled], folder: Path, results: Results, limits: Limits) -> None:
        self.sessions, self.folder, self.results, self.limits = sessions, folder, results, limits
        self._floors: dict[str, float] = {}
        self._environments: dict[tuple[str, ...], Environment] = {}

    def row(self, peer: Peer, setting: Setting) -> table.Row:
        name = f"{peer.name} {setting.label}".strip()
        try:
            environment = self._environment(peer)
        except UnavailableError as error:
            return table.Row(name, problem=str(error))
        own = [one for one in self.sessions if one.recording.format in setting.shapes]
        key = f"{name} {environment.version} {json.dumps([setting.door, setting.options], sort_keys=True)}"
        try:
            outcomes = list(self._outcomes(key, setting, environment, own))
        except WorkerError as error:
            return table.Row(name, environment.version, environment.megabytes, problem=f"cannot be started: {error}")
        return table.Row(name, environment.version, environment.megabytes, tuple(outcomes), setting.lacks)

    def _environment(self, peer: Peer) -> Environment:
        if peer.requirements not in self._environments:
            name = Path(peer.requirements[0]).name.partition("[")[0]
            found = made(self.folder, name, peer.requirements, peer.environment)
            self._environments[peer.requirements] = found
        return self._environments[peer.requirements]

    def _outcomes(
        self, key: str, setting: Setting, environment: Environment, own: Sequence[Sampled]
    ) -> Iterator[Outcome]:
        settings = {"door": setting.door, "options": setting.options, "memory": self.limits.memory}
        worker: Worker | None = None
        with ExitStack() as stack:
            log = stack.enter_context((self.folder / f"{environment.python.parent.parent.name}.log").open("a"))
            for one in own:
                known = self.results.get(f"{key} | {one.name}")
                if known is None:
                    if worker is None:
                        home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
                        worker = Worker(environment, settings, home, log, START_SECONDS)
                        stack.callback(worker.close)
                    try:
                        session = handed_over(one, parts=setting.converted)
                        answer = worker.ask(session, self.limits.seconds, Provider(one).count)
                    except WorkerError as error:
                        answer = {"failed": str(error)}
                        worker.close()
                        worker = None
                    known = self._priced(one, answer)
                    self.results.add(f"{key} | {one.name}", known)
                    line = f"{setting.label or setting.door}: {one.name}: {known.hit / known.base:.3f} {known.failed}"
                    print(table.plain(line), file=sys.stderr)
                yield known

    def _priced(self, one: Sampled, answer: Json) -> Outcome:
        floor = self._floor(one)
        if "failed" in answer:
            return failed(one, answer["failed"], floor)
        try:
            return priced(one, answer, floor)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # no request in its format
            return failed(one, f"what was sent cannot be read: {error}", floor)

    def _floor(self, one: Sampled) -> float:
        if one.name not in self._floors:
            self._floors[one.name] = floor_seconds(one)
        return self._floors[one.name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="recorded sessions")
    parser.add_argument("--sessions", type=int, default=40, help="how many, chosen by their names' digests (40)")
    parser.add_argument("--max-mb", type=float, default=60, help="the largest: of all its requests together (60)")
    parser.add_argument("--environments", type=Path, help="where peers are installed, and stay (a temporary folder)")
    parser.add_argument("--results", type=Path, help="a file that keeps what was measured, to go on from if stopped")
    parser.add_argument("--peer", action="append", help="only this one, by the beginning of its row; may be repeated")
    parser.add_argument("--seconds", type=float, default=900, help="for one session with one peer (900)")
    parser.add_argument("--memory", type=float, default=8, help="gigabytes for one peer (8)")
    args = parser.parse_args()
    sessions, total = sampled(args.folder, args.sessions, args.max_mb)
    if not sessions:
        parser.error(f"{args.folder}: no recorded sessions of at most {args.max_mb:g} MB there")
    with ExitStack() as stack:
        folder = args.environments or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(sessions, folder.resolve(), Results(args.results), Limits(args.seconds, args.memory))
        rows = []
        for peer in PEERS:
            for setting in peer.settings:
                label = f"{peer.name} {setting.label}".strip()
                if not args.peer or label.startswith(tuple(args.peer)):
                    rows.append(bench.row(peer, setting))
    print("\n".join(table.lines(rows, sessions, total, offline=bool(without_network()))))


if __name__ == "__main__":
    main()
