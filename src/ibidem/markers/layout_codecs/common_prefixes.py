"""Ranges of lines with a common prefix: paths in a listing, the name of a package before every line of its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from operator import eq

from ..line_offsets import join_lines, split_lines

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


class PrefixCodec:
    """Writes the common prefix of a range above it, followed by a star. The lines below it start with a space."""

    letter = "p"

    def encode_text(self, text: str) -> tuple[str, str] | None:
        lines = split_lines(text)
        encoded: list[str] = []
        encoded_end = searched_end = 0
        for here in _find_similar_lines(lines):
            if here < encoded_end:
                continue
            at = here
            while at > max(encoded_end, searched_end) and lines[at - 1][:MIN_PREFIX] == lines[at][:MIN_PREFIX]:
                at -= 1
            searched_end = here + 1
            prefix, end = _find_range(lines, at)
            if prefix:
                encoded.extend(lines[encoded_end:at])
                encoded.append(prefix + "*")
                encoded.extend([" " + line[len(prefix) :] for line in lines[at:end]])
                encoded_end = end
        return ("\n".join([*encoded, *lines[encoded_end:]]), "") if encoded_end else None

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        return join_lines(_decode_lines(text.split("\n")), limit)


def _decode_lines(lines: list[str]) -> Iterator[str]:
    prefix = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line[-1:] == "*" and after[:1] == " " and (line[0] != " " or not prefix):
            prefix = line[:-1]
        elif prefix and line[:1] == " ":
            yield prefix + line[1:]
        else:
            prefix = ""
            yield line


def _find_similar_lines(lines: tuple[str, ...]) -> list[int]:
    """Return positions of lines that start like one a few lines later. A sample of lines finds every long range."""
    if len(lines) >= MANY_LINES and not _has_similar_lines(lines, len(lines) // PROBED_PLACES):
        return []
    step = 2 if len(lines) < MANY_LINES else 4
    heads = [line[:MIN_PREFIX] for line in lines[::step]]
    is_similar = map(eq, heads, heads[1:])
    return [step * at for at, same in enumerate(is_similar) if same and heads[at] and not heads[at].isspace()]


def _has_similar_lines(lines: tuple[str, ...], step: int) -> bool:
    """Return True if any sampled line starts like the next one."""
    for line, after in zip(lines[:-1:step], lines[1::step], strict=True):
        head = line[:MIN_PREFIX]
        if head == after[:MIN_PREFIX] and head and not head.isspace():
            return True
    return False


def _find_range(lines: tuple[str, ...], at: int) -> tuple[str, int]:
    """Return the prefix of this line that saves most on the lines after it, and the end of that range."""
    line = lines[at]
    best, best_end, best_gain = "", at + 1, 0
    for cut in _prefix_ends(line, lines[at + 1] if at + 1 < len(lines) else ""):
        prefix = line[:cut]
        end = at + 1
        while end < len(lines) and lines[end].startswith(prefix):
            end += 1
        gain = (end - at - 1) * cut
        if end - at >= MIN_RUN_LINES and gain > best_gain:
            best, best_end, best_gain = prefix, end, gain
    return best, best_end


def _prefix_ends(line: str, after: str) -> Iterator[int]:
    """Yield positions where a prefix may end, as long as the next line has the same prefix."""
    for match in islice(_CUT.finditer(line, MIN_PREFIX, MAX_PREFIX), MAX_CUTS):
        if not after.startswith(line[: match.end()]):
            return
        yield match.end()
