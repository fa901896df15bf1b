"""What is read out of a passing answer: every format, every way it may travel, and garbage."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.billing.usage import Usage
from ibidem.providers import usage_reader
from ibidem.providers.usage_reader import UsageReader, make_decoder
from ibidem.testing.dialects.anthropic import frame_event
from ibidem.wire import content_encoding, zstd

EVENTS = "text/event-stream; charset=utf-8"
JSON = "application/json"
FRAMES = "application/vnd.amazon.eventstream"


def sse(*events: Any, named: bool = True, end: str = "\n") -> bytes:
    """With a comment and a ping among them, as they come."""
    lines: list[str] = [': a comment that says "usage": {"input_tokens": 99}', ""]
    for event in events:
        if named and isinstance(event, dict):
            lines.append(f"event: {event.get('type', 'message')}")
        lines += [f"data: {event if isinstance(event, str) else json.dumps(event)}", ""]
        lines += ["event: ping", 'data: {"type": "ping"}', ""]
    return "".join(line + end for line in lines).encode()


def frames(*events: Any) -> bytes:
    """As Amazon sends them."""
    return b"".join(frame_event(f"data: {json.dumps(event)}".encode()) for event in events)


def read(format: str, kind: str, *pieces: bytes, encoding: str = "") -> Usage | None:
    reader = UsageReader(format, kind, encoding)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()


CREATION = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 12}
ANTHROPIC = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 42,
    "cache_read_input_tokens": 1000,
    "cache_creation": CREATION,
    "output_tokens": 70,
    "service_tier": "standard",
    "server_tool_use": None,
}
ANTHROPIC_STREAM: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "usage": {**ANTHROPIC, "output_tokens": 1}}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 'he said "usage": {"input_tokens": 8}\n'}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 70}},
    {"type": "message_stop"},
]
CHAT = {
    "prompt_tokens": 1000,
    "completion_tokens": 70,
    "total_tokens": 1070,
    "prompt_tokens_details": {"cached_tokens": 900, "audio_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": 50},
}
CHAT_STREAM = [
    {"choices": [{"delta": {"content": "usage"}}], "usage": None},
    {"choices": [], "usage": CHAT},
    "[DONE]",
]
RESPONSES = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 900},
    "output_tokens": 70,
    "output_tokens_details": {"reasoning_tokens": 50},
}
RESPONSES_STREAM = [
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.output_text.delta", "delta": "the usage of it"},
    {"type": "response.completed", "response": {"output": ["x" * 1000], "usage": RESPONSES}},
]
GEMINI = {
    "promptTokenCount": 1000,
    "cachedContentTokenCount": 900,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 50,
}
GEMINI_STREAM = [
    {"candidates": [{}], "usageMetadata": {"promptTokenCount": 1000, "cachedContentTokenCount": 900}},
    {"candidates": [{}], "usageMetadata": GEMINI},
]

CLAUDES = Usage(fresh=5, read=1000, written=30, written_1h=12, output=70)
OPENAIS = Usage(fresh=100, read=900, output=70, reasoning=50)

ANSWERS: dict[str, tuple[str, str, bytes, Usage]] = {
    "anthropic, whole": ("anthropic", JSON, json.dumps({"id": "m", "usage": ANTHROPIC}).encode(), CLAUDES),
    "anthropic, stream": ("anthropic", EVENTS, sse(*ANTHROPIC_STREAM), CLAUDES),
    "anthropic, stream with CRLF": ("anthropic", EVENTS, sse(*ANTHROPIC_STREAM, end="\r\n"), CLAUDES),
    "anthropic, Amazon's stream": ("anthropic", FRAMES, frames(*ANTHROPIC_STREAM), CLAUDES),
    "chat, whole": ("openai-chat", JSON, json.dumps({"usage": CHAT}, indent=2).encode(), OPENAIS),
    "chat, stream": ("openai-chat", EVENTS, sse(*CHAT_STREAM, named=False), OPENAIS),
    "chat, stream with CRLF": ("openai-chat", EVENTS, sse(*CHAT_STREAM, named=False, end="\r\n"), OPENAIS),
    "responses, whole": ("openai-responses", JSON, json.dumps({"usage": RESPONSES}).encode(), OPENAIS),
    "responses, stream": ("openai-responses", EVENTS, sse(*RESPONSES_STREAM), OPENAIS),
    "gemini, whole": ("gemini", JSON, json.dumps({"usageMetadata": GEMINI}).encode(), OPENAIS),
    "gemini, stream": ("gemini", EVENTS, sse(*GEMINI_STREAM, named=False, end="\r\n"), OPENAIS),
    "gemini, a list": ("gemini", JSON, json.dumps(GEMINI_STREAM).replace("}, {", "}\n,\r\n{").encode(), OPENAIS),
}

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "X-GZIP ": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize(("format", "kind", "body", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_counts_are_read(format: str, kind: str, body: bytes, expected: Usage, encoding: str) -> None:
    assert read(format, kind, PACKERS[encoding](body), encoding=encoding) == expected


def test_counts_are_read_from_brotli_where_it_is_installed() -> None:
    brotli = pytest.importorskip("brotli")
    format, kind, body, expected = ANSWERS["anthropic, stream"]
    assert read(format, kind, brotli.compress(body), encoding="br") == expected


@settings(deadline=None)
@given(st.sampled_from(sorted(ANSWERS)), st.sampled_from(sorted(PACKERS)), st.data())
def test_it_does_not_matter_where_the_bytes_are_split(name: str, encoding: str, data: st.DataObject) -> None:
    format, kind, body, expected = ANSWERS[name]
    packed = PACKERS[encoding](body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packed)), max_size=12)))
    pieces = [packed[start:end] for start, end in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
    assert read(format, kind, *pieces, encoding=encoding) == expected


@pytest.mark.parametrize(("format", "kind", "body", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_byte_by_byte(format: str, kind: str, body: bytes, expected: Usage) -> None:
    packed = gzip.compress(body)
    assert read(format, kind, *(packed[place : place + 1] for place in range(len(packed))), encoding="gzip") == expected
    assert read(format, kind, *(body[place : place + 1] for place in range(len(body)))) == expected


@given(
    st.sampled_from(sorted(usage_reader.USAGES)),
    st.sampled_from([EVENTS, JSON, FRAMES, ""]),
    st.lists(st.binary()),
    st.data(),
)
def test_garbage_gives_nothing_and_never_raises(
    format: str, kind: str, pieces: list[bytes], data: st.DataObject
) -> None:
    encoding = data.draw(st.sampled_from([*PACKERS, "br", "compress", "gzip, br", "\x00"]))
    assert read(format, kind, *pieces, encoding=encoding) is None


NAMES = ("context_management", "applied_edits", "content", "content_block", "item", "output", "iterations", "type")
WORDS = st.sampled_from(["compaction", "clear_tool_uses_20250919"])
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["usage", "message", "response", "usageMetadata", *NAMES, *ANTHROPIC, *CHAT, *GEMINI]),
            inner,
        )
    ),
)


@given(st.sampled_from(sorted(usage_reader.USAGES)), JSONS, st.booleans())
def test_counts_of_any_shape_never_raise_and_are_never_negative(format: str, value: Any, stream: bool) -> None:
    body = json.dumps(value).encode()
    found = read(format, EVENTS, b"data: " + body + b"\n\n") if stream else read(format, JSON, body)
    assert found is None or min(found.fresh, found.read, found.written, found.written_1h, found.output) >= 0


# ── context management ──────────────────────────────────────────────────────────────────────────────────────────────

CLEARED = {
    "applied_edits": [
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 3, "cleared_input_tokens": 900},
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000},
    ]
}
COMPACTION = {"type": "compaction", "content": "Summary."}
ITERATIONS = [
    {
        "type": "compaction",
        "input_tokens": 180_000,
        "output_tokens": 3_500,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 50,
        "cache_creation": {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 10},
    },
    {"type": "message", **ANTHROPIC},
]
STEP = Usage(fresh=180_000, read=200, written=40, written_1h=10, output=3_500)
ENCRYPTED = {"id": "cmp_1", "type": "compaction", "encrypted_content": "c3VtbWFyeQ=="}

MANAGED: dict[str, tuple[str, str, bytes, tuple[int, bool]]] = {
    "anthropic clears, whole": (
        "anthropic",
        JSON,
        json.dumps({"content": [], "context_management": CLEARED, "usage": ANTHROPIC}).encode(),
        (8, False),
    ),
    "anthropic clears, stream": (
        "anthropic",
        EVENTS,
        sse(*ANTHROPIC_STREAM[:2], {**ANTHROPIC_STREAM[2], "context_management": CLEARED}),
        (8, False),
    ),
    "anthropic clears, Amazon's stream": (
        "anthropic",
        FRAMES,
        frames(*ANTHROPIC_STREAM[:2], {**ANTHROPIC_STREAM[2], "context_management": CLEARED}),
        (8, False),
    ),
    "anthropic compacts, whole": (
        "anthropic",
        JSON,
        json.dumps({"content": [COMPACTION, {"type": "text", "text": "Hi"}], "usage": ANTHROPIC}).encode(),
        (0, True),
    ),
    "anthropic compacts, stream": (
        "anthropic",
        EVENTS,
        sse(
            ANTHROPIC_STREAM[0],
            {"type": "content_block_start", "index": 0, "content_block": {**COMPACTION, "content": None}},
            *ANTHROPIC_STREAM[1:],
        ),
        (0, True),
    ),
    "anthropic compacts, Amazon's stream": (
        "anthropic",
        FRAMES,
        frames({"type": "content_block_start", "index": 0, "content_block": COMPACTION}, *ANTHROPIC_STREAM),
        (0, True),
    ),
    "responses compacts, whole": (
        "openai-responses",
        JSON,
        json.dumps({"output": ["odd", ENCRYPTED], "usage": RESPONSES}).encode(),
        (0, True),
    ),
    "responses compacts, stream that breaks off": (
        "openai-responses",
        EVENTS,
        sse(RESPONSES_STREAM[0], {"type": "response.output_item.done", "output_index": 0, "item": ENCRYPTED}),
        (0, True),
    ),
    "responses compacts, only in the last event": (
        "openai-responses",
        EVENTS,
        sse({"type": "response.completed", "response": {"output": [ENCRYPTED], "usage": RESPONSES}}),
        (0, True),
    ),
    "the edits stand in the first event already": (
        "anthropic",
        EVENTS,
        sse({"message": {"context_management": CLEARED}}, {"context_management": {"applied_edits": []}}),
        (8, False),
    ),
    "nothing was cleared": (
        "anthropic",
        EVENTS,
        sse({**ANTHROPIC_STREAM[2], "context_management": {"applied_edits": []}}),
        (0, False),
    ),
    "a text and an argument that speak of it": (
        "anthropic",
        JSON,
        json.dumps(
            {
                "content": [
                    {"type": "text", "text": '{"type": "compaction"}'},
                    {"type": "tool_use", "input": {"content": [COMPACTION], "context_management": CLEARED}},
                ],
                "usage": ANTHROPIC,
            }
        ).encode(),
        (0, False),
    ),
    "the settings of a request": (
        "openai-responses",
        JSON,
        json.dumps({"context_management": [{"type": "compaction"}], "output": [], "usage": RESPONSES}).encode(),
        (0, False),
    ),
}


def managed(format: str, kind: str, *pieces: bytes, encoding: str = "") -> tuple[int, bool]:
    reader = UsageReader(format, kind, encoding)
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
    return reader.cleared_tool_uses, reader.has_compaction


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize(("format", "kind", "body", "expected"), MANAGED.values(), ids=MANAGED)
def test_context_management_is_read(
    format: str, kind: str, body: bytes, expected: tuple[int, bool], encoding: str
) -> None:
    packed = PACKERS[encoding](body)
    assert managed(format, kind, packed, encoding=encoding) == expected
    pieces = [packed[place : place + 7] for place in range(0, len(packed), 7)]
    assert managed(format, kind, *pieces, encoding=encoding) == expected


HOSTILE: dict[str, tuple[Any, int]] = {
    "no object": ("clear_tool_uses", 0),
    "no list": ({"applied_edits": {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8}}, 0),
    "edits of other types": ({"applied_edits": [8, None, "x", [CLEARED], {"type": 8, "cleared_tool_uses": 8}]}, 0),
    "counts of other types": (
        {
            "applied_edits": [
                {"type": "clear_tool_uses_20250919", "cleared_tool_uses": count}
                for count in ("8", -8, 8.5, True, None, [8], {"cleared_tool_uses": 8})
            ]
        },
        0,
    ),
    "edits of another kind": ({"applied_edits": [{"type": "clear_thinking_20251015", "cleared_tool_uses": 5}]}, 0),
    "a later version": ({"applied_edits": [{"type": "clear_tool_uses_20270101", "cleared_tool_uses": 2}]}, 2),
    "several": ({"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2}] * 3}, 6),
    "more than there can be": (
        {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 10**18}] * 9},
        usage_reader.MAX_CLEARED,
    ),
    "more than any number": (
        {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 10**400}]},
        usage_reader.MAX_CLEARED,
    ),
}


@pytest.mark.parametrize(("found", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_reports_of_clearing(found: Any, expected: int) -> None:
    body = {"context_management": found, "usage": ANTHROPIC}
    assert managed("anthropic", JSON, json.dumps(body).encode()) == (expected, False)
    assert managed("anthropic", EVENTS, sse(body)) == (expected, False)
    assert read("anthropic", JSON, json.dumps(body).encode()) == CLAUDES, "the counts are read all the same"


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("name", ["context_management", "content", "output", "content_block", "item"])
@pytest.mark.parametrize(
    "value", [DEEP, b'"compaction"', b'["compaction"]', b'{"type": ["compaction"]}', b"7", b"null"]
)
def test_hostile_blocks(name: str, value: bytes) -> None:
    body = b'{"' + name.encode() + b'": ' + value + b', "usage": {"input_tokens": 5}, "more": "compaction"}'
    assert managed("anthropic", JSON, body) == (0, False)
    assert managed("anthropic", EVENTS, b"data: " + body + b"\n\n") == (0, False)


def test_compactions_are_billed_and_are_no_part_of_the_context() -> None:
    whole = json.dumps({"usage": {**ANTHROPIC, "iterations": ITERATIONS}}).encode()
    stream = sse(ANTHROPIC_STREAM[0], {"usage": {"output_tokens": 70, "iterations": ITERATIONS}})
    for kind, body in ((JSON, whole), (EVENTS, stream)):
        reader = UsageReader("anthropic", kind)
        reader.feed(body)
        assert reader.finish() == CLAUDES + STEP
        assert reader.compaction == STEP


def test_an_answer_without_compaction_has_none_to_bill() -> None:
    reader = UsageReader("anthropic", EVENTS)
    reader.feed(sse(*ANTHROPIC_STREAM))
    assert reader.finish() == CLAUDES
    assert reader.compaction == Usage()


ODD: dict[str, tuple[str, Any, Usage | None]] = {
    "an event over several lines": (
        "anthropic",
        b'event: x\ndata: {"usage":\ndata: {"input_tokens": 5,\ndata: "output_tokens": 7}}\n\n',
        Usage(fresh=5, output=7),
    ),
    "no space after the colon": ("anthropic", b'data:{"usage":{"input_tokens":5}}\n\n', Usage(fresh=5)),
    "a stream that ends without an empty line": (
        "anthropic",
        b'data: {"usage": {"input_tokens": 5}}',
        Usage(fresh=5),
    ),
    "a stream that breaks off keeps what came": (
        "anthropic",
        sse(ANTHROPIC_STREAM[0]) + b'data: {"usage": {"outp',
        Usage(fresh=5, read=1000, written=30, written_1h=12, output=1),
    ),
    "the last word says nothing of the input, in zeros and nulls": (
        "anthropic",
        sse(
            ANTHROPIC_STREAM[0],
            {"usage": {"input_tokens": 0, "cache_read_input_tokens": None, "cache_creation": None, "output_tokens": 9}},
        ),
        Usage(fresh=5, read=1000, written=30, written_1h=12, output=9),
    ),
    "the last word says more of the input": (
        "anthropic",
        sse(ANTHROPIC_STREAM[0], {"usage": {"input_tokens": 50, "output_tokens": 9}}),
        Usage(fresh=50, read=1000, written=30, written_1h=12, output=9),
    ),
    "no split of what was written": (
        "anthropic",
        sse({"usage": {"cache_creation_input_tokens": 42}}),
        Usage(written=42),
    ),
    "only the split of what was written": (
        "anthropic",
        sse({"usage": {"cache_creation": CREATION}}),
        CLAUDES.__class__(written=30, written_1h=12),
    ),
    "truth is no number": ("anthropic", sse({"usage": {"input_tokens": True, "output_tokens": 3}}), Usage(output=3)),
    "a text is no number": ("anthropic", sse({"usage": {"input_tokens": "5", "output_tokens": 3}}), Usage(output=3)),
    "no counts at all": ("anthropic", sse({"type": "error", "message": "usage exceeded"}), None),
    "usage that is no object": ("openai-chat", sse({"usage": 5}, {"usage": [1]}, {"usage": None}), None),
    "an event that cannot be read is passed over": (
        "anthropic",
        b'data: {"usage": nonsense}\n\n' + sse({"usage": {"input_tokens": 5}}),
        Usage(fresh=5),
    ),
    "more was read from a cache than there was": (
        "openai-chat",
        sse({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}}),
        Usage(read=9),
    ),
}


@pytest.mark.parametrize(("format", "body", "expected"), ODD.values(), ids=ODD)
def test_odd_streams(format: str, body: bytes, expected: Usage | None) -> None:
    assert read(format, EVENTS, body) == expected


def test_huge_lines_are_read_up_to_a_bound_and_held_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_reader, "MAX_HELD_BYTES", 10_000)
    first, last = ({"usage": {"input_tokens": count}} for count in (5, 6))
    large = {"delta": "x" * 9_000, "usage": {"input_tokens": 7}}
    assert read("anthropic", EVENTS, sse(first), sse(large)) == Usage(fresh=7)
    huge = sse({"delta": "x" * 50_000, "usage": {"input_tokens": 7}})
    reader = UsageReader("anthropic", EVENTS)
    for place in range(0, len(huge), 100):
        reader.feed(huge[place : place + 100])
        assert sum(map(len, (*reader._pending, *reader._event_data))) <= 10_100
    reader.feed(sse(last))
    assert reader.finish() == Usage(fresh=6)
    assert read("anthropic", JSON, b" " * 20_000, json.dumps(first).encode()) is None


def test_a_broken_encoding_gives_nothing_even_after_counts() -> None:
    packed = gzip.compress(sse(*ANTHROPIC_STREAM))
    assert read("anthropic", EVENTS, packed[:-8] + b"12345678", encoding="gzip") is None


# ── encodings ───────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = json.dumps(ANTHROPIC).encode() * 50
raw = zlib.compressobj(wbits=-15)
ENCODED: dict[str, tuple[str, bytes]] = {
    "gzip of several members": ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
    "deflate without its header": ("deflate", raw.compress(TEXT) + raw.flush()),
    "zstd of several frames": (
        "zstd",
        zstd.compress(TEXT[:100]) + zstd.compress(TEXT[100:]),
    ),
    "zstd that does not tell its size": (
        "zstd",
        (lambda c: c.compress(TEXT) + c.flush())(zstd.ZstdCompressor()),
    ),
}


@pytest.mark.parametrize(("encoding", "packed"), ENCODED.values(), ids=ENCODED)
@pytest.mark.parametrize("size", [1, 7, 600, 10**6])
def test_encodings_are_unpacked_to_their_end(encoding: str, packed: bytes, size: int) -> None:
    found = make_decoder(encoding)
    assert found is not None
    whole = b"".join(found.decompress(packed[place : place + size]) for place in range(0, len(packed), size))
    assert whole == TEXT
    assert found.is_complete


@pytest.mark.parametrize(("encoding", "packed"), ENCODED.values(), ids=ENCODED)
def test_what_is_cut_short_is_not_done(encoding: str, packed: bytes) -> None:
    found = make_decoder(encoding)
    assert found is not None
    assert found.is_complete
    found.decompress(packed[:-5])
    assert not found.is_complete


def bomb(encoding: str) -> bytes:
    """A hundred and twenty-eight mebibytes of nothing."""
    if encoding == "br":
        brotli = pytest.importorskip("brotli")
        packer = brotli.Compressor(quality=1)
        parts = [packer.process(bytes(2**24)) for _ in range(8)]
        return b"".join(parts) + bytes(packer.finish())
    made: Any = zstd.ZstdCompressor() if encoding == "zstd" else zlib.compressobj(1, wbits=31)
    return b"".join(made.compress(bytes(2**24)) for _ in range(8)) + bytes(made.flush())


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br"])
def test_a_bomb_is_found_out_before_it_takes_memory(encoding: str) -> None:
    import tracemalloc

    packed = bomb(encoding)
    assert len(packed) < 2 * 2**20
    found = make_decoder(encoding)
    assert found is not None
    tracemalloc.start()
    try:
        with pytest.raises(content_encoding.DecompressedTooLarge):
            found.decompress(packed)
        assert tracemalloc.get_traced_memory()[1] < 4 * content_encoding.MAX_DECOMPRESSED_BYTES
    finally:
        tracemalloc.stop()
    assert read("anthropic", JSON, packed, encoding=encoding) is None


def test_an_encoding_that_is_not_known_is_not_read() -> None:
    assert make_decoder("compress") is None
    assert make_decoder("gzip, gzip") is None
