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
from ...billing.cache_misses import lacks_breakpoints
from ...billing.idle_times import save_idle_times
from ...billing.prices import Prices
from ...billing.usage import Usage
from ...environment import cache_folder
from ...errors import IbidemError, one_line
from ...recordings import LogError
from ...render.number_format import dollars
from ...render.templates import check_jinja
from ...replay.caching_replay import CACHING_NAMES
from ...report.aggregate import Order, Report, ReportRequest, add_up, collect_idle_times
from ...report.dask_cluster import DaskWorkers
from ...report.executors import LocalWorkers, LogWorkers
from ...report.export import write_csv, write_json
from ...report.footnotes import unread_notes
from ...report.gather import LogGroup, LogGroupTask, gather_facts, group_logs, measure_groups, unread_in
from ...report.log_sources import LogFile, fetch
from ...report.log_summary import FileFacts, PaidRequest, SessionFacts, paid_requests, read_facts
from ...report.measure import ReportSettings, measure_log
from ...report.report_cache import ReportCache
from ...report.selection import SessionFilter
from ...report.session_result import FileResult, SessionResult, UnreadFile
from ...strategies.profiles import PROFILES
from ..command_errors import InputError, reword_for_cli
from ..output_file import check_output_path, open_output
from ..price_option import read_price_file
from ..request_input import STDIN
from .filters import check_words, find_zone, newest_month, parse_time_range
from .progress import show_progress
from .select import AgentOf, installed_agent_logs, logs_at, matching_logs, standard_input

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


def run_report(paths: tuple[str, ...], options: ReportOptions) -> int:
    """Make the report and print it. Returns the exit code."""
    check_output_path(options.page)
    names = tuple(dict.fromkeys(options.profiles))
    caching = tuple(name for name in CACHING_NAMES if name in options.caching)
    settings = ReportSettings(
        names, options.price_as, read_price_file(options.price_file), options.optimum, caching, options.verify
    )
    own_profiles = any(
        name not in PROFILES for name in settings.profiles
    )  # never cached: the cache cannot detect changes of their code
    cache = None if options.no_cache or own_profiles else ReportCache(cache_folder(), settings)
    try:
        if options.page is not None:
            check_jinja()
        Prices(settings.prices, options.price_as).check()
        workers: LogWorkers = (
            LocalWorkers(options.jobs) if options.scheduler is None else DaskWorkers(options.scheduler)
        )
        with workers, standard_input(paths) as stdin_path:
            builder = _ReportBuilder(options, settings, cache, workers)
            report = builder.build_report(logs_at(paths, stdin_path) if paths else installed_agent_logs(), bool(paths))
            links = builder.write_details(report)
            if stdin_path is not None:
                _rename_standard_input(report, stdin_path)
    except IbidemError as error:
        raise InputError("report", reword_for_cli(str(error))) from None
    if builder.all_here and cache is not None and not report.unfinished:
        sessions = {one.session.key: one.session for one in report.paid}
        save_idle_times(collect_idle_times(sessions.values(), time.time()))
    _print_report(report, options, builder.is_cost_printed, links)
    if report.partial:
        return EXIT_INTERRUPTED
    return 0 if report.sessions or report.paid else 2


@dataclass(slots=True)
class _ReportBuilder:
    """A report in progress. If the user interrupts it, the results so far are shown."""

    options: ReportOptions
    settings: ReportSettings
    memory: ReportCache | None
    workers: LogWorkers
    is_cost_printed: bool = False
    """The paid costs are already printed."""
    all_here: bool = False
    """The report covers the logs of this machine, without a selection."""
    facts_by_log: dict[LogFile, FileFacts] = field(default_factory=dict)
    paid_by_session: dict[int, list[PaidRequest]] = field(default_factory=dict)
    """By `id()` of the session: two sessions of a log may have the same name."""
    files: list[FileResult] = field(default_factory=list)
    unfinished: int = 0
    waiting_sessions: int = 0

    def build_report(self, agents: AgentOf, are_named: bool) -> Report:
        """Select, read and replay sessions, and return the report."""
        options, zone = self.options, find_zone(self.options.timezone)
        now = datetime.now(zone)
        selection_words = SessionFilter(
            agents=options.agents, projects=options.projects, models=options.models, session=options.session or ""
        )
        use_default = (
            not (are_named or options.everything or options.since or options.until)
            and selection_words.selects_everything
        )
        period = parse_time_range(options.since, options.until, now, use_default)
        if not agents and not are_named:
            return self._sample_report()
        selection = selection_words._replace(since=period.since, until=period.until)
        self._read_logs(matching_logs(agents, selection))
        groups = group_logs(self.facts_by_log, selection)
        if use_default and not groups and not self.unfinished:
            self._read_logs(matching_logs(agents, selection_words))
            period = newest_month((each for facts in self.facts_by_log.values() for each in facts.sessions), zone)
            groups = group_logs(self.facts_by_log, selection_words._replace(since=period.since, until=period.until))
        if not self.unfinished:
            sessions = [each for facts in self.facts_by_log.values() for each in facts.sessions]
            check_words(selection, sessions, {agent for agent in agents.values() if agent})
        self.all_here = not are_named and selection_words.selects_everything and (use_default or options.everything)
        request = ReportRequest(
            period.description, period.since, period.until, zone, options.by, options.order, options.top
        )
        all_paid = self._paid_requests(groups)
        if not options.paid:
            self._replay_sessions(groups, all_paid, request)
        return self._make_report(all_paid, request)

    def write_details(self, report: Report) -> dict[tuple[str, str], str]:
        """Write the session pages if `--details` is set. Return their links by path and name of the session."""
        if self.options.details is None or self.options.page is None or report.partial or report.sample:
            return {}
        folder, page = Path(self.options.details).absolute(), Path(self.options.page).absolute()
        if not self.workers.elsewhere:
            return _write_details(report.sessions, self.settings, folder, page, self.workers)
        with LocalWorkers(self.options.jobs) as local_workers:  # remote workers would write to their own disks
            return _write_details(report.sessions, self.settings, folder, page, local_workers)

    def _sample_report(self) -> Report:
        data = (resources.files("ibidem") / "samples" / SAMPLE_FILE).read_bytes()
        facts = read_facts(SAMPLE_FILE, data)
        self.facts_by_log = {LogFile(SAMPLE_FILE, len(data)): facts}
        self.paid_by_session = {id(each): list(paid_requests(each, self._price_list)) for each in facts.sessions}
        if not self.options.paid:
            self.files = [measure_log(SAMPLE_FILE, data, self.settings)]
        zone = find_zone(self.options.timezone)
        request = ReportRequest(zone=zone, by=self.options.by, order=self.options.order, top=self.options.top)
        report = self._make_report(self._paid_requests(group_logs(self.facts_by_log, SessionFilter())), request)
        report.sample = True
        return report

    def _read_logs(self, logs: Sequence[LogFile]) -> None:
        new_logs = [log for log in logs if log not in self.facts_by_log]
        prices, paid_dollars = self._price_list, 0.0
        try:
            with show_progress("reading logs", sum(log.size for log in new_logs)) as report_progress:
                for log, facts in gather_facts(new_logs, self.workers, self.memory):
                    for session in facts.sessions:
                        every = self.paid_by_session[id(session)] = list(paid_requests(session, prices))
                        paid_dollars += sum((one.input or 0.0) + (one.output or 0.0) for one in every)
                    self.facts_by_log[log] = facts  # last, so that an interrupt never leaves a log half recorded
                    report_progress(log.size, f"{dollars(paid_dollars)} paid in {len(self.paid_by_session):,} sessions")
        except KeyboardInterrupt:
            self.unfinished = len([log for log in new_logs if log not in self.facts_by_log])
            if not self.unfinished:
                raise

    @property
    def _price_list(self) -> Prices:
        return Prices(self.settings.prices, self.settings.model)

    def _paid_requests(self, groups: Sequence[LogGroup]) -> list[PaidRequest]:
        sessions = (each for family in groups for each in family.sessions)
        return [self.paid_by_session[id(each.session)][number] for each in sessions for number in each.numbers]

    def _replay_sessions(self, groups: Sequence[LogGroup], all_paid: list[PaidRequest], request: ReportRequest) -> None:
        """Replay the sessions, newest first. In text output, the paid costs are printed before."""
        replay_groups = [family for family in groups if any(each.session.is_replayable for each in family.sessions)]
        if self.unfinished:
            self.waiting_sessions = sum(len(family.sessions) for family in replay_groups)
            return
        if (
            self.options.as_text
            and self.options.page != "-"
            and replay_groups
            and not self._may_lack_breakpoints(groups)
        ):
            from ...report.terminal import draw_paid

            draw_paid(self._make_report(all_paid, request), sys.stdout, plain=self.options.no_color)
            self.is_cost_printed = True
        pending = {LogGroupTask.from_group(family).selection_digest: family for family in replay_groups}
        work = [LogGroupTask.from_group(family) for family in replay_groups]
        try:
            with show_progress("replaying", sum(family.size_bytes for family in replay_groups)) as report_progress:
                for one, files in measure_groups(work, self.settings, self.workers, self.memory):
                    self.files += files
                    report_progress(pending.pop(one.selection_digest).size_bytes, "")
        except KeyboardInterrupt:
            self.waiting_sessions = sum(len(family.sessions) for family in pending.values())
            if not self.waiting_sessions:
                raise

    def _may_lack_breakpoints(self, groups: Sequence[LogGroup]) -> bool:
        """Return whether a session lacks cache breakpoints that its provider needs.

        The report then starts with what breakpoints would have saved, so it cannot print the paid costs early.
        """
        prices = Prices(self.settings.prices)
        for session in (each.session for family in groups for each in family.sessions if each.session.is_replayable):
            usages = [Usage(*tokens) for tokens in session.counted if tokens is not None]
            model = session.models[0] if session.models else ""
            if usages and lacks_breakpoints(usages, prices.of(model, session.format, session.started).caching):
                return True
        return False

    def _make_report(self, all_paid: list[PaidRequest], request: ReportRequest) -> Report:
        report = add_up(self.settings.profiles, self.files, lambda _: None, all_paid)
        report.asked, report.waiting, report.unfinished = request, self.waiting_sessions, self.unfinished
        report.files_read, report.bytes_read = len(self.facts_by_log), sum(log.size for log in self.facts_by_log)
        unread_paths = {unread.path for unread in report.unread}
        report.unread += [each for each in unread_in(self.facts_by_log.values()) if each.path not in unread_paths]
        return report


def _rename_standard_input(report: Report, stdin_path: str) -> None:
    """Replace the temporary file's path by "standard input". Workers need the path until all sessions are measured."""
    rows: list[SessionResult | SessionFacts | UnreadFile] = [*report.sessions, *report.unread]
    rows += (one.session for one in report.paid)
    for each in rows:
        if each.path == stdin_path:
            each.path = STDIN


def _print_report(
    report: Report, options: ReportOptions, is_cost_printed: bool, links: Mapping[tuple[str, str], str]
) -> None:
    with open_output(options.page) as write:
        if options.page is not None:
            from ...report.page import write_page

            text = io.StringIO()
            write_page(report, text, links)
            write(text.getvalue().encode("utf-8", "replace"))
    stream = sys.stderr if options.page == "-" else sys.stdout
    if options.as_json:
        write_json(report, stream)
    elif options.as_csv:
        write_csv(report, stream)
        for note in unread_notes(report):
            click.echo(one_line(note), err=True)
    else:
        from ...report.terminal import draw_report  # importing rich takes a while

        draw_report(report, stream, plain=options.no_color, is_started=is_cost_printed)
    if options.page not in (None, "-"):
        click.echo(f"ibidem: wrote {one_line(click.format_filename(str(options.page)))}", err=True)
    if options.opened and options.page:
        import webbrowser

        webbrowser.open(Path(options.page).resolve().as_uri())


# --- pages with the details of sessions ----------------------------------------------------------

SessionKey = tuple[str, str]


def _write_details(
    sessions: Iterable[SessionResult], settings: ReportSettings, folder: Path, page: Path, workers: LogWorkers
) -> dict[SessionKey, str]:
    """Write a page per session with its edits. Return the links by path and name of the session.

    The pages show the last profile: it is usually one that evicts old text, which makes all edits of the others too.
    """
    names: dict[str, list[str]] = {}
    for session in sessions:
        names.setdefault(session.path, []).append(session.name)
    folder_url = os.path.relpath(folder, page.parent).replace(os.sep, "/")
    links: dict[SessionKey, str] = {}
    call = partial(_write_log_details, settings=settings, folder=folder)
    with show_progress("writing details", len(names)) as report_progress:
        for names_by_session in workers.run_tasks(call, list(names.items())):
            links |= {key: quote(f"{folder_url}/{name}") for key, name in names_by_session.items()}
            report_progress(1, "")
    return links


def _write_log_details(log: tuple[str, list[str]], settings: ReportSettings, folder: Path) -> dict[SessionKey, str]:
    """Write the session pages of one log. Skips a log that was deleted in the meantime."""
    from ..view.details import write_details

    path, names = log
    try:
        sessions = recordings.read(path, fetch(path))
    except (OSError, LogError):
        return {}
    selected = [session for session in sessions if session.name in names]
    profile = settings.profiles[-1]
    return {(path, session.name): write_details(session, settings, folder, profile) for session in selected}
