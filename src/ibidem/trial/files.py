"""Track which lines of each file a history shows, and which of them are still current.

`VisibleFiles` reads the messages in order. The calls name the files. Agents use absolute and relative paths for one
file, so two paths mean one file if one of them ends with the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..calls import arguments, decoded, file_of
from ..calls.file_access import Touch, touches
from ..model import Message, Path, Text, ToolCall, ToolResult

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
    height: tuple[int, int] | None = None
    """Number of old and of new lines, if the replacement is at one position."""


def text_edits(call: ToolCall) -> Iterator[TextEdit]:
    """Yield the replacements in a call that quote the old text."""
    given = decoded(call)
    if patch := _patch_in(given):
        yield from _patched(patch)
        return
    if not isinstance(given, dict) or not (path := _normal(file_of(call))):
        return
    several = given.get(EDIT_LIST_KEY)
    for one in [given, *(several if isinstance(several, list) else ())]:
        old = _first(one, OLD_TEXT_KEYS)
        if old:
            new = _first(one, NEW_TEXT_KEYS)
            height = None if one.get("replace_all") else (old.count("\n") + 1, new.count("\n") + 1)
            yield TextEdit(path, _lines(old), _lines(new), height)


def _first(given: Any, keys: Sequence[str]) -> str:
    found = (given.get(key) for key in keys) if isinstance(given, dict) else ()
    return next((value for value in found if isinstance(value, str) and value), "")


def _patch_in(given: Any) -> str:
    """Return the first patch in Codex format anywhere in a call's arguments, or an empty string."""
    waiting = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and _PATCH in value:
            return value[value.index(_PATCH) :]
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return ""


def _patched(patch: str) -> Iterator[TextEdit]:
    path, old, new = "", list[str](), list[str]()
    for line in [*patch.split("\n"), "*** End Patch"]:
        named = _PATCHED_FILE.fullmatch(line.rstrip())
        if named or line.startswith("*** End"):
            if path and (old or new):
                yield TextEdit(path, _lines("\n".join(old)), _lines("\n".join(new)))
            path, old, new = _normal(named[1].strip()) if named else "", [], []
        elif line.startswith(("-", " ")):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])


def _lines(text: str) -> tuple[str, ...]:
    """Return the lines that are not empty, stripped."""
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def _normal(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/" * path.startswith("/") + "/".join(parts)


def named_files(call: ToolCall) -> list[str]:
    """Return the paths of the files that a call reads, edits or names."""
    found = [touch.path for touch in touches(call)] or [edit.path for edit in text_edits(call)]
    given = arguments(call) or {}
    if not found and not SEARCHED_KEYS & given.keys() and (path := _normal(file_of(call))):
        found = [path]
    return list(dict.fromkeys(found))


class FileView(NamedTuple):
    """A result with the content of a file, and its position in the history."""

    message: int
    path: Path
    text: str


@dataclass(slots=True)
class _FileRecord:
    spans: list[tuple[int, int | None]] = field(default_factory=list)
    """Line ranges that were shown and have not changed, by their current numbers."""
    moved: list[tuple[int, int]] = field(default_factory=list)
    """Shifts of line numbers since the last view: the first line, and the difference."""
    texts: list[str] = field(default_factory=list)
    last: FileView | None = None

    def show(self, text: str) -> None:
        self.texts.append(text)
        del self.texts[:-MAX_SHOWN_TEXTS]

    def view(self, view: FileView, spans: Iterable[tuple[int, int | None]]) -> None:
        self.last = view
        self.spans += spans
        self.moved.clear()

    def edit(self, edit: TextEdit) -> None:
        """Remove the replaced lines from the visible ones, and shift the numbers of the lines after them."""
        first = self._line(edit.old[0]) if edit.old else None
        if edit.height is None or first is None:
            self.spans.clear()
            return
        gone, come = edit.height
        spans = list[tuple[int, int | None]]()
        for start, end in self.spans:
            if start < first:
                spans.append((start, first - 1 if end is None else min(end, first - 1)))
            if end is None or end >= first + gone:
                spans.append((max(start, first + gone) + come - gone, None if end is None else end + come - gone))
        self.spans = spans
        self.moved.append((first, come - gone))

    def _line(self, text: str) -> int | None:
        """Return the current number of the first line in the last view that contains this text."""
        for line in self.last.text.split("\n") if self.last else ():
            if text in line and (found := _NUMBERED.match(line)):
                number = int(found[1])
                for first, by in self.moved:
                    number += by if number > first else 0
                return number
        return None


class ShownFiles:
    """Files and lines that the messages of a history show, up to a position."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._files: dict[str, _FileRecord] = {}
        self._paths: dict[str, list[str]] = {}
        """Paths by file name."""
        self._asked: dict[str, ToolCall] = {}
        self._elsewhere: list[str] = []
        """Calls without a specific file, with their results. They may show text of any file."""
        for message in messages:
            self.take(message)

    def take(self, message: Message) -> None:
        """Add the next message of the history."""
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._asked[part.id] = part
            elif isinstance(part, ToolResult):
                call = self._asked.pop(part.call_id, None)
                if call is not None:
                    self._result(call, part, message.index)

    def _result(self, call: ToolCall, result: ToolResult, message: int) -> None:
        texts = [segment for segment in result.segments if isinstance(segment, Text)]
        paths = named_files(call)
        if not paths:
            self._elsewhere += [f"{call.arguments}\n{segment.text}" for segment in texts]
        if result.failed:
            return
        known, edits = touches(call), list(text_edits(call))
        for path in paths:
            record = self._record(path)
            for segment in texts:
                record.show(segment.text)
            if edits or any(touch.kind == "write" for touch in known):
                self._written(record, call, [edit for edit in edits if same_file(edit.path, path)])
            elif texts:
                view = FileView(message, texts[0].path, texts[0].text)
                record.view(view, [(touch.first, touch.last) for touch in known])

    def _written(self, record: _FileRecord, call: ToolCall, edits: Sequence[TextEdit]) -> None:
        for edit in edits:
            record.show("\n".join(edit.new))
            record.edit(edit)
        if not edits:
            record.spans.clear()
        if not edits and (content := _first(arguments(call), WRITTEN_KEYS)):
            record.show(content)
            record.spans.append((1, None))
            record.last = None  # the call itself has the current content, and calls contain no references

    def _record(self, path: str) -> _FileRecord:
        found = self._found(path)
        if found is None:
            found = self._files[path] = _FileRecord()
            self._paths.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    def _found(self, path: str) -> _FileRecord | None:
        if path in self._files:
            return self._files[path]
        known = self._paths.get(path.rpartition("/")[2], ())
        return next((self._files[other] for other in reversed(known) if same_file(other, path)), None)

    def last_view(self, path: str) -> FileView | None:
        """Return the last result that showed the file."""
        found = self._found(path)
        return found.last if found else None

    def stands(self, touch: Touch) -> bool:
        """Return whether all lines that a read requests were shown and have not changed since."""
        found = self._found(touch.path)
        if found is None or touch.kind != "read":
            return False
        reached = touch.first
        for first, last in sorted(found.spans, key=lambda span: span[0]):
            if first > reached:
                return False
            if last is None:
                return True
            reached = max(reached, last + 1)
            if touch.last is not None and reached > touch.last:
                return True
        return False

    def shows(self, edit: TextEdit) -> bool:
        """Return whether the history shows each old line of an edit."""
        found = self._found(edit.path)
        name = edit.path.rpartition("/")[2]
        missing = list(edit.old)
        for text in reversed(found.texts if found else ()):
            missing = [line for line in missing if line not in text]
        for text in reversed(self._elsewhere) if missing else ():
            if name in text:
                missing = [line for line in missing if line not in text]
        return not missing


def same_file(one: str, other: str) -> bool:
    """Return whether two paths may mean the same file, also if one path is relative."""
    short, long = sorted((one, other), key=len)
    return long == short or (not short.startswith("/") and long.endswith(f"/{short}"))
