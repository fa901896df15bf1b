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
from ..model import string
from .log import Log, seconds
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, RecordedSegment, Recording, by_model
from .titles import title_of

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
CONTEXT = (
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
LONGEST = max(map(len, CONTEXT))


def _knows(row: Json) -> bool:
    return isinstance(row.get("payload"), dict) and "timestamp" in row and "type" in row


class _Rollout:
    def __init__(self, answered: Collection[str], put_away: Callable[[RecordedSegment], RecordedSegment]) -> None:
        self.segments = [RecordedSegment()]
        self._put_away = put_away
        self.project = self.id = self.title = ""
        self.head: Json = {}
        self._model = ""
        self._latest: float | None = None
        self._answering = False
        self._answered = answered
        """Ids of calls that have a result anywhere in the log."""
        self._calls: set[str] = set()
        """Ids of calls in the history."""
        self._unprompted = 0
        """Number of entries at the start of the history that contain no user prompt."""
        self._copied = 0.0
        """Time until which rows are copies from another session."""
        self._foreign = 0
        """Number of entries at the start of the history that are copies from another session."""
        self._total: Json = {}
        """Total usage in the last `token_count` event. Codex logs it again, unchanged, without a new response."""

    def row(self, row: Json) -> None:
        payload, at = row["payload"], seconds(row["timestamp"])
        match row["type"], payload.get("type"):
            case "response_item", _:
                self._item(payload, at)
            case "inter_agent_communication", _:
                self._item(_from_agent(payload), at)
            case "compacted", _:
                self._compacted(payload)
            case "turn_context", _:
                self._model = payload.get("model") or self._model
            case "session_meta", _:
                self._meta(payload, at)
            case "event_msg", "token_count":
                self._count(payload.get("info") or {})
            case "event_msg", "thread_name_updated" if payload.get("thread_id") in (None, self.id):
                self.title = string(payload.get("thread_name")) or self.title
            case "event_msg", "thread_rolled_back":
                self._roll_back(payload.get("num_turns") or 0)

    def _meta(self, payload: Json, at: float | None) -> None:
        self.project = self.project or project_of(string(payload.get("cwd")))
        self.id = self.id or string(payload.get("id"))
        instructions = payload.get("base_instructions")
        text = instructions.get("text") if isinstance(instructions, dict) else instructions
        self.head = {"instructions": text} if text else self.head
        if payload.get("forked_from_id") and at is not None and not self.segments[-1].history:
            self._copied = at + COPYING_SECONDS

    def _item(self, item: Json, at: float | None) -> None:
        segment = self.segments[-1]
        answer = by_model(item)
        if answer and not self._answering and segment.history:
            self._sent(at)
        elif answer and segment.requests:
            segment.requests[-1] = replace(segment.requests[-1], answered=at)
        else:
            self._latest = at
        self._answering = answer
        if item.get("type") in OUTPUTS:
            self._calls.add(item.get("call_id") or "")
        if not (_is_output(item) and item["call_id"] not in self._calls):
            segment.history.append(item)
            self.head = {} if self.head and _says(item, self.head["instructions"]) else self.head
        if at is not None and at <= self._copied:
            self._foreign = len(segment.history)

    def _sent(self, at: float | None) -> None:
        """Add the request before a new response: it contained the history so far."""
        segment = self.segments[-1]
        start = segment.requests[-1].length if segment.requests else segment.inherited
        segment.history[start:] = [
            each for item in segment.history[start:] for each in (item, *_aborted(item, self._answered))
        ]
        if at is None or at > self._copied:
            if self._foreign and not self.title:  # earlier prompts belong to the original session
                self.title = title_of(segment.history[self._foreign :])
            segment.requests.append(RecordedRequest(len(segment.history), self._model, self._latest, at))

    def _compacted(self, payload: Json) -> None:
        text = [{"type": "input_text", "text": payload.get("message") or ""}]
        self._begin(
            payload.get("replacement_history") or [{"type": "message", "role": "user", "content": text}], "compaction"
        )

    def _begin(self, kept: list[Json], cause: Cause) -> None:
        # Before any change: this raises for invalid entries, and must not leave an incomplete segment.
        self._calls = {item.get("call_id") or "" for item in kept if item.get("type") in OUTPUTS}
        if cause == "compaction" and self.segments[-1].cause != "rewind":
            self.segments[-1] = self._put_away(self.segments[-1])
        self.segments.append(RecordedSegment(list(kept), [], len(kept), cause))
        self._answering = False
        self._foreign = min(self._foreign, len(kept))
        self._unprompted = min(self._unprompted, len(kept)) if cause == "rewind" else 0

    def _count(self, info: Json) -> None:
        """Set the usage of the last response. If it already has one, the event belongs to a compaction's request."""
        usage = _usage(info.get("last_token_usage") or {})
        total, before = info.get("total_token_usage") or {}, self._total
        self._total = total
        requests = self.segments[-1].requests
        if usage and requests and requests[-1].usage is None and not (total and total == before):
            requests[-1] = replace(requests[-1], usage=usage)
            self._answering = False

    def _roll_back(self, turns: int) -> None:
        """Drop the user's last turns and the context messages that Codex added before the first of them."""
        history = self.segments[-1].history
        behind = range(self._unprompted, len(history))
        first = self._unprompted = next((place for place in behind if _is_prompt(history[place])), len(history))
        if turns and first < len(history):
            prompts = (place for place in reversed(range(first, len(history))) if _is_prompt(history[place]))
            cut = next(islice(prompts, min(turns, len(history)) - 1, None), first)
            while cut > first and history[cut - 1].get("role") in ("user", "developer"):
                cut -= 1
            self._begin(history[:cut], "rewind")


def _from_agent(payload: Json) -> Json:
    """Return a message of another agent in the form that Codex sends (InterAgentCommunication of its protocol)."""
    author, recipient = payload["author"], payload["recipient"]
    content = [{"type": "input_text", "text": payload.get("content") or ""}]
    if sealed := payload.get("encrypted_content"):
        kind = "NEW_TASK" if payload.get("trigger_turn") else "MESSAGE"
        told = f"Message Type: {kind}\nTask name: {recipient}\nSender: {author}\nPayload:\n"
        content = [{"type": "input_text", "text": told}, {"type": "encrypted_content", "encrypted_content": sealed}]
    return {"type": "agent_message", "author": author, "recipient": recipient, "content": content}


def _is_output(item: Json) -> bool:
    """Return True for the result of a call. A search that the provider ran has no call in the history."""
    named = item.get("call_id") and item.get("execution") != "server"
    return bool(named) and str(item.get("type")).endswith("_output")


def _aborted(item: Json, answered: Collection[str]) -> Iterator[Json]:
    made_up, call = OUTPUTS.get(str(item.get("type"))), item.get("call_id")
    if made_up and call and call not in answered:
        yield made_up | {"call_id": call}


def _texts(item: Json) -> Iterator[str]:
    for part in item.get("content") or ():
        yield part.get("text") or ""


def _says(item: Json, instructions: str) -> bool:
    """Return True if the item has the instructions. Newer releases send them as a developer message."""
    return item.get("role") == "developer" and instructions in _texts(item)


def _is_prompt(item: Json) -> bool:
    if item.get("role") != "user":
        return item.get("type") == "agent_message"
    return not any(text.lstrip()[:LONGEST].lower().startswith(CONTEXT) for text in _texts(item))


def _usage(found: Json) -> Usage | None:
    total, read = found.get("input_tokens") or 0, found.get("cached_input_tokens") or 0
    if not total:
        return None
    written = found.get("cache_write_input_tokens") or 0
    return Usage(
        fresh=total - read - written,
        read=read,
        written=written,
        output=found.get("output_tokens") or 0,
        reasoning=found.get("reasoning_output_tokens") or 0,
    )


def _read(log: Log) -> Iterator[Recording]:
    items = (row["payload"] for _, row in log.rows if _knows(row) and row["type"] == "response_item")
    rollout = _Rollout({str(item.get("call_id")) for item in items if _is_output(item)}, log.put_away)
    for line, row in log.rows:
        if _knows(row):
            with log.tolerating(line):
                rollout.row(row)
    segments = [segment for segment in rollout.segments if segment.requests]
    session = Recording("codex", "openai-responses", segments, project=rollout.project, head=rollout.head)
    session.id, session.title = rollout.id, rollout.title
    yield session


READER = Reader("codex", _knows, _read)
