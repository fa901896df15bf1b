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
from ..strategies.profiles import profile_strategies as strategies_of
from .actions import RecordedAction, short_digest
from .decision_points import (
    DecisionPoint,
    SessionSurvey,
    choose_points,
    count_points,
    is_changed,
    session_digest,
    survey_session,
)
from .file_views import VisibleFiles
from .probes import Probe, find_probes
from .providers import TRIAL_PROVIDERS
from .request_builder import (
    EntrySizes,
    RequestBuilder,
    SessionParameters,
    ThinkingLevel,
    collect_parameters,
    refers_to_files,
)
from .rewritten_histories import VariantHistories, rewrite_histories
from .run_log import TrialSetup
from .schedule import Forecast, Forecaster, SessionPlan, count_point_sizes, estimate_token_factor, median_output

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


def survey_log(path: str, profile: str, base: str = "") -> list[SessionSurvey]:
    """Survey all sessions in a log. Raises LogError if it is not a log, OSError if it cannot be read."""
    sessions = read(path, fetch(path, base))
    return [survey_session(session, place, profile) for place, session in enumerate(sessions)]


def choose_target(
    surveys: Sequence[SessionSurvey], prices: Prices, model: str | None, *, elsewhere: bool
) -> TrialTarget:
    """Choose the model of the trial: `model`, or the one with the most points.

    Requests are sent to their original provider, unless `elsewhere` is set. Raises IbidemError if no model fits.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for survey in surveys:
        name = model or survey.model
        if name and survey.points and (elsewhere or _is_from_provider(survey, name)):
            counts[survey.format, name] += len(survey.points)
    if not counts:
        raise IbidemError(_no_target_message(surveys, model))
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
        problem = f"no output price is known for {name!r}, so the budget cannot be enforced"
        raise IbidemError(f'{problem}: add "output" to it in the file of --prices')


def _is_from_provider(survey: SessionSurvey, model: str) -> bool:
    """Return whether these requests were recorded with the provider of `model`.

    The bundled price list names the provider, because a user's own prices do not. Logs without a host count only if
    their agent always uses this provider.
    """
    provider = TRIAL_PROVIDERS[survey.format]
    is_same_address = (
        survey.host == urlsplit(provider.base_url).hostname
        if survey.host
        else survey.agent in provider.exclusive_agents
    )
    list_price = Prices().of(model, survey.format)
    return is_same_address and not list_price.assumed and list_price.provider == provider.price_list_name


def _no_target_message(surveys: Sequence[SessionSurvey], model: str | None) -> str:
    if not any(survey.points for survey in surveys):
        return "no request in these recordings is rewritten, so there are no decision points: pass longer sessions"
    surveys_with_points = [each for each in surveys if each.points]
    models = SEPARATOR.join(sorted({each.model for each in surveys_with_points if each.model})) or "no model"
    if not any(each.model for each in surveys_with_points) and model is None:
        return "the recordings name no model: pass --model, and the provider's address with --upstream"
    bases = SEPARATOR.join(dict.fromkeys(TRIAL_PROVIDERS[each.format].base_url for each in surveys_with_points))
    problem = f"the recorded requests ({models}) may be from another provider than that of {model or 'their model'}"
    return f"{problem}: pass the provider's address with --upstream, as in --upstream {bases}"


def select_surveys(
    surveys: Iterable[SessionSurvey], aim: TrialTarget, *, is_model_given: bool, elsewhere: bool
) -> list[SessionSurvey]:
    """Return the surveys that fit the model, each session once, because a log may be copied."""
    selected_surveys: dict[str, SessionSurvey] = {}
    for survey in surveys:
        fits = survey.format == aim.format and (is_model_given or survey.model == aim.model)
        if fits and (elsewhere or _is_from_provider(survey, aim.model)):
            selected_surveys.setdefault(survey.digest, survey)
    return list(selected_surveys.values())


# ── sessions with their requests ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """A recorded session with the requests of its points, ready to be sent."""

    builder: RequestBuilder
    points: dict[str, VariantHistories]
    """Histories by point id, without points that the provider would reject or whose cost is unknown."""
    parameters: SessionParameters
    _visible_files: dict[str, VisibleFiles] = field(default_factory=dict)
    _recorded_actions: dict[str, RecordedAction] = field(default_factory=dict)

    def visible_files(self, point: str) -> VisibleFiles:
        """Return what the original request of a point shows of files."""
        if point not in self._visible_files:
            read = formats.format_named(self.builder.format).read_message
            self._visible_files[point] = VisibleFiles(
                [read(*entry) for entry in enumerate(self.points[point].original)]
            )
        return self._visible_files[point]

    def recorded_action(self, point: str) -> RecordedAction:
        """Return the agent's recorded action at a point."""
        if point not in self._recorded_actions:
            read = formats.format_named(self.builder.format).read_message
            messages = [read(*entry) for entry in enumerate(self.points[point].next_messages)]
            self._recorded_actions[point] = RecordedAction.from_calls(
                [call for message in messages for call in message.calls]
            )
        return self._recorded_actions[point]


def load_session(
    survey: SessionSurvey, points: Sequence[DecisionPoint], profile: str, aim: TrialTarget
) -> LoadedSession:
    """Read a session again and rewrite its requests at these points. Raises IbidemError if the log has changed."""
    session = _reload_session(survey)
    if is_changed(session, points):
        raise IbidemError(_changed_message(survey))
    points_by_position = {(point.segment, point.number): point for point in points}
    parameters = collect_parameters(session, aim.model)
    name = f"ibidem-trial-{survey.digest}" if aim.price.caching.key else ""
    builder = RequestBuilder(survey.format, parameters, aim.model, name)
    histories_found = list(rewrite_histories(session, profile, points_by_position.keys()))
    if len(histories_found) != len(points_by_position):
        raise IbidemError(_changed_message(survey))
    histories_by_id = {
        points_by_position[place].id: each
        for place, each in zip(sorted(points_by_position), histories_found, strict=True)
    }
    key = formats.format_named(survey.format).history_key
    valid_histories = {
        name: each
        for name, each in histories_by_id.items()
        if not validate({key: builder.sent_entries(each.original, ThinkingLevel.OFF)}, format=survey.format)
        and not any(map(refers_to_files, each.original))
    }
    return LoadedSession(builder, valid_histories, parameters)


def _reload_session(survey: SessionSurvey) -> Recording:
    sessions = read(survey.path, fetch(survey.path))
    if survey.place < len(sessions) and session_digest(sessions[survey.place]) == survey.digest:
        return sessions[survey.place]
    raise IbidemError(_changed_message(survey))


def _changed_message(survey: SessionSurvey) -> str:
    return f"{one_line(Path(survey.path).name)}: the log has changed since the plan was made: start a new trial"


# ── the plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class TrialPlan:
    """Sessions and points of a trial, with the expected cost."""

    sessions: list[SessionPlan] = field(default_factory=list)
    forecast: Forecast = field(default_factory=Forecast)
    factor: float = 1.0
    output: float = 0.0
    thinking_level: ThinkingLevel = ThinkingLevel.KEPT
    has_thinking: bool = False
    """The recorded requests have thinking enabled."""
    notes: list[str] = field(default_factory=list)
    unsound_count: int = 0
    """Number of points that the provider would reject as recorded, or with files of unknown size."""
    too_long: set[str] = field(default_factory=set)
    """Points that are omitted because their session would use too much of the budget."""
    is_budget_limited: bool = False
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
    on_session: Callable[[], object] = lambda: None,
    probes: bool = False,
) -> TrialPlan:
    """Select as many points as the budget is expected to pay for. `on_session` is called after each session."""
    request = _PlanRequest(profile, samples, seed, most, budget, probes)
    too_long: set[str] = set()
    for _ in range(PASSES):
        plan = TrialPlan(output=median_output(point for each in surveys for point in each.points))
        plan.too_long = too_long
        before = len(too_long)
        _fill_plan(plan, surveys, aim, request, on_session)
        if len(too_long) == before:  # if not, select again, so that other points of their stratum take their place
            break
    return plan


class _PlanRequest(NamedTuple):
    """Arguments of `plan_trial` that select points."""

    profile: str
    samples: int
    seed: int
    most: int
    budget: float | None
    probes: bool


def _fill_plan(
    plan: TrialPlan,
    surveys: Sequence[SessionSurvey],
    aim: TrialTarget,
    request: _PlanRequest,
    on_session: Callable[[], object],
) -> None:
    profile, samples, seed, most, budget, probes = request
    by_digest = {each.digest: each for each in surveys}
    selected_points = choose_points(surveys, most, seed, plan.too_long)
    share = max(SESSION_SHARE, 1 / max(1, sum(bool(each.points) for each in surveys)))
    notes: dict[str, None] = {}
    levels = []
    for points in selected_points:
        loaded_session = load_session(by_digest[points[0].session], points, profile, aim)
        on_session()
        plan.unsound_count += len(points) - len(loaded_session.points)
        session = make_session_plan(
            points, loaded_session, loaded_session.parameters.first_level, seed if probes else None
        )
        if budget is not None:
            session = _cut_to_budget(session, by_digest[points[0].session], budget * share, aim.price, samples, plan)
        if not session.points:
            continue
        plan.sessions.append(session)
        factor = estimate_token_factor((each.points, each.sizes) for each in plan.sessions)
        forecast = forecast_sessions(plan.sessions, aim.price, samples, plan.output, factor)
        if budget is not None and forecast.dollars > budget - RESERVE_CALLS * forecast.max_dollars / max(
            1, forecast.calls
        ):
            plan.sessions.pop()
            plan.is_budget_limited = True
            break
        plan.forecast, plan.factor = forecast, factor
        notes |= dict.fromkeys(loaded_session.parameters.notes)
        levels.append(loaded_session.parameters.first_level)
        plan.has_thinking = plan.has_thinking or loaded_session.builder.provider.has_thinking(
            loaded_session.parameters.fields
        )
    plan.thinking_level = max(levels, default=ThinkingLevel.KEPT)
    plan.notes = [*notes, *([plan.thinking_level.description] if plan.thinking_level else [])]


def _cut_to_budget(
    session: SessionPlan, survey: SessionSurvey, most: float, price: Price, samples: int, plan: TrialPlan
) -> SessionPlan:
    """Remove the last points until the session costs at most `most`. Add all later points to `too_long`."""
    whole = session
    while session.points and forecast_sessions([session], price, samples, plan.output, plan.factor).dollars > most:
        session = session.drop_last_point()
    if len(session.points) < len(whole.points):
        first_dropped = _point_position(whole.points[len(session.points)])
        plan.too_long |= {point.id for point in survey.points if _point_position(point) >= first_dropped}
    return session


def _point_position(point: DecisionPoint) -> tuple[int, int]:
    return point.segment, point.number


def make_session_plan(
    points: Sequence[DecisionPoint], loaded_session: LoadedSession, level: ThinkingLevel, probe_seed: int | None = None
) -> SessionPlan:
    """Return the points of a session with their sizes.

    `probe_seed` is the seed of the probes, or None without probes. A resumed trial uses it to get the same questions.
    """
    sound = [point for point in points if point.id in loaded_session.points]
    head, sizes = count_point_sizes(
        loaded_session.builder, [loaded_session.points[point.id] for point in sound], level, EntrySizes()
    )
    fields: Json = loaded_session.parameters.fields
    name = short_digest(to_json(fields)) if fields else ""
    session = sound[0].session if sound else ""
    probes = () if probe_seed is None else tuple(_make_probes(point, loaded_session, probe_seed) for point in sound)
    return SessionPlan(
        session, tuple(sound), tuple(sizes), head, name, loaded_session.builder.output_limit(level), probes
    )


def _make_probes(point: DecisionPoint, loaded_session: LoadedSession, seed: int) -> tuple[Probe, ...]:
    return find_probes(loaded_session.points[point.id], loaded_session.builder.format, f"{seed}/{point.id}")


def forecast_sessions(
    sessions: Iterable[SessionPlan], price: Price, samples: int, output: float, factor: float
) -> Forecast:
    """Return the expected calls, tokens and cost of these sessions."""
    forecaster = Forecaster(price, samples, output, factor)
    for session in sessions:
        forecaster.add_session(session)
    return forecaster.total


def make_setup(
    plan: TrialPlan,
    surveys: Sequence[SessionSurvey],
    aim: TrialTarget,
    *,
    profile: str,
    samples: int,
    seed: int,
    budget: float,
    elsewhere: bool = False,
    start_time: float,
    trial_saving: TrialSaving,
    notes: Sequence[str] = (),
    probes: bool = False,
    exact: bool = False,
) -> TrialSetup:
    """Return the first row of a run log. `exact`: use all points, even if fewer would be enough."""
    planned_digests = {each.session for each in plan.sessions}
    planned_surveys = [each for each in surveys if each.digest in planned_digests]
    return TrialSetup(
        model=aim.model,
        format=aim.format,
        profile=profile,
        seed=seed,
        samples=samples,
        budget=budget,
        elsewhere=elsewhere,
        started=start_time,
        requests=sum(each.requests for each in surveys),
        population={str(name): count for name, count in count_points(surveys).items()},
        factor=plan.factor,
        paid=trial_saving.paid,
        saved=trial_saving.saved,
        lets_thinking_go=any("thinking" in each.touches for each in strategies_of(profile)),
        asks_to_think=plan.has_thinking,
        notes=(*plan.notes, *notes),
        points=tuple(plan.points),
        probes=probes,
        drawn_requests=sum(each.requests for each in planned_surveys),
        drawn_rewritten=count_points(planned_surveys).total(),
        exact=exact,
    )


@dataclass(frozen=True, slots=True)
class TrialSaving:
    """Cost of recorded sessions and what a profile saves of it, from a replay. The verdict compares harm with it."""

    paid: float
    """Dollars for input and recorded output, because an extra request costs both."""
    saved: float


def compute_saving(surveys: Iterable[SessionSurvey], profile: str, aim: TrialTarget) -> TrialSaving:
    """Compute cost and savings of these sessions, at the price of the trial's model."""
    settings = ReportSettings((profile,), prices={aim.model: aim.price}, model=aim.model)
    total_cost = total_saving = 0.0
    for path in dict.fromkeys(survey.path for survey in surveys):
        for session in measure_log(path, fetch(path), settings).sessions:
            if profile in session.profiles:
                total_cost += session.baseline.cost
                total_saving += session.baseline.cost - session.profiles[profile].spent.cost
        total_cost += _output_cost(path, aim)
    return TrialSaving(total_cost, total_saving)


def _output_cost(path: str, aim: TrialTarget) -> float:
    """Return the cost of the recorded output in dollars, at the price of the trial's model."""
    usage_rows = (
        row for session in read_facts(path, fetch(path)).sessions for row in session.counted if row is not None
    )
    usages = [Usage(*row) for row in usage_rows]
    return sum(aim.price.rates(usage.input).output * usage.output for usage in usages)
