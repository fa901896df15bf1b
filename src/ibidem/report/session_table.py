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
from .session_result import ProfileOutcome, SessionFigures

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
    columns = _columns(report, names, looks)
    by_session = report.session_rows()
    rows = [
        [_value(column.value(session, by_session.get(key, ReportRow()))) for column in columns]
        for key, session in names.known.items()
    ]
    data = {
        "columns": [[column.label, column.kind, column.extra, _alone(column)] for column in columns],
        "rows": rows,
        "folder": one_line(names.folder),
        "sorted": [column.kind for column in columns].index("dollars"),
    }
    parts = groupby(columns, lambda column: (column.group, column.look if column.extra else "", column.extra))
    groups = [(*key, len(list(some))) for key, some in parts]
    return SessionTable(columns, groups, _data(data))


def _alone(column: Column) -> str:
    """Make a label that is clear without the group's head, for narrow screens."""
    if column.kind == "saving":
        return f"{column.label} saved"
    return f"{column.group}: {column.label}" if column.group else column.label


def _columns(report: Report, names: SessionLinks, looks: Mapping[str, str]) -> list[Column]:
    cost = Column("nothing done", "dollars", "input, by our replay", _of(lambda each: each.baseline.cost))
    first = Column("paid", "dollars", "for input and output, at list prices", _paid) if report.total.counted else cost
    found = [
        Column("session", "session", "", lambda session, row: _session(session, names)),
        Column("when", "when", "start of the session", lambda session, row: names.when(session)),
        Column("model", "text", "the first one, and how many more", lambda session, row: _model(session)),
        Column("requests", "count", "", lambda session, row: row.requests or row.session_requests),
        first,
    ]
    found += [
        Column(one_line(name), "saving", SAVED, _saving(name), "saved with", look) for name, look in looks.items()
    ]
    found.append(Column("agent", "text", "", lambda session, row: one_line(session.agent), extra=True))
    if looks:
        found += [each._replace(group="nothing done", extra=True) for each in _as_sent()]
    for name, look in looks.items():
        found += [each._replace(group=one_line(name), look=look, extra=True) for each in _under(name)]
    return [*found, Column("log", "log", "the file it was read from", lambda session, row: "", extra=True)]


SAVED = "dollars of input, and share of the baseline"


def _as_sent() -> tuple[Column, ...]:
    return (
        Column("recorded", "dollars", "recorded cost of input", _of(lambda each: each.recorded and each.recorded.cost)),
        Column("error", "error", "replayed cost against recorded cost", _of(_off)),
        Column("cost", "dollars", "input, by our replay", _of(lambda each: each.baseline.cost)),
        Column("read", "share", "share of the input read from the cache, as recorded", _of(_read)),
        Column("lost", "dollars", "recorded cost of cache misses", _of(_lost)),
        Column("peak", "tokens", "size of the largest request", _of(lambda each: each.baseline.peak)),
        Column("broken", "count", "requests that break a rule of their provider", _of(lambda each: each.invalid)),
    )


def _under(name: str) -> tuple[Column, ...]:
    def outcome(value: Callable[[ProfileOutcome], Any]) -> Value:
        return _of(lambda each: value(each.profiles[name]))

    return (
        Column("cost", "dollars", "input, by our replay", outcome(lambda each: each.spent.cost)),
        Column("share saved", "share", "share of the baseline", _of(lambda each: _saved_share(each, name))),
        Column("worst moment", "error", "largest extra cost at any time", outcome(lambda each: each.worst)),
        Column(
            "cache rewritten",
            "count",
            "requests that changed text already sent, so that the provider wrote its cache again",
            outcome(lambda each: each.spent.breaks),
        ),
        Column("peak", "tokens", "size of the largest request", outcome(lambda each: each.spent.peak)),
        Column("laws", "count", "violated invariants of ibidem", outcome(lambda each: each.law_failures)),
    )


def _of(value: Callable[[SessionFigures], Any]) -> Value:
    """Make a column value that only replayed sessions have."""
    return lambda session, row: value(row.replayed[-1]) if row.replayed else None


def _session(session: KnownSession, names: SessionLinks) -> list[str]:
    known = (names.title(session), names.below(session), session.id, session.project, names.path(session), session.name)
    return [*map(one_line, known), names.links.get(session.key, "")]


def _model(session: KnownSession) -> str:
    if not session.models:
        return ""
    more = f" +{len(session.models) - 1}" if len(session.models) > 1 else ""
    return one_line(session.models[0]) + more


def _saving(name: str) -> Value:
    def value(session: SessionFigures) -> list[float]:
        saved = session.baseline.cost - session.profiles[name].spent.cost
        return [round(saved, 6), round(_saved_share(session, name), 6)]

    return _of(value)


def _saved_share(session: SessionFigures, name: str) -> float:
    return drop_rounding(session.saved_share(name))


def _paid(session: KnownSession, row: ReportRow) -> float | None:
    return row.total if row.counted else None


def _off(session: SessionFigures) -> float | None:
    found = session.recorded
    return found.baseline / found.cost - 1 if found and found.cost else None


def _read(session: SessionFigures) -> float | None:
    return session.cached.shares.read if session.cached else None


def _lost(session: SessionFigures) -> float | None:
    return sum(missed.cost for missed in session.cached.misses.values()) if session.cached else None


def _value(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _data(value: Any) -> Markup:
    """Encode JSON without the characters that could end the script element."""
    from markupsafe import Markup

    data = json.dumps(value, separators=(",", ":"))
    return Markup(data.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"))
