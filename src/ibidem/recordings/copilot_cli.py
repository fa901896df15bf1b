"""Reader for GitHub Copilot CLI: one event per line, `{type, data, id, parentId, timestamp}`.

- Events of a subagent have its id, in older files the id of the call that started it. If the log does not have the
  subagent's first prompt, the prompt argument of that call is used.
- The system prompt is logged at every user prompt. It starts a new segment only if it changed.
- A compaction replaces the entries that existed when it started. Later entries stay.

Not in the log: tools, thinking as it was sent, the wording of errors, text removed by truncation, and in older releases
input tokens. A rewind deletes its events from the file, so it is not visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..billing.usage import Usage
from ..model import string_or_empty
from .chat_builder import ChatBuilder
from .history_builders import Segments
from .log_file import Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedSegment, Recording
from .usage_fields import token_count


def is_log_row(row: Json) -> bool:
    match row:
        case {"type": str(kind), "data": dict(), "timestamp": str()}:
            return "." in kind and "parentId" in row
    return False


def read_sessions(log: Log) -> Iterable[Recording]:
    session_log = _CopilotSession()
    for line, row in log.rows:
        with log.skip_bad_line(line):
            session_log.add_row(row)
    for name, thread in session_log.threads.items():
        session = Recording("copilot-cli", "openai-chat", thread.finish(), name=name, project=session_log.project)
        session.id, session.title = session_log.id, session_log.title if not name else ""
        yield session


class _CopilotThread:
    """One conversation. If the log has a system prompt, it is the first entry of the history."""

    def __init__(self, prompt: str | None) -> None:
        self.segments = Segments()
        self.prompt = prompt
        self.prompts: dict[str, Json] = {}
        """Each distinct system prompt, as one object."""
        self.latest_time: float | None = None
        self.compaction_length: int | None = None
        """Length of the history when the running compaction started."""
        self.pending_results: dict[str, str] = {}
        """Results of the last response's calls. They are sent in the order of the calls."""
        self.call_order: list[str] = []
        self.chat = ChatBuilder()
        self.chat.segment = self.segments.current

    @property
    def system_entries(self) -> list[Json]:
        return [entry for entry in self.chat.history[:1] if entry["role"] == "system"]

    def set_system_prompt(self, content: str) -> None:
        prompt = self.prompts.setdefault(repr(content), {"role": "system", "content": content})
        if self.system_entries != [prompt]:
            self._start_segment([prompt, *self.chat.history[len(self.system_entries) :]], "rewind")

    def add_response(self, data: Json, model: str, answered_at: float | None, usage: Usage | None) -> None:
        if self.prompt is not None and all(entry["role"] != "user" for entry in self.chat.history):
            self.chat.add_message("user", self.prompt)
        calls = [_wire_call(call) for call in data.get("toolRequests") or ()]
        self._add_pending_results()
        self.chat.add_response(
            data["content"] or None, calls, model=model, at=self.latest_time, answered_at=answered_at, usage=usage
        )
        self.call_order = [call["id"] for call in calls]

    def add_result(self, call: str, content: str) -> None:
        self.pending_results[call] = content
        if self.chat.due_calls <= self.pending_results.keys():
            self._add_pending_results()

    def _add_pending_results(self) -> None:
        """Pass the available results to the builder, in the order of their calls."""
        for call in [*(call for call in self.call_order if call in self.pending_results), *self.pending_results]:
            if call in self.pending_results:
                self.chat.add_result(call, self.pending_results.pop(call))

    def apply_compaction(self, summary: str | None) -> None:
        """Replace the history by a summary. Drop later results whose calls were summarized."""
        remaining = (
            []
            if self.compaction_length is None
            else self.chat.history[max(self.compaction_length, len(self.system_entries)) :]
        )
        self.compaction_length = None
        while remaining and remaining[0]["role"] == "tool":
            remaining.pop(0)
        summary_entries = [{"role": "user", "content": summary}] if summary else []
        self._start_segment([*self.system_entries, *summary_entries, *remaining], "compaction")

    def clear_context(self, message: str | None) -> None:
        self.chat.finish()
        self._start_segment(self.system_entries, "rewind")
        if message:
            self.chat.add_message("user", message)

    def _start_segment(self, history: list[Json], cause: Cause) -> None:
        """Start a segment. Messages that wait for results keep waiting."""
        self.chat.segment = self.segments.start_segment(history, cause)

    def finish(self) -> list[RecordedSegment]:
        self._add_pending_results()
        self.chat.finish()
        return self.segments.sent_segments()


class _CopilotSession:
    def __init__(self) -> None:
        self.threads = {"": _CopilotThread(None)}
        self.prompts: dict[str, str] = {}
        """Id of a call that starts a subagent → its prompt argument."""
        self.usages: dict[str, Usage] = {}
        """Usage by the provider's id of the response."""
        self.project = self.id = self.title = ""
        self.model = ""

    def add_row(self, row: Json) -> None:
        data, at = row.get("data"), parse_timestamp(row.get("timestamp"))
        if not isinstance(data, dict):
            if str(row.get("type")).startswith(("user.", "assistant.", "tool.")):
                raise ValueError("an event without data")
            return
        key = row.get("agentId") or data.get("parentToolCallId") or ""
        if key not in self.threads:
            self.threads[key] = _CopilotThread(self.prompts.get(key))
        self._add_event(self.threads[key], row["type"], data, at)

    def _add_event(self, thread: _CopilotThread, kind: str, data: Json, at: float | None) -> None:
        match kind:
            case "session.start" | "session.resume":
                self.project = self.project or project_of(string_or_empty((data.get("context") or {}).get("cwd")))
                self.id = self.id or string_or_empty(data.get("sessionId"))
                self.model = data.get("selectedModel") or self.model
            case "session.title_changed":
                self.title = string_or_empty(data["title"])
            case "session.model_change":
                self.model = data["newModel"]
            case "system.message":
                thread.set_system_prompt(data["content"])
            case "user.message" | "system.notification":
                thread.chat.add_message("user", data.get("transformedContent") or data["content"])
                thread.latest_time = at
            case "assistant.message":
                usage = self.usages.get(str(data.get("apiCallId")))
                thread.add_response(data, data.get("model") or self.model, at, usage)
                self._store_prompts(data)
            case "session.usage_record":
                self.usages[str(data["usage"].get("apiCallId"))] = _parse_usage(data["usage"])
            case "tool.execution_complete":
                outcome = data.get("result") or data.get("error") or {}
                thread.add_result(data["toolCallId"], outcome.get("content", outcome.get("message", "")))
                thread.latest_time = at
            case "session.compaction_start":
                thread.compaction_length = len(thread.chat.history)
            case "session.compaction_complete" if data.get("success"):
                thread.apply_compaction(data.get("summaryContent"))
                thread.latest_time = at
            case "session.context_cleared":
                thread.clear_context(data.get("initialMessage"))
                thread.latest_time = at

    def _store_prompts(self, data: Json) -> None:
        for call in data.get("toolRequests") or ():
            match call:
                case {"toolCallId": str(name), "arguments": {"prompt": str(prompt)}}:
                    self.prompts[name] = prompt


def _wire_call(tool_request: Json) -> Json:
    """Return a call in wire format: arguments as compact JSON, or as text for a custom tool."""
    name, arguments = tool_request["name"], tool_request.get("arguments") or {}
    if tool_request.get("type") == "custom" and isinstance(arguments, str):
        return {"id": tool_request["toolCallId"], "type": "custom", "custom": {"name": name, "input": arguments}}
    arguments_json = arguments
    if not isinstance(arguments, str):
        arguments_json = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return {"id": tool_request["toolCallId"], "name": name, "arguments": arguments_json}


def _parse_usage(record: Json) -> Usage:
    """Convert usage. For every provider, `inputTokens` includes cache reads and writes."""
    total, read, write_tokens = (
        token_count(record.get(key)) for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
    )
    output, reasoning = token_count(record.get("outputTokens")), token_count(record.get("reasoningTokens"))
    return Usage(max(0, total - read - write_tokens), read, write_tokens, output=output, reasoning=reasoning)


READER = Reader("copilot-cli", is_log_row, read_sessions)
