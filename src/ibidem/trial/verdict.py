"""Text of the verdict: three lines, and the rows of a table with the numbers behind them. No I/O.

No text here states that there is no difference, because no trial can show that. The verdict reports how large a
difference is excluded, and compares it with the savings. Names from recordings are not escaped here. The terminal and
the page do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, comb
from typing import NamedTuple

from ..render.number_format import NO_NUMBER, dollars, format_fixed, plural, sign
from .estimates import Estimate
from .outcomes import DroppedSamples, Stratum
from .trial_statistics import Comparison, TrialStatistics

STRATUM_WORDS = {
    Stratum.FOLLOWS: "a reference must be followed",
    Stratum.TOUCHES: "the file has a reference",
    Stratum.ANY: "any other request",
}

LIMITS = (
    "A is the original request, B the rewritten one. The trial tests one step, not effects that add up over a session.",
    "An extra read is assumed to cost the same as an average request.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialConditions:
    """Conditions of a trial, which a reader needs to assess its numbers or to repeat it."""

    model: str
    date: str
    profile: str
    samples: int
    """Requested samples per point and variant."""
    margin: float | None
    """Extra re-reads per 100 rewritten requests that use up the savings, or None without savings."""
    spent: float
    """Cost of the trial in dollars."""
    saved: float | None = None
    """Dollars that the profile saves on the recordings of the trial."""
    drops: Mapping[str, DroppedSamples] = field(default_factory=dict)
    """Dropped samples by reason."""
    thinking: bool | None = False
    """The model used thinking. If not, the result does not apply to thinking. None if unknown."""
    filled: tuple[str, ...] = ()
    """Parts that the recordings do not have, and their replacements."""
    planned: int | None = None
    rewritten: tuple[int, int] | None = None
    """Number of rewritten requests in the recordings, and of all requests."""
    stopped: bool = False
    """The trial ended early because of its e-value."""
    left: Mapping[Stratum, int] = field(default_factory=dict)
    """Number of requests in strata without any point. Totals do not include them."""
    simulated: bool = False
    """The samples are simulated, without a model."""


LOST_REASONS = {"refused": "refused", "truncated": "truncated at the output limit", "failed": "without a response"}
"""Reasons for dropped samples that the rewriting may have caused, as text."""
LOST_LEVEL = 0.01
"""Significance level of the test for dropped samples, in addition to that of the two deciding outcomes."""


class VerdictKind(StrEnum):
    """Kind of verdict."""

    NOTHING = "nothing to judge"
    LOST = "saving lost"
    HARM = "harm found"
    WITHIN = "within the margin"
    UNSETTLED = "not settled"


def decide_verdict(statistics: TrialStatistics, conditions: TrialConditions) -> VerdictKind:
    """Decide the verdict from the statistics of a trial."""
    reread_estimate = statistics.looks.weighted
    if reread_estimate is None:
        return VerdictKind.NOTHING
    if (
        conditions.margin is not None
        and reread_estimate.low is not None
        and 100 * reread_estimate.low > conditions.margin
    ):
        return VerdictKind.LOST
    if statistics.has_alarm or conditions.stopped or harmful_drop_reasons(conditions):
        return VerdictKind.HARM
    return VerdictKind.WITHIN if _is_within_margin(reread_estimate, conditions) else VerdictKind.UNSETTLED


def harmful_drop_reasons(conditions: TrialConditions) -> list[str]:
    """Return the reasons for which significantly more samples of rewritten requests were dropped.

    This is a sign test over the points at which one variant only has dropped samples.
    """
    return [
        why
        for why, dropped_samples in sorted(conditions.drops.items())
        if why in LOST_REASONS
        and _sign_test(dropped_samples.only_rewritten, dropped_samples.only_original) <= LOST_LEVEL
    ]


def _sign_test(more: int, less: int) -> float:
    """Return the probability that chance alone puts at least `more` of all on one side."""
    count = more + less
    return float(sum(comb(count, number) for number in range(more, count + 1)) / 2**count)


def verdict_lines(statistics: TrialStatistics, conditions: TrialConditions) -> tuple[str, str, str]:
    """Return the verdict, its effect on the savings, and the effect on the next action."""
    return _verdict_line(statistics, conditions), _reread_line(statistics, conditions), _agreement_line(statistics)


# --- the first line ---------------------------------------------------------------------------------------------------


def _verdict_line(statistics: TrialStatistics, conditions: TrialConditions) -> str:
    kind = decide_verdict(statistics, conditions)
    looks = statistics.looks.weighted
    if looks is None or kind == VerdictKind.NOTHING:
        return "No result: no point has samples of both the original and the rewritten request."
    if kind in (VerdictKind.HARM, VerdictKind.LOST):
        return f"{_harm_text(statistics, conditions)} {_saving_text(looks, conditions)}"
    if kind == VerdictKind.WITHIN:
        margin = format_signed(conditions.margin or 0.0)
        return f"No harm was found. {_upper_bound_text(looks)}; {margin} would use up the savings."
    return f"Not settled: no harm was found, but {_unsettled_text(looks, conditions)}"


def _harm_text(statistics: TrialStatistics, conditions: TrialConditions) -> str:
    parts = []
    if conditions.stopped:
        parts.append(f"text is re-read more often (stopped early, e-value {format_fixed(statistics.harm, 0)})")
    elif statistics.looks.has_alarm:
        parts.append(f"text is re-read more often ({format_p(statistics.looks.adjusted)})")
    if statistics.agreement.has_alarm:
        noise = "the next action changes more often than by the model's own noise"
        parts.append(f"{noise} ({format_p(statistics.agreement.adjusted)})")
    for why in harmful_drop_reasons(conditions):
        dropped = conditions.drops[why]
        rewritten, original = f"{dropped.only_rewritten:,}", f"{dropped.only_original:,}"
        only = f"at {rewritten} points only the rewritten one, at {original} only the original"
        parts.append(f"more samples are {LOST_REASONS[why]} ({only})")
    if not parts:
        return "Harm found: text is re-read more often, over all rewritten requests of the recordings."
    return f"Harm found: with rewritten requests {', and '.join(parts)}."


def _saving_text(looks: Estimate, conditions: TrialConditions) -> str:
    if conditions.margin is None:
        return "The profile has no savings on these sessions."
    if looks.low is not None and 100 * looks.low > conditions.margin:
        return "Extra reads cost more than the profile saves."
    if _is_within_margin(looks, conditions):
        return "Extra reads cost less than the profile saves."
    return "Extra reads may cost more than the profile saves: not settled."


def _unsettled_text(looks: Estimate, conditions: TrialConditions) -> str:
    if looks.high is None:
        return "all points are from one session, so the error is unknown. Use points of more sessions."
    if conditions.margin is None:
        return f"the profile has no savings on these sessions. {_upper_bound_text(looks)}."
    more = f"{format_signed(100 * looks.high)} re-reads per 100 rewritten requests are not excluded"
    sentence = f"{more}, and {format_signed(conditions.margin)} would use up the savings."
    gap = conditions.margin - 100 * looks.value
    if gap <= 0:
        return sentence
    points = ceil(looks.points * (100 * (looks.high - looks.value) / gap) ** 2)
    return f"{sentence} A new trial of about {max(points, looks.points + 1):,} points could settle it."


def _is_within_margin(looks: Estimate, conditions: TrialConditions) -> bool:
    return conditions.margin is not None and looks.high is not None and 100 * looks.high < conditions.margin


def _upper_bound_text(looks: Estimate) -> str:
    most = 100 * (looks.high or 0.0)
    if most <= 0:
        return "Text is re-read less often than before (95 %)"
    return f"Re-reads increase by at most {format_fixed(most, 1)} per 100 rewritten requests (95 %)"


# --- the other two ----------------------------------------------------------------------------------------------------


def _reread_line(statistics: TrialStatistics, conditions: TrialConditions) -> str:
    looks = statistics.looks.weighted
    if looks is None:
        return f"Re-reads: not tested ({statistics.looks.problem})."

    def format_change(estimate: Estimate) -> str:
        levels = f"{format_level(estimate.original)} → {format_level(estimate.rewritten)}"
        return f"{levels} ({format_signed(100 * estimate.value)}, {interval_text(estimate)})"

    sentence = f"Re-reads: {format_change(looks)}{_cause_text(statistics.looks, format_change)}."
    if conditions.margin is None:
        return f"{sentence} The profile has no savings on these sessions."
    sentence += f" {format_signed(conditions.margin)} would use up the savings"
    if looks.high is None or not _is_within_margin(looks, conditions):
        return f"{sentence}."
    if looks.high <= 0:
        return f"{sentence}; all savings remain."
    stays = 100 * (1 - 100 * looks.high / conditions.margin)
    return f"{sentence}; at least {int(stays)} % of the savings remain."


def _agreement_line(statistics: TrialStatistics) -> str:
    weighted_estimate, agreement = statistics.agreement.weighted, statistics.agreement
    if weighted_estimate is None:
        return f"Same action: not tested ({agreement.problem})."

    def format_change(estimate: Estimate) -> str:
        deficit = (
            f"deficit {sign(estimate.value)}{format_fixed(abs(100 * estimate.value), 1)}, {interval_text(estimate)}"
        )
        return f"A/A {format_level(estimate.original)}, A/B {format_level(estimate.rewritten)} ({deficit})"

    sentence = f"Same action: {format_change(weighted_estimate)}{_cause_text(agreement, format_change)}."
    if agreement.has_alarm:
        return f"{sentence} More than noise."
    if weighted_estimate.high is None:
        return sentence
    if weighted_estimate.high <= 0:
        return f"{sentence} Samples of rewritten requests agree more often, which is not a gain."
    return f"{sentence} No deficit larger than {format_fixed(100 * weighted_estimate.high, 1)} points."


def likely_cause(comparison: Comparison) -> Estimate | None:
    """Return the estimate for points that must follow a reference: the likely cause of an alarm.

    Return None without an alarm, or if all points are of one stratum.
    """
    return comparison.strata.get(Stratum.FOLLOWS) if comparison.has_alarm and len(comparison.strata) > 1 else None


def _cause_text(comparison: Comparison, change: Callable[[Estimate], str]) -> str:
    cause = likely_cause(comparison)
    return f" over all rewritten requests, {change(cause)} where {STRATUM_WORDS[Stratum.FOLLOWS]}" if cause else ""


# --- the table --------------------------------------------------------------------------------------------------------


class TrialRow(NamedTuple):
    """One row of the table. A title row has no estimate, but the p value of the rows below it."""

    words: str
    estimate: Estimate | None
    unit: float = 100.0
    """Factor for values: 100 shows shares as points, 1 shows tokens."""
    p: str = ""
    drawn: bool = False
    """The page draws the interval, on a scale that all rows share."""


class OutcomeLabel(NamedTuple):
    """An outcome's key in JSON and its title in tables."""

    key: str
    words: str
    unit: float = 100.0
    is_for_all_points: bool = True
    """The outcome exists for all points. If not, its intervals are too wide for the chart and for a row per stratum."""


OUTCOMES = (
    OutcomeLabel("looks", "Re-reads text that is in the request"),
    OutcomeLabel("agreement", "Same next action (A/A, A/B, deficit)"),
    OutcomeLabel("edits", "Edits a text that is not shown"),
    OutcomeLabel("matches", "Same action as recorded"),
    OutcomeLabel("files", "Same file as recorded", is_for_all_points=False),
    OutcomeLabel("likeness", "Similarity to the recorded edit", is_for_all_points=False),
    OutcomeLabel("tokens", "Output tokens", 1.0),
)


def comparison_for(statistics: TrialStatistics, key: str) -> Comparison:
    """Return the comparison of the outcome with this key."""
    comparison = getattr(statistics, key)
    assert isinstance(comparison, Comparison)
    return comparison


def table_rows(statistics: TrialStatistics) -> Iterator[TrialRow]:
    """Yield a title row per outcome, then its estimates: weighted, as sampled, and by stratum."""
    for key, words, unit, is_for_all_points in OUTCOMES:
        is_drawn = is_for_all_points and unit == 100
        outcome = comparison_for(statistics, key)
        p = outcome.p if outcome.adjusted is None else outcome.adjusted
        p_text = "" if p is None else format_p(p).removeprefix("p = ").removeprefix("p ")
        yield TrialRow(words if outcome.weighted else f"{words}: not tested", None, p=p_text)
        if outcome.weighted is None:
            continue
        yield TrialRow("all rewritten, weighted back", outcome.weighted, unit, drawn=is_drawn)
        yield TrialRow("points as sampled", outcome.unweighted, unit, drawn=is_drawn)
        if len(outcome.strata) > 1 and is_for_all_points:
            for stratum, estimate in outcome.strata.items():
                yield TrialRow(STRATUM_WORDS[stratum], estimate, unit, drawn=is_drawn)


# --- conditions -------------------------------------------------------------------------------------------------------


def list_conditions(statistics: TrialStatistics, conditions: TrialConditions) -> list[tuple[str, str]]:
    """Return the conditions of the trial as pairs of name and text. Texts are not escaped."""
    points = plural(statistics.points, "point")
    if conditions.planned is not None:
        points = f"{statistics.points:,} of {plural(conditions.planned, 'point')} planned"
    dropped_text = ", ".join(
        f"{drop.original + drop.rewritten:,} {why} (A {drop.original:,}, B {drop.rewritten:,})"
        for why, drop in sorted(conditions.drops.items())
        if drop.original + drop.rewritten
    )
    first, second = statistics.samples
    rows = [
        ("Points", f"{points}, of {plural(statistics.sessions, 'session')}"),
        ("Samples", f"{conditions.samples} per variant requested: {first:,} of A and {second:,} of B are valid"),
        ("Dropped", dropped_text or "none"),
        ("Model", conditions.model),
        ("Date", conditions.date),
        ("Profile", conditions.profile),
        ("Thinking", THINKING_WORDS[conditions.thinking]),
        ("Filled in", "; ".join(conditions.filled) or "nothing"),
        ("Spent", dollars(conditions.spent)),
        ("Seed", str(statistics.seed)),
    ]
    if conditions.saved is not None:
        rows.insert(-1, ("Saved on these recordings", dollars(conditions.saved)))
    if conditions.rewritten is not None:
        some, every = conditions.rewritten
        rows.insert(1, ("Requests", f"{some:,} of {every:,} recorded ones are rewritten. Rates are per rewritten one"))
    if conditions.left:
        kinds = ", ".join(f"{count:,} where {STRATUM_WORDS[name]}" for name, count in conditions.left.items())
        rows.insert(1, ("Not tested", f"{kinds}: totals do not include these"))
    if conditions.stopped:
        rows.insert(1, ("Stopped", "early, for harm: effects are estimated too large after an early stop"))
    return rows


THINKING_WORDS: Mapping[bool | None, str] = {
    True: "on, and tested",
    False: "off in both variants, so not tested",
    None: "the model's default in both variants, unknown whether it was used",
}
SIMULATED = "Simulated: no model was called. The samples are made up, to show the output of a trial."


# --- numbers ----------------------------------------------------------------------------------------------------------


def format_level(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{format_fixed(100 * share, 1)} %"


def format_signed(points: float, digits: int = 1) -> str:
    """Format a number with its sign. A value that rounds to zero has no sign."""
    size = format_fixed(abs(points), digits)
    return f"{'+' if points > 0 else '−'}{size}" if size.strip("0.") else size


def format_interval(estimate: Estimate, unit: float = 100.0) -> str:
    """Format the interval of an estimate."""
    if estimate.low is None or estimate.high is None:
        return NO_NUMBER
    digits = decimal_places(unit)
    return f"{format_signed(unit * estimate.low, digits)}…{format_signed(unit * estimate.high, digits)}"


def decimal_places(unit: float) -> int:
    """Return the number of decimals: one for shares, none for tokens."""
    return 1 if unit == 100 else 0


def estimate_cells(estimate: Estimate, unit: float) -> tuple[str, str, str, str]:
    """Return the levels of A and B, their difference, and its interval, as text."""
    levels = [
        format_level(share) if unit == 100 else format_fixed(share, 0)
        for share in (estimate.original, estimate.rewritten)
    ]
    return (
        levels[0],
        levels[1],
        format_signed(unit * estimate.value, decimal_places(unit)),
        format_interval(estimate, unit),
    )


def interval_text(estimate: Estimate) -> str:
    """Format the interval of an estimate for a sentence."""
    return "one session, so no interval" if estimate.low is None else f"95 % {format_interval(estimate)}"


def format_p(p: float | None) -> str:
    """Format a p value for a sentence."""
    if p is None:
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {format_fixed(p, 3)}"
