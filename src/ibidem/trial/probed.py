"""What probes say: how often answers are right with each request, where they are not, and whether references are
followed at all. Values in, words out.

Each question is asked of both requests, so only those count that are right with one of them alone (McNemar, exactly).
The test is one-sided, for harm. It takes questions for independent of each other.
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
"""How hard a reference is to find."""
ABILITY = "Probes show ability when asked, not use: they are no part of the verdict."


@dataclass(frozen=True, slots=True)
class ProbeCount:
    """Questions of one sort."""

    words: str
    questions: int
    original: float
    rewritten: float
    """Shares that are right."""
    only_original: int
    only_rewritten: int
    """Questions that are right with one of the requests alone."""
    alike_original: float
    alike_rewritten: float
    """How much of an answer is alike what is right, in the mean."""
    p: float | None = None
    """One-sided, for harm; None in a part of others."""
    part: bool = False


@dataclass(frozen=True, slots=True)
class AlteredCount:
    """Questions that were right, and were asked again with a reference that names another result."""

    questions: int
    still_right: int
    followed: int
    """Answered with what the altered reference points at."""


@dataclass(frozen=True, slots=True)
class ProbeTally:
    inside: ProbeCount
    outside: ProbeCount
    rows: tuple[ProbeCount, ...]
    """These two, each with its parts behind it."""
    altered: AlteredCount
    called: tuple[int, int]
    """Answers in each arm that called a tool."""
    dropped: int = 0
    """Answers that were refused, failed or cut off: their questions do not count."""

    @property
    def harm(self) -> bool:
        return self.inside.p is not None and self.inside.p <= PROBE_LEVEL


def mcnemar(lost: int, won: int) -> float:
    """How often so many or more of those that differ are lost, if losing and winning are equally likely."""
    count = lost + won
    return sum(comb(count, each) for each in range(lost, count + 1)) / (1 << count)


def tally(results: Sequence[ProbeResult], dropped: int = 0) -> ProbeTally | None:
    """None without questions."""
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


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────────


def probe_lines(found: ProbeTally) -> list[str]:
    """What it comes to, the control with it, and whether it was following that was measured."""
    inside, outside = found.inside, found.outside
    first = f"Asked for text that a reference stands for, {_change(inside)}"
    loss = "It is right less often where a reference stands." if found.harm else "No loss was found, which proves none."
    lines = [f"{first} {loss}", f"Asked for other text, {_change(outside)}", _following(found.altered)]
    if sum(found.called):
        lines.append(
            f"Called a tool although asked not to: {found.called[0]:,} answers to A, {found.called[1]:,} to B."
        )
    if found.dropped:
        lines.append(f"Dropped, since they were refused, failed or cut off: {plural(found.dropped, 'answer')}.")
    return [*lines, ABILITY]


def _change(told: ProbeCount) -> str:
    right = f"right in {level(told.original)} with the original and {level(told.rewritten)} with the rewritten request"
    differing = f"only A right: {told.only_original:,}, only B: {told.only_rewritten:,}"
    return f"{right} ({plural(told.questions, 'question')}; {differing}; {p_words(told.p)})."


def _following(told: AlteredCount) -> str:
    if not told.questions:
        return "No reference was altered, so nothing says whether references are followed or text is found without."
    right, there = told.still_right / told.questions, told.followed / told.questions
    said = (
        f"With the reference altered to name another result, {level(right)} of "
        f"{plural(told.questions, 'right answer')} stay right and {level(there)} say what stands there instead:"
    )
    if 2 * told.still_right > told.questions:
        return f"{said} most text is found without following the reference, so these probes do not measure following."
    return f"{said} who follows a reference gets these wrong."


def probe_cells(row: ProbeCount) -> tuple[str, ...]:
    """Behind the words of a row: questions, right and alike with each request, right with one alone, p."""
    p = "" if row.p is None else p_words(row.p).removeprefix("p = ").removeprefix("p ")
    shares = (row.original, row.rewritten, row.alike_original, row.alike_rewritten)
    return (f"{row.questions:,}", *map(level, shares), f"{row.only_original:,}", f"{row.only_rewritten:,}", p)


PROBE_HEAD = ("", "questions", "A right", "B right", "A alike", "B alike", "only A", "only B", "p")


def probe_values(found: ProbeTally) -> dict[str, Any]:
    """All of it for a program."""
    return {
        "lines": probe_lines(found),
        "rows": [asdict(row) for row in found.rows],
        "altered": asdict(found.altered),
        "called": list(found.called),
        "dropped": found.dropped,
        "harm": found.harm,
    }
