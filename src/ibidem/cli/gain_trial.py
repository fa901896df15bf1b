"""`ibidem gain --trial`: compare the rewritten conversations of an experiment with those that were only measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import click

from .options import echo_json

if TYPE_CHECKING:
    from ..gains import Gains, TrialUnit
    from ..trial.arms import ArmComparison, ArmDifference
    from .report.filters import Period

HEAD = ("", "only measured", "rewritten", "difference", "95% interval")
NOBODY = "No conversation has taken part in a trial yet. Start one first: ibidem wrap --trial 0.5 -- claude"
DIFFERENCE = ("measured", "rewritten", "value", "low", "high", "ever_low", "ever_high", "problem")
COUNTS = ("requests", "turns", "rereads", "edits", "failed_edits", "input", "output")


def gain_trial(found: Gains, period: Period, zone: tzinfo, as_json: bool) -> int:
    """Compare both groups of `--trial`, and print the result."""
    from ..trial.arms import compare

    compared = compare(found.trial(period.since, period.until))
    if as_json:
        asked = {"since": period.since, "until": period.until}
        echo_json({"schema": 1, "ledger": str(found.file), **asked, "trial": _figures(compared)})
    elif not (compared.measured or compared.rewritten):
        click.echo(f"{period.told} {NOBODY}".strip())
    else:
        draw_arms(compared, period.told, zone)
    return 0


def draw_arms(compared: ArmComparison, told: str, zone: tzinfo) -> None:
    """Print the comparison as a table with sentences."""
    from rich.console import Console

    from ..render.terminal_layout import say, table

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if told:
        say(console, told)
    say(console, _who(compared, zone))
    if not compared.enough:
        say(console, _too_few(compared))
        return
    table(console, HEAD, [_row(each) for each in compared.differences])
    console.print()
    for line in (*_verdict(compared), *_dollars(compared), *_notes(compared)):
        say(console, line)


def _who(compared: ArmComparison, zone: tzinfo) -> str:
    from ..errors import one_line
    from ..render.number_format import plural

    units = (*compared.measured, *compared.rewritten)
    newest = max(units, key=lambda each: each.first)
    since = f"{datetime.fromtimestamp(min(each.first for each in units), zone):%Y-%m-%d}"
    sides = (
        f"{plural(len(side), 'conversation')} {name} ({plural(sum(each.requests for each in side), 'request')})"
        for side, name in ((compared.rewritten, "rewritten"), (compared.measured, "only measured"))
    )
    return f"Trial of profile {one_line(newest.profile)} since {since}:\n{', '.join(sides)}."


def _too_few(compared: ArmComparison) -> str:
    from ..trial.arms import LEAST_UNITS

    share = "at one share of --trial, " if len(compared.shares) > 1 else ""
    return f"Too few conversations to compare: {share}each group needs at least {LEAST_UNITS}. Try again later."


def _row(each: ArmDifference) -> Sequence[str]:
    from ..render.number_format import NO_NUMBER

    between = f"{_change(each, each.low)}…{_change(each, each.high)}" if each.low is not None else each.problem
    shown = _change(each, each.value) if each.value is not None else NO_NUMBER
    return [each.ratio.words, _level(each, each.measured), _level(each, each.rewritten), shown, between]


def _level(each: ArmDifference, level: float | None) -> str:
    from ..render.number_format import NO_NUMBER, dollars, format_fixed, tokens

    if level is None:
        return NO_NUMBER
    if each.ratio.above == "paid":
        return dollars(level)
    return tokens(level) if each.ratio.above == "input" else format_fixed(level, 1)


def _change(each: ArmDifference, value: float | None) -> str:
    from ..trial.verdict import signed

    return f"{signed(100 * (value or 0.0))}%" if each.ratio.relative else signed(value or 0.0)


def _verdict(compared: ArmComparison) -> Iterator[str]:
    """Summarize the effect on re-reads, and how many more conversations would settle it. Never claims "no difference".

    Users run this command repeatedly, so the sentences use the interval that stays valid for repeated looks.
    """
    from ..render.number_format import format_fixed
    from ..trial.arms import WORTH_EXCLUDING
    from ..trial.verdict import signed

    found, lost = compared.rereads, compared.margin
    if found is None or found.ever_low is None or found.ever_high is None:
        yield f"Re-reads: no result yet ({found.problem if found else 'too few'})."
        return
    at = f"break-even is {signed(lost)}" if lost is not None else "there are no savings to lose"
    least = signed(found.ever_low)
    if lost is not None and found.ever_low > lost:
        yield f"Re-reads cost more than ibidem saves: they rise by at least {least} per 100 requests, and {at}."
    elif found.ever_low > 0:
        yield f"Rewritten conversations re-read files more often, by at least {least} per 100 requests; {at}."
    elif found.ever_high <= 0:
        yield f"Rewritten conversations re-read files less often; {at}."
    else:
        yield f"Re-reads rise by at most {format_fixed(found.ever_high, 1)} per 100 requests; {at}."
    targets = {WORTH_EXCLUDING: signed(WORTH_EXCLUDING)}
    if lost is not None:
        targets[lost] = f"{signed(lost)} (break-even)"
    for target in sorted(targets):
        yield from _needed(compared, target, targets[target])


def _dollars(compared: ArmComparison) -> Iterator[str]:
    """Summarize the effect on cost per user turn.

    Cost varies far more between conversations than by rewriting, so few conversations cannot show the effect.
    """
    from ..render.number_format import format_fixed, plural

    found = compared.dollars
    if found is None or found.ever_low is None or found.ever_high is None:
        return
    if found.ever_high < 0:
        yield f"A user turn costs at least {format_fixed(-100 * found.ever_high, 1)}% less when rewritten."
    elif found.ever_low > 0:
        yield f"A user turn costs at least {format_fixed(100 * found.ever_low, 1)}% more when rewritten."
    else:
        yield "Cost per user turn: too few conversations to show a difference."
        if more := compared.more_dollars():
            yield f"Showing savings in dollars takes about {plural(more, 'more conversation')}: costs vary that much."


def _needed(compared: ArmComparison, target: float, words: str) -> Iterator[str]:
    from ..render.number_format import plural

    more, found = compared.more(target), compared.rereads
    if more:
        yield f"Excluding {words} takes about {plural(more, 'more conversation')} if the trend continues."
    elif more is None and found is not None and found.ever_low is not None and found.ever_low < target:
        yield f"The rate so far is above {words.rstrip(',')}. More conversations will show if that is chance."


def _notes(compared: ArmComparison) -> Iterator[str]:
    from ..render.number_format import plural

    yield "These sentences stay valid if you check repeatedly. Intervals in the table assume one planned check."
    yield "Intervals assume that conversations are a random sample. Dollars: input and output at list prices."
    yield from _shares(compared)
    unpriced = sum(each.requests - each.priced for each in (*compared.measured, *compared.rewritten))
    if unpriced:
        yield f"The cost of {plural(unpriced, 'request')} is unknown and not included in dollars or tokens."
    if compared.left_out:
        yield f"{plural(compared.left_out, 'conversation')} not included: rewriting was paused."
    if compared.others:
        yield f"{plural(compared.others, 'conversation')} with other profiles not included. See --since and --until."


def _shares(compared: ArmComparison) -> Iterator[str]:
    """Explain how conversations with different shares of `--trial` are compared. They are from different times."""
    from ..render.number_format import plural
    from ..trial.arms import LEAST_UNITS

    if len(compared.compared) > 1:
        told = ", ".join(
            f"{each.share:g} ({len(each.rewritten):,} rewritten, {len(each.measured):,} not)"
            for each in compared.compared
        )
        yield f"--trial was changed. The groups are compared at each share, then averaged: {told}."
    for each in compared.shares:
        if not each.enough:
            left = f"{plural(each.conversations, 'conversation')} with --trial {each.share:g} not included"
            yield f"{left}: a group has fewer than {LEAST_UNITS}, and shares must not be mixed."


def _figures(compared: ArmComparison) -> dict[str, Any]:
    from ..trial.arms import WORTH_EXCLUDING

    units = (*compared.measured, *compared.rewritten)
    return {
        "profile": max(units, key=lambda each: each.first).profile if units else None,
        "enough": compared.enough,
        "arms": {"measure": _side(compared.measured), "rewrite": _side(compared.rewritten)},
        "left_out": compared.left_out,
        "other_profiles": compared.others,
        "shares": [
            {
                "share": each.share,
                "measure": len(each.measured),
                "rewrite": len(each.rewritten),
                "compared": each.enough,
            }
            for each in compared.shares
        ],
        "margin_per_100_requests": compared.margin,
        "more_conversations": {
            "to_exclude_5": compared.more(WORTH_EXCLUDING),
            "to_exclude_margin": compared.more(compared.margin) if compared.margin is not None else None,
            "to_see_the_saving": compared.more_dollars(),
        },
        "differences": {
            each.ratio.key: {
                "relative": each.ratio.relative,
                **{name: getattr(each, name) for name in DIFFERENCE},
            }
            for each in compared.differences
        },
    }


def _side(units: Sequence[TrialUnit]) -> dict[str, Any]:
    sums = {name: sum(getattr(each, name) for each in units) for name in (*COUNTS, "paid", "saved", "could_save")}
    return {"conversations": len(units), **sums}
