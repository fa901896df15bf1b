"""`ibidem.codetether` and the profiles against the original's examples and the plain implementation."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import pytest

import ibidem
from ibidem import codetether
from ibidem.codetether import ExperimentalStats, apply_all
from tests.seeds.compare import WIRES, check_history, check_provider_form, run_ours
from tests.seeds.notation import (
    A8_EXAMPLES,
    LINGUA_EXAMPLES,
    C,
    H,
    LinguaExample,
    Message,
    PassExample,
    R,
    U,
    a,
    fresh,
    t,
    u,
)

HISTORIES = 400
PROVIDER_HISTORIES = 150


@pytest.mark.parametrize("example", A8_EXAMPLES, ids=lambda example: example.pass_name)
def test_pass_gives_the_output_and_counts_of_the_example(example: PassExample) -> None:
    messages = fresh(example.before)
    counts = run_ours(example.pass_name, messages)
    assert (messages, counts) == (example.after, example.counts)


@pytest.mark.parametrize("example", LINGUA_EXAMPLES)
def test_text_is_cleaned_as_in_the_example(example: LinguaExample) -> None:
    messages = [a(example.text), *U(6)]
    stats = codetether.prune_low_entropy(messages)
    assert messages == [a(example.cleaned), *U(6)]
    assert stats == ExperimentalStats(0, int(example.saved > 0), example.saved)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", range(0, HISTORIES, HISTORIES // 4))
def test_generated_histories_agree_with_the_plain_implementation(start: int) -> None:
    assert sum(check_history(number) for number in range(start, start + HISTORIES // 4)) == 12 * HISTORIES // 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wire", WIRES)
def test_generated_provider_histories_agree_or_deviate_to_stay_acceptable(wire: str) -> None:
    outcomes = Counter(check_provider_form(number, wire) for number in range(PROVIDER_HISTORIES))
    assert outcomes["exact"] > PROVIDER_HISTORIES / 2


# Examples in the original documents.


def test_example_of_apply_all() -> None:
    text = "file contents: hello world" * 40
    messages = [t(R("call_a", text)), t(R("call_b", text))]
    stats = apply_all(messages)
    assert stats.total_bytes_saved > 0
    assert stats.dedup_hits >= 1


def test_empty_history_saves_nothing() -> None:
    messages: list[Any] = []
    assert apply_all(messages).total_bytes_saved == 0
    assert messages == []


def test_example_of_dedup_tool_outputs() -> None:
    messages = [t(R("a", "x" * 1024)), t(R("b", "x" * 1024))]
    stats = codetether.dedup_tool_outputs(messages)
    assert stats.dedup_hits == 1
    assert stats.total_bytes_saved > 512
    assert len(messages[0]["content"][0]["content"]) == 1024
    assert messages[1]["content"][0]["content"].startswith("[DEDUP]")
    assert "tool_call_id=a" in messages[1]["content"][0]["content"]


def test_example_of_snippet_stale_tool_outputs() -> None:
    messages = [t(R("old", "A" * 10_000)), *(u(f"filler {n}") for n in range(codetether.RECENCY_WINDOW + 2))]
    stats = codetether.snippet_stale_tool_outputs(messages)
    assert stats.snippet_hits == 1
    assert stats.total_bytes_saved > 5_000
    content = messages[0]["content"][0]["content"]
    assert "[...elided" in content
    assert content.startswith("A")
    assert content.endswith("A")


def test_three_copies_refer_to_the_first() -> None:
    messages = [t(R(id, "z" * 2048)) for id in ("first", "second", "third")]
    assert codetether.dedup_tool_outputs(messages).dedup_hits == 2
    for message in messages[1:]:
        assert "tool_call_id=first" in message["content"][0]["content"]


def test_recent_window_begins_right_behind_the_old_result() -> None:
    messages = [t(R("x", "x" * 10_000)), *(u(f"m{n}") for n in range(codetether.RECENCY_WINDOW))]
    assert codetether.snippet_stale_tool_outputs(messages).snippet_hits == 1


# What Python users see.


def test_constants_are_those_of_the_original() -> None:
    assert codetether.MIN_DEDUP_BYTES == 256
    assert (codetether.RECENCY_WINDOW, codetether.SNIPPET_THRESHOLD_BYTES) == (8, 4096)
    assert (codetether.HEAD_BYTES, codetether.TAIL_BYTES) == (1024, 1024)
    assert codetether.KEEP_LAST_MESSAGES == {
        "prune_low_entropy": 6,
        "prune_thinking": 4,
        "collapse_duplicate_calls": 8,
    }
    assert codetether.MIN_COLLAPSE_BYTES == 64
    assert (codetether.SINK_MESSAGES, codetether.RECENT_MESSAGES, codetether.STREAM_MIN_MESSAGES) == (2, 16, 22)
    assert ExperimentalStats() == ExperimentalStats(dedup_hits=0, snippet_hits=0, total_bytes_saved=0)


def test_messages_are_changed_in_place() -> None:
    repeated = t(R("b", "x" * 256))
    part = repeated["content"][0]
    messages = [t(R("a", "x" * 256)), repeated]
    codetether.dedup_tool_outputs(messages)
    assert messages[1] is repeated
    assert repeated["content"][0] is part
    assert part["content"] == "[DEDUP] identical to tool_call_id=a (256 bytes)"


def test_object_that_is_in_the_history_twice_is_edited_once() -> None:
    part = R("a", "x" * 256)
    thinks = a(H("hm"), "ok")
    messages = [t(part), t(part), thinks, thinks, *U(4)]
    messages[1]["content"] = [part]
    messages[0]["content"] = [part]
    codetether.dedup_tool_outputs(messages)
    codetether.prune_thinking(messages)
    marker = "[DEDUP] identical to tool_call_id=a (256 bytes)"
    assert messages == [t(R("a", "x" * 256)), t(R("a", marker)), a("ok"), a("ok"), *U(4)]


def test_optional_and_unknown_keys_are_kept() -> None:
    call = {"type": "tool_call", "id": "b", "name": "t", "arguments": "{}", "thought_signature": "s", "later": [1]}
    messages = [{"role": "assistant", "content": [H("hm"), call], "extra": {"n": 1}}, *U(4)]
    codetether.prune_thinking(messages)
    assert messages[0] == {"role": "assistant", "content": [call], "extra": {"n": 1}}


def test_one_line_is_logged_if_bytes_were_saved(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ibidem"):
        apply_all([a(C("open"))])  # repairs a pair, saves nothing
        apply_all([a(H("xy"), "ok"), *U(4)])
    assert [record.getMessage() for record in caplog.records] == [
        "experimental context strategies applied: dedup_hits=0 snippet_hits=1 bytes_saved=2"
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: apply_all("no list"), "a bare request must be a list of messages, not a string"),  # type: ignore[arg-type]
        (lambda: apply_all([], order="4.7"), "order: '4.7' is unknown. Use one of 'seed', '4.6.0', '4.6.1'."),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_get_a_clear_message(call: Any, message: str) -> None:
    with pytest.raises(ibidem.IbidemError) as error:
        call()
    assert str(error.value) == message


def test_a_part_that_is_not_a_message_is_carried() -> None:
    odd: list[Any] = [None, 7, {"role": "user", "content": "text"}, {"role": "tool", "content": [None, {"type": 5}]}]
    before = json.loads(json.dumps(odd))
    assert apply_all(odd) == ExperimentalStats()
    assert odd == before


# The format is recognized everywhere, and never taken for Anthropic's.

WELL_FORMED: list[Message] = [
    u("q"),
    a(H("hm"), C("c1", args='{"path": "a.py"}')),
    t(R("c1", "w" * 300)),
    a(C("c2", args='{"path": "a.py"}')),
    t(R("c2", "w" * 300)),
    a("done"),
]


@pytest.mark.parametrize("request_of", [list, lambda messages: {"messages": messages}], ids=["list", "body"])
def test_well_formed_history_is_recognized_and_keeps_its_results(request_of: Any) -> None:
    request = request_of(fresh(WELL_FORMED))
    assert ibidem.detect(request) == "codetether"
    assert ibidem.detect(json.dumps(request)) == "codetether"
    assert ibidem.validate(request) == []
    for profile in ibidem.PROFILES:
        result = ibidem.compact(request, profile=profile)
        messages = result.request if isinstance(request, list) else result.request["messages"]
        assert result.format == "codetether"
        assert [message["role"] for message in messages] == [message["role"] for message in WELL_FORMED], profile
        assert ibidem.Session(profile=profile).compact(request).request == result.request, profile


@pytest.mark.parametrize(
    "part",
    [C("a"), R("a", "text"), H("hm"), {"type": "thinking", "text": "hm"}, {"type": "tool_call", "id": "a"}],
    ids=["call", "result", "thinking", "thinking without optional keys", "call without arguments"],
)
def test_one_part_is_enough_to_recognize_the_format(part: Any) -> None:
    assert ibidem.detect([u("q"), {"role": "assistant", "content": [part]}]) == "codetether"


@pytest.mark.parametrize(
    ("messages", "format"),
    [
        ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}], "anthropic"),
        (
            [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "tool_call_id": "a"}]}],
            "anthropic",
        ),
        ([{"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "s"}]}], "anthropic"),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}], "anthropic"),
        ([{"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]}], "openai-chat"),
    ],
)
def test_other_formats_are_still_recognized(messages: list[Message], format: str) -> None:
    assert ibidem.detect(messages) == format


def test_a_mixture_of_formats_is_refused() -> None:
    mixed = [*fresh(WELL_FORMED), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    with pytest.raises(ibidem.FormatError, match="could be of more than one format"):
        ibidem.detect(mixed)
    result = ibidem.compact(mixed, profile="codetether")
    assert result.request is mixed
    assert result.reason


def test_images_and_files_do_not_hide_the_format() -> None:
    parts = [{"type": "image", "url": "u", "mime_type": None}, {"type": "file", "path": "p"}]
    assert ibidem.detect([{"role": "user", "content": parts}, a(C("a"))]) == "codetether"
