"""A provider that clears tool results and compacts the history, as the request asks.

>>> with Upstream(Clearing(lambda _: Calls(("Read", {"file_path": "a.py"})))) as provider:
...     client = anthropic.Anthropic(base_url=provider.url, api_key="any")

Anthropic Messages has `context_management.edits` (`clear_tool_uses_20250919`, `clear_thinking_20251015` and
`compact_20260112`) and the field `compaction`, which compacts on demand. OpenAI Responses has `context_management` with
a `compact_threshold`. The provider stores no state: it derives the model's view from each request. A compaction block
hides everything before it, whether the client still sends that or not. A token is four bytes of JSON.

`Signing(Clearing(script))` signs thinking for the history that the client sent, cleared or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .answers import Answer, ContextManagement
from .dialects import route_for
from .dialects.openai_responses import compaction_item
from .requests_seen import Seen

PLACEHOLDER = "[the provider cleared this tool result]"
"""Text that the model sees instead of a tool result that was cleared."""

THINKING = ("thinking", "redacted_thinking")
CLEAR_TOOL_USES, CLEAR_THINKING, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
CLEAR_AT, KEEP_TOOL_USES, KEEP_THINKING_TURNS, COMPACT_AT = 100_000, 3, 1, 150_000
"""Anthropic's defaults."""
COMPACT_RESPONSES_AT = 200_000

Body = Mapping[str, Any]


class Clearing:
    """A script around another one, for requests of Anthropic Messages and OpenAI Responses. Others are not changed."""

    def __init__(self, script: Callable[[Seen], Answer]) -> None:
        self._script = script
        self.seen_by_model: list[list[Any]] = []
        """Messages or input items that the model could see, for each request; only the summary after a compaction."""

    def __call__(self, seen: Seen) -> Answer:
        route, body = route_for(seen.path), seen.json
        view = _VIEWS.get(route.dialect.format) if route is not None else None
        management = view(body) if view is not None else None
        self.seen_by_model.append(_history_of(management.visible if management is not None else body))
        answer = self._script(seen)
        if management is None or answer.status >= 400:
            return answer
        parts = answer.parts if management.visible else ()  # after a compaction that pauses, the model is not called
        return replace(answer, parts=parts, context_management=management)


def since_compaction(messages: Sequence[Any]) -> list[Any]:
    """Return the messages in Anthropic's format from the last compaction block on; all without one.

    A block without a summary is a failed compaction, and hides no messages.
    """
    for place in range(len(messages) - 1, -1, -1):
        blocks = _content_blocks(messages[place])
        for first in range(len(blocks) - 1, -1, -1):
            if blocks[first].get("type") == "compaction" and blocks[first].get("content"):
                return [{**messages[place], "content": blocks[first:]}, *messages[place + 1 :]]
    return list(messages)


# ── Anthropic Messages ──────────────────────────────────────────────────────────────────────────────────────────────


def _anthropic_view(body: Body) -> ContextManagement | None:
    if not isinstance(body.get("messages"), list):
        return None
    visible: Body = {**body, "messages": since_compaction(body["messages"])}
    if isinstance(body.get("compaction"), dict):
        return _compact_view(visible, None, pauses=True)
    settings = body.get("context_management")
    if not isinstance(settings, dict):
        return ContextManagement(visible=visible)
    reports: list[Body] = []
    edits = [edit for edit in settings.get("edits") or () if isinstance(edit, dict)]
    for edit in edits:
        if clear := _CLEARS.get(str(edit.get("type"))):
            visible, report = clear(visible, edit)
            reports += [report] if report else []
    for edit in edits:
        if edit.get("type") == COMPACT and _estimate_tokens(visible) >= _setting_value(edit.get("trigger"), COMPACT_AT):
            return _compact_view(visible, tuple(reports), pauses=edit.get("pause_after_compaction") is True)
    return ContextManagement(visible=visible, applied_edits=tuple(reports))


def _compact_view(body: Body, reports: tuple[Body, ...] | None, pauses: bool) -> ContextManagement:
    summary = _make_summary(body["messages"])
    block = {"type": "compaction", "content": summary}
    visible: Body = {} if pauses else {**body, "messages": [{"role": "assistant", "content": [block]}]}
    return ContextManagement(visible=visible, applied_edits=reports, summary=summary, summarized=body)


def _clear_tool_uses(body: Body, edit: Body) -> tuple[Body, Body | None]:
    """Return the request without its oldest tool results, and the report.

    If no result is cleared, return the request itself and None.
    """
    uses = [
        block for message in body["messages"] for block in _content_blocks(message) if block.get("type") == "tool_use"
    ]
    trigger, excluded_tools = edit.get("trigger"), edit.get("exclude_tools") or ()
    by_uses = isinstance(trigger, dict) and trigger.get("type") == "tool_uses"
    if (len(uses) if by_uses else _estimate_tokens(body)) < _setting_value(trigger, CLEAR_AT):
        return body, None
    can_clear = [block for block in uses if block.get("name") not in excluded_tools]
    cleared_uses = can_clear[: max(0, len(can_clear) - _setting_value(edit.get("keep"), KEEP_TOOL_USES))]
    names, inputs = {block.get("id") for block in cleared_uses}, edit.get("clear_tool_inputs")
    emptied_ids = {block.get("id") for block in cleared_uses if inputs is True or block.get("name") in (inputs or ())}
    after = _map_blocks(body, lambda block: _without_tool_use(block, names, emptied_ids))
    freed_tokens = _estimate_tokens(body) - _estimate_tokens(after)
    if not cleared_uses or freed_tokens < _setting_value(edit.get("clear_at_least"), 0):
        return body, None
    counts = {"cleared_tool_uses": len(cleared_uses), "cleared_input_tokens": max(0, freed_tokens)}
    return after, {"type": CLEAR_TOOL_USES, **counts}


def _without_tool_use(block: Body, results: set[Any], inputs: set[Any]) -> Body:
    if block.get("type") == "tool_result" and block.get("tool_use_id") in results:
        return {**block, "content": PLACEHOLDER}
    return {**block, "input": {}} if block.get("type") == "tool_use" and block.get("id") in inputs else block


def _clear_thinking(body: Body, edit: Body) -> tuple[Body, Body | None]:
    """Return the request without the thinking of older turns, and the report. A user message ends a turn."""
    keep, messages = edit.get("keep"), body["messages"]
    if keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all"):
        return body, None
    turn, turns = 0, []
    for message in messages:
        turn += message.get("role") == "user" and not any(
            b.get("type") == "tool_result" for b in _content_blocks(message)
        )
        turns.append(turn if any(block.get("type") in THINKING for block in _content_blocks(message)) else None)
    thinking_turns = sorted({each for each in turns if each is not None})
    cleared_turns = thinking_turns[: max(0, len(thinking_turns) - _setting_value(keep, KEEP_THINKING_TURNS))]
    if not cleared_turns:
        return body, None
    after = {
        **body,
        "messages": [
            _without_thinking(message) if turn in cleared_turns else message
            for message, turn in zip(messages, turns, strict=True)
        ],
    }
    counts = {
        "cleared_thinking_turns": len(cleared_turns),
        "cleared_input_tokens": _estimate_tokens(body) - _estimate_tokens(after),
    }
    return after, {"type": CLEAR_THINKING, **counts}


def _without_thinking(message: Body) -> Body:
    return {**message, "content": [block for block in _content_blocks(message) if block.get("type") not in THINKING]}


_CLEARS = {CLEAR_TOOL_USES: _clear_tool_uses, CLEAR_THINKING: _clear_thinking}


# ── OpenAI Responses ────────────────────────────────────────────────────────────────────────────────────────────────


def _responses_view(body: Body) -> ContextManagement | None:
    if not isinstance(body.get("input"), list):
        return None
    items = body["input"]
    places = [place for place, item in enumerate(items) if isinstance(item, dict) and item.get("type") == "compaction"]
    visible = {**body, "input": items[places[-1] :] if places else items}
    settings = body.get("context_management")
    for entry in settings if isinstance(settings, list) else ():
        if isinstance(entry, dict) and entry.get("type") == "compaction":
            threshold = entry.get("compact_threshold")
            if _estimate_tokens(visible) >= (COMPACT_RESPONSES_AT if threshold is None else threshold):
                summary = _make_summary(visible["input"])
                after = {**body, "input": [compaction_item(summary)]}
                return ContextManagement(visible=after, summary=summary, summarized=visible)
    return ContextManagement(visible=visible)


_VIEWS: dict[str, Callable[[Body], ContextManagement | None]] = {
    "anthropic": _anthropic_view,
    "openai-responses": _responses_view,
}


# ── both ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _history_of(body: Body) -> list[Any]:
    history = body.get("messages", body.get("input"))
    return history if isinstance(history, list) else []


def _make_summary(history: Sequence[Any]) -> str:
    return f"Summary of {len(history)} messages."


def _estimate_tokens(body: Body) -> int:
    parameters = [body.get(key) for key in ("tools", "system", "instructions")]
    return len(json.dumps([parameters, _history_of(body)], ensure_ascii=False).encode("utf-8", "surrogatepass")) // 4


def _setting_value(setting: Any, default: int) -> int:
    """Return the number in a setting such as `{"type": "input_tokens", "value": 5000}`."""
    value = setting.get("value") if isinstance(setting, dict) else None
    return value if isinstance(value, int) else default


def _content_blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _map_blocks(body: Body, change: Callable[[Body], Body]) -> Body:
    """Return the request with each content block changed. Messages without changes are the same objects."""
    messages = []
    for message in body["messages"]:
        blocks = _content_blocks(message)
        new_blocks = [change(block) for block in blocks]
        same = all(before is after for before, after in zip(blocks, new_blocks, strict=True))
        messages.append(message if same else {**message, "content": new_blocks})
    return {**body, "messages": messages}
