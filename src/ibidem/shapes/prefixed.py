"""Runs of lines that all begin alike: paths in a listing, the name of a package before every line of its log."""

from __future__ import annotations

import re
from collections.abc import Iterator

SHORTEST = 10
"""Characters of a beginning that is worth a line of its own."""
LEAST = 3
"""Lines that must share it."""
_CUT = re.compile(r": |[/:>]")


class Prefixed:
    """What a run of lines has in common stands above it, followed by a star; the lines below it start with a space."""

    letter = "p"

    def fold(self, text: str) -> tuple[str, str] | None:
        lines = text.split("\n")
        if len(lines) < LEAST:
            return None
        folded: list[str] = []
        at = 0
        while at < len(lines):
            beginning, end = _run(lines, at)
            if beginning:
                folded.append(beginning + "*")
                folded.extend(" " + line[len(beginning) :] for line in lines[at:end])
            else:
                folded.extend(lines[at:end])
            at = end
        return ("\n".join(folded), "") if len(folded) > len(lines) else None

    def unfold(self, text: str, digits: str) -> str:
        unfolded: list[str] = []
        beginning = ""
        lines = text.split("\n")
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if line[-1:] == "*" and after[:1] == " " and (line[0] != " " or not beginning):
                beginning = line[:-1]
            elif beginning and line[:1] == " ":
                unfolded.append(beginning + line[1:])
            else:
                beginning = ""
                unfolded.append(line)
        return "\n".join(unfolded)


def _run(lines: list[str], at: int) -> tuple[str, int]:
    """The best beginning that this line shares with those after it, and where that run ends."""
    line = lines[at]
    best, best_end, best_gain = "", at + 1, 0
    for cut in _cuts(line, lines[at + 1] if at + 1 < len(lines) else ""):
        beginning = line[:cut]
        end = at + 1
        while end < len(lines) and lines[end].startswith(beginning):
            end += 1
        gain = (end - at - 1) * cut
        if end - at >= LEAST and gain > best_gain:
            best, best_end, best_gain = beginning, end, gain
    return best, best_end


def _cuts(line: str, after: str) -> Iterator[int]:
    """Where a beginning may end, as far as the next line agrees."""
    for found in _CUT.finditer(line, SHORTEST):
        if not after.startswith(line[: found.end()]):
            return
        yield found.end()
