"""Track which lines of each file a history shows, and which of them are still current.

`VisibleFiles` reads the messages in order. The calls name the files. Agents use absolute and relative paths for one
file, so two paths mean one file if one of them ends with the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..model import Message, Path, Text, ToolCall, ToolResult
from ..tool_arguments import arguments_by_name, decode_arguments, file_argument
from ..tool_arguments.file_access import FileAccess, file_accesses

OLD_TEXT_KEYS = ("old_string", "old_str", "oldText", "old_text", "oldString")
"""Arguments with the text to replace."""
NEW_TEXT_KEYS = ("new_string", "new_str", "newText", "new_text", "newString")
"""Arguments with the new text."""
EDIT_LIST_KEY = "edits"
"""Argument with a list of replacements."""
WRITTEN_KEYS = ("content", "file_text", "contents")
"""Arguments with the complete content of a file."""
SEARCHED_KEYS = frozenset(("pattern", "query", "command", "cmd", "url"))
"""Arguments of searches and commands. Their path may be a folder, and their result is not a view of a file."""
MAX_SHOWN_TEXTS = 200
"""Maximum number of stored texts per file, the newest ones."""

_NUMBERED = re.compile(r"\s*(\d{1,9})(?:→|\t|: |\|)")
_PATCH = "*** Begin Patch"
_PATCHED_FILE = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (.+)")


class TextEdit(NamedTuple):
    """One replacement in a file: the old and the new lines, stripped and without empty lines."""

    path: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    line_counts: tuple[int, int] | None = None
    """Number of old and of new lines, if the replacement is at one position."""


def parse_text_edits(call: ToolCall) -> Iterator[TextEdit]:
    """Yield the replacements in a call that quote the old text."""
    values = decode_arguments(call)
    if patch := _find_patch(values):
        yield from _parse_patch(patch)
        return
    if not isinstance(values, dict) or not (path := _normalize_path(file_argument(call))):
        return
    several = values.get(EDIT_LIST_KEY)
    for replacement in [values, *(several if isinstance(several, list) else ())]:
        old = _first_text(replacement, OLD_TEXT_KEYS)
        if old:
            new = _first_text(replacement, NEW_TEXT_KEYS)
            line_counts = None if replacement.get("replace_all") else (old.count("\n") + 1, new.count("\n") + 1)
            yield TextEdit(path, _stripped_lines(old), _stripped_lines(new), line_counts)


def _first_text(values: Any, keys: Sequence[str]) -> str:
    candidates = (values.get(key) for key in keys) if isinstance(values, dict) else ()
    return next((value for value in candidates if isinstance(value, str) and value), "")


def _find_patch(values: Any) -> str:
    """Return the first patch in Codex format anywhere in a call's arguments, or an empty string."""
    pending = [values]
    while pending:
        value = pending.pop()
        if isinstance(value, str) and _PATCH in value:
            return value[value.index(_PATCH) :]
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return ""


def _parse_patch(patch: str) -> Iterator[TextEdit]:
    path, old, new = "", list[str](), list[str]()
    for line in [*patch.split("\n"), "*** End Patch"]:
        file_match = _PATCHED_FILE.fullmatch(line.rstrip())
        if file_match or line.startswith("*** End"):
            if path and (old or new):
                yield TextEdit(path, _stripped_lines("\n".join(old)), _stripped_lines("\n".join(new)))
            path, old, new = _normalize_path(file_match[1].strip()) if file_match else "", [], []
        elif line.startswith(("-", " ")):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])


def _stripped_lines(text: str) -> tuple[str, ...]:
    """Return the lines that are not empty, stripped."""
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def _normalize_path(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/" * path.startswith("/") + "/".join(parts)


def named_files(call: ToolCall) -> list[str]:
    """Return the paths of the files that a call reads, edits or names."""
    paths = [touch.path for touch in file_accesses(call)] or [edit.path for edit in parse_text_edits(call)]
    values = arguments_by_name(call) or {}
    if not paths and not SEARCHED_KEYS & values.keys() and (path := _normalize_path(file_argument(call))):
        paths = [path]
    return list(dict.fromkeys(paths))


class FileView(NamedTuple):
    """A result with the content of a file, and its position in the history."""

    message: int
    path: Path
    text: str


@dataclass(slots=True)
class _FileRecord:
    visible_ranges: list[tuple[int, int | None]] = field(default_factory=list)
    """Line ranges that were shown and have not changed, by their current numbers."""
    line_shifts: list[tuple[int, int]] = field(default_factory=list)
    """Shifts of line numbers since the last view: the first line, and the difference."""
    texts: list[str] = field(default_factory=list)
    last_view: FileView | None = None

    def add_text(self, text: str) -> None:
        self.texts.append(text)
        del self.texts[:-MAX_SHOWN_TEXTS]

    def add_view(self, view: FileView, ranges: Iterable[tuple[int, int | None]]) -> None:
        self.last_view = view
        self.visible_ranges += ranges
        self.line_shifts.clear()

    def apply_edit(self, edit: TextEdit) -> None:
        """Remove the replaced lines from the visible ones, and shift the numbers of the lines after them."""
        first = self._line_number(edit.old[0]) if edit.old else None
        if edit.line_counts is None or first is None:
            self.visible_ranges.clear()
            return
        old_count, new_count = edit.line_counts
        ranges = list[tuple[int, int | None]]()
        for start, end in self.visible_ranges:
            if start < first:
                ranges.append((start, first - 1 if end is None else min(end, first - 1)))
            if end is None or end >= first + old_count:
                ranges.append(
                    (
                        max(start, first + old_count) + new_count - old_count,
                        None if end is None else end + new_count - old_count,
                    )
                )
        self.visible_ranges = ranges
        self.line_shifts.append((first, new_count - old_count))

    def _line_number(self, text: str) -> int | None:
        """Return the current number of the first line in the last view that contains this text."""
        for line in self.last_view.text.split("\n") if self.last_view else ():
            if text in line and (match := _NUMBERED.match(line)):
                number = int(match[1])
                for first, by in self.line_shifts:
                    number += by if number > first else 0
                return number
        return None


class VisibleFiles:
    """Files and lines that the messages of a history show, up to a position."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._files: dict[str, _FileRecord] = {}
        self._paths: dict[str, list[str]] = {}
        """Paths by file name."""
        self._asked: dict[str, ToolCall] = {}
        self._elsewhere: list[str] = []
        """Calls without a specific file, with their results. They may show text of any file."""
        for message in messages:
            self.add_message(message)

    def add_message(self, message: Message) -> None:
        """Add the next message of the history."""
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._asked[part.id] = part
            elif isinstance(part, ToolResult):
                call = self._asked.pop(part.call_id, None)
                if call is not None:
                    self._add_result(call, part, message.index)

    def _add_result(self, call: ToolCall, result: ToolResult, message: int) -> None:
        texts = [segment for segment in result.segments if isinstance(segment, Text)]
        paths = named_files(call)
        if not paths:
            self._elsewhere += [f"{call.arguments}\n{segment.text}" for segment in texts]
        if result.failed:
            return
        accesses, edits = file_accesses(call), list(parse_text_edits(call))
        for path in paths:
            record = self._get_or_add(path)
            for segment in texts:
                record.add_text(segment.text)
            if edits or any(touch.kind == "write" for touch in accesses):
                self._add_write(record, call, [edit for edit in edits if is_same_file(edit.path, path)])
            elif texts:
                view = FileView(message, texts[0].path, texts[0].text)
                record.add_view(view, [(touch.first, touch.last) for touch in accesses])

    def _add_write(self, record: _FileRecord, call: ToolCall, edits: Sequence[TextEdit]) -> None:
        for edit in edits:
            record.add_text("\n".join(edit.new))
            record.apply_edit(edit)
        if not edits:
            record.visible_ranges.clear()
        if not edits and (content := _first_text(arguments_by_name(call), WRITTEN_KEYS)):
            record.add_text(content)
            record.visible_ranges.append((1, None))
            record.last_view = None  # the call itself has the current content, and calls contain no references

    def _get_or_add(self, path: str) -> _FileRecord:
        record = self._find_record(path)
        if record is None:
            record = self._files[path] = _FileRecord()
            self._paths.setdefault(path.rpartition("/")[2], []).append(path)
        return record

    def _find_record(self, path: str) -> _FileRecord | None:
        if path in self._files:
            return self._files[path]
        candidates = self._paths.get(path.rpartition("/")[2], ())
        return next((self._files[other] for other in reversed(candidates) if is_same_file(other, path)), None)

    def last_view(self, path: str) -> FileView | None:
        """Return the last result that showed the file."""
        record = self._find_record(path)
        return record.last_view if record else None

    def is_read_visible(self, touch: FileAccess) -> bool:
        """Return whether all lines that a read requests were shown and have not changed since."""
        record = self._find_record(touch.path)
        if record is None or touch.kind != "read":
            return False
        next_line = touch.first
        for first, last in sorted(record.visible_ranges, key=lambda span: span[0]):
            if first > next_line:
                return False
            if last is None:
                return True
            next_line = max(next_line, last + 1)
            if touch.last is not None and next_line > touch.last:
                return True
        return False

    def is_edit_visible(self, edit: TextEdit) -> bool:
        """Return whether the history shows each old line of an edit."""
        record = self._find_record(edit.path)
        name = edit.path.rpartition("/")[2]
        missing = list(edit.old)
        for text in reversed(record.texts if record else ()):
            missing = [line for line in missing if line not in text]
        for text in reversed(self._elsewhere) if missing else ():
            if name in text:
                missing = [line for line in missing if line not in text]
        return not missing


def is_same_file(first: str, second: str) -> bool:
    """Return whether two paths may mean the same file, also if one path is relative."""
    short, long = sorted((first, second), key=len)
    return long == short or (not short.startswith("/") and long.endswith(f"/{short}"))
