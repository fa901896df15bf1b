"""Pair calls and results by id alone, as codetether does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...markers import codetether
from ...model import INSERTED_INDEX, Conversation, Message, Path, Text, ToolCall, ToolResult
from ...plan import Edit
from ...rules.pairing import pair_calls
from ..strategy import ProviderDemands
from .ported_strategy import codetether_messages

STRATEGY_NAME = "pairing"


def repair_by_id(conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
    """Answer every call without a result, then remove messages whose results have no call before them."""
    messages = codetether_messages(conv)
    answered_ids = {
        part.call_id
        for message in messages
        if message.role == "tool"
        for part in message.parts
        if type(part) is ToolResult
    }
    called_ids: set[str] = set()
    by_name: set[int] = set()
    if conv.dialect.answers == "next" and any(map(_has_unnamed, messages)):
        # Gemini pairs by name and order if a call or its response has no id.
        for answer in pair_calls(conv).answers:
            answered_ids.add(answer.call.id)
            by_name.add(id(answer.result))
    on_server: bool | None = None
    for position, message in enumerate(messages):
        calls = message.calls
        if calls:
            called_ids.update(call.id for call in calls)
            if message.role == "assistant" and (missing := [call for call in calls if call.id not in answered_ids]):
                yield from _add_results(conv, messages, position, missing, demands)
        elif message.role == "tool" and message.parts:
            if any(
                type(part) is not ToolResult or part.call_id in called_ids or id(part) in by_name
                for part in message.parts
            ):
                continue
            # The provider may have the call: it is not in the request (Responses with a server-side history).
            on_server = conv.server_history if on_server is None else on_server
            if not (on_server and demands.override_original()):
                yield from _remove_results(messages, position)


def _has_unnamed(message: Message) -> bool:
    """Return True if a call or a result in the message has no id."""
    return any(isinstance(part, ToolCall | ToolResult) and part.nameless for part in message.parts)


def _add_results(
    conv: Conversation,
    messages: Sequence[Message],
    position: int,
    calls: Sequence[ToolCall],
    demands: ProviderDemands,
) -> Iterator[Edit]:
    message, dialect = messages[position], conv.dialect
    blocks = [dialect.result_block(call, codetether.UNAVAILABLE) for call in calls]
    following = messages[position + 1] if position + 1 < len(messages) else None
    shares = following is not None and following.speaker == "user" and following.index != INSERTED_INDEX
    if dialect.answers == "next" and (shares or len(calls) > 1) and demands.override_original():
        if shares and following is not None:
            yield from _merge_results(conv, following, blocks)
            return
        for wire in dialect.results_message(blocks):
            yield _insertion("after", message.index, (), wire, len(calls))
        return
    for block in blocks:
        for wire in dialect.results_message([block]):
            yield _insertion("after", message.index, (), wire, 1)


def _merge_results(conv: Conversation, message: Message, blocks: Sequence[Any]) -> Iterator[Edit]:
    """Put result blocks at the start of a user message."""
    parts = conv.dialect.parts_path(message)
    if parts is not None:
        for block in blocks:
            yield _insertion("before", message.index, (*parts, 0), block, 1)
        return
    for text in message.parts:
        if type(text) is Text:
            value = [*blocks, conv.dialect.text_block(text.text)]
            yield _insertion("set", message.index, text.path, value, len(blocks))


def _remove_results(messages: Sequence[Message], position: int) -> Iterator[Edit]:
    message = messages[position]
    shares = position + 1 < len(messages) and messages[position + 1].index == message.index != INSERTED_INDEX
    paths: list[Path] = [part.path for part in message.parts] if shares else [()]
    for number, path in enumerate(paths):
        yield Edit(
            strategy=STRATEGY_NAME,
            op="drop",
            message=message.index,
            path=path,
            hits=int(number == 0),
            reason="a result without its call",
        )


def _insertion(op: Any, index: int, path: Path, value: Any, hits: int) -> Edit:
    return Edit(
        strategy=STRATEGY_NAME,
        op=op,
        message=index,
        path=path,
        value=value,
        hits=hits,
        counted_bytes=0,
        reason="a call without its result",
    )
