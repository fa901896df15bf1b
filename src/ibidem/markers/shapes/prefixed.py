"""Ranges of lines with a common prefix: paths in a listing, the name of a package before every line of its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from operator import eq

from ..lines import joined, lines_of

MIN_PREFIX = 10
"""Minimum characters of a prefix that is written on a separate line."""
MIN_RUN_LINES = 3
"""Minimum number of lines that share it."""
MAX_PREFIX = 240
"""Characters of a line within which a prefix must end."""
MAX_CUTS = 12
"""Number of prefix ends that are tried."""
MANY_LINES = 200
"""Number of lines from which short ranges are not searched."""
PROBED_PLACES = 48
"""Positions that are checked in a text of many lines. One of them must be in a range."""
_CUT = re.compile(r": |[/:>]")


class Prefixed:
    """Writes the common prefix of a range above it, followed by a star. The lines below it start with a space."""

    letter = "p"

    def fold(self, text: str) -> tuple[str, str] | None:
        lines = lines_of(text)
        folded: list[str] = []
        done = looked = 0
        for here in _alike(lines):
            if here < done:
                continue
            at = here
            while at > max(done, looked) and lines[at - 1][:MIN_PREFIX] == lines[at][:MIN_PREFIX]:
                at -= 1
            looked = here + 1
            beginning, end = _run(lines, at)
            if beginning:
                folded.extend(lines[done:at])
                folded.append(beginning + "*")
                folded.extend([" " + line[len(beginning) :] for line in lines[at:end]])
                done = end
        return ("\n".join([*folded, *lines[done:]]), "") if done else None

    def unfold(self, text: str, digits: str, limit: int) -> str:
        return joined(_unfolded(text.split("\n")), limit)


def _unfolded(lines: list[str]) -> Iterator[str]:
    beginning = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line[-1:] == "*" and after[:1] == " " and (line[0] != " " or not beginning):
            beginning = line[:-1]
        elif beginning and line[:1] == " ":
            yield beginning + line[1:]
        else:
            beginning = ""
            yield line


def _alike(lines: tuple[str, ...]) -> list[int]:
    """Return positions of lines that start like one a few lines later. A sample of lines finds every long range."""
    if len(lines) >= MANY_LINES and not _probed(lines, len(lines) // PROBED_PLACES):
        return []
    step = 2 if len(lines) < MANY_LINES else 4
    heads = [line[:MIN_PREFIX] for line in lines[::step]]
    alike = map(eq, heads, heads[1:])
    return [step * at for at, same in enumerate(alike) if same and heads[at] and not heads[at].isspace()]


def _probed(lines: tuple[str, ...], step: int) -> bool:
    """Return True if any sampled line starts like the next one."""
    for line, after in zip(lines[:-1:step], lines[1::step], strict=True):
        head = line[:MIN_PREFIX]
        if head == after[:MIN_PREFIX] and head and not head.isspace():
            return True
    return False


def _run(lines: tuple[str, ...], at: int) -> tuple[str, int]:
    """Return the prefix of this line that saves most on the lines after it, and the end of that range."""
    line = lines[at]
    best, best_end, best_gain = "", at + 1, 0
    for cut in _cuts(line, lines[at + 1] if at + 1 < len(lines) else ""):
        beginning = line[:cut]
        end = at + 1
        while end < len(lines) and lines[end].startswith(beginning):
            end += 1
        gain = (end - at - 1) * cut
        if end - at >= MIN_RUN_LINES and gain > best_gain:
            best, best_end, best_gain = beginning, end, gain
    return best, best_end


def _cuts(line: str, after: str) -> Iterator[int]:
    """Yield positions where a prefix may end, as long as the next line has the same prefix."""
    for found in islice(_CUT.finditer(line, MIN_PREFIX, MAX_PREFIX), MAX_CUTS):
        if not after.startswith(line[: found.end()]):
            return
        yield found.end()
