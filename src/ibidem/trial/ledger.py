"""Run log of a trial: a file with its plan, calls and samples, so that an interrupted trial can be resumed.

Each row is a line of JSON and is synced to disk before the next step. A call is logged before it is sent. So after a
crash no sample is requested twice, and calls in flight count with their maximum cost. The file has digests, classes and
counts, and texts of samples only on request. Only its owner can read it.
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
"""Maximum number of samples per request."""
NOT_AS_WRITTEN = (LookupError, TypeError, ValueError, msgspec.ValidationError)
"""Errors from a row that was changed by hand or written by another version."""
TRIAL_FIELD, TRIAL_VERSION = "ibidem_trial", 1
"""First field of the first row, and its value."""
CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
APPEND_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetup:
    """Settings and plan of a trial. They do not change while it runs or when it is resumed."""

    model: str
    format: str
    profile: str
    seed: int
    samples: int
    budget: float
    started: float
    requests: int
    """Number of requests in the recordings, rewritten or not."""
    population: Mapping[str, int]
    """Number of decision points in the recordings, by stratum."""
    factor: float
    """Provider tokens per estimated token, at the time of planning."""
    paid: float
    saved: float
    """Cost of the recordings, and what the profile saves of it, in dollars. Both are from a replay."""
    lets_thinking_go: bool
    """The profile may remove thinking."""
    asks_to_think: bool
    """The recorded requests have thinking enabled."""
    notes: tuple[str, ...]
    points: tuple[DecisionPoint, ...]
    elsewhere: bool = False
    """Requests are sent to the address of `--upstream`. A resumed trial must name it again."""
    probes: bool = False
    """Probes are part of the trial."""
    drawn_requests: int = 0
    drawn_rewritten: int = 0
    """Requests of the sessions that points are drawn from, and the rewritten ones among them."""
    exact: bool = False
    """Use all of these points, even if fewer would be enough."""

    @property
    def margin(self) -> float | None:
        """Extra re-reads per 100 rewritten requests that use up the savings, or None without savings.

        Only rewritten requests can add re-reads. If few requests are rewritten, these may have more re-reads each.
        """
        if not (self.paid > 0 and self.saved > 0 and self.drawn_rewritten):
            return None
        return 100 * self.saved / self.paid * max(1.0, self.drawn_requests / self.drawn_rewritten)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRow:
    """Result of one call."""

    key: CallKey
    rung: ThinkingRung
    stop: StopReason
    paid: float
    usage: Usage | None = None
    sample: Sample | None = None
    """Classified response, unless it was dropped."""
    probe: ProbeAnswer | None = None
    """Graded response to a probe, unless it was dropped."""


@dataclass(slots=True)
class TrialLedger:
    """State of a trial. Each change is written to the file at once, if there is a file."""

    setup: TrialSetup
    path: Path | None = None
    keeps_answers: bool = False
    rung: ThinkingRung = ThinkingRung.KEPT
    spent: float = 0.0
    planned: int | None = None
    """Number of points to use; None until the pilot has determined it."""
    stopped: str = ""
    budget: float = 0.0
    asked: dict[str, float] = field(default_factory=dict)
    """Maximum cost of each call in flight."""
    answers: dict[CallKey, AnsweredRow] = field(default_factory=dict)
    _handle: int | None = None
    _broken: str = ""
    """Error of a failed write. After it, no further rows can be written."""

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Create the file and write the first row. Raises OSError if the file exists or cannot be created."""
        assert self.path is not None
        self._handle = _claimed(os.open(self.path, CREATE_FLAGS, 0o600), self.path)
        self._write({TRIAL_FIELD: TRIAL_VERSION, **_setup_row(self.setup), "rung": int(self.rung)})

    def close(self) -> None:
        """Close the file, which also releases its lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def ask(self, key: CallKey, attempt: int, worst: float) -> None:
        """Log a call before it is sent, with its maximum cost."""
        self.asked[str(key)] = self.asked.get(str(key), 0.0) + worst
        self._write({"ask": str(key), "try": attempt, "rung": int(self.rung), "worst": worst})

    def lost(self, key: CallKey, paid: float) -> None:
        """Log that a call failed and will be sent again. `cost` is its assumed cost."""
        self.asked.pop(str(key), None)
        self.spent += paid
        self._write({"again": str(key), "paid": paid})

    def answered(self, row: AnsweredRow, text: str = "") -> None:
        """Log the result of a call. `text` is stored only if `stores_texts` is set."""
        self.asked.pop(str(row.key), None)
        self._take(row)
        kept = {"answer": text} if self.keeps_answers and text else {}
        usage = None if row.usage is None else asdict(row.usage)
        sample = None if row.sample is None else asdict(row.sample)
        told = {"got": str(row.key), "rung": int(row.rung), "stop": row.stop, "paid": row.paid}
        probe = {"probe": asdict(row.probe)} if row.probe else {}
        self._write({**told, "usage": usage, "sample": sample, **probe, **kept})

    def note(self, **row: Any) -> None:
        """Change the thinking level, the number of points, the stop reason or the budget, and log it."""
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
            except OSError as error:  # a row after half a row would be unreadable, and unlogged calls must not be sent
                why = one_line(error.strerror or str(error))
                self._broken = f"{one_line(str(self.path))}: {why}: free disk space, then continue with --resume"
                raise IbidemError(self._broken) from None

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def samples(self, point: str, arm: Arm) -> tuple[Sample, ...]:
        """Return the valid samples of a point in one variant: those with the current thinking level."""
        rows = (self.answers.get(CallKey(point, arm, number)) for number in range(self.setup.samples))
        return tuple(row.sample for row in rows if row and row.sample and row.rung == self.rung)

    def results(self, arms: Iterable[Arm] = Arm) -> list[PointResult]:
        """Return the points with samples in every given variant.

        The weight of a point is the number of recorded points of its stratum that it represents.
        """
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
        """Return the points without open calls.

        Short responses arrive first, and re-reads are short. An incomplete point would show too many re-reads.
        """
        numbers = range(self.setup.samples)
        keys = {
            point.id: [CallKey(point.id, arm, number) for arm in Arm for number in numbers]
            for point in self.setup.points
        }
        return [each for each in self.results() if not keys_left(self, keys[each.point])]

    def dropped(self) -> dict[str, DroppedAnswers]:
        """Count dropped responses by reason."""
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
        """Return the probes with a valid response in both variants."""
        found = []
        for key in self.answers:
            if key.probe == AS_SENT and key.arm is Arm.ORIGINAL:
                other = key._replace(arm=Arm.REWRITTEN)
                was, now = self._probe(key), self._probe(other)
                if was and now:
                    found.append(ProbeResult(key.point, was, now, self._probe(other._replace(probe=ALTERED))))
        return found

    def probes_dropped(self) -> int:
        """Return the number of probe responses that were refused, truncated or failed."""
        return sum(bool(key.probe) and row.stop != "ok" for key, row in self.answers.items())

    def _probe(self, key: CallKey) -> ProbeAnswer | None:
        row = self.answers.get(key)
        return row.probe if row and row.rung == self.rung else None

    @property
    def tells_of_thinking(self) -> bool:
        """Whether the removal of thinking by the profile is part of the test."""
        return self.rung is ThinkingRung.KEPT or not self.setup.lets_thinking_go

    @property
    def thinks(self) -> bool | None:
        """Whether the model used thinking, by its usage or the request; None if the model decided and did not report
        it."""
        if self.usage.reasoning > 0:
            return True
        if self.rung is ThinkingRung.OFF:
            return False
        return True if self.setup.asks_to_think else None

    @property
    def usage(self) -> Usage:
        """Sum of the usage of all responses."""
        counted = [row.usage for row in self.answers.values() if row.usage]
        return Usage(*(sum(getattr(each, name.name) for each in counted) for name in fields(Usage)))


def _setup_row(setup: TrialSetup) -> Json:
    row = {**asdict(setup), "notes": list(setup.notes)}
    if not setup.probes:
        del row["probes"]
    return row


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def resumed(path: Path) -> TrialLedger:
    """Load the run log of an interrupted trial. Calls in flight count as failed, with their maximum cost.

    Raises IbidemError if the file is not a run log, and OSError if it cannot be read or written.
    """
    handle = _claimed(os.open(path, APPEND_FLAGS), path)
    try:
        return _read(path, handle)
    except BaseException:
        os.close(handle)
        raise


def _claimed(handle: int, path: Path) -> int:
    """Lock the file against other processes, except on Windows. Return its handle."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            told = "another process is running this trial"
            raise IbidemError(f"{one_line(str(path))}: {told}: wait until it ends, or stop it") from None
    return handle


def _read(path: Path, handle: int) -> TrialLedger:
    where = one_line(str(path))
    data = path.read_bytes()
    whole, _, rest = data.rpartition(b"\n")
    rows = [(number, _row(line, where, number)) for number, line in enumerate(whole.split(b"\n"), 1) if line.strip()]
    if not rows or rows[0][1].get(TRIAL_FIELD) != TRIAL_VERSION:
        raise IbidemError(f"{where}: not the file of a trial: pass one that `ibidem trial` wrote")
    try:
        ledger = TrialLedger(_setup(rows[0][1]), path)
        ledger.budget = ledger.setup.budget
        ledger.rung = ThinkingRung(rows[0][1]["rung"])
    except NOT_AS_WRITTEN:
        raise IbidemError(
            f"{where} line 1: not valid: it was changed, or another version of `ibidem trial` wrote it"
        ) from None
    for number, row in rows[1:]:
        try:
            _replay(ledger, row)
        except NOT_AS_WRITTEN:
            raise IbidemError(f"{where} line {number}: not valid, it was changed: delete this line") from None
    ledger._handle = handle
    if rest:  # the process was killed in the middle of a row
        os.ftruncate(ledger._handle, len(whole) + 1)
    for key, worst in list(ledger.asked.items()):
        ledger.answered(AnsweredRow(key=_key(key), rung=ledger.rung, stop="failed", paid=worst))
    return ledger


def _row(line: bytes, where: str, number: int) -> Json:
    found = decoded(line)
    if not isinstance(found, dict):
        raise IbidemError(f"{where} line {number}: not the file of a trial: pass one that `ibidem trial` wrote")
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
    """Row that `RunLog.log_change` writes, with one of these fields."""

    rung: ThinkingRung = ThinkingRung.KEPT
    planned: int = 0
    stopped: str = ""
    budget: float = 0.0


def _money(found: Any) -> float:
    """Return an amount of dollars. Raises ValueError for negative or invalid ones, which would raise the budget."""
    if not isinstance(found, int | float) or not 0 <= found < inf:
        raise ValueError
    return found


def _key(text: str) -> CallKey:
    point, arm, sample, *probe = text.split("/")
    if probe not in ([], [AS_SENT], [ALTERED]):
        raise ValueError
    return CallKey(point, Arm(arm), int(sample), *probe)


def keys_left(ledger: TrialLedger, keys: Sequence[CallKey]) -> list[CallKey]:
    """Return the keys without a response at the current thinking level."""
    return [key for key in keys if (row := ledger.answers.get(key)) is None or row.rung != ledger.rung]
