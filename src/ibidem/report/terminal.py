"""The report in a terminal, from totals to details. Piped output is plain text. Texts are never parsed as markup."""

from __future__ import annotations

from collections import Counter
from typing import IO, Literal

from rich.console import Console
from rich.text import Text

from ..render.number_format import NO_NUMBER, dollars, file_size, percent, plural, saved_share, tokens
from ..render.terminal_layout import Bar, TableCell, TableRow, print_table, print_text, saving_color, single_line
from . import caching_section as caching
from .aggregate import RepeatTotals, Report, ReportRow
from .footnotes import restored_notes, unread_notes
from .headline import logged_line, need_line, next_step, paid_line, saving_line
from .terminal_tables import draw_sessions, draw_table, draw_windows, print_rest, row_limit, session_name


def draw_paid(report: Report, stream: IO[str], *, plain: bool = False) -> None:
    """Print the recorded cost, which needs no replay."""
    console = _make_console(stream, plain)
    with console.capture() as page:
        _draw_cost(console, report)
    _write_page(page.get(), stream)
    stream.flush()


def draw_report(report: Report, stream: IO[str], *, plain: bool = False, is_started: bool = False) -> None:
    """Print the report; without its first part if `draw_paid` printed that already (`is_started`)."""
    console = _make_console(stream, plain)
    with console.capture() as page:  # rich exits on a closed pipe, so `_write_page` writes the text
        _draw_title(console, report, is_started)
        if report.sessions or report.paid:
            _draw_tables(console, report)
        if report.sessions:
            _draw_bills(console, report)
            _draw_caching_modes(console, report.total)
            _draw_revisions(console, report)
            _draw_error(console, report.total)
            _draw_cache_use(console, report)
            _draw_strategies(console, report)
            _draw_groups(console, "agent", report)
            _draw_groups(console, "project", report)
            for what, totals in (("tool", report.tools), ("file", report.files)):
                if what not in report.asked.by:
                    _draw_repeats(console, what, totals, report)
            draw_sessions(console, report)
        _draw_notes(console, report)
    _write_page(page.get(), stream)


def _make_console(stream: IO[str], plain: bool) -> Console:
    return Console(file=stream, markup=False, emoji=False, highlight=False, no_color=plain or None)


def _write_page(text: str, stream: IO[str]) -> None:
    stream.write("\n".join(line.rstrip() for line in text.split("\n")))  # rich fills lines with spaces


def _draw_title(console: Console, report: Report, is_started: bool) -> None:
    if line := caching.headline(report.total):
        print_text(console, f"{line} ({caching.MARKS_COMMAND}).", "bold yellow")
    if not is_started:
        _draw_cost(console, report)
    if report.partial:
        print_text(console, report.partial, "bold yellow")
    if not report.sessions and not report.paid:
        return
    if line := saving_line(report):
        print_text(console, line, "bold")
    for line in filter(None, (logged_line(report.total), next_step(report))):
        print_text(console, line, "green")


def _draw_cost(console: Console, report: Report) -> None:
    if report.sample:
        print_text(console, "No agent logs found on this machine. This is the bundled sample.", "yellow")
    if report.asked.period:
        print_text(console, report.asked.period, "dim")
    if not report.sessions and not report.paid:
        if report.partial:
            return
        read = f"{plural(report.files_read, 'file')}, {file_size(report.bytes_read)}"
        hint = " Files without a session:" if report.unread else ""
        print_text(console, f"No session was found ({read}).{hint}", "bold")
        return
    print_text(console, paid_line(report), "bold")


def _draw_tables(console: Console, report: Report) -> None:
    """Print the tables of `--by`."""
    for by in report.asked.by:
        if by == "window":
            draw_windows(console, report)
        elif by in ("tool", "file"):
            _draw_repeats(console, by, report.tools if by == "tool" else report.files, report)
        else:
            draw_table(console, report, by)  # type: ignore[arg-type]  # the command line took nothing else


def _draw_bills(console: Console, report: Report) -> None:
    total = report.total
    recorded_cost = total.recorded.cost if total.recorded else 0.0
    widest = max(recorded_cost, total.baseline.cost, *(each.spent.cost for each in total.profiles.values())) or 1.0
    rows: list[TableRow] = []
    if total.recorded:
        suffix = "" if total.recorded.requests == total.session_requests else " in part"
        rows.append(
            (
                f"recorded{suffix}",
                dollars(total.recorded.cost),
                "",
                "",
                "",
                "",
                Bar(total.recorded.cost / widest, "dim"),
            )
        )
    base = total.baseline
    sizes = (tokens(base.tokens), tokens(base.peak), f"{base.breaks:,}")
    rows.append(("nothing done", dollars(base.cost), "", *sizes, Bar(base.cost / widest, "")))
    for name, profile in total.profiles.items():
        cost = profile.spent
        share = total.profile_share(name)
        rows.append(
            (
                name,
                dollars(cost.cost),
                _saved_cell(share),
                tokens(cost.tokens),
                tokens(cost.peak),
                f"{cost.breaks:,}",
                Bar(cost.cost / widest, saving_color(share)),
            )
        )
    print_table(console, ("what it costs", "input $", "saved", "tokens", "peak", "cache rewritten", ""), rows)
    if total.thinking:
        part = f"{dollars(total.thinking)} ({percent(total.thinking_share)})"
        print_text(console, f"The cost without ibidem includes {part} for thinking that later requests send back.")


def _draw_caching_modes(console: Console, total: ReportRow) -> None:
    """Print the costs of the compared caching modes, with and without each profile."""
    modes = list(caching.caching_modes(total))
    widest = max([total.baseline.cost, *(each.cost for _, _, each in modes)]) or 1.0
    rows: list[TableRow] = []
    for mode, profile, each in modes:
        share = saved_share(total.baseline.cost, each.cost)
        cells = (dollars(each.cost), _saved_cell(share), f"{each.more_expensive:,}", percent(each.ratio))
        rows.append((f"  {profile}" if profile else mode, *cells, Bar(each.cost / widest, saving_color(share))))
    if not rows:
        return
    print_table(console, ("caching mode", "input $", "saved", "cost more", "worst", ""), rows)
    print_text(console, CACHING_MODES_NOTE, "dim")
    if note := caching.as_they_are(total):
        print_text(console, note)
    labels: dict[tuple[str, str], str] = {}
    for mode, profile, each in modes:
        if each.highest and each.more_expensive:
            labels.setdefault((mode, session_name(each.highest)), f"{mode}, {profile}" if profile else mode)
    for (_, label), name in labels.items():
        print_text(console, f"{name}: worst is {label}.")


CACHING_MODES_NOTE = (
    "Compared with the recorded caching, without ibidem. cost more: number of sessions; worst: the highest cost of a"
    " session, as a share of its cost without ibidem. Misses caused by idle time are simulated, other misses are as"
    " recorded."
)


def _draw_cache_use(console: Console, report: Report) -> None:
    """Print the cache shares by agent, and cache misses by cause."""
    total = report.total
    if total.cached is None:
        return
    rows: list[TableRow] = [
        (single_line(name), f"{sessions:,}", *map(percent, shares))
        for name, sessions, shares in caching.by_agent(report)
    ]
    print_table(console, ("cached input", "sessions", *caching.SHARES), rows)
    if note := caching.not_recorded(report):
        print_text(console, note)
    misses = caching.by_cost(total)
    largest = max((abs(missed.cost) for _, missed in misses), default=0.0) or 1.0
    rows = []
    for cause, missed in misses:
        part = missed.cost / total.cached_cost if total.cached_cost else 0.0
        cells = (f"{missed.count:,}", tokens(missed.tokens), dollars(missed.cost), percent(part))
        rows.append((caching.CAUSES[cause], *cells, Bar(missed.cost / largest, "red")))
    print_table(console, ("cause of cache misses", "misses", "tokens", "lost $", "of bill", ""), rows)
    for cause, _ in misses[: caching.NAMED_CAUSES]:
        if worst := caching.most_expensive_miss(total, cause):
            print_text(console, f"{cause}: {worst[0]} {session_name(worst[1])}.")


def _draw_revisions(console: Console, report: Report) -> None:
    """Print the costs of profiles that revise text already sent, in the scenarios `hit` and `miss`."""
    total = report.total
    revising = {name: total.revision_scenarios(name) for name in total.profiles}
    has_optimum = any(each.best is not None for scenarios in revising.values() for each in scenarios.values())
    rows: list[TableRow] = []
    for name, scenarios in revising.items():
        for world, each in scenarios.items():
            share = saved_share(total.baseline.cost, each.cost)
            row: list[TableCell] = [
                name if world == "hit" else "  on a miss",
                dollars(each.cost),
                _saved_cell(share),
            ]
            row.append(dollars(each.rewrites))
            if has_optimum:
                best = None if each.best is None else saved_share(total.baseline.cost, each.best)
                row += [percent(best), percent(each.reached(total.baseline.cost))]
            rows.append([*row, percent(each.ratio), percent(each.worst, signed=True)])
    if rows:
        columns = ("optimum", "reached") if has_optimum else ()
        print_table(console, ("after a revision", "input $", "saved", "rewrites", *columns, "worst", "ever"), rows)
        print_text(console, REVISIONS_NOTE + (OPTIMUM_NOTE if has_optimum else ""), "dim")
    for name in revising:
        _draw_profile_notes(console, name, total)


REVISIONS_NOTE = (
    "After a revision, the provider's cache still has the prefix before it; on a miss, no part of the conversation."
    " rewrites: cost of writing the cache again; worst: the highest cost of a session, as a share of its cost without"
    " ibidem; ever: the largest extra cost of a session at any time."
)
OPTIMUM_NOTE = " optimum: savings of the same edits at the best times; reached: the saved share of the optimum."


def _draw_profile_notes(console: Console, name: str, total: ReportRow) -> None:
    """Print why a profile revised text already sent, and its most expensive session."""
    points, scenarios = Counter(total.profiles[name].points), total.revision_scenarios(name).values()
    if points:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in points.most_common())
        print_text(console, f"{name} revised sent text {points.total():,} times: {reasons}.")
    if line := need_line(name, total):
        print_text(console, line)
    worst_ones = dict.fromkeys(session_name(each.highest) for each in scenarios if each.highest)
    for label, when in zip(worst_ones, ("", " on a miss"), strict=False):
        print_text(console, f"{name}: worst{when} is {label}.")
    count = max([total.more_expensive(name), *(each.more_expensive for each in scenarios)])
    extra_costs = [(each.worst, session_name(each.worst_in)) for each in scenarios if each.worst_in]
    worst, label = max(extra_costs, default=(total.profiles[name].worst, ""))
    if count or worst > 5e-4:
        print_text(
            console,
            f"{name}: {plural(count, 'session')} would have cost more than without ibidem. Largest extra cost at"
            f" any time: {percent(worst)}{f', {label}' if label else ''}.",
            "red",
        )


def _draw_error(console: Console, total: ReportRow) -> None:
    console.print()
    if total.recorded is None:
        print_text(console, "The logs record no usage, so the computed costs cannot be checked.", "yellow")
        return
    check = total.recorded
    requests = total.session_requests
    part = "" if check.requests == requests else f" (for {check.requests:,} of {requests:,} requests)"
    print_text(
        console,
        f"Error of the replay against the recorded cost{part}: {percent(total.error, signed=True)} in total, median"
        f" session {percent(total.error_at(0.5))}, 90% of sessions within {percent(total.error_at(0.9))}."
        f" Without recorded cache reads: {percent(total.error_by_rule, signed=True)}.",
    )


def _draw_strategies(console: Console, report: Report) -> None:
    rows: list[TableRow] = []
    for name, profile in report.total.profiles.items():
        largest = max((abs(saved.cost) for saved in profile.strategies.values()), default=0.0) or 1.0
        for strategy, saved in sorted(profile.strategies.items(), key=lambda item: -item[1].cost):
            part = saved.cost / report.total.baseline.cost if report.total.baseline.cost else 0.0
            bar = Bar(abs(saved.cost) / largest, "green" if saved.cost > 0 else "red")
            cells = (f"{saved.hits:,}", tokens(saved.tokens), dollars(saved.cost), percent(part), bar)
            rows.append((f"{name}: {strategy}" if len(report.profiles) > 1 else strategy, *cells))
    print_table(console, ("strategy", "hits", "tokens", "saved $", "of bill", ""), rows)


def _draw_groups(console: Console, what: Literal["agent", "project"], report: Report) -> None:
    groups = report.groups(what)
    if len(groups) < 2 or what in report.asked.by:
        return
    by_cost = sorted(groups.items(), key=lambda item: -item[1].baseline.cost)
    rows: list[TableRow] = [
        (
            single_line(name),
            f"{len(group.replayed):,}",
            f"{group.session_requests:,}",
            dollars(group.baseline.cost),
            percent(group.error, signed=True),
            *(_saved_cell(group.profile_share(profile)) for profile in report.profiles),
        )
        for name, group in by_cost[: row_limit(report)]
    ]
    print_table(console, (what, "sessions", "requests", "input $", "error", *report.profiles), rows)
    print_rest(console, len(by_cost), row_limit(report))


def _saved_cell(share: float) -> Text:
    return Text(percent(share), saving_color(share))


def _draw_repeats(console: Console, what: str, totals: dict[str, RepeatTotals], report: Report) -> None:
    """Print tools or files by the saving of the first profile."""
    first = report.profiles[0]

    by_saving = report.most_saved(totals)
    rows = [
        (
            single_line(name),
            f"{entry.results.count:,}",
            tokens(entry.results.tokens),
            percent(entry.profiles[first].tokens / entry.results.tokens if entry.results.tokens else 0.0)
            if first in entry.profiles
            else NO_NUMBER,
            dollars(entry.profiles[first].cost if first in entry.profiles else 0.0),
        )
        for name, entry in by_saving[: row_limit(report)]
    ]
    print_table(console, (what, "results", "tokens", "removed", "saved $"), rows)
    print_rest(console, len(by_saving), row_limit(report))


def _draw_notes(console: Console, report: Report) -> None:
    notes = []
    for model, other in report.priced_as.items():
        notes.append(f"Model {single_line(model)} is not in the price list: priced as {other}.")
    if report.skipped:
        notes.append(f"{plural(report.skipped, 'line')} of logs could not be parsed and were skipped: see --json.")
    if report.invalid:
        rules = ", ".join(f"{rule} {number:,}" for rule, number in report.violations.most_common(3))
        accepted_text = f"; the provider accepted {report.accepted:,}" if report.accepted else ""
        problem = f"{plural(report.invalid, 'request')} in the logs break a rule of the provider"
        notes.append(f"{problem} ({rules}){accepted_text}.")
    failures = {name: profile.law_failures for name, profile in report.total.profiles.items() if profile.law_failures}
    notes += [f"{name}: {plural(number, 'invariant failure')}: see --json." for name, number in failures.items()]
    notes += restored_notes(report)
    notes += map(single_line, unread_notes(report))
    if caching.headline(report.total):
        notes.append(caching.ADVICE)
    if notes:
        console.print()
    for note in notes:
        print_text(console, note, "dim")
