"""Reader for OpenCode, in the format of `opencode export`: `{info, messages: [{info, parts}]}`.

- A response has one or more steps, and each step is one request. A part has both a call and its result.
- A pruned result stays in the log. From the time in the part on, a note was sent instead.
- A compaction is a user message whose response is marked as a summary. If the response is complete, a new context
  starts with both. Older messages that stay (`tail_start_id`) follow them.
- A failed response is not sent in later requests, unless the user stopped it and it has content.
- Thinking is sent as thinking to the model that wrote it, and as text to another model. The provider metadata of parts
  shows the API.

Not in the log: the system prompt, the tools, the prompt for a summary (so that request is omitted), reminders of plan
mode, and messages that the user reverted. Files other than images are omitted. A subagent has its own session and its
own export.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..billing.usage import Usage
from ..model import string_or_empty
from .history_builders import ANTHROPIC, BUILDERS, CHAT, RESPONSES, Builder, image_block, text_block
from .log_file import UNUSABLE, Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Json, RecordedRequest, Recording

CLEARED_RESULT = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
MEDIA = "Attached media from tool result:"
PART_SENTENCES = {"compaction": "What did we do so far?", "subtask": "The following tool was executed by the user"}
"""Types of parts that are sent as a fixed sentence."""
PROVISIONAL_TITLES = ("New session - ", "Child session - ")
"""Prefixes of the provisional title of a new session."""


def is_log_row(row: Json) -> bool:
    return _is_export(row) and ("directory" in row["info"] or any("parts" in one for one in row["messages"][:1]))


def _is_export(row: Json) -> bool:
    match row:
        case {"info": {"id": str()}, "messages": list(messages)}:
            return all(isinstance(one, dict) for one in messages[:1])
    return False


def read_sessions(log: Log) -> Iterable[Recording]:
    exports = [(line, row) for line, row in log.rows if _is_export(row)]
    for line, row in exports:
        yield _read_session(log, line, row, len(exports) > 1)


def _read_session(log: Log, line: int, row: Json, has_several: bool) -> Recording:
    session_log = _OpenCodeSession(row["messages"])
    for number, message in enumerate(row["messages"], 1):
        with log.skip_bad_line(line if has_several else number):
            session_log.add_message(message)
    session_log.turns.finish()
    info = row["info"]
    name = info["id"] if has_several else ""
    project = info.get("directory") or session_log.folder
    title = string_or_empty(info.get("title"))
    session = Recording(
        "opencode", session_log.format, session_log.turns.segments.sent_segments(), name=name, id=info["id"]
    )
    session.title, session.project = (
        "" if title.startswith(PROVISIONAL_TITLES) else title,
        project_of(string_or_empty(project)),
    )
    return session


class _OpenCodeSession:
    def __init__(self, messages: list[Any]) -> None:
        self.format = _detect_format(messages)
        self.turns = BUILDERS[self.format]()
        self.summary_questions = set(_summary_questions(messages))
        self.messages: list[Json] = []
        self.context: list[Json] = []
        """Log messages in the current context, in the order in which they are sent."""
        self._builders_by_model: dict[str, tuple[Builder, int]] = {}
        """By model: builder with the context for it, and the number of messages in that builder."""
        self.model: tuple[Any, Any] = ("", "")
        self.pruned_at: dict[str, float] = {}
        """Call id → time at which its result is cleared. Calls that are already cleared are removed."""
        self.now: float | None = None
        self.latest_time: float | None = None
        self.folder = ""

    def add_message(self, message: Json) -> None:
        info = message["info"]
        model = (info.get("providerID"), info.get("modelID"))
        if info["role"] == "assistant" and model != self.model:
            self.model = model
            self._rebuild_for_model()
        self._convert_message(message, is_new=True)
        self.messages.append(message)
        if info.get("summary") and info.get("parentID") in self.summary_questions:
            self._keep_tail(info["parentID"])

    def _rebuild_for_model(self) -> None:
        """Rebuild the context for another model, which gets thinking as text. Only new messages are converted."""
        turns, context, at = self.turns, self.context, self.latest_time
        builder, number = self._builders_by_model.get(str(self.model)) or (BUILDERS[self.format](), 0)
        self.turns, self.context = builder, []
        for message in context[number:]:
            try:
                self._convert_message(message, is_new=False)
            except UNUSABLE:
                continue  # already reported when it was read
        self._builders_by_model[str(self.model)] = builder, len(context)
        turns.restart_history(builder.finish(), "rewind")
        builder.history[:] = turns.history  # equal values, but the objects that segments share
        self.turns, self.context, self.latest_time = turns, context, at

    def _convert_message(self, message: Json, *, is_new: bool) -> None:
        info, parts = message["info"], message["parts"]
        if info["role"] == "user":
            self._add_user(info, parts, is_new=is_new)
        elif info["role"] == "assistant":
            self._add_response(info, parts, is_new=is_new)
        self.context.append(message)

    def _add_user(self, info: Json, parts: list[Json], *, is_new: bool) -> None:
        is_compaction = any(part["type"] == "compaction" for part in parts)
        if is_new and is_compaction and info["id"] in self.summary_questions:
            self.turns.restart_history([], "compaction")
            self.context, self._builders_by_model = [], {}
        if blocks := [block for part in parts for block in _user_blocks(part)]:
            self.turns.add_user(blocks)
        self.latest_time = parse_timestamp(info["time"]["created"])

    def _add_response(self, info: Json, parts: list[Json], *, is_new: bool) -> None:
        self.folder = self.folder or (info.get("path") or {}).get("cwd") or ""
        steps, is_dropped = list(_split_steps(parts)), _is_dropped(info, parts)
        before = list(self.turns.finish()) if is_dropped else []
        for number, step in enumerate(steps, 1):
            total_tokens = info.get("tokens") if len(steps) == 1 else None
            is_kept = not is_dropped or number < len(steps)
            self._add_step(info, step, total_tokens, is_new=is_new and not info.get("summary"), is_kept=is_kept)
        if is_dropped and len(steps) > 1:
            self.turns.restart_history(before, "rewind")

    def _add_step(self, info: Json, parts: list[Json], tokens: Json | None, *, is_new: bool, is_kept: bool) -> None:
        if is_new:
            self.now = parse_timestamp(info["time"]["created"])
            self._clear_pruned()
        is_own_model = (info.get("providerID"), info.get("modelID")) == self.model
        blocks = [block for part in parts for block in _response_blocks(part, self.format, is_own_model)]
        usage = next(
            (_parse_usage(part.get("tokens")) for part in parts if part["type"] == "step-finish"), _parse_usage(tokens)
        )
        if not blocks and not usage:
            return
        request = (
            RecordedRequest(0, info.get("modelID") or "", self.latest_time, _answered_at(info, parts), usage)
            if is_new
            else None
        )
        self.turns.add_response(_join_reasoning(blocks) if is_kept else [], request)
        pictures = [one for part in parts if is_kept and part["type"] == "tool" for one in self._add_result(part)]
        if pictures:
            self.turns.add_user([text_block(MEDIA), *pictures])

    def _add_result(self, part: Json) -> list[Json]:
        """Add the result of a call. Returns its images if the format does not support images in results."""
        state, call = part["state"], part["callID"]
        time = state.get("time") or {}
        when = parse_timestamp(time.get("compacted"))
        pictures: list[Json] = []
        match state["status"]:
            case "completed" if when is not None and self.now is not None and when <= self.now:
                self.turns.add_result(call, [text_block(CLEARED_RESULT)])
            case "completed":
                pictures = [one for file in state.get("attachments") or () for one in _image_blocks(file)]
                self.turns.add_result(call, [text_block(state["output"]), *pictures])
            case "error":
                message, is_interrupted = _failure_text(state)
                self.turns.add_result(call, [text_block(message)], is_error=not is_interrupted)
            case _:
                self.turns.add_result(call, [text_block(INTERRUPTED)], is_error=True)
        self.latest_time = parse_timestamp(time.get("end")) or self.latest_time
        if when is not None:
            self.pruned_at[call] = when
        return pictures if self.format == CHAT else []

    def _clear_pruned(self) -> None:
        """Clear the results whose pruning time has passed."""
        due = [call for call, when in self.pruned_at.items() if self.now is not None and when <= self.now]
        for call in due:
            del self.pruned_at[call]
        before = self.turns.segments.current
        if due:
            self.turns.clear_results(due, CLEARED_RESULT)
        if self.turns.segments.current is not before:
            self._builders_by_model = {}

    def _keep_tail(self, question: str) -> None:
        names = [message["info"]["id"] for message in self.messages]
        question_message = self.messages[names.index(question)]
        first = next(
            (part.get("tail_start_id") for part in question_message["parts"] if part["type"] == "compaction"), None
        )
        if first in names[: names.index(question)]:
            at = self.latest_time
            for message in self.messages[names.index(first) : names.index(question)]:
                self._convert_message(message, is_new=False)
            self.latest_time = at


def _detect_format(messages: list[Any]) -> str:
    counts = Counter(_provider_format(message) for message in messages)
    del counts[""]
    return max(counts, key=counts.__getitem__, default=CHAT)


def _provider_format(message: Any) -> str:
    """Return the wire format of a response's provider; empty if the message is not a response."""
    match message:
        case {"info": {"role": "assistant", "providerID": str(provider)}, "parts": list(parts)}:
            metadata = [part["metadata"] for part in parts if isinstance(part, dict) and "metadata" in part]
        case _:
            return ""
    entries = [named for named in metadata if isinstance(named, dict)]
    if "anthropic" in provider or any("anthropic" in named for named in entries):
        return ANTHROPIC
    return RESPONSES if provider == "openai" or any(_item_metadata(named) for named in entries) else CHAT


def _item_metadata(metadata: Any) -> Json:
    """Return the metadata of a Responses API item; empty if there is none."""
    entries = metadata.values() if isinstance(metadata, dict) else ()
    return next((entry for entry in entries if isinstance(entry, dict) and "itemId" in entry), {})


def _summary_questions(messages: list[Any]) -> Iterator[str]:
    """Yield the ids of user messages whose response is a completed summary."""
    for message in messages:
        match message:
            case {
                "info": {"role": "assistant", "summary": True, "finish": str(), "parentID": str(question_id)} as info
            }:
                if not info.get("error"):
                    yield question_id


def _split_steps(parts: list[Json]) -> Iterator[list[Json]]:
    step: list[Json] = []
    for part in parts:
        if part["type"] == "step-start" and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _user_blocks(part: Json) -> list[Json]:
    """Return the blocks of a user part. The content of text files and folders is in separate text parts."""
    match part["type"]:
        case "text" if not part.get("ignored") and part["text"]:
            return [text_block(part["text"])]
        case "file":
            return _image_blocks(part)
        case "compaction" | "subtask" as kind:
            return [text_block(PART_SENTENCES[kind])]
    return []


def _image_blocks(file: Json) -> list[Json]:
    head, _, data = file["url"].partition(";base64,")
    return [image_block(file["mime"], data)] if data and head.startswith("data:image/") else []


def _response_blocks(part: Json, format_: str, is_own_model: bool) -> list[Json]:
    """Return the blocks of a response part as they are sent. Blank texts and unsigned thinking are dropped."""
    match part["type"]:
        case "text" if part["text"].strip():
            return [text_block(part["text"])]
        case "tool":
            return [{"type": "tool_use", "id": part["callID"], "name": part["tool"], "input": part["state"]["input"]}]
        case "reasoning" if not is_own_model:
            return [text_block(part["text"])] if part["text"].strip() else []
        case "reasoning":
            return _thinking_blocks(part["text"], part.get("metadata") or {}, format_)
    return []


def _thinking_blocks(thinking: str, metadata: Json, format_: str) -> list[Json]:
    anthropic_metadata = metadata.get("anthropic") or {}
    if format_ == ANTHROPIC and (signature := anthropic_metadata.get("signature")):
        return [{"type": "thinking", "thinking": thinking, "signature": signature}]
    if format_ == ANTHROPIC and (data := anthropic_metadata.get("redactedData")):
        return [{"type": "redacted_thinking", "data": data}]
    if format_ == CHAT and thinking.strip():
        return [{"type": "thinking", "thinking": thinking, "signature": "reasoning_content"}]
    item = _item_metadata(metadata) if format_ == RESPONSES else {}
    if encrypted_content := item.get("reasoningEncryptedContent"):
        summary = [{"type": "summary_text", "text": thinking}] if thinking else []
        return [{"type": "reasoning", "id": item["itemId"], "encrypted_content": encrypted_content, "summary": summary}]
    return []


def _join_reasoning(blocks: list[Json]) -> list[Json]:
    """Join consecutive reasoning parts of one item into one block."""
    result: list[Json] = []
    for block in blocks:
        last = result[-1] if result else {}
        if block["type"] == "reasoning" and block["id"] == last.get("id"):
            result[-1] = {**block, "summary": [*last["summary"], *block["summary"]]}
        else:
            result.append(block)
    return result


def _failure_text(state: Json) -> tuple[str, bool]:
    """Return the text of a failed call, and whether it was interrupted. If so, the text is its output so far."""
    match state.get("metadata"):
        case {"interrupted": True, "output": str(output)}:
            return output, True
    return str(state["error"]), False


def _is_dropped(info: Json, parts: list[Json]) -> bool:
    if not info.get("error"):
        return False
    has_content = any(part["type"] not in ("step-start", "reasoning") for part in parts)
    return not (info["error"].get("name") == "MessageAbortedError" and has_content)


def _answered_at(info: Json, parts: list[Json]) -> float | None:
    """Return the time when a response was complete: the latest end of a text or start of a call.

    The completion time of the message is later, because it includes running the calls.
    """
    times = [
        parse_timestamp(time.get("start" if part["type"] == "tool" else "end"))
        for part in parts
        if isinstance(time := part.get("time") or (part.get("state") or {}).get("time"), dict)
    ]
    valid_times = [time for time in times if time is not None]
    return max(valid_times) if valid_times else parse_timestamp(info["time"].get("completed"))


def _parse_usage(tokens: Any) -> Usage | None:
    """Convert usage. In some releases, `output` excludes reasoning; then `total` shows the difference."""
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache") or {}
    input_usage = Usage(tokens.get("input") or 0, cache.get("read") or 0, cache.get("write") or 0)
    if not input_usage.input:
        return None
    output = max(tokens.get("output") or 0, (tokens.get("total") or 0) - input_usage.input)
    return Usage(
        input_usage.fresh, input_usage.read, input_usage.written, output=output, reasoning=tokens.get("reasoning") or 0
    )


READER = Reader("opencode", is_log_row, read_sessions)
