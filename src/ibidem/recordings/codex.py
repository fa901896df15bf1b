"""Reader for Codex: `~/.codex/sessions/**/rollout-*.jsonl`, rows of `{timestamp, type, payload}`.

- `response_item` payloads are the items of the history. Consecutive items of the model are one response. The results
  after them belong to the next request.
- `compacted` replaces the whole history.
- `token_count` events have the usage of the previous response. Maybe not every response has one, so the usage goes to
  the latest response that has no usage yet.
- A forked session starts with a copy of another session's rows. Their requests count only in the other log.

Like Codex, the reader repairs the history: a call without a result gets the result "aborted", and a result without a
call is dropped (openai/codex, core/src/context_manager/normalize.rs). Reasoning is sent unchanged, even at the end of
an interrupted response.

Not in the log: the prompt for a compaction, how the provider treats reasoning, and in older releases tools and
instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import islice

from ..billing.usage import Usage
from ..model import string_or_empty
from .log_file import Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, RecordedSegment, Recording, is_model_entry
from .titles import prompt_title

COPYING_SECONDS = 1.0
"""Maximum time to copy the rows of the original session into a fork. No response is faster."""
ABORTED = "aborted"
"""Result of a call without a logged result."""
OUTPUTS: dict[str, Json] = {
    "function_call": {"type": "function_call_output", "output": ABORTED},
    "local_shell_call": {"type": "function_call_output", "output": ABORTED},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": ABORTED},
    "tool_search_call": {"type": "tool_search_output", "status": "completed", "execution": "client", "tools": []},
}
"""Types of calls, with the result that Codex adds if there is none."""
CONTEXT_PREFIXES = (
    "# agents.md instructions",
    "<environment_context>",
    "<user_instructions>",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<additional_context>",
)
"""Prefixes of user messages that Codex writes itself (openai/codex, core/src/contextual_user_message.rs)."""
MAX_PREFIX_LENGTH = max(map(len, CONTEXT_PREFIXES))


def _is_log_row(row: Json) -> bool:
    return isinstance(row.get("payload"), dict) and "timestamp" in row and "type" in row


class _CodexRollout:
    def __init__(
        self, result_ids: Collection[str], compress_segment: Callable[[RecordedSegment], RecordedSegment]
    ) -> None:
        self.segments = [RecordedSegment()]
        self._compress_segment = compress_segment
        self.project = self.id = self.title = ""
        self.head: Json = {}
        self._model = ""
        self._latest_time: float | None = None
        self._is_in_response = False
        self._result_ids = result_ids
        """Ids of calls that have a result anywhere in the log."""
        self._call_ids: set[str] = set()
        """Ids of calls in the history."""
        self._unprompted_length = 0
        """Number of entries at the start of the history that contain no user prompt."""
        self._copied_until = 0.0
        """Time until which rows are copies from another session."""
        self._copied_length = 0
        """Number of entries at the start of the history that are copies from another session."""
        self._total_usage: Json = {}
        """Total usage in the last `token_count` event. Codex logs it again, unchanged, without a new response."""

    def add_row(self, row: Json) -> None:
        payload, at = row["payload"], parse_timestamp(row["timestamp"])
        match row["type"], payload.get("type"):
            case "response_item", _:
                self._add_item(payload, at)
            case "inter_agent_communication", _:
                self._add_item(_agent_message(payload), at)
            case "compacted", _:
                self._apply_compaction(payload)
            case "turn_context", _:
                self._model = payload.get("model") or self._model
            case "session_meta", _:
                self._add_session_meta(payload, at)
            case "event_msg", "token_count":
                self._add_usage(payload.get("info") or {})
            case "event_msg", "thread_name_updated" if payload.get("thread_id") in (None, self.id):
                self.title = string_or_empty(payload.get("thread_name")) or self.title
            case "event_msg", "thread_rolled_back":
                self._roll_back(payload.get("num_turns") or 0)

    def _add_session_meta(self, payload: Json, at: float | None) -> None:
        self.project = self.project or project_of(string_or_empty(payload.get("cwd")))
        self.id = self.id or string_or_empty(payload.get("id"))
        instructions = payload.get("base_instructions")
        text = instructions.get("text") if isinstance(instructions, dict) else instructions
        self.head = {"instructions": text} if text else self.head
        if payload.get("forked_from_id") and at is not None and not self.segments[-1].history:
            self._copied_until = at + COPYING_SECONDS

    def _add_item(self, item: Json, at: float | None) -> None:
        segment = self.segments[-1]
        is_response = is_model_entry(item)
        if is_response and not self._is_in_response and segment.history:
            self._add_request(at)
        elif is_response and segment.requests:
            segment.requests[-1] = replace(segment.requests[-1], answered=at)
        else:
            self._latest_time = at
        self._is_in_response = is_response
        if item.get("type") in OUTPUTS:
            self._call_ids.add(item.get("call_id") or "")
        if not (_is_output(item) and item["call_id"] not in self._call_ids):
            segment.history.append(item)
            self.head = {} if self.head and _has_instructions(item, self.head["instructions"]) else self.head
        if at is not None and at <= self._copied_until:
            self._copied_length = len(segment.history)

    def _add_request(self, at: float | None) -> None:
        """Add the request before a new response: it contained the history so far."""
        segment = self.segments[-1]
        start = segment.requests[-1].length if segment.requests else segment.inherited
        segment.history[start:] = [
            each for item in segment.history[start:] for each in (item, *_missing_results(item, self._result_ids))
        ]
        if at is None or at > self._copied_until:
            if self._copied_length and not self.title:  # earlier prompts belong to the original session
                self.title = prompt_title(segment.history[self._copied_length :])
            segment.requests.append(RecordedRequest(len(segment.history), self._model, self._latest_time, at))

    def _apply_compaction(self, payload: Json) -> None:
        text = [{"type": "input_text", "text": payload.get("message") or ""}]
        self._start_segment(
            payload.get("replacement_history") or [{"type": "message", "role": "user", "content": text}], "compaction"
        )

    def _start_segment(self, history: list[Json], cause: Cause) -> None:
        # Before any change: this raises for invalid entries, and must not leave an incomplete segment.
        self._call_ids = {item.get("call_id") or "" for item in history if item.get("type") in OUTPUTS}
        if cause == "compaction" and self.segments[-1].cause != "rewind":
            self.segments[-1] = self._compress_segment(self.segments[-1])
        self.segments.append(RecordedSegment(list(history), [], len(history), cause))
        self._is_in_response = False
        self._copied_length = min(self._copied_length, len(history))
        self._unprompted_length = min(self._unprompted_length, len(history)) if cause == "rewind" else 0

    def _add_usage(self, info: Json) -> None:
        """Set the usage of the last response. If it already has one, the event belongs to a compaction's request."""
        usage = _parse_usage(info.get("last_token_usage") or {})
        total, before = info.get("total_token_usage") or {}, self._total_usage
        self._total_usage = total
        requests = self.segments[-1].requests
        if usage and requests and requests[-1].usage is None and not (total and total == before):
            requests[-1] = replace(requests[-1], usage=usage)
            self._is_in_response = False

    def _roll_back(self, turns: int) -> None:
        """Drop the user's last turns and the context messages that Codex added before the first of them."""
        history = self.segments[-1].history
        indexes = range(self._unprompted_length, len(history))
        first = self._unprompted_length = next((index for index in indexes if _is_prompt(history[index])), len(history))
        if turns and first < len(history):
            prompts = (place for place in reversed(range(first, len(history))) if _is_prompt(history[place]))
            cut = next(islice(prompts, min(turns, len(history)) - 1, None), first)
            while cut > first and history[cut - 1].get("role") in ("user", "developer"):
                cut -= 1
            self._start_segment(history[:cut], "rewind")


def _agent_message(payload: Json) -> Json:
    """Return a message of another agent in the form that Codex sends (InterAgentCommunication of its protocol)."""
    author, recipient = payload["author"], payload["recipient"]
    content = [{"type": "input_text", "text": payload.get("content") or ""}]
    if encrypted_content := payload.get("encrypted_content"):
        kind = "NEW_TASK" if payload.get("trigger_turn") else "MESSAGE"
        header = f"Message Type: {kind}\nTask name: {recipient}\nSender: {author}\nPayload:\n"
        content = [
            {"type": "input_text", "text": header},
            {"type": "encrypted_content", "encrypted_content": encrypted_content},
        ]
    return {"type": "agent_message", "author": author, "recipient": recipient, "content": content}


def _is_output(item: Json) -> bool:
    """Return True for the result of a call. A search that the provider ran has no call in the history."""
    call_id = item.get("call_id") and item.get("execution") != "server"
    return bool(call_id) and str(item.get("type")).endswith("_output")


def _missing_results(item: Json, result_ids: Collection[str]) -> Iterator[Json]:
    result, call = OUTPUTS.get(str(item.get("type"))), item.get("call_id")
    if result and call and call not in result_ids:
        yield result | {"call_id": call}


def _content_texts(item: Json) -> Iterator[str]:
    for part in item.get("content") or ():
        yield part.get("text") or ""


def _has_instructions(item: Json, instructions: str) -> bool:
    """Return True if the item has the instructions. Newer releases send them as a developer message."""
    return item.get("role") == "developer" and instructions in _content_texts(item)


def _is_prompt(item: Json) -> bool:
    if item.get("role") != "user":
        return item.get("type") == "agent_message"
    return not any(
        text.lstrip()[:MAX_PREFIX_LENGTH].lower().startswith(CONTEXT_PREFIXES) for text in _content_texts(item)
    )


def _parse_usage(counts: Json) -> Usage | None:
    total, read = counts.get("input_tokens") or 0, counts.get("cached_input_tokens") or 0
    if not total:
        return None
    write_tokens = counts.get("cache_write_input_tokens") or 0
    return Usage(
        fresh=total - read - write_tokens,
        read=read,
        written=write_tokens,
        output=counts.get("output_tokens") or 0,
        reasoning=counts.get("reasoning_output_tokens") or 0,
    )


def _read_sessions(log: Log) -> Iterator[Recording]:
    items = (row["payload"] for _, row in log.rows if _is_log_row(row) and row["type"] == "response_item")
    rollout = _CodexRollout({str(item.get("call_id")) for item in items if _is_output(item)}, log.compress_finished)
    for line, row in log.rows:
        if _is_log_row(row):
            with log.skip_bad_line(line):
                rollout.add_row(row)
    segments = [segment for segment in rollout.segments if segment.requests]
    session = Recording("codex", "openai-responses", segments, project=rollout.project, head=rollout.head)
    session.id, session.title = rollout.id, rollout.title
    yield session


READER = Reader("codex", _is_log_row, _read_sessions)
