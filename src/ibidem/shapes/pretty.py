"""JSON printed with indentation."""

from __future__ import annotations

import json
import re
from typing import Any

_INDENT = re.compile(r"[\[{]\n( +)\S")
USUAL = 2
LARGEST = 1 << 20
"""Characters beyond which it is not worth the time."""


class PrettyJson:
    """Indented JSON becomes compact JSON, if indenting that again gives the same text."""

    letter = "j"

    def fold(self, text: str) -> tuple[str, str] | None:
        found = _INDENT.match(text)
        if found is None or len(text) > LARGEST:
            return None
        try:
            compact = _dump(json.loads(text))
        except (ValueError, RecursionError):
            return None
        return compact, "" if len(found[1]) == USUAL else str(len(found[1]))

    def unfold(self, text: str, digits: str) -> str:
        return _dump(json.loads(text), int(digits or USUAL))


def _dump(value: Any, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
