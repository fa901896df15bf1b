"""Search results with the path on every line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..line_offsets import join_lines, split_lines

_NUMBER = re.compile(r":\d+:")
_HIT = re.compile(r"(?!\s)([^:]+):\d+:")
_NAME = re.compile(r"[A-Za-z_./\\]")
PROBED_LINES = 60
"""Lines that are checked to see whether the codec may fit."""
_HEADED = re.compile(r"\d+[:-]")


class GrepCodec:
    """Writes each path once, on a separate line above its hits: `src/app.py:12:text` becomes `12:text`.

    Context lines (`src/app.py-11-text`) and the `--` between groups keep their positions.
    """

    letter = "g"

    def encode_text(self, text: str) -> tuple[str, str] | None:
        start = text[:8000]
        if _NUMBER.search(start) is None or not any(map(_hit_path, start.split("\n")[:PROBED_LINES])):
            return None
        lines = split_lines(text)
        hits = [*map(_hit_path, lines)]
        encoded: list[str] = []
        path = ""
        for number, line in enumerate(lines):
            if path and hits[number] == path:  # most lines follow another hit in the same file
                encoded.append(line[len(path) + 1 :])
                continue
            hit_path = _context_path(line, path) or hits[number] or _path_of_next_hit(lines, hits, number)
            if not hit_path:
                encoded.append(line)
                path = path if line == "--" else ""
                continue
            if hit_path != path:
                encoded.append(hit_path)
                path = hit_path
            encoded.append(line[len(path) + 1 :])
        return "\n".join(encoded), ""

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        return join_lines(_decode_lines(text.split("\n")), limit)


def _decode_lines(lines: list[str]) -> Iterator[str]:
    path = ""
    heads = [*map(_HEADED.match, lines), None]
    for line, has_number, after in zip(lines, heads, heads[1:], strict=False):
        if path and has_number:
            yield path + has_number[0][-1] + line
        elif not has_number and after and line != "--":
            path = line
        else:
            yield line
            path = path if line == "--" else ""


def _hit_path(line: str) -> str:
    """Return the path before a number between colons at the start of a line. A path that is only a number does not
    count."""
    match = _HIT.match(line)
    if match is None:
        return ""
    path = match[1]
    return path if not path[0].isdecimal() or _NAME.search(path, 1) else ""


def _context_path(line: str, path: str) -> str:
    """Return the path above if a line starts with it, as context lines do."""
    if path and line[len(path) : len(path) + 1] in ("-", ":") and line.startswith(path):
        return path if _HEADED.match(line, len(path) + 1) else ""
    return ""


def _path_of_next_hit(lines: tuple[str, ...], hits: list[str], number: int) -> str:
    """Return the path of a context line that is before its hit."""
    for after in range(number + 1, min(number + 12, len(lines))):
        if path := hits[after]:
            here = lines[number]
            return path if here.startswith(path + "-") and _HEADED.match(here, len(path) + 1) else ""
        if lines[after] == "--":
            break
    return ""
