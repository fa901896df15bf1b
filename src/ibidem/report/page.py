"""The report as one HTML page that needs nothing else: no network, no script but its own, light and dark, on paper.

All but the table of sessions is plain HTML. That table may have thousands of rows, so it travels as data and the page's
script writes the rows. Whatever comes out of a log is text, never markup: `charts.text` is the way into the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources
from statistics import median
from types import MappingProxyType
from typing import IO, NamedTuple

from .. import __version__
from . import answers
from .caching import cached_section
from .changes import changes
from .charts import (
    MAX_ROWS,
    Mark,
    bar,
    cell,
    compared,
    heads,
    left_out,
    money_cell,
    path_cell,
    percent,
    ranking,
    saved_share,
    share_cell,
    table,
    text,
    tidy,
)
from .figures import SessionFigures, Spent
from .groups import Group
from .names import Links, Names
from .notes import notes
from .numbers import NO_NUMBER, ROUNDING, dollars, file_size, plural, tokens
from .session_table import session_table
from .timeline import time_slots, timeline
from .totals import Repeated, Report, saved_in

COLOURED_PROFILES = 4
"""Profiles that have a colour of their own; their names always stand beside it."""


def write_page(report: Report, stream: IO[str], links: Links = MappingProxyType({})) -> None:
    """`links` says where the details of a session are, where there are some."""
    style, script = _file("page.css"), _file("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    stream.write(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>What it cost – ibidem report</title>
<style>{style}</style>
</head>
<body>
{_ReportPage(report, links).body()}
<script>{script}</script>
</body>
</html>
""")


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _digest(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


class Section(NamedTuple):
    anchor: str
    short: str
    """As the list of sections calls it."""
    title: str
    body: str


class _ReportPage:
    """Knows what all parts of the page need: what sessions are called, and the colour of each profile."""

    def __init__(self, report: Report, links: Links) -> None:
        self.report = report
        self.total = report.total
        self.names = Names(report, links)
        profiles = report.profiles if report.sessions else ()
        self.looks = {name: f"p{number % COLOURED_PROFILES}" for number, name in enumerate(profiles)}

    def body(self) -> str:
        sections = [each for each in self._sections() if each.body]
        links = "".join(f'<a href="#{each.anchor}">{each.short}</a>' for each in sections)
        parts = "\n".join(
            f'<section id="{each.anchor}">\n<h2>{each.title}</h2>\n{each.body}\n</section>' for each in sections
        )
        return f"""{self._answers()}
<nav aria-label="Sections">{links}</nav>
<main>
{parts}
</main>
<footer>ibidem {text(__version__)} · {self._source()} · made on this machine; nothing was sent anywhere</footer>"""

    def _source(self) -> str:
        report = self.report
        return f"{plural(report.files_read, 'file')}, {file_size(report.bytes_read)}"

    def _answers(self) -> str:
        """The first screen."""
        report, looks = self.report, self.looks
        slots = time_slots(report, list(looks))
        head = f"""<header>
<h1>What it cost, and what would have been saved</h1>
<p class="soft">{answers.period(report, slots.shown)}</p>
{answers.first_lines(report)}
"""
        if not self.names.known:
            return f"{head}</header>"
        blocks = (
            (f"Paid by {slots.unit}", "wide", timeline(slots, looks, bool(report.tally.counted))),
            ("By model", "models", answers.models(report, looks)),
            ("Tools that repeat most", "", answers.repeats("tool", report.tools, looks)),
            ("Files that repeat most", "", answers.repeats("file", report.files, looks)),
        )
        shown = "\n".join(
            f'<section class="{look}">\n<h2>{title}</h2>\n{body}\n</section>' for title, look, body in blocks if body
        )
        return f'{head}{answers.figures(report, looks)}\n</header>\n<div class="overview">\n{shown}\n</div>'

    def _sections(self) -> Iterable[Section]:
        report = self.report
        if self.names.known:
            yield Section("sessions", "Sessions", "Sessions", session_table(report, self.names, self.looks))
        if report.sessions:
            caching = cached_section(report, self.names)
            changed = changes(self.total, self.names, self.looks)
            yield Section("cost", "Cost of input", "Cost of input, replayed", self._costs())
            yield Section("caching", "Caching", "How it was cached", caching)
            yield Section("error", "Replay error", "How far the replay is off", self._error())
            yield Section("more", "Cost more?", "Would any session have cost more?", self._cost_more())
            yield Section("changes", "Changes", "What changing it again costs", changed)
            yield Section("strategies", "Strategies", "Where the saving comes from", self._strategies())
            yield Section("agents", "Agents", "By agent", self._groups("agent", report.agents))
            yield Section("projects", "Projects", "By project", self._groups("project", report.projects))
            yield Section("tools", "Tools", "By tool", self._repeated("tool", report.tools))
            yield Section("files", "Files", "By file", self._repeated("file", report.files))
            yield Section("extremes", "Best and worst", "Best and worst", self._extremes())
            yield Section("context", "Context", "Context and cache", self._context())
        yield Section("notes", "Notes", "Notes", notes(report, self.names, self.looks))

    # --- what it cost ---------------------------------------------------------------------------

    def _costs(self) -> str:
        total, recorded = self.total, self.total.recorded
        rows: list[tuple[str, float, str, str]] = []
        if recorded:
            partly = recorded.requests < total.requests
            which = f"{recorded.requests:,} of {total.requests:,} requests have usage" if partly else "as the logs say"
            rows.append(("Paid, as recorded", recorded.cost, "recorded", which))
            if partly:
                off = percent(total.error or 0.0, signed=True)
                rows.append(("The same requests, replayed", recorded.baseline, "nothing", f"{off} against recorded"))
        which = plural(total.requests, "request") if recorded else "no log recorded what was paid"
        rows.append(("Nothing done, replayed", total.baseline.cost, "nothing", which))
        for name, look in self.looks.items():
            cost = total.profiles[name].spent.cost
            rows.append((f"With {text(name)}", cost, look, compared(total.baseline.cost, cost)))
        high = max(row[1] for row in rows)
        lines = "\n".join(
            f'<div class="cost {look}"><span class="what">{what}</span><b>{dollars(cost)}</b>'
            f'{bar(cost, 0.0, high, look)}<span class="soft">{note}</span></div>'
            for what, cost, look, note in rows
        )
        free = "" if total.baseline.cost else "<p>The replay costs nothing, so there is nothing to save.</p>"
        thinking = ""
        if total.thinking:
            part = f"{dollars(total.thinking)} ({percent(total.thinking_share)})"
            thinking = f" Of the bill with nothing done, {part} is for thinking that is sent back with later requests."
        note = f"Input only, at list prices, in dollars.{thinking}"
        return f'<div class="costs">\n{lines}\n</div>{free}\n<p class="soft">{note}</p>'

    def _error(self) -> str:
        total, recorded = self.total, self.total.recorded
        if recorded is None or total.error is None:
            return (
                "<p><b>Unknown.</b> No log recorded usage, so the replay cannot be checked: "
                "costs follow from the rules of the providers' caches alone.</p>"
            )
        by_rule = total.error_by_rule or 0.0
        figures = (
            ("in total", percent(total.error, signed=True)),
            ("median session", percent(total.error_at(0.5) or 0.0)),
            ("90% of sessions are within", percent(total.error_at(0.9) or 0.0)),
            ("in total, by the cache rules alone", percent(by_rule, signed=True)),
        )
        tiles = "".join(f"<div><dt>{what}</dt><dd>{number}</dd></div>" for what, number in figures)
        rest = total.sessions - len(total.errors)
        other = f" The other {plural(rest, 'session')} recorded none and cannot be checked." if rest else ""
        return f"""<dl class="tiles">{tiles}</dl>
<p>{len(total.errors):,} of {plural(total.sessions, "session")} recorded usage, for
{plural(recorded.requests, "request")}:
{dollars(recorded.cost)} by the logs, {dollars(recorded.baseline)} by our replay.{other}</p>
<p class="soft">Where a log says what the provider's cache knew, the replay believes it. By the rules of the caches
alone, without looking at that, it comes to {dollars(recorded.by_rule)}.</p>"""

    # --- session by session ---------------------------------------------------------------------

    def _cost_more(self) -> str:
        by_name = {name: [(saved_share(each, name), each) for each in self.report.ranked(name)] for name in self.looks}
        shares = [saved for ranked in by_name.values() for saved, _ in ranked]
        low, high = min(shares), max(shares)
        blocks = []
        for name, ranked in by_name.items():
            marks = [Mark(saved, self.names.title(session)) for saved, session in ranked]
            caption = f"Share saved with {text(name)}, by session, best first"
            chart = ranking(marks, low, high, self.looks[name], caption) if len(marks) > 1 else ""
            blocks.append(f"<article>\n<h3>{text(name)}</h3>\n{self._verdict(name)}\n{chart}\n</article>")
        return f'<div class="side">{"".join(blocks)}</div>'

    def _verdict(self, name: str) -> str:
        """Whether any session would have cost more, which one most, and whether any had at some time."""
        sessions, profile = self.report.sessions, self.total.profiles[name]
        cheaper = sum(saved_share(session, name) > 0 for session in sessions)
        same = len(sessions) - cheaper - profile.dearer
        more = f"<b>{profile.dearer:,} would have cost more</b> than with nothing done"
        counts = f"{cheaper:,} would have cost less, {same:,} the same, {more}."
        lines = [f"<p>Of {plural(len(sessions), 'session')}: {counts}</p>"]
        if profile.dearer:
            worst = min(sessions, key=lambda session: saved_in(session, name))
            extra = worst.profiles[name].spent.cost - worst.baseline.cost
            by = f'<b class="neg">{percent(-saved_in(worst, name))} more</b> ({dollars(extra)})'
            lines.append(f"<p>The worst: {self.names.linked(worst)}, {by}.</p>")
        if profile.worst > ROUNDING:
            moment = max(sessions, key=lambda session: session.profiles[name].worst)
            lines.append(
                f"<p>At the worst moment of any, in {self.names.linked(moment)}, <b>{percent(profile.worst)} more</b> "
                "had been spent than with nothing done.</p>"
            )
        if profile.law_failures:
            lines.append(f'<p class="neg"><b>{plural(profile.law_failures, "broken law")}</b>: see the notes.</p>')
        return "\n".join(lines)

    def _extremes(self) -> str:
        if len(self.report.sessions) < 2:
            return ""
        blocks = []
        for name in self.looks:
            best, worst = self.report.extremes(name)
            for title, some in ((f"{text(name)}: best", best), (f"{text(name)}: worst", worst)):
                if some:
                    blocks.append(f"<article><h3>{title}</h3>{self._short(name, some)}</article>")
        return f'<div class="side">{"".join(blocks)}</div>'

    def _short(self, name: str, found: Iterable[SessionFigures]) -> str:
        head = "<tr><th>session</th><th>nothing done</th><th>saved</th><th>share</th></tr>"
        rows = "".join(
            f"<tr>{self.names.cell(each)}<td>{dollars(each.baseline.cost)}</td>"
            f"{money_cell(each.baseline.cost - each.profiles[name].spent.cost)}"
            f"{share_cell(saved_share(each, name))}</tr>"
            for each in found
        )
        return table(head, rows, f"sessions with {text(name)}", "narrow")

    # --- where it comes from --------------------------------------------------------------------

    def _strategies(self) -> str:
        by_name = {name: self._strategy_rows(name) for name in self.looks}
        costs = [cost for rows in by_name.values() for _, _, _, cost in rows]
        low, high = min([0.0, *costs]), max([0.0, *costs])
        blocks = []
        for name, rows in by_name.items():
            saved = self.total.baseline.cost - self.total.profiles[name].spent.cost
            lines = "".join(
                f'<tr><th scope="row">{what}</th><td class="chart">{bar(cost, low, high, self.looks[name])}</td>'
                f"{money_cell(cost)}<td>{gone}</td><td>{hits}</td></tr>"
                for what, hits, gone, cost in rows
            )
            sums = f'<tr class="sum"><th scope="row">in all</th><td></td>{money_cell(saved)}<td></td><td></td></tr>'
            head = "<tr><th>strategy</th><td></td><th>saved</th><th>tokens</th><th>times</th></tr>"
            shown = table(head, lines + sums, f"strategies of {text(name)}", "narrow")
            blocks.append(f"<article><h3>{text(name)}</h3>{shown}</article>")
        return (
            f'<div class="side">{"".join(blocks)}</div>\n<p class="soft">Tokens are counted once, when they are taken '
            "out; dollars add up over all requests that would have sent them again.</p>"
        )

    def _strategy_rows(self, name: str) -> list[tuple[str, str, str, float]]:
        profile = self.total.profiles[name]
        rows = sorted(profile.strategies.items(), key=lambda pair: -pair[1].cost)
        found = [(text(what), f"{each.hits:,}", tokens(each.tokens), each.cost) for what, each in rows]
        saved = self.total.baseline.cost - profile.spent.cost
        rest = saved - sum(each.cost for each in profile.strategies.values())
        if abs(rest) > 0.001 * abs(saved):
            found.append(("not due to one alone", "", "", rest))
        return found

    def _groups(self, what: str, groups: dict[str, Group]) -> str:
        rows = []
        for name, group in sorted(groups.items(), key=lambda pair: -pair[1].baseline.cost)[:MAX_ROWS]:
            paid, error = (group.recorded.cost, group.error) if group.recorded else (None, None)
            cells = [path_cell(name, name), f"<td>{group.sessions:,}</td><td>{group.requests:,}</td>"]
            cells.append(f"<td>{NO_NUMBER if paid is None else dollars(paid)}</td>")
            cells.append(f"<td>{percent(error, signed=True)}</td>")
            cells.append(f"<td>{dollars(group.baseline.cost)}</td>")
            for profile in self.looks:
                cells.append(f"<td>{dollars(group.profiles[profile].spent.cost)}</td>")
                cells.append(share_cell(tidy(group.saved(profile))))
            rows.append(f"<tr>{''.join(cells)}</tr>")
        head = heads((what, "sessions", "requests", "recorded", "error", "nothing done"), ("cost", "saved"), self.looks)
        return table(head, "".join(rows), f"by {what}", "folding") + left_out(len(groups))

    def _repeated(self, what: str, found: dict[str, Repeated]) -> str:
        """What is repeated most comes first: most tokens taken out, by whichever profile takes most."""

        def most(pair: tuple[str, Repeated]) -> tuple[float, float]:
            each = pair[1]
            return -max((saved.tokens for saved in each.profiles.values()), default=0.0), -each.results.tokens

        rows = []
        for name, each in sorted(found.items(), key=most)[:MAX_ROWS]:
            cells = [path_cell(name, name), f"<td>{each.results.count:,}</td><td>{tokens(each.results.tokens)}</td>"]
            for profile, look in self.looks.items():
                saved = each.profiles.get(profile)
                gone = saved.tokens / each.results.tokens if saved and each.results.tokens else 0.0
                cells.append(cell(tokens(saved.tokens if saved else 0), saved.tokens if saved else 0))
                cells.append(cell(bar(gone, 0.0, 1.0, look) + percent(gone), gone))
                cells.append(money_cell(saved.cost if saved else 0.0))
            rows.append(f"<tr>{''.join(cells)}</tr>")
        head = heads((what, "results", "tokens"), ("taken out", "share", "saved"), self.looks)
        return table(head, "".join(rows), f"by {what}", "folding") + left_out(len(found)) if rows else ""

    # --- the rest -------------------------------------------------------------------------------

    def _context(self) -> str:
        sessions = self.report.sessions
        ways: list[tuple[str, str, Spent, list[float]]] = [
            ("nothing done", "nothing", self.total.baseline, [each.baseline.peak for each in sessions])
        ]
        for name, look in self.looks.items():
            peaks = [each.profiles[name].spent.peak for each in sessions]
            ways.append((text(name), look, self.total.profiles[name].spent, peaks))
        high = max(spent.peak for _, _, spent, _ in ways)
        rows = "".join(
            f'<tr><th scope="row">{what}</th><td class="chart">{bar(spent.peak, 0.0, high, look)}</td>'
            f"<td>{tokens(spent.peak)}</td><td>{tokens(median(peaks))}</td><td>{tokens(spent.tokens)}</td>"
            f"<td>{percent(spent.read / spent.tokens if spent.tokens else 0.0)}</td><td>{spent.breaks:,}</td></tr>"
            for what, look, spent, peaks in ways
        )
        names = ("largest request", "median of largest", "sent in all", "read from cache", "cache rewritten")
        head = f"<tr><th></th><td></td>{''.join(f'<th>{name}</th>' for name in names)}</tr>"
        return (
            table(head, rows, "context and cache", "") + '<p class="soft">In tokens, as the provider counts. Cache '
            "rewritten: requests that changed what had been sent before, so that it had to be written anew.</p>"
        )
