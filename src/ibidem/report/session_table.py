"""The page's table of all sessions: its heads, and its rows as data. The page's script makes rows of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ..errors import one_line
from .charts import saved_share, table, text
from .figures import ProfileOutcome, SessionFigures
from .names import KnownSession, Names
from .tally import Tally
from .totals import Report


class SessionRow(NamedTuple):
    """A session, what was paid for it, and what would have been where it was replayed."""

    session: KnownSession
    tally: Tally
    figures: SessionFigures | None

    @property
    def requests(self) -> int:
        return self.tally.requests or (self.figures.requests if self.figures else 0)


Value = Callable[[SessionRow], Any]


class Column(NamedTuple):
    """What the kinds mean is in the script, which writes the rows."""

    label: str
    kind: str
    tip: str
    value: Value
    group: str = ""
    look: str = ""
    extra: bool = False
    """Shown only where more columns are asked for."""


CONTROLS = """<div class="controls">
<label>Search <input type="search" placeholder="title, project, id, model, path" spellcheck="false"></label>
<label>Show <select><option value="">all sessions</option>
<option value="more">that would have cost more</option>
<option value="recorded">with recorded usage</option>
<option value="broken">with requests that break a rule</option>
<option value="laws">with broken laws</option></select></label>
<label class="switch"><input type="checkbox" role="switch"> More columns</label>
<output role="status"></output>
</div>"""


def session_table(report: Report, names: Names, looks: Mapping[str, str]) -> str:
    """Heads and data; hidden until the script has made rows of it."""
    columns = _columns(report, names, looks)
    rows = [[_value(column.value(row)) for column in columns] for row in _rows(report, names)]
    data = {
        "columns": [[column.label, column.kind, column.extra, _alone(column)] for column in columns],
        "rows": rows,
        "folder": one_line(names.folder),
        "sorted": [column.kind for column in columns].index("dollars"),
    }
    return f"""<noscript><p>This table needs the page's own script; <code>ibidem report --csv</code> has the same.</p>
</noscript>
<div id="all" hidden>
{CONTROLS}
{table(_heads(columns), "", "all sessions", "sessions")}
<p><button type="button" class="more"></button></p>
</div>
<script type="application/json" id="data">{_data(data)}</script>"""


def _rows(report: Report, names: Names) -> Iterable[SessionRow]:
    tallies = dict(report.table("session"))
    figures = {each.key: each for each in report.sessions}
    for session in names.known.values():
        yield SessionRow(session, tallies.get(session.key, Tally()), figures.get(session.key))


def _heads(columns: list[Column]) -> str:
    """Two lines: what several columns have in common stands over them."""
    parts = groupby(columns, lambda column: (column.group, column.look if column.extra else "", column.extra))
    first = "".join(
        f'<th class="group {look}" colspan="{len(found)}" scope="colgroup"{_extra(extra)}>{group}</th>'
        if group
        else f'<td colspan="{len(found)}"{_extra(extra)}></td>'
        for (group, look, extra), each in parts
        for found in [list(each)]
    )
    second = "".join(
        f'<th class="{column.kind} {column.look}" scope="col" title="{column.tip}"{_extra(column.extra)}>'
        f'<button type="button">{column.label}</button></th>'
        for column in columns
    )
    return f"<tr>{first}</tr><tr>{second}</tr>"


def _alone(column: Column) -> str:
    """What a column is called where nothing stands over it."""
    if column.kind == "saving":
        return f"{column.label} saved"
    return f"{column.group}: {column.label}" if column.group else column.label


def _extra(extra: bool) -> str:
    return ' data-extra="1" hidden' if extra else ""


def _columns(report: Report, names: Names, looks: Mapping[str, str]) -> list[Column]:
    cost = Column("nothing done", "dollars", "input, by our replay", _of(lambda each: each.baseline.cost))
    first = Column("paid", "dollars", "for input and output, at list prices", _paid) if report.tally.counted else cost
    found = [
        Column("session", "session", "", lambda row: _session(row.session, names)),
        Column("when", "when", "when it began", lambda row: names.when(row.session)),
        Column("model", "text", "the first one, and how many more", lambda row: _model(row.session)),
        Column("requests", "count", "", lambda row: row.requests),
        first,
    ]
    found += [Column(text(name), "saving", SAVED, _saving(name), "saved with", look) for name, look in looks.items()]
    found.append(Column("agent", "text", "", lambda row: one_line(row.session.agent), extra=True))
    if looks:
        found += [each._replace(group="nothing done", extra=True) for each in _as_sent()]
    for name, look in looks.items():
        found += [each._replace(group=text(name), look=look, extra=True) for each in _under(name)]
    return [*found, Column("log", "log", "the file it was read from", lambda row: "", extra=True)]


SAVED = "of the input; its share of the cost with nothing done"


def _as_sent() -> tuple[Column, ...]:
    return (
        Column("recorded", "dollars", "input, as the log says", _of(lambda each: each.recorded and each.recorded.cost)),
        Column("error", "error", "of our replay, against what was recorded", _of(_off)),
        Column("cost", "dollars", "input, by our replay", _of(lambda each: each.baseline.cost)),
        Column("read", "share", "share of the input that came from a cache, as recorded", _of(_read)),
        Column("lost", "dollars", "paid for what could have been read from a cache, as recorded", _of(_lost)),
        Column("peak", "tokens", "of the largest request", _of(lambda each: each.baseline.peak)),
        Column("broken", "count", "requests that break a rule of their provider", _of(lambda each: each.invalid)),
    )


def _under(name: str) -> tuple[Column, ...]:
    def outcome(value: Callable[[ProfileOutcome], Any]) -> Value:
        return _of(lambda each: value(each.profiles[name]))

    return (
        Column("cost", "dollars", "input, by our replay", outcome(lambda each: each.spent.cost)),
        Column("share saved", "share", "of the cost with nothing done", _of(lambda each: saved_share(each, name))),
        Column("worst moment", "error", "how much more it had cost at any time", outcome(lambda each: each.worst)),
        Column(
            "cache rewritten",
            "count",
            "requests that changed what had been sent, so that a provider's cache had to be written anew",
            outcome(lambda each: each.spent.breaks),
        ),
        Column("peak", "tokens", "of the largest request", outcome(lambda each: each.spent.peak)),
        Column("laws", "count", "laws of ibidem that were broken", outcome(lambda each: each.law_failures)),
    )


def _of(value: Callable[[SessionFigures], Any]) -> Value:
    """What only sessions have that were replayed."""
    return lambda row: value(row.figures) if row.figures else None


def _session(session: KnownSession, names: Names) -> list[str]:
    known = (names.title(session), names.below(session), session.id, session.project, names.path(session), session.name)
    return [*map(one_line, known), names.links.get(session.key, "")]


def _model(session: KnownSession) -> str:
    if not session.models:
        return ""
    more = f" +{len(session.models) - 1}" if len(session.models) > 1 else ""
    return one_line(session.models[0]) + more


def _saving(name: str) -> Value:
    def value(row: SessionRow) -> list[float] | None:
        if row.figures is None:
            return None
        saved = saved_share(row.figures, name)
        return [round(row.figures.baseline.cost - row.figures.profiles[name].spent.cost, 6), round(saved, 6)]

    return value


def _paid(row: SessionRow) -> float | None:
    return row.tally.total if row.tally.counted else None


def _off(session: SessionFigures) -> float | None:
    found = session.recorded
    return found.baseline / found.cost - 1 if found and found.cost else None


def _read(session: SessionFigures) -> float | None:
    return session.cached.shares.read if session.cached else None


def _lost(session: SessionFigures) -> float | None:
    return sum(missed.cost for missed in session.cached.misses.values()) if session.cached else None


def _value(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _data(value: Any) -> str:
    """JSON that no text in it can get out of, whatever it contains."""
    found = json.dumps(value, separators=(",", ":"))
    return found.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
