"""The verdict in words: three lines, then a table of all that they rest on. Values in, words out.

Nothing here says that there is no difference, because no trial can: it says how large a difference is excluded, and
sets that against the saving. Names that came with the recordings are left as they are; whoever draws them makes them
harmless.
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
    "A is the original request, B the rewritten one. It looks one step ahead, not at what adds up over a session.",
    "An extra look is taken to cost as much as an average request.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How it was asked: what a reader needs to believe the figures, or to ask again."""

    model: str
    date: str
    profile: str
    samples: int
    """Answers that were asked for, per point and arm."""
    margin: float | None
    """Extra looks per 100 rewritten requests at which the saving is gone; None where nothing is saved."""
    spent: float
    """Dollars that the trial cost."""
    saved: float | None = None
    """Dollars that the profile saves on the recordings that were drawn from."""
    drops: Mapping[str, DroppedAnswers] = field(default_factory=dict)
    """Answers that do not count, by reason."""
    thinking: bool | None = False
    """The model thought before it answered. If not, nothing is known of how it does then; None where that was left to
    the model and nothing tells."""
    filled: tuple[str, ...] = ()
    """What the recordings do not have, and what was sent instead."""
    planned: int | None = None
    rewritten: tuple[int, int] | None = None
    """Requests of the recordings in which something is left out, and all of them."""
    stopped: bool = False
    """It ended early because the e-value was enough."""
    left: Mapping[Stratum, int] = field(default_factory=dict)
    """Requests of kinds that nothing was asked about, so that no total speaks of them."""
    simulated: bool = False
    """No model was asked: these are made-up answers."""


LOST_REASONS = {"refused": "refused", "truncated": "cut off at the limit of output", "failed": "without an answer"}
"""Of answers that are dropped, what may be the doing of the rewriting, in words."""
LOST_LEVEL = 0.01
"""Of their test, beside those of the two outcomes that decide."""


class TrialCall(StrEnum):
    """What it comes to."""

    NOTHING = "nothing to judge"
    LOST = "saving lost"
    HARM = "harm found"
    WITHIN = "within the margin"
    UNSETTLED = "not settled"


def call(judgement: Judgement, setting: Setting) -> TrialCall:
    looks = judgement.looks.weighted
    if looks is None:
        return TrialCall.NOTHING
    if setting.margin is not None and looks.low is not None and 100 * looks.low > setting.margin:
        return TrialCall.LOST
    if judgement.alarm or setting.stopped or lost_in(setting):
        return TrialCall.HARM
    return TrialCall.WITHIN if _excluded(looks, setting) else TrialCall.UNSETTLED


def lost_in(setting: Setting) -> list[str]:
    """Reasons for which rewritten requests are left without an answer where originals are not, by a sign test over the
    points at which only one of them is."""
    return [
        why
        for why, found in sorted(setting.drops.items())
        if why in LOST_REASONS and _sign_chance(found.only_rewritten, found.only_original) <= LOST_LEVEL
    ]


def _sign_chance(more: int, less: int) -> float:
    """How often chance alone has so many of them on one side."""
    count = more + less
    return float(sum(comb(count, number) for number in range(more, count + 1)) / 2**count)


def lines(judgement: Judgement, setting: Setting) -> tuple[str, str, str]:
    """The verdict, what it does to the saving, and what it does to the next action."""
    return _first(judgement, setting), _looks_line(judgement, setting), _agreement_line(judgement)


# --- the first line ---------------------------------------------------------------------------------------------------


def _first(judgement: Judgement, setting: Setting) -> str:
    found = call(judgement, setting)
    looks = judgement.looks.weighted
    if looks is None or found == TrialCall.NOTHING:
        return "Nothing to judge: no point has an answer to both the original and the rewritten request."
    if found in (TrialCall.HARM, TrialCall.LOST):
        return f"{_harm(judgement, setting)} {_against_saving(looks, setting)}"
    if found == TrialCall.WITHIN:
        margin = signed(setting.margin or 0.0)
        return f"No harm was found. {_at_most(looks)}; the saving is lost at {margin}."
    return f"Not settled: no harm was found, but {_unsettled(looks, setting)}"


def _harm(judgement: Judgement, setting: Setting) -> str:
    parts = []
    if setting.stopped:
        parts.append(f"text is read again more often (stopped early, e-value {format_fixed(judgement.harm, 0)})")
    elif judgement.looks.alarm:
        parts.append(f"text is read again more often ({p_words(judgement.looks.adjusted)})")
    if judgement.agreement.alarm:
        noise = "the next action changes more often than by the model's own noise"
        parts.append(f"{noise} ({p_words(judgement.agreement.adjusted)})")
    for why in lost_in(setting):
        found = setting.drops[why]
        only = (
            f"at {found.only_rewritten:,} points only the rewritten one, at {found.only_original:,} only the original"
        )
        parts.append(f"more of them are {LOST_REASONS[why]} ({only})")
    if not parts:
        return "Harm found: over all rewritten requests of the recordings text is read again more often."
    return f"Harm found: with rewritten requests {', and '.join(parts)}."


def _against_saving(looks: Estimate, setting: Setting) -> str:
    if setting.margin is None:
        return "There is no saving to set against it."
    if looks.low is not None and 100 * looks.low > setting.margin:
        return "Reading again costs more than is saved."
    if _excluded(looks, setting):
        return "Reading again costs less than is saved."
    return "Whether reading again costs more than is saved is not settled."


def _unsettled(looks: Estimate, setting: Setting) -> str:
    if looks.high is None:
        return "all points are of one session, so nothing says how far off it may be. Take points of more sessions."
    if setting.margin is None:
        return f"nothing is saved either. {_at_most(looks)}."
    more = f"{signed(100 * looks.high)} looks per 100 rewritten requests are not excluded"
    said = f"{more}, and the saving is lost at {signed(setting.margin)}."
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
        return "Text is read again less often than before (95 %)"
    return f"Reading again rises by {format_fixed(most, 1)} looks per 100 rewritten requests at most (95 %)"


# --- the other two ----------------------------------------------------------------------------------------------------


def _looks_line(judgement: Judgement, setting: Setting) -> str:
    looks = judgement.looks.weighted
    if looks is None:
        return f"Read again: not tested ({judgement.looks.problem})."

    def change(told: Estimate) -> str:
        return f"{level(told.original)} → {level(told.rewritten)} ({signed(100 * told.value)}, {within(told)})"

    said = f"Read again: {change(looks)}{_where(judgement.looks, change)}."
    if setting.margin is None:
        return f"{said} Nothing is saved that could be lost."
    said += f" The saving is lost at {signed(setting.margin)}"
    if looks.high is None or not _excluded(looks, setting):
        return f"{said}."
    if looks.high <= 0:
        return f"{said}; none of it is."
    stays = 100 * (1 - 100 * looks.high / setting.margin)
    return f"{said}; at least {int(stays)} % of it stays."


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
        return f"{said} Rewritten requests are answered more alike, which is no gain in itself."
    return f"{said} No deficit larger than {format_fixed(100 * told.high, 1)} points."


def concerned(told: Comparison) -> Estimate | None:
    """Where an alarm comes from, most likely: the points that must follow a reference, if there are others beside."""
    return told.strata.get(Stratum.FOLLOWS) if told.alarm and len(told.strata) > 1 else None


def _where(told: Comparison, change: Callable[[Estimate], str]) -> str:
    most = concerned(told)
    return f" over all rewritten requests, {change(most)} where {STRATUM_WORDS[Stratum.FOLLOWS]}" if most else ""


# --- the table --------------------------------------------------------------------------------------------------------


class TrialRow(NamedTuple):
    """One line of the table. A title has no estimate, but the p of all below it."""

    words: str
    estimate: Estimate | None
    unit: float = 100.0
    """What values are multiplied with: shares become points, tokens stay."""
    p: str = ""
    drawn: bool = False
    """Its interval is drawn on the page, all of them on one scale."""


class OutcomeWords(NamedTuple):
    key: str
    words: str
    unit: float = 100.0
    of_all: bool = True
    """It is told of all points. What is told of few of them is told in two rows, and is too wide to be drawn."""


OUTCOMES = (
    OutcomeWords("looks", "Reads again what stands in the request"),
    OutcomeWords("agreement", "Same next action (A/A, A/B, deficit)"),
    OutcomeWords("edits", "Edits a text that is not shown"),
    OutcomeWords("matches", "Does what was recorded"),
    OutcomeWords("files", "Is on the file that was recorded", of_all=False),
    OutcomeWords("likeness", "Its edit is alike the recorded one", of_all=False),
    OutcomeWords("tokens", "Output tokens", 1.0),
)


def compared(judgement: Judgement, key: str) -> Comparison:
    found = getattr(judgement, key)
    assert isinstance(found, Comparison)
    return found


def table_rows(judgement: Judgement) -> Iterator[TrialRow]:
    for key, words, unit, of_all in OUTCOMES:
        drawn = of_all and unit == 100
        outcome = compared(judgement, key)
        p = outcome.p if outcome.adjusted is None else outcome.adjusted
        shown = "" if p is None else p_words(p).removeprefix("p = ").removeprefix("p ")
        yield TrialRow(words if outcome.weighted else f"{words}: not tested", None, p=shown)
        if outcome.weighted is None:
            continue
        yield TrialRow("all rewritten, weighted back", outcome.weighted, unit, drawn=drawn)
        yield TrialRow("points as asked", outcome.asked, unit, drawn=drawn)
        if len(outcome.strata) > 1 and of_all:
            for stratum, told in outcome.strata.items():
                yield TrialRow(STRATUM_WORDS[stratum], told, unit, drawn=drawn)


# --- how it was asked -------------------------------------------------------------------------------------------------


def facts(judgement: Judgement, setting: Setting) -> list[tuple[str, str]]:
    """Each with its name. Strings of the setting are in here as they came."""
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
        ("Answers", f"{setting.samples} per arm asked: {first:,} to A and {second:,} to B count"),
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
        told.insert(1, ("Requests", f"{some:,} of {every:,} recorded ones are rewritten, and rates are of those"))
    if setting.left:
        kinds = ", ".join(f"{count:,} where {STRATUM_WORDS[name]}" for name, count in setting.left.items())
        told.insert(1, ("Not asked about", f"{kinds}: no total speaks of these"))
    if setting.stopped:
        told.insert(1, ("Stopped", "early, for harm: sizes after an early stop are told too large"))
    return told


THINKING_WORDS: Mapping[bool | None, str] = {
    True: "on, and tested",
    False: "off in both arms, so not tested",
    None: "left to the model in both arms, and nothing tells whether it did",
}
SIMULATED = "Simulated: no model was asked. These are made-up answers, to show what a trial prints."


# --- numbers ----------------------------------------------------------------------------------------------------------


def level(share: float) -> str:
    return f"{format_fixed(100 * share, 1)} %"


def signed(points: float, digits: int = 1) -> str:
    """What rounds to nothing has no sign."""
    size = format_fixed(abs(points), digits)
    return f"{'+' if points > 0 else '−'}{size}" if size.strip("0.") else size


def between(told: Estimate, unit: float = 100.0) -> str:
    if told.low is None or told.high is None:
        return NO_NUMBER
    digits = digits_of(unit)
    return f"{signed(unit * told.low, digits)}…{signed(unit * told.high, digits)}"


def digits_of(unit: float) -> int:
    """Shares have one decimal, tokens none."""
    return 1 if unit == 100 else 0


def cells(told: Estimate, unit: float) -> tuple[str, str, str, str]:
    """The levels of A and B, how they differ, and the interval."""
    levels = [level(share) if unit == 100 else format_fixed(share, 0) for share in (told.original, told.rewritten)]
    return levels[0], levels[1], signed(unit * told.value, digits_of(unit)), between(told, unit)


def within(told: Estimate) -> str:
    return "one session, so no interval" if told.low is None else f"95 % {between(told)}"


def p_words(p: float | None) -> str:
    if p is None:
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {format_fixed(p, 3)}"
