"""Files and lines that a tool call reads or writes.

Only certain accesses count. If a read is missed, a text stays that could be evicted. If a read is wrong, a text is
evicted that the model still needs. So a tool is recognized by its name *and* its documented arguments, and a shell
command must be one plain command.

A `FileAccess` is the access that the call *requests*. The result is not read here: a call can fail, its output can be
truncated, or the result can be "unchanged since last read".

A relative path stays relative unless the call itself names its working directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from ..model import ToolCall
from . import FILE_KEYS, arguments_by_name

Kind: TypeAlias = Literal["read", "write"]
Arguments: TypeAlias = Mapping[str, Any]
Span: TypeAlias = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class FileAccess:
    """A file and its lines that a call reads or writes."""

    kind: Kind
    path: str
    """With single slashes and no `./`; `~` and `..` are not resolved."""
    first: int = 1
    """Lines are counted from 1. A write counts for the whole file."""
    last: int | None = None
    """Inclusive; None: to the end of the file."""

    def covers(self, other: FileAccess) -> bool:
        """Return True if this access includes every line of the other."""
        if self.path != other.path or self.first > other.first:
            return False
        return self.last is None or (other.last is not None and other.last <= self.last)


def file_accesses(call: ToolCall) -> tuple[FileAccess, ...]:
    """Return one read, or any number of writes, or an empty tuple."""
    call_arguments = _filled_arguments(call)
    if call.name in _PATCHERS:
        return _patched_files(call.input if call_arguments is None else _only_string(call_arguments, _PATCH_KEYS), "")
    if call_arguments is None:
        return ()
    if call.name in _SHELLS:
        return _shell_call(call_arguments)
    if call.name in _MOVERS:
        return _move_accesses(call_arguments)
    kind = _access_kind(call.name, call_arguments)
    if kind == "write":
        return (
            () if call_arguments.keys() & _NOT_HERE else _write_accesses([_only_string(call_arguments, FILE_KEYS)], "")
        )
    return _tool_read(call.name, call_arguments) if kind == "read" else ()


def _filled_arguments(call: ToolCall) -> Arguments | None:
    """Return the arguments that have a value, by name. Some clients send null or "" for the others."""
    by_name = arguments_by_name(call)
    return None if by_name is None else {key: value for key, value in by_name.items() if value not in (None, "")}


def _only_string(values_by_name: Arguments, keys: Iterable[str]) -> str | None:
    """Return the value if exactly one of these keys is present and its value is a string."""
    values = [values_by_name[key] for key in keys if key in values_by_name]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_NO_FILES = ("/dev/", "/proc/", "/sys/", "\\\\")


def _normal_path(path: Any, folder: str) -> str | None:
    """Return the file's normal path; None for an empty path, a folder, a device or a URL."""
    if not isinstance(path, str) or not path or path != path.strip() or _CONTROL.search(path + folder):
        return None
    if "://" in path or path.endswith(("/", "\\")) or path.rpartition("/")[2] in (".", "..", "~"):
        return None
    path = _join_path(folder, path)
    if _DRIVE.match(path):
        path = path[0].upper() + path[1:].replace("\\", "/")
    normal = "/" * path.startswith("/") + "/".join(part for part in path.split("/") if part not in ("", "."))
    return None if normal.startswith(_NO_FILES) else normal


def _join_path(folder: str, path: str) -> str:
    is_absolute = not folder or path.startswith(("/", "~")) or _DRIVE.match(path)
    return path if is_absolute else f"{folder}/{path}"


def _write_accesses(paths: Iterable[Any], folder: str) -> tuple[FileAccess, ...]:
    files = (_normal_path(path, folder) for path in paths)
    return tuple(FileAccess("write", path) for path in dict.fromkeys(files) if path)


_PATCHERS = ("apply_patch", "applypatch")
_PATCH_KEYS = ("input", "patch", "patchText")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


def _patched_files(patch: Any, folder: str) -> tuple[FileAccess, ...]:
    """Return the files of a patch in Codex's format, in which no line of content starts with an asterisk."""
    text = patch.strip() if isinstance(patch, str) else ""
    is_complete = text.startswith("*** Begin Patch\n") and text.endswith("\n*** End Patch")
    is_local = is_complete and "\n*** Environment ID:" not in text
    return _write_accesses(map(str.strip, _PATCHED.findall(text)), folder) if is_local else ()


# ── tools that take a path ──────────────────────────────────────────────────────────────────────────────────────────

_WRITERS = (
    *("Write", "Edit", "MultiEdit", "NotebookEdit", "Replace", "Create"),
    *("write", "edit", "create", "multiedit", "replace", "search_replace", "insert", "delete", "undo_edit"),
    *("write_file", "write_to_file", "create_file", "edit_file", "delete_file", "replace_in_file", "delete_path"),
    *("apply_diff", "insert_content", "insert_edit_into_file", "replace_string_in_file", "search_and_replace"),
)
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool", "text_editor", "file_editor", "fs_write")
_COMMANDS: dict[str, Kind] = {
    "view": "read",
    **dict.fromkeys(("create", "str_replace", "insert", "undo_edit", "write", "append", "delete"), "write"),
}
"""Commands of an editor. Some agents give it a writer's name."""
_NOT_HERE = frozenset(("owner", "repo", "branch", "ref", "host", "server", "bucket", "dry_run", "dryRun", "preview"))
"""With one of these next to a path, the file is elsewhere or is not written."""
_MOVERS = ("move_file", "rename_file", "move_path", "move", "rename")
_MOVES = (("source", "destination"), ("source_path", "destination_path"), ("old_path", "new_path"), ("src", "dst"))


class ReadRange(NamedTuple):
    """Lines that a tool shows if a call does not name the first or the last."""

    lines: int | None = None
    """Lines shown without a limit; None: all. 0: not known, so the call must name a limit."""
    base: int | None = None
    """`offset` of the first line; None: not known, so only an offset of 0 is certain."""
    counts_lines: bool = False
    """True if its documentation states that `offset` and `limit` count lines."""


_WHOLE, _UNKNOWN = ReadRange(), ReadRange(lines=0)
_SHOW_ALL = ("view", "view_file", "cat", "get_file_contents", "fs_read")
_READERS: dict[tuple[str, str], ReadRange] = {
    ("Read", "file_path"): ReadRange(2000, 1, True),  # Claude Code
    ("read", "path"): ReadRange(2000, 1, True),  # pi
    ("read", "filePath"): ReadRange(2000, None, True),  # opencode: counts from 0, newer releases from 1
    ("read_file", "absolute_path"): ReadRange(2000, 0, True),  # Gemini CLI
    ("read_file", "file_path"): ReadRange(2000, None, True),  # Gemini CLI counts from 0, Codex from 1
    ("read_file", "filePath"): ReadRange(2000, None, True),  # VS Code
    ("read_file", "path"): _WHOLE,
    ("read_text_file", "path"): _WHOLE,
    **{(name, key): _WHOLE for name in _SHOW_ALL for key in FILE_KEYS},
}
"""By tool and path argument. With another argument, and for `open`, the lines shown are not known unless the call
names them."""
_READ_NAMES = frozenset(("open", "open_file", *(name for name, _ in _READERS)))
_BESIDE = frozenset(("command", "description", "explanation", "reason", "security_risk"))
_NO_LINES = (".ipynb", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".ico", ".docx", ".xlsx", ".pptx")


def _access_kind(name: str, call_arguments: Arguments) -> Kind | None:
    command = call_arguments.get("command")
    if name in _EDITORS or (name in _WRITERS and command is not None):
        return _COMMANDS.get(command) if isinstance(command, str) else None
    if name in _WRITERS:
        return "write"
    return "read" if name in _READ_NAMES and command is None else None


def _move_accesses(call_arguments: Arguments) -> tuple[FileAccess, ...]:
    pair = next((pair for pair in _MOVES if call_arguments.keys() - _BESIDE == set(pair)), ())
    return _write_accesses((call_arguments[key] for key in pair), "")


def _tool_read(name: str, call_arguments: Arguments) -> tuple[FileAccess, ...]:
    key = next((key for key in FILE_KEYS if key in call_arguments), "")
    path = _normal_path(_only_string(call_arguments, FILE_KEYS), "")
    if path is None or path.lower().endswith(_NO_LINES):
        return ()
    paging = _READERS.get((name, key), _UNKNOWN) if name in _READ_NAMES else _WHOLE
    span = _requested_lines(
        {each: value for each, value in call_arguments.items() if each != key and each not in _BESIDE}, paging
    )
    return () if span is None else (FileAccess("read", path, *span),)


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_BOUNDS = (("start_line", "end_line"), ("line_start", "line_end"), ("startLine", "endLine"))
_CURSOR = ("start_line_one_indexed", "end_line_one_indexed_inclusive")
_CURSOR_SHOWS = range(200, 251)
"""Lines per call. For a smaller or larger range, Cursor shows other lines than requested."""
_PAIRS, _TEXTS = ("view_range", "read_range"), ("lines", "line_range")
_NUMBER = "[0-9]{1,9}"
_FROM_TO = re.compile(f"({_NUMBER})-({_NUMBER})")


def _requested_lines(requested: Arguments, paging: ReadRange) -> Span | None:
    """Return the lines that the arguments request, None if one of the arguments is not known."""
    if not requested:
        return None if paging.lines == 0 else (1, paging.lines)
    if requested.keys() <= {"offset", "limit"}:
        return _paged_range(requested, paging) if paging.counts_lines else None
    for first, last in _BOUNDS:
        if requested.keys() <= {first, last} and (last in requested or paging.lines is None):
            return _line_range(requested.get(first, 1), requested.get(last))
    if requested.keys() - {"should_read_entire_file"} == set(_CURSOR):
        first_line, last_line = (_whole_number(requested[key]) or 0 for key in _CURSOR)
        exact = last_line - first_line + 1 in _CURSOR_SHOWS and not requested.get("should_read_entire_file")
        return _line_range(first_line, last_line) if exact else None
    [(key, value), *more] = requested.items()
    if key in _TEXTS and isinstance(value, str) and not more and (match := _FROM_TO.fullmatch(value)):
        return _line_range(*match.groups())
    if key in _PAIRS and isinstance(value, list) and not more and len(value) == 2:
        return _line_range(value[0], None if value[1] == -1 else value[1])
    return None


def _line_range(first: Any, last: Any) -> Span | None:
    """Return first and last line, inclusive; to the end of the file if `last` is None."""
    start, end = _whole_number(first), _whole_number(last)
    if start is None or start < 1 or (last is not None and (end is None or end < start)):
        return None
    return start, end


def _paged_range(requested: Arguments, paging: ReadRange) -> Span | None:
    """Return the lines for an offset and a limit. None for a limit above the tool's own, which the tool may reduce."""
    max_lines = paging.lines or 0
    offset, limit = _whole_number(requested.get("offset", 0)), _whole_number(requested.get("limit", max_lines))
    if offset is None or limit is None or not 1 <= limit <= max_lines or (offset and paging.base is None):
        return None
    first = max(1, offset + 1 - (paging.base or 0))
    return first, first + limit - 1


def _whole_number(value: Any) -> int | None:
    """Return a number that is whole and not negative, or its text as a number; else None."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(_NUMBER, value) else None
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value // 1 == value
    return int(value) if whole else None


# ── shell ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_SHELLS = (
    *("Bash", "bash", "shell", "local_shell", "exec_command", "shell_command", "container.exec", "execute_bash"),
    *("run_shell_command", "run_terminal_cmd", "execute_command", "run_in_terminal", "run_command"),
)
_FOLDER_KEYS = ("workdir", "cwd", "working_directory", "directory", "dir_path")
_HARMLESS = (
    *("description", "explanation", "reason", "justification", "security_risk", "goal", "type", "login", "tty"),
    *("timeout", "timeout_ms", "yield_time_ms", "max_output_tokens", "initial_wait", "requires_approval"),
    *("sandbox_permissions", "with_escalated_permissions", "prefix_rule", "shellId", "sessionId"),
)
_BACKGROUND = ("run_in_background", "is_background", "isBackground", "background", "detach", "async", "is_input")
_HARMLESS_VALUES = {"mode": ("sync",), "env": ({},), **dict.fromkeys(_BACKGROUND, (False, "false"))}
"""Harmless with these values: a plain command that has run when its result comes."""
_INNER = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh")


class ShellPipeline(NamedTuple):
    """One pipeline, its working directory if the call names it, and the file that `>` or `>>` at its end writes."""

    folder: str
    stages: list[list[str]]
    target: str | None = None


def _shell_call(call_arguments: Arguments) -> tuple[FileAccess, ...]:
    harmless = {key for key, values in _HARMLESS_VALUES.items() if call_arguments.get(key) in values}
    commands = [call_arguments[key] for key in ("command", "cmd") if key in call_arguments]
    folder = _only_string(call_arguments, _FOLDER_KEYS) if call_arguments.keys() & set(_FOLDER_KEYS) else ""
    unknown = call_arguments.keys() - {*harmless, *_HARMLESS, *_FOLDER_KEYS, "command", "cmd", "shell"}
    if unknown or folder is None or len(commands) != 1 or call_arguments.get("shell", "bash") not in _INNER:
        return ()
    words = commands[0]
    if isinstance(words, str):
        return _command_accesses(words, folder)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        return ()
    if len(words) == 3 and words[0] in _INNER and words[1] in ("-c", "-lc"):
        return _command_accesses(words[2], folder)
    return _pipeline_accesses(ShellPipeline(folder, [words]))


_HEREDOC = re.compile(r"(.*?)<<-?[ \t]*(['\"]?)(\w+)\2(.*)")


def _command_accesses(text: str, folder: str) -> tuple[FileAccess, ...]:
    """Return the accesses of a text with one command, with or without a here-document that ends with the text."""
    opening, *lines = text.strip().split("\n")
    heredoc = _HEREDOC.fullmatch(opening) if lines else None
    if heredoc is None:
        line = _parse_pipeline(text.strip(), folder)
        return () if line is None else _pipeline_accesses(line)
    before, _, tag, after = heredoc.groups()
    line = _parse_pipeline(f"{before} {after}".strip(), folder)
    ends = [number for number, each in enumerate(lines, 1) if each.strip() == tag]
    return () if line is None or ends != [len(lines)] else _pipeline_accesses(line, "\n".join(lines[:-1]))


_WORD = r"""(?:[\w./@%+=:,~^-]|'[^']*'|"[^"$`\\!]*"|\\[^\w\s]|\\ )+"""
_TOKEN = re.compile(rf"[ \t]*(?:(?P<operator>&&|>>|[|>])|(?P<word>{_WORD}))")
_HOME = re.compile(r"~\w*(?:/|$)")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)"|\\(.)""")
_OPERATOR = "\0"


def _split_tokens(text: str) -> list[str] | None:
    """Return words without quotes and operators after a NUL; None if a shell would expand something other than `~`."""
    words, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or _OPERATOR in token[0]:
            return None
        at = token.end()
        raw = token["word"] or _OPERATOR + token["operator"]
        words.append(_QUOTED.sub(lambda quoted: quoted[quoted.lastindex or 0], raw))
        if "=~" in raw or ":~" in raw or (words[-1].startswith("~") and not _HOME.match(raw)):
            return None
    return words


def _parse_pipeline(text: str, folder: str) -> ShellPipeline | None:
    tokens = _split_tokens(text) or []
    if tokens[:1] == ["cd"] and tokens[2:3] == [f"{_OPERATOR}&&"] and not tokens[1].startswith(("-", _OPERATOR)):
        folder, tokens = _join_path(folder, tokens[1]), tokens[3:]
    target = None
    if len(tokens) > 2 and tokens[-2] in (f"{_OPERATOR}>", f"{_OPERATOR}>>"):
        target, tokens = tokens[-1], tokens[:-2]
    stages: list[list[str]] = [[]]
    for token in tokens:
        if token == f"{_OPERATOR}|":
            stages.append([])
        elif token.startswith(_OPERATOR):
            return None
        else:
            stages[-1].append(token)
    return ShellPipeline(folder, stages, target) if all(stages) else None


# Commands, a word a line.
_NAME = r"[^-\n][^\n]*"
_SPEC = r"[^-\n*?\[:\\][^\n*?\[\\]*"  # git reads more into a path than a file name
_SCRIPT = rf"(?:(?:\n-e\n[^\n]*)+|\n{_NAME})"
_CHANGES = {
    "rm": rf"rm(?:\n-[rRfv]+)*((?:\n{_NAME})+)",
    "tee": rf"tee(?:\n-a)?((?:\n{_NAME})+)",
    "mv": rf"mv(?:\n-[fv]+)*(\n{_NAME}\n{_NAME})",
    "cp": rf"cp(?:\n-[fpva]+)*\n{_NAME}(\n{_NAME})",
    "git": rf"git\n(?:checkout\n(?:{_NAME}\n)?--|restore(?:\n--)?)((?:\n{_SPEC})+)",
    "sed": rf"sed(?:\n-[nErz]+)*\n-[nErz]*i[^\n]*(?:\n-[nErz]+)*(?:\n(?=\n))?{_SCRIPT}(\n{_NAME})",
}
_ALL = {"cat": r"cat(?:\n-[nb])?", "nl": r"nl(?:\n-ba)?"}
_SOME = {
    "head": rf"head(?:\n-(?:n\n?)?(?P<last>{_NUMBER}))?",
    "tail": rf"tail\n-n\n?\+(?P<first>{_NUMBER})",
    "sed": rf"sed\n-n\n(?P<first>{_NUMBER})(?:,(?P<last>{_NUMBER}|\$))?p",
}


def _pipeline_accesses(line: ShellPipeline, body: str | None = None) -> tuple[FileAccess, ...]:
    first, last = line.stages[0], line.stages[-1]
    if line.target is not None:
        return _write_accesses([line.target], line.folder)
    if first[0] in _PATCHERS:
        patches = [*first[1:], *([] if body is None else [body])]
        return _patched_files(patches[0], line.folder) if len(patches) == len(line.stages) == 1 else ()
    if any("\n" in word for word in (*first, *last)):
        return ()
    change = re.fullmatch(_CHANGES.get(last[0], "(?!)"), "\n".join(last))
    if change and (first is last or last[0] == "tee"):
        return _write_accesses(change[1].split("\n"), line.folder)
    return () if body is not None or len(line.stages) > 2 else _shell_read(first, last, line.folder)


def _shell_read(first: list[str], last: list[str], folder: str) -> tuple[FileAccess, ...]:
    """Return the read of a file that is shown in whole or in part, or piped whole to a command that shows a part."""
    shows = {**_ALL, **_SOME} if first is last else _ALL
    source = re.fullmatch(rf"{shows.get(first[0], '(?!)')}\n(?P<file>{_NAME})", "\n".join(first))
    selection = source if first is last else re.fullmatch(_SOME.get(last[0], "(?!)"), "\n".join(last))
    if source is None or selection is None:
        return ()
    lines = {"first": "1", **{key: value for key, value in selection.groupdict().items() if value}}
    end = lines.get("last", {"head": "10", "sed": lines["first"]}.get(last[0], "$"))
    path, span = _normal_path(source["file"], folder), _line_range(lines["first"], None if end == "$" else end)
    return () if path is None or span is None else (FileAccess("read", path, *span),)
