"""Rebuild request histories from the user messages, responses and tool results in an agent's log.

There is one builder for each wire format, all with the same methods. Content is passed as Anthropic blocks, and
thinking in the provider's own format. The part of a segment that was already sent is never changed. A change there
starts a new segment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .beginnings import Beginnings
from .chat import Chat, text_of
from .recording import Cause, Json, RecordedRequest, RecordedSegment

ANTHROPIC, CHAT, RESPONSES = "anthropic", "openai-chat", "openai-responses"
CHAT_THOUGHTS = frozenset({"reasoning_content", "reasoning", "reasoning_text"})
"""Fields of a chat message with its thinking. The service expects them in later requests."""


class Segments:
    """Segments of a session that is being read. A segment without requests is replaced by the next one."""

    def __init__(self) -> None:
        self.current = RecordedSegment()
        self._before: list[RecordedSegment] = []
        self._beginnings = Beginnings()

    def begin(self, history: Sequence[Json], cause: Cause) -> RecordedSegment:
        """Start a segment with this history. It inherits the prefix that an earlier segment has."""
        if self.current.requests:
            self._beginnings.add(self.current.history)
            self._before.append(self.current)
        elif self.current.cause == "compaction" and cause == "micro-compaction":
            cause = "compaction"
        self.current = RecordedSegment(list(history))
        if self._before:
            known = self._beginnings.longest(history)
            self.current = RecordedSegment([*known, *history[len(known) :]], [], len(known), cause)
        return self.current

    def reopen(self) -> None:
        """Remove the last message, so that it can be replaced. If it was already sent, start a new segment."""
        history = self.current.history
        if self.current.requests and self.current.requests[-1].length == len(history):
            self.begin(history[:-1], "rewind")
        else:
            history.pop()
            self.current.inherited = min(self.current.inherited, len(history))

    def done(self) -> list[RecordedSegment]:
        """Return all segments with at least one request."""
        return [segment for segment in (*self._before, self.current) if segment.requests]


class State(NamedTuple):
    """Snapshot of a history. Later changes may append entries or replace the last one, nothing else."""

    history: list[Json]
    length: int
    last: list[Json]
    due: frozenset[str] = frozenset()
    waiting: tuple[Json, ...] = ()

    @classmethod
    def of(cls, history: list[Json], due: frozenset[str] = frozenset(), waiting: tuple[Json, ...] = ()) -> State:
        return cls(history, len(history), history[-1:], due, waiting)

    def entries(self) -> list[Json]:
        return [*self.history[: max(0, self.length - 1)], *self.last]


class _Told:
    """Base of builders that append each entry at once, in the order of the log."""

    def __init__(self) -> None:
        self.segments = Segments()

    @property
    def history(self) -> list[Json]:
        return self.segments.current.history

    def restart(self, history: list[Json], cause: Cause) -> None:
        if cause != "rewind" or history != self.history:
            self.segments.begin(history, cause)

    def done(self) -> list[Json]:
        return self.history

    def whole(self) -> list[Json]:
        return list(self.history)

    def state(self) -> State:
        return State.of(self.history)

    def resume(self, state: State) -> None:
        self.history[:] = state.entries()


class Turns(_Told):
    """Builder of Anthropic messages.

    Consecutive entries of one role become one message, tool results first. A message is replaced, never modified,
    because segments share it.
    """

    def say(self, blocks: list[Json]) -> None:
        if self.history and self.history[-1]["role"] == "user":
            blocks = [*self.history[-1]["content"], *blocks]
            blocks.sort(key=lambda block: block["type"] != "tool_result")
            self.segments.reopen()
        self.history.append({"role": "user", "content": blocks})

    def result(self, call: str, content: list[Json], *, name: str = "", failed: bool = False) -> None:
        """Add a tool result. Text becomes a string, because a list of blocks must not be empty."""
        plain = all(block["type"] == "text" for block in content)
        result = {"type": "tool_result", "tool_use_id": call, "content": text_of(content) if plain else content}
        self.say([result | ({"is_error": True} if failed else {})])

    def answer(self, blocks: list[Json], sent: RecordedRequest | None) -> None:
        """Add a response, and its request if it is known. An empty response is not part of later requests."""
        if sent and self.history:
            self.segments.current.requests.append(_at(sent, len(self.history)))
        if blocks and self.history and self.history[-1]["role"] == "assistant":
            blocks = [*self.history[-1]["content"], *blocks]
            self.segments.reopen()
        if blocks:
            self.history.append({"role": "assistant", "content": blocks})

    def clear(self, calls: Iterable[str], note: str) -> None:
        """Replace the results of these calls by a note in later requests."""
        wanted = set(calls)
        cleared = [_cleared(message, wanted, note) for message in self.history]
        if cleared != self.history:
            self.segments.begin(cleared, "micro-compaction")


class ChatTurns:
    """Builder of OpenAI chat messages.

    It drops images in tool results, which the format does not support. It also drops thinking, unless the block's
    signature is the name of a field in `CHAT_THINKING_FIELDS`.
    """

    def __init__(self) -> None:
        self.segments = Segments()
        self.chat = Chat()
        self.chat.segment = self.segments.current

    @property
    def history(self) -> list[Json]:
        return self.chat.history

    def say(self, blocks: list[Json]) -> None:
        alone = len(blocks) == 1 and blocks[0]["type"] == "text"
        self.chat.say("user", blocks[0]["text"] if alone else [_part(block) for block in blocks])

    def result(self, call: str, content: list[Json], *, name: str = "", failed: bool = False) -> None:
        self.chat.result(call, text_of(content))

    def answer(self, blocks: list[Json], sent: RecordedRequest | None) -> None:
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        calls = [
            {"id": block["id"], "name": block["name"], "arguments": _arguments(block)}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        told = sent or RecordedRequest(0)
        number = len(self.chat.segment.requests)
        self.chat.answer(
            "".join(texts) or None, calls, model=told.model, at=told.at, answered=told.answered, usage=told.usage
        )
        if not sent:
            del self.chat.segment.requests[number:]
        if texts or calls:
            self.chat.history[-1].update(_thoughts(blocks))

    def clear(self, calls: Iterable[str], note: str) -> None:
        wanted = set(calls)
        history = self.done()
        cleared = [
            message | {"content": note} if message.get("tool_call_id") in wanted else message for message in history
        ]
        if cleared != history:
            self.chat.segment = self.segments.begin(cleared, "micro-compaction")

    def restart(self, history: list[Json], cause: Cause) -> None:
        if cause != "rewind" or history != self.done():
            self.chat.segment = self.segments.begin(history, cause)

    def done(self) -> list[Json]:
        return self.chat.done().history

    def whole(self) -> list[Json]:
        """Return the history like `finish`, but keep waiting for missing results."""
        return [*self.history, *self.chat.waiting]

    def state(self) -> State:
        return State.of(self.history, frozenset(self.chat.due), tuple(self.chat.waiting))

    def resume(self, state: State) -> None:
        self.history[:] = state.entries()
        self.chat.due, self.chat.waiting = set(state.due), list(state.waiting)


class ResponsesTurns(_Told):
    """Builder of Responses API items."""

    def say(self, blocks: list[Json]) -> None:
        self.history.append({"role": "user", "content": [_input(block) for block in blocks]})

    def result(self, call: str, content: list[Json], *, name: str = "", failed: bool = False) -> None:
        plain = all(block["type"] == "text" for block in content)
        output = text_of(content) if plain else [_input(block) for block in content]
        self.history.append({"type": "function_call_output", "call_id": call, "output": output})

    def answer(self, blocks: list[Json], sent: RecordedRequest | None) -> None:
        if sent and self.history:
            self.segments.current.requests.append(_at(sent, len(self.history)))
        self.history.extend(item for block in blocks for item in _items(block))

    def clear(self, calls: Iterable[str], note: str) -> None:
        wanted = set(calls)
        cleared = [
            item | {"output": note} if "output" in item and item.get("call_id") in wanted else item
            for item in self.history
        ]
        if cleared != self.history:
            self.segments.begin(cleared, "micro-compaction")


Builder = Turns | ChatTurns | ResponsesTurns
BUILDERS: dict[str, type[Turns] | type[ChatTurns] | type[ResponsesTurns]] = {
    ANTHROPIC: Turns,
    CHAT: ChatTurns,
    RESPONSES: ResponsesTurns,
}


def _items(block: Json) -> list[Json]:
    match block["type"]:
        case "text":
            content = [{"type": "output_text", "text": block["text"]}]
            return [{"type": "message", "role": "assistant", "content": content}]
        case "tool_use":
            call = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
            return [{**call, "arguments": _arguments(block)}]
        case "reasoning":
            return [block]
    return []


def _input(block: Json) -> Json:
    if block["type"] != "image":
        return {"type": "input_text", "text": block["text"]}
    return {"type": "input_image", "image_url": _part(block)["image_url"]["url"]}


def _arguments(call: Json) -> str:
    """Encode arguments as JavaScript does, because most agents are written in it."""
    return json.dumps(call["input"], ensure_ascii=False, separators=(",", ":"))


def _thoughts(blocks: list[Json]) -> Json:
    named = [block for block in blocks if block["type"] == "thinking" and block.get("signature") in CHAT_THOUGHTS]
    return {named[0]["signature"]: "\n".join(block["thinking"] for block in named)} if named else {}


def _at(sent: RecordedRequest, length: int) -> RecordedRequest:
    return RecordedRequest(length, sent.model, sent.at, sent.answered, sent.usage)


def _cleared(message: Json, calls: set[str], note: str) -> Json:
    if all(block.get("tool_use_id") not in calls for block in message["content"]):
        return message
    blocks = [block | {"content": note} if block.get("tool_use_id") in calls else block for block in message["content"]]
    return message | {"content": blocks}


def _part(block: Json) -> Json:
    if block["type"] != "image":
        return block
    source = block["source"]
    return {"type": "image_url", "image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def image(mime: str, data: str) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
