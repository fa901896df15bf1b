"""Lines with numbers before them, as `cat -n`, `nl` and file readers print them."""

from __future__ import annotations

import re

from ..lines import joined

USUAL_WIDTH = 6
"""Width to which numbers are padded by nearly everyone."""
PROBED_LINES = 60
"""Lines looked at to see whether the shape is worth trying."""


class Numbered:
    """The padding before the numbers goes, and a tab parts number and text: `     12→text` becomes `12<tab>text`.

    A tab joins with the indentation behind it to one token; an arrow never does.
    """

    def __init__(self, letter: str, mark: str) -> None:
        self.letter = letter
        self._mark = mark
        self._numbered = re.compile(rf" *(?=\d+{mark})")

    def fold(self, text: str) -> tuple[str, str] | None:
        mark, match = self._mark, self._numbered.match
        if mark not in text:
            return None
        first = next((line for line in text[:8000].split("\n")[:PROBED_LINES] if match(line)), None)
        if first is None or (mark == "\t" and first[0] != " "):
            return None
        width = first.index(mark) if first[0] == " " else 0
        folded = [
            line[found.end() :].replace(mark, "\t", 1) if (found := match(line)) else line for line in text.split("\n")
        ]
        return "\n".join(folded), "" if width == USUAL_WIDTH else str(width)

    def unfold(self, text: str, digits: str, limit: int) -> str:
        width, mark = int(digits or USUAL_WIDTH), self._mark
        unfolded = (
            number.rjust(width) + mark + rest if tab and number.isdecimal() else line
            for line in text.split("\n")
            for number, tab, rest in (line.partition("\t"),)
        )
        return joined(unfolded, limit) if len(text) + width * text.count("\n") > limit else "\n".join(unfolded)
