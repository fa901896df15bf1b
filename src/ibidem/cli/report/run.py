"""Make a report: read logs and show the paid costs, then replay the sessions and show the costs with each profile."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import click

from ... import recordings
from ...billing.misses import is_unmarked
from ...billing.pauses import keep_pauses
from ...billing.prices import Prices
from ...billing.usage import Usage
from ...environment import cache_folder
from ...errors import IbidemError, one_line
from ...recordings import LogError
from ...render.number_format import dollars
from ...render.templates import check_jinja
from ...replay.caching import CACHING_NAMES
from ...report.aggregate import Order, Report, ReportRequest, add_up, pauses_in
from ...report.dask_cluster import DaskWorkers
from ...report.executors import LocalWorkers, LogWorkers
from ...report.export import write_csv, write_json
from ...report.footnotes import unread_notes
from ...report.gather import LogGroup, LogGroupTask, gather, group_logs, measure_groups, unread_in
from ...report.log_sources import LogFile, fetch
from ...report.log_summary import FileFacts, PaidRequest, SessionFacts, paid_requests, read_facts
from ...report.measure import ReportSettings, measure_log
from ...report.report_cache import ReportCache
from ...report.selection import SessionFilter
from ...report.session_result import FileFigures, SessionFigures, UnreadFile
from ...strategies.profiles import PROFILES
from ..errors import InputError, at_the_prompt
from ..prices import price_file
from ..reading import STDIN
from ..writing import check_place, output
from .filters import check_words, newest_month, period_asked, zone_named
from .progress import progress
from .select import AgentOf, installed_agent_logs, matching_logs, named, standard_input

SAMPLE_FILE = "conversation.json"
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Options of `ibidem report`."""

    since: str | None
    until: str | None
    everything: bool
    agents: tuple[str, ...]
    projects: tuple[str, ...]
    models: tuple[str, ...]
    session: str | None
    timezone: str | None
    by: tuple[str, ...]
    order: Order | None
    top: int | None
    paid: bool
    profiles: tuple[str, ...]
    caching: tuple[str, ...]
    optimum: bool
    verify: bool
    price_as: str | None
    price_file: str | None
    page: str | None
    opened: bool
    details: str | None
    as_json: bool
    as_csv: bool
    no_color: bool
    no_cache: bool
    jobs: int | None
    scheduler: str | None

    @property
    def as_text(self) -> bool:
        """The report is printed as text."""
        return not (self.as_json or self.as_csv)


def run(paths: tuple[str, ...], options: ReportOptions) -> int:
    """Make the report and print it. Returns the exit code."""
    check_place(options.page)
    names = tuple(dict.fromkeys(options.profiles))
    caching = tuple(name for name in CACHING_NAMES if name in options.caching)
    settings = ReportSettings(
        names, options.price_as, price_file(options.price_file), options.optimum, caching, options.verify
    )
    own = any(
        name not in PROFILES for name in settings.profiles
    )  # never cached: the cache cannot detect changes of their code
    memory = None if options.no_cache or own else ReportCache(cache_folder(), settings)
    try:
        if options.page is not None:
            check_jinja()
        Prices(settings.prices, options.price_as).check()
        workers: LogWorkers = (
            LocalWorkers(options.jobs) if options.scheduler is None else DaskWorkers(options.scheduler)
        )
        with workers, standard_input(paths) as piped:
            making = _ReportBuilder(options, settings, memory, workers)
            found = making.report(named(paths, piped) if paths else installed_agent_logs(), bool(paths))
            links = making.details(found)
            if piped is not None:
                _renamed(found, piped)
    except IbidemError as error:
        raise InputError("report", at_the_prompt(str(error))) from None
    if making.all_here and memory is not None and not found.unfinished:
        sessions = {one.session.key: one.session for one in found.paid}
        keep_pauses(pauses_in(sessions.values(), time.time()))
    _show(found, options, making.begun, links)
    if found.partial:
        return EXIT_INTERRUPTED
    return 0 if found.sessions or found.paid else 2


@dataclass(slots=True)
class _ReportBuilder:
    """A report in progress. If the user interrupts it, the results so far are shown."""

    options: ReportOptions
    settings: ReportSettings
    memory: ReportCache | None
    workers: LogWorkers
    begun: bool = False
    """The paid costs are already printed."""
    all_here: bool = False
    """The report covers the logs of this machine, without a selection."""
    found: dict[LogFile, FileFacts] = field(default_factory=dict)
    priced: dict[int, list[PaidRequest]] = field(default_factory=dict)
    """By `id()` of the session: two sessions of a log may have the same name."""
    files: list[FileFigures] = field(default_factory=list)
    unfinished: int = 0
    waiting: int = 0

    def report(self, agents: AgentOf, are_named: bool) -> Report:
        """Select, read and replay sessions, and return the report."""
        options, zone = self.options, zone_named(self.options.timezone)
        now = datetime.now(zone)
        words = SessionFilter(
            agents=options.agents, projects=options.projects, models=options.models, session=options.session or ""
        )
        usual = not (are_named or options.everything or options.since or options.until) and words.whole
        period = period_asked(options.since, options.until, now, usual)
        if not agents and not are_named:
            return self._sample()
        selection = words._replace(since=period.since, until=period.until)
        self._read(matching_logs(agents, selection))
        counted = group_logs(self.found, selection)
        if usual and not counted and not self.unfinished:
            self._read(matching_logs(agents, words))
            period = newest_month((each for facts in self.found.values() for each in facts.sessions), zone)
            counted = group_logs(self.found, words._replace(since=period.since, until=period.until))
        if not self.unfinished:
            every = [each for facts in self.found.values() for each in facts.sessions]
            check_words(selection, every, {agent for agent in agents.values() if agent})
        self.all_here = not are_named and words.whole and (usual or options.everything)
        asked = ReportRequest(period.told, period.since, period.until, zone, options.by, options.order, options.top)
        paid = self._paid(counted)
        if not options.paid:
            self._replay(counted, paid, asked)
        return self._added_up(paid, asked)

    def details(self, found: Report) -> dict[tuple[str, str], str]:
        """Write the session pages if `--details` is set. Return their links by path and name of the session."""
        if self.options.details is None or self.options.page is None or found.partial or found.sample:
            return {}
        folder, page = Path(self.options.details).absolute(), Path(self.options.page).absolute()
        if not self.workers.elsewhere:
            return _write_details(found.sessions, self.settings, folder, page, self.workers)
        with LocalWorkers(self.options.jobs) as ours:  # remote workers would write to their own disks
            return _write_details(found.sessions, self.settings, folder, page, ours)

    def _sample(self) -> Report:
        data = (resources.files("ibidem") / "samples" / SAMPLE_FILE).read_bytes()
        facts = read_facts(SAMPLE_FILE, data)
        self.found = {LogFile(SAMPLE_FILE, len(data)): facts}
        self.priced = {id(each): list(paid_requests(each, self._prices)) for each in facts.sessions}
        if not self.options.paid:
            self.files = [measure_log(SAMPLE_FILE, data, self.settings)]
        zone = zone_named(self.options.timezone)
        asked = ReportRequest(zone=zone, by=self.options.by, order=self.options.order, top=self.options.top)
        found = self._added_up(self._paid(group_logs(self.found, SessionFilter())), asked)
        found.sample = True
        return found

    def _read(self, logs: Sequence[LogFile]) -> None:
        new = [log for log in logs if log not in self.found]
        prices, paid = self._prices, 0.0
        try:
            with progress("reading logs", sum(log.size for log in new)) as done:
                for log, facts in gather(new, self.workers, self.memory):
                    for session in facts.sessions:
                        every = self.priced[id(session)] = list(paid_requests(session, prices))
                        paid += sum((one.input or 0.0) + (one.output or 0.0) for one in every)
                    self.found[log] = facts  # last, so that an interrupt never leaves a log half recorded
                    done(log.size, f"{dollars(paid)} paid in {len(self.priced):,} sessions")
        except KeyboardInterrupt:
            self.unfinished = len([log for log in new if log not in self.found])
            if not self.unfinished:
                raise

    @property
    def _prices(self) -> Prices:
        return Prices(self.settings.prices, self.settings.model)

    def _paid(self, counted: Sequence[LogGroup]) -> list[PaidRequest]:
        every = (each for family in counted for each in family.sessions)
        return [self.priced[id(each.session)][number] for each in every for number in each.numbers]

    def _replay(self, counted: Sequence[LogGroup], paid: list[PaidRequest], asked: ReportRequest) -> None:
        """Replay the sessions, newest first. In text output, the paid costs are printed before."""
        replayed = [family for family in counted if any(each.session.replayed for each in family.sessions)]
        if self.unfinished:
            self.waiting = sum(len(family.sessions) for family in replayed)
            return
        if self.options.as_text and self.options.page != "-" and replayed and not self._may_be_unmarked(counted):
            from ...report.terminal import draw_paid

            draw_paid(self._added_up(paid, asked), sys.stdout, plain=self.options.no_color)
            self.begun = True
        left = {LogGroupTask.of(family).asked: family for family in replayed}
        work = [LogGroupTask.of(family) for family in replayed]
        try:
            with progress("replaying", sum(family.size for family in replayed)) as done:
                for one, files in measure_groups(work, self.settings, self.workers, self.memory):
                    self.files += files
                    done(left.pop(one.asked).size, "")
        except KeyboardInterrupt:
            self.waiting = sum(len(family.sessions) for family in left.values())
            if not self.waiting:
                raise

    def _may_be_unmarked(self, counted: Sequence[LogGroup]) -> bool:
        """Return whether a session lacks cache breakpoints that its provider needs.

        The report then starts with what breakpoints would have saved, so it cannot print the paid costs early.
        """
        prices = Prices(self.settings.prices)
        for session in (each.session for family in counted for each in family.sessions if each.session.replayed):
            usages = [Usage(*tokens) for tokens in session.counted if tokens is not None]
            model = session.models[0] if session.models else ""
            if usages and is_unmarked(usages, prices.of(model, session.format, session.started).caching):
                return True
        return False

    def _added_up(self, paid: list[PaidRequest], asked: ReportRequest) -> Report:
        found = add_up(self.settings.profiles, self.files, lambda _: None, paid)
        found.asked, found.waiting, found.unfinished = asked, self.waiting, self.unfinished
        found.files_read, found.bytes_read = len(self.found), sum(log.size for log in self.found)
        known = {unread.path for unread in found.unread}
        found.unread += [each for each in unread_in(self.found.values()) if each.path not in known]
        return found


def _renamed(report: Report, piped: str) -> None:
    """Replace the temporary file's path by "standard input". Workers need the path until all sessions are measured."""
    every: list[SessionFigures | SessionFacts | UnreadFile] = [*report.sessions, *report.unread]
    every += (one.session for one in report.paid)
    for each in every:
        if each.path == piped:
            each.path = STDIN


def _show(found: Report, options: ReportOptions, begun: bool, links: Mapping[tuple[str, str], str]) -> None:
    with output(options.page) as write:
        if options.page is not None:
            from ...report.page import write_page

            text = io.StringIO()
            write_page(found, text, links)
            write(text.getvalue().encode("utf-8", "replace"))
    stream = sys.stderr if options.page == "-" else sys.stdout
    if options.as_json:
        write_json(found, stream)
    elif options.as_csv:
        write_csv(found, stream)
        for note in unread_notes(found):
            click.echo(one_line(note), err=True)
    else:
        from ...report.terminal import draw  # importing rich takes a while

        draw(found, stream, plain=options.no_color, begun=begun)
    if options.page not in (None, "-"):
        click.echo(f"ibidem: wrote {one_line(click.format_filename(str(options.page)))}", err=True)
    if options.opened and options.page:
        import webbrowser

        webbrowser.open(Path(options.page).resolve().as_uri())


# --- pages with the details of sessions ----------------------------------------------------------

SessionKey = tuple[str, str]


def _write_details(
    sessions: Iterable[SessionFigures], settings: ReportSettings, folder: Path, page: Path, workers: LogWorkers
) -> dict[SessionKey, str]:
    """Write a page per session with its edits. Return the links by path and name of the session.

    The pages show the last profile: it is usually one that evicts old text, which makes all edits of the others too.
    """
    names: dict[str, list[str]] = {}
    for session in sessions:
        names.setdefault(session.path, []).append(session.name)
    there = os.path.relpath(folder, page.parent).replace(os.sep, "/")
    found: dict[SessionKey, str] = {}
    call = partial(_write_log_details, settings=settings, folder=folder)
    with progress("writing details", len(names)) as done:
        for written in workers.each(call, list(names.items())):
            found |= {key: quote(f"{there}/{name}") for key, name in written.items()}
            done(1, "")
    return found


def _write_log_details(log: tuple[str, list[str]], settings: ReportSettings, folder: Path) -> dict[SessionKey, str]:
    """Write the session pages of one log. Skips a log that was deleted in the meantime."""
    from ..view.details import write_details

    path, names = log
    try:
        sessions = recordings.read(path, fetch(path))
    except (OSError, LogError):
        return {}
    wanted = [session for session in sessions if session.name in names]
    profile = settings.profiles[-1]
    return {(path, session.name): write_details(session, settings, folder, profile) for session in wanted}
