"""For your tests and ours: histories that read like a script, generated ones, and the laws as assertions.

>>> request = conv("u:fix the bug", "a:Let me look.>1", "r1:" + "x = 1\\n" * 200, "a:done", format="openai-chat")

A line is `s:` system, `u:` user, `a:` assistant (`a?thinking:text>1,2` thinks, says and makes calls 1 and 2; each part
may be left out), `r1:` the result of call 1. Results that follow each other answer one batch.

The strategies need hypothesis: pip install 'ibidem[testing]'.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import engine, formats, rules
from .expansion import expand
from .model import Conversation, Opaque, Text, Thinking, ToolCall, ToolResult
from .plan import Edit, Strategy
from .tokens import counter
from .wire import open_document

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ASSISTANT = re.compile(r"a(?:\?(?P<thinks>[^:>]*))?(?::(?P<says>.*?))?(?:>(?P<calls>[\w,.-]+))?", re.DOTALL)
_RESULT = re.compile(r"r(?P<id>[\w.-]+):(?P<text>.*)", re.DOTALL)


@dataclass
class Turn:
    """What one side does before the other is heard."""

    role: str
    says: str | None = None
    thinks: str | None = None
    calls: list[str] = field(default_factory=list)
    results: list[tuple[str, Any]] = field(default_factory=list)
    """Call id and text; or, instead of a text, a list of texts and of None for an image."""


def conv(*lines: str, format: str = "anthropic", calls: Mapping[str, tuple[str, dict[str, Any]]] | None = None) -> Any:
    """A request body from a script. `calls` gives a call its tool and arguments; else it is a Read of `file<id>`."""
    turns: list[Turn] = []
    for line in lines:
        if (result := _RESULT.fullmatch(line)) is not None:
            if not turns or turns[-1].role != "tool":
                turns.append(Turn("tool"))
            turns[-1].results.append((result["id"], result["text"]))
        elif line[:2] in ("u:", "s:"):
            turns.append(Turn({"u": "user", "s": "system"}[line[0]], line[2:]))
        elif (said := _ASSISTANT.fullmatch(line)) is not None:
            made = said["calls"].split(",") if said["calls"] else []
            turns.append(Turn("assistant", said["says"], said["thinks"], made))
        else:
            raise ValueError(f"{line!r}: a line starts with u:, s:, r<id>: or is a[?thinking][:text][>calls]")
    return build(turns, format, calls)


def build(turns: Sequence[Turn], format: str, calls: Mapping[str, tuple[str, dict[str, Any]]] | None = None) -> Any:
    """A request body of that format."""
    return _BUILDERS[format](turns, calls or {})


def _call(ident: str, calls: Mapping[str, tuple[str, dict[str, Any]]]) -> tuple[str, dict[str, Any]]:
    return calls.get(ident, ("Read", {"file_path": f"file{ident}"}))


def _anthropic(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    body: dict[str, Any] = {"model": "claude-test", "max_tokens": 1024, "system": "", "messages": []}
    for turn in turns:
        if turn.role == "system":
            body["system"] += turn.says or ""
        elif turn.role == "user":
            body["messages"].append({"role": "user", "content": turn.says})
        elif turn.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": i, "content": _blocks(t)} for i, t in turn.results]
            body["messages"].append({"role": "user", "content": blocks})
        else:
            content: list[Any] = []
            if turn.thinks is not None:
                content.append({"type": "thinking", "thinking": turn.thinks, "signature": "sig=="})
            if turn.says is not None:
                content.append({"type": "text", "text": turn.says})
            for ident in turn.calls:
                name, arguments = _call(ident, calls)
                content.append({"type": "tool_use", "id": ident, "name": name, "input": arguments})
            body["messages"].append({"role": "assistant", "content": content})
    return body


def _blocks(text: Any) -> Any:
    """The content of a result: a string, or blocks of text and image."""
    if isinstance(text, str):
        return text
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1hZ2U="}}
    return [image if each is None else {"type": "text", "text": each} for each in text]


def _flat(text: Any) -> Any:
    if isinstance(text, str):
        return text
    return [{"type": "text", "text": each} for each in text if each is not None] or "image"


def _openai_chat(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    messages: list[Any] = []
    for turn in turns:
        if turn.role == "tool":
            messages.extend({"role": "tool", "tool_call_id": i, "content": _flat(t)} for i, t in turn.results)
            continue
        message: dict[str, Any] = {"role": turn.role, "content": turn.says}
        if turn.thinks is not None:
            message["reasoning_content"] = turn.thinks
        made = [(ident, *_call(ident, calls)) for ident in turn.calls]
        if made:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, n, a in made
            ]
        messages.append(message)
    return {"model": "gpt-test", "max_completion_tokens": 1024, "messages": messages}


def _openai_responses(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    items: list[Any] = []
    for number, turn in enumerate(turns):
        for ident, text in turn.results:
            output = (
                text if isinstance(text, str) else [{"type": "input_text", "text": t} for t in text if t is not None]
            )
            items.append({"type": "function_call_output", "call_id": ident, "output": output or "image"})
        if turn.thinks is not None and (turn.says is not None or turn.calls):
            summary = [{"type": "summary_text", "text": turn.thinks}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "ZW5j"})
        if turn.says is not None:
            kind = "output_text" if turn.role == "assistant" else "input_text"
            items.append({"type": "message", "role": turn.role, "content": [{"type": kind, "text": turn.says}]})
        for ident in turn.calls:
            name, arguments = _call(ident, calls)
            items.append({"type": "function_call", "call_id": ident, "name": name, "arguments": json.dumps(arguments)})
    return {"model": "gpt-test", "input": items}


def _gemini(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    body: dict[str, Any] = {"contents": []}
    for turn in turns:
        if turn.role == "system":
            body["systemInstruction"] = {"parts": [{"text": turn.says}]}
            continue
        parts: list[Any] = []
        for ident, text in turn.results:
            output = text if isinstance(text, str) else "\n".join(t for t in text if t is not None)
            response = {"id": ident, "name": _call(ident, calls)[0], "response": {"output": output}}
            parts.append({"functionResponse": response})
        if turn.thinks is not None:
            parts.append({"text": turn.thinks, "thought": True})
        if turn.says is not None:
            parts.append({"text": turn.says})
        for ident in turn.calls:
            name, arguments = _call(ident, calls)
            parts.append({"functionCall": {"id": ident, "name": name, "args": arguments}})
        body["contents"].append({"role": "model" if turn.role == "assistant" else "user", "parts": parts})
    return body


_BUILDERS: dict[str, Callable[[Sequence[Turn], Mapping[str, tuple[str, dict[str, Any]]]], Any]] = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
}


# ── generated histories ─────────────────────────────────────────────────────────────────────────────────────────────

MARKER_LIKE = (
    "[DEDUP] identical to tool_call_id=1 (1024 bytes)",
    "before\n[...elided 99 bytes...]\nafter",
    "> [ref: 1, byte-identical]",
    "[tool result unavailable: elided by context management]",
    "[ibidem 7f3a] lines 1-9: unchanged, same as lines 1-9 of result 1, Read(file1), above",
)


def texts() -> SearchStrategy[str]:
    """Tool output: short, long, repeated, in every script, with lone surrogates, or posing as one of our markers."""
    from hypothesis import strategies as st

    lines = st.sampled_from(["x = 1", "    return self", "", '\t"quoted" \\ back', "é🦀 ünï", "-----", "a  b   c  "])
    block = st.lists(lines, min_size=1, max_size=8).map("\n".join)
    long = st.builds(lambda text, times: (text + "\n") * times, block, st.sampled_from([40, 60, 300]))
    pool = st.sampled_from(["same output\n" * 40, "z" * 300, "🦀" * 80, "pass\n" * 1200, "\ud800 lone" * 60])
    marked = st.builds(str.__add__, st.sampled_from(MARKER_LIKE), st.sampled_from(["", "\nx" * 3000]))
    return st.one_of(pool, pool, long, marked, block, st.text(min_size=1, max_size=30))


def turns(max_size: int = 14) -> SearchStrategy[list[Turn]]:
    """The turns of a well-formed conversation that ends in the user's or a tool's."""
    from hypothesis import strategies as st

    says = st.one_of(st.none(), texts().filter(str.strip))
    content = st.one_of(texts(), texts(), st.lists(st.one_of(texts(), st.none()), min_size=1, max_size=3))
    step = st.tuples(says, st.one_of(st.none(), st.just("hm"), texts()), st.lists(content, max_size=3), st.booleans())

    def assemble(steps: list[Any]) -> list[Turn]:
        made = [Turn("user", "go")]
        for says, thinks, results, closes in steps:
            idents = [f"c{len(made)}.{number}" for number in range(len(results))]
            if not idents:
                made += [Turn("assistant", says or "well", thinks), Turn("user", "go on")]
                continue
            answers = list(zip(idents, results, strict=True))
            made += [Turn("assistant", says, thinks, idents), Turn("tool", results=answers)]
            if closes:
                made += [Turn("assistant", "so", thinks), Turn("user", "and then?")]
        return made

    return st.lists(step, max_size=max_size).map(assemble)


def histories(format: str, max_size: int = 14) -> SearchStrategy[Any]:
    """Valid requests of a format, with unknown keys here and there."""
    from hypothesis import strategies as st

    def odd(request: Any, extra: bool) -> Any:
        if extra:
            for message in request[formats.named(format).history_key]:
                message["x_vendor"] = {"number": 1.0, "big": 12345678901234567890123}
        return request

    return st.builds(odd, turns(max_size).map(lambda made: build(made, format)), st.booleans())


def broken_histories(format: str) -> SearchStrategy[Any]:
    """Requests that lost messages, gained others, or hold what no provider expects."""
    from hypothesis import strategies as st

    key = formats.named(format).history_key
    junk: SearchStrategy[Any] = st.sampled_from(
        [None, 5, "text", [], {}, {"role": "user"}, {"role": 5, "content": 7}, {"parts": "x"}]
    )

    def damage(request: Any, order: list[int], drops: list[int], extra: list[Any]) -> Any:
        items = request[key]
        kept = [item for number, item in enumerate(items) if number not in drops]
        for position, value in zip(order, extra, strict=False):
            kept.insert(position % (len(kept) + 1), value)
        request[key] = [kept[number % len(kept)] for number in order] if kept and len(order) % 3 == 0 else kept
        return request

    numbers = st.lists(st.integers(0, 30), max_size=9)
    return st.builds(damage, histories(format, 8), numbers, numbers, st.lists(junk, max_size=3))


# ── the laws ────────────────────────────────────────────────────────────────────────────────────────────────────────

Run = Callable[[Any], engine.Compacted]


def runner(strategies: Sequence[Strategy], format: str) -> Run:
    return lambda request: engine.compact(request, strategies=strategies, format=format)


def read(request: Any, format: str) -> Conversation:
    return formats.parse(open_document(request).value, formats.named(format))


def valid_stays_valid(run: Run, request: Any, format: str) -> None:
    """Law 1."""
    if not rules.violations(read(request, format)):
        found = rules.violations(read(run(request).request, format))
        assert not found, found


def arrival_is_final(run: Run, request: Any, format: str) -> None:
    """Law 2: what was sent for a beginning is how every later request begins."""
    key = formats.named(format).history_key
    whole = run(request).request[key]
    for length in range(len(request[key])):
        start = run({**request, key: request[key][:length]}).request[key]
        assert start == whole[:length], f"the first {length} messages changed"


def never_larger(run: Run, request: Any, format: str) -> None:
    """Law 4, for requests that need no repair: neither the whole nor any part grows, in bytes or in tokens."""
    result = run(request)
    count = counter()
    before, after = _dump(request), _dump(result.request)
    assert len(after) <= len(before)
    assert count(after) <= count(before) or not result.plan
    for edit in result.plan:
        if edit.op == "set" and edit.removed:
            assert len(_utf8(edit.added)) < len(_utf8(edit.removed[0]))
            assert count(edit.added) <= count(edit.removed[0])


def untouched_is_untouched(run: Run, request: Any, format: str) -> None:
    """Law 7: what no edit names is the same object, and the request given is as it was."""
    copy = deepcopy(request)
    result = run(request)
    assert request == copy
    key = formats.named(format).history_key
    edited = {edit.message for edit in result.plan}
    kept = {id(message) for message in result.request[key]}
    for number, message in enumerate(request[key]):
        assert number in edited or id(message) in kept
    for name in request:
        assert name == key or result.request[name] is request[name]
    if not result.plan:
        assert result.request is request


def sacred_is_sacred(run: Run, request: Any, format: str, touches: frozenset[str]) -> None:
    """Law 8: of what stays, everything but what the strategies are named for is as it was."""
    before, after = read(request, format), read(run(request).request, format)
    kept = [_sacred(message, touches) for message in after.messages]
    position = 0
    for message in before.messages:
        wanted = _sacred(message, touches)
        found = next((n for n in range(position, len(kept)) if kept[n] == wanted), None)
        if found is None:
            assert "messages" in touches, f"{wanted} went"
        else:
            position = found + 1


def _sacred(message: Any, touches: frozenset[str]) -> tuple[Any, ...]:
    seen: list[Any] = [message.role]
    for part in message.parts:
        if isinstance(part, Text) and not (message.role == "assistant" and "assistant text" in touches):
            seen.append(part.text)
        elif isinstance(part, Thinking) and "thinking" not in touches:
            seen.append(("thinking", part.text))
        elif isinstance(part, ToolCall):
            seen.append((part.id, part.name, None if "arguments" in touches else part.arguments))
        elif isinstance(part, ToolResult):
            seen.append((part.call_id, [seg.kind for seg in part.segments if isinstance(seg, Opaque)]))
        elif isinstance(part, Opaque):
            seen.append(part.kind)
    return tuple(seen)


def tool_output_cannot_steer(run: Run, request: Any, format: str) -> None:
    """Law 9: with every result's text enciphered, letter for letter, the same is done at the same places."""
    key = formats.named(format).history_key
    cipher = str.maketrans("abcdefghijklmnopqrstuvwxyz[]>.:=", "nopqrstuvwxyzabcdefghijklm(){,;~")
    other = deepcopy(request)
    for message in read(other, format).messages:
        for result in message.results:
            for segment in result.segments:
                if isinstance(segment, Text):
                    _put(other[key], (message.index, *segment.path), segment.text.translate(cipher))
    assert _places(run(request)) == _places(run(other))


def _put(value: Any, path: Sequence[Any], text: str) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text


def _places(result: engine.Compacted) -> list[tuple[Any, ...]]:
    def place(edit: Edit) -> tuple[Any, ...]:
        return edit.strategy, edit.op, edit.message, edit.path

    return [place(edit) for edit in result.plan]


def idempotent(run: Run, request: Any, format: str) -> None:
    """Law 10."""
    once = run(request).request
    twice = run(once)
    assert twice.request == once, [(edit.strategy, edit.message, edit.path) for edit in twice.plan]


def lossless(run: Run, request: Any, format: str) -> None:
    """Law 6: the original comes back from the compacted request alone, as a value and as text, to the byte.

    With it law 5: what a marker points at must stand above, in full, or it would not come back.
    """
    assert expand(run(request).request, format=format) == request
    text = json.dumps(request, indent=1)
    assert expand(run(text).request, format=format) == text


def text_and_value_agree(run: Run, request: Any, format: str) -> None:
    """The same request as JSON text gives the same request as text."""
    text = json.dumps(request)
    assert json.loads(run(text).request) == json.loads(json.dumps(run(request).request))


def _dump(request: Any) -> str:
    return json.dumps(request, ensure_ascii=True)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
