"""Loose recognition of the files that a call is about, used only to protect text.

A name is the last component of a path: from path arguments, patch headers, and shell commands that print or write
files. A wrong name only protects a text for longer, so a guess is enough. Code that evicts uses `calls.file_access`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from ...model import ToolCall
from ...tool_arguments import FILE_KEYS, decode_arguments
from ...tool_arguments.file_access import FileAccess

_SHELL_KEYS = ("command", "cmd", "input", "script")
_PART = re.compile(r"[^|;&\n(`]+")
"""One plain command of a command line."""
_PRINTS_OR_WRITES = re.compile(
    r"[\s{]*(?:[\"']?(?:cmd|command)[\"']?\s*:\s*[\"'])?(?:cat|tac|sed|head|tail|nl|less|more|bat|awk|tee|cp|mv|patch|Get-Content)(?![\w.-])"
)
"""Commands, also in a script, that print or write the files they name. Searches, tests and `git` are left out: models
seldom copy from the files that these name. With them, Codex sessions save one percentage point less, and the need is
the same."""
_TARGET = re.compile(r"(?<![0-9&<=-])>>?\s*([^\s>&|;]+)")
"""Matches the file to which a command's output is redirected."""
_WORD = re.compile(r"[\w@+./\\-]+")
_PATCH_HEADER = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
MAX_EXTENSION = 8
MAX_COMMAND = 1 << 16
"""Maximum characters of a command that are searched for names."""
MAX_NAMES = 32
"""Maximum names of one call. Without a limit, each write after a patch of a thousand files would check them all."""


def loose_names(call: ToolCall, accesses: tuple[FileAccess, ...]) -> frozenset[str]:
    """Return the names of the files that a call may show or change. `accesses` are the certain ones."""
    names = chain((last_component(touch.path) for touch in accesses), _guess_names(decode_arguments(call)))
    return frozenset(islice(dict.fromkeys(names), MAX_NAMES))


def last_component(path: str) -> str:
    """Return the name of a file without its folders."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _guess_names(call_arguments: Any) -> Iterator[str]:
    values_by_name = call_arguments if isinstance(call_arguments, dict) else {"input": call_arguments}
    for key, value in values_by_name.items():
        if key in FILE_KEYS and isinstance(value, str):
            yield from _names_with_extension([value])
        elif key in _SHELL_KEYS:
            yield from _names_in_command(_command_line(value)[:MAX_COMMAND])


def _command_line(command: Any) -> str:
    """Return the command line of an argument, which is a string or a list of words."""
    if isinstance(command, list):
        words = list(map(str, command))
        return words[-1] if words[1:2] in (["-c"], ["-lc"]) else " ".join(words)
    return command if isinstance(command, str) else ""


def _names_in_command(command: str) -> Iterator[str]:
    yield from map(last_component, _PATCH_HEADER.findall(command))
    for part in _PART.findall(command):
        if _PRINTS_OR_WRITES.match(part):
            yield from _names_with_extension(_WORD.findall(part))
    yield from _names_with_extension(_TARGET.findall(command))


def _names_with_extension(paths: Iterable[str]) -> Iterator[str]:
    """Yield the names with an extension. Folders, options and numbers have none."""
    for path in paths:
        name = last_component(path)
        stem, _, extension = name.rpartition(".")
        if stem and extension[:1].isalpha() and len(extension) <= MAX_EXTENSION:
            yield name
