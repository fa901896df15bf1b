"""Which lines of a Markdown text are plain prose.

Only a paragraph counts all of whose lines are certain to be nothing else: no code in any fence, indented or within the
line, no list, heading, table, quote, link or HTML. Where a fence ends that stands in a list or a quote, or whether
there is one at all after a tag, is unsure: what comes after is left alone. The first and the last paragraph say what a
text is about and what came of it, so they are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MIN_PROSE = 160
"""Characters from which a stretch is longer than the marker that would stand for it."""

_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_UNSURE = re.compile(r"<|.+?(?:```|~~~)")
"""A tag, or a fence that does not begin its line."""
_OTHER = re.compile(r"\s|[-*+]\s|\d+[.)]|#|>|<|[-=*_]{2,}\s*$|.*(?:[`|<>~$\\{}]|\[|://|www\.)")
"""How a line begins, or what is in it, that may be more than prose."""

Span = tuple[int, int]


def plain(lines: Sequence[str]) -> list[Span]:
    """Stretches of lines (first, and last not included) that are plain prose and worth a marker."""
    found: list[Span] = []
    paragraphs = list(_paragraphs(lines))
    for first, last, prose in paragraphs[1:-1]:
        if prose and found and not any(line.strip() for line in lines[found[-1][1] : first]):
            found[-1] = (found[-1][0], last)
        elif prose:
            found.append((first, last))
    return [(first, last) for first, last in found if sum(map(len, lines[first:last])) >= MIN_PROSE]


def _paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Runs of lines without a blank one, and whether each is prose. A fence is one run, blank lines and all."""
    first, fence, prose = -1, "", True
    for place, line in enumerate([*lines, ""]):
        if fence:
            closes = _FENCE.fullmatch(line.removeprefix(" ").removeprefix(" ").removeprefix(" "))
            if closes and closes["fence"].startswith(fence) and not closes["info"].strip():
                fence = ""
            continue
        if opens := _FENCE.fullmatch(line):
            fence = opens["fence"]
        elif _UNSURE.match(line):
            yield place if first < 0 else first, len(lines), False
            return
        if not line.strip():
            if first >= 0:
                yield first, place, prose
            first, prose = -1, True
            continue
        first, prose = (place if first < 0 else first), prose and not _OTHER.match(line)
    if first >= 0:  # a fence that is never closed reaches to the end
        yield first, len(lines), False
