"""Results of the probes: how often answers are right with each request, and whether the model follows references.

Each question is sent with both requests. Only questions that are right with one of the two count (McNemar's exact
test). The test is one-sided, for harm, and assumes independent questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

from ..render.number_format import plural
from .outcomes import ProbeAnswer, ProbeKind, ProbeResult
from .verdict import format_level, format_p

PROBE_LEVEL = 0.05
KIND_WORDS = {
    ProbeKind.LINE: "a line",
    ProbeKind.BLOCK: "20 lines, verbatim",
    ProbeKind.WHICH: "a line with versions",
    ProbeKind.ABSENT: "a line never shown",
}
FITS_WORDS = {
    1: "label fits one result",
    2: "label fits two",
    3: "label fits three or more",
}
"""Rows by the number of earlier results with the reference's label. With more of them, the reference is ambiguous."""
ABILITY = "Probes show ability on request, not behavior without a question. They are not part of the verdict."


@dataclass(frozen=True, slots=True)
class ProbeCount:
    """Results of one group of questions, with the original and with the rewritten requests."""

    words: str
    questions: int
    original: float
    rewritten: float
    """Share of right answers."""
    only_original: int
    only_rewritten: int
    """Number of questions that are right with one of the requests only."""
    alike_original: float
    alike_rewritten: float
    """Mean similarity of an answer to the right one, from 0 to 1."""
    p: float | None = None
    """One-sided p value for harm; None for a part of a larger group."""
    part: bool = False
    """The group is a part of the one above it in the table."""


@dataclass(frozen=True, slots=True)
class AlteredCount:
    """Results of questions with a right answer that were sent again with an altered reference."""

    questions: int
    still_right: int
    followed: int
    """Number of answers with the text that the altered reference points at."""


@dataclass(frozen=True, slots=True)
class ProbeTally:
    """Results of all probes of a trial."""

    inside: ProbeCount
    outside: ProbeCount
    rows: tuple[ProbeCount, ...]
    """Table rows: both groups, each followed by its parts."""
    altered: AlteredCount
    called: tuple[int, int]
    """Number of answers with a tool call, for A and for B."""
    dropped: int = 0
    """Number of refused, failed or truncated answers. Their questions are not counted."""

    @property
    def has_harm(self) -> bool:
        """Whether text behind references is found significantly less often."""
        return self.inside.p is not None and self.inside.p <= PROBE_LEVEL


def mcnemar_p(losses: int, wins: int) -> float:
    """Return the one-sided p value of the losses, if a loss and a win are equally likely."""
    count = losses + wins
    return sum(comb(count, number) for number in range(losses, count + 1)) / (1 << count)


def tally_probes(results: Sequence[ProbeResult], dropped_count: int = 0) -> ProbeTally | None:
    """Count the results of all probes, or return None without any."""
    if not results:
        return None
    inside = [result for result in results if result.original.inside]
    outside = [each for each in results if not each.original.inside]
    of_references = _count_probes("Behind a reference", inside, is_tested=True)
    of_others = _count_probes("Other text (control)", outside, is_tested=True)
    parts = [
        _count_probes(words, (each for each in inside if min(3, each.original.fits) == fits)) for fits, words in _FITS
    ]
    rows = [of_references, *parts, *_count_by_kind(inside), of_others, *_count_by_kind(outside)]
    answers = [[each.original for each in results], [each.rewritten for each in results]]
    return ProbeTally(
        of_references,
        of_others,
        tuple(row for row in rows if row.questions),
        _count_altered(inside),
        (_count_tool_calls(answers[0]), _count_tool_calls(answers[1])),
        dropped_count,
    )


_FITS = tuple(FITS_WORDS.items())


def _count_tool_calls(answers: Iterable[ProbeAnswer]) -> int:
    return sum(answer.called for answer in answers)


def _count_by_kind(results: Sequence[ProbeResult]) -> list[ProbeCount]:
    return [
        _count_probes(words, (result for result in results if result.original.kind is kind))
        for kind, words in KIND_WORDS.items()
    ]


def _count_probes(words: str, results: Iterable[ProbeResult], *, is_tested: bool = False) -> ProbeCount:
    result_list = list(results)
    losses = sum(result.original.right > result.rewritten.right for result in result_list)
    wins = sum(each.original.right < each.rewritten.right for each in result_list)
    size = max(1, len(result_list))
    return ProbeCount(
        words,
        len(result_list),
        sum(each.original.right for each in result_list) / size,
        sum(each.rewritten.right for each in result_list) / size,
        losses,
        wins,
        sum(each.original.ratio for each in result_list) / size,
        sum(each.rewritten.ratio for each in result_list) / size,
        mcnemar_p(losses, wins) if is_tested else None,
        not is_tested,
    )


def _count_altered(results: Iterable[ProbeResult]) -> AlteredCount:
    answers = [each.altered for each in results if each.altered is not None and each.rewritten.right]
    return AlteredCount(len(answers), sum(each.right for each in answers), sum(bool(each.followed) for each in answers))


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def probe_lines(results: ProbeTally) -> list[str]:
    """Return sentences: the result, its control, whether the model follows references, and dropped answers."""
    inside, outside = results.inside, results.outside
    first = f"Text behind a reference: {_change_text(inside)}"
    loss = (
        "Answers about text behind a reference are right less often."
        if results.has_harm
        else "No loss was found, but a loss is still possible."
    )
    lines = [f"{first} {loss}", f"Other text: {_change_text(outside)}", _following_text(results.altered)]
    if sum(results.called):
        lines.append(
            f"Tool called despite the instruction: {results.called[0]:,} answers to A, {results.called[1]:,} to B."
        )
    if results.dropped:
        lines.append(f"Dropped because refused, failed or truncated: {plural(results.dropped, 'answer')}.")
    return [*lines, ABILITY]


def _change_text(count: ProbeCount) -> str:
    original, rewritten = format_level(count.original), format_level(count.rewritten)
    right = f"right in {original} with the original and {rewritten} with the rewritten request"
    differing = f"only A right: {count.only_original:,}, only B: {count.only_rewritten:,}"
    return f"{right} ({plural(count.questions, 'question')}; {differing}; {format_p(count.p)})."


def _following_text(count: AlteredCount) -> str:
    if not count.questions:
        return "No reference was altered, so it is unknown whether the model follows references."
    right, there = count.still_right / count.questions, count.followed / count.questions
    sentence = (
        f"With the reference altered to name another result, {format_level(right)} of "
        f"{plural(count.questions, 'right answer')} stay right and {format_level(there)} have the text at that "
        "position:"
    )
    if 2 * count.still_right > count.questions:
        return f"{sentence} the model finds most text without the reference, so these probes do not measure following."
    return f"{sentence} a model that follows references gets these wrong."


def probe_cells(row: ProbeCount) -> tuple[str, ...]:
    """Return the cells of a row after its title, in the order of `PROBE_HEAD`."""
    p = "" if row.p is None else format_p(row.p).removeprefix("p = ").removeprefix("p ")
    shares = (row.original, row.rewritten, row.alike_original, row.alike_rewritten)
    return (f"{row.questions:,}", *map(format_level, shares), f"{row.only_original:,}", f"{row.only_rewritten:,}", p)


PROBE_HEAD = ("", "questions", "A right", "B right", "A alike", "B alike", "only A", "only B", "p")


def probe_values(results: ProbeTally) -> dict[str, Any]:
    """Return the results of the probes as JSON values."""
    return {
        "lines": probe_lines(results),
        "rows": [asdict(row) for row in results.rows],
        "altered": asdict(results.altered),
        "called": list(results.called),
        "dropped": results.dropped,
        "harm": results.has_harm,
    }
