"""Run a trial: find decision points, plan, print the price, call the model, and print the result."""

from __future__ import annotations

import asyncio
import math
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...billing.prices import Prices
from ...environment import data_folder, environment_variables
from ...errors import IbidemError, one_line
from ...recordings import LogError, read
from ...render.number_format import dollars, plural
from ...render.templates import check_jinja
from ...report.log_sources import LogFile, fetch
from ...trial.client import ProviderClient, find_api_key, find_base_url
from ...trial.decision_points import SessionSurvey, session_digest
from ...trial.planning import (
    MAX_POINTS,
    USUAL_POINTS,
    LoadedSession,
    TrialPlan,
    TrialTarget,
    check_price,
    choose_target,
    compute_saving,
    load_session,
    make_session_plan,
    make_setup,
    plan_trial,
    select_surveys,
    survey_log,
)
from ...trial.providers import TRIAL_PROVIDERS
from ...trial.run_log import RunLog, TrialSetup, resume_run
from ...trial.schedule import SessionPlan, schedule_probes
from ...trial.trial_runner import HARM, TrialRun
from ..command_errors import InputError, describe_os_error, print_error, reword_for_cli
from ..output_file import check_output_path
from ..price_option import read_price_file
from ..report.progress import show_progress
from ..report.select import installed_agent_logs, logs_at
from .trial_output import print_plan, print_verdict, progress_hooks
from .trial_progress import TrialProgress, handle_interrupt

EXIT_INTERRUPTED = 130
USUAL_SAMPLES, USUAL_PROFILE = 4, "lossless"
MAX_LOG_BYTES = 256 * 2**20
"""Largest total size of the logs that are read without LOG arguments, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Options of `ibidem trial`."""

    budget: float | None
    dry_run: bool
    model: str | None
    profile: str | None
    samples: int | None
    points: int | None
    probes: bool
    seed: int | None
    upstream: str | None
    price_file: str | None
    out: str | None
    resume: str | None
    keep_answers: bool
    as_json: bool
    page: str | None


@dataclass(frozen=True, slots=True)
class _PreparedTrial:
    """A trial before its first model call."""

    ledger: RunLog
    sessions: Sequence[SessionPlan]
    surveys: dict[str, SessionSurvey]
    target: TrialTarget

    def load_session(self, plan: SessionPlan) -> LoadedSession:
        """Load a session with the requests of its decision points."""
        return load_session(self.surveys[plan.session], plan.points, self.ledger.setup.profile, self.target)


def run_trial(paths: tuple[str, ...], options: TrialOptions) -> int:
    """Run or resume a trial. Returns the exit code."""
    check_output_path(options.page)
    if options.page is not None:
        check_jinja()
    if options.out in ("", "-"):
        raise InputError("--out", "not a file: pass a file path, or omit --out to create one")
    check_output_path(options.out)
    try:
        return _run_checked(paths, options)
    except IbidemError as error:
        raise InputError("trial", reword_for_cli(str(error))) from None


def _run_checked(paths: tuple[str, ...], options: TrialOptions) -> int:
    if not options.dry_run:
        _check_keys()
    prices = Prices(read_price_file(options.price_file))
    logs = _select_logs(paths)
    if options.resume is not None:
        prepared = _resume_trial(Path(options.resume), logs, prices, options)
    else:
        planned_trial = _plan_trial(logs, prices, options)
        if isinstance(planned_trial, int):
            return planned_trial
        prepared = planned_trial
    ledger = prepared.ledger
    ledger.stores_texts = options.keep_answers
    provider = TRIAL_PROVIDERS[prepared.target.format]
    key = find_api_key(provider, environment_variables())
    base = find_base_url(provider, environment_variables(), options.upstream)
    client = ProviderClient(provider, base, key, prepared.target.model)
    if options.resume is None:
        _create_run_log(ledger, options.out)
    else:
        print_error(f"requests are sent to {base}")  # a variable may have changed since the first run
    try:
        stop_reason = asyncio.run(_call_model(prepared, client))
    except (KeyboardInterrupt, IbidemError):
        _print_resume_command(ledger, paths, options)
        raise
    finally:
        ledger.close()
    print_verdict(ledger, as_json=options.as_json, page=options.page)
    if stop_reason and stop_reason != HARM:
        _print_resume_command(ledger, paths, options, stop_reason)
    return EXIT_INTERRUPTED if stop_reason == "interrupted" else 0


def _check_keys() -> None:
    """Raise IbidemError if there is no API key for any provider. Called before logs are read, which takes long."""
    messages = []
    for provider in TRIAL_PROVIDERS.values():
        try:
            find_api_key(provider, environment_variables())
            return
        except IbidemError as error:
            messages.append(str(error))
    names = ", ".join(dict.fromkeys(each.key_variables[0] for each in TRIAL_PROVIDERS.values()))
    no_key_message = f"no API key: set one of {names}"
    raise IbidemError(next((words for words in messages if not words.startswith("no API key")), no_key_message))


def _print_resume_command(ledger: RunLog, paths: Sequence[str], options: TrialOptions, stop_reason: str = "") -> None:
    """Print the command that resumes the trial."""
    more = dict[str, str | None](
        {"--resume": str(ledger.path), "--upstream": options.upstream, "--prices": options.price_file}
    )
    words = [*paths, *(word for name, value in more.items() if value is not None for word in (name, value))]
    command = f"ibidem trial {shlex.join(words)}"
    if stop_reason == "budget":
        reason_text = f"the budget is used up ({dollars(ledger.spent)} spent)"
        print_error(f"{reason_text}. To continue with more: {command} --budget {math.ceil(2 * ledger.budget)}")
    else:
        print_error(f"{dollars(ledger.spent)} spent. To continue: {command}")


# ── logs and plan ───────────────────────────────────────────────────────────────────────────────────────────────────


def _select_logs(paths: tuple[str, ...]) -> list[LogFile]:
    if paths:
        return list(logs_at(paths, None))
    newest = sorted(installed_agent_logs(), key=lambda log: (log.written or 0.0, log.path), reverse=True)
    if not newest:
        raise InputError("trial", "no agent logs on this machine: pass some, or record with `ibidem proxy --record`")
    selected, size = list[LogFile](), 0
    for log in newest:
        if selected and size + log.size > MAX_LOG_BYTES:
            print_error(f"reading the newest {len(selected):,} of {len(newest):,} logs. Pass paths to read others.")
            break
        selected.append(log)
        size += log.size
    return selected


def _survey_logs(logs: Sequence[LogFile], profile: str) -> list[SessionSurvey]:
    surveys, unread_count = list[SessionSurvey](), 0
    with show_progress("finding decision points", sum(log.size for log in logs)) as report_progress:
        for log in logs:
            try:
                surveys += survey_log(log.path, profile)
            except (LogError, OSError, RecursionError):
                unread_count += 1
            report_progress(log.size, f"{sum(len(each.points) for each in surveys):,} points")
    if unread_count:
        print_error(f"{unread_count:,} of {len(logs):,} files have no readable session")
    if not surveys:
        raise InputError(
            "trial", "no recorded session in these files: pass logs of agents, or of `ibidem proxy --record`"
        )
    return surveys


def _plan_trial(logs: Sequence[LogFile], prices: Prices, options: TrialOptions) -> _PreparedTrial | int:
    """Plan the trial and print the plan. Return the prepared trial; with `--dry-run`, the exit code."""
    profile = options.profile or USUAL_PROFILE
    samples = options.samples or USUAL_SAMPLES
    seed = options.seed or 0
    all_surveys = _survey_logs(logs, profile)
    elsewhere = options.upstream is not None
    trial_target = choose_target(all_surveys, prices, options.model, elsewhere=elsewhere)
    surveys = select_surveys(all_surveys, trial_target, is_model_given=options.model is not None, elsewhere=elsewhere)
    base = find_base_url(TRIAL_PROVIDERS[trial_target.format], environment_variables(), options.upstream)
    max_points = options.points or (USUAL_POINTS if options.budget is None else MAX_POINTS)
    with show_progress("planning", 0) as report_progress:
        plan = plan_trial(
            surveys,
            trial_target,
            profile=profile,
            samples=samples,
            seed=seed,
            most=max_points,
            budget=options.budget,
            on_session=lambda: report_progress(0, ""),
            probes=options.probes,
        )
        if not plan.sessions:
            raise IbidemError(_no_sessions_message(plan, options.budget))
        planned_digests = {session.session for session in plan.sessions}
        savings = compute_saving([each for each in surveys if each.digest in planned_digests], profile, trial_target)
    setup = make_setup(
        plan,
        surveys,
        trial_target,
        profile=profile,
        samples=samples,
        seed=seed,
        budget=options.budget or 0.0,
        elsewhere=elsewhere,
        start_time=time.time(),
        trial_saving=savings,
        notes=list(_exclusion_notes(all_surveys, surveys, plan)),
        probes=options.probes,
        exact=options.points is not None,
    )
    print_plan(plan, setup, base, as_json=options.as_json and options.dry_run, dry_run=options.dry_run)
    if options.dry_run:
        return 0
    ledger = RunLog(setup, thinking_level=plan.thinking_level, budget=setup.budget)
    return _PreparedTrial(ledger, plan.sessions, {each.digest: each for each in surveys}, trial_target)


def _no_sessions_message(plan: TrialPlan, budget: float | None) -> str:
    if (plan.is_budget_limited or plan.too_long) and budget is not None:
        problem = f"{dollars(budget)} is not enough for requests of this size"
        return f"{problem}: increase --budget, or reduce --samples"
    return "the provider would reject every recorded request: pass other recordings"


def _exclusion_notes(
    surveys: Sequence[SessionSurvey], selected: Sequence[SessionSurvey], plan: TrialPlan
) -> Iterator[str]:
    excluded_count = sum(bool(each.points) for each in surveys) - sum(bool(each.points) for each in selected)
    if excluded_count > 0:
        yield f"left out: {plural(excluded_count, 'session')} of other models or formats, or copied"
    if plan.too_long:
        points = plural(len(plan.too_long), "point")
        yield f"left out: {points} in long requests, since one session may take only a part of the budget"
    if plan.unsound_count:
        why = "that the provider would refuse as recorded, or whose size is not known (files by address)"
        yield f"left out: {plural(plan.unsound_count, 'point')} {why}"


def _create_run_log(ledger: RunLog, out: str | None) -> None:
    if out is None:
        folder = data_folder() / "trials"
        name = f"trial-{datetime.fromtimestamp(ledger.setup.started, UTC):%Y%m%dT%H%M%S}.jsonl"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(one_line(str(folder)), describe_os_error(error)) from None
        ledger.path = folder / name
    else:
        ledger.path = Path(out)
    try:
        ledger.create_file()
    except FileExistsError:
        raise InputError(
            one_line(str(ledger.path)), "already exists: continue with --resume, or pass another"
        ) from None
    except OSError as error:
        raise InputError(one_line(str(ledger.path)), describe_os_error(error)) from None
    print_error(f"writing {ledger.path}")


def _resume_trial(path: Path, logs: Sequence[LogFile], prices: Prices, options: TrialOptions) -> _PreparedTrial:
    try:
        ledger = resume_run(path)
    except OSError as error:
        raise InputError(one_line(str(path)), describe_os_error(error)) from None
    try:
        return _prepare_resumed(ledger, logs, prices, options)
    except BaseException:
        ledger.close()
        raise


def _prepare_resumed(ledger: RunLog, logs: Sequence[LogFile], prices: Prices, options: TrialOptions) -> _PreparedTrial:
    setup = ledger.setup
    if options.budget is not None and options.budget != ledger.budget:
        ledger.log_change(budget=options.budget)
    price = prices.of(setup.model, setup.format)
    if price.assumed:
        raise IbidemError(f"no known price for {setup.model!r}: pass --prices FILE as in the first run")
    check_price(price, setup.model)
    if setup.elsewhere and options.upstream is None:
        raise IbidemError("this trial was started with --upstream: pass the same URL again")
    trial_target = TrialTarget(setup.format, setup.model, price)
    session_digests = {point.session for point in setup.points}
    surveys = _find_sessions(logs, session_digests, setup)
    sessions = []
    for name, survey in list(surveys.items()):
        points = [point for point in setup.points if point.session == name]
        try:
            loaded_session = load_session(survey, points, setup.profile, trial_target)
        except IbidemError:  # the log has changed
            del surveys[name]
            continue
        sessions.append(
            make_session_plan(points, loaded_session, ledger.thinking_level, setup.seed if setup.probes else None)
        )
    if not sessions:
        raise IbidemError("these logs have no unchanged session of this trial: pass the logs of the first run")
    if missing_count := len(session_digests - surveys.keys()):
        print_error(
            f"{missing_count:,} of {len(session_digests):,} sessions are missing or changed in these logs"
            " and are skipped"
        )
    order = {session: place for place, session in enumerate(dict.fromkeys(point.session for point in setup.points))}
    sessions.sort(key=lambda each: order[each.session])
    return _PreparedTrial(ledger, sessions, surveys, trial_target)


def _find_sessions(logs: Iterable[LogFile], session_digests: set[str], setup: TrialSetup) -> dict[str, SessionSurvey]:
    surveys: dict[str, SessionSurvey] = {}
    for log in logs:
        with suppress(LogError, OSError):
            for place, session in enumerate(read(log.path, fetch(log.path))):
                name = session_digest(session)
                if name in session_digests and name not in surveys:
                    survey = SessionSurvey(name, log.path, place, session.agent, session.format, setup.model, 0, ())
                    surveys[name] = survey
    return surveys


# ── model calls ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _call_model(prepared: _PreparedTrial, client: ProviderClient) -> str:
    probes = sum(
        len(keys) for plan in prepared.sessions for at in range(len(plan.points)) for keys in schedule_probes(plan, at)
    )
    trial_progress = TrialProgress(prepared.ledger, sum(len(each.points) for each in prepared.sessions), probes)
    async with client:
        trial = TrialRun(
            prepared.ledger,
            prepared.sessions,
            prepared.load_session,
            client,
            prepared.target.price,
            progress_hooks(prepared.ledger.setup),
            trial_progress.print_message,
            trial_progress,
        )
        with handle_interrupt(lambda: trial.stop("interrupted")):
            try:
                return await trial.run()
            finally:
                trial_progress.erase_line()
