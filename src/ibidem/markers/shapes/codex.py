"""The headers that Codex puts before the output of a command.

`Chunk ID` is written by Codex from 0.120 on, up to 0.142 at least; 0.118 put the `Command` above it. `Exit code` stands
before the output of `shell_command` and `apply_patch`, in 0.140 to 0.142 at least.
"""

from __future__ import annotations

import re

_CHUNK = re.compile(
    r"Chunk ID: (?P<chunk>[0-9a-f]+)\nWall time: (?P<time>[0-9.]+) seconds\n"
    r"Process (?P<end>exited with code|running with session ID) (?P<code>-?[0-9]+)\n"
    r"Original token count: (?P<count>[0-9]+)\nOutput:\n"
)
_SHORT_CHUNK = re.compile(
    r"(?P<end>exit|session) (?P<code>-?[0-9]+) (?P<chunk>[0-9a-f]+) (?P<time>[0-9.]+) (?P<count>[0-9]+)\n"
)
_EXIT = re.compile(r"Exit code: (?P<code>-?[0-9]+)\nWall time: (?P<time>[0-9.]+) seconds\nOutput:\n")
_SHORT_EXIT = re.compile(r"exit (?P<code>-?[0-9]+) (?P<time>[0-9.]+)\n")
_ENDS = {"exited with code": "exit", "running with session ID": "session"}
_LONG_ENDS = {short: long for long, short in _ENDS.items()}
_STARTS = ("C", "E")
"""Of all that it may begin with."""
_COMMAND, _PROMPT = "Command: ", "$ "
_CHUNK_SPARES = 19
"""Tokens of a `Chunk ID` header that its one line does not have: the fields stand between blanks and breaks in both."""
_OUTPUT = "\nOutput:\n"
_APART = re.compile(r"(?!/)[ \t]*\S|\Z")
"""What no token joins with the line break before it: of a break, and of slashes right behind it, one may."""
MAX_COMMAND_LINES, MAX_COMMAND = 99, 8000
"""Lines of a command that a marker can count, and characters in which it must end."""


class CodexHeader:
    """Its lines become one; every field is kept. A command follows behind it, and the marker counts its lines."""

    letter = "c"

    def fold(self, text: str) -> tuple[str, str] | None:
        if text[:1] not in _STARTS:
            return None
        start = text.find("\nChunk ID: ", 0, MAX_COMMAND) + 1 if text.startswith(_COMMAND) else 0
        if found := _CHUNK.match(text, start):
            header = f"{_ENDS[found['end']]} {found['code']} {found['chunk']} {found['time']} {found['count']}\n"
        elif found := _EXIT.match(text, start):
            header = f"exit {found['code']} {found['time']}\n"
        else:
            return None
        lines = text.count("\n", 0, start)
        if lines > MAX_COMMAND_LINES:
            return None
        command = _PROMPT + text[len(_COMMAND) : start] if start else ""
        return header + command + text[found.end() :], str(lines or "")

    def spares(self, text: str) -> int:
        """Tokens that a text which was folded has fewer, at the least, as far as that is known."""
        if not text.startswith("Chunk ID: "):
            return 0
        return _CHUNK_SPARES if _APART.match(text, text.index(_OUTPUT) + len(_OUTPUT)) else 0

    def unfold(self, text: str, digits: str, limit: int) -> str:
        if found := _SHORT_CHUNK.match(text):
            header = (
                f"Chunk ID: {found['chunk']}\nWall time: {found['time']} seconds\n"
                f"Process {_LONG_ENDS[found['end']]} {found['code']}\n"
                f"Original token count: {found['count']}\nOutput:\n"
            )
        elif found := _SHORT_EXIT.match(text):
            header = f"Exit code: {found['code']}\nWall time: {found['time']} seconds\nOutput:\n"
        else:
            return text
        rest = text[found.end() :]
        if not digits:
            return header + rest
        *command, rest = rest.split("\n", int(digits))
        return _COMMAND + "\n".join(command)[len(_PROMPT) :] + "\n" + header + rest
