"""From surveys of recorded sessions to a plan: whom to ask, which points, and what that costs.

A trial asks one model in one format, of requests that went to that provider. How many points it asks about is settled
here, by the budget, before the first answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from .. import formats
from ..billing.prices import Price, Prices
from ..billing.usage import Usage
from ..engine.pipeline import validate
from ..errors import IbidemError, one_line
from ..model import to_json
from ..recordings import Recording, read
from ..recordings.recording import Json
from ..report.log_sources import fetch
from ..report.log_summary import read_facts
from ..report.measure import ReportSettings, measure_log
from ..strategies.profiles import named as strategies_of
from .actions import RecordedAction, digest
from .bodies import Asker, EntrySizes, SessionHead, ThinkingRung, has_unsized, session_head
from .files import ShownFiles
from .ledger import TrialSetup
from .order import Forecast, Forecaster, SessionPlan, counted_factor, sizes_of, usual_output
from .points import DecisionPoint, SessionSurvey, choose, is_changed, population, session_digest, survey
from .probes import Probe, probes_of
from .providers import TRIAL_PROVIDERS
from .replayed import ArmHistories, histories

MAX_POINTS = 400
"""Points that are asked about at the most, whatever the budget."""
USUAL_POINTS = 100
"""Points that are planned where no budget is given."""
RESERVE_CALLS = 1.5
"""So many calls at their highest price are left of the budget, or the last ones would not be sent."""
SESSION_SHARE = 0.1
"""Of the budget, that one session may take: few long ones would tell little. More where there are fewer than ten."""
PASSES = 3
"""How often points are chosen, without those that were found to be too long for that."""
SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class TrialTarget:
    """Whom to ask."""

    format: str
    model: str
    price: Price


def surveys_of(path: str, profile: str, base: str = "") -> list[SessionSurvey]:
    """Of all sessions in a log. Raises LogError for what is none, OSError for what cannot be read."""
    sessions = read(path, fetch(path, base))
    return [survey(session, place, profile) for place, session in enumerate(sessions)]


def target(surveys: Sequence[SessionSurvey], prices: Prices, model: str | None, *, elsewhere: bool) -> TrialTarget:
    """The model that is asked: the one that is named, or the one of most points. Requests go to the provider they came
    from, unless they are sent `elsewhere`. Raises IbidemError where there is none."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in surveys:
        name = model or each.model
        if name and each.points and (elsewhere or _came_from(each, name)):
            counts[each.format, name] += len(each.points)
    if not counts:
        raise IbidemError(_nobody(surveys, model))
    (format_, name), _ = max(counts.items(), key=lambda each: (each[1], each[0]))
    price = prices.of(name, format_)
    if price.assumed:
        raise IbidemError(
            f"no price is known for {name!r}, so no budget could be kept: give its prices with --prices FILE"
        )
    check_price(price, name)
    return TrialTarget(format_, name, price)


def check_price(price: Price, name: str) -> None:
    """Raises IbidemError where answers would seem to cost nothing."""
    rates = price.rates(0)
    if rates.fresh > 0 and not rates.output > 0:
        told = f"no price of output is given for {name!r}, so no budget could be kept"
        raise IbidemError(f'{told}: add "output" to it in the file of --prices')


def _came_from(known: SessionSurvey, model: str) -> bool:
    """Whether these requests went to the very provider that is asked. Own prices name no provider: the list does. Logs
    of clients that speak to many providers do not say it surely."""
    provider = TRIAL_PROVIDERS[known.format]
    went = known.host == urlsplit(provider.base).hostname if known.host else known.agent in provider.clients
    listed = Prices().of(model, known.format)
    return went and not listed.assumed and listed.provider == provider.house


def _nobody(surveys: Sequence[SessionSurvey], model: str | None) -> str:
    if not any(each.points for each in surveys):
        return "nothing in these recordings is rewritten, so there is nothing to ask about: name longer sessions"
    having = [each for each in surveys if each.points]
    models = SEPARATOR.join(sorted({each.model for each in having if each.model})) or "no model"
    if not any(each.model for each in having) and model is None:
        return "the recordings name no model: name one with --model, and where to send them with --upstream"
    bases = SEPARATOR.join(dict.fromkeys(TRIAL_PROVIDERS[each.format].base for each in having))
    told = f"nothing says that the recorded requests ({models}) went to the provider of {model or 'their model'}"
    return f"{told}: name where to send them with --upstream, as in --upstream {bases}"


def asked_surveys(
    surveys: Iterable[SessionSurvey], aim: TrialTarget, *, named: bool, elsewhere: bool
) -> list[SessionSurvey]:
    """Those that can be asked about, each session once: a log may have been copied."""
    found: dict[str, SessionSurvey] = {}
    for each in surveys:
        fits = each.format == aim.format and (named or each.model == aim.model)
        if fits and (elsewhere or _came_from(each, aim.model)):
            found.setdefault(each.digest, each)
    return list(found.values())


# ── a session, ready to be asked about ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoadedSession:
    asker: Asker
    points: dict[str, ArmHistories]
    """By the ids of points. Those that the provider would refuse, or of which nobody can say what they cost, are not
    among them."""
    head: SessionHead
    _shown: dict[str, ShownFiles] = field(default_factory=dict)
    _recorded: dict[str, RecordedAction] = field(default_factory=dict)

    def shown(self, point: str) -> ShownFiles:
        """What the request of a point shows of files, with all that was left out of it put back."""
        if point not in self._shown:
            read = formats.named(self.asker.format).read
            self._shown[point] = ShownFiles([read(*each) for each in enumerate(self.points[point].original)])
        return self._shown[point]

    def recorded(self, point: str) -> RecordedAction:
        """What the agent did at a point."""
        if point not in self._recorded:
            read = formats.named(self.asker.format).read
            said = [read(*each) for each in enumerate(self.points[point].answer)]
            self._recorded[point] = RecordedAction.of([call for message in said for call in message.calls])
        return self._recorded[point]


def load(known: SessionSurvey, points: Sequence[DecisionPoint], profile: str, aim: TrialTarget) -> LoadedSession:
    """Reads a session again and rewrites its requests at these points. Raises IbidemError if the log has changed."""
    session = _again(known)
    if is_changed(session, points):
        raise IbidemError(_changed(known))
    wanted = {(point.segment, point.number): point for point in points}
    head = session_head(session, aim.model)
    name = f"ibidem-trial-{known.digest}" if aim.price.caching.key else ""
    asker = Asker(known.format, head, aim.model, name)
    found = list(histories(session, profile, wanted.keys()))
    if len(found) != len(wanted):
        raise IbidemError(_changed(known))
    every = {wanted[place].id: each for place, each in zip(sorted(wanted), found, strict=True)}
    key = formats.named(known.format).history_key
    sound = {
        name: each
        for name, each in every.items()
        if not validate({key: asker.entries(each.original, ThinkingRung.OFF)}, format=known.format)
        and not any(map(has_unsized, each.original))
    }
    return LoadedSession(asker, sound, head)


def _again(known: SessionSurvey) -> Recording:
    sessions = read(known.path, fetch(known.path))
    if known.place < len(sessions) and session_digest(sessions[known.place]) == known.digest:
        return sessions[known.place]
    raise IbidemError(_changed(known))


def _changed(known: SessionSurvey) -> str:
    return f"{one_line(Path(known.path).name)}: the log has changed since it was looked at: begin another trial"


# ── the plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class TrialPlan:
    """What is to be asked."""

    sessions: list[SessionPlan] = field(default_factory=list)
    forecast: Forecast = field(default_factory=Forecast)
    factor: float = 1.0
    output: float = 0.0
    rung: ThinkingRung = ThinkingRung.KEPT
    thinks: bool = False
    """The recorded requests ask the model to think."""
    notes: list[str] = field(default_factory=list)
    unsound: int = 0
    """Points that the provider would refuse as they were recorded, or that hold files of unknown size."""
    too_long: set[str] = field(default_factory=set)
    """Points that are left out because their session would take too much of the budget."""
    cut: bool = False
    """The budget ends it, not the number of points."""

    @property
    def points(self) -> list[DecisionPoint]:
        return [point for session in self.sessions for point in session.points]


def plan_trial(
    surveys: Sequence[SessionSurvey],
    aim: TrialTarget,
    *,
    profile: str,
    samples: int,
    seed: int,
    most: int,
    budget: float | None,
    looked: Callable[[], object] = lambda: None,
    probes: bool = False,
) -> TrialPlan:
    """As many points as the budget pays for, if all goes well. `looked` is called for each session that was read."""
    wanted = _Wanted(profile, samples, seed, most, budget, probes)
    too_long: set[str] = set()
    for _ in range(PASSES):
        plan = TrialPlan(output=usual_output(point for each in surveys for point in each.points))
        plan.too_long = too_long
        before = len(too_long)
        _fill(plan, surveys, aim, wanted, looked)
        if len(too_long) == before:  # else others are chosen for them, so that there are as many of each kind
            break
    return plan


class _Wanted(NamedTuple):
    """What was asked for."""

    profile: str
    samples: int
    seed: int
    most: int
    budget: float | None
    probes: bool


def _fill(
    plan: TrialPlan,
    surveys: Sequence[SessionSurvey],
    aim: TrialTarget,
    wanted: _Wanted,
    looked: Callable[[], object],
) -> None:
    profile, samples, seed, most, budget, probes = wanted
    by_digest = {each.digest: each for each in surveys}
    chosen = choose(surveys, most, seed, plan.too_long)
    share = max(SESSION_SHARE, 1 / max(1, sum(bool(each.points) for each in surveys)))
    notes: dict[str, None] = {}
    rungs = []
    for points in chosen:
        loaded = load(by_digest[points[0].session], points, profile, aim)
        looked()
        plan.unsound += len(points) - len(loaded.points)
        session = session_plan(points, loaded, loaded.head.rung, seed if probes else None)
        if budget is not None:
            session = _affordable(session, by_digest[points[0].session], budget * share, aim.price, samples, plan)
        if not session.points:
            continue
        plan.sessions.append(session)
        factor = counted_factor((each.points, each.sizes) for each in plan.sessions)
        forecast = forecast_of(plan.sessions, aim.price, samples, plan.output, factor)
        if budget is not None and forecast.dollars > budget - RESERVE_CALLS * forecast.most / max(1, forecast.calls):
            plan.sessions.pop()
            plan.cut = True
            break
        plan.forecast, plan.factor = forecast, factor
        notes |= dict.fromkeys(loaded.head.lacking)
        rungs.append(loaded.head.rung)
        plan.thinks = plan.thinks or loaded.asker.provider.thinks(loaded.head.fields)
    plan.rung = max(rungs, default=ThinkingRung.KEPT)
    plan.notes = [*notes, *([plan.rung.words] if plan.rung else [])]


def _affordable(
    session: SessionPlan, known: SessionSurvey, most: float, price: Price, samples: int, plan: TrialPlan
) -> SessionPlan:
    """As many of its points, from the first on, as cost no more than that. What comes behind is too long as well."""
    whole = session
    while session.points and forecast_of([session], price, samples, plan.output, plan.factor).dollars > most:
        session = session.cut()
    if len(session.points) < len(whole.points):
        dropped = _place(whole.points[len(session.points)])
        plan.too_long |= {point.id for point in known.points if _place(point) >= dropped}
    return session


def _place(point: DecisionPoint) -> tuple[int, int]:
    return point.segment, point.number


def session_plan(
    points: Sequence[DecisionPoint], loaded: LoadedSession, rung: ThinkingRung, probing: int | None = None
) -> SessionPlan:
    """`probing` is the seed that probes are drawn with, None where there are none: a plan that is made again has the
    questions that it had."""
    sound = [point for point in points if point.id in loaded.points]
    head, sizes = sizes_of(loaded.asker, [loaded.points[point.id] for point in sound], rung, EntrySizes())
    fields: Json = loaded.head.fields
    name = digest(to_json(fields)) if fields else ""
    session = sound[0].session if sound else ""
    probes = () if probing is None else tuple(_probes(point, loaded, probing) for point in sound)
    return SessionPlan(session, tuple(sound), tuple(sizes), head, name, loaded.asker.limit(rung), probes)


def _probes(point: DecisionPoint, loaded: LoadedSession, seed: int) -> tuple[Probe, ...]:
    return probes_of(loaded.points[point.id], loaded.asker.format, f"{seed}/{point.id}")


def forecast_of(sessions: Iterable[SessionPlan], price: Price, samples: int, output: float, factor: float) -> Forecast:
    forecaster = Forecaster(price, samples, output, factor)
    for each in sessions:
        forecaster.add(each)
    return forecaster.total


def setup_of(
    plan: TrialPlan,
    surveys: Sequence[SessionSurvey],
    aim: TrialTarget,
    *,
    profile: str,
    samples: int,
    seed: int,
    budget: float,
    elsewhere: bool = False,
    started: float,
    spared: TrialSaving,
    notes: Sequence[str] = (),
    probes: bool = False,
    exact: bool = False,
) -> TrialSetup:
    """What the file of a trial begins with. `exact`: as many points as were asked for, and no fewer."""
    chosen = {each.session for each in plan.sessions}
    drawn = [each for each in surveys if each.digest in chosen]
    return TrialSetup(
        model=aim.model,
        format=aim.format,
        profile=profile,
        seed=seed,
        samples=samples,
        budget=budget,
        elsewhere=elsewhere,
        started=started,
        requests=sum(each.requests for each in surveys),
        population={str(name): count for name, count in population(surveys).items()},
        factor=plan.factor,
        paid=spared.paid,
        saved=spared.saved,
        lets_thinking_go=any("thinking" in each.touches for each in strategies_of(profile)),
        asks_to_think=plan.thinks,
        notes=(*plan.notes, *notes),
        points=tuple(plan.points),
        probes=probes,
        drawn_requests=sum(each.requests for each in drawn),
        drawn_rewritten=population(drawn).total(),
        exact=exact,
    )


@dataclass(frozen=True, slots=True)
class TrialSaving:
    """What a profile saves on sessions, by replay: what a trial is held against."""

    paid: float
    """Dollars for input, and for output as far as it was recorded: an extra request has both."""
    saved: float


def saving(surveys: Iterable[SessionSurvey], profile: str, aim: TrialTarget) -> TrialSaving:
    """On these sessions, priced as the model that is asked."""
    settings = ReportSettings((profile,), prices={aim.model: aim.price}, model=aim.model)
    paid = saved = 0.0
    for path in dict.fromkeys(each.path for each in surveys):
        for session in measure_log(path, fetch(path), settings).sessions:
            if profile in session.profiles:
                paid += session.baseline.cost
                saved += session.baseline.cost - session.profiles[profile].spent.cost
        paid += _output_cost(path, aim)
    return TrialSaving(paid, saved)


def _output_cost(path: str, aim: TrialTarget) -> float:
    """Dollars for what the agent's model answered, priced as the model that is asked."""
    counted = (row for session in read_facts(path, fetch(path)).sessions for row in session.counted if row is not None)
    usages = [Usage(*row) for row in counted]
    return sum(aim.price.rates(usage.input).output * usage.output for usage in usages)
