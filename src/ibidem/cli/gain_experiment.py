"""`ibidem gain --trial`: compare the rewritten conversations of an experiment with those that were only measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import click

from .options import echo_json

if TYPE_CHECKING:
    from ..trial.ab_comparison import VariantComparison, VariantDifference
    from ..usage_db import AssignedConversation, UsageDatabase
    from .report.filters import TimeRange

HEAD = ("", "only measured", "rewritten", "difference", "95% interval")
NO_CONVERSATIONS = "No conversation has taken part in a trial yet. Start one first: ibidem wrap --trial 0.5 -- claude"
DIFFERENCE = ("measured", "rewritten", "value", "low", "high", "ever_low", "ever_high", "problem")
COUNTS = ("requests", "turns", "rereads", "edits", "failed_edits", "input", "output")


def print_experiment(database: UsageDatabase, period: TimeRange, zone: tzinfo, as_json: bool) -> int:
    """Compare both groups of `--trial`, and print the result."""
    from ..trial.ab_comparison import compare_variants

    comparison = compare_variants(database.assigned_conversations(period.since, period.until))
    if as_json:
        query = {"since": period.since, "until": period.until}
        echo_json({"schema": 1, "ledger": str(database.file), **query, "trial": _json_values(comparison)})
    elif not (comparison.measured_units or comparison.rewritten_units):
        click.echo(f"{period.description} {NO_CONVERSATIONS}".strip())
    else:
        draw_comparison(comparison, period.description, zone)
    return 0


def draw_comparison(comparison: VariantComparison, period_text: str, zone: tzinfo) -> None:
    """Print the comparison as a table with sentences."""
    from rich.console import Console

    from ..render.terminal_layout import print_table, print_text

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if period_text:
        print_text(console, period_text)
    print_text(console, _participants(comparison, zone))
    if not comparison.has_enough:
        print_text(console, _too_few(comparison))
        return
    print_table(console, HEAD, [_table_row(each) for each in comparison.differences])
    console.print()
    for line in (*_reread_sentences(comparison), *_cost_sentences(comparison), *_footnotes(comparison)):
        print_text(console, line)


def _participants(comparison: VariantComparison, zone: tzinfo) -> str:
    from ..errors import one_line
    from ..render.number_format import plural

    units = (*comparison.measured_units, *comparison.rewritten_units)
    newest = max(units, key=lambda each: each.first)
    since = f"{datetime.fromtimestamp(min(each.first for each in units), zone):%Y-%m-%d}"
    sides = (
        f"{plural(len(side), 'conversation')} {name} ({plural(sum(each.requests for each in side), 'request')})"
        for side, name in ((comparison.rewritten_units, "rewritten"), (comparison.measured_units, "only measured"))
    )
    return f"Trial of profile {one_line(newest.profile)} since {since}:\n{', '.join(sides)}."


def _too_few(comparison: VariantComparison) -> str:
    from ..trial.ab_comparison import LEAST_UNITS

    share = "at one share of --trial, " if len(comparison.shares) > 1 else ""
    return f"Too few conversations to compare: {share}each group needs at least {LEAST_UNITS}. Try again later."


def _table_row(each: VariantDifference) -> Sequence[str]:
    from ..render.number_format import NO_NUMBER

    interval = (
        f"{_format_change(each, each.low)}…{_format_change(each, each.high)}" if each.low is not None else each.problem
    )
    change = _format_change(each, each.value) if each.value is not None else NO_NUMBER
    return [each.ratio.words, _format_level(each, each.measured), _format_level(each, each.rewritten), change, interval]


def _format_level(each: VariantDifference, level: float | None) -> str:
    from ..render.number_format import NO_NUMBER, dollars, format_fixed, tokens

    if level is None:
        return NO_NUMBER
    if each.ratio.above == "paid":
        return dollars(level)
    return tokens(level) if each.ratio.above == "input" else format_fixed(level, 1)


def _format_change(each: VariantDifference, value: float | None) -> str:
    from ..trial.verdict import format_signed

    return f"{format_signed(100 * (value or 0.0))}%" if each.ratio.relative else format_signed(value or 0.0)


def _reread_sentences(comparison: VariantComparison) -> Iterator[str]:
    """Summarize the effect on re-reads, and how many more conversations would settle it. Never claims "no difference".

    Users run this command repeatedly, so the sentences use the interval that stays valid for repeated looks.
    """
    from ..render.number_format import format_fixed
    from ..trial.ab_comparison import WORTH_EXCLUDING
    from ..trial.verdict import format_signed

    rereads, break_even = comparison.reread_difference, comparison.margin
    if rereads is None or rereads.ever_low is None or rereads.ever_high is None:
        yield f"Re-reads: no result yet ({rereads.problem if rereads else 'too few'})."
        return
    break_even_text = (
        f"break-even is {format_signed(break_even)}" if break_even is not None else "there are no savings to lose"
    )
    lowest = format_signed(rereads.ever_low)
    if break_even is not None and rereads.ever_low > break_even:
        rise = f"they rise by at least {lowest} per 100 requests"
        yield f"Re-reads cost more than ibidem saves: {rise}, and {break_even_text}."
    elif rereads.ever_low > 0:
        rise = f"by at least {lowest} per 100 requests"
        yield f"Rewritten conversations re-read files more often, {rise}; {break_even_text}."
    elif rereads.ever_high <= 0:
        yield f"Rewritten conversations re-read files less often; {break_even_text}."
    else:
        yield f"Re-reads rise by at most {format_fixed(rereads.ever_high, 1)} per 100 requests; {break_even_text}."
    targets = {WORTH_EXCLUDING: format_signed(WORTH_EXCLUDING)}
    if break_even is not None:
        targets[break_even] = f"{format_signed(break_even)} (break-even)"
    for target in sorted(targets):
        yield from _sample_size_sentences(comparison, target, targets[target])


def _cost_sentences(comparison: VariantComparison) -> Iterator[str]:
    """Summarize the effect on cost per user turn.

    Cost varies far more between conversations than by rewriting, so few conversations cannot show the effect.
    """
    from ..render.number_format import format_fixed, plural

    difference = comparison.dollar_difference
    if difference is None or difference.ever_low is None or difference.ever_high is None:
        return
    if difference.ever_high < 0:
        yield f"A user turn costs at least {format_fixed(-100 * difference.ever_high, 1)}% less when rewritten."
    elif difference.ever_low > 0:
        yield f"A user turn costs at least {format_fixed(100 * difference.ever_low, 1)}% more when rewritten."
    else:
        yield "Cost per user turn: too few conversations to show a difference."
        if more := comparison.missing_for_dollars():
            yield f"Showing savings in dollars takes about {plural(more, 'more conversation')}: costs vary that much."


def _sample_size_sentences(comparison: VariantComparison, target: float, target_text: str) -> Iterator[str]:
    from ..render.number_format import plural

    more, rereads = comparison.missing_for_rereads(target), comparison.reread_difference
    if more:
        yield f"Excluding {target_text} takes about {plural(more, 'more conversation')} if the trend continues."
    elif more is None and rereads is not None and rereads.ever_low is not None and rereads.ever_low < target:
        yield f"The rate so far is above {target_text.rstrip(',')}. More conversations will show if that is chance."


def _footnotes(comparison: VariantComparison) -> Iterator[str]:
    from ..render.number_format import plural

    yield "These sentences stay valid if you check repeatedly. Intervals in the table assume one planned check."
    yield "Intervals assume that conversations are a random sample. Dollars: input and output at list prices."
    yield from _share_notes(comparison)
    unpriced = sum(each.requests - each.priced for each in (*comparison.measured_units, *comparison.rewritten_units))
    if unpriced:
        yield f"The cost of {plural(unpriced, 'request')} is unknown and not included in dollars or tokens."
    if comparison.paused_count:
        yield f"{plural(comparison.paused_count, 'conversation')} not included: rewriting was paused."
    if comparison.other_profile_count:
        others = plural(comparison.other_profile_count, "conversation")
        yield f"{others} with other profiles not included. See --since and --until."


def _share_notes(comparison: VariantComparison) -> Iterator[str]:
    """Explain how conversations with different shares of `--trial` are compared. They are from different times."""
    from ..render.number_format import plural
    from ..trial.ab_comparison import LEAST_UNITS

    if len(comparison.compared_shares) > 1:
        share_text = ", ".join(
            f"{each.share:g} ({len(each.rewritten):,} rewritten, {len(each.measured):,} not)"
            for each in comparison.compared_shares
        )
        yield f"--trial was changed. The groups are compared at each share, then averaged: {share_text}."
    for each in comparison.shares:
        if not each.has_enough:
            excluded = f"{plural(each.conversation_count, 'conversation')} with --trial {each.share:g} not included"
            yield f"{excluded}: a group has fewer than {LEAST_UNITS}, and shares must not be mixed."


def _json_values(comparison: VariantComparison) -> dict[str, Any]:
    from ..trial.ab_comparison import WORTH_EXCLUDING

    units = (*comparison.measured_units, *comparison.rewritten_units)
    return {
        "profile": max(units, key=lambda each: each.first).profile if units else None,
        "enough": comparison.has_enough,
        "arms": {
            "measure": _group_totals(comparison.measured_units),
            "rewrite": _group_totals(comparison.rewritten_units),
        },
        "left_out": comparison.paused_count,
        "other_profiles": comparison.other_profile_count,
        "shares": [
            {
                "share": each.share,
                "measure": len(each.measured),
                "rewrite": len(each.rewritten),
                "compared": each.has_enough,
            }
            for each in comparison.shares
        ],
        "margin_per_100_requests": comparison.margin,
        "more_conversations": {
            "to_exclude_5": comparison.missing_for_rereads(WORTH_EXCLUDING),
            "to_exclude_margin": comparison.missing_for_rereads(comparison.margin)
            if comparison.margin is not None
            else None,
            "to_see_the_saving": comparison.missing_for_dollars(),
        },
        "differences": {
            each.ratio.key: {
                "relative": each.ratio.relative,
                **{name: getattr(each, name) for name in DIFFERENCE},
            }
            for each in comparison.differences
        },
    }


def _group_totals(units: Sequence[AssignedConversation]) -> dict[str, Any]:
    sums = {name: sum(getattr(each, name) for each in units) for name in (*COUNTS, "paid", "saved", "could_save")}
    return {"conversations": len(units), **sums}
