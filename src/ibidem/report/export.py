"""The report for other programs: JSON (documented in docs/report.md) and CSV.

Names are stable; new ones may be added. Money is dollars for input, shares are fractions of one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import IO, Any, NamedTuple

from .. import __version__
from ..billing.misses import MISS_CAUSES, Shares
from ..billing.usage import Usage
from ..errors import one_line
from .figures import NOTHING_DONE, Cached, Missed, Recorded, SessionFigures, Spent, World, plain
from .groups import CachedTotal, Group, MissedTotal, Profile, Worlds, share
from .rows import known_sessions, paid, repeated, session_named, tables
from .tally import Tally, local
from .totals import Report, saved_in

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
        "paid": paid(report.tally),
        "logged": {"paid": report.tally.logged, "would_have_paid": report.tally.otherwise},
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
        "agents": {name: _group(group) for name, group in report.agents.items()},
        "projects": {name: _group(group) for name, group in report.projects.items()},
        "tools": {name: repeated(each) for name, each in report.tools.items()},
        "files": {name: repeated(each) for name, each in report.files.items()},
        "sessions": _sessions(report),
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
        "thinking": {"cost": group.thinking, "share": group.thinking_share},
        "recorded": {
            **_recorded(group.recorded),
            "sessions": len(group.errors),
            "error_median": group.error_at(0.5),
            "error_90": group.error_at(0.9),
        },
        "profiles": {name: _profile(group, profile) for name, profile in group.profiles.items()},
        "cached": None if group.cached is None else _cached_total(group.cached),
        "caching": {
            name: {way: _worlds(each, group.baseline.cost) for way, each in ways.items()}
            for name, ways in group.caching.items()
        },
    }


def _cached_total(cached: CachedTotal) -> dict[str, Any]:
    return {
        **_cached(cached.tokens, cached.shares),
        "sessions": cached.sessions,
        "misses": {cause: _missed_total(missed) for cause, missed in cached.misses.items()},
        "unmarked": {
            "sessions": cached.unmarked,
            "cost": cached.unmarked_cost,
            "with_marks": cached.unmarked_cost - cached.unmarked_saved,
        },
    }


def _missed_total(missed: MissedTotal) -> dict[str, Any]:
    worst, session = missed.dearest, missed.dearest_in
    named = None if session is None else {**_which(session), **_dearest(worst)}
    return {"count": missed.count, "tokens": missed.tokens, "cost": missed.cost, "dearest": named}


def _dearest(missed: Missed) -> dict[str, Any]:
    return {"request": missed.request, "where": missed.where, "cost": missed.dearest}


def _cached(tokens: Usage | Cached, shares: Shares) -> dict[str, Any]:
    return {"tokens": {name: getattr(tokens, name) for name in Shares._fields}, "shares": shares._asdict()}


def _session_cached(session: SessionFigures) -> dict[str, Any] | None:
    cached = session.cached
    if cached is None:
        return None
    misses = {
        cause: {"count": missed.count, "tokens": missed.tokens, "cost": missed.cost, "dearest": _dearest(missed)}
        for cause, missed in cached.misses.items()
    }
    return {**_cached(cached, cached.shares), "misses": misses, "unmarked": cached.unmarked}


def _profile(group: Group, profile: Profile) -> dict[str, Any]:
    return {
        **_compared(profile.spent, group.baseline),
        "dearer_sessions": profile.dearer,
        "worst": profile.worst,
        "law_failures": profile.law_failures,
        "restored_requests": profile.restored,
        "points": dict(profile.points),
        "strategies": plain(profile.strategies),
        "worlds": {name: _worlds(world, group.baseline.cost) for name, world in profile.worlds.items()},
    }


def _worlds(world: Worlds, base: float) -> dict[str, Any]:
    dearest, worst = world.dearest, world.worst_in
    return {
        **_world(world, base),
        "dearer_sessions": world.dearer,
        "dearest": None if dearest is None else {**_which(dearest), "ratio": world.ratio},
        "worst": None if worst is None else {**_which(worst), "share": world.worst},
    }


def _which(session: SessionFigures) -> dict[str, str]:
    return {"path": session.path, "name": session.name}


def _world(world: World | Worlds, base: float) -> dict[str, Any]:
    found = {"cost": world.cost, "saved": base - world.cost, "rewrites": world.rewrites}
    if world.best is None:
        return found
    saved = base - world.best
    best = {"cost": world.best, "saved": saved, "saved_share": share(base, world.best)}
    return {**found, "optimum": {**best, "reached": (base - world.cost) / saved if saved > 0 else None}}


def _compared(spent: Spent, baseline: Spent) -> dict[str, Any]:
    return {**plain(spent), "saved": baseline.cost - spent.cost, "saved_share": share(baseline.cost, spent.cost)}


def _recorded(recorded: Recorded | None) -> dict[str, Any]:
    if recorded is None:
        return {"cost": None, "requests": 0, "baseline": None, "by_rule": None, "error": None}
    return {**plain(recorded), "error": recorded.baseline / recorded.cost - 1 if recorded.cost else None}


def _sessions(report: Report) -> list[dict[str, Any]]:
    """What was paid for each; and what would have been, where it was replayed."""
    tallies, figures = dict(report.table("session")), {session.key: session for session in report.sessions}
    found = []
    for key, session in sorted(known_sessions(report).items()):
        tally = tallies.get(key, Tally())
        one = {**session_named(session), "requests": tally.requests, "paid": paid(tally)}
        found.append({**one, **(_session(figures[key]) if key in figures else {})})
    return found


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
                "worst": outcome.worst,
                "law_failures": outcome.law_failures,
                "restored_requests": outcome.restored,
                "failures": outcome.failures,
                "points": outcome.points,
                "strategies": plain(outcome.strategies),
                "worlds": {
                    world: {**_world(each, session.baseline.cost), "worst": each.worst}
                    for world, each in outcome.worlds.items()
                },
            }
            for name, outcome in session.profiles.items()
        },
        "cached": _session_cached(session),
        "caching": {
            name: {way: {**_world(each, session.baseline.cost), "worst": each.worst} for way, each in ways.items()}
            for name, ways in session.caching.items()
        },
        "skipped_lines": [{"line": line, "why": why} for line, why in session.skipped],
        "invalid_requests": session.invalid,
        "invalid_requests_counted": session.accepted,
        "violations": session.violations,
    }


def write_csv(report: Report, stream: IO[str]) -> None:
    """The tables that were asked for, or a line per session; some columns per profile, and some more for one that
    changes what had been sent. What was not replayed has no figures there."""
    writer = csv.writer(_harmless(stream), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    if report.asked.by:
        for number, (by, rows) in enumerate(tables(report).items()):
            if number:
                writer.writerow([])  # an empty line between tables
            _write_table(writer, by, rows)
        return
    replayed = _replayed_columns(report)
    writer.writerow([*NAMING, "started", "requests", "paid_input", "paid_output", "paid", *replayed])
    tallies, figures = dict(report.table("session")), {session.key: session for session in report.sessions}
    for key, session in sorted(known_sessions(report).items()):
        named, tally = session_named(session), tallies.get(key, Tally())
        row: list[Any] = [named[name] for name in NAMING]
        spent = paid(tally)
        row += [_spelt(session.started), figures[key].requests if key in figures else tally.requests]
        row += ["" if spent[name] is None else spent[name] for name in ("input", "output", "total")]
        writer.writerow([*row, *(_replayed(figures[key], report) if key in figures else [""] * len(replayed))])


NAMING = ("path", "name", "agent", "model", "project", "id", "title")
"""Columns that say which session it is."""


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
        row += [outcome.spent.cost, saved_in(session, profile), outcome.worst, outcome.law_failures]
        row += [REVISION_COLUMNS[name](outcome.worlds) for name in _more(report, profile)]
    row += _caching_cells(session, report)
    base = session.baseline
    return [*row, round(base.tokens), round(base.peak), session.invalid, len(session.skipped)]


class _Spelling(NamedTuple):
    """A terminal, which names in a log must not steer. Programs get them as they are."""

    stream: IO[str]

    def write(self, line: str) -> None:
        self.stream.write(one_line(line.removesuffix("\n")) + "\n")


def _harmless(stream: IO[str]) -> IO[str] | _Spelling:
    return _Spelling(stream) if stream.isatty() else stream


def _spelt(at: float | None) -> str:
    when = local(at, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when else ""


def _write_table(writer: Any, by: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Names of nested values are joined: `tokens_read`, `lossless_saved`."""
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
    """Shares of the input, what misses cost by cause, and what asking for caching in another way would have."""
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


REVISION_COLUMNS: dict[str, Callable[[Mapping[str, World]], float | None]] = {
    "rewrites": lambda worlds: worlds["hit"].rewrites,
    "optimum_cost": lambda worlds: worlds["hit"].best,
    "miss_cost": lambda worlds: worlds["miss"].cost,
    "miss_worst": lambda worlds: worlds["miss"].worst,
    "miss_rewrites": lambda worlds: worlds["miss"].rewrites,
    "miss_optimum_cost": lambda worlds: worlds["miss"].best,
}
"""Columns of profiles that change what had been sent; `miss_` if a provider then finds nothing of the conversation."""


def _more(report: Report, profile: str) -> list[str]:
    """Of these columns, those that there are figures for."""
    found = report.total.profiles[profile].worlds if report.sessions else {}
    hindsight = any(world.best is not None for world in found.values())
    return [name for name in REVISION_COLUMNS if found and (hindsight or "optimum" not in name)]
