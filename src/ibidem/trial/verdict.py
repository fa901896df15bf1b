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
from .outcomes import DroppedAnswers, Stratum
from .stats import Comparison, Judgement

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
class Setting:
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
    drops: Mapping[str, DroppedAnswers] = field(default_factory=dict)
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


class TrialCall(StrEnum):
    """Kind of verdict."""

    NOTHING = "nothing to judge"
    LOST = "saving lost"
    HARM = "harm found"
    WITHIN = "within the margin"
    UNSETTLED = "not settled"


def call(judgement: Judgement, setting: Setting) -> TrialCall:
    """Decide the verdict from the statistics of a trial."""
    looks = judgement.looks.weighted
    if looks is None:
        return TrialCall.NOTHING
    if setting.margin is not None and looks.low is not None and 100 * looks.low > setting.margin:
        return TrialCall.LOST
    if judgement.alarm or setting.stopped or lost_in(setting):
        return TrialCall.HARM
    return TrialCall.WITHIN if _excluded(looks, setting) else TrialCall.UNSETTLED


def lost_in(setting: Setting) -> list[str]:
    """Return the reasons for which significantly more samples of rewritten requests were dropped.

    This is a sign test over the points at which one variant only has dropped samples.
    """
    return [
        why
        for why, found in sorted(setting.drops.items())
        if why in LOST_REASONS and _sign_chance(found.only_rewritten, found.only_original) <= LOST_LEVEL
    ]


def _sign_chance(more: int, less: int) -> float:
    """Return the probability that chance alone puts at least `more` of all on one side."""
    count = more + less
    return float(sum(comb(count, number) for number in range(more, count + 1)) / 2**count)


def lines(judgement: Judgement, setting: Setting) -> tuple[str, str, str]:
    """Return the verdict, its effect on the savings, and the effect on the next action."""
    return _first(judgement, setting), _looks_line(judgement, setting), _agreement_line(judgement)


# --- the first line ---------------------------------------------------------------------------------------------------


def _first(judgement: Judgement, setting: Setting) -> str:
    found = call(judgement, setting)
    looks = judgement.looks.weighted
    if looks is None or found == TrialCall.NOTHING:
        return "No result: no point has samples of both the original and the rewritten request."
    if found in (TrialCall.HARM, TrialCall.LOST):
        return f"{_harm(judgement, setting)} {_against_saving(looks, setting)}"
    if found == TrialCall.WITHIN:
        margin = signed(setting.margin or 0.0)
        return f"No harm was found. {_at_most(looks)}; {margin} would use up the savings."
    return f"Not settled: no harm was found, but {_unsettled(looks, setting)}"


def _harm(judgement: Judgement, setting: Setting) -> str:
    parts = []
    if setting.stopped:
        parts.append(f"text is re-read more often (stopped early, e-value {format_fixed(judgement.harm, 0)})")
    elif judgement.looks.alarm:
        parts.append(f"text is re-read more often ({p_words(judgement.looks.adjusted)})")
    if judgement.agreement.alarm:
        noise = "the next action changes more often than by the model's own noise"
        parts.append(f"{noise} ({p_words(judgement.agreement.adjusted)})")
    for why in lost_in(setting):
        found = setting.drops[why]
        only = (
            f"at {found.only_rewritten:,} points only the rewritten one, at {found.only_original:,} only the original"
        )
        parts.append(f"more samples are {LOST_REASONS[why]} ({only})")
    if not parts:
        return "Harm found: text is re-read more often, over all rewritten requests of the recordings."
    return f"Harm found: with rewritten requests {', and '.join(parts)}."


def _against_saving(looks: Estimate, setting: Setting) -> str:
    if setting.margin is None:
        return "The profile has no savings on these sessions."
    if looks.low is not None and 100 * looks.low > setting.margin:
        return "Extra reads cost more than the profile saves."
    if _excluded(looks, setting):
        return "Extra reads cost less than the profile saves."
    return "Extra reads may cost more than the profile saves: not settled."


def _unsettled(looks: Estimate, setting: Setting) -> str:
    if looks.high is None:
        return "all points are from one session, so the error is unknown. Use points of more sessions."
    if setting.margin is None:
        return f"the profile has no savings on these sessions. {_at_most(looks)}."
    more = f"{signed(100 * looks.high)} re-reads per 100 rewritten requests are not excluded"
    said = f"{more}, and {signed(setting.margin)} would use up the savings."
    gap = setting.margin - 100 * looks.value
    if gap <= 0:
        return said
    points = ceil(looks.points * (100 * (looks.high - looks.value) / gap) ** 2)
    return f"{said} A new trial of about {max(points, looks.points + 1):,} points could settle it."


def _excluded(looks: Estimate, setting: Setting) -> bool:
    return setting.margin is not None and looks.high is not None and 100 * looks.high < setting.margin


def _at_most(looks: Estimate) -> str:
    most = 100 * (looks.high or 0.0)
    if most <= 0:
        return "Text is re-read less often than before (95 %)"
    return f"Re-reads increase by at most {format_fixed(most, 1)} per 100 rewritten requests (95 %)"


# --- the other two ----------------------------------------------------------------------------------------------------


def _looks_line(judgement: Judgement, setting: Setting) -> str:
    looks = judgement.looks.weighted
    if looks is None:
        return f"Re-reads: not tested ({judgement.looks.problem})."

    def change(told: Estimate) -> str:
        return f"{level(told.original)} → {level(told.rewritten)} ({signed(100 * told.value)}, {within(told)})"

    said = f"Re-reads: {change(looks)}{_where(judgement.looks, change)}."
    if setting.margin is None:
        return f"{said} The profile has no savings on these sessions."
    said += f" {signed(setting.margin)} would use up the savings"
    if looks.high is None or not _excluded(looks, setting):
        return f"{said}."
    if looks.high <= 0:
        return f"{said}; all savings remain."
    stays = 100 * (1 - 100 * looks.high / setting.margin)
    return f"{said}; at least {int(stays)} % of the savings remain."


def _agreement_line(judgement: Judgement) -> str:
    told, agreement = judgement.agreement.weighted, judgement.agreement
    if told is None:
        return f"Same action: not tested ({agreement.problem})."

    def change(told: Estimate) -> str:
        deficit = f"deficit {sign(told.value)}{format_fixed(abs(100 * told.value), 1)}, {within(told)}"
        return f"A/A {level(told.original)}, A/B {level(told.rewritten)} ({deficit})"

    said = f"Same action: {change(told)}{_where(agreement, change)}."
    if agreement.alarm:
        return f"{said} More than noise."
    if told.high is None:
        return said
    if told.high <= 0:
        return f"{said} Samples of rewritten requests agree more often, which is not a gain."
    return f"{said} No deficit larger than {format_fixed(100 * told.high, 1)} points."


def concerned(told: Comparison) -> Estimate | None:
    """Return the estimate for points that must follow a reference: the likely cause of an alarm.

    Return None without an alarm, or if all points are of one stratum.
    """
    return told.strata.get(Stratum.FOLLOWS) if told.alarm and len(told.strata) > 1 else None


def _where(told: Comparison, change: Callable[[Estimate], str]) -> str:
    most = concerned(told)
    return f" over all rewritten requests, {change(most)} where {STRATUM_WORDS[Stratum.FOLLOWS]}" if most else ""


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


class OutcomeWords(NamedTuple):
    """An outcome's key in JSON and its title in tables."""

    key: str
    words: str
    unit: float = 100.0
    of_all: bool = True
    """The outcome exists for all points. If not, its intervals are too wide for the chart and for a row per stratum."""


OUTCOMES = (
    OutcomeWords("looks", "Re-reads text that is in the request"),
    OutcomeWords("agreement", "Same next action (A/A, A/B, deficit)"),
    OutcomeWords("edits", "Edits a text that is not shown"),
    OutcomeWords("matches", "Same action as recorded"),
    OutcomeWords("files", "Same file as recorded", of_all=False),
    OutcomeWords("likeness", "Similarity to the recorded edit", of_all=False),
    OutcomeWords("tokens", "Output tokens", 1.0),
)


def compared(judgement: Judgement, key: str) -> Comparison:
    """Return the comparison of the outcome with this key."""
    found = getattr(judgement, key)
    assert isinstance(found, Comparison)
    return found


def table_rows(judgement: Judgement) -> Iterator[TrialRow]:
    """Yield a title row per outcome, then its estimates: weighted, as sampled, and by stratum."""
    for key, words, unit, of_all in OUTCOMES:
        drawn = of_all and unit == 100
        outcome = compared(judgement, key)
        p = outcome.p if outcome.adjusted is None else outcome.adjusted
        shown = "" if p is None else p_words(p).removeprefix("p = ").removeprefix("p ")
        yield TrialRow(words if outcome.weighted else f"{words}: not tested", None, p=shown)
        if outcome.weighted is None:
            continue
        yield TrialRow("all rewritten, weighted back", outcome.weighted, unit, drawn=drawn)
        yield TrialRow("points as sampled", outcome.asked, unit, drawn=drawn)
        if len(outcome.strata) > 1 and of_all:
            for stratum, told in outcome.strata.items():
                yield TrialRow(STRATUM_WORDS[stratum], told, unit, drawn=drawn)


# --- conditions -------------------------------------------------------------------------------------------------------


def facts(judgement: Judgement, setting: Setting) -> list[tuple[str, str]]:
    """Return the conditions of the trial as pairs of name and text. Texts are not escaped."""
    points = plural(judgement.points, "point")
    if setting.planned is not None:
        points = f"{judgement.points:,} of {plural(setting.planned, 'point')} planned"
    dropped = ", ".join(
        f"{each.original + each.rewritten:,} {why} (A {each.original:,}, B {each.rewritten:,})"
        for why, each in sorted(setting.drops.items())
        if each.original + each.rewritten
    )
    first, second = judgement.samples
    told = [
        ("Points", f"{points}, of {plural(judgement.sessions, 'session')}"),
        ("Samples", f"{setting.samples} per variant requested: {first:,} of A and {second:,} of B are valid"),
        ("Dropped", dropped or "none"),
        ("Model", setting.model),
        ("Date", setting.date),
        ("Profile", setting.profile),
        ("Thinking", THINKING_WORDS[setting.thinking]),
        ("Filled in", "; ".join(setting.filled) or "nothing"),
        ("Spent", dollars(setting.spent)),
        ("Seed", str(judgement.seed)),
    ]
    if setting.saved is not None:
        told.insert(-1, ("Saved on these recordings", dollars(setting.saved)))
    if setting.rewritten is not None:
        some, every = setting.rewritten
        told.insert(1, ("Requests", f"{some:,} of {every:,} recorded ones are rewritten. Rates are per rewritten one"))
    if setting.left:
        kinds = ", ".join(f"{count:,} where {STRATUM_WORDS[name]}" for name, count in setting.left.items())
        told.insert(1, ("Not tested", f"{kinds}: totals do not include these"))
    if setting.stopped:
        told.insert(1, ("Stopped", "early, for harm: effects are estimated too large after an early stop"))
    return told


THINKING_WORDS: Mapping[bool | None, str] = {
    True: "on, and tested",
    False: "off in both variants, so not tested",
    None: "the model's default in both variants, unknown whether it was used",
}
SIMULATED = "Simulated: no model was called. The samples are made up, to show the output of a trial."


# --- numbers ----------------------------------------------------------------------------------------------------------


def level(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{format_fixed(100 * share, 1)} %"


def signed(points: float, digits: int = 1) -> str:
    """Format a number with its sign. A value that rounds to zero has no sign."""
    size = format_fixed(abs(points), digits)
    return f"{'+' if points > 0 else '−'}{size}" if size.strip("0.") else size


def between(told: Estimate, unit: float = 100.0) -> str:
    """Format the interval of an estimate."""
    if told.low is None or told.high is None:
        return NO_NUMBER
    digits = digits_of(unit)
    return f"{signed(unit * told.low, digits)}…{signed(unit * told.high, digits)}"


def digits_of(unit: float) -> int:
    """Return the number of decimals: one for shares, none for tokens."""
    return 1 if unit == 100 else 0


def cells(told: Estimate, unit: float) -> tuple[str, str, str, str]:
    """Return the levels of A and B, their difference, and its interval, as text."""
    levels = [level(share) if unit == 100 else format_fixed(share, 0) for share in (told.original, told.rewritten)]
    return levels[0], levels[1], signed(unit * told.value, digits_of(unit)), between(told, unit)


def within(told: Estimate) -> str:
    """Format the interval of an estimate for a sentence."""
    return "one session, so no interval" if told.low is None else f"95 % {between(told)}"


def p_words(p: float | None) -> str:
    """Format a p value for a sentence."""
    if p is None:
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {format_fixed(p, 3)}"
