"""Search results with the path on every line."""

from __future__ import annotations

import re

from ..lines import lines_of

_HIT = re.compile(r"([^\s:](?<![\d])[^:\n]*|[^\s:][^:\n]*[A-Za-z_./\\][^:\n]*):(\d+):")
_NUMBER = re.compile(r":\d+:")
LOOK = 60
"""Lines looked at to see whether the shape is worth trying."""
_HEADED = re.compile(r"\d+[:-]")


class Grep:
    """The path stands once, on a line of its own above its hits: `src/app.py:12:text` becomes `12:text`.

    Context lines (`src/app.py-11-text`) and the `--` between groups are kept in place.
    """

    letter = "g"

    def fold(self, text: str) -> tuple[str, str] | None:
        start = text[:8000]
        if _NUMBER.search(start) is None or not any(map(_HIT.match, start.split("\n")[:LOOK])):
            return None
        lines = lines_of(text)
        folded: list[str] = []
        path = ""
        for number, line in enumerate(lines):
            found = _path_of(line, path) or _ahead(lines, number)
            if not found:
                folded.append(line)
                path = path if line == "--" else ""
                continue
            if found != path:
                folded.append(found)
                path = found
            folded.append(line[len(path) + 1 :])
        return "\n".join(folded), ""

    def unfold(self, text: str, digits: str) -> str:
        lines = text.split("\n")
        unfolded: list[str] = []
        path = ""
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            headed = _HEADED.match(line)
            if path and headed:
                unfolded.append(path + headed[0][-1] + line)
            elif not headed and _HEADED.match(after) and line != "--":
                path = line
            else:
                unfolded.append(line)
                path = path if line == "--" else ""
        return "\n".join(unfolded)


def _path_of(line: str, path: str) -> str:
    """The path a line starts with: the one it had above, for context lines, or that of a hit."""
    if path and line.startswith((path + "-", path + ":")) and _HEADED.match(line, len(path) + 1):
        return path
    found = _HIT.match(line)
    return found[1] if found else ""


def _ahead(lines: tuple[str, ...], number: int) -> str:
    """The path of a context line that comes before its hit."""
    for line in lines[number + 1 : number + 12]:
        found = _HIT.match(line)
        if found:
            path = found[1]
            here = lines[number]
            return path if here.startswith(path + "-") and _HEADED.match(here, len(path) + 1) else ""
        if line == "--":
            break
    return ""
