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

from ..model import ToolCall
from ..tool_arguments import FREE_TEXT, MAIN_KEYS, decode_arguments
from ..tool_arguments.file_access import file_accesses
from .file_views import VisibleFiles, is_same_file, named_files, parse_text_edits
from .outcomes import Sample

SAYS = "says"
"""Class of a response without a call."""
CALL_SEPARATOR = " + "
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


def short_digest(*texts: str) -> str:
    """Return a short digest that identifies these texts."""
    whole = "\0".join(texts).encode("utf-8", "surrogatepass")
    return sha256(whole).hexdigest()[:DIGEST_DIGITS]


def classify_action(calls: Iterable[ToolCall]) -> str:
    """Return the class of a response: its calls as a sorted set, in one line."""
    return CALL_SEPARATOR.join(sorted({_classify_call(call) for call in calls})) or SAYS


def _classify_call(call: ToolCall) -> str:
    tool = _UNSAFE.sub("_", call.name)[:MAX_TOOL_NAME] or "?"
    main = main_argument(call)
    return f"{tool}({short_digest(main)})" if main else tool


def main_argument(call: ToolCall) -> str:
    """Return the argument that identifies a call: a file, a pattern, or a command's program and first path."""
    if files := named_files(call):
        return " ".join(sorted(files))
    values = decode_arguments(call)
    if not isinstance(values, dict):
        values = {FREE_TEXT: values}
    for key in SHELL_KEYS:
        if values.get(key):
            return classify_command(values[key])
    main = next((values[key] for key in (*MAIN_KEYS, FREE_TEXT) if values.get(key)), None)
    if main is None:
        main = next((value for value in values.values() if isinstance(value, str) and value), "")
    return main if isinstance(main, str) else str(main)


def classify_command(command: Any) -> str:
    """Return the program of a shell command and the first path in its arguments."""
    words = [str(word) for word in command] if isinstance(command, list) else _split_command(str(command))
    if len(words) > 2 and PurePosixPath(words[0]).name in INNER_SHELLS and words[1] in ("-c", "-lc"):
        words = _split_command(words[2])
    words = _drop_preamble(words)
    if not words:
        return ""
    program = PurePosixPath(words[0]).name
    path = next((word for word in words[1:] if _PATH.fullmatch(word)), "")
    return f"{program} {path}".strip()


def _split_command(command: str) -> list[str]:
    """Split the first line of a command that is not empty or a comment. With invalid quoting, split at blanks."""
    line = next((line for line in command[:MAX_COMMAND].split("\n") if line.strip() and line.strip()[0] != "#"), "")
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _drop_preamble(words: list[str]) -> list[str]:
    """Return a command without a leading `cd FOLDER &&`, variable assignments, `sudo`, `time` and `env`."""
    while words:
        if words[0] == "cd" and "&&" in words:
            words = words[words.index("&&") + 1 :]
        elif _VARIABLE.fullmatch(words[0]) or words[0] in ("sudo", "time", "env"):
            words = words[1:]
        else:
            break
    return words


def is_reread(calls: Iterable[ToolCall], visible_files: VisibleFiles) -> bool:
    """Return whether a call reads lines of an unchanged file that are visible in the history."""
    return any(visible_files.is_read_visible(touch) for call in calls for touch in file_accesses(call))


def has_broken_edit(calls: Iterable[ToolCall], visible_files: VisibleFiles) -> bool | None:
    """Return whether a call replaces a text that the history does not show, or None if no call replaces text."""
    edits = [edit for call in calls for edit in parse_text_edits(call) if edit.old]
    return any(not visible_files.is_edit_visible(edit) for edit in edits) if edits else None


class RecordedAction(NamedTuple):
    """Files and edited text of the agent's recorded action, for comparison with samples."""

    files: tuple[str, ...] = ()
    edited_words: tuple[str, ...] = ()
    """Words of the new text of its edits."""

    @classmethod
    def from_calls(cls, calls: Sequence[ToolCall]) -> RecordedAction:
        """Return the recorded action with these calls."""
        return cls(tuple({path: None for call in calls for path in named_files(call)}), _edited_words(calls))

    def has_same_file(self, calls: Iterable[ToolCall]) -> bool | None:
        """Return whether a call uses a file of the recorded action, or None if that has no file."""
        if not self.files:
            return None
        return any(
            is_same_file(path, recorded_path)
            for call in calls
            for path in named_files(call)
            for recorded_path in self.files
        )

    def edit_similarity(self, calls: Sequence[ToolCall]) -> float | None:
        """Return the similarity of the edited text to the recorded one, from 0 to 1, or None without a recorded one."""
        if not self.edited_words:
            return None
        return round(SequenceMatcher(None, self.edited_words, _edited_words(calls), autojunk=False).ratio(), 3)


def _edited_words(calls: Iterable[ToolCall]) -> tuple[str, ...]:
    lines = (line for call in calls for edit in parse_text_edits(call) for line in edit.new)
    return tuple(islice((word for line in lines for word in _WORD.findall(line)), MAX_WORDS))


NOTHING_RECORDED = RecordedAction()


def make_sample(
    calls: Sequence[ToolCall],
    visible_files: VisibleFiles,
    output_tokens: int,
    recorded_action: RecordedAction = NOTHING_RECORDED,
) -> Sample:
    """Classify one response. Both variants are compared with the original history."""
    return Sample(
        classify_action(calls),
        is_reread(calls, visible_files),
        has_broken_edit(calls, visible_files),
        output_tokens,
        recorded_action.has_same_file(calls),
        recorded_action.edit_similarity(calls),
    )
