"""What may go beside results, how it goes, and that it comes back to the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibidem
from ibidem.markers.eviction_markers import EvictedMarker, is_stub_of, parse_stub
from ibidem.store import MemoryStore
from ibidem.testing import conv
from ibidem.wire.json_style import STRING_ENCODERS as WAYS
from ibidem.wire.json_style import encode_like
from tests.support.evict import NO_CLOCKS

FREE = ibidem.CachePricing(read=1.0, write=1.0)
"""A provider without a cache: whatever may go, goes at once."""
CONTENT = "\n".join(f"line {n} of a file, été {n * 7919 % 1000}" for n in range(60))
PATCH = "*** Begin Patch\n*** Add File: a.py\n" + "\n".join(f"+{n} = {n * 31}" for n in range(200)) + "\n*** End Patch"


def other(seed: int) -> str:
    return "\n".join(f"value {n * seed} and what else there is to say" for n in range(30))


def run(request: Any, store: Any = None, **fields: Any) -> ibidem.Compacted:
    looking = ibidem.Evict(**{"economy": FREE, **NO_CLOCKS, "mask": 1, "edit_arguments": (0, 0), **fields})
    return ibidem.compact(request, strategies=[looking], store=store or MemoryStore())


def chat(arguments: str, later: int = 4) -> dict[str, Any]:
    """A call with these arguments, and some that came later."""
    request: dict[str, Any] = conv(
        "u:go",
        "a>1",
        "r1:done",
        *(line for n in range(2, later + 2) for line in (f"a>{n}", f"r{n}:done")),
        format="openai-chat",
    )
    request["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments
    return request


def arguments_of(request: Any) -> str:
    found = request if isinstance(request, dict) else json.loads(request)
    sent: str = found["messages"][1]["tool_calls"][0]["function"]["arguments"]
    return sent


# ── arguments that are a string ─────────────────────────────────────────────────────────────────────────────────────

RAW = json.dumps(CONTENT, ensure_ascii=False)
SPELLINGS = {
    "compact": ('{"path":"a.py","content":', RAW, ',"mode":1.5}'),
    "with spaces, in ASCII": ('{"path": "a.py", "content": ', json.dumps(CONTENT), ', "mode": 1.5}'),
    "indented": ('{\n  "path": "é",\n  "content": ', RAW, "\n}"),
    "numbers and space of its own": (' { "n" : 1.50E+1 ,\n"content":', RAW, ', "x":[ 1e5,{}], "y": "\\u0041" } '),
    "safe in HTML": ('{"content":', RAW.replace("file", "\\u003cfile\\u0026"), "}"),
}
"""Of arguments: what stands before the long string, the string, and what stands behind it."""


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_a_long_string_in_json_text_goes_and_every_other_byte_stays(spelled: tuple[str, str, str]) -> None:
    before, _, after = spelled
    request, store = chat("".join(spelled)), MemoryStore()
    for body in (request, json.dumps(request), json.dumps(request, ensure_ascii=False, separators=(",", ":"))):
        found = run(body, store, arguments=1024)
        sent = arguments_of(found.request)
        assert sent.startswith(before)
        assert sent.endswith(after)
        assert "60 lines left out" in json.loads(sent)["content"]
        assert list(json.loads(sent)) == list(json.loads("".join(spelled)))
        assert not ibidem.validate(found.request, format="openai-chat")
        assert ibidem.expand(found.request, store=store) == body
        assert run(found.request, store, arguments=1024).request == found.request


@pytest.mark.parametrize(
    "odd",
    [
        '{"content": ' + json.dumps(CONTENT) + ', "content": "twice"}',
        '{"content": ' + json.dumps(CONTENT).replace("f", "\\u0066", 1) + "}",
        '{"content": ' + json.dumps(CONTENT),
        json.dumps(CONTENT),
        json.dumps([CONTENT]),
    ],
    ids=["a key that stands twice", "a spelling that cannot be told", "cut off", "a bare string", "a list"],
)
def test_what_would_not_come_back_to_the_byte_stays(odd: str) -> None:
    request = chat(odd)
    assert run(request, arguments=1024).request is request


def test_free_text_goes_as_a_whole() -> None:
    """A custom tool of the Responses format takes any text."""
    request = conv("u:go", *(line for n in range(1, 5) for line in (f"a>{n}", f"r{n}:done")), format="openai-responses")
    item = {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": PATCH}
    request["input"][1:1] = [item, {"type": "custom_tool_call_output", "call_id": "p", "output": "ok"}]
    store = MemoryStore()
    found = run(request, store, arguments=1024)
    assert found.request["input"][1]["input"].endswith("203 lines left out, old]")
    assert ibidem.expand(found.request, store=store) == request


def test_an_argument_that_something_refers_to_stays() -> None:
    """A file that was written and read back: the read says that it stands in the call."""
    call = ("Write", {"path": "a.py", "content": CONTENT})
    lines = [line for n in range(3, 8) for line in (f"a>{n}", f"r{n}:done")]
    request = conv("u:go", "a>1", "r1:done", "a>2", f"r2:{CONTENT}", *lines, format="openai-chat", calls={"1": call})
    assert "call 1.content" in ibidem.compact(request).request["messages"][4]["content"]
    assert "arguments" not in {edit.strategy for edit in run(request, arguments=1024, mask=6).plan}


def test_a_call_that_quotes_a_marker_is_left_alone_by_expand() -> None:
    store = MemoryStore()
    lines = [line for n in range(1, 6) for line in (f"a>{n}", f"r{n}:{CONTENT if n == 1 else 'done'}")]
    found = run(conv("u:go", *lines, format="openai-chat"), store, mask=2).request
    marker = next(message["content"] for message in found["messages"] if "left out" in str(message["content"]))
    found["messages"].append({"role": "assistant", "content": f"I see {marker}"})
    found["messages"].append({"role": "user", "content": "Yes"})
    assert ibidem.expand(found, store=store)["messages"][-2:] == found["messages"][-2:]


@given(st.text('ab<>&"\\\n é🦀\u2028['), st.text('ab<>&"\\\n [x', max_size=4), st.sampled_from(WAYS))
def test_a_string_is_spelled_again_as_it_was(old: str, before: str, way: Any) -> None:
    """Whatever stands before the marker that took its place."""
    token, sent = way(old), f"{before}[ibidem 123"
    assert json.loads(encode_like(token, old, sent)) == sent
    assert encode_like(encode_like(token, old, sent), sent, old) == token


# ── stubs ───────────────────────────────────────────────────────────────────────────────────────────────────────────

FIRST, NEXT = str(EvictedMarker("123", "a" * 12, 5)), str(EvictedMarker("123", "", 2))
NO_STUBS = {
    "no marker at all": "plain",
    "behind other words": f"see {FIRST}",
    "no reference": NEXT,
    "a reference on the second": f"{NEXT}\n{FIRST}",
    "two references": f"{FIRST}\n{FIRST}",
    "a marker of another kind": f"{FIRST}\n[ibidem 123: unchanged, same as result 1]",
    "half a marker": f"{FIRST}\n[ibidem 123",
    "another conversation's": FIRST.replace("123", "124"),
}


@pytest.mark.parametrize("case", NO_STUBS)
def test_what_we_cannot_have_left_is_no_stub(case: str) -> None:
    assert parse_stub(NO_STUBS[case], "123") is None


def test_a_stub_says_what_it_stands_for() -> None:
    assert parse_stub(f"kept\n{FIRST}\nkept\n{NEXT}", "123") == ("a" * 12, ((1, 5), (3, 2)))


@given(st.lists(st.sampled_from(["a", "b", "", "[ibidem 123: 2 lines left out]"]), max_size=8))
def test_a_text_stands_for_what_it_is_left_of_and_for_nothing_else(lines: list[str]) -> None:
    text = "\n".join(lines)
    original = "\n".join("x\ny" if "left out" in line else line for line in lines)
    assert is_stub_of(text, original, "123")
    assert not is_stub_of(text, f"{original}\nmore", "123")
    assert not is_stub_of(text, f"more\n{original}", "123") or "left out" in text or len(set(lines)) < 2
