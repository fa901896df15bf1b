"""Remove thinking from agent logs, so that a conversation can continue without Ibidem.

Newer Claude models sign each thinking block over everything that was sent before it. In a conversation that Ibidem
rewrote, this is the rewritten text. A client without Ibidem sends the original text with these blocks, and the
provider rejects the request. The provider accepts a history without thinking.

Claude Code writes one row per content block. A row that contains only thinking is removed, and so are all references to
it: its children get its parent, and lists lose its id. Other agents write one row per message. These rows stay, maybe
with empty content, which such agents do not send.

In a changed row, only the bytes of the changed value are different. All other lines stay byte for byte the same, also
lines that are not JSON. A log is untrusted input: ids can occur twice, and parents can form a cycle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ..billing.thinking_size import signs_thinking
from ..errors import IbidemError
from ..model import Path, string_or_empty
from ..wire import JsonChange, apply_changes, splice
from .history_builders import ANTHROPIC
from .log_file import UNUSABLE, decode_row
from .recording import Json, Recording

THINKING = ("thinking", "redacted_thinking")
CLAUDE_APIS = ("", "anthropic-messages", "bedrock-converse-stream")
"""APIs of pi that serve Claude. Other providers require their own reasoning in later requests."""
FORWARD_KEYS = ("headUuid",)
"""Keys that refer to the first row of a range. If that row is removed, the range starts with the next row."""
OPAQUE_KEYS = ("message", "toolUseResult", "attachment", "content", "rendered")
"""Keys with text of the conversation. A row id in this text is not a reference."""
MAX_REFERENCE_DEPTH = 6
"""Containers around a reference. Real logs have at most three."""
MAX_FIRST_LINE = 1 << 20
"""Bytes of a subagent's log that are read to find its session id."""
MAX_FOLDERS = 1000
"""Working folders that are collected from one log."""


@dataclass(frozen=True, slots=True)
class EditableLog:
    """Log layout of an agent: how rows are linked, and where thinking is."""

    title: str
    """Name for users."""
    resume: str
    """Command that continues a session; the session id follows."""
    root: str
    """Name of the folder that holds all logs of the agent."""
    contents: Callable[[Json], Iterator[tuple[str, str]]]
    """Paths of the lists in a row that can hold thinking."""
    companions: Callable[[FilePath, str], list[FilePath]]
    """Further logs of a session, given its main log and its id: those of subagents."""
    id_key: str = ""
    """Key of a row's id. Empty: rows are never removed."""
    parent_key: str = ""


def _claude_contents(row: Json) -> Iterator[tuple[str, str]]:
    match row:
        case {"type": "assistant", "message": {"content": list()}}:
            yield "message", "content"


def _pi_contents(row: Json) -> Iterator[tuple[str, str]]:
    match row:
        case {"type": "message", "message": {"role": "assistant", "content": list()} as message}:
            if (message.get("api") or "") in CLAUDE_APIS:
                yield "message", "content"
        case {"type": "context_edit", "replacement": {"content": list()}}:
            yield "replacement", "content"


def _claude_companions(log: FilePath, session: str) -> list[FilePath]:
    """Return the logs of subagents: in a folder of the session, or in older releases next to the session's log."""
    if log.name.startswith("agent-"):  # this is a subagent's log
        return []
    session_logs = [
        FilePath(folder, name) for folder, _, names in os.walk(log.with_suffix("") / "subagents") for name in names
    ]
    neighbor_logs = [path for path in log.parent.glob("agent-*.jsonl") if path != log and _names_session(path, session)]
    return sorted(path for path in (*session_logs, *neighbor_logs) if path.suffix == ".jsonl")


def _names_session(path: FilePath, session: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        row = decode_row(file.readline(MAX_FIRST_LINE))
    return isinstance(row, dict) and bool(session) and row.get("sessionId") == session


def _no_companions(log: FilePath, session: str) -> list[FilePath]:
    return []


EDITABLE_LOGS: Mapping[str, EditableLog] = {
    "claude-code": EditableLog(
        "Claude Code", "claude --resume", "projects", _claude_contents, _claude_companions, "uuid", "parentUuid"
    ),
    "pi": EditableLog("pi", "pi --session", "sessions", _pi_contents, _no_companions),
}
"""Agents whose log can be edited, by the name of their reader."""


def may_hold_signed_thinking(session: Recording) -> bool:
    """Return True if a session that cannot be edited may have thinking that is signed over the history."""
    return any(map(signs_thinking, session.models)) or (not session.models and session.format == ANTHROPIC)


@dataclass(slots=True)
class ThinkingSurvey:
    """Thinking in one log, and the rows that disappear with it."""

    rows: int = 0
    """Lines that are JSON objects."""
    blocks: int = 0
    has_signing_model: bool = False
    """True if at least one block is from a model that signs over the history, or from an unknown model."""
    folders: set[str] = field(default_factory=set)
    """Working folders of the client."""
    removed_parents: dict[str, str | None] = field(default_factory=dict)
    """Id of each row to remove, with the id of its parent."""
    removed_children: dict[str, str] = field(default_factory=dict)
    """Id of each row to remove, with the id of its first child."""
    remaining_ids: set[str] = field(default_factory=set)
    """Ids of rows that stay."""

    @property
    def has_signed_thinking(self) -> bool:
        return self.blocks > 0 and self.has_signing_model


def survey_log(lines: Iterable[bytes], layout: EditableLog) -> ThinkingSurvey:
    """Count the thinking in a log and collect the links of its rows."""
    survey = ThinkingSurvey()
    for line in lines:
        row = decode_row(line)
        if not isinstance(row, dict):
            continue
        survey.rows += 1
        if (folder := string_or_empty(row.get("cwd"))) and len(survey.folders) < MAX_FOLDERS:
            survey.folders.add(folder)
        positions = list(_thinking_paths(row, layout))
        survey.blocks += len(positions)
        survey.has_signing_model = survey.has_signing_model or (bool(positions) and _may_be_signed(row))
        if layout.id_key:
            _record_links(survey, row, layout, is_removed=_is_only_thinking(row, positions, layout))
    return survey


def _record_links(survey: ThinkingSurvey, row: Json, layout: EditableLog, *, is_removed: bool) -> None:
    name, parent = string_or_empty(row.get(layout.id_key)), string_or_empty(row.get(layout.parent_key)) or None
    if not name:
        return
    if parent in survey.removed_parents:
        survey.removed_children.setdefault(parent, name)
    if is_removed:
        survey.removed_parents.setdefault(name, parent)
    else:
        survey.remaining_ids.add(name)


def _may_be_signed(row: Json) -> bool:
    message = row.get("message")
    model = string_or_empty(message.get("model")) if isinstance(message, dict) else ""
    return not model or signs_thinking(model)


def _thinking_paths(row: Json, layout: EditableLog) -> Iterator[Path]:
    """Paths of the thinking blocks in a row."""
    for path in layout.contents(row):
        for index, block in enumerate(row[path[0]][path[1]]):
            if isinstance(block, dict) and block.get("type") in THINKING:
                yield *path, index


def _is_only_thinking(row: Json, positions: list[Path], layout: EditableLog) -> bool:
    return bool(positions) and all(len(row[path[0]][path[1]]) == len(positions) for path in layout.contents(row))


class RowLinks:
    """Replacements for references to removed rows."""

    def __init__(self, surveys: Iterable[ThinkingSurvey]) -> None:
        """Collect the removed rows of all logs of a session. A subagent's log can refer to rows of the main log."""
        self._removed_parents: dict[str, str | None] = {}
        self._removed_children: dict[str, str] = {}
        for survey in surveys:
            self._removed_parents |= survey.removed_parents
            self._removed_children |= survey.removed_children

    def __bool__(self) -> bool:
        return bool(self._removed_parents)

    def is_removed(self, name: str, remaining: Set[str]) -> bool:
        """Return True if no remaining row has this id. If an id occurs twice, one of its rows may stay."""
        return name in self._removed_parents and name not in remaining

    def nearest_above(self, name: str, remaining: Set[str]) -> str | None:
        """Return the nearest remaining row above a removed one; None if it does not exist or there is a cycle."""
        removed_ids: list[str] = []
        current: str | None = name
        while current is not None and self.is_removed(current, remaining):
            removed_ids.append(current)
            current, self._removed_parents[removed_ids[-1]] = (
                self._removed_parents[removed_ids[-1]],
                None,
            )  # None: a cycle ends here
        for each in removed_ids:  # so that the next walk is short, even in a long chain of removed rows
            self._removed_parents[each] = current
        return current

    def nearest_below(self, name: str, remaining: Set[str]) -> str | None:
        """Return the nearest remaining row below a removed one, or else the nearest above it."""
        removed_ids: set[str] = set()
        current: str | None = name
        while current is not None and current not in removed_ids and self.is_removed(current, remaining):
            removed_ids.add(current)
            current = self._removed_children.get(current)
        if current is None or current in removed_ids:
            return self.nearest_above(name, remaining)
        return current


def remove_thinking(
    lines: Iterable[bytes], layout: EditableLog, links: RowLinks, remaining: Set[str]
) -> Iterator[bytes]:
    """Yield the lines of a log without thinking. `remaining` are the ids of the rows of this log that stay."""
    for line in lines:
        row = decode_row(line)
        if not isinstance(row, dict):
            yield line
            continue
        positions = list(_thinking_paths(row, layout))
        if layout.id_key and _is_only_thinking(row, positions, layout):
            continue
        changes = [JsonChange(path, "drop") for path in positions]
        if links:
            changes += _relink_row(row, links, remaining)
        yield _edit_line(line, row, changes) if changes else line


def _relink_row(row: Json, links: RowLinks, remaining: Set[str]) -> Iterator[JsonChange]:
    """Yield changes for all references to removed rows. The keys differ by release, so every value is checked."""
    pending: list[tuple[Path, Any]] = [((), row)]
    while pending:
        path, container = pending.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in items:
            if key in OPAQUE_KEYS:
                continue
            if isinstance(value, str) and links.is_removed(value, remaining):
                if isinstance(container, list):
                    yield JsonChange((*path, key), "drop")
                else:
                    resolve = links.nearest_below if key in FORWARD_KEYS else links.nearest_above
                    yield JsonChange((*path, key), "set", resolve(value, remaining))
            elif isinstance(value, dict | list) and len(path) < MAX_REFERENCE_DEPTH:
                pending.append(((*path, key), value))


def _edit_line(line: bytes, row: Json, changes: list[JsonChange]) -> bytes:
    """Return the line with the changes made and all other bytes unchanged."""
    new_row = apply_changes(row, changes)
    try:
        new_line = splice(line, row, changes)
        if decode_row(new_line) == new_row:
            return new_line
    except (IbidemError, *UNUSABLE):  # a key that occurs twice, or a key that is not UTF-8
        pass
    try:  # no client writes such a line, so losing its exact bytes is acceptable: write the parsed values
        return json.dumps(new_row, separators=(",", ":")).encode() + (b"\n" if line.endswith(b"\n") else b"")
    except RecursionError:
        raise IbidemError("a row is nested too deeply to be edited: start a new conversation instead") from None
