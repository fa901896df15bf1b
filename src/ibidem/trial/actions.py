"""What an answer does, as a class that can be compared; and whether it reads again, or edits what it was not shown.

A class is a tool and its main argument. Nobody judges: two answers are of one class or they are not. Of the argument
only a digest is kept, so that a file of classes holds no text of anybody's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ..calls import FREE_TEXT, MAIN_KEYS, decoded
from ..calls.file_access import touches
from ..model import ToolCall
from .files import ShownFiles, named_files, same_file, text_edits
from .outcomes import Sample

SAYS = "says"
"""The class of an answer without a call."""
JOINED = " + "
"""Between the calls of one answer."""
SHELL_KEYS = ("command", "cmd")
INNER_SHELLS = frozenset(("bash", "sh", "zsh"))
MAX_TOOL_NAME = 48
DIGEST_DIGITS = 10
MAX_COMMAND = 4096
"""Characters of a command that are looked at."""
MAX_WORDS = 2000
"""Words of an edit that are compared: how long that takes grows with their square."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.:/-]+")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=\S*")
_WORD = re.compile(r"\w+|[^\w\s]")
_PATH = re.compile(r"[^\s-]\S*(?:/\S*|\.\w{1,8})")


def digest(*texts: str) -> str:
    whole = "\0".join(texts).encode("utf-8", "surrogatepass")
    return sha256(whole).hexdigest()[:DIGEST_DIGITS]


def action_of(calls: Iterable[ToolCall]) -> str:
    """The class of an answer: its calls as a set, in one line."""
    return JOINED.join(sorted({_class(call) for call in calls})) or SAYS


def _class(call: ToolCall) -> str:
    tool = _UNSAFE.sub("_", call.name)[:MAX_TOOL_NAME] or "?"
    main = main_argument(call)
    return f"{tool}({digest(main)})" if main else tool


def main_argument(call: ToolCall) -> str:
    """What tells two calls of a tool apart: a file, a pattern; of a command its program and first path."""
    if files := named_files(call):
        return " ".join(sorted(files))
    given = decoded(call)
    if not isinstance(given, dict):
        given = {FREE_TEXT: given}
    for key in SHELL_KEYS:
        if given.get(key):
            return command_class(given[key])
    found = next((given[key] for key in (*MAIN_KEYS, FREE_TEXT) if given.get(key)), None)
    if found is None:
        found = next((value for value in given.values() if isinstance(value, str) and value), "")
    return found if isinstance(found, str) else str(found)


def command_class(command: Any) -> str:
    """A shell command by its program and the first path that it names."""
    words = [str(word) for word in command] if isinstance(command, list) else _words(str(command))
    if len(words) > 2 and PurePosixPath(words[0]).name in INNER_SHELLS and words[1] in ("-c", "-lc"):
        words = _words(words[2])
    words = _without_preamble(words)
    if not words:
        return ""
    program = PurePosixPath(words[0]).name
    path = next((word for word in words[1:] if _PATH.fullmatch(word)), "")
    return f"{program} {path}".strip()


def _words(command: str) -> list[str]:
    """Of the first line that says something; what is quoted wrongly is split at blanks."""
    line = next((line for line in command[:MAX_COMMAND].split("\n") if line.strip() and line.strip()[0] != "#"), "")
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _without_preamble(words: list[str]) -> list[str]:
    """What follows `cd FOLDER &&` and variables that are set for a command."""
    while words:
        if words[0] == "cd" and "&&" in words:
            words = words[words.index("&&") + 1 :]
        elif _VARIABLE.fullmatch(words[0]) or words[0] in ("sudo", "time", "env"):
            words = words[1:]
        else:
            break
    return words


def looks_again(calls: Iterable[ToolCall], shown: ShownFiles) -> bool:
    """Whether one of these reads lines that stand in the history, of a file that was not changed since."""
    return any(shown.stands(touch) for call in calls for touch in touches(call))


def broken_edit(calls: Iterable[ToolCall], shown: ShownFiles) -> bool | None:
    """Whether one of these replaces a text that the history does not show of its file; None if none replaces any."""
    edits = [edit for call in calls for edit in text_edits(call) if edit.old]
    return any(not shown.shows(edit) for edit in edits) if edits else None


class RecordedAction(NamedTuple):
    """What the agent did when it was recorded, as far as an answer is held against it beside its class."""

    files: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    """Words of what its edits put in."""

    @classmethod
    def of(cls, calls: Sequence[ToolCall]) -> RecordedAction:
        return cls(tuple({path: None for call in calls for path in named_files(call)}), _written(calls))

    def same_file(self, calls: Iterable[ToolCall]) -> bool | None:
        if not self.files:
            return None
        return any(same_file(path, known) for call in calls for path in named_files(call) for known in self.files)

    def likeness(self, calls: Sequence[ToolCall]) -> float | None:
        if not self.written:
            return None
        return round(SequenceMatcher(None, self.written, _written(calls), autojunk=False).ratio(), 3)


def _written(calls: Iterable[ToolCall]) -> tuple[str, ...]:
    lines = (line for call in calls for edit in text_edits(call) for line in edit.new)
    return tuple(islice((word for line in lines for word in _WORD.findall(line)), MAX_WORDS))


NOTHING_RECORDED = RecordedAction()


def sample_of(
    calls: Sequence[ToolCall], shown: ShownFiles, output_tokens: int, recorded: RecordedAction = NOTHING_RECORDED
) -> Sample:
    """One answer. Both arms are held against the history as it was before anything was left out of it."""
    return Sample(
        action_of(calls),
        looks_again(calls, shown),
        broken_edit(calls, shown),
        output_tokens,
        recorded.same_file(calls),
        recorded.likeness(calls),
    )
