"""The headers that Codex writes before the output of a command.

Codex 0.120 to at least 0.142 writes `Chunk ID`; 0.118 put the `Command` above it. `Exit code` is before the output of
`shell_command` and `apply_patch`, in 0.140 to at least 0.142.
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
"""First characters of all headers."""
_COMMAND, _PROMPT = "Command: ", "$ "
_CHUNK_SAVES = 19
"""Tokens that the one-line form of a `Chunk ID` header saves. Fields are between blanks and line breaks in both."""
_OUTPUT = "\nOutput:\n"
_APART = re.compile(r"(?!/)[ \t]*\S|\Z")
"""Text that never forms one token with the line break before it. Some tokens join a line break with another, or with
slashes after it."""
MAX_COMMAND_LINES, MAX_COMMAND = 99, 8000
"""Maximum lines of a command, so that a marker can count them, and maximum characters of it."""


class CodexHeaderCodec:
    """Joins the header lines into one with all fields. A command follows it; the marker has its number of lines."""

    letter = "c"

    def encode_text(self, text: str) -> tuple[str, str] | None:
        if text[:1] not in _STARTS:
            return None
        start = text.find("\nChunk ID: ", 0, MAX_COMMAND) + 1 if text.startswith(_COMMAND) else 0
        if match := _CHUNK.match(text, start):
            header = f"{_ENDS[match['end']]} {match['code']} {match['chunk']} {match['time']} {match['count']}\n"
        elif match := _EXIT.match(text, start):
            header = f"exit {match['code']} {match['time']}\n"
        else:
            return None
        lines = text.count("\n", 0, start)
        if lines > MAX_COMMAND_LINES:
            return None
        command = _PROMPT + text[len(_COMMAND) : start] if start else ""
        return header + command + text[match.end() :], str(lines or "")

    def saved_tokens(self, text: str) -> int:
        """Return a lower bound of the tokens that encoding a text saves."""
        if not text.startswith("Chunk ID: "):
            return 0
        return _CHUNK_SAVES if _APART.match(text, text.index(_OUTPUT) + len(_OUTPUT)) else 0

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        if match := _SHORT_CHUNK.match(text):
            header = (
                f"Chunk ID: {match['chunk']}\nWall time: {match['time']} seconds\n"
                f"Process {_LONG_ENDS[match['end']]} {match['code']}\n"
                f"Original token count: {match['count']}\nOutput:\n"
            )
        elif match := _SHORT_EXIT.match(text):
            header = f"Exit code: {match['code']}\nWall time: {match['time']} seconds\nOutput:\n"
        else:
            return text
        rest = text[match.end() :]
        if not digits:
            return header + rest
        *command, rest = rest.split("\n", int(digits))
        return _COMMAND + "\n".join(command)[len(_PROMPT) :] + "\n" + header + rest
