"""Runs of lines that all begin alike: paths in a listing, the name of a package before every line of its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import eq

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
        folded: list[str] = []
        done = 0
        for at in _alike(lines):
            if at < done:
                continue
            at -= at > done and lines[at - 1][:SHORTEST] == lines[at][:SHORTEST]
            beginning, end = _run(lines, at)
            if beginning:
                folded.extend(lines[done:at])
                folded.append(beginning + "*")
                folded.extend([" " + line[len(beginning) :] for line in lines[at:end]])
                done = end
        return ("\n".join([*folded, *lines[done:]]), "") if done else None

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


def _alike(lines: list[str]) -> list[int]:
    """Where lines begin like the next but one: every run of four shows that, at half the price of looking at all."""
    heads = [line[:SHORTEST] for line in lines[::2]]
    alike = map(eq, heads, heads[1:])
    return [2 * at for at, same in enumerate(alike) if same and heads[at] and not heads[at].isspace()]


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
