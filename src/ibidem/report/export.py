"""The report for other programs: JSON (documented in docs/report.md) and CSV.

Names are stable; new ones may be added. Costs are dollars for input, shares are fractions of one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import IO, Any, NamedTuple

from .. import __version__
from ..billing.misses import MISS_CAUSES, Shares
from ..errors import one_line
from ..render.number_format import saved_share
from .aggregate import Report, ReportRow, ScenarioTotals, local_time
from .json_tables import cost_row, repeat_row, session_fields, tables
from .session_result import (
    NOTHING_DONE,
    BilledCheck,
    CacheUse,
    MissCount,
    ProfileOutcome,
    Scenario,
    SendCost,
    SessionFigures,
    plain,
)

JSON_SCHEMA = 1


def as_dict(report: Report) -> dict[str, Any]:
    return {
        "ibidem": __version__,
        "schema": JSON_SCHEMA,
        "sample": report.sample,
        "partial": bool(report.partial),
        "since": report.asked.since,
        "until": report.asked.until,
        "profiles": list(report.profiles),
        "paid": cost_row(report.total),
        "logged": {"paid": report.total.logged, "would_have_paid": report.total.otherwise},
        "by": tables(report),
        "totals": {
            **_group(report.total),
            "files": report.files_read,
            "bytes": report.bytes_read,
            "skipped_lines": report.skipped,
            "invalid_requests": report.invalid,
            "invalid_requests_counted": report.accepted,
            "violations": dict(report.violations),
            "priced_as": report.priced_as,
        },
        "agents": {name: _group(row) for name, row in report.groups("agent").items()},
        "projects": {name: _group(row) for name, row in report.groups("project").items()},
        "tools": {name: repeat_row(each) for name, each in report.tools.items()},
        "files": {name: repeat_row(each) for name, each in report.files.items()},
        "sessions": _sessions(report),
        "unread": [plain(unread) for unread in report.unread],
    }


def write_json(report: Report, stream: IO[str]) -> None:
    json.dump(as_dict(report), stream, indent=1)
    stream.write("\n")


def _group(row: ReportRow) -> dict[str, Any]:
    return {
        "sessions": len(row.replayed),
        "requests": row.session_requests,
        "baseline": plain(row.baseline),
        "thinking": {"cost": row.thinking, "share": row.thinking_share},
        "recorded": {
            **_recorded(row.recorded),
            "sessions": len(row.errors),
            "error_median": row.error_at(0.5),
            "error_90": row.error_at(0.9),
        },
        "profiles": {name: _profile(row, name, outcome) for name, outcome in row.profiles.items()},
        "cached": None if row.cached is None else _group_cached(row, row.cached),
        "caching": {
            mode: {name: _scenario_totals(each, row.baseline.cost) for name, each in by_profile.items()}
            for mode, by_profile in row.caching.items()
        },
    }


def _group_cached(row: ReportRow, cached: CacheUse) -> dict[str, Any]:
    unmarked = row.unmarked
    return {
        **_cached(cached),
        "sessions": len(row.cached_sessions),
        "misses": {cause: _group_misses(row, cause, misses) for cause, misses in cached.misses.items()},
        "unmarked": {
            "sessions": unmarked.sessions,
            "cost": unmarked.cost,
            "with_marks": unmarked.cost - unmarked.saved,
        },
    }


def _group_misses(row: ReportRow, cause: str, misses: MissCount) -> dict[str, Any]:
    worst = row.most_expensive_miss(cause)
    named = None if worst is None else {**_which(worst[0]), **_dearest(worst[1])}
    return {"count": misses.count, "tokens": misses.tokens, "cost": misses.cost, "dearest": named}


def _dearest(missed: MissCount) -> dict[str, Any]:
    return {"request": missed.request, "where": missed.where, "cost": missed.dearest}


def _cached(cached: CacheUse) -> dict[str, Any]:
    shares = cached.shares
    return {"tokens": {name: getattr(cached, name) for name in Shares._fields}, "shares": shares._asdict()}


def _session_cached(session: SessionFigures) -> dict[str, Any] | None:
    cached = session.cached
    if cached is None:
        return None
    misses = {
        cause: {"count": missed.count, "tokens": missed.tokens, "cost": missed.cost, "dearest": _dearest(missed)}
        for cause, missed in cached.misses.items()
    }
    return {**_cached(cached), "misses": misses, "unmarked": cached.unmarked}


def _profile(row: ReportRow, name: str, outcome: ProfileOutcome) -> dict[str, Any]:
    scenarios = row.scenarios.get(name, {})
    return {
        **_compared(outcome.spent, row.baseline),
        **_net(outcome, row.baseline, row.session_requests),
        "dearer_sessions": row.more_expensive(name),
        "worst": outcome.worst,
        "law_failures": outcome.law_failures,
        "restored_requests": outcome.restored,
        "points": outcome.points,
        "strategies": plain(outcome.strategies),
        "worlds": {world: _scenario_totals(each, row.baseline.cost) for world, each in scenarios.items()},
    }


def _scenario_totals(totals: ScenarioTotals, base: float) -> dict[str, Any]:
    highest, worst = totals.highest, totals.worst_in
    return {
        **_scenario(totals, base),
        "dearer_sessions": totals.more_expensive,
        "dearest": None if highest is None else {**_which(highest), "ratio": totals.ratio},
        "worst": None if worst is None else {**_which(worst), "share": totals.worst},
    }


def _which(session: SessionFigures) -> dict[str, str]:
    return {"path": session.path, "name": session.name}


def _scenario(scenario: Scenario | ScenarioTotals, base: float) -> dict[str, Any]:
    fields = {"cost": scenario.cost, "saved": base - scenario.cost, "rewrites": scenario.rewrites}
    if scenario.best is None:
        return fields
    saved = base - scenario.best
    best = {"cost": scenario.best, "saved": saved, "saved_share": saved_share(base, scenario.best)}
    return {**fields, "optimum": {**best, "reached": (base - scenario.cost) / saved if saved > 0 else None}}


def _compared(spent: SendCost, baseline: SendCost) -> dict[str, Any]:
    return {**plain(spent), "saved": baseline.cost - spent.cost, "saved_share": saved_share(baseline.cost, spent.cost)}


def _net(outcome: ProfileOutcome, baseline: SendCost, requests: int) -> dict[str, Any]:
    """The saving net of one more request for each request that needs evicted text."""
    cost = outcome.spent.cost + outcome.need_cost
    need = {
        "requests": outcome.needs,
        "share": outcome.needs / requests if requests else 0.0,
        "cost": outcome.need_cost,
    }
    return {"need": need, "net_saved": baseline.cost - cost, "net_saved_share": saved_share(baseline.cost, cost)}


def _recorded(recorded: BilledCheck | None) -> dict[str, Any]:
    if recorded is None:
        return {"cost": None, "requests": 0, "baseline": None, "by_rule": None, "error": None}
    return {**plain(recorded), "error": recorded.baseline / recorded.cost - 1 if recorded.cost else None}


def _sessions(report: Report) -> list[dict[str, Any]]:
    """List all sessions with their recorded cost, and the replayed costs if they were replayed."""
    by_session, sessions = report.session_rows(), []
    for key, session in sorted(report.known_sessions.items()):
        row = by_session.get(key, ReportRow())
        fields = {**session_fields(session), "requests": row.requests, "paid": cost_row(row)}
        sessions.append({**fields, **(_session(row.replayed[-1]) if row.replayed else {})})
    return sessions


def _session(session: SessionFigures) -> dict[str, Any]:
    return {
        **{key: getattr(session, key) for key in ("model", "models", "priced_as", "requests", "restarts")},
        "law_failures": sum(outcome.law_failures for outcome in session.profiles.values()),
        "baseline": plain(session.baseline),
        "thinking": {"cost": session.thinking, "share": session.thinking_share},
        "recorded": _recorded(session.recorded),
        "profiles": {
            name: {
                **_compared(outcome.spent, session.baseline),
                **_net(outcome, session.baseline, session.requests),
                "worst": outcome.worst,
                "law_failures": outcome.law_failures,
                "restored_requests": outcome.restored,
                "failures": outcome.failures,
                "points": outcome.points,
                "strategies": plain(outcome.strategies),
                "worlds": {
                    world: {**_scenario(each, session.baseline.cost), "worst": each.worst}
                    for world, each in outcome.worlds.items()
                },
            }
            for name, outcome in session.profiles.items()
        },
        "cached": _session_cached(session),
        "caching": {
            name: {way: {**_scenario(each, session.baseline.cost), "worst": each.worst} for way, each in ways.items()}
            for name, ways in session.caching.items()
        },
        "skipped_lines": [{"line": line, "why": why} for line, why in session.skipped],
        "invalid_requests": session.invalid,
        "invalid_requests_counted": session.accepted,
        "violations": session.violations,
    }


def write_csv(report: Report, stream: IO[str]) -> None:
    """Write the requested tables, or a line per session with columns for each profile.

    Profiles that revise sent text have more columns (`REVISION_COLUMNS`). Sessions without a replay have empty cells.
    """
    writer = csv.writer(_harmless(stream), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    if report.asked.by:
        for number, (by, rows) in enumerate(tables(report).items()):
            if number:
                writer.writerow([])  # an empty line between tables
            _write_table(writer, by, rows)
        return
    replayed = _replayed_columns(report)
    writer.writerow([*NAMING, "started", "requests", "paid_input", "paid_output", "paid", *replayed])
    by_session = report.session_rows()
    for key, session in sorted(report.known_sessions.items()):
        fields, row = session_fields(session), by_session.get(key, ReportRow())
        figures, paid = row.replayed[-1] if row.replayed else None, cost_row(row)
        cells: list[Any] = [fields[name] for name in NAMING]
        cells += [_utc_text(session.started), figures.requests if figures else row.requests]
        cells += ["" if paid[name] is None else paid[name] for name in ("input", "output", "total")]
        writer.writerow([*cells, *(_replayed(figures, report) if figures else [""] * len(replayed))])


NAMING = ("path", "name", "agent", "model", "project", "id", "title")
"""Columns that identify a session."""


def _replayed_columns(report: Report) -> list[str]:
    columns = ["baseline_cost", "recorded_cost"]
    for profile in report.profiles:
        columns += [f"{profile}_cost", f"{profile}_saved_share", f"{profile}_worst", f"{profile}_law_failures"]
        columns += [f"{profile}_{name}" for name in _more(report, profile)]
    columns += _caching_columns(report)
    return [*columns, "baseline_tokens", "baseline_peak", "invalid_requests", "skipped_lines"]


def _replayed(session: SessionFigures, report: Report) -> list[Any]:
    row: list[Any] = [session.baseline.cost, session.recorded.cost if session.recorded else ""]
    for profile in report.profiles:
        outcome = session.profiles[profile]
        row += [outcome.spent.cost, session.saved_share(profile), outcome.worst, outcome.law_failures]
        row += [REVISION_COLUMNS[name](outcome.worlds) for name in _more(report, profile)]
    row += _caching_cells(session, report)
    base = session.baseline
    return [*row, round(base.tokens), round(base.peak), session.invalid, len(session.skipped)]


class _TerminalEscaper(NamedTuple):
    """Stream to a terminal that escapes control characters: names in a log must not control the terminal."""

    stream: IO[str]

    def write(self, line: str) -> None:
        self.stream.write(one_line(line.removesuffix("\n")) + "\n")


def _harmless(stream: IO[str]) -> IO[str] | _TerminalEscaper:
    return _TerminalEscaper(stream) if stream.isatty() else stream


def _utc_text(at: float | None) -> str:
    when = local_time(at, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when else ""


def _write_table(writer: Any, by: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of a table. Names of nested values are joined: `tokens_read`, `lossless_saved`."""
    flat = [dict(_flat({by: row["name"], **row} if "name" in row and by != "session" else row)) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row if key != "name" or by == "session"))
    writer.writerow(columns)
    for row in flat:
        writer.writerow(["" if row.get(key) is None else row[key] for key in columns])


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, "" if key == "profiles" else f"{name}_")
        else:
            yield name, " ".join(value) if isinstance(value, list) else value


def _caching_columns(report: Report) -> list[str]:
    """List the columns for shares of the input, costs of misses by cause, and costs of the compared caching modes."""
    shares = [f"cached_{name}" for name in Shares._fields]
    misses = [f"lost_{cause}" for cause in MISS_CAUSES]
    ways = [
        f"{'baseline' if way == NOTHING_DONE else way}_caching_{name}_cost"
        for name, found in report.total.caching.items()
        for way in found
    ]
    return [*shares, "unmarked", *misses, *ways]


def _caching_cells(session: SessionFigures, report: Report) -> list[Any]:
    cached = session.cached
    if cached is None:
        row: list[Any] = [""] * (len(Shares._fields) + 1 + len(MISS_CAUSES))
    else:
        costs = [cached.misses[cause].cost if cause in cached.misses else 0.0 for cause in MISS_CAUSES]
        row = [*cached.shares, int(cached.unmarked), *costs]
    return row + [session.caching[name][way].cost for name, found in report.total.caching.items() for way in found]


REVISION_COLUMNS: dict[str, Callable[[Mapping[str, Scenario]], float | None]] = {
    "rewrites": lambda worlds: worlds["hit"].rewrites,
    "optimum_cost": lambda worlds: worlds["hit"].best,
    "miss_cost": lambda worlds: worlds["miss"].cost,
    "miss_worst": lambda worlds: worlds["miss"].worst,
    "miss_rewrites": lambda worlds: worlds["miss"].rewrites,
    "miss_optimum_cost": lambda worlds: worlds["miss"].best,
}
"""Columns of profiles that revise sent text. `miss_`: after a revision, the provider's cache has no part of the
conversation."""


def _more(report: Report, profile: str) -> list[str]:
    """List the revision columns that have values."""
    scenarios = report.total.scenarios.get(profile, {})
    optimum = any(scenario.best is not None for scenario in scenarios.values())
    return [name for name in REVISION_COLUMNS if scenarios and (optimum or "optimum" not in name)]
