"""The file of a trial: what was planned, asked and answered, so that one that was ended goes on where it was.

A row is a line of JSON, on the disk before anything comes of it. What is asked is written before it is sent: whenever
we are killed, nothing is asked twice, and what was under way counts as paid for in full. There are digests, classes and
counts in it; texts of answers only if that was asked for. Only its owner can read it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from ..billing.usage import Usage
from ..errors import IbidemError, one_line
from ..recordings.bodies import as_line
from ..recordings.log import decoded
from ..recordings.recording import Json
from .bodies import Arm, ThinkingRung
from .order import ALTERED, AS_SENT, CallKey
from .outcomes import DroppedAnswers, PointResult, ProbeAnswer, ProbeResult, Sample
from .points import DecisionPoint
from .providers import TRIAL_PROVIDERS, StopReason

MAX_SAMPLES = 16
"""Answers to each request, at the most."""
NOT_AS_WRITTEN = (LookupError, TypeError, ValueError, msgspec.ValidationError)
"""What a row raises that somebody changed."""
TRIAL_FIELD, TRIAL_VERSION = "ibidem_trial", 1
"""What the first row begins with."""
CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
APPEND_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetup:
    """What stays as it is from the beginning of a trial to its end."""

    model: str
    format: str
    profile: str
    seed: int
    samples: int
    budget: float
    started: float
    requests: int
    """That the recordings have, with and without something left out."""
    population: Mapping[str, int]
    """Points of the recordings, by stratum."""
    factor: float
    """Tokens of the provider for one of ours, as it was when it was planned."""
    paid: float
    saved: float
    """Dollars that the input of the recordings costs, and that the profile saves of them, by replay."""
    lets_thinking_go: bool
    """The profile may remove thinking."""
    asks_to_think: bool
    """The recorded requests do."""
    notes: tuple[str, ...]
    points: tuple[DecisionPoint, ...]
    elsewhere: bool = False
    """Requests were sent where `--upstream` said: whoever goes on must say so again."""
    probes: bool = False
    """Questions are asked behind them."""
    drawn_requests: int = 0
    drawn_rewritten: int = 0
    """Requests of the sessions that points are drawn from, and those among them in which something is left out."""
    exact: bool = False
    """All of these points are asked about, however few would do."""

    @property
    def margin(self) -> float | None:
        """Extra looks per 100 rewritten requests at which nothing of the saving is left; None where nothing is saved.
        Only rewritten requests are asked about, and the others add none: where few are rewritten, the saving bears more
        extra looks in each hundred of those."""
        if not (self.paid > 0 and self.saved > 0 and self.drawn_rewritten):
            return None
        return 100 * self.saved / self.paid * max(1.0, self.drawn_requests / self.drawn_rewritten)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRow:
    """What became of a call."""

    key: CallKey
    rung: ThinkingRung
    stop: StopReason
    paid: float
    usage: Usage | None = None
    sample: Sample | None = None
    """Of an answer that counts."""
    probe: ProbeAnswer | None = None
    """Of an answer to a probe that counts."""


@dataclass(slots=True)
class TrialLedger:
    """What is known of a trial. Every change is written to the file at once, if there is one."""

    setup: TrialSetup
    path: Path | None = None
    keeps_answers: bool = False
    rung: ThinkingRung = ThinkingRung.KEPT
    spent: float = 0.0
    planned: int | None = None
    """Points that are asked about, once that is known."""
    stopped: str = ""
    budget: float = 0.0
    asked: dict[str, float] = field(default_factory=dict)
    """Calls under way, and what each can cost at the most."""
    answers: dict[CallKey, AnsweredRow] = field(default_factory=dict)
    _handle: int | None = None
    _broken: str = ""
    """Why nothing more can be written."""

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Makes the file. Raises OSError where it cannot be made, or is there already."""
        assert self.path is not None
        self._handle = _claimed(os.open(self.path, CREATE_FLAGS, 0o600), self.path)
        self._write({TRIAL_FIELD: TRIAL_VERSION, **_setup_row(self.setup), "rung": int(self.rung)})

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def ask(self, key: CallKey, attempt: int, worst: float) -> None:
        """Before it is sent."""
        self.asked[str(key)] = self.asked.get(str(key), 0.0) + worst
        self._write({"ask": str(key), "try": attempt, "rung": int(self.rung), "worst": worst})

    def lost(self, key: CallKey, paid: float) -> None:
        """It was sent and will be sent again; so much was paid for it, perhaps."""
        self.asked.pop(str(key), None)
        self.spent += paid
        self._write({"again": str(key), "paid": paid})

    def answered(self, row: AnsweredRow, text: str = "") -> None:
        self.asked.pop(str(row.key), None)
        self._take(row)
        kept = {"answer": text} if self.keeps_answers and text else {}
        usage = None if row.usage is None else asdict(row.usage)
        sample = None if row.sample is None else asdict(row.sample)
        told = {"got": str(row.key), "rung": int(row.rung), "stop": row.stop, "paid": row.paid}
        probe = {"probe": asdict(row.probe)} if row.probe else {}
        self._write({**told, "usage": usage, "sample": sample, **probe, **kept})

    def note(self, **row: Any) -> None:
        """The rung, the number of points, why it stopped, or a new budget."""
        self._noted(row)
        self._write(row)

    def _noted(self, row: Mapping[str, Any]) -> None:
        if "rung" in row:
            self.rung = ThinkingRung(row["rung"])
        self.planned = row.get("planned", self.planned)
        self.stopped = row.get("stopped", self.stopped)
        self.budget = row.get("budget", self.budget)

    def _take(self, row: AnsweredRow) -> None:
        self.answers[row.key] = row
        self.spent += row.paid

    def _write(self, row: Json) -> None:
        if self._broken:
            raise IbidemError(self._broken)
        if self._handle is not None:
            view = memoryview(as_line(row))
            try:
                while view:
                    view = view[os.write(self._handle, view) :]
                os.fsync(self._handle)
            except OSError as error:  # behind half a row nothing may follow, and what is not written is not sent
                why = one_line(error.strerror or str(error))
                self._broken = f"{one_line(str(self.path))}: {why}: make room, then go on with --resume"
                raise IbidemError(self._broken) from None

    # ── what came of it ─────────────────────────────────────────────────────────────────────────────────────────────

    def samples(self, point: str, arm: Arm) -> tuple[Sample, ...]:
        """Answers that count: all were given on one rung."""
        rows = (self.answers.get(CallKey(point, arm, number)) for number in range(self.setup.samples))
        return tuple(row.sample for row in rows if row and row.sample and row.rung == self.rung)

    def results(self, arms: Iterable[Arm] = Arm) -> list[PointResult]:
        """Points with an answer in each of these arms. Those of a stratum stand for all that the recordings have."""
        wanted = set(arms)
        found = []
        for point in self.setup.points:
            given = {arm: self.samples(point.id, arm) for arm in Arm}
            if all(given[arm] for arm in wanted):
                found.append((point, given))
        counts = Counter(point.stratum for point, _ in found)
        weights = {each: self.setup.population.get(each, 0) / number for each, number in counts.items()}
        return [
            PointResult(point.id, point.session, point.stratum, weights[point.stratum], point.recorded, *given.values())
            for point, given in found
        ]

    def settled(self) -> list[PointResult]:
        """Points of which every answer is there, or dropped. The first answers to come in are short ones, and reading
        again is short: a point that is still being asked looks worse than it is."""
        numbers = range(self.setup.samples)
        keys = {
            point.id: [CallKey(point.id, arm, number) for arm in Arm for number in numbers]
            for point in self.setup.points
        }
        return [each for each in self.results() if not keys_left(self, keys[each.point])]

    def dropped(self) -> dict[str, DroppedAnswers]:
        """Answers that do not count, by why."""
        found: dict[str, Counter[Arm]] = {}
        points: dict[str, dict[str, set[Arm]]] = {}
        for key, row in self.answers.items():
            why = "asked otherwise" if row.sample and row.rung != self.rung else row.stop
            if why != "ok" and not key.probe:
                found.setdefault(why, Counter())[key.arm] += 1
                points.setdefault(why, {}).setdefault(key.point, set()).add(key.arm)
        return {
            why: DroppedAnswers(
                counts[Arm.ORIGINAL],
                counts[Arm.REWRITTEN],
                sum(arms == {Arm.ORIGINAL} for arms in points[why].values()),
                sum(arms == {Arm.REWRITTEN} for arms in points[why].values()),
            )
            for why, counts in found.items()
        }

    def probed(self) -> list[ProbeResult]:
        """Questions that were answered in both arms."""
        found = []
        for key in self.answers:
            if key.probe == AS_SENT and key.arm is Arm.ORIGINAL:
                other = key._replace(arm=Arm.REWRITTEN)
                was, now = self._probe(key), self._probe(other)
                if was and now:
                    found.append(ProbeResult(key.point, was, now, self._probe(other._replace(probe=ALTERED))))
        return found

    def probes_dropped(self) -> int:
        return sum(bool(key.probe) and row.stop != "ok" for key, row in self.answers.items())

    def _probe(self, key: CallKey) -> ProbeAnswer | None:
        row = self.answers.get(key)
        return row.probe if row and row.rung == self.rung else None

    @property
    def tells_of_thinking(self) -> bool:
        """Whether thinking that the profile lets go is tested as well. Where not, nothing is said about it."""
        return self.rung is ThinkingRung.KEPT or not self.setup.lets_thinking_go

    @property
    def thinks(self) -> bool | None:
        """Whether the model thought before it answered, as far as it was asked to or counted; None where that was left
        to the model and nothing tells."""
        if self.usage.reasoning > 0:
            return True
        if self.rung is ThinkingRung.OFF:
            return False
        return True if self.setup.asks_to_think else None

    @property
    def usage(self) -> Usage:
        """All that was counted."""
        counted = [row.usage for row in self.answers.values() if row.usage]
        return Usage(*(sum(getattr(each, name.name) for each in counted) for name in fields(Usage)))


def _setup_row(setup: TrialSetup) -> Json:
    row = {**asdict(setup), "notes": list(setup.notes)}
    if not setup.probes:
        del row["probes"]
    return row


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def resumed(path: Path) -> TrialLedger:
    """A trial that was begun. What was under way when it ended is paid for and not asked again. Raises IbidemError for
    a file that is none, OSError for one that cannot be read or written."""
    handle = _claimed(os.open(path, APPEND_FLAGS), path)
    try:
        return _read(path, handle)
    except BaseException:
        os.close(handle)
        raise


def _claimed(handle: int, path: Path) -> int:
    """Nobody else goes on with it meanwhile, where that can be seen to."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            told = "another process is at work on this trial"
            raise IbidemError(f"{one_line(str(path))}: {told}: wait for it, or end it") from None
    return handle


def _read(path: Path, handle: int) -> TrialLedger:
    where = one_line(str(path))
    data = path.read_bytes()
    whole, _, rest = data.rpartition(b"\n")
    rows = [(number, _row(line, where, number)) for number, line in enumerate(whole.split(b"\n"), 1) if line.strip()]
    if not rows or rows[0][1].get(TRIAL_FIELD) != TRIAL_VERSION:
        raise IbidemError(f"{where}: this is no file of a trial: name one that `ibidem trial` wrote")
    try:
        ledger = TrialLedger(_setup(rows[0][1]), path)
        ledger.budget = ledger.setup.budget
        ledger.rung = ThinkingRung(rows[0][1]["rung"])
    except NOT_AS_WRITTEN:
        raise IbidemError(
            f"{where} line 1: not as `ibidem trial` writes it: it was changed, or is of another version"
        ) from None
    for number, row in rows[1:]:
        try:
            _replay(ledger, row)
        except NOT_AS_WRITTEN:
            raise IbidemError(f"{where} line {number}: not as `ibidem trial` writes it: delete this line") from None
    ledger._handle = handle
    if rest:  # it was cut while being written
        os.ftruncate(ledger._handle, len(whole) + 1)
    for key, worst in list(ledger.asked.items()):
        ledger.answered(AnsweredRow(key=_key(key), rung=ledger.rung, stop="failed", paid=worst))
    return ledger


def _row(line: bytes, where: str, number: int) -> Json:
    found = decoded(line)
    if not isinstance(found, dict):
        raise IbidemError(f"{where} line {number}: this is no file of a trial: name one that `ibidem trial` wrote")
    return found


def _setup(row: Json) -> TrialSetup:
    found = msgspec.convert(row, TrialSetup)
    counted = all(found.population.get(point.stratum, 0) > 0 for point in found.points)
    if found.format not in TRIAL_PROVIDERS or not 0 < found.samples <= MAX_SAMPLES or found.budget < 0 or not counted:
        raise ValueError
    return found


def _replay(ledger: TrialLedger, row: Json) -> None:
    if "ask" in row:
        key = str(_key(row["ask"]))
        ledger.asked[key] = ledger.asked.get(key, 0.0) + _money(row["worst"])
    elif "again" in row:
        ledger.asked.pop(row["again"], None)
        ledger.spent += _money(row["paid"])
    elif "got" in row:
        ledger.asked.pop(row["got"], None)
        names = ("rung", "stop", "usage", "sample", *(["probe"] if "probe" in row else []))
        told = {name: row[name] for name in names} | {"paid": _money(row["paid"])}
        ledger._take(replace(msgspec.convert({**told, "key": ("", "A", 0)}, AnsweredRow), key=_key(row["got"])))
    else:
        msgspec.convert(row, _NotedRow)
        ledger._noted(row)


class _NotedRow(msgspec.Struct, forbid_unknown_fields=True):
    """What `TrialLedger.note` is told, one at a time."""

    rung: ThinkingRung = ThinkingRung.KEPT
    planned: int = 0
    stopped: str = ""
    budget: float = 0.0


def _money(found: Any) -> float:
    """Less than nothing, or what is no number, would leave more of a budget than there is."""
    if not isinstance(found, int | float) or not 0 <= found < inf:
        raise ValueError
    return found


def _key(text: str) -> CallKey:
    point, arm, sample, *probe = text.split("/")
    if probe not in ([], [AS_SENT], [ALTERED]):
        raise ValueError
    return CallKey(point, Arm(arm), int(sample), *probe)


def keys_left(ledger: TrialLedger, keys: Sequence[CallKey]) -> list[CallKey]:
    """Those that were not asked yet, on the rung that the trial is on now."""
    return [key for key in keys if (row := ledger.answers.get(key)) is None or row.rung != ledger.rung]
