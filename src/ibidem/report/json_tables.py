"""Costs and the tables of `--by` as JSON values."""

from __future__ import annotations

from typing import Any

from .aggregate import KnownSession, RepeatTotals, Report, ReportRow
from .plan_windows import plan_windows
from .session_result import NOTHING_DONE, to_json_value


def cost_row(row: ReportRow) -> dict[str, Any]:
    """Recorded dollars and tokens; null if no request has usage."""
    usage, is_counted = row.tokens, bool(row.counted)
    return {
        "input": row.input if is_counted else None,
        "output": row.output if is_counted else None,
        "total": row.total if is_counted else None,
        "requests": row.counted,
        "tokens": {
            "fresh": usage.fresh,
            "read": usage.read,
            "written": usage.written,
            "written_1h": usage.written_1h,
            "output": usage.output,
        },
    }


def _savings_by_profile(report: Report, row: ReportRow) -> dict[str, Any]:
    """Make the savings by profile; empty without a replay."""
    if not row.costs:
        return {}
    return {
        name: {
            "cost": row.costs[name],
            "saved": row.saved(name),
            "saved_share": row.saved_share(name),
            "saved_share_of_total": row.share_of_total(row.saved_share(name)),
        }
        for name in report.profiles
    }


def requested_tables(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Make the requested tables, by name. `--top` keeps the first rows of a table, and the last windows."""
    top = report.asked.top
    return {
        by: rows[-top:] if top and by == "window" else rows[:top]
        for by, rows in ((by, table_rows(report, by)) for by in report.asked.by)
    }


def table_rows(report: Report, by: str) -> list[dict[str, Any]]:
    """Make the rows of one table of `--by`."""
    if by == "window":
        return _window_rows(report)
    if by in ("tool", "file"):
        totals = report.most_saved(report.tools if by == "tool" else report.files)
        return [{"name": name, **repeat_row(each)} for name, each in totals]
    sessions = report.known_sessions
    rows = report.table(by)  # type: ignore[arg-type]  # the command line accepts nothing else
    name_fields = ({"name": row.key[0]} if by != "session" else session_fields(sessions[row.key]) for row in rows)
    return [{**names, **_row_dict(report, row)} for names, row in zip(name_fields, rows, strict=True)]


def repeat_row(totals: RepeatTotals) -> dict[str, Any]:
    return {**to_json_value(totals.results), "profiles": to_json_value(totals.profiles)}


def session_fields(session: KnownSession) -> dict[str, Any]:
    """Make the fields that identify a session."""
    return {
        "path": session.path,
        "name": session.name,
        "agent": session.agent,
        "id": session.id,
        "title": session.title,
        "project": session.project,
        "model": session.models[0] if session.models else "",
        "models": session.models,
        "started": session.started,
    }


def _row_dict(report: Report, row: ReportRow) -> dict[str, Any]:
    return {
        "sessions": len(row.sessions),
        "requests": row.requests,
        **{name: value for name, value in cost_row(row).items() if name != "requests"},
        "baseline": row.costs.get(NOTHING_DONE),
        "profiles": _savings_by_profile(report, row),
    }


def _window_rows(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "agent": window.agent,
            "start": window.start,
            "end": window.end,
            **_row_dict(report, window.row),
            "requests_left": window.left,
        }
        for window in plan_windows(report.paid, report.sessions)
    ]
