"""The first screen of the page: what was paid, what would have been saved, when, with which model, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from .caching import banner
from .charts import cell, heads, money_cell, percent, table, text
from .figures import NOTHING_DONE
from .headline import logged_line, next_step, wrap_command
from .numbers import NO_NUMBER, dollars, plural
from .tally import Tally
from .timeline import TimeSlot
from .totals import Repeated, Report

NAMED_MODELS = 6
NAMED_REPEATS = 6
"""Tools, and files, that are named first; all of them are below."""


def first_lines(report: Report) -> str:
    """What comes before everything else: what it is about, and what to mind."""
    lines = []
    if report.partial:
        lines.append(f'<p class="banner"><b>{text(report.partial)}</b></p>')
    if report.sample:
        lines.append(
            '<p class="banner"><b>These are figures of the bundled sample</b>: no logs were found. '
            "Name a log or a folder of logs to see your own: <code>ibidem report PATH</code></p>"
        )
    lines += filter(None, [banner(report.total.cached)])
    if not report.sessions and not report.paid:
        lines.append('<p class="banner"><b>No session was found</b>, so there is nothing to price.</p>')
    return "\n".join(lines)


def period(report: Report, slots: Sequence[TimeSlot]) -> str:
    """In the words of the terminal; from when to when, where all there is was asked for."""
    if report.asked.period or not slots:
        return text(report.asked.period)
    return " to ".join(dict.fromkeys((slots[0].name, slots[-1].name)))


def figures(report: Report, looks: Mapping[str, str]) -> str:
    """The few numbers that everybody looks for, largest; and how to go on."""
    tiles = "".join([_paid(report), *(_profile(report.tally, name, look) for name, look in looks.items())])
    lines = [f'<dl class="answers">{tiles}</dl>']
    if said := logged_line(report.tally):
        lines.append(f'<p class="good">{text(said)}</p>')
    if said := next_step(report):
        command = wrap_command(report)
        lines.append(f'<p class="next">{text(said.removesuffix(command))}<code>{text(command)}</code></p>')
    return "\n".join(lines)


def _tile(look: str, what: str, number: str, notes: Iterator[str]) -> str:
    lines = "".join(f"<span>{note}</span>" for note in notes)
    return f'<div class="{look}"><dt>{what}</dt><dd><b>{number}</b>{lines}</dd></div>'


def _paid(report: Report) -> str:
    tally, known = report.tally, bool(report.tally.counted)
    return _tile("recorded", "Paid", dollars(tally.total) if known else "not known", _about(report))


def _about(report: Report) -> Iterator[str]:
    tally, total = report.tally, report.total
    sessions, requests = len(tally.sessions) or total.sessions, tally.requests or total.requests
    if tally.counted:
        yield f"{dollars(tally.input)} input, {dollars(tally.output)} output"
    else:
        yield "The logs record no usage."
        yield f"Input, by our replay: {dollars(total.baseline.cost)}"
    yield f"{plural(sessions, 'session')}, {plural(requests, 'request')}"
    if 0 < tally.counted < requests:
        yield f"{requests - tally.counted:,} of these recorded no usage"


def _profile(tally: Tally, name: str, look: str) -> str:
    saved, part = tally.saved(name), tally.saved_share(name) or 0.0
    more = saved < 0 and dollars(-saved) != dollars(0.0)
    what = f"{text(name)} would have {'cost more' if more else 'saved'}"
    notes = (
        f"{percent(abs(part))} {'more' if more else 'of the input'}",
        f"{dollars(tally.costs.get(name, 0.0))} instead of {dollars(tally.costs.get(NOTHING_DONE, 0.0))}, replayed",
    )
    return _tile(f"{look}{' minus' * more}", what, dollars(abs(saved)), iter(notes))


# --- by what ------------------------------------------------------------------------------------


def models(report: Report, looks: Mapping[str, str]) -> str:
    rows = report.table("model")
    known = bool(report.tally.counted)
    lines = []
    for (name, *_), tally in rows[:NAMED_MODELS]:
        amount = tally.total if known else tally.costs.get(NOTHING_DONE, 0.0)
        lines.append(
            f'<tr><th scope="row">{text(name)}</th>'
            f"<td>{dollars(amount) if tally.counted or not known else NO_NUMBER}</td>"
            f"{''.join(_saved_cell(tally, profile) for profile in looks)}</tr>"
        )
    rest = len(rows) - NAMED_MODELS
    more = f'<p class="soft">… and {rest:,} more: <code>ibidem report --by model</code></p>' if rest > 0 else ""
    head = heads(("model", "paid" if known else "nothing done"), ("saved",), looks)
    return table(head, "".join(lines), "by model", "narrow") + more if lines else ""


def _path(name: str) -> str:
    """On one line; the end of a path says most."""
    return f'<th scope="row" class="path" title="{text(name)}"><span><bdi>{text(name)}</bdi></span></th>'


def _saved_cell(tally: Tally, profile: str) -> str:
    saved = tally.saved_share(profile)
    return f"<td>{NO_NUMBER}</td>" if saved is None else cell(percent(saved), saved)


def repeats(what: str, found: Mapping[str, Repeated], looks: Mapping[str, str]) -> str:
    """By what the first profile saves, as in the terminal."""
    if not looks:
        return ""
    first = next(iter(looks))

    def saved(each: Repeated, profile: str) -> float:
        return each.profiles[profile].cost if profile in each.profiles else 0.0

    ranked = sorted(found.items(), key=lambda pair: -saved(pair[1], first))
    some = [(name, each) for name, each in ranked if any(saved(each, profile) > 0 for profile in looks)]
    lines = "".join(
        f"<tr>{_path(name)}{''.join(money_cell(saved(each, profile)) for profile in looks)}</tr>"
        for name, each in islice(some, NAMED_REPEATS)
    )
    return table(heads((what,), ("saved",), looks), lines, f"{what}s that repeat most", "narrow") if lines else ""
