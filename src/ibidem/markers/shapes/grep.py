"""Search results with the path on every line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..lines import joined, lines_of

_NUMBER = re.compile(r":\d+:")
_HIT = re.compile(r"(?!\s)([^:]+):\d+:")
_NAME = re.compile(r"[A-Za-z_./\\]")
PROBED_LINES = 60
"""Lines that are checked to see whether the codec may fit."""
_HEADED = re.compile(r"\d+[:-]")


class Grep:
    """Writes each path once, on a separate line above its hits: `src/app.py:12:text` becomes `12:text`.

    Context lines (`src/app.py-11-text`) and the `--` between groups keep their positions.
    """

    letter = "g"

    def fold(self, text: str) -> tuple[str, str] | None:
        start = text[:8000]
        if _NUMBER.search(start) is None or not any(map(_hit, start.split("\n")[:PROBED_LINES])):
            return None
        lines = lines_of(text)
        hits = [*map(_hit, lines)]
        folded: list[str] = []
        path = ""
        for number, line in enumerate(lines):
            if path and hits[number] == path:  # most lines follow another hit in the same file
                folded.append(line[len(path) + 1 :])
                continue
            found = _path_of(line, path) or hits[number] or _ahead(lines, hits, number)
            if not found:
                folded.append(line)
                path = path if line == "--" else ""
                continue
            if found != path:
                folded.append(found)
                path = found
            folded.append(line[len(path) + 1 :])
        return "\n".join(folded), ""

    def unfold(self, text: str, digits: str, limit: int) -> str:
        return joined(_unfolded(text.split("\n")), limit)


def _unfolded(lines: list[str]) -> Iterator[str]:
    path = ""
    heads = [*map(_HEADED.match, lines), None]
    for line, headed, after in zip(lines, heads, heads[1:], strict=False):
        if path and headed:
            yield path + headed[0][-1] + line
        elif not headed and after and line != "--":
            path = line
        else:
            yield line
            path = path if line == "--" else ""


def _hit(line: str) -> str:
    """Return the path before a number between colons at the start of a line. A path that is only a number does not
    count."""
    found = _HIT.match(line)
    if found is None:
        return ""
    path = found[1]
    return path if not path[0].isdecimal() or _NAME.search(path, 1) else ""


def _path_of(line: str, path: str) -> str:
    """Return the path above if a line starts with it, as context lines do."""
    if path and line[len(path) : len(path) + 1] in ("-", ":") and line.startswith(path):
        return path if _HEADED.match(line, len(path) + 1) else ""
    return ""


def _ahead(lines: tuple[str, ...], hits: list[str], number: int) -> str:
    """Return the path of a context line that is before its hit."""
    for after in range(number + 1, min(number + 12, len(lines))):
        if path := hits[after]:
            here = lines[number]
            return path if here.startswith(path + "-") and _HEADED.match(here, len(path) + 1) else ""
        if lines[after] == "--":
            break
    return ""
