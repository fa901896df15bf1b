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
from ..billing.cache_misses import MISS_CAUSES, CacheShares
from ..errors import one_line
from ..render.number_format import saved_share
from .aggregate import Report, ReportRow, ScenarioTotals, local_time
from .json_tables import cost_row, repeat_row, requested_tables, session_fields
from .session_result import (
    NOTHING_DONE,
    BilledCheck,
    CacheUse,
    MissCount,
    ProfileOutcome,
    Scenario,
    SendCost,
    SessionResult,
    to_json_value,
)

JSON_SCHEMA = 1


def report_to_dict(report: Report) -> dict[str, Any]:
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
        "by": requested_tables(report),
        "totals": {
            **_group_dict(report.total),
            "files": report.files_read,
            "bytes": report.bytes_read,
            "skipped_lines": report.skipped,
            "invalid_requests": report.invalid,
            "invalid_requests_counted": report.accepted,
            "violations": dict(report.violations),
            "priced_as": report.priced_as,
        },
        "agents": {name: _group_dict(row) for name, row in report.groups("agent").items()},
        "projects": {name: _group_dict(row) for name, row in report.groups("project").items()},
        "tools": {name: repeat_row(each) for name, each in report.tools.items()},
        "files": {name: repeat_row(each) for name, each in report.files.items()},
        "sessions": _session_dicts(report),
        "unread": [to_json_value(unread) for unread in report.unread],
    }


def write_json(report: Report, stream: IO[str]) -> None:
    json.dump(report_to_dict(report), stream, indent=1)
    stream.write("\n")


def _group_dict(row: ReportRow) -> dict[str, Any]:
    return {
        "sessions": len(row.replayed),
        "requests": row.session_requests,
        "baseline": to_json_value(row.baseline),
        "thinking": {"cost": row.thinking, "share": row.thinking_share},
        "recorded": {
            **_billed_dict(row.recorded),
            "sessions": len(row.errors),
            "error_median": row.error_at(0.5),
            "error_90": row.error_at(0.9),
        },
        "profiles": {name: _profile_dict(row, name, outcome) for name, outcome in row.profiles.items()},
        "cached": None if row.cached is None else _group_cache_dict(row, row.cached),
        "caching": {
            mode: {name: _scenario_totals_dict(each, row.baseline.cost) for name, each in by_profile.items()}
            for mode, by_profile in row.caching_totals.items()
        },
    }


def _group_cache_dict(row: ReportRow, use: CacheUse) -> dict[str, Any]:
    totals = row.missing_breakpoints
    return {
        **_cache_use_dict(use),
        "sessions": len(row.cached_sessions),
        "misses": {cause: _group_misses_dict(row, cause, misses) for cause, misses in use.misses.items()},
        "unmarked": {
            "sessions": totals.sessions,
            "cost": totals.cost,
            "with_marks": totals.cost - totals.saved,
        },
    }


def _group_misses_dict(row: ReportRow, cause: str, misses: MissCount) -> dict[str, Any]:
    worst = row.most_expensive_miss(cause)
    most_expensive = None if worst is None else {**_session_ref(worst[0]), **_worst_miss_dict(worst[1])}
    return {"count": misses.count, "tokens": misses.tokens, "cost": misses.cost, "dearest": most_expensive}


def _worst_miss_dict(misses: MissCount) -> dict[str, Any]:
    return {"request": misses.request, "where": misses.where, "cost": misses.dearest}


def _cache_use_dict(use: CacheUse) -> dict[str, Any]:
    shares = use.shares
    return {"tokens": {name: getattr(use, name) for name in CacheShares._fields}, "shares": shares._asdict()}


def _session_cache_dict(session: SessionResult) -> dict[str, Any] | None:
    use = session.cached
    if use is None:
        return None
    misses = {
        cause: {"count": miss.count, "tokens": miss.tokens, "cost": miss.cost, "dearest": _worst_miss_dict(miss)}
        for cause, miss in use.misses.items()
    }
    return {**_cache_use_dict(use), "misses": misses, "unmarked": use.unmarked}


def _profile_dict(row: ReportRow, name: str, outcome: ProfileOutcome) -> dict[str, Any]:
    scenarios = row.scenarios.get(name, {})
    return {
        **_cost_dict(outcome.spent, row.baseline),
        **_net_dict(outcome, row.baseline, row.session_requests),
        **_total_shares_dict(row, outcome, row.baseline),
        "dearer_sessions": row.more_expensive(name),
        "worst": outcome.worst,
        "law_failures": outcome.law_failures,
        "restored_requests": outcome.restored,
        "points": outcome.points,
        "strategies": to_json_value(outcome.strategies),
        "worlds": {world: _scenario_totals_dict(each, row.baseline.cost) for world, each in scenarios.items()},
    }


def _scenario_totals_dict(totals: ScenarioTotals, base: float) -> dict[str, Any]:
    highest, worst = totals.highest, totals.worst_in
    return {
        **_scenario_dict(totals, base),
        "dearer_sessions": totals.more_expensive,
        "dearest": None if highest is None else {**_session_ref(highest), "ratio": totals.ratio},
        "worst": None if worst is None else {**_session_ref(worst), "share": totals.worst},
    }


def _session_ref(session: SessionResult) -> dict[str, str]:
    return {"path": session.path, "name": session.name}


def _scenario_dict(scenario: Scenario | ScenarioTotals, base: float) -> dict[str, Any]:
    fields = {"cost": scenario.cost, "saved": base - scenario.cost, "rewrites": scenario.rewrites}
    if scenario.best is None:
        return fields
    saving = base - scenario.best
    best = {"cost": scenario.best, "saved": saving, "saved_share": saved_share(base, scenario.best)}
    return {**fields, "optimum": {**best, "reached": (base - scenario.cost) / saving if saving > 0 else None}}


def _cost_dict(send_cost: SendCost, baseline: SendCost) -> dict[str, Any]:
    return {
        **to_json_value(send_cost),
        "saved": baseline.cost - send_cost.cost,
        "saved_share": saved_share(baseline.cost, send_cost.cost),
    }


def _net_dict(outcome: ProfileOutcome, baseline: SendCost, requests: int) -> dict[str, Any]:
    """The saving net of one more request for each request that needs evicted text."""
    cost = outcome.spent.cost + outcome.need_cost
    need = {
        "requests": outcome.needs,
        "share": outcome.needs / requests if requests else 0.0,
        "cost": outcome.need_cost,
    }
    return {"need": need, "net_saved": baseline.cost - cost, "net_saved_share": saved_share(baseline.cost, cost)}


def _total_shares_dict(row: ReportRow, outcome: ProfileOutcome, baseline: SendCost) -> dict[str, float | None]:
    """Both savings as a share of the cost of input and output; None if no output was recorded."""
    costs = {"saved": outcome.spent.cost, "net_saved": outcome.spent.cost + outcome.need_cost}
    return {
        f"{name}_share_of_total": row.share_of_total(saved_share(baseline.cost, cost)) for name, cost in costs.items()
    }


def _billed_dict(check: BilledCheck | None) -> dict[str, Any]:
    if check is None:
        return {"cost": None, "requests": 0, "baseline": None, "by_rule": None, "error": None}
    return {**to_json_value(check), "error": check.baseline / check.cost - 1 if check.cost else None}


def _session_dicts(report: Report) -> list[dict[str, Any]]:
    """List all sessions with their recorded cost, and the replayed costs if they were replayed."""
    by_session, sessions = report.session_rows(), []
    for key, session in sorted(report.known_sessions.items()):
        row = by_session.get(key, ReportRow())
        fields = {**session_fields(session), "requests": row.requests, "paid": cost_row(row)}
        sessions.append({**fields, **(_session_dict(row.replayed[-1], row) if row.replayed else {})})
    return sessions


def _session_dict(session: SessionResult, row: ReportRow) -> dict[str, Any]:
    return {
        **{key: getattr(session, key) for key in ("model", "models", "priced_as", "requests", "restarts")},
        "law_failures": sum(outcome.law_failures for outcome in session.profiles.values()),
        "baseline": to_json_value(session.baseline),
        "thinking": {"cost": session.thinking, "share": session.thinking_share},
        "recorded": _billed_dict(session.recorded),
        "profiles": {
            name: {
                **_cost_dict(outcome.spent, session.baseline),
                **_net_dict(outcome, session.baseline, session.requests),
                **_total_shares_dict(row, outcome, session.baseline),
                "worst": outcome.worst,
                "law_failures": outcome.law_failures,
                "restored_requests": outcome.restored,
                "failures": outcome.failures,
                "points": outcome.points,
                "strategies": to_json_value(outcome.strategies),
                "worlds": {
                    world: {**_scenario_dict(each, session.baseline.cost), "worst": each.worst}
                    for world, each in outcome.worlds.items()
                },
            }
            for name, outcome in session.profiles.items()
        },
        "cached": _session_cache_dict(session),
        "caching": {
            name: {
                way: {**_scenario_dict(each, session.baseline.cost), "worst": each.worst} for way, each in ways.items()
            }
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
    writer = csv.writer(_escape_for_terminal(stream), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    if report.asked.by:
        for number, (by, rows) in enumerate(requested_tables(report).items()):
            if number:
                writer.writerow([])  # an empty line between tables
            _write_table(writer, by, rows)
        return
    columns = _replayed_columns(report)
    writer.writerow([*NAMING, "started", "requests", "paid_input", "paid_output", "paid", *columns])
    by_session = report.session_rows()
    for key, session in sorted(report.known_sessions.items()):
        fields, row = session_fields(session), by_session.get(key, ReportRow())
        result, costs = row.replayed[-1] if row.replayed else None, cost_row(row)
        cells: list[Any] = [fields[name] for name in NAMING]
        cells += [_utc_text(session.started), result.requests if result else row.requests]
        cells += ["" if costs[name] is None else costs[name] for name in ("input", "output", "total")]
        writer.writerow([*cells, *(_replayed_cells(result, report) if result else [""] * len(columns))])


NAMING = ("path", "name", "agent", "model", "project", "id", "title")
"""Columns that identify a session."""


def _replayed_columns(report: Report) -> list[str]:
    columns = ["baseline_cost", "recorded_cost"]
    for profile in report.profiles:
        columns += [f"{profile}_cost", f"{profile}_saved_share", f"{profile}_worst", f"{profile}_law_failures"]
        columns += [f"{profile}_{name}" for name in _revision_columns(report, profile)]
    columns += _caching_columns(report)
    return [*columns, "baseline_tokens", "baseline_peak", "invalid_requests", "skipped_lines"]


def _replayed_cells(session: SessionResult, report: Report) -> list[Any]:
    row: list[Any] = [session.baseline.cost, session.recorded.cost if session.recorded else ""]
    for profile in report.profiles:
        outcome = session.profiles[profile]
        row += [outcome.spent.cost, session.saved_share(profile), outcome.worst, outcome.law_failures]
        row += [REVISION_COLUMNS[name](outcome.worlds) for name in _revision_columns(report, profile)]
    row += _caching_cells(session, report)
    base = session.baseline
    return [*row, round(base.tokens), round(base.peak), session.invalid, len(session.skipped)]


class _TerminalEscaper(NamedTuple):
    """Stream to a terminal that escapes control characters: names in a log must not control the terminal."""

    stream: IO[str]

    def write(self, line: str) -> None:
        self.stream.write(one_line(line.removesuffix("\n")) + "\n")


def _escape_for_terminal(stream: IO[str]) -> IO[str] | _TerminalEscaper:
    return _TerminalEscaper(stream) if stream.isatty() else stream


def _utc_text(at: float | None) -> str:
    when = local_time(at, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when else ""


def _write_table(writer: Any, by: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of a table. Names of nested values are joined: `tokens_read`, `lossless_saved`."""
    flat = [dict(_flatten_row({by: row["name"], **row} if "name" in row and by != "session" else row)) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row if key != "name" or by == "session"))
    writer.writerow(columns)
    for row in flat:
        writer.writerow(["" if row.get(key) is None else row[key] for key in columns])


def _flatten_row(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flatten_row(value, "" if key == "profiles" else f"{name}_")
        else:
            yield name, " ".join(value) if isinstance(value, list) else value


def _caching_columns(report: Report) -> list[str]:
    """List the columns for shares of the input, costs of misses by cause, and costs of the compared caching modes."""
    shares = [f"cached_{name}" for name in CacheShares._fields]
    misses = [f"lost_{cause}" for cause in MISS_CAUSES]
    ways = [
        f"{'baseline' if way == NOTHING_DONE else way}_caching_{name}_cost"
        for name, by_profile in report.total.caching_totals.items()
        for way in by_profile
    ]
    return [*shares, "unmarked", *misses, *ways]


def _caching_cells(session: SessionResult, report: Report) -> list[Any]:
    use = session.cached
    if use is None:
        row: list[Any] = [""] * (len(CacheShares._fields) + 1 + len(MISS_CAUSES))
    else:
        costs = [use.misses[cause].cost if cause in use.misses else 0.0 for cause in MISS_CAUSES]
        row = [*use.shares, int(use.unmarked), *costs]
    return row + [
        session.caching[name][way].cost
        for name, by_profile in report.total.caching_totals.items()
        for way in by_profile
    ]


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


def _revision_columns(report: Report, profile: str) -> list[str]:
    """List the revision columns that have values."""
    scenarios = report.total.scenarios.get(profile, {})
    optimum = any(scenario.best is not None for scenario in scenarios.values())
    return [name for name in REVISION_COLUMNS if scenarios and (optimum or "optimum" not in name)]
