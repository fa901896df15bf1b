"""The invariants as assertions. Each takes a function that rewrites a request, a request, and its format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from .. import formats, rules
from ..billing.cache_ttl import CacheMode
from ..engine import pipeline
from ..engine.expansion import expand
from ..model import Conversation, Opaque, Text, Thinking, ToolCall, ToolResult
from ..plan import Edit
from ..strategies.strategy import Planner
from ..tokens import counter_for
from ..wire import open_document

if TYPE_CHECKING:
    from ..store import Store

Run = Callable[[Any], pipeline.Compacted]
"""A function that rewrites a request."""


def runner(strategies: Sequence[Planner], format: str, cache: CacheMode = "off", store: Store | None = None) -> Run:
    """Return a function that compacts a request. `cache` and `store` are those of `compact`."""
    return lambda request: pipeline.compact(request, strategies=strategies, format=format, cache=cache, store=store)


def read(request: Any, format: str) -> Conversation:
    """Parse a request."""
    return formats.parse_request(open_document(request).value, formats.format_named(format))


def valid_stays_valid(run: Run, request: Any, format: str) -> None:
    """Invariant 1: a valid request stays valid."""
    if not rules.violations(read(request, format)):
        violations = rules.violations(read(run(request).request, format))
        assert not violations, violations


def arrival_is_final(run: Run, request: Any, format: str) -> None:
    """Invariant 2: every later request starts with the bytes that were sent for its start."""
    key = formats.format_named(format).history_key
    whole = run(request).request[key]
    for length in range(len(request[key])):
        start = run({**request, key: request[key][:length]}).request[key]
        assert start == whole[:length], f"the first {length} messages changed"


def never_larger(run: Run, request: Any, format: str) -> None:
    """Invariant 4, for requests that need no repair: neither the whole nor any part grows, in bytes or tokens.

    The same holds for the request as JSON, with letters escaped or not. (Text in the HTML-safe JSON style may need a
    few bytes to be recognized as such.)
    """
    result = run(request)
    count = counter_for()
    before, after = _ascii_json(request), _ascii_json(result.request)
    for way, of_text in ((_ascii_json, True), (_compact_json, True), (_html_safe_json, False)):
        text = way(request)
        assert len(_encode_utf8(way(result.request))) <= len(_encode_utf8(text)), way.__name__
        assert not of_text or len(_encode_utf8(run(text).request)) <= len(_encode_utf8(text)), way.__name__
    assert count(after) <= count(before) or not result.plan
    for edit in result.plan:
        if edit.op == "set" and edit.removed:
            assert len(_encode_utf8(edit.added)) < len(_encode_utf8(edit.removed[0]))
            assert count(edit.added) <= count(edit.removed[0])


def untouched_is_untouched(run: Run, request: Any, format: str) -> None:
    """Invariant 7: values without an edit are the same objects, and the given request is not modified."""
    copy = deepcopy(request)
    result = run(request)
    assert request == copy
    key = formats.format_named(format).history_key
    edited_indexes = {edit.message for edit in result.plan}
    object_ids = {id(message) for message in result.request[key]}
    for number, message in enumerate(request[key]):
        assert number in edited_indexes or id(message) in object_ids
    for name in request:
        assert name == key or result.request[name] is request[name]
    if not result.plan:
        assert result.request is request


def sacred_is_sacred(run: Run, request: Any, format: str, touches: frozenset[str]) -> None:
    """Invariant 8: in the remaining messages, only the kinds of text in `touches` change."""
    before, after = read(request, format), read(run(request).request, format)
    protected_after = [_protected_content(message, touches) for message in after.messages]
    position = 0
    for message in before.messages:
        protected_part = _protected_content(message, touches)
        match = next((n for n in range(position, len(protected_after)) if protected_after[n] == protected_part), None)
        if match is None:
            assert "messages" in touches, f"{protected_part} is missing"
        else:
            position = match + 1


def _protected_content(message: Any, touches: frozenset[str]) -> tuple[Any, ...]:
    content: list[Any] = [message.role]
    for part in message.parts:
        if isinstance(part, Text) and not (message.role == "assistant" and "assistant text" in touches):
            content.append(part.text)
        elif isinstance(part, Thinking) and "thinking" not in touches:
            content.append(("thinking", part.text))
        elif isinstance(part, ToolCall):
            content.append((part.id, part.name, None if "arguments" in touches else part.arguments))
        elif isinstance(part, ToolResult):
            content.append((part.call_id, [seg.kind for seg in part.segments if isinstance(seg, Opaque)]))
        elif isinstance(part, Opaque):
            content.append(part.kind)
    return tuple(content)


def tool_output_cannot_steer(run: Run, request: Any, format: str) -> None:
    """Invariant 9: with the letters of every result's text replaced by a cipher, the edits are at the same
    positions."""
    key = formats.format_named(format).history_key
    cipher = str.maketrans("abcdefghijklmnopqrstuvwxyz[]>.:=", "nopqrstuvwxyzabcdefghijklm(){,;~")
    other = deepcopy(request)
    for message in read(other, format).messages:
        for result in message.results:
            for segment in result.segments:
                if isinstance(segment, Text):
                    set_text(other[key], (message.index, *segment.path), segment.text.translate(cipher))
    assert _edit_positions(run(request)) == _edit_positions(run(other))


def set_text(value: Any, path: Sequence[Any], text: str) -> None:
    """Replace the text at a path."""
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text


def _edit_positions(result: pipeline.Compacted) -> list[tuple[Any, ...]]:
    def position_of(edit: Edit) -> tuple[Any, ...]:
        return edit.strategy, edit.op, edit.message, edit.path

    return [position_of(edit) for edit in result.plan]


def idempotent(run: Run, request: Any, format: str) -> None:
    """Invariant 10: compacting a compacted request changes nothing more."""
    once = run(request).request
    twice = run(once)
    assert twice.request == once, [(edit.strategy, edit.message, edit.path) for edit in twice.plan]


def lossless(run: Run, request: Any, format: str) -> None:
    """Invariant 6: the compacted request alone gives the original, as a value and as text, byte for byte.

    This includes invariant 5: the text that a marker refers to must be above, complete, or it could not be restored.
    """
    assert expand(run(request).request, format=format) == request
    text = json.dumps(request, indent=1)
    assert expand(run(text).request, format=format) == text


def text_and_value_agree(run: Run, request: Any, format: str) -> None:
    """A request as JSON text gets the same edits as its value."""
    text = json.dumps(request)
    assert json.loads(run(text).request) == json.loads(json.dumps(run(request).request))


# ── with cache breakpoints ───────────────────────────────────────────────────────────────────────────────────────

DIRECTIVE_FIELDS = frozenset({"cache_control", "prompt_cache_key", "prompt_cache_retention"})


def without_breakpoints(value: Any) -> Any:
    """Return a request without cache directives, and with a list of one plain text block as that text."""
    if isinstance(value, dict):
        return {key: without_breakpoints(each) for key, each in value.items() if key not in DIRECTIVE_FIELDS}
    if not isinstance(value, list):
        return value
    if len(value) == 1 and isinstance(value[0], dict) and value[0].keys() - DIRECTIVE_FIELDS == {"type", "text"}:
        return value[0]["text"]
    return [without_breakpoints(each) for each in value]


def breakpoints_change_no_text(run: Run, plain: Run, request: Any, format: str) -> None:
    """Invariants 2 to 5 and 8 with cache breakpoints: except for them, the same request is sent as without. So they add
    and remove no text and no tokens."""
    with_breakpoints, without_any = run(request), plain(request)
    assert without_breakpoints(with_breakpoints.request) == without_breakpoints(without_any.request)
    assert with_breakpoints.plan == without_any.plan


def breakpoints_touch_nothing_else(run: Run, request: Any, format: str) -> None:
    """Invariant 7: values without an added breakpoint or an edit are the same objects, and the given request is not
    modified."""
    copy = deepcopy(request)
    result = run(request)
    assert request == copy
    key = formats.format_named(format).history_key
    paths = [mark.path for mark in result.marks]
    changed_indexes = {path[1] for path in paths if path[0] == key} | {edit.message for edit in result.plan}
    for number, message in enumerate(request[key]):
        assert number in changed_indexes or any(message is each for each in result.request[key])
    for name in request:
        assert name == key or name in {path[0] for path in paths} or result.request[name] is request[name]
    if not result.plan and not result.marks:
        assert result.request is request


def breakpoints_are_removed(run: Run, request: Any, format: str, store: Store) -> None:
    """Invariant 6: with the store of the runner the original is restored, as a value and as text, byte for byte."""
    assert expand(run(request).request, format=format, store=store) == request
    for text in (json.dumps(request), json.dumps(request, indent=1), _compact_json(request)):
        assert expand(run(text).request, format=format, store=store) == text


def _ascii_json(request: Any) -> str:
    return json.dumps(request, ensure_ascii=True)


def _compact_json(request: Any) -> str:
    return json.dumps(request, ensure_ascii=False, separators=(",", ":"))


def _html_safe_json(request: Any) -> str:
    """Write JSON that may be embedded in an HTML page."""
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", _compact_json(request))


def _encode_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
