"""Classify the model's next action, and detect re-reads and edits of text that the request does not show.

The class of an action is its tool and main argument. Two actions are equal or not, so no judge is needed. Only a
digest of the argument is stored, so a file of classes contains no text of the user.
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
"""Class of a response without a call."""
JOINED = " + "
"""Separator between the calls of one response."""
SHELL_KEYS = ("command", "cmd")
INNER_SHELLS = frozenset(("bash", "sh", "zsh"))
MAX_TOOL_NAME = 48
DIGEST_DIGITS = 10
MAX_COMMAND = 4096
"""Maximum number of characters of a command that are parsed."""
MAX_WORDS = 2000
"""Maximum number of words of an edit that are compared. The time is quadratic in it."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.:/-]+")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=\S*")
_WORD = re.compile(r"\w+|[^\w\s]")
_PATH = re.compile(r"[^\s-]\S*(?:/\S*|\.\w{1,8})")


def digest(*texts: str) -> str:
    """Return a short digest that identifies these texts."""
    whole = "\0".join(texts).encode("utf-8", "surrogatepass")
    return sha256(whole).hexdigest()[:DIGEST_DIGITS]


def action_of(calls: Iterable[ToolCall]) -> str:
    """Return the class of a response: its calls as a sorted set, in one line."""
    return JOINED.join(sorted({_class(call) for call in calls})) or SAYS


def _class(call: ToolCall) -> str:
    tool = _UNSAFE.sub("_", call.name)[:MAX_TOOL_NAME] or "?"
    main = main_argument(call)
    return f"{tool}({digest(main)})" if main else tool


def main_argument(call: ToolCall) -> str:
    """Return the argument that identifies a call: a file, a pattern, or a command's program and first path."""
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
    """Return the program of a shell command and the first path in its arguments."""
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
    """Split the first line of a command that is not empty or a comment. With invalid quoting, split at blanks."""
    line = next((line for line in command[:MAX_COMMAND].split("\n") if line.strip() and line.strip()[0] != "#"), "")
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _without_preamble(words: list[str]) -> list[str]:
    """Return a command without a leading `cd FOLDER &&`, variable assignments, `sudo`, `time` and `env`."""
    while words:
        if words[0] == "cd" and "&&" in words:
            words = words[words.index("&&") + 1 :]
        elif _VARIABLE.fullmatch(words[0]) or words[0] in ("sudo", "time", "env"):
            words = words[1:]
        else:
            break
    return words


def looks_again(calls: Iterable[ToolCall], shown: ShownFiles) -> bool:
    """Return whether a call reads lines of an unchanged file that are visible in the history."""
    return any(shown.stands(touch) for call in calls for touch in touches(call))


def broken_edit(calls: Iterable[ToolCall], shown: ShownFiles) -> bool | None:
    """Return whether a call replaces a text that the history does not show, or None if no call replaces text."""
    edits = [edit for call in calls for edit in text_edits(call) if edit.old]
    return any(not shown.shows(edit) for edit in edits) if edits else None


class RecordedAction(NamedTuple):
    """Files and edited text of the agent's recorded action, for comparison with samples."""

    files: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    """Words of the new text of its edits."""

    @classmethod
    def of(cls, calls: Sequence[ToolCall]) -> RecordedAction:
        """Return the recorded action with these calls."""
        return cls(tuple({path: None for call in calls for path in named_files(call)}), _written(calls))

    def same_file(self, calls: Iterable[ToolCall]) -> bool | None:
        """Return whether a call uses a file of the recorded action, or None if that has no file."""
        if not self.files:
            return None
        return any(same_file(path, known) for call in calls for path in named_files(call) for known in self.files)

    def likeness(self, calls: Sequence[ToolCall]) -> float | None:
        """Return the similarity of the edited text to the recorded one, from 0 to 1, or None without a recorded one."""
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
    """Classify one response. Both variants are compared with the original history."""
    return Sample(
        action_of(calls),
        looks_again(calls, shown),
        broken_edit(calls, shown),
        output_tokens,
        recorded.same_file(calls),
        recorded.likeness(calls),
    )
