"""JSON printed with indentation."""

from __future__ import annotations

import json
import re

_INDENT = re.compile(r"[\[{]\n( +)\S")
USUAL_INDENT = 2
MAX_TEXT = 1 << 20
"""Characters beyond which it is not worth the time."""


class PrettyJson:
    """Indented JSON becomes compact JSON, if indenting that again gives the same text."""

    letter = "j"

    def fold(self, text: str) -> tuple[str, str] | None:
        found = _INDENT.match(text)
        if found is None or len(text) > MAX_TEXT:
            return None
        try:
            compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            return None
        return compact, "" if len(found[1]) == USUAL_INDENT else str(len(found[1]))

    def unfold(self, text: str, digits: str, limit: int) -> str:
        value = json.loads(text)
        indented = json.JSONEncoder(indent=int(digits or USUAL_INDENT), separators=(",", ": "), ensure_ascii=False)
        pieces: list[str] = []
        for piece in indented.iterencode(value):  # every line is indented by its depth: few characters may become many
            limit -= len(piece)
            if limit < 0:
                raise ValueError("too large")
            pieces.append(piece)
        return "".join(pieces)
