"""Plan a trial from surveys of recorded sessions: the model, the decision points, and the cost.

A trial uses one model and one wire format, and requests that were recorded with that provider. The plan selects as many
points as the budget allows. The pilot may reduce their number later.
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
"""Maximum number of points for any budget."""
USUAL_POINTS = 100
"""Number of points if no budget is set."""
RESERVE_CALLS = 1.5
"""Calls at maximum cost that the plan keeps in reserve. Without them, the last calls would not be sent."""
SESSION_SHARE = 0.1
"""Share of the budget for one session, or more with fewer than ten sessions. A few long sessions are a poor sample."""
PASSES = 3
"""Maximum number of selections. Each one excludes the points that the one before found too long."""
SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class TrialTarget:
    """Model of a trial, with its wire format and price."""

    format: str
    model: str
    price: Price


def surveys_of(path: str, profile: str, base: str = "") -> list[SessionSurvey]:
    """Survey all sessions in a log. Raises LogError if it is not a log, OSError if it cannot be read."""
    sessions = read(path, fetch(path, base))
    return [survey(session, place, profile) for place, session in enumerate(sessions)]


def target(surveys: Sequence[SessionSurvey], prices: Prices, model: str | None, *, elsewhere: bool) -> TrialTarget:
    """Choose the model of the trial: `model`, or the one with the most points.

    Requests are sent to their original provider, unless `elsewhere` is set. Raises IbidemError if no model fits.
    """
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
            f"no price is known for {name!r}, so the budget cannot be enforced: pass its prices with --prices FILE"
        )
    check_price(price, name)
    return TrialTarget(format_, name, price)


def check_price(price: Price, name: str) -> None:
    """Raise IbidemError if the price has no output price, because output would then seem free."""
    rates = price.rates(0)
    if rates.fresh > 0 and not rates.output > 0:
        told = f"no output price is known for {name!r}, so the budget cannot be enforced"
        raise IbidemError(f'{told}: add "output" to it in the file of --prices')


def _came_from(known: SessionSurvey, model: str) -> bool:
    """Return whether these requests were recorded with the provider of `model`.

    The bundled price list names the provider, because a user's own prices do not. Logs without a host count only if
    their agent always uses this provider.
    """
    provider = TRIAL_PROVIDERS[known.format]
    went = known.host == urlsplit(provider.base).hostname if known.host else known.agent in provider.clients
    listed = Prices().of(model, known.format)
    return went and not listed.assumed and listed.provider == provider.house


def _nobody(surveys: Sequence[SessionSurvey], model: str | None) -> str:
    if not any(each.points for each in surveys):
        return "no request in these recordings is rewritten, so there are no decision points: pass longer sessions"
    having = [each for each in surveys if each.points]
    models = SEPARATOR.join(sorted({each.model for each in having if each.model})) or "no model"
    if not any(each.model for each in having) and model is None:
        return "the recordings name no model: pass --model, and the provider's address with --upstream"
    bases = SEPARATOR.join(dict.fromkeys(TRIAL_PROVIDERS[each.format].base for each in having))
    told = f"the recorded requests ({models}) may be from another provider than that of {model or 'their model'}"
    return f"{told}: pass the provider's address with --upstream, as in --upstream {bases}"


def asked_surveys(
    surveys: Iterable[SessionSurvey], aim: TrialTarget, *, named: bool, elsewhere: bool
) -> list[SessionSurvey]:
    """Return the surveys that fit the model, each session once, because a log may be copied."""
    found: dict[str, SessionSurvey] = {}
    for each in surveys:
        fits = each.format == aim.format and (named or each.model == aim.model)
        if fits and (elsewhere or _came_from(each, aim.model)):
            found.setdefault(each.digest, each)
    return list(found.values())


# ── sessions with their requests ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """A recorded session with the requests of its points, ready to be sent."""

    asker: Asker
    points: dict[str, ArmHistories]
    """Histories by point id, without points that the provider would reject or whose cost is unknown."""
    head: SessionHead
    _shown: dict[str, ShownFiles] = field(default_factory=dict)
    _recorded: dict[str, RecordedAction] = field(default_factory=dict)

    def shown(self, point: str) -> ShownFiles:
        """Return what the original request of a point shows of files."""
        if point not in self._shown:
            read = formats.named(self.asker.format).read
            self._shown[point] = ShownFiles([read(*each) for each in enumerate(self.points[point].original)])
        return self._shown[point]

    def recorded(self, point: str) -> RecordedAction:
        """Return the agent's recorded action at a point."""
        if point not in self._recorded:
            read = formats.named(self.asker.format).read
            said = [read(*each) for each in enumerate(self.points[point].answer)]
            self._recorded[point] = RecordedAction.of([call for message in said for call in message.calls])
        return self._recorded[point]


def load(known: SessionSurvey, points: Sequence[DecisionPoint], profile: str, aim: TrialTarget) -> LoadedSession:
    """Read a session again and rewrite its requests at these points. Raises IbidemError if the log has changed."""
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
    return f"{one_line(Path(known.path).name)}: the log has changed since the plan was made: start a new trial"


# ── the plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class TrialPlan:
    """Sessions and points of a trial, with the expected cost."""

    sessions: list[SessionPlan] = field(default_factory=list)
    forecast: Forecast = field(default_factory=Forecast)
    factor: float = 1.0
    output: float = 0.0
    rung: ThinkingRung = ThinkingRung.KEPT
    thinks: bool = False
    """The recorded requests have thinking enabled."""
    notes: list[str] = field(default_factory=list)
    unsound: int = 0
    """Number of points that the provider would reject as recorded, or with files of unknown size."""
    too_long: set[str] = field(default_factory=set)
    """Points that are omitted because their session would use too much of the budget."""
    cut: bool = False
    """The budget limits the plan, not the number of points."""

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
    """Select as many points as the budget is expected to pay for. `on_session` is called after each session."""
    wanted = _Wanted(profile, samples, seed, most, budget, probes)
    too_long: set[str] = set()
    for _ in range(PASSES):
        plan = TrialPlan(output=usual_output(point for each in surveys for point in each.points))
        plan.too_long = too_long
        before = len(too_long)
        _fill(plan, surveys, aim, wanted, looked)
        if len(too_long) == before:  # if not, select again, so that other points of their stratum take their place
            break
    return plan


class _Wanted(NamedTuple):
    """Arguments of `plan_trial` that select points."""

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
    """Remove the last points until the session costs at most `most`. Add all later points to `too_long`."""
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
    """Return the points of a session with their sizes.

    `probe_seed` is the seed of the probes, or None without probes. A resumed trial uses it to get the same questions.
    """
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
    """Return the expected calls, tokens and cost of these sessions."""
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
    """Return the first row of a run log. `exact`: use all points, even if fewer would be enough."""
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
    """Cost of recorded sessions and what a profile saves of it, from a replay. The verdict compares harm with it."""

    paid: float
    """Dollars for input and recorded output, because an extra request costs both."""
    saved: float


def saving(surveys: Iterable[SessionSurvey], profile: str, aim: TrialTarget) -> TrialSaving:
    """Compute cost and savings of these sessions, at the price of the trial's model."""
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
    """Return the cost of the recorded output in dollars, at the price of the trial's model."""
    counted = (row for session in read_facts(path, fetch(path)).sessions for row in session.counted if row is not None)
    usages = [Usage(*row) for row in counted]
    return sum(aim.price.rates(usage.input).output * usage.output for usage in usages)
