"""Lines whose numbers count up by one, split without searching for each number.

Most texts with line numbers are a piece of a file: a line or two without a number, then consecutive numbers, maybe some
lines without. Such a text can be split by the numbers that must be there. All others are left to
`line_numbers.split_numbered_lines`, which gives the same result line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, eq
from typing import NamedTuple, overload

from .line_numbers import MAX_DIGITS, PROBED_LINES, TABBED, NumberedLines, NumberStyle, first_numbered, spaced_style

MAX_HEAD = 8
"""Maximum number of lines before the first numbered one."""
MIN_COUNTED = 3
TABLE_NUMBERS = 1 << 14
"""Formatted numbers that are cached per style. Most texts reuse them."""
FIRST_LINES = 256
"""Lines of the first step. Each step doubles, because padding may be far longer than a line and steps bound it."""

_TABLES: dict[tuple[NumberStyle, str], list[str]] = {}


def format_line_numbers(style: NumberStyle, padding: str, first: int, count: int) -> list[str]:
    """Return formatted numbers, padded as `NumberStyle.padding` says."""
    width, fill = int(padding), "0" if padding[0] == "0" else " "
    before, after, last = style.before, style.after, first + count
    if last > TABLE_NUMBERS or padding not in (style.padding, "0"):
        return [before + str(number).rjust(width, fill) + after for number in range(first, last)]
    table = _TABLES.setdefault((style, padding), [])
    if len(table) < last:
        table += [before + str(number).rjust(width, fill) + after for number in range(len(table), last)]
    return table[first:last]


def number_lines(first: int, bodies: Sequence[str]) -> str:
    """Return the text of lines with consecutive numbers before a tab, starting with `first`."""
    pieces = ["", "", "\n"] * len(bodies)
    pieces[0::3], pieces[1::3] = format_line_numbers(TABBED, "0", first, len(bodies)), bodies
    return "".join(pieces[:-1])


def padding_of(number: str) -> str:
    """Return the padding of a number as written; see `NumberStyle.padding`."""
    width = len(number) - len(number.lstrip(" ").lstrip("0123456789"))
    if number[0] == " ":
        return str(width)
    return f"0{width}" if number[0] == "0" and width > 1 else "0"


class SequentialLines(NamedTuple):
    """Lines of which one range has consecutive numbers, and no other line has a number."""

    style: NumberStyle
    padding: str
    head: int
    """Number of lines before the first numbered one."""
    first: int
    """The first number."""
    bodies: list[str]
    """The numbered lines, without their numbers."""

    @property
    def padded_count(self) -> int:
        """Count of numbers with a blank before them."""
        if self.padding[0] == "0":
            return 0
        return max(0, min(int("1" + "0" * (int(self.padding) - 1)) - self.first, len(self.bodies)))

    def to_numbered_lines(self, lines: Sequence[str]) -> NumberedLines:
        """Return all of `lines`, in which these were found, with their numbers split off."""
        numbers: list[int | None] = [*range(self.first, self.first + len(self.bodies))]
        end = self.head + len(self.bodies)
        edges = [self.head] if self.head else []
        if end == len(lines) and not self.head:
            return NumberedLines(self.style, numbers, self.bodies, edges)
        lines_after = len(lines) - end
        numbers = [*[None] * self.head, *numbers, *[None] * lines_after]
        bodies = [*lines[: self.head], *self.bodies, *lines[end:]]
        return NumberedLines(self.style, numbers, bodies, [*edges, end] if lines_after else edges)


def find_sequential_lines(lines: Sequence[str]) -> SequentialLines | None:
    """Return lines that count up by one, in the most frequent style; None if a line-by-line check is needed."""
    start = first_numbered(lines[:MAX_HEAD])
    sequence = check_sequential(lines, start[1]) if start is not None else None
    if start is None or sequence is None:
        return None
    probed_count = min(PROBED_LINES, len(lines))
    is_majority = 2 * (min(probed_count, start[0] + len(sequence.bodies)) - start[0]) > probed_count
    return sequence if is_majority else None


def check_sequential(lines: Sequence[str], style: NumberStyle) -> SequentialLines | None:
    """Return the lines split in this style; None if they do not count up by one from the first few on."""
    starts = [style.line_pattern.match(line) for line in lines[:MAX_HEAD]]
    head = next((at for at, start in enumerate(starts) if start is not None), len(lines))
    first_match = starts[head] if head < len(lines) else None
    if first_match is None or len(first_match[1]) > MAX_DIGITS or len(lines) < head + MIN_COUNTED:
        return None
    first, padding = int(first_match[1]), padding_of(first_match[0][len(style.before) :])
    if len(padding) > 2 or (padding[0] == "0" and int(padding) > MAX_DIGITS):
        return None
    if len(str(first + len(lines))) > MAX_DIGITS:
        return None
    here = lines[head:] if head else lines
    bodies = _strip_numbers(here, style, padding, first)
    if len(bodies) < MIN_COUNTED or any(map(style.line_pattern.match, here[len(bodies) :])):
        return None
    spaced = spaced_style(style)
    if spaced is not None and all(body.startswith(" ") for body in bodies):
        style, bodies = spaced, [body[1:] for body in bodies]
    return SequentialLines(style, padding, head, first, bodies)


def _strip_numbers(lines: Sequence[str], style: NumberStyle, padding: str, first: int) -> list[str]:
    """Return lines without their numbers, up to the first line that does not count up."""
    bodies: list[str] = []
    size = FIRST_LINES
    while len(bodies) < len(lines):
        count = len(bodies)
        chunk = lines[count : count + size] if count or size < len(lines) else lines
        numbers = format_line_numbers(style, padding, first + count, len(chunk))
        rests = [*map(str.removeprefix, chunk, numbers)]
        is_unnumbered = [*map(eq, rests, chunk)]  # a line without the expected number is unchanged
        if True in is_unnumbered:
            return bodies + rests[: is_unnumbered.index(True)]
        bodies = bodies + rests if count else rests
        size *= 2
    return bodies


class TabbedUnits(Sequence[str]):
    """Lines with their numbers before a tab, formatted on access. Most are read completely or not at all.

    Those with a number count up by one, as in `SequentialLines`.
    """

    def __init__(self, numbered_lines: NumberedLines) -> None:
        self._numbers, self._bodies = numbered_lines.numbers, numbered_lines.bodies

    def __len__(self) -> int:
        return len(self._bodies)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            numbers, bodies = self._numbers[at], self._bodies[at]
            if numbers and numbers[0] is not None and None not in numbers:
                return [*map(add, format_line_numbers(TABBED, "0", numbers[0], len(numbers)), bodies)]
            pairs = zip(numbers, bodies, strict=True)
            return [body if number is None else f"{number}\t{body}" for number, body in pairs]
        number, body = self._numbers[at], self._bodies[at]
        return body if number is None else f"{number}\t{body}"
