"""How clients write line numbers: one row for each way, and which of them a text shows.

A number that stands before a line says nothing about the line. So texts are compared without their numbers, and a file
that was read in one client's layout is found in every other. Adding a layout: a row below, with the client and the
version that it was seen in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import lt
from typing import NamedTuple

PROBED_LINES = 60
"""Lines looked at to see whether a text has numbers."""
MAX_DIGITS = 9
MIN_COUNTING = 3
"""Numbers from which they can be seen to go up."""


@dataclass(frozen=True)
class NumberStyle:
    """`before`, the number, `after`, and the line itself."""

    letter: str
    """How a marker says that numbers of this style were folded."""
    before: str
    after: str
    padding: str
    """What the number is usually padded to, as in `%05d`: `6` with blanks, `05` with zeros, `0` not at all."""
    seen_in: str
    """Clients, with the version, or the commit and the file that writes it."""
    sure: bool = False
    """Nothing else looks like that. All others count only where most of the numbers go up: times of day have colons,
    and a list has numbers with dots."""

    @cached_property
    def number(self) -> re.Pattern[str]:
        """A line that begins with a number; of any length, to see that it is too long to be one."""
        return re.compile(rf"{self._begins}([0-9]++){re.escape(self.after)}")

    @cached_property
    def any_length(self) -> re.Pattern[str]:
        """Such a number anywhere in a text that has a line break before every line."""
        return re.compile(rf"\n{self._begins}([0-9]++){re.escape(self.after)}")

    @cached_property
    def in_text(self) -> re.Pattern[str]:
        """As `any_length`, without the zeros that a number is padded with, and short enough to be one."""
        return re.compile(rf"\n{self._begins}0{{0,8}}([0-9]{{1,9}}+){re.escape(self.after)}")

    @property
    def _begins(self) -> str:
        return re.escape(self.before) if self.before else " *+"

    def meant(self, text: str, count: int) -> NumberStyle:
        """Of a text with so many numbers: the style with a blank more, if one stands behind each of them.

        Where it does not, it belongs to the lines: some are indented.
        """
        spaced = spaced_of(self)
        return spaced if spaced is not None and len(spaced.in_text.findall("\n" + text)) == count else self


STYLES = (
    NumberStyle("n", "", "→", "6", "Claude Code 1.0.98 to 2.1.52, Read", sure=True),
    NumberStyle(
        "t",
        "",
        "\t",
        "6",
        "cat -n, nl; Claude Code 2.1.32 to 2.1.218, Read; OpenHands and moatless logs, view",
        sure=True,
    ),
    NumberStyle("d", "", ": ", "0", "OpenCode 1.14.30 and 1.18.3, read; Kilo Code at 04bfcc4, read.ts"),
    NumberStyle("k", "", ":", "0", "grep -n; SWE-agent at 009062f, windowed_file.py"),
    NumberStyle("e", "", "| ", "05", "OpenCode, an early read.ts (EchoCog/opencode at 4be3b33)"),
    NumberStyle("b", "", "|", "6", "Crush at 042fecf, view.go"),
    NumberStyle("f", "", " | ", "0", "Roo Code at 022056f, extract-text.ts"),
    NumberStyle("o", "", ". ", "0", "Copilot CLI 1.0.64, view"),
    NumberStyle("l", "L", ": ", "0", "Codex at 001cb8e, read_file.rs; Gemini CLI of April 2026, grep"),
    NumberStyle("i", "  Line ", ": ", "0", "OpenCode 1.14.30, grep"),
)
TABBED = STYLES[1]
"""What every other style is folded to: a tab joins with the indentation behind it to one token."""

_LINE = re.compile(r" *+(L|Line )?[0-9]++(→|\t|:|\. | \| |\|)")
_ANY = re.compile(rf"\n{_LINE.pattern}")
_BY_MARK = {(style.before.lstrip(), style.after): style for style in reversed(STYLES)}
_BY_MARK |= {("L", ":"): _BY_MARK["L", ": "], ("Line ", ":"): _BY_MARK["Line ", ": "]}
_SPACED = {style: _BY_MARK["", style.after + " "] for style in STYLES if ("", style.after + " ") in _BY_MARK}


def spaced_of(style: NumberStyle) -> NumberStyle | None:
    """The style with a blank more, if there is one."""
    return _SPACED.get(style)


class NumberedLines(NamedTuple):
    """Lines of which most have numbers."""

    style: NumberStyle
    numbers: Sequence[int | None]
    bodies: Sequence[str]
    """The lines without their numbers."""
    edges: Sequence[int]
    """Positions where a stretch of consecutive numbers, or of lines without, begins; but for the first."""


def style_of(lines: Sequence[str]) -> NumberStyle | None:
    """The style that most numbers among the first lines have; the one with a blank more may be meant."""
    return _style_of("\n".join(["", *lines[:PROBED_LINES]]))


def first_numbered(lines: Sequence[str]) -> tuple[int, NumberStyle] | None:
    """The first of some lines that has a number, and how that is written."""
    for at, found in enumerate(map(_LINE.match, lines)):
        style = _BY_MARK.get((found[1] or "", found[2])) if found else None
        if style is not None:
            return at, style
    return None


@lru_cache(maxsize=2)
def _style_of(start: str) -> NumberStyle | None:
    """Shapes and spans ask for the same text, one after the other."""
    found = _ANY.findall(start)
    return _BY_MARK.get(Counter(found).most_common(1)[0][0]) if found else None


def numbered(text: str, style: NumberStyle, apart: int = 0) -> NumberedLines | None:
    """Lines told apart from their numbers; None if these are none of that style. What `NumberStyle.meant` says holds.

    `apart` are lines that stand for others: they need no number.
    """
    pieces = style.any_length.split("\n" + text)
    numerals = pieces[1::2]
    count = text.count("\n") + 1
    if 2 * len(numerals) < count - apart or not numerals:
        return None
    if max(map(len, numerals)) > MAX_DIGITS:
        return _some_too_long(text.split("\n"), style)
    numbers = [*map(int, numerals)]
    if not style.sure and not count_up(numbers):
        return None
    spaced = spaced_of(style)
    if spaced is not None and all(rest.startswith(" ") for rest in pieces[2::2]):
        style, pieces = spaced, spaced.any_length.split("\n" + text)
    shown: list[int | None] = [None] * pieces[0].count("\n")
    for number, rest in zip(numbers, pieces[2::2], strict=True):
        shown.append(number)
        if "\n" in rest:
            shown += [None] * rest.count("\n")
    bodies = "\n".join([*([pieces[0][1:]] if pieces[0] else []), *pieces[2::2]]).split("\n")
    return NumberedLines(style, shown, bodies, edges_of(shown))


def _some_too_long(lines: list[str], style: NumberStyle) -> NumberedLines | None:
    """Where not everything that looks like a number is one: line by line."""
    found = [style.number.match(line) for line in lines]
    numbers = [int(each[1]) if each is not None and len(each[1]) <= MAX_DIGITS else None for each in found]
    if not style.sure and not count_up([each for each in numbers if each is not None]):
        return None
    spaced = spaced_of(style)
    blank = spaced is not None and all(each.string.startswith(" ", each.end()) for each in found if each is not None)
    bodies = [
        line if number is None or each is None else line[each.end() + blank :]
        for line, number, each in zip(lines, numbers, found, strict=True)
    ]
    return NumberedLines(spaced if spaced is not None and blank else style, numbers, bodies, edges_of(numbers))


def edges_of(numbers: Sequence[int | None]) -> list[int]:
    """Positions where a stretch of consecutive numbers, or of lines without, begins; but for the first."""
    return [
        at for at, (before, here) in enumerate(pairwise(numbers), 1) if here != (None if before is None else before + 1)
    ]


def count_up(numbers: list[int]) -> bool:
    """Whether most of them are more than the one before, and they are enough to tell."""
    return len(numbers) >= MIN_COUNTING and 5 * sum(map(lt, numbers, numbers[1:])) >= 4 * (len(numbers) - 1)
