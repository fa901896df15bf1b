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
from .verdict import level, p_words

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
    def harm(self) -> bool:
        """Whether text behind references is found significantly less often."""
        return self.inside.p is not None and self.inside.p <= PROBE_LEVEL


def mcnemar(lost: int, won: int) -> float:
    """Return the one-sided p value of the losses, if a loss and a win are equally likely."""
    count = lost + won
    return sum(comb(count, each) for each in range(lost, count + 1)) / (1 << count)


def tally(results: Sequence[ProbeResult], dropped: int = 0) -> ProbeTally | None:
    """Count the results of all probes, or return None without any."""
    if not results:
        return None
    inside = [each for each in results if each.original.inside]
    outside = [each for each in results if not each.original.inside]
    of_references = _count("Behind a reference", inside, tested=True)
    of_others = _count("Other text (control)", outside, tested=True)
    parts = [_count(words, (each for each in inside if min(3, each.original.fits) == fits)) for fits, words in _FITS]
    rows = [of_references, *parts, *_by_kind(inside), of_others, *_by_kind(outside)]
    arms = [[each.original for each in results], [each.rewritten for each in results]]
    return ProbeTally(
        of_references,
        of_others,
        tuple(row for row in rows if row.questions),
        _altered(inside),
        (_called(arms[0]), _called(arms[1])),
        dropped,
    )


_FITS = tuple(FITS_WORDS.items())


def _called(answers: Iterable[ProbeAnswer]) -> int:
    return sum(each.called for each in answers)


def _by_kind(results: Sequence[ProbeResult]) -> list[ProbeCount]:
    return [
        _count(words, (each for each in results if each.original.kind is kind)) for kind, words in KIND_WORDS.items()
    ]


def _count(words: str, results: Iterable[ProbeResult], *, tested: bool = False) -> ProbeCount:
    found = list(results)
    lost = sum(each.original.right > each.rewritten.right for each in found)
    won = sum(each.original.right < each.rewritten.right for each in found)
    size = max(1, len(found))
    return ProbeCount(
        words,
        len(found),
        sum(each.original.right for each in found) / size,
        sum(each.rewritten.right for each in found) / size,
        lost,
        won,
        sum(each.original.ratio for each in found) / size,
        sum(each.rewritten.ratio for each in found) / size,
        mcnemar(lost, won) if tested else None,
        not tested,
    )


def _altered(results: Iterable[ProbeResult]) -> AlteredCount:
    found = [each.altered for each in results if each.altered is not None and each.rewritten.right]
    return AlteredCount(len(found), sum(each.right for each in found), sum(bool(each.followed) for each in found))


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def probe_lines(found: ProbeTally) -> list[str]:
    """Return sentences: the result, its control, whether the model follows references, and dropped answers."""
    inside, outside = found.inside, found.outside
    first = f"Text behind a reference: {_change(inside)}"
    loss = (
        "Answers about text behind a reference are right less often."
        if found.harm
        else "No loss was found, but a loss is still possible."
    )
    lines = [f"{first} {loss}", f"Other text: {_change(outside)}", _following(found.altered)]
    if sum(found.called):
        lines.append(
            f"Tool called despite the instruction: {found.called[0]:,} answers to A, {found.called[1]:,} to B."
        )
    if found.dropped:
        lines.append(f"Dropped because refused, failed or truncated: {plural(found.dropped, 'answer')}.")
    return [*lines, ABILITY]


def _change(told: ProbeCount) -> str:
    right = f"right in {level(told.original)} with the original and {level(told.rewritten)} with the rewritten request"
    differing = f"only A right: {told.only_original:,}, only B: {told.only_rewritten:,}"
    return f"{right} ({plural(told.questions, 'question')}; {differing}; {p_words(told.p)})."


def _following(told: AlteredCount) -> str:
    if not told.questions:
        return "No reference was altered, so it is unknown whether the model follows references."
    right, there = told.still_right / told.questions, told.followed / told.questions
    said = (
        f"With the reference altered to name another result, {level(right)} of "
        f"{plural(told.questions, 'right answer')} stay right and {level(there)} have the text at that position:"
    )
    if 2 * told.still_right > told.questions:
        return f"{said} the model finds most text without the reference, so these probes do not measure following."
    return f"{said} a model that follows references gets these wrong."


def probe_cells(row: ProbeCount) -> tuple[str, ...]:
    """Return the cells of a row after its title, in the order of `PROBE_HEAD`."""
    p = "" if row.p is None else p_words(row.p).removeprefix("p = ").removeprefix("p ")
    shares = (row.original, row.rewritten, row.alike_original, row.alike_rewritten)
    return (f"{row.questions:,}", *map(level, shares), f"{row.only_original:,}", f"{row.only_rewritten:,}", p)


PROBE_HEAD = ("", "questions", "A right", "B right", "A alike", "B alike", "only A", "only B", "p")


def probe_values(found: ProbeTally) -> dict[str, Any]:
    """Return the results of the probes as JSON values."""
    return {
        "lines": probe_lines(found),
        "rows": [asdict(row) for row in found.rows],
        "altered": asdict(found.altered),
        "called": list(found.called),
        "dropped": found.dropped,
        "harm": found.harm,
    }
