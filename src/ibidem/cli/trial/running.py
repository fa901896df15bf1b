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
from ...environment import data_folder, variables
from ...errors import IbidemError, one_line
from ...recordings import LogError, read
from ...render.number_format import dollars, plural
from ...render.templates import check_jinja
from ...report.log_sources import LogFile, fetch
from ...trial.ask import ProviderClient, base_for, key_for
from ...trial.driver import HARM, TrialRun
from ...trial.ledger import TrialLedger, TrialSetup, resumed
from ...trial.order import SessionPlan, probe_lanes
from ...trial.planning import (
    MAX_POINTS,
    USUAL_POINTS,
    LoadedSession,
    TrialPlan,
    TrialTarget,
    asked_surveys,
    check_price,
    load,
    plan_trial,
    saving,
    session_plan,
    setup_of,
    surveys_of,
    target,
)
from ...trial.points import SessionSurvey, session_digest
from ...trial.providers import TRIAL_PROVIDERS
from ..errors import InputError, at_the_prompt, reason, say
from ..prices import price_file
from ..report.progress import progress
from ..report.select import installed_agent_logs, named
from ..writing import check_place
from .telling import hooks, told, told_plan
from .watching import TrialWatch, interrupted

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
class _Ready:
    """A trial before its first model call."""

    ledger: TrialLedger
    sessions: Sequence[SessionPlan]
    surveys: dict[str, SessionSurvey]
    aim: TrialTarget

    def load(self, plan: SessionPlan) -> LoadedSession:
        """Load a session with the requests of its decision points."""
        return load(self.surveys[plan.session], plan.points, self.ledger.setup.profile, self.aim)


def run(paths: tuple[str, ...], options: TrialOptions) -> int:
    """Run or resume a trial. Returns the exit code."""
    check_place(options.page)
    if options.page is not None:
        check_jinja()
    if options.out in ("", "-"):
        raise InputError("--out", "not a file: pass a file path, or omit --out to create one")
    check_place(options.out)
    try:
        return _run(paths, options)
    except IbidemError as error:
        raise InputError("trial", at_the_prompt(str(error))) from None


def _run(paths: tuple[str, ...], options: TrialOptions) -> int:
    if not options.dry_run:
        _check_keys()
    prices = Prices(price_file(options.price_file))
    logs = _logs(paths)
    if options.resume is not None:
        ready = _resumed(Path(options.resume), logs, prices, options)
    else:
        found = _planned(logs, prices, options)
        if isinstance(found, int):
            return found
        ready = found
    ledger = ready.ledger
    ledger.keeps_answers = options.keep_answers
    provider = TRIAL_PROVIDERS[ready.aim.format]
    key = key_for(provider, variables())
    base = base_for(provider, variables(), options.upstream)
    client = ProviderClient(provider, base, key, ready.aim.model)
    if options.resume is None:
        _begin(ledger, options.out)
    else:
        say(f"requests are sent to {base}")  # a variable may have changed since the first run
    try:
        why = asyncio.run(_ask(ready, client))
    except (KeyboardInterrupt, IbidemError):
        _say_resumable(ledger, paths, options)
        raise
    finally:
        ledger.close()
    told(ledger, as_json=options.as_json, page=options.page)
    if why and why != HARM:
        _say_resumable(ledger, paths, options, why)
    return EXIT_INTERRUPTED if why == "interrupted" else 0


def _check_keys() -> None:
    """Raise IbidemError if there is no API key for any provider. Called before logs are read, which takes long."""
    wrong = []
    for provider in TRIAL_PROVIDERS.values():
        try:
            key_for(provider, variables())
            return
        except IbidemError as error:
            wrong.append(str(error))
    names = ", ".join(dict.fromkeys(each.key_variables[0] for each in TRIAL_PROVIDERS.values()))
    none = f"no API key: set one of {names}"
    raise IbidemError(next((words for words in wrong if not words.startswith("no API key")), none))


def _say_resumable(ledger: TrialLedger, paths: Sequence[str], options: TrialOptions, why: str = "") -> None:
    """Print the command that resumes the trial."""
    more = dict[str, str | None](
        {"--resume": str(ledger.path), "--upstream": options.upstream, "--prices": options.price_file}
    )
    words = [*paths, *(word for name, value in more.items() if value is not None for word in (name, value))]
    command = f"ibidem trial {shlex.join(words)}"
    if why == "budget":
        told = f"the budget is used up ({dollars(ledger.spent)} spent)"
        say(f"{told}. To continue with more: {command} --budget {math.ceil(2 * ledger.budget)}")
    else:
        say(f"{dollars(ledger.spent)} spent. To continue: {command}")


# ── logs and plan ───────────────────────────────────────────────────────────────────────────────────────────────────


def _logs(paths: tuple[str, ...]) -> list[LogFile]:
    if paths:
        return list(named(paths, None))
    newest = sorted(installed_agent_logs(), key=lambda log: (log.written or 0.0, log.path), reverse=True)
    if not newest:
        raise InputError("trial", "no agent logs on this machine: pass some, or record with `ibidem proxy --record`")
    kept, size = list[LogFile](), 0
    for log in newest:
        if kept and size + log.size > MAX_LOG_BYTES:
            say(f"reading the newest {len(kept):,} of {len(newest):,} logs. Pass paths to read others.")
            break
        kept.append(log)
        size += log.size
    return kept


def _surveys(logs: Sequence[LogFile], profile: str) -> list[SessionSurvey]:
    surveys, unread = list[SessionSurvey](), 0
    with progress("finding decision points", sum(log.size for log in logs)) as done:
        for log in logs:
            try:
                surveys += surveys_of(log.path, profile)
            except (LogError, OSError, RecursionError):
                unread += 1
            done(log.size, f"{sum(len(each.points) for each in surveys):,} points")
    if unread:
        say(f"{unread:,} of {len(logs):,} files have no readable session")
    if not surveys:
        raise InputError(
            "trial", "no recorded session in these files: pass logs of agents, or of `ibidem proxy --record`"
        )
    return surveys


def _planned(logs: Sequence[LogFile], prices: Prices, options: TrialOptions) -> _Ready | int:
    """Plan the trial and print the plan. Return the prepared trial; with `--dry-run`, the exit code."""
    profile = options.profile or USUAL_PROFILE
    samples = options.samples or USUAL_SAMPLES
    seed = options.seed or 0
    every = _surveys(logs, profile)
    elsewhere = options.upstream is not None
    aim = target(every, prices, options.model, elsewhere=elsewhere)
    surveys = asked_surveys(every, aim, named=options.model is not None, elsewhere=elsewhere)
    base = base_for(TRIAL_PROVIDERS[aim.format], variables(), options.upstream)
    most = options.points or (USUAL_POINTS if options.budget is None else MAX_POINTS)
    with progress("planning", 0) as done:
        plan = plan_trial(
            surveys,
            aim,
            profile=profile,
            samples=samples,
            seed=seed,
            most=most,
            budget=options.budget,
            looked=lambda: done(0, ""),
            probes=options.probes,
        )
        if not plan.sessions:
            raise IbidemError(_too_little(plan, options.budget))
        chosen = {session.session for session in plan.sessions}
        spared = saving([each for each in surveys if each.digest in chosen], profile, aim)
    setup = setup_of(
        plan,
        surveys,
        aim,
        profile=profile,
        samples=samples,
        seed=seed,
        budget=options.budget or 0.0,
        elsewhere=elsewhere,
        started=time.time(),
        spared=spared,
        notes=list(_left_out(every, surveys, plan)),
        probes=options.probes,
        exact=options.points is not None,
    )
    told_plan(plan, setup, base, as_json=options.as_json and options.dry_run, dry_run=options.dry_run)
    if options.dry_run:
        return 0
    ledger = TrialLedger(setup, rung=plan.rung, budget=setup.budget)
    return _Ready(ledger, plan.sessions, {each.digest: each for each in surveys}, aim)


def _too_little(plan: TrialPlan, budget: float | None) -> str:
    if (plan.cut or plan.too_long) and budget is not None:
        told = f"{dollars(budget)} is not enough for requests of this size"
        return f"{told}: increase --budget, or reduce --samples"
    return "the provider would reject every recorded request: pass other recordings"


def _left_out(every: Sequence[SessionSurvey], asked: Sequence[SessionSurvey], plan: TrialPlan) -> Iterator[str]:
    others = sum(bool(each.points) for each in every) - sum(bool(each.points) for each in asked)
    if others > 0:
        yield f"left out: {plural(others, 'session')} of other models or formats, or copied"
    if plan.too_long:
        points = plural(len(plan.too_long), "point")
        yield f"left out: {points} in long requests, since one session may take only a part of the budget"
    if plan.unsound:
        why = "that the provider would refuse as recorded, or whose size is not known (files by address)"
        yield f"left out: {plural(plan.unsound, 'point')} {why}"


def _begin(ledger: TrialLedger, out: str | None) -> None:
    if out is None:
        folder = data_folder() / "trials"
        name = f"trial-{datetime.fromtimestamp(ledger.setup.started, UTC):%Y%m%dT%H%M%S}.jsonl"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(one_line(str(folder)), reason(error)) from None
        ledger.path = folder / name
    else:
        ledger.path = Path(out)
    try:
        ledger.begin()
    except FileExistsError:
        raise InputError(
            one_line(str(ledger.path)), "already exists: continue with --resume, or pass another"
        ) from None
    except OSError as error:
        raise InputError(one_line(str(ledger.path)), reason(error)) from None
    say(f"writing {ledger.path}")


def _resumed(path: Path, logs: Sequence[LogFile], prices: Prices, options: TrialOptions) -> _Ready:
    try:
        ledger = resumed(path)
    except OSError as error:
        raise InputError(one_line(str(path)), reason(error)) from None
    try:
        return _found_as_it_was(ledger, logs, prices, options)
    except BaseException:
        ledger.close()
        raise


def _found_as_it_was(ledger: TrialLedger, logs: Sequence[LogFile], prices: Prices, options: TrialOptions) -> _Ready:
    setup = ledger.setup
    if options.budget is not None and options.budget != ledger.budget:
        ledger.note(budget=options.budget)
    price = prices.of(setup.model, setup.format)
    if price.assumed:
        raise IbidemError(f"no known price for {setup.model!r}: pass --prices FILE as in the first run")
    check_price(price, setup.model)
    if setup.elsewhere and options.upstream is None:
        raise IbidemError("this trial was started with --upstream: pass the same URL again")
    aim = TrialTarget(setup.format, setup.model, price)
    wanted = {point.session for point in setup.points}
    surveys = _found_again(logs, wanted, setup)
    sessions = []
    for name, known in list(surveys.items()):
        points = [point for point in setup.points if point.session == name]
        try:
            loaded = load(known, points, setup.profile, aim)
        except IbidemError:  # the log has changed
            del surveys[name]
            continue
        sessions.append(session_plan(points, loaded, ledger.rung, setup.seed if setup.probes else None))
    if not sessions:
        raise IbidemError("these logs have no unchanged session of this trial: pass the logs of the first run")
    if missing := len(wanted - surveys.keys()):
        say(f"{missing:,} of {len(wanted):,} sessions are missing or changed in these logs and are skipped")
    order = {session: place for place, session in enumerate(dict.fromkeys(point.session for point in setup.points))}
    sessions.sort(key=lambda each: order[each.session])
    return _Ready(ledger, sessions, surveys, aim)


def _found_again(logs: Iterable[LogFile], wanted: set[str], setup: TrialSetup) -> dict[str, SessionSurvey]:
    found: dict[str, SessionSurvey] = {}
    for log in logs:
        with suppress(LogError, OSError):
            for place, session in enumerate(read(log.path, fetch(log.path))):
                name = session_digest(session)
                if name in wanted and name not in found:
                    known = SessionSurvey(name, log.path, place, session.agent, session.format, setup.model, 0, ())
                    found[name] = known
    return found


# ── model calls ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _ask(ready: _Ready, client: ProviderClient) -> str:
    probes = sum(
        len(keys) for plan in ready.sessions for at in range(len(plan.points)) for keys in probe_lanes(plan, at)
    )
    watch = TrialWatch(ready.ledger, sum(len(each.points) for each in ready.sessions), probes)
    async with client:
        trial = TrialRun(
            ready.ledger,
            ready.sessions,
            ready.load,
            client,
            ready.aim.price,
            hooks(ready.ledger.setup),
            watch.say,
            watch,
        )
        with interrupted(lambda: trial.stop("interrupted")):
            try:
                return await trial.run()
            finally:
                watch.end()
