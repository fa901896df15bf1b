"""The header that Codex puts before the output of a command."""

from __future__ import annotations

import re

_LONG = re.compile(
    r"Chunk ID: (?P<chunk>[0-9a-f]+)\nWall time: (?P<time>[0-9.]+) seconds\n"
    r"Process (?P<end>exited with code|running with session ID) (?P<code>-?[0-9]+)\n"
    r"Original token count: (?P<count>[0-9]+)\nOutput:\n"
)
_SHORT = re.compile(
    r"(?P<end>exit|session) (?P<code>-?[0-9]+) (?P<chunk>[0-9a-f]+) (?P<time>[0-9.]+) (?P<count>[0-9]+)\n"
)
_ENDS = {"exited with code": "exit", "running with session ID": "session"}
_LONG_ENDS = {short: long for long, short in _ENDS.items()}


class CodexHeader:
    """Five lines become one; every field is kept."""

    letter = "c"

    def fold(self, text: str) -> tuple[str, str] | None:
        found = _LONG.match(text)
        if found is None:
            return None
        end = _ENDS[found["end"]]
        header = f"{end} {found['code']} {found['chunk']} {found['time']} {found['count']}\n"
        return header + text[found.end() :], ""

    def unfold(self, text: str, digits: str, limit: int) -> str:
        found = _SHORT.match(text)
        if found is None:
            return text
        header = (
            f"Chunk ID: {found['chunk']}\nWall time: {found['time']} seconds\n"
            f"Process {_LONG_ENDS[found['end']]} {found['code']}\n"
            f"Original token count: {found['count']}\nOutput:\n"
        )
        return header + text[found.end() :]
