"""Rebuild request histories from the user messages, responses and tool results in an agent's log.

There is one builder for each wire format, all with the same methods. Content is passed as Anthropic blocks, and
thinking in the provider's own format. The part of a segment that was already sent is never changed. A change there
starts a new segment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .chat_builder import ChatBuilder, content_text
from .recording import Cause, Json, RecordedRequest, RecordedSegment
from .shared_prefixes import PrefixTree

ANTHROPIC, CHAT, RESPONSES = "anthropic", "openai-chat", "openai-responses"
CHAT_THINKING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_text"})
"""Fields of a chat message with its thinking. The service expects them in later requests."""


class Segments:
    """Segments of a session that is being read. A segment without requests is replaced by the next one."""

    def __init__(self) -> None:
        self.current = RecordedSegment()
        self._earlier: list[RecordedSegment] = []
        self._prefixes = PrefixTree()

    def start_segment(self, history: Sequence[Json], cause: Cause) -> RecordedSegment:
        """Start a segment with this history. It inherits the prefix that an earlier segment has."""
        if self.current.requests:
            self._prefixes.add_history(self.current.history)
            self._earlier.append(self.current)
        elif self.current.cause == "compaction" and cause == "micro-compaction":
            cause = "compaction"
        self.current = RecordedSegment(list(history))
        if self._earlier:
            prefix = self._prefixes.longest_prefix(history)
            self.current = RecordedSegment([*prefix, *history[len(prefix) :]], [], len(prefix), cause)
        return self.current

    def reopen_last(self) -> None:
        """Remove the last message, so that it can be replaced. If it was already sent, start a new segment."""
        history = self.current.history
        if self.current.requests and self.current.requests[-1].length == len(history):
            self.start_segment(history[:-1], "rewind")
        else:
            history.pop()
            self.current.inherited = min(self.current.inherited, len(history))

    def sent_segments(self) -> list[RecordedSegment]:
        """Return all segments with at least one request."""
        return [segment for segment in (*self._earlier, self.current) if segment.requests]


class HistoryState(NamedTuple):
    """Snapshot of a history. Later changes may append entries or replace the last one, nothing else."""

    history: list[Json]
    length: int
    last_entry: list[Json]
    due_calls: frozenset[str] = frozenset()
    waiting_messages: tuple[Json, ...] = ()

    @classmethod
    def from_history(
        cls, history: list[Json], due: frozenset[str] = frozenset(), waiting: tuple[Json, ...] = ()
    ) -> HistoryState:
        return cls(history, len(history), history[-1:], due, waiting)

    def restore_entries(self) -> list[Json]:
        return [*self.history[: max(0, self.length - 1)], *self.last_entry]


class _GrowingHistory:
    """Base of builders that append each entry at once, in the order of the log."""

    def __init__(self) -> None:
        self.segments = Segments()

    @property
    def history(self) -> list[Json]:
        return self.segments.current.history

    def restart_history(self, history: list[Json], cause: Cause) -> None:
        if cause != "rewind" or history != self.history:
            self.segments.start_segment(history, cause)

    def finish(self) -> list[Json]:
        return self.history

    def full_history(self) -> list[Json]:
        return list(self.history)

    def take_snapshot(self) -> HistoryState:
        return HistoryState.from_history(self.history)

    def restore_snapshot(self, state: HistoryState) -> None:
        self.history[:] = state.restore_entries()


class AnthropicTurns(_GrowingHistory):
    """Builder of Anthropic messages.

    Consecutive entries of one role become one message, tool results first. A message is replaced, never modified,
    because segments share it.
    """

    def add_user(self, blocks: list[Json]) -> None:
        if self.history and self.history[-1]["role"] == "user":
            blocks = [*self.history[-1]["content"], *blocks]
            blocks.sort(key=lambda block: block["type"] != "tool_result")
            self.segments.reopen_last()
        self.history.append({"role": "user", "content": blocks})

    def add_result(self, call: str, content: list[Json], *, name: str = "", is_error: bool = False) -> None:
        """Add a tool result. Text becomes a string, because a list of blocks must not be empty."""
        is_text_only = all(block["type"] == "text" for block in content)
        result = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": content_text(content) if is_text_only else content,
        }
        self.add_user([result | ({"is_error": True} if is_error else {})])

    def add_response(self, blocks: list[Json], request: RecordedRequest | None) -> None:
        """Add a response, and its request if it is known. An empty response is not part of later requests."""
        if request and self.history:
            self.segments.current.requests.append(_with_length(request, len(self.history)))
        if blocks and self.history and self.history[-1]["role"] == "assistant":
            blocks = [*self.history[-1]["content"], *blocks]
            self.segments.reopen_last()
        if blocks:
            self.history.append({"role": "assistant", "content": blocks})

    def clear_results(self, calls: Iterable[str], note: str) -> None:
        """Replace the results of these calls by a note in later requests."""
        call_ids = set(calls)
        new_history = [_clear_message(message, call_ids, note) for message in self.history]
        if new_history != self.history:
            self.segments.start_segment(new_history, "micro-compaction")


class ChatTurns:
    """Builder of OpenAI chat messages.

    It drops images in tool results, which the format does not support. It also drops thinking, unless the block's
    signature is the name of a field in `CHAT_THINKING_FIELDS`.
    """

    def __init__(self) -> None:
        self.segments = Segments()
        self.chat = ChatBuilder()
        self.chat.segment = self.segments.current

    @property
    def history(self) -> list[Json]:
        return self.chat.history

    def add_user(self, blocks: list[Json]) -> None:
        is_single_text = len(blocks) == 1 and blocks[0]["type"] == "text"
        self.chat.add_message("user", blocks[0]["text"] if is_single_text else [_chat_part(block) for block in blocks])

    def add_result(self, call: str, content: list[Json], *, name: str = "", is_error: bool = False) -> None:
        self.chat.add_result(call, content_text(content))

    def add_response(self, blocks: list[Json], request: RecordedRequest | None) -> None:
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        calls = [
            {"id": block["id"], "name": block["name"], "arguments": _arguments_json(block)}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        known_request = request or RecordedRequest(0)
        number = len(self.chat.segment.requests)
        self.chat.add_response(
            "".join(texts) or None,
            calls,
            model=known_request.model,
            at=known_request.at,
            answered_at=known_request.answered,
            usage=known_request.usage,
        )
        if not request:
            del self.chat.segment.requests[number:]
        if texts or calls:
            self.chat.history[-1].update(_thinking_fields(blocks))

    def clear_results(self, calls: Iterable[str], note: str) -> None:
        call_ids = set(calls)
        history = self.finish()
        new_history = [
            message | {"content": note} if message.get("tool_call_id") in call_ids else message for message in history
        ]
        if new_history != history:
            self.chat.segment = self.segments.start_segment(new_history, "micro-compaction")

    def restart_history(self, history: list[Json], cause: Cause) -> None:
        if cause != "rewind" or history != self.finish():
            self.chat.segment = self.segments.start_segment(history, cause)

    def finish(self) -> list[Json]:
        return self.chat.finish().history

    def full_history(self) -> list[Json]:
        """Return the history like `finish`, but keep waiting for missing results."""
        return [*self.history, *self.chat.waiting_messages]

    def take_snapshot(self) -> HistoryState:
        return HistoryState.from_history(
            self.history, frozenset(self.chat.due_calls), tuple(self.chat.waiting_messages)
        )

    def restore_snapshot(self, state: HistoryState) -> None:
        self.history[:] = state.restore_entries()
        self.chat.due_calls, self.chat.waiting_messages = set(state.due_calls), list(state.waiting_messages)


class ResponsesTurns(_GrowingHistory):
    """Builder of Responses API items."""

    def add_user(self, blocks: list[Json]) -> None:
        self.history.append({"role": "user", "content": [_input_part(block) for block in blocks]})

    def add_result(self, call: str, content: list[Json], *, name: str = "", is_error: bool = False) -> None:
        is_text_only = all(block["type"] == "text" for block in content)
        output = content_text(content) if is_text_only else [_input_part(block) for block in content]
        self.history.append({"type": "function_call_output", "call_id": call, "output": output})

    def add_response(self, blocks: list[Json], request: RecordedRequest | None) -> None:
        if request and self.history:
            self.segments.current.requests.append(_with_length(request, len(self.history)))
        self.history.extend(item for block in blocks for item in _response_items(block))

    def clear_results(self, calls: Iterable[str], note: str) -> None:
        call_ids = set(calls)
        new_history = [
            item | {"output": note} if "output" in item and item.get("call_id") in call_ids else item
            for item in self.history
        ]
        if new_history != self.history:
            self.segments.start_segment(new_history, "micro-compaction")


Builder = AnthropicTurns | ChatTurns | ResponsesTurns
BUILDERS: dict[str, type[AnthropicTurns] | type[ChatTurns] | type[ResponsesTurns]] = {
    ANTHROPIC: AnthropicTurns,
    CHAT: ChatTurns,
    RESPONSES: ResponsesTurns,
}


def _response_items(block: Json) -> list[Json]:
    match block["type"]:
        case "text":
            content = [{"type": "output_text", "text": block["text"]}]
            return [{"type": "message", "role": "assistant", "content": content}]
        case "tool_use":
            call = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
            return [{**call, "arguments": _arguments_json(block)}]
        case "reasoning":
            return [block]
    return []


def _input_part(block: Json) -> Json:
    if block["type"] != "image":
        return {"type": "input_text", "text": block["text"]}
    return {"type": "input_image", "image_url": _chat_part(block)["image_url"]["url"]}


def _arguments_json(call: Json) -> str:
    """Encode arguments as JavaScript does, because most agents are written in it."""
    return json.dumps(call["input"], ensure_ascii=False, separators=(",", ":"))


def _thinking_fields(blocks: list[Json]) -> Json:
    thinking_blocks = [
        block for block in blocks if block["type"] == "thinking" and block.get("signature") in CHAT_THINKING_FIELDS
    ]
    return (
        {thinking_blocks[0]["signature"]: "\n".join(block["thinking"] for block in thinking_blocks)}
        if thinking_blocks
        else {}
    )


def _with_length(request: RecordedRequest, length: int) -> RecordedRequest:
    return RecordedRequest(length, request.model, request.at, request.answered, request.usage)


def _clear_message(message: Json, calls: set[str], note: str) -> Json:
    if all(block.get("tool_use_id") not in calls for block in message["content"]):
        return message
    blocks = [block | {"content": note} if block.get("tool_use_id") in calls else block for block in message["content"]]
    return message | {"content": blocks}


def _chat_part(block: Json) -> Json:
    if block["type"] != "image":
        return block
    source = block["source"]
    return {"type": "image_url", "image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}


def text_block(content: str) -> Json:
    return {"type": "text", "text": content}


def image_block(mime: str, data: str) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
