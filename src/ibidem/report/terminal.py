"""The report in a terminal, from totals to details. Piped output is plain text. Texts are never parsed as markup."""

from __future__ import annotations

from collections import Counter
from typing import IO, Literal

from rich.console import Console
from rich.text import Text

from ..render.number_format import NO_NUMBER, dollars, file_size, percent, plural, saved_share, tokens
from ..render.terminal_layout import Bar, TableCell, TableRow, colour, say, short, table
from . import caching_section as caching
from .aggregate import RepeatTotals, Report, ReportRow
from .footnotes import restored_notes, unread_notes
from .headline import logged_line, need_line, next_step, paid_line, saving_line
from .terminal_tables import draw_sessions, draw_table, draw_windows, rest, session_name, top


def draw_paid(report: Report, stream: IO[str], *, plain: bool = False) -> None:
    """Print the recorded cost, which needs no replay."""
    console = _console(stream, plain)
    with console.capture() as page:
        _paid(console, report)
    _write(page.get(), stream)
    stream.flush()


def draw(report: Report, stream: IO[str], *, plain: bool = False, begun: bool = False) -> None:
    """Print the report; without its first part if `draw_paid` printed that already (`begun`)."""
    console = _console(stream, plain)
    with console.capture() as page:  # rich exits on a closed pipe, so `_write_page` writes the text
        _title(console, report, begun)
        if report.sessions or report.paid:
            _asked(console, report)
        if report.sessions:
            _bills(console, report)
            _ways(console, report.total)
            _changes(console, report)
            _error(console, report.total)
            _cached(console, report)
            _strategies(console, report)
            _groups(console, "agent", report)
            _groups(console, "project", report)
            for what, found in (("tool", report.tools), ("file", report.files)):
                if what not in report.asked.by:
                    _repeated(console, what, found, report)
            draw_sessions(console, report)
        _notes(console, report)
    _write(page.get(), stream)


def _console(stream: IO[str], plain: bool) -> Console:
    return Console(file=stream, markup=False, emoji=False, highlight=False, no_color=plain or None)


def _write(text: str, stream: IO[str]) -> None:
    stream.write("\n".join(line.rstrip() for line in text.split("\n")))  # rich fills lines with spaces


def _title(console: Console, report: Report, begun: bool) -> None:
    if said := caching.headline(report.total):
        say(console, f"{said} ({caching.MARKS_COMMAND}).", "bold yellow")
    if not begun:
        _paid(console, report)
    if report.partial:
        say(console, report.partial, "bold yellow")
    if not report.sessions and not report.paid:
        return
    if said := saving_line(report):
        say(console, said, "bold")
    for said in filter(None, (logged_line(report.total), next_step(report))):
        say(console, said, "green")


def _paid(console: Console, report: Report) -> None:
    if report.sample:
        say(console, "No agent logs found on this machine. This is the bundled sample.", "yellow")
    if report.asked.period:
        say(console, report.asked.period, "dim")
    if not report.sessions and not report.paid:
        if report.partial:
            return
        read = f"{plural(report.files_read, 'file')}, {file_size(report.bytes_read)}"
        looked = " Files without a session:" if report.unread else ""
        say(console, f"No session was found ({read}).{looked}", "bold")
        return
    say(console, paid_line(report), "bold")


def _asked(console: Console, report: Report) -> None:
    """Print the tables of `--by`."""
    for by in report.asked.by:
        if by == "window":
            draw_windows(console, report)
        elif by in ("tool", "file"):
            _repeated(console, by, report.tools if by == "tool" else report.files, report)
        else:
            draw_table(console, report, by)  # type: ignore[arg-type]  # the command line took nothing else


def _bills(console: Console, report: Report) -> None:
    total = report.total
    recorded = total.recorded.cost if total.recorded else 0.0
    widest = max(recorded, total.baseline.cost, *(each.spent.cost for each in total.profiles.values())) or 1.0
    rows: list[TableRow] = []
    if total.recorded:
        some = "" if total.recorded.requests == total.session_requests else " in part"
        rows.append(
            (f"recorded{some}", dollars(total.recorded.cost), "", "", "", "", Bar(total.recorded.cost / widest, "dim"))
        )
    base = total.baseline
    sizes = (tokens(base.tokens), tokens(base.peak), f"{base.breaks:,}")
    rows.append(("nothing done", dollars(base.cost), "", *sizes, Bar(base.cost / widest, "")))
    for name, profile in total.profiles.items():
        spent = profile.spent
        saved = total.profile_share(name)
        rows.append(
            (
                name,
                dollars(spent.cost),
                _saved(saved),
                tokens(spent.tokens),
                tokens(spent.peak),
                f"{spent.breaks:,}",
                Bar(spent.cost / widest, colour(saved)),
            )
        )
    table(console, ("what it costs", "input $", "saved", "tokens", "peak", "cache rewritten", ""), rows)
    if total.thinking:
        part = f"{dollars(total.thinking)} ({percent(total.thinking_share)})"
        say(console, f"The cost without ibidem includes {part} for thinking that later requests send back.")


def _ways(console: Console, total: ReportRow) -> None:
    """Print the costs of the compared caching modes, with and without each profile."""
    found = list(caching.caching_modes(total))
    widest = max([total.baseline.cost, *(each.cost for _, _, each in found)]) or 1.0
    rows: list[TableRow] = []
    for asked, way, each in found:
        saved = saved_share(total.baseline.cost, each.cost)
        cells = (dollars(each.cost), _saved(saved), f"{each.more_expensive:,}", percent(each.ratio))
        rows.append((f"  {way}" if way else asked, *cells, Bar(each.cost / widest, colour(saved))))
    if not rows:
        return
    table(console, ("caching mode", "input $", "saved", "cost more", "worst", ""), rows)
    say(console, WAYS, "dim")
    if said := caching.as_they_are(total):
        say(console, said)
    named: dict[tuple[str, str], str] = {}
    for asked, way, each in found:
        if each.highest and each.more_expensive:
            named.setdefault((asked, session_name(each.highest)), f"{asked}, {way}" if way else asked)
    for (_, label), who in named.items():
        say(console, f"{who}: worst is {label}.")


WAYS = (
    "Compared with the recorded caching, without ibidem. cost more: number of sessions; worst: the highest cost of a"
    " session, as a share of its cost without ibidem. Misses caused by idle time are simulated, other misses are as"
    " recorded."
)


def _cached(console: Console, report: Report) -> None:
    """Print the cache shares by agent, and cache misses by cause."""
    total = report.total
    if total.cached is None:
        return
    rows: list[TableRow] = [
        (short(name), f"{sessions:,}", *map(percent, shares)) for name, sessions, shares in caching.by_agent(report)
    ]
    table(console, ("cached input", "sessions", *caching.SHARES), rows)
    if said := caching.not_recorded(report):
        say(console, said)
    misses = caching.by_cost(total)
    largest = max((abs(missed.cost) for _, missed in misses), default=0.0) or 1.0
    rows = []
    for cause, missed in misses:
        part = missed.cost / total.cached_cost if total.cached_cost else 0.0
        cells = (f"{missed.count:,}", tokens(missed.tokens), dollars(missed.cost), percent(part))
        rows.append((caching.CAUSES[cause], *cells, Bar(missed.cost / largest, "red")))
    table(console, ("cause of cache misses", "misses", "tokens", "lost $", "of bill", ""), rows)
    for cause, _ in misses[: caching.NAMED_CAUSES]:
        if named := caching.most_expensive_miss(total, cause):
            say(console, f"{cause}: {named[0]} {session_name(named[1])}.")


def _changes(console: Console, report: Report) -> None:
    """Print the costs of profiles that revise text already sent, in the scenarios `hit` and `miss`."""
    total = report.total
    revising = {name: total.revisions(name) for name in total.profiles}
    hindsight = any(each.best is not None for scenarios in revising.values() for each in scenarios.values())
    rows: list[TableRow] = []
    for name, scenarios in revising.items():
        for world, each in scenarios.items():
            saved = saved_share(total.baseline.cost, each.cost)
            row: list[TableCell] = [
                name if world == "hit" else "  on a miss",
                dollars(each.cost),
                _saved(saved),
            ]
            row.append(dollars(each.rewrites))
            if hindsight:
                best = None if each.best is None else saved_share(total.baseline.cost, each.best)
                row += [percent(best), percent(each.reached(total.baseline.cost))]
            rows.append([*row, percent(each.ratio), percent(each.worst, signed=True)])
    if rows:
        more = ("optimum", "reached") if hindsight else ()
        table(console, ("after a revision", "input $", "saved", "rewrites", *more, "worst", "ever"), rows)
        say(console, EXPLAINED + (HINDSIGHT if hindsight else ""), "dim")
    for name in revising:
        _verdict(console, name, total)


EXPLAINED = (
    "After a revision, the provider's cache still has the prefix before it; on a miss, no part of the conversation."
    " rewrites: cost of writing the cache again; worst: the highest cost of a session, as a share of its cost without"
    " ibidem; ever: the largest extra cost of a session at any time."
)
HINDSIGHT = " optimum: savings of the same edits at the best times; reached: the saved share of the optimum."


def _verdict(console: Console, name: str, total: ReportRow) -> None:
    """Print why a profile revised text already sent, and its most expensive session."""
    points, scenarios = Counter(total.profiles[name].points), total.revisions(name).values()
    if points:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in points.most_common())
        say(console, f"{name} revised sent text {points.total():,} times: {reasons}.")
    if needed := need_line(name, total):
        say(console, needed)
    worst_ones = dict.fromkeys(session_name(each.highest) for each in scenarios if each.highest)
    for label, when in zip(worst_ones, ("", " on a miss"), strict=False):
        say(console, f"{name}: worst{when} is {label}.")
    dearer = max([total.more_expensive(name), *(each.more_expensive for each in scenarios)])
    moments = [(each.worst, session_name(each.worst_in)) for each in scenarios if each.worst_in]
    worst, label = max(moments, default=(total.profiles[name].worst, ""))
    if dearer or worst > 5e-4:
        say(
            console,
            f"{name}: {plural(dearer, 'session')} would have cost more than without ibidem. Largest extra cost at"
            f" any time: {percent(worst)}{f', {label}' if label else ''}.",
            "red",
        )


def _error(console: Console, total: ReportRow) -> None:
    console.print()
    if total.recorded is None:
        say(console, "The logs record no usage, so the computed costs cannot be checked.", "yellow")
        return
    recorded = total.recorded
    requests = total.session_requests
    of = "" if recorded.requests == requests else f" (for {recorded.requests:,} of {requests:,} requests)"
    say(
        console,
        f"Error of the replay against the recorded cost{of}: {percent(total.error, signed=True)} in total, median"
        f" session {percent(total.error_at(0.5))}, 90% of sessions within {percent(total.error_at(0.9))}."
        f" Without recorded cache reads: {percent(total.error_by_rule, signed=True)}.",
    )


def _strategies(console: Console, report: Report) -> None:
    rows: list[TableRow] = []
    for name, profile in report.total.profiles.items():
        largest = max((abs(saved.cost) for saved in profile.strategies.values()), default=0.0) or 1.0
        for strategy, saved in sorted(profile.strategies.items(), key=lambda item: -item[1].cost):
            part = saved.cost / report.total.baseline.cost if report.total.baseline.cost else 0.0
            bar = Bar(abs(saved.cost) / largest, "green" if saved.cost > 0 else "red")
            cells = (f"{saved.hits:,}", tokens(saved.tokens), dollars(saved.cost), percent(part), bar)
            rows.append((f"{name}: {strategy}" if len(report.profiles) > 1 else strategy, *cells))
    table(console, ("strategy", "hits", "tokens", "saved $", "of bill", ""), rows)


def _groups(console: Console, what: Literal["agent", "project"], report: Report) -> None:
    groups = report.groups(what)
    if len(groups) < 2 or what in report.asked.by:
        return
    ordered = sorted(groups.items(), key=lambda item: -item[1].baseline.cost)
    rows: list[TableRow] = [
        (
            short(name),
            f"{len(group.replayed):,}",
            f"{group.session_requests:,}",
            dollars(group.baseline.cost),
            percent(group.error, signed=True),
            *(_saved(group.profile_share(profile)) for profile in report.profiles),
        )
        for name, group in ordered[: top(report)]
    ]
    table(console, (what, "sessions", "requests", "input $", "error", *report.profiles), rows)
    rest(console, len(ordered), top(report))


def _saved(share: float) -> Text:
    return Text(percent(share), colour(share))


def _repeated(console: Console, what: str, found: dict[str, RepeatTotals], report: Report) -> None:
    """Print tools or files by the saving of the first profile."""
    first = report.profiles[0]

    ordered = report.most_saved(found)
    rows = [
        (
            short(name),
            f"{entry.results.count:,}",
            tokens(entry.results.tokens),
            percent(entry.profiles[first].tokens / entry.results.tokens if entry.results.tokens else 0.0)
            if first in entry.profiles
            else NO_NUMBER,
            dollars(entry.profiles[first].cost if first in entry.profiles else 0.0),
        )
        for name, entry in ordered[: top(report)]
    ]
    table(console, (what, "results", "tokens", "removed", "saved $"), rows)
    rest(console, len(ordered), top(report))


def _notes(console: Console, report: Report) -> None:
    notes = []
    for model, other in report.priced_as.items():
        notes.append(f"Model {short(model)} is not in the price list: priced as {other}.")
    if report.skipped:
        notes.append(f"{plural(report.skipped, 'line')} of logs could not be parsed and were skipped: see --json.")
    if report.invalid:
        rules = ", ".join(f"{rule} {number:,}" for rule, number in report.violations.most_common(3))
        taken = f"; the provider accepted {report.accepted:,}" if report.accepted else ""
        told = f"{plural(report.invalid, 'request')} in the logs break a rule of the provider"
        notes.append(f"{told} ({rules}){taken}.")
    failures = {name: profile.law_failures for name, profile in report.total.profiles.items() if profile.law_failures}
    notes += [f"{name}: {plural(number, 'invariant failure')}: see --json." for name, number in failures.items()]
    notes += restored_notes(report)
    notes += map(short, unread_notes(report))
    if caching.headline(report.total):
        notes.append(caching.ADVICE)
    if notes:
        console.print()
    for note in notes:
        say(console, note, "dim")
