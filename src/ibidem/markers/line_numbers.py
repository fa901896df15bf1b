"""How clients write line numbers: one row per style, and how to detect the style of a text.

The number before a line is not part of its content. So texts are compared without their numbers, and a file that was
read in one client's style is found in every other. To add a style, add a row below, with the client and the version
that uses it.
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
"""Lines that are checked to see whether a text has numbers."""
MAX_DIGITS = 9
MIN_COUNTING = 3
"""Smallest count of numbers that shows whether they go up."""


@dataclass(frozen=True)
class NumberStyle:
    """`before`, the number, `after`, and the line itself."""

    letter: str
    """Letter for numbers of this style in a marker."""
    before: str
    after: str
    padding: str
    """Usual padding of the number, as in `%05d`: `6` with blanks, `05` with zeros, `0` none."""
    clients: str
    """Clients that use the style, with the version, or the commit and the file that writes it."""
    is_unambiguous: bool = False
    """True if no other text looks like this style. Other styles only count if most numbers go up: times of day have
    colons, and lists have numbers with dots."""

    @cached_property
    def line_pattern(self) -> re.Pattern[str]:
        """Pattern of a line that starts with a number. Any number of digits matches, so that too long ones can be
        rejected."""
        return re.compile(rf"{self._start_pattern}([0-9]++){re.escape(self.after)}")

    @cached_property
    def any_length_pattern(self) -> re.Pattern[str]:
        """Pattern of such a number anywhere in a text with a line break before every line."""
        return re.compile(rf"\n{self._start_pattern}([0-9]++){re.escape(self.after)}")

    @cached_property
    def text_pattern(self) -> re.Pattern[str]:
        """As `any_length_pattern`, without padding zeros, and with at most nine digits."""
        return re.compile(rf"\n{self._start_pattern}0{{0,8}}([0-9]{{1,9}}+){re.escape(self.after)}")

    @property
    def _start_pattern(self) -> str:
        return re.escape(self.before) if self.before else " *+"

    def resolve_style(self, text: str, count: int) -> NumberStyle:
        """Return the style with one more blank if a blank follows each of the `count` numbers in the text.

        Otherwise the blank belongs to the lines: some of them are indented.
        """
        spaced = spaced_style(self)
        return spaced if spaced is not None and len(spaced.text_pattern.findall("\n" + text)) == count else self


STYLES = (
    NumberStyle("n", "", "→", "6", "Claude Code 1.0.98 to 2.1.52, Read", is_unambiguous=True),
    NumberStyle(
        "t",
        "",
        "\t",
        "6",
        "cat -n, nl; Claude Code 2.1.32 to 2.1.218, Read; OpenHands and moatless logs, view",
        is_unambiguous=True,
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
"""All other styles are converted to this one, because a tab and the indentation after it form one token."""

_LINE = re.compile(r" *+(L|Line )?[0-9]++(→|\t|:|\. | \| |\|)")
_ANY = re.compile(rf"\n{_LINE.pattern}")
_BY_MARK = {(style.before.lstrip(), style.after): style for style in reversed(STYLES)}
_BY_MARK |= {("L", ":"): _BY_MARK["L", ": "], ("Line ", ":"): _BY_MARK["Line ", ": "]}
_SPACED = {style: _BY_MARK["", style.after + " "] for style in STYLES if ("", style.after + " ") in _BY_MARK}


def spaced_style(style: NumberStyle) -> NumberStyle | None:
    """Return the style with one more blank, if there is one."""
    return _SPACED.get(style)


class NumberedLines(NamedTuple):
    """Lines of which most have numbers, with the numbers split off."""

    style: NumberStyle
    numbers: Sequence[int | None]
    bodies: Sequence[str]
    """The lines without their numbers."""
    edges: Sequence[int]
    """Positions where a range of consecutive numbers, or of lines without numbers, starts; without the first."""


def detect_style(lines: Sequence[str]) -> NumberStyle | None:
    """Return the most frequent number style of the first lines. The style with one more blank may also fit."""
    return _detect_style("\n".join(["", *lines[:PROBED_LINES]]))


def first_numbered(lines: Sequence[str]) -> tuple[int, NumberStyle] | None:
    """Return the first numbered line and the style of its number."""
    for index, match in enumerate(map(_LINE.match, lines)):
        style = _BY_MARK.get((match[1] or "", match[2])) if match else None
        if style is not None:
            return index, style
    return None


@lru_cache(maxsize=2)
def _detect_style(start: str) -> NumberStyle | None:
    """Cached, because layout codecs and back-references detect the style of the same text, one after the other."""
    matches = _ANY.findall(start)
    return _BY_MARK.get(Counter(matches).most_common(1)[0][0]) if matches else None


def split_numbered_lines(text: str, style: NumberStyle, placeholder_count: int = 0) -> NumberedLines | None:
    """Split lines and numbers; None if most lines have no number of this style. `NumberStyle.resolve_style` applies.

    `placeholder_count` placeholder lines need no number.
    """
    pieces = style.any_length_pattern.split("\n" + text)
    numerals = pieces[1::2]
    count = text.count("\n") + 1
    if 2 * len(numerals) < count - placeholder_count or not numerals:
        return None
    if max(map(len, numerals)) > MAX_DIGITS:
        return _split_with_long_numbers(text.split("\n"), style)
    numbers = [*map(int, numerals)]
    if not style.is_unambiguous and not is_counting_up(numbers):
        return None
    style_with_blank = spaced_style(style)
    if style_with_blank is not None and all(rest.startswith(" ") for rest in pieces[2::2]):
        style, pieces = style_with_blank, style_with_blank.any_length_pattern.split("\n" + text)
    line_numbers: list[int | None] = [None] * pieces[0].count("\n")
    for number, rest in zip(numbers, pieces[2::2], strict=True):
        line_numbers.append(number)
        if "\n" in rest:
            line_numbers += [None] * rest.count("\n")
    bodies = "\n".join([*([pieces[0][1:]] if pieces[0] else []), *pieces[2::2]]).split("\n")
    return NumberedLines(style, line_numbers, bodies, range_starts(line_numbers))


def _split_with_long_numbers(lines: list[str], style: NumberStyle) -> NumberedLines | None:
    """Split line by line, because some digits are too long to be a line number."""
    matches = [style.line_pattern.match(line) for line in lines]
    numbers = [int(match[1]) if match is not None and len(match[1]) <= MAX_DIGITS else None for match in matches]
    if not style.is_unambiguous and not is_counting_up([each for each in numbers if each is not None]):
        return None
    style_with_blank = spaced_style(style)
    blank = style_with_blank is not None and all(
        each.string.startswith(" ", each.end()) for each in matches if each is not None
    )
    bodies = [
        line if number is None or each is None else line[each.end() + blank :]
        for line, number, each in zip(lines, numbers, matches, strict=True)
    ]
    return NumberedLines(
        style_with_blank if style_with_blank is not None and blank else style, numbers, bodies, range_starts(numbers)
    )


def range_starts(numbers: Sequence[int | None]) -> list[int]:
    """Return positions where a range of consecutive numbers, or of lines without numbers, starts; without the first."""
    return [
        index
        for index, (before, here) in enumerate(pairwise(numbers), 1)
        if here != (None if before is None else before + 1)
    ]


def is_counting_up(numbers: list[int]) -> bool:
    """Return True if enough numbers are given and most are greater than the one before."""
    return len(numbers) >= MIN_COUNTING and 5 * sum(map(lt, numbers, numbers[1:])) >= 4 * (len(numbers) - 1)
