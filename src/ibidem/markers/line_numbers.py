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
from functools import cached_property
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
    """Clients, with versions."""
    sure: bool = False
    """Nothing else looks like that. All others count only where most of the numbers go up: times of day have colons,
    and a list has numbers with dots."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        blanks = "" if self.before else " *+"
        return re.compile(rf"{blanks}{re.escape(self.before)}([0-9]++){re.escape(self.after)}")


STYLES = (
    NumberStyle("n", "", "→", "6", "Claude Code 1.0 to 2.1.100, Read", sure=True),
    NumberStyle("t", "", "\t", "6", "cat -n, nl; OpenHands 0.x and moatless, view; Claude Code 2.1, Read", sure=True),
    NumberStyle("d", "", ": ", "0", "OpenCode 1.14 and 1.18, read; Kilo Code 7, read; SWE-agent 0.x, open"),
    NumberStyle("k", "", ":", "0", "grep -n; SWE-agent 1.x, open"),
    NumberStyle("e", "", "| ", "05", "OpenCode 1.0, read; LLxprt Code 0.x, read_line_range"),
    NumberStyle("b", "", "|", "6", "Crush 0.2x, view; Cursor 1.x and 2.x, read_file"),
    NumberStyle("f", "", " | ", "0", "Roo Code 3.x, read_file"),
    NumberStyle("o", "", ". ", "0", "Copilot CLI 1.0.64 to 1.0.72, view"),
    NumberStyle("l", "L", ": ", "0", "Codex 0.5x, read_file; Gemini CLI 0.1 to 0.3x, grep"),
    NumberStyle("i", "  Line ", ": ", "0", "OpenCode 1.14 and 1.18, grep"),
)
TABBED = STYLES[1]
"""What every other style is folded to: a tab joins with the indentation behind it to one token."""

_ANY = re.compile(r"\n *+(L|Line )?[0-9]++(→|\t|:|\. | \| |\|)")
_BY_MARK = {(style.before.lstrip(), style.after): style for style in reversed(STYLES)}
_BY_MARK |= {("L", ":"): _BY_MARK["L", ": "], ("Line ", ":"): _BY_MARK["Line ", ": "]}
_SPACED = {style: _BY_MARK["", style.after + " "] for style in STYLES if ("", style.after + " ") in _BY_MARK}


class NumberedLines(NamedTuple):
    """Lines of which most have numbers."""

    style: NumberStyle
    numbers: list[int | None]
    bodies: list[str]
    """The lines without their numbers."""


def style_of(lines: Sequence[str]) -> NumberStyle | None:
    """The style that most numbers among the first lines have; one that leaves a blank to the line may be meant."""
    found = Counter(_ANY.findall("\n".join(["", *lines[:PROBED_LINES]])))
    return _BY_MARK.get(found.most_common(1)[0][0]) if found else None


def numbered(lines: Sequence[str], style: NumberStyle, apart: int = 0) -> NumberedLines | None:
    """Lines told apart from their numbers; None if these are none of that style.

    `apart` are lines that stand for others: they need no number.
    """
    match = style.pattern.match
    found = [match(line) for line in lines]
    if 2 * (len(found) - found.count(None)) < len(lines) - apart:
        return None
    numbers = [int(each[1]) if each is not None and len(each[1]) <= MAX_DIGITS else None for each in found]
    if not style.sure and not _count_up(numbers):
        return None
    # A blank belongs to the number only if it stands behind every number: indented lines begin with one too.
    spaced = _SPACED.get(style)
    blank = spaced is not None and all(each.string.startswith(" ", each.end()) for each in found if each is not None)
    bodies = [
        line if number is None or each is None else line[each.end() + blank :]
        for line, number, each in zip(lines, numbers, found, strict=True)
    ]
    return NumberedLines(spaced if spaced is not None and blank else style, numbers, bodies)


def _count_up(numbers: list[int | None]) -> bool:
    shown = [each for each in numbers if each is not None]
    enough = len(shown) >= MIN_COUNTING
    return enough and 5 * [*map(lt, shown, shown[1:])].count(True) >= 4 * (len(shown) - 1)
