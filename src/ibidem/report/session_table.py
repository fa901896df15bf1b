"""The page's table of all sessions: columns, and rows as JSON. The page's script makes the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import one_line
from ..render.number_format import drop_rounding
from .aggregate import KnownSession, Report, ReportRow
from .session_names import SessionLinks
from .session_result import ProfileOutcome, SessionResult

if TYPE_CHECKING:
    from markupsafe import Markup

Value = Callable[[KnownSession, ReportRow], Any]


class Column(NamedTuple):
    """A column. The page's script formats a value by its kind."""

    label: str
    kind: str
    tip: str
    value: Value
    group: str = ""
    look: str = ""
    extra: bool = False
    """Shown if the user switches more columns on."""


class SessionTable(NamedTuple):
    """Columns and rows of the table, for the template."""

    columns: list[Column]
    groups: list[tuple[str, str, bool, int]]
    """Heads over several columns: name, look, whether they are extra columns, and how many."""
    data: Markup
    """Rows as JSON, for the page's script."""


def session_table(report: Report, names: SessionLinks, looks: Mapping[str, str]) -> SessionTable:
    """Make the table of all sessions. `looks` has the style of each profile."""
    columns = _make_columns(report, names, looks)
    by_session = report.session_rows()
    rows = [
        [_round_value(column.value(session, by_session.get(key, ReportRow()))) for column in columns]
        for key, session in names.known.items()
    ]
    data = {
        "columns": [[column.label, column.kind, column.extra, _full_label(column)] for column in columns],
        "rows": rows,
        "folder": one_line(names.folder),
        "sorted": [column.kind for column in columns].index("dollars"),
    }
    parts = groupby(columns, lambda column: (column.group, column.look if column.extra else "", column.extra))
    groups = [(*key, len(list(some))) for key, some in parts]
    return SessionTable(columns, groups, _script_json(data))


def _full_label(column: Column) -> str:
    """Make a label that is clear without the group's head, for narrow screens."""
    if column.kind == "saving":
        return f"{column.label} saved"
    return f"{column.group}: {column.label}" if column.group else column.label


def _make_columns(report: Report, names: SessionLinks, looks: Mapping[str, str]) -> list[Column]:
    cost = Column("nothing done", "dollars", "input, by our replay", _replayed_value(lambda each: each.baseline.cost))
    first = (
        Column("paid", "dollars", "for input and output, at list prices", _paid_cost) if report.total.counted else cost
    )
    columns = [
        Column("session", "session", "", lambda session, row: _session_cell(session, names)),
        Column("when", "when", "start of the session", lambda session, row: names.when(session)),
        Column("model", "text", "the first one, and how many more", lambda session, row: _model_cell(session)),
        Column("requests", "count", "", lambda session, row: row.requests or row.session_requests),
        first,
    ]
    columns += [
        Column(one_line(name), "saving", SAVED, _saving_value(name), "saved with", look) for name, look in looks.items()
    ]
    columns.append(Column("agent", "text", "", lambda session, row: one_line(session.agent), extra=True))
    if looks:
        columns += [each._replace(group="nothing done", extra=True) for each in _baseline_columns()]
    for name, look in looks.items():
        columns += [each._replace(group=one_line(name), look=look, extra=True) for each in _profile_columns(name)]
    return [*columns, Column("log", "log", "the file it was read from", lambda session, row: "", extra=True)]


SAVED = "dollars of input, and share of the baseline"


def _baseline_columns() -> tuple[Column, ...]:
    return (
        Column(
            "recorded",
            "dollars",
            "recorded cost of input",
            _replayed_value(lambda each: each.recorded and each.recorded.cost),
        ),
        Column("error", "error", "replayed cost against recorded cost", _replayed_value(_replay_error)),
        Column("cost", "dollars", "input, by our replay", _replayed_value(lambda each: each.baseline.cost)),
        Column("read", "share", "share of the input read from the cache, as recorded", _replayed_value(_read_share)),
        Column("lost", "dollars", "recorded cost of cache misses", _replayed_value(_miss_cost)),
        Column("peak", "tokens", "size of the largest request", _replayed_value(lambda each: each.baseline.peak)),
        Column(
            "broken",
            "count",
            "requests that break a rule of their provider",
            _replayed_value(lambda each: each.invalid),
        ),
    )


def _profile_columns(name: str) -> tuple[Column, ...]:
    def outcome_value(value: Callable[[ProfileOutcome], Any]) -> Value:
        return _replayed_value(lambda each: value(each.profiles[name]))

    return (
        Column("cost", "dollars", "input, by our replay", outcome_value(lambda each: each.spent.cost)),
        Column("share saved", "share", "share of the baseline", _replayed_value(lambda each: _saved_share(each, name))),
        Column("worst moment", "error", "largest extra cost at any time", outcome_value(lambda each: each.worst)),
        Column(
            "cache rewritten",
            "count",
            "requests that changed text already sent, so that the provider wrote its cache again",
            outcome_value(lambda each: each.spent.breaks),
        ),
        Column("peak", "tokens", "size of the largest request", outcome_value(lambda each: each.spent.peak)),
        Column("laws", "count", "violated invariants of ibidem", outcome_value(lambda each: each.law_failures)),
    )


def _replayed_value(value: Callable[[SessionResult], Any]) -> Value:
    """Make a column value that only replayed sessions have."""
    return lambda session, row: value(row.replayed[-1]) if row.replayed else None


def _session_cell(session: KnownSession, names: SessionLinks) -> list[str]:
    texts = (
        names.title(session),
        names.below(session),
        session.id,
        session.project,
        names.short_path(session),
        session.name,
    )
    return [*map(one_line, texts), names.links.get(session.key, "")]


def _model_cell(session: KnownSession) -> str:
    if not session.models:
        return ""
    suffix = f" +{len(session.models) - 1}" if len(session.models) > 1 else ""
    return one_line(session.models[0]) + suffix


def _saving_value(name: str) -> Value:
    def saving_pair(session: SessionResult) -> list[float]:
        saving = session.baseline.cost - session.profiles[name].spent.cost
        return [round(saving, 6), round(_saved_share(session, name), 6)]

    return _replayed_value(saving_pair)


def _saved_share(session: SessionResult, name: str) -> float:
    return drop_rounding(session.saved_share(name))


def _paid_cost(session: KnownSession, row: ReportRow) -> float | None:
    return row.total if row.counted else None


def _replay_error(session: SessionResult) -> float | None:
    check = session.recorded
    return check.baseline / check.cost - 1 if check and check.cost else None


def _read_share(session: SessionResult) -> float | None:
    return session.cached.shares.read if session.cached else None


def _miss_cost(session: SessionResult) -> float | None:
    return sum(missed.cost for missed in session.cached.misses.values()) if session.cached else None


def _round_value(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _script_json(value: Any) -> Markup:
    """Encode JSON without the characters that could end the script element."""
    from markupsafe import Markup

    data = json.dumps(value, separators=(",", ":"))
    return Markup(data.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"))
