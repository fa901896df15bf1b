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
from ..recordings.body_store import encode_line
from ..recordings.log_file import decode_row
from ..recordings.recording import Json
from .decision_points import DecisionPoint
from .outcomes import DroppedSamples, PointResult, ProbeAnswer, ProbeResult, Sample
from .providers import TRIAL_PROVIDERS, StopReason
from .request_builder import ThinkingLevel, Variant
from .schedule import ALTERED, AS_SENT, CallKey

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
    def saving_margin(self) -> float | None:
        """Extra re-reads per 100 rewritten requests that use up the savings, or None without savings.

        Only rewritten requests can add re-reads. If few requests are rewritten, these may have more re-reads each.
        """
        if not (self.paid > 0 and self.saved > 0 and self.drawn_rewritten):
            return None
        return 100 * self.saved / self.paid * max(1.0, self.drawn_requests / self.drawn_rewritten)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRow:
    """Result of one call."""

    key: CallKey
    rung: ThinkingLevel
    stop: StopReason
    paid: float
    usage: Usage | None = None
    sample: Sample | None = None
    """Classified response, unless it was dropped."""
    probe: ProbeAnswer | None = None
    """Graded response to a probe, unless it was dropped."""


@dataclass(slots=True)
class RunLog:
    """State of a trial. Each change is written to the file at once, if there is a file."""

    setup: TrialSetup
    path: Path | None = None
    stores_texts: bool = False
    thinking_level: ThinkingLevel = ThinkingLevel.KEPT
    spent: float = 0.0
    planned_points: int | None = None
    """Number of points to use; None until the pilot has determined it."""
    stop_reason: str = ""
    budget: float = 0.0
    pending_costs: dict[str, float] = field(default_factory=dict)
    """Maximum cost of each call in flight."""
    responses: dict[CallKey, ResponseRow] = field(default_factory=dict)
    _handle: int | None = None
    _broken: str = ""
    """Error of a failed write. After it, no further rows can be written."""

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_file(self) -> None:
        """Create the file and write the first row. Raises OSError if the file exists or cannot be created."""
        assert self.path is not None
        self._handle = _lock_file(os.open(self.path, CREATE_FLAGS, 0o600), self.path)
        self._write_row({TRIAL_FIELD: TRIAL_VERSION, **_setup_row(self.setup), "rung": int(self.thinking_level)})

    def close(self) -> None:
        """Close the file, which also releases its lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def log_call(self, key: CallKey, attempt: int, worst: float) -> None:
        """Log a call before it is sent, with its maximum cost."""
        self.pending_costs[str(key)] = self.pending_costs.get(str(key), 0.0) + worst
        self._write_row({"ask": str(key), "try": attempt, "rung": int(self.thinking_level), "worst": worst})

    def log_retry(self, key: CallKey, cost: float) -> None:
        """Log that a call failed and will be sent again. `cost` is its assumed cost."""
        self.pending_costs.pop(str(key), None)
        self.spent += cost
        self._write_row({"again": str(key), "paid": cost})

    def log_response(self, row: ResponseRow, text: str = "") -> None:
        """Log the result of a call. `text` is stored only if `stores_texts` is set."""
        self.pending_costs.pop(str(row.key), None)
        self._add_response(row)
        text_field = {"answer": text} if self.stores_texts and text else {}
        usage = None if row.usage is None else asdict(row.usage)
        sample = None if row.sample is None else asdict(row.sample)
        row_fields = {"got": str(row.key), "rung": int(row.rung), "stop": row.stop, "paid": row.paid}
        probe = {"probe": asdict(row.probe)} if row.probe else {}
        self._write_row({**row_fields, "usage": usage, "sample": sample, **probe, **text_field})

    def log_change(self, **row: Any) -> None:
        """Change the thinking level, the number of points, the stop reason or the budget, and log it."""
        self._apply_change(row)
        self._write_row(row)

    def _apply_change(self, row: Mapping[str, Any]) -> None:
        if "rung" in row:
            self.thinking_level = ThinkingLevel(row["rung"])
        self.planned_points = row.get("planned", self.planned_points)
        self.stop_reason = row.get("stopped", self.stop_reason)
        self.budget = row.get("budget", self.budget)

    def _add_response(self, row: ResponseRow) -> None:
        self.responses[row.key] = row
        self.spent += row.paid

    def _write_row(self, row: Json) -> None:
        if self._broken:
            raise IbidemError(self._broken)
        if self._handle is not None:
            view = memoryview(encode_line(row))
            try:
                while view:
                    view = view[os.write(self._handle, view) :]
                os.fsync(self._handle)
            except OSError as error:  # a row after half a row would be unreadable, and unlogged calls must not be sent
                why = one_line(error.strerror or str(error))
                self._broken = f"{one_line(str(self.path))}: {why}: free disk space, then continue with --resume"
                raise IbidemError(self._broken) from None

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def point_samples(self, point: str, variant: Variant) -> tuple[Sample, ...]:
        """Return the valid samples of a point in one variant: those with the current thinking level."""
        rows = (self.responses.get(CallKey(point, variant, number)) for number in range(self.setup.samples))
        return tuple(row.sample for row in rows if row and row.sample and row.rung == self.thinking_level)

    def point_results(self, variants: Iterable[Variant] = Variant) -> list[PointResult]:
        """Return the points with samples in every given variant.

        The weight of a point is the number of recorded points of its stratum that it represents.
        """
        required_variants = set(variants)
        sampled_points = []
        for point in self.setup.points:
            samples = {arm: self.point_samples(point.id, arm) for arm in Variant}
            if all(samples[arm] for arm in required_variants):
                sampled_points.append((point, samples))
        counts = Counter(point.stratum for point, _ in sampled_points)
        weights = {stratum: self.setup.population.get(stratum, 0) / number for stratum, number in counts.items()}
        return [
            PointResult(point.id, point.session, point.stratum, weights[point.stratum], point.recorded, *given.values())
            for point, given in sampled_points
        ]

    def complete_results(self) -> list[PointResult]:
        """Return the points without open calls.

        Short responses arrive first, and re-reads are short. An incomplete point would show too many re-reads.
        """
        numbers = range(self.setup.samples)
        keys = {
            point.id: [CallKey(point.id, variant, number) for variant in Variant for number in numbers]
            for point in self.setup.points
        }
        return [result for result in self.point_results() if not remaining_keys(self, keys[result.point])]

    def dropped_samples(self) -> dict[str, DroppedSamples]:
        """Count dropped responses by reason."""
        counts_by_reason: dict[str, Counter[Variant]] = {}
        points: dict[str, dict[str, set[Variant]]] = {}
        for key, row in self.responses.items():
            why = "asked otherwise" if row.sample and row.rung != self.thinking_level else row.stop
            if why != "ok" and not key.probe:
                counts_by_reason.setdefault(why, Counter())[key.variant] += 1
                points.setdefault(why, {}).setdefault(key.point, set()).add(key.variant)
        return {
            why: DroppedSamples(
                counts[Variant.ORIGINAL],
                counts[Variant.REWRITTEN],
                sum(variants == {Variant.ORIGINAL} for variants in points[why].values()),
                sum(arms == {Variant.REWRITTEN} for arms in points[why].values()),
            )
            for why, counts in counts_by_reason.items()
        }

    def probe_results(self) -> list[ProbeResult]:
        """Return the probes with a valid response in both variants."""
        results = []
        for key in self.responses:
            if key.probe == AS_SENT and key.variant is Variant.ORIGINAL:
                other = key._replace(variant=Variant.REWRITTEN)
                was, now = self._probe_answer(key), self._probe_answer(other)
                if was and now:
                    results.append(ProbeResult(key.point, was, now, self._probe_answer(other._replace(probe=ALTERED))))
        return results

    def dropped_probe_count(self) -> int:
        """Return the number of probe responses that were refused, truncated or failed."""
        return sum(bool(key.probe) and row.stop != "ok" for key, row in self.responses.items())

    def _probe_answer(self, key: CallKey) -> ProbeAnswer | None:
        row = self.responses.get(key)
        return row.probe if row and row.rung == self.thinking_level else None

    @property
    def is_thinking_tested(self) -> bool:
        """Whether the removal of thinking by the profile is part of the test."""
        return self.thinking_level is ThinkingLevel.KEPT or not self.setup.lets_thinking_go

    @property
    def has_thinking(self) -> bool | None:
        """Whether the model used thinking, by its usage or the request; None if the model decided and did not report
        it."""
        if self.total_usage.reasoning > 0:
            return True
        if self.thinking_level is ThinkingLevel.OFF:
            return False
        return True if self.setup.asks_to_think else None

    @property
    def total_usage(self) -> Usage:
        """Sum of the usage of all responses."""
        usages = [row.usage for row in self.responses.values() if row.usage]
        return Usage(*(sum(getattr(response_usage, name.name) for response_usage in usages) for name in fields(Usage)))


def _setup_row(setup: TrialSetup) -> Json:
    row = {**asdict(setup), "notes": list(setup.notes)}
    if not setup.probes:
        del row["probes"]
    return row


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def resume_run(path: Path) -> RunLog:
    """Load the run log of an interrupted trial. Calls in flight count as failed, with their maximum cost.

    Raises IbidemError if the file is not a run log, and OSError if it cannot be read or written.
    """
    handle = _lock_file(os.open(path, APPEND_FLAGS), path)
    try:
        return _read_log(path, handle)
    except BaseException:
        os.close(handle)
        raise


def _lock_file(handle: int, path: Path) -> int:
    """Lock the file against other processes, except on Windows. Return its handle."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            problem = "another process is running this trial"
            raise IbidemError(f"{one_line(str(path))}: {problem}: wait until it ends, or stop it") from None
    return handle


def _read_log(path: Path, handle: int) -> RunLog:
    where = one_line(str(path))
    data = path.read_bytes()
    whole, _, rest = data.rpartition(b"\n")
    rows = [
        (number, _parse_row(line, where, number)) for number, line in enumerate(whole.split(b"\n"), 1) if line.strip()
    ]
    if not rows or rows[0][1].get(TRIAL_FIELD) != TRIAL_VERSION:
        raise IbidemError(f"{where}: not the file of a trial: pass one that `ibidem trial` wrote")
    try:
        ledger = RunLog(_parse_setup(rows[0][1]), path)
        ledger.budget = ledger.setup.budget
        ledger.thinking_level = ThinkingLevel(rows[0][1]["rung"])
    except NOT_AS_WRITTEN:
        raise IbidemError(
            f"{where} line 1: not valid: it was changed, or another version of `ibidem trial` wrote it"
        ) from None
    for number, row in rows[1:]:
        try:
            _apply_row(ledger, row)
        except NOT_AS_WRITTEN:
            raise IbidemError(f"{where} line {number}: not valid, it was changed: delete this line") from None
    ledger._handle = handle
    if rest:  # the process was killed in the middle of a row
        os.ftruncate(ledger._handle, len(whole) + 1)
    for key, worst in list(ledger.pending_costs.items()):
        ledger.log_response(ResponseRow(key=_parse_key(key), rung=ledger.thinking_level, stop="failed", paid=worst))
    return ledger


def _parse_row(line: bytes, where: str, number: int) -> Json:
    value = decode_row(line)
    if not isinstance(value, dict):
        raise IbidemError(f"{where} line {number}: not the file of a trial: pass one that `ibidem trial` wrote")
    return value


def _parse_setup(row: Json) -> TrialSetup:
    setup = msgspec.convert(row, TrialSetup)
    has_population = all(setup.population.get(point.stratum, 0) > 0 for point in setup.points)
    if (
        setup.format not in TRIAL_PROVIDERS
        or not 0 < setup.samples <= MAX_SAMPLES
        or setup.budget < 0
        or not has_population
    ):
        raise ValueError
    return setup


def _apply_row(ledger: RunLog, row: Json) -> None:
    if "ask" in row:
        key = str(_parse_key(row["ask"]))
        ledger.pending_costs[key] = ledger.pending_costs.get(key, 0.0) + _check_dollars(row["worst"])
    elif "again" in row:
        ledger.pending_costs.pop(row["again"], None)
        ledger.spent += _check_dollars(row["paid"])
    elif "got" in row:
        ledger.pending_costs.pop(row["got"], None)
        names = ("rung", "stop", "usage", "sample", *(["probe"] if "probe" in row else []))
        fields = {name: row[name] for name in names} | {"paid": _check_dollars(row["paid"])}
        ledger._add_response(
            replace(msgspec.convert({**fields, "key": ("", "A", 0)}, ResponseRow), key=_parse_key(row["got"]))
        )
    else:
        msgspec.convert(row, _ChangeRow)
        ledger._apply_change(row)


class _ChangeRow(msgspec.Struct, forbid_unknown_fields=True):
    """Row that `RunLog.log_change` writes, with one of these fields."""

    rung: ThinkingLevel = ThinkingLevel.KEPT
    planned: int = 0
    stopped: str = ""
    budget: float = 0.0


def _check_dollars(amount: Any) -> float:
    """Return an amount of dollars. Raises ValueError for negative or invalid ones, which would raise the budget."""
    if not isinstance(amount, int | float) or not 0 <= amount < inf:
        raise ValueError
    return amount


def _parse_key(text: str) -> CallKey:
    point, variant, sample, *probe = text.split("/")
    if probe not in ([], [AS_SENT], [ALTERED]):
        raise ValueError
    return CallKey(point, Variant(variant), int(sample), *probe)


def remaining_keys(ledger: RunLog, keys: Sequence[CallKey]) -> list[CallKey]:
    """Return the keys without a response at the current thinking level."""
    return [key for key in keys if (row := ledger.responses.get(key)) is None or row.rung != ledger.thinking_level]
