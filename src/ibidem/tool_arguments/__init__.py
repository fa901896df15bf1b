"""Arguments of tool calls: by name, the file among them, and a label of the call for a reader.

Arguments are sent as an object or as the JSON text of one, and agents use different names for the same argument. Both
are handled here, so that an edit, a marker and a report mean the same file by the same call.

- `file_access`: the file and the lines that a call reads or writes.

Tests: tests/calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ..model import ToolCall

FILE_KEYS = ("file_path", "path", "notebook_path", "filename", "file", "filePath", "target_file", "absolute_path")
"""Arguments that name a file, the most likely first."""

MAIN_KEYS = (*FILE_KEYS, "pattern", "command", "cmd", "query", "url")
"""Arguments that show the purpose of a call. Labels are in markers that were sent, so a new key here would change the
markers of old requests."""

MAX_LABEL = 32
"""Maximum characters of a tool's name, and of its argument, in a label."""
LONG_COMMAND = 256
"""Characters of a long argument that are checked first."""

FREE_TEXT = "input"
"""Name for the arguments of a call if they are not JSON."""
MAX_FREE_TEXT = 1024
"""Characters of such a text that are checked."""

SCRIPT_TOOL = "exec"
"""Codex's tool that runs JavaScript, which calls other tools: `await tools.exec_command({cmd: "ls"})`."""
UNNAMED_TOOLS = frozenset({"exec_command", "apply_patch"})
"""Tools that a script calls and a label does not name. The command or the file is more useful."""
MAX_SCRIPT, MAX_TOKENS = 2048, 256
"""Characters and tokens of a script that are checked."""

_PATCH = "*** Begin Patch"
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)", re.MULTILINE)
_STRING = r"""(?:String\.raw)?(?:"(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|`(?:[^`\\]|\\.)*+`?)"""
SCRIPT_TOKENS = re.compile(
    rf"""(?=[/{{"'`\w])(?:
    //[^\n]*+ | /\*(?:[^*]|\*(?!/))*+
    | \btools\.(?P<tool>\w{{1,64}}+)
    | (?P<quote>["']?)\b(?:cmd|command)(?P=quote)\s{{0,8}}+:\s{{0,8}}+
      (?:(?P<command>{_STRING})|(?P<variable>\w{{1,64}}+))
    | {{\s{{0,8}}+(?P<shorthand>cmd|command)\s{{0,8}}+[,}}]
    | \b(?P<name>\w{{1,64}}+)\s{{0,8}}+=\s{{0,8}}+(?P<value>{_STRING})
    | (?P<text>{_STRING}))""",
    re.VERBOSE | re.DOTALL,
)
"""Tokens of a script. Quantifiers are possessive and a string may lack its end, so that a scan takes linear time."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_UNSAFE = re.compile(r"[\[\]\s\x00-\x1f\x7f]+")


def decode_arguments(call: ToolCall) -> Any:
    """Return the arguments as a value: the parsed JSON, or the text itself if it is not JSON."""
    if isinstance(call.input, str):
        try:
            return json.loads(call.input)
        except (ValueError, RecursionError):
            pass
    return call.input


def arguments_by_name(call: ToolCall) -> Mapping[Any, Any] | None:
    """Return the arguments by name; None if they are not an object."""
    decoded_arguments = decode_arguments(call)
    return decoded_arguments if isinstance(decoded_arguments, dict) else None


def file_argument(call: ToolCall) -> str:
    """Return the file that a call names; empty without one."""
    by_name = arguments_by_name(call) or {}
    return next((value for key in FILE_KEYS if isinstance(value := by_name.get(key), str) and value), "")


def named_arguments(call: ToolCall) -> Any:
    """Return the arguments as `call_label` takes them. Text that is not JSON becomes the only argument."""
    value = decode_arguments(call)
    return {FREE_TEXT: value} if isinstance(value, str) and value is call.input else value


def call_label(tool: str, arguments_value: Any) -> str:
    """Return `Read(src/app.py)`: the tool and its main argument, short, on one line, without brackets."""
    by_name = arguments_value if isinstance(arguments_value, dict) else {}
    free = by_name.get(FREE_TEXT)
    main = (
        _first_value(by_name, MAIN_KEYS)
        or (tool == SCRIPT_TOOL and _describe_script(free))
        or _describe_free_text(free)
    )
    if isinstance(main, list):
        main = " ".join(map(str, main))
    name = (tool if tool.isidentifier() else _UNSAFE.sub(" ", tool).strip())[:MAX_LABEL]
    text = _shorten(str(main))
    label = f"{name}({text.strip()})" if text else name
    return label.removesuffix(":")  # a colon at the end of a marker's label announces lines that differ


def _first_value(by_name: Mapping[Any, Any], keys: Iterable[str]) -> Any:
    for key in keys:
        if value := by_name.get(key):
            return value
    return ""


def _describe_free_text(text: Any) -> str:
    """Return the first file of a patch, or the first line of another text."""
    if not isinstance(text, str):
        return ""
    start = text[:MAX_FREE_TEXT].strip()
    file_line = _PATCHED.search(start)
    return file_line[1] if file_line else start.partition("\n")[0]


def _describe_script(text: Any) -> str:
    """Return the commands that a script runs, files that it patches and other tools that it calls."""
    words, strings, replaces = list[str](), dict[str, str](), False
    tokens = SCRIPT_TOKENS.finditer(text[:MAX_SCRIPT]) if isinstance(text, str) else ()
    for token in islice(tokens, MAX_TOKENS):
        if tool := token["tool"]:
            words.append("" if tool in UNNAMED_TOOLS else tool)
            replaces = True
        elif word := _token_text(token, strings):
            words[len(words) - replaces :] = [word]
            replaces = False
            if sum(map(len, words)) > MAX_LABEL:
                break
    return "; ".join(filter(None, words))


def _token_text(token: re.Match[str], strings: dict[str, str]) -> str:
    """Return the command or the patched file in a token. A string with a name is added to `strings`."""
    _, _, command, variable, shorthand, name, value, text = token.groups()
    if command or variable or shorthand:
        return _unquote(command or strings.get(variable or shorthand, ""))
    literal = value or text or ""
    if name:
        strings[name] = literal
    file_line = _PATCHED.search(_unquote(literal)) if _PATCH in literal else None
    return file_line[1] if file_line else ""


def _unquote(literal: str) -> str:
    """Return the text of a JavaScript string."""
    raw = literal.removeprefix("String.raw")
    text = raw[1:].removesuffix(raw[:1])
    return text if raw is not literal else _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def _shorten(main: str) -> str:
    """Shorten an argument. The end of a path is most useful, and the start of a command."""
    for size in (2 * MAX_LABEL, LONG_COMMAND, len(main)):
        text = _UNSAFE.sub(" ", main[:size]).strip()
        if size >= len(main) or (len(text) > MAX_LABEL and " " in text):
            break
    if len(text) <= MAX_LABEL:
        return text
    if "/" not in text or " " in text:
        return text[:MAX_LABEL]
    end = text[-MAX_LABEL:]
    return end.partition("/")[2] or end
