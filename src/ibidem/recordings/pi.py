"""Reader for the coding agent pi: one JSON entry per line. The entries form a tree.

- The parent of an entry is usually the previous one. Otherwise it is a rewind, and the path from the root to the entry
  is the new context. Entries of the first log version have no ids and form a single path.
- A compaction replaces all entries before its first retained one by a summary. A context edit replaces the content of
  an entry.
- A failed or aborted response is not sent in later requests. It counts as a request if it has content or usage.
- A call without a result gets a placeholder result before the next message.
- Thinking is sent with its signature to the model that wrote it, and as text to another model.
- A forked session starts with a copy of another log. Entries older than the header count only in the other log.
- If a response directly follows another one, its prompt is missing in the log, and the request is omitted.

Logs of older versions lack the system prompt and the tools. Newer versions log them at each change, but this reader
ignores them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ..billing.usage import Usage
from ..model import string_or_empty
from .history_builders import (
    ANTHROPIC,
    BUILDERS,
    CHAT,
    CHAT_THINKING_FIELDS,
    RESPONSES,
    HistoryState,
    image_block,
    text_block,
)
from .log_file import UNUSABLE, Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, Recording
from .usage_fields import token_count

COMPACTED = "The conversation history before this point was compacted into the following summary:"
CAME_BACK = "The following is a summary of a branch that this conversation came back from:"
UNANSWERED = "No result provided"
PICTURE_ONLY, NOTHING = "(see attached image)", "(no tool output)"
Model = tuple[Any, ...]


def is_log_row(row: Json) -> bool:
    match row:
        case {"type": "session", "id": str(), "timestamp": str(), "cwd": str()}:
            return True
        case {"type": "message", "message": {"role": str()}, "timestamp": _}:
            return "sessionId" not in row
    return False


def read_sessions(log: Log) -> Iterable[Recording]:
    header = next((row for _, row in log.rows if row.get("type") == "session"), {})
    format_ = _format_of_api(_main_api(log))
    tree = _EntryTree(_SentContext(format_, (), frozenset(_result_ids(log))), header)
    for line, row in log.rows:
        with log.skip_bad_line(line):
            tree.add_row(row)
    tree.context.turns.finish()
    segments, project = tree.context.turns.segments.sent_segments(), project_of(string_or_empty(header.get("cwd")))
    yield Recording(
        "pi", format_, segments, id=string_or_empty(header.get("id")), title=_session_name(log), project=project
    )


def _session_name(log: Log) -> str:
    """Return the name that the user gave the session. The last one counts."""
    names = (row.get("name") for _, row in log.rows if row.get("type") == "session_info")
    return next((name for name in reversed(list(names)) if isinstance(name, str) and name), "")


def _main_api(log: Log) -> str:
    """Return the API of most responses, because the user may have tried another one."""
    counts: Counter[str] = Counter()
    for _, row in log.rows:
        match row.get("message"):
            case {"role": "assistant", "content": [_, *_], "api": str(api)}:
                counts[api] += 1
    return max(counts, key=counts.__getitem__, default="")


def _format_of_api(api: str) -> str:
    if api.endswith("-responses"):
        return RESPONSES
    return ANTHROPIC if api == "anthropic-messages" else CHAT


def _result_ids(log: Log) -> Iterator[str]:
    for _, row in log.rows:
        match row.get("message"):
            case {"role": "toolResult", "toolCallId": str(call)}:
                yield _bare_call_id(call)


class _SentContext:
    """Context as it is sent to one model."""

    def __init__(self, format_: str, model: Model, result_ids: frozenset[str]) -> None:
        self.format, self.model = format_, model
        self.result_ids = result_ids
        """Ids of calls that have a result anywhere in the log."""
        self.turns = BUILDERS[format_]()
        self.due_calls: list[str] = []
        """Ids of calls that have no result yet."""
        self.checkpoint: _ContextCheckpoint | None = None
        """Latest snapshot. It is current unless something was added after it."""

    def take_checkpoint(self) -> _ContextCheckpoint:
        self.checkpoint = _ContextCheckpoint(self, self.turns.take_snapshot(), list(self.due_calls))
        return self.checkpoint

    def add_missing_results(self, calls: list[str]) -> None:
        self.due_calls = [call for call in self.due_calls if call not in calls]
        for call in calls:
            self.turns.add_result(call, [text_block(UNANSWERED)], is_error=True)

    def add_user(self, blocks: list[Json]) -> None:
        self.add_missing_results([call for call in self.due_calls if call not in self.result_ids])
        if visible_blocks := [block for block in blocks if block["type"] != "text" or block["text"].strip()]:
            self.turns.add_user(visible_blocks)

    def add_result(self, message: Json) -> None:
        call, content = _bare_call_id(message["toolCallId"]), _content_blocks(message["content"])
        if call in self.due_calls:
            self.due_calls.remove(call)
        if not any(block["type"] == "text" and block["text"] for block in content):
            content = [text_block(PICTURE_ONLY if content and content[0]["type"] == "image" else NOTHING), *content]
        self.turns.add_result(call, content, is_error=bool(message.get("isError")))

    def add_response(self, message: Json, request: RecordedRequest | None) -> None:
        self.add_missing_results(self.due_calls)
        history = self.turns.finish()
        has_lost_prompt = bool(history) and history[-1].get("role") == "assistant"
        blocks = [
            block
            for one in message["content"]
            for block in self._response_blocks(one, _model_key(message) == self.model)
        ]
        if message.get("stopReason") in ("error", "aborted"):
            blocks = []
        self.turns.add_response(blocks, None if has_lost_prompt else request)
        self.due_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]

    def _response_blocks(self, block: Json, is_own_model: bool) -> list[Json]:
        """Return the blocks of a response as they are sent: without blank texts, and with unsigned thinking as text."""
        match block["type"]:
            case "toolCall":
                call = {"type": "tool_use", "id": _bare_call_id(block["id"]), "name": block["name"]}
                return [{**call, "input": block["arguments"]}]
            case "thinking" if block.get("redacted"):
                return [{"type": "redacted_thinking", "data": block["thinkingSignature"]}] if is_own_model else []
            case "thinking" if is_own_model and (signature := block.get("thinkingSignature")):
                return self._thinking_blocks(block["thinking"], signature)
            case "text" | "thinking" as kind if block[kind].strip():
                return (
                    [text_block(block[kind])] if kind == "text" or not is_own_model or self.format == ANTHROPIC else []
                )
        return []

    def _thinking_blocks(self, thinking: str, signature: str) -> list[Json]:
        """Convert signed thinking. Depending on the API, the signature is Anthropic's, an item or a field name."""
        if self.format == ANTHROPIC or (self.format == CHAT and signature in CHAT_THINKING_FIELDS and thinking.strip()):
            return [{"type": "thinking", "thinking": thinking, "signature": signature}]
        item = _parse_object(signature) if self.format == RESPONSES else {}
        return [item] if item.get("type") == "reasoning" else []


class _ContextCheckpoint(NamedTuple):
    """Snapshot of a context. To continue from it, the context itself is used if unchanged, otherwise a copy."""

    context: _SentContext
    state: HistoryState
    due_calls: list[str]

    def resume_context(self) -> _SentContext:
        if self.context.checkpoint is self:
            return self.context
        context_copy = _SentContext(self.context.format, self.context.model, self.context.result_ids)
        context_copy.turns.restore_snapshot(self.state)
        context_copy.due_calls = list(self.due_calls)
        return context_copy


class _EntryTree:
    def __init__(self, context: _SentContext, header: Json) -> None:
        self.context = context
        self.entries: dict[str, Json] = {}
        self.parents: dict[str, str | None] = {}
        self.order: list[str] = []
        self.leaf: str | None = None
        self.latest_time: float | None = None
        self._checkpoints: dict[tuple[str, Model], _ContextCheckpoint] = {}
        """Snapshots of the context, by entry and model."""
        self._edited_ids: set[str] = set()
        """Ids of entries that are replaced by a context edit."""
        is_fork = header.get("parentSession") or header.get("branchedFrom")
        self.forked_at = parse_timestamp(header.get("timestamp")) if is_fork else None

    def add_row(self, row: Json) -> None:
        name = row.get("id")
        name = name if isinstance(name, str) else f"#{len(self.order)}"
        self.order.append(name)
        nameless = "id" not in row and "timestamp" not in row
        if row.get("type") == "session" or nameless or name in self.entries:
            return
        parent = row.get("parentId", self.leaf)
        if parent is not None and parent not in self.entries:
            parent = self.leaf  # the parent's line is missing: use the order of the file
        self.entries[name], self.parents[name] = row, parent
        before, self.leaf = self.leaf, name
        if row["type"] == "context_edit":
            self._edited_ids.add(str(row.get("targetId")))
        if row["type"] in ("compaction", "context_edit"):
            self._move_to(name, "compaction" if row["type"] == "compaction" else "micro-compaction")
            self.latest_time = parse_timestamp(row["timestamp"])
            return
        if parent != before:
            self._move_to(parent, "rewind")
        if (model := _model_key(row.get("message"))) and model != self.context.model:
            self.context.model = model
            self._move_to(parent, "rewind")
        self._add_entry(self.context, row, is_new=True)

    def _move_to(self, name: str | None, cause: Cause) -> None:
        new_context = self._context_at(name)
        self.context.turns.restart_history(new_context.turns.full_history(), cause)
        new_history = new_context.turns.history
        new_history[:] = self.context.turns.history[
            : len(new_history)
        ]  # equal values, but the objects that segments share
        self.context.due_calls = list(new_context.due_calls)

    def _context_at(self, name: str | None) -> _SentContext:
        """Return the context of the model at an entry, built from the nearest snapshot on the path to the root."""
        model, path = self.context.model, list[str]()
        while name is not None and (name, model) not in self._checkpoints and not self._is_rewrite(name):
            path.append(name)
            name = self.parents[name]
        context = _SentContext(self.context.format, model, self.context.result_ids)
        if name is not None and (name, model) in self._checkpoints:
            context = self._checkpoints[name, model].resume_context()
        elif name is not None:
            self._replay_entries(context, self._path_entries(name))
            self._checkpoints[name, model] = context.take_checkpoint()
        for each in reversed(path):
            self._replay_entries(context, [self.entries[each]])
            self._checkpoints[each, model] = context.take_checkpoint()
        return context

    def _is_rewrite(self, name: str) -> bool:
        """Return True if the context at this entry is not just its parent's context plus the entry."""
        return self.entries[name]["type"] in ("compaction", "context_edit") or name in self._edited_ids

    def _replay_entries(self, context: _SentContext, rows: list[Json]) -> None:
        for row in rows:
            with suppress(*UNUSABLE):  # already reported when its line was read
                self._add_entry(context, row, is_new=False)

    def _path_entries(self, name: str | None) -> list[Json]:
        path: list[str] = []
        while name is not None:
            path.append(name)
            name = self.parents[name]
        path.reverse()
        last = max((n for n, name in enumerate(path) if self.entries[name]["type"] == "compaction"), default=None)
        if last is not None:
            summary = self.entries[path[last]]
            first = summary.get("firstKeptEntryId")
            if first is None and isinstance(index := summary.get("firstKeptEntryIndex"), int):
                first = self.order[index]
            retained = path[path.index(first) : last] if first in path[:last] else []
            path = [path[last], *retained, *path[last + 1 :]]
        return self._edited_entries(path)

    def _edited_entries(self, path: list[str]) -> list[Json]:
        """Return the entries of a path, each with its last edited content."""
        rows = [self.entries[name] for name in path]
        edits = {row.get("targetId"): row.get("replacement") for row in rows if row["type"] == "context_edit"}
        entries = [
            _with_replacement(row, edits[name]) if name in edits else row for name, row in zip(path, rows, strict=True)
        ]
        return [row for number, row in enumerate(entries) if row and (not number or row["type"] != "compaction")]

    def _add_entry(self, context: _SentContext, row: Json, *, is_new: bool) -> None:
        match row["type"]:
            case "message" if row["message"]["role"] == "assistant":
                context.add_response(row["message"], self._recorded_request(row, row["message"]) if is_new else None)
                return
            case "message":
                _add_message(context, row["message"])
            case "custom_message":
                context.add_user(_content_blocks(row["content"]))
            case "branch_summary" if row["summary"]:
                context.add_user([text_block(f"{CAME_BACK}\n\n<summary>\n{row['summary']}</summary>")])
            case "compaction":
                context.add_user([text_block(f"{COMPACTED}\n\n<summary>\n{row['summary']}\n</summary>")])
            case _:
                return
        if is_new:
            self.latest_time = parse_timestamp(row.get("timestamp"))

    def _recorded_request(self, row: Json, message: Json) -> RecordedRequest | None:
        answered_at, usage = parse_timestamp(row.get("timestamp")), _parse_usage(message.get("usage"))
        is_copy = self.forked_at is not None and answered_at is not None and answered_at < self.forked_at
        if is_copy or not (message["content"] or usage):
            return None
        return RecordedRequest(0, message.get("model") or "", self.latest_time, answered_at, usage)


def _model_key(message: Any) -> Model:
    match message:
        case {"role": "assistant"}:
            return tuple(str(message.get(key)) for key in ("provider", "api", "model"))
    return ()


def _with_replacement(row: Json, replacement: Any) -> Json | None:
    if replacement is None:
        return None
    content = replacement["content"]
    if row["type"] == "message":
        blocks = [text_block(content)] if isinstance(content, str) else content
        return {**row, "message": {**row["message"], "content": blocks}}
    return {**row, "content": content}


def _parse_object(text: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _bare_call_id(call: str) -> str:
    """Return the id of a call without the item id that may follow it."""
    return call.partition("|")[0]


def _add_message(context: _SentContext, message: Json) -> None:
    match message["role"]:
        case "toolResult":
            context.add_result(message)
        case "user" | "custom" | "hookMessage":
            context.add_user(_content_blocks(message["content"]))
        case "bashExecution" if not message.get("excludeFromContext"):
            context.add_user([text_block(_command_text(message))])


def _command_text(message: Json) -> str:
    """Return the text that the model gets for a command of the user."""
    output = f"```\n{message['output']}\n```" if message.get("output") else "(no output)"
    ending = ""
    if message.get("cancelled"):
        ending = "\n\n(command cancelled)"
    elif message.get("exitCode"):
        ending = f"\n\nCommand exited with code {message['exitCode']}"
    if message.get("truncated") and message.get("fullOutputPath"):
        ending += f"\n\n[Output truncated. Full output: {message['fullOutputPath']}]"
    return f"Ran `{message['command']}`\n{output}{ending}"


def _content_blocks(content: str | list[Json]) -> list[Json]:
    if isinstance(content, str):
        return [text_block(content)]
    return [
        image_block(block["mimeType"], block["data"]) if block["type"] == "image" else text_block(block["text"])
        for block in content
    ]


def _parse_usage(usage: Any) -> Usage | None:
    """Convert usage; None if the response was cut off before any usage was reported."""
    if not isinstance(usage, dict):
        return None
    long = min(token_count(usage.get("cacheWrite1h")), token_count(usage.get("cacheWrite")))
    result = Usage(
        token_count(usage.get("input")),
        token_count(usage.get("cacheRead")),
        token_count(usage.get("cacheWrite")) - long,
        long,
        token_count(usage.get("output")),
        token_count(usage.get("reasoning")),
    )
    return result if result.input else None


READER = Reader("pi", is_log_row, read_sessions)
