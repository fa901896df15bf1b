"""What was paid, and the tables that were asked for, as JSON values."""

from __future__ import annotations

from typing import Any

from .facts import SessionFacts
from .figures import NOTHING_DONE, SessionFigures, plain
from .tally import By, Key, Tally
from .totals import Repeated, Report
from .windows import plan_windows


def paid(tally: Tally) -> dict[str, Any]:
    """Dollars and tokens as providers counted them; null where no request has usage."""
    used, known = tally.tokens, bool(tally.counted)
    return {
        "input": tally.input if known else None,
        "output": tally.output if known else None,
        "total": tally.total if known else None,
        "requests": tally.counted,
        "tokens": {
            "fresh": used.fresh,
            "read": used.read,
            "written": used.written,
            "written_1h": used.written_1h,
            "output": used.output,
        },
    }


def would_have(report: Report, tally: Tally) -> dict[str, Any]:
    """What profiles would have saved; empty where nothing was replayed."""
    if not tally.costs:
        return {}
    return {
        name: {"cost": tally.costs[name], "saved": tally.saved(name), "saved_share": tally.saved_share(name)}
        for name in report.profiles
    }


def tables(report: Report) -> dict[str, list[dict[str, Any]]]:
    """By name: those that were asked for, all of their rows or as many as were; of windows, the last."""
    top = report.asked.top
    return {
        by: rows[-top:] if top and by == "window" else rows[:top]
        for by, rows in ((by, table(report, by)) for by in report.asked.by)
    }


def table(report: Report, by: str) -> list[dict[str, Any]]:
    if by == "window":
        return _windows(report)
    if by in ("tool", "file"):
        found = report.most_saved(report.tools if by == "tool" else report.files)
        return [{"name": name, **repeated(each)} for name, each in found]
    known = known_sessions(report)
    rows = report.table(by)  # type: ignore[arg-type]  # the command line took nothing else
    return [{**_named(by, key, known), **_row(report, tally)} for key, tally in rows]


def repeated(each: Repeated) -> dict[str, Any]:
    return {**plain(each.results), "profiles": plain(each.profiles)}


def known_sessions(report: Report) -> dict[tuple[str, str], SessionFacts | SessionFigures]:
    found: dict[tuple[str, str], SessionFacts | SessionFigures] = {each.key: each for each in report.sessions}
    found.update((each.session.key, each.session) for each in report.paid)
    return found


def _named(by: By | str, key: Key, known: dict[tuple[str, str], SessionFacts | SessionFigures]) -> dict[str, Any]:
    if by != "session":
        return {"name": key[0]}
    path, name = key
    return {**session_named(known[path, name])}


def session_named(session: SessionFacts | SessionFigures) -> dict[str, Any]:
    """What a session is known by."""
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


def _row(report: Report, tally: Tally) -> dict[str, Any]:
    return {
        "sessions": len(tally.sessions),
        "requests": tally.requests,
        **{name: value for name, value in paid(tally).items() if name != "requests"},
        "baseline": tally.costs.get(NOTHING_DONE),
        "profiles": would_have(report, tally),
    }


def _windows(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "agent": window.agent,
            "start": window.start,
            "end": window.end,
            **_row(report, window.tally),
            "requests_left": window.left,
        }
        for window in plan_windows(report.paid, report.sessions)
    ]
