"""The report for other programs: JSON (documented in docs/report.md) and CSV.

Names are stable; new ones may be added. Money is dollars for input, shares are fractions of one.
"""

from __future__ import annotations

import csv
import json
from typing import IO, Any

from .. import __version__
from .figures import Recorded, SessionFigures, Spent, plain
from .totals import Group, Profile, Repeated, Report, saved_in, share

SCHEMA = 1


def as_dict(report: Report) -> dict[str, Any]:
    return {
        "ibidem": __version__,
        "schema": SCHEMA,
        "sample": report.sample,
        "profiles": list(report.profiles),
        "totals": {
            **_group(report.total),
            "files": report.files_read,
            "bytes": report.bytes_read,
            "skipped_lines": report.skipped,
            "invalid_requests": report.invalid,
            "violations": dict(report.violations),
            "priced_as": report.priced_as,
        },
        "agents": {name: _group(group) for name, group in report.agents.items()},
        "projects": {name: _group(group) for name, group in report.projects.items()},
        "tools": {name: _repeated(each) for name, each in report.tools.items()},
        "files": {name: _repeated(each) for name, each in report.files.items()},
        "sessions": [_session(session) for session in report.sessions],
        "unread": [plain(unread) for unread in report.unread],
    }


def write_json(report: Report, stream: IO[str]) -> None:
    json.dump(as_dict(report), stream, indent=1)
    stream.write("\n")


def _group(group: Group) -> dict[str, Any]:
    return {
        "sessions": group.sessions,
        "requests": group.requests,
        "baseline": plain(group.baseline),
        "recorded": {
            **_recorded(group.recorded),
            "sessions": len(group.errors),
            "error_median": group.error_at(0.5),
            "error_90": group.error_at(0.9),
        },
        "profiles": {name: _profile(group, profile) for name, profile in group.profiles.items()},
    }


def _profile(group: Group, profile: Profile) -> dict[str, Any]:
    return {
        **_compared(profile.spent, group.baseline),
        "dearer_sessions": profile.dearer,
        "worst": profile.worst,
        "law_failures": profile.law_failures,
        "points": dict(profile.points),
        "strategies": plain(profile.strategies),
    }


def _compared(spent: Spent, baseline: Spent) -> dict[str, Any]:
    return {**plain(spent), "saved": baseline.cost - spent.cost, "saved_share": share(baseline.cost, spent.cost)}


def _recorded(recorded: Recorded | None) -> dict[str, Any]:
    if recorded is None:
        return {"cost": None, "requests": 0, "baseline": None, "by_rule": None, "error": None}
    return {**plain(recorded), "error": recorded.baseline / recorded.cost - 1 if recorded.cost else None}


def _repeated(each: Repeated) -> dict[str, Any]:
    return {**plain(each.results), "profiles": plain(each.profiles)}


def _session(session: SessionFigures) -> dict[str, Any]:
    rest = ("path", "agent", "name", "project", "model", "models", "priced_as", "started", "requests", "restarts")
    return {
        **{key: getattr(session, key) for key in rest},
        "law_failures": sum(outcome.law_failures for outcome in session.profiles.values()),
        "baseline": plain(session.baseline),
        "recorded": _recorded(session.recorded),
        "profiles": {
            name: {
                **_compared(outcome.spent, session.baseline),
                "worst": outcome.worst,
                "law_failures": outcome.law_failures,
                "failures": outcome.failures,
                "points": outcome.points,
                "strategies": plain(outcome.strategies),
            }
            for name, outcome in session.profiles.items()
        },
        "skipped_lines": [{"line": line, "why": why} for line, why in session.skipped],
        "invalid_requests": session.invalid,
        "violations": session.violations,
    }


def write_csv(report: Report, stream: IO[str]) -> None:
    """A line per session; four columns per profile."""
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    columns = ["path", "name", "agent", "model", "project", "requests", "baseline_cost", "recorded_cost"]
    for profile in report.profiles:
        columns += [f"{profile}_cost", f"{profile}_saved_share", f"{profile}_worst", f"{profile}_law_failures"]
    writer.writerow([*columns, "baseline_tokens", "baseline_peak", "invalid_requests", "skipped_lines"])
    for session in report.sessions:
        row: list[Any] = [session.path, session.name, session.agent, session.model, session.project, session.requests]
        row += [session.baseline.cost, session.recorded.cost if session.recorded else ""]
        for profile in report.profiles:
            outcome = session.profiles[profile]
            row += [outcome.spent.cost, saved_in(session, profile), outcome.worst, outcome.law_failures]
        base = session.baseline
        writer.writerow([*row, round(base.tokens), round(base.peak), session.invalid, len(session.skipped)])
