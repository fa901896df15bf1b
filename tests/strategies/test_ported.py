"""Tests of the ported strategies on provider formats, of their settings, and of deviations that providers require.

tests/seeds compares them with the original on codetether's own form, and on the formats closest to it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

import ibidem
from ibidem import Dedup, DedupToolCalls, Devboy, DropMiddle, Lingua, PruneThinking, RepairPairing, Snippet
from ibidem.cache import NearRefConfig, ToolSettings
from ibidem.formats import FORMATS
from ibidem.model import Text
from ibidem.testing import conv, read
from ibidem.testing.signing import has_valid_thinking, signature_of

every_format = pytest.mark.parametrize("format", FORMATS)
MODEL = "claude-sonnet-4-5"
SIGNING_MODEL = "claude-opus-5-5"
"""It signs thinking against all text before it."""
GONE = "[tool result unavailable: elided by context management]"
CRAB = "🦀"


def run(request: Any, *strategies: Any, format: str = "anthropic") -> ibidem.Compacted:
    return ibidem.compact(request, strategies=strategies, format=format)


def counts(result: ibidem.Compacted) -> tuple[int, int, int]:
    stats = result.stats
    return stats.dedup_hits, stats.snippet_hits, stats.total_bytes_saved


def filler(count: int) -> tuple[str, ...]:
    """Return lines of plain chat, the last of them the user's."""
    return tuple(f"{'u' if (count - number) % 2 else 'a'}:m{number}" for number in range(count))


def result_texts(request: Any, format: str) -> list[str]:
    results = [result for message in read(request, format).messages for result in message.results]
    return [segment.text for result in results for segment in result.segments if isinstance(segment, Text)]


def reads(*outputs: str, format: str) -> Any:
    """Return a conversation that gets these outputs one after the other, from calls c0, c1, …"""
    lines = ["u:go"]
    for number, output in enumerate(outputs):
        lines += [f"a>c{number}", f"rc{number}:{output}"]
    return conv(*lines, format=format)


# Anthropic messages. A string is a text block.


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [as_block(block) for block in blocks]}


def a(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [as_block(block) for block in blocks]}


def as_block(block: Any) -> Any:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def C(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "t", "input": arguments}


def R(id: str, content: Any = "r") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def H(text: str = "hm") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "signed"}


def body(*messages: Any, model: str = MODEL, **fields: Any) -> dict[str, Any]:
    """Return a request. Thinking is signed against all that is before it, as the newest models do."""
    request: dict[str, Any] = {"model": model, "max_tokens": 1024, **fields, "messages": []}
    for message in messages:
        blocks = message["content"]
        if isinstance(blocks, list):
            signature = signature_of(request)
            blocks = [{**block, "signature": signature} if "signature" in block else block for block in blocks]
        request["messages"].append({**message, "content": blocks})
    return request


def talk(count: int) -> list[Any]:
    """Return messages of plain chat that begin with the assistant's."""
    return [(u if number % 2 else a)(f"m{number}") for number in range(count)]


def trim(messages: int, size: int) -> str:
    return f"[...streaming-llm trim: {messages} messages ({size} bytes) elided between sinks and recent window...]"


def accepted(result: ibidem.Compacted, format: str = "anthropic") -> Any:
    """Return the history of a result that a provider accepts."""
    assert not result.reason
    assert ibidem.validate(result.request, format=format) == []
    return result.request[FORMATS[format].history_key]


# --- repeated results -------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize(
    ("outputs", "markers"),
    [
        pytest.param(
            ["z" * 2048, "b" * 300, "z" * 2048, "z" * 2048],
            dict.fromkeys((2, 3), "[DEDUP] identical to tool_call_id=c0 (2048 bytes)"),
            id="all later copies name the first call",
        ),
        pytest.param(["q" * 255] * 2, {}, id="255 bytes stay"),
        pytest.param(
            [CRAB * 64] * 2, {1: "[DEDUP] identical to tool_call_id=c0 (256 bytes)"}, id="sizes are bytes of UTF-8"
        ),
    ],
)
def test_repeated_results_are_replaced_in_every_format(
    outputs: list[str], markers: dict[int, str], format: str
) -> None:
    result = run(reads(*outputs, format=format), Dedup(), format=format)
    assert result_texts(result.request, format) == [markers.get(n, text) for n, text in enumerate(outputs)]
    saved = sum(len(outputs[number].encode()) - len(marker) for number, marker in markers.items())
    assert counts(result) == (len(markers), 0, saved)


@every_format
def test_a_marker_replaces_a_result_even_if_it_is_longer(format: str) -> None:
    ids = ["i" * 300, "b"]
    request = conv("u:go", *(line for id in ids for line in (f"a>{id}", f"r{id}:{'x' * 256}")), format=format)
    result = run(request, Dedup(), format=format)
    marker = f"[DEDUP] identical to tool_call_id={ids[0]} (256 bytes)"
    assert result_texts(result.request, format)[1] == marker
    assert len(marker) > 256
    assert counts(result) == (1, 0, 0)


def test_dedup_has_a_minimum_and_a_window() -> None:
    request = reads("same", "same", "same", format="openai-chat")
    texts = {
        Dedup(min_bytes=4): ["same", *["[DEDUP] identical to tool_call_id=c0 (4 bytes)"] * 2],
        Dedup(min_bytes=5): ["same"] * 3,
        Dedup(min_bytes=4, window=2): ["same", "[DEDUP] identical to tool_call_id=c0 (4 bytes)", "same"],
        Dedup(min_bytes=4, window=4): ["same"] * 3,
    }
    for strategy, expected in texts.items():
        assert result_texts(run(request, strategy, format="openai-chat").request, "openai-chat") == expected, strategy
    assert [Dedup().final, Dedup(window=8).final] == [True, False]


def test_each_text_block_of_a_result_is_compared_alone_and_keeps_its_cache_breakpoint() -> None:
    cached = {"type": "text", "text": "x" * 300, "cache_control": {"type": "ephemeral"}}
    blocks = [{"type": "text", "text": "y" * 300}, cached]
    request = body(u("q"), a(C("a")), u(R("a", "x" * 300)), a(C("b")), u(R("b", blocks)))
    history = accepted(run(request, Dedup()))
    marker = "[DEDUP] identical to tool_call_id=a (300 bytes)"
    assert history[4]["content"][0]["content"] == [blocks[0], {**cached, "text": marker}]


# --- long results -----------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize(
    ("output", "after", "hits"),
    [
        pytest.param("A" * 10_000, 7, 0, id="a result in the last eight messages stays"),
        pytest.param("A" * 10_000, 8, 1, id="a result before the last eight messages is cut"),
        pytest.param("A" * 4095, 10, 0, id="4095 bytes stay"),
        pytest.param("A" * 4096, 10, 1, id="4096 bytes are cut"),
        pytest.param("x" + CRAB * 4000, 10, 1, id="characters stay whole"),
    ],
)
def test_long_old_results_are_cut_in_every_format(output: str, after: int, hits: int, format: str) -> None:
    request = conv("u:go", "a>1", f"r1:{output}", *filler(after), format=format)
    result = run(request, Snippet(), format=format)
    (text,) = result_texts(result.request, format)
    data = output.encode()
    head, tail = data[:1024].decode(errors="ignore"), data[-1024:].decode(errors="ignore")
    elided = len(data) - len((head + tail).encode())
    assert text == (f"{head}\n[...elided {elided} bytes...]\n{tail}" if hits else output)
    assert counts(result) == (0, hits, len(data) - len(text.encode()))


def test_window_minimum_head_and_tail_of_a_cut_are_settings() -> None:
    request = conv("u:go", "a>1", "r1:" + "0123456789" * 20, *filler(2), format="openai-chat")
    result = run(request, Snippet(window=2, min_bytes=200, head=3, tail=0), format="openai-chat")
    assert result_texts(result.request, "openai-chat") == ["012\n[...elided 197 bytes...]\n"]
    for stays in (Snippet(window=3, min_bytes=200, head=3, tail=0), Snippet(window=2, min_bytes=201, head=3, tail=0)):
        assert run(request, stays, format="openai-chat").request is request


@pytest.mark.parametrize(
    ("output", "plain", "heeding"),
    [
        pytest.param(
            f"{'H' * 9000}\n[...elided 99 bytes...]\n{'T' * 2000}", 1, 0, id="text with a marker of an earlier cut"
        ),
        pytest.param("[DEDUP]" + "x" * 9000, 1, 0, id="text that starts like a reference"),
        pytest.param("x[DEDUP]" + "x" * 9000, 1, 1, id="text with a reference further on"),
    ],
)
def test_only_the_codetether_profile_heeds_markers_in_a_result(output: str, plain: int, heeding: int) -> None:
    request = conv("u:go", "a>1", f"r1:{output}", *filler(10), format="openai-chat")
    assert run(request, Snippet(), format="openai-chat").stats.snippet_hits == plain
    assert run(request, Snippet(heed_markers=True), format="openai-chat").stats.snippet_hits == heeding
    assert ibidem.compact(request, profile="codetether-all").stats.snippet_hits == heeding


# --- assistant text ---------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param(
            "Here is my   plan.\n\n\n\n...\n   \nAnd it works.  \n",
            "Here is my plan.\n\nAnd it works.\n",
            id="noise collapses",
        ),
        pytest.param("a\n```\nx  =   1  \n\n\n```\nb  c", "a\n```\nx  =   1  \n\n\n```\nb c", id="fenced code stays"),
        pytest.param("- a\n- b", "- a\n- b", id="list items stay"),
        pytest.param("don’t  do", "don’t do", id="text of any script is cleaned"),
    ],
)
def test_old_assistant_text_is_cleaned_in_every_format(text: str, cleaned: str, format: str) -> None:
    request = conv("u:go", f"a:{text}", *filler(7), format=format)
    result = run(request, Lingua(), format=format)
    (part,) = read(result.request, format).messages[1].parts
    assert isinstance(part, Text)
    assert part.text == cleaned
    assert counts(result) == (0, int(text != cleaned), len(text) - len(cleaned))


@every_format
def test_text_of_the_user_and_of_the_last_six_messages_stays(format: str) -> None:
    noisy = "so   much \n\n\n\n space"
    request = conv(f"u:{noisy}", "a:yes", f"u:{noisy}", f"a:{noisy}", *filler(5), format=format)
    assert run(request, Lingua(), format=format).request is request
    assert counts(run(request, Lingua(window=5), format=format)) == (0, 1, 5)


def test_text_that_something_else_counts_on_stays() -> None:
    cited = {"type": "text", "text": "a  b", "citations": [{"type": "char_location"}]}
    request = body(u("q"), a(cited), u("q"), *talk(6))
    assert run(request, Lingua()).request is request


# --- thinking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "gemini"])
@pytest.mark.parametrize(
    ("lines", "removed"),
    [
        pytest.param(["u:q", "a?hm:text", *filler(5)], True, id="old thinking goes"),
        pytest.param(["u:q", "a?hm:text", "u:1", "a:2", "u:3"], False, id="thinking in the last four messages stays"),
        pytest.param(
            ["u:q", "a?hm>1", "r1:x", "a:done", "u:next", "a>2", "r2:x", "a>3", "r3:x"],
            True,
            id="thinking before the active tool loop goes",
        ),
    ],
)
def test_old_thinking_is_removed_and_the_text_beside_it_stays(lines: list[str], removed: bool, format: str) -> None:
    request = conv(*lines, format=format) | {"model": MODEL}
    result = run(request, PruneThinking(), format=format)
    history = accepted(result, format)
    assert len(history) == len(lines)
    assert ('"hm"' in json.dumps(history)) != removed
    assert counts(result) == ((0, 1, 2) if removed else (0, 0, 0))


def test_a_message_that_lost_several_thoughts_counts_once() -> None:
    result = run(body(u("q"), a(H("xy"), H("z"), "ok"), u("q"), *talk(4)), PruneThinking())
    assert accepted(result)[1] == a("ok")
    assert counts(result) == (0, 1, 3)


def test_a_gemini_message_without_other_parts_goes() -> None:
    request = conv("u:q", "a?hm", *filler(5), format="gemini")
    result = run(request, PruneThinking(), format="gemini")
    assert accepted(result, "gemini") == [request["contents"][0], *request["contents"][2:]]
    assert counts(result) == (0, 1, 2)


# --- repeated calls ---------------------------------------------------------------------------------

LONG = {"command": "find . -name '*.py' -newer setup.cfg -not -path './build/*' | xargs grep -n TODO | sort"}


def repeated_calls(*calls: tuple[str, dict[str, Any]], after: int, format: str) -> Any:
    lines, table = ["u:go"], {}
    for number, call in enumerate(calls):
        table[f"c{number}"] = call
        lines += [f"a>c{number}", f"rc{number}:out {number}"]
    return conv(*lines, *filler(after), format=format, calls=table)


@every_format
@pytest.mark.parametrize(
    ("calls", "after", "hits"),
    [
        pytest.param([("Bash", LONG), ("Bash", LONG)], 8, 1, id="a repeated call is replaced"),
        pytest.param([("Bash", LONG), ("Shell", LONG)], 8, 0, id="a call of another tool stays"),
        pytest.param([("Bash", {}), ("Bash", {})], 8, 0, id="short arguments stay"),
        pytest.param([("Bash", LONG), ("Bash", LONG)], 6, 0, id="a call in the last eight messages stays"),
    ],
)
def test_arguments_of_repeated_calls_are_replaced_in_every_format(
    calls: list[Any], after: int, hits: int, format: str
) -> None:
    request = repeated_calls(*calls, after=after, format=format)
    result = run(request, DedupToolCalls(), format=format)
    accepted(result, format)
    sent = [call for message in read(result.request, format).messages for call in message.calls]
    assert [call.id for call in sent] == ["c0", "c1"]
    if not hits:
        assert result.request is request
        return
    size = len(read(request, format).messages[1].calls[0].arguments.encode())
    marker = f"[REPEAT of call_id=c0, {size} bytes]"
    assert sent[1].input == ({"repeat": marker} if FORMATS[format].object_arguments else marker)
    assert counts(result) == (1, 0, size - len(marker))


# --- the middle -------------------------------------------------------------------------------------


@every_format
def test_a_history_of_21_messages_keeps_its_middle(format: str) -> None:
    request = conv(*filler(21), format=format)
    assert run(request, DropMiddle(), format=format).request is request


def test_sinks_window_and_minimum_of_a_trim_are_settings() -> None:
    request = conv(*filler(9), format="openai-chat")
    messages = request["messages"]
    result = run(request, DropMiddle(sinks=1, window=3, min_messages=9), format="openai-chat")
    marker = {"role": "user", "content": trim(5, 10)}
    assert result.request["messages"] == [messages[0], marker, *messages[6:]]
    assert run(request, DropMiddle(sinks=1, window=3, min_messages=10), format="openai-chat").request is request
    assert run(request, DropMiddle(sinks=1, window=7, min_messages=9), format="openai-chat").request is request


@every_format
def test_a_history_shorter_than_the_window_keeps_its_middle(format: str) -> None:
    request = conv("u:q", "a>1", "r1:x", format=format)
    result = run(request, DropMiddle(window=6, min_messages=2), format=format)
    assert (result.request is request, result.reason) == (True, "")


@every_format
@pytest.mark.parametrize("thinks", ["", "?hm"], ids=["without thinking", "with thinking"])
@pytest.mark.parametrize("shift", range(6))
def test_a_trim_never_separates_calls_from_results(shift: int, thinks: str, format: str) -> None:
    lines = ["u:go"]
    for number in range(30):
        lines += [f"a{thinks}>c{number}.0,c{number}.1", f"rc{number}.0:one", f"rc{number}.1:two"]
    request = conv(*lines, *filler(6)[: shift * 2], "a:so", "u:and?", format=format)
    result = run(request, DropMiddle(window=16 + shift), format=format)
    accepted(result, format)
    assert result.plan
    assert counts(result)[:2] == (0, 1)


def test_a_trim_of_one_item_is_not_made() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    search = {"type": "web_search_call", "id": "ws", "status": "completed"}
    said = {"role": "assistant", "content": "m"}
    request = {"input": [{"role": "user", "content": "q"}, reasoning, search, said, {"role": "user", "content": "q"}]}
    assert run(request, DropMiddle(window=1, min_messages=5), format="openai-responses").request is request


# --- calls and results ------------------------------------------------------------------------------


@every_format
def test_the_profile_answers_an_open_call_in_every_format(format: str) -> None:
    request = conv("u:q", "a>a", "u:follow-up", format=format)
    result = ibidem.compact(request, profile="codetether", format=format)
    accepted(result, format)
    assert result_texts(result.request, format) == [GONE]
    assert counts(result) == (0, 1, 0)


# --- deviations: a provider would reject the exact result -------------------------------------------

LOOP = (a(C("a")), u(R("a")), a(C("b")), u(R("b")), a(C("c")), u(R("c")))


def test_thinking_of_the_active_tool_loop_stays_on_anthropic() -> None:
    old, new = a(H("old"), "text"), a(H("new"), C("z"))
    result = run(body(u("q"), old, u("q"), new, u(R("z")), *LOOP), PruneThinking())
    history = accepted(result)
    assert [block["type"] for block in history[1]["content"]] == ["text"]
    assert [block["type"] for block in history[3]["content"]] == ["thinking", "tool_use"]
    assert counts(result) == (0, 1, 3)


def test_reasoning_beside_calls_of_the_active_tool_loop_stays_on_openai_chat() -> None:
    lines = ["u:q", "a?hm:text", "a?hm>1", "r1:x", "a>2", "r2:x", "a>3", "r3:x"]
    result = run(conv(*lines, format="openai-chat"), PruneThinking(), format="openai-chat")
    history = accepted(result, "openai-chat")
    assert "reasoning_content" not in history[1]
    assert history[2]["reasoning_content"] == "hm"
    assert counts(result) == (0, 1, 2)


@pytest.mark.parametrize(
    ("format", "request_"),
    [
        pytest.param(
            "openai-responses", conv("u:q", "a?hm:text", *filler(9), format="openai-responses"), id="a reasoning item"
        ),
        pytest.param(
            "gemini",
            {
                "contents": [
                    {"role": "user", "parts": [{"text": "q"}]},
                    {"role": "model", "parts": [{"text": "hm", "thought": True, "thoughtSignature": "x"}]},
                    *conv(*filler(5), format="gemini")["contents"],
                ]
            },
            id="a signed part of Gemini",
        ),
    ],
)
def test_thinking_that_cannot_go_alone_stays_everywhere(format: str, request_: Any) -> None:
    result = run(request_, PruneThinking(), format=format)
    assert (result.request is request_, result.reason) == (True, "")


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([u("q")], id="after a user message"),
        pytest.param([u("q"), a(C("a")), u(R("a"))], id="after results"),
        pytest.param([u("q"), {"role": "system", "content": "be brief"}], id="after a system message"),
    ],
)
def test_a_message_of_thinking_between_two_user_messages_stays_on_anthropic(before: list[Any]) -> None:
    request = body(*before, a(H()), u("q"), *talk(4))
    result = run(request, PruneThinking())
    assert accepted(result) is request["messages"]
    assert counts(result) == (0, 0, 0)


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [("anthropic", "...", (0, 0, 0)), *((name, "\n", (0, 1, 2)) for name in FORMATS if name != "anthropic")],
)
def test_text_of_noise_alone_becomes_a_line_break_except_on_anthropic(
    format: str, text: str, expected: tuple[int, int, int]
) -> None:
    request = conv("u:go", "a:...", *filler(7), format=format)
    result = run(request, Lingua(), format=format)
    accepted(result, format)
    assert list(read(result.request, format).messages[1].texts()) == [text]
    assert counts(result) == expected


def test_a_repeated_call_is_not_replaced_twice_in_formats_with_object_arguments() -> None:
    request = repeated_calls(*[("Bash", LONG)] * 3, after=8, format="anthropic")
    once = run(request, DedupToolCalls(min_bytes=16))
    assert counts(once)[0] == 2
    assert run(once.request, DedupToolCalls(min_bytes=16)).request is once.request


TRIM = DropMiddle(window=3, min_messages=6)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            [u("q"), a(C("a")), u(R("a")), a("1"), u("2"), a("3"), u("4"), a("5"), u("6")],
            [u("q"), a(C("a")), u(R("a"), trim(2, 2)), a("3"), u("4"), a("5"), u("6")],
            id="at the end of the results before it",
        ),
        pytest.param(
            [u("q"), a("1"), u("2"), a("3"), u("4"), a("5"), u("6"), a("7"), u("8")],
            [u("q"), a("1"), u(trim(4, 4), "6"), a("7"), u("8")],
            id="at the start of the user message after it",
        ),
        pytest.param(
            [u("q"), a("1"), u("2"), a("3"), u("4"), a("5"), {"role": "user", "content": "6"}, a("7"), u("8")],
            [u("q"), a("1"), u(trim(4, 4), "6"), a("7"), u("8")],
            id="before a string that becomes a block",
        ),
        pytest.param(
            [u("q"), a("1"), u("2"), a("3"), u("4"), a(C("a")), u(R("a"), "5"), a("6"), u("7")],
            [u("q"), a("1"), u(trim(5, 7), "5"), a("6"), u("7")],
            id="in a message that loses its results",
        ),
        pytest.param(
            [u("q"), {"role": "system", "content": "s"}, a("1"), u("2"), a("3"), u("4"), a("5"), u("6")],
            [u("q", trim(2, 2)), {"role": "system", "content": "s"}, a("3"), u("4"), a("5"), u("6")],
            id="at the end of the user message before a system message",
        ),
    ],
)
def test_the_trim_marker_joins_a_user_message_on_anthropic(messages: list[Any], expected: list[Any]) -> None:
    result = run(body(*messages), TRIM)
    assert accepted(result) == expected
    assert counts(result) == (0, 1, 0)


def test_the_trim_marker_is_a_message_of_its_own_between_assistant_messages() -> None:
    messages = [u("q"), a("1"), u("2"), a("3"), u("4"), a("5"), u("6")]
    history = accepted(run(body(*messages), DropMiddle(window=2, min_messages=6)))
    assert history == [*messages[:2], {"role": "user", "content": trim(3, 3)}, *messages[5:]]


def test_the_trim_marker_follows_a_string_that_becomes_a_block() -> None:
    messages = [{"role": "user", "content": "q"}, *talk(8)]
    history = accepted(run(body(*messages), DropMiddle(sinks=1, window=3, min_messages=6)))
    assert history == [u("q", trim(4, 8)), *messages[5:]]


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "gemini"])
def test_the_trim_marker_is_a_message_of_its_own_in_other_formats(format: str) -> None:
    request = conv(*filler(24), format=format)
    result = run(request, DropMiddle(), format=format)
    history, given = accepted(result, format), request[FORMATS[format].history_key]
    assert [*history[:2], *history[3:]] == [*given[:2], *given[8:]]
    marker = read(result.request, format).messages[2]
    assert (marker.role, list(marker.texts())) == ("user", [trim(6, 12)])


PAIRING = RepairPairing(by_place=False)


@pytest.mark.parametrize(
    ("messages", "expected", "hits"),
    [
        pytest.param(
            [u("q"), a(C("a"), C("b"), C("c")), u(R("b")), a("so"), u("q")],
            [u("q"), a(C("a"), C("b"), C("c")), u(R("a", GONE), R("c", GONE), R("b")), a("so"), u("q")],
            2,
            id="before the real results, in call order",
        ),
        pytest.param(
            [u("q"), a(C("a"), C("b")), {"role": "user", "content": "go on"}],
            [u("q"), a(C("a"), C("b")), u(R("a", GONE), R("b", GONE), "go on")],
            2,
            id="before a text that was a string",
        ),
        pytest.param(
            [u("q"), a(C("a"), C("b")), u(R("a"), "go on")],
            [u("q"), a(C("a"), C("b")), u(R("b", GONE), R("a"), "go on")],
            1,
            id="before results and text",
        ),
        pytest.param(
            [u("q"), a(C("a"), C("b"))],
            [u("q"), a(C("a"), C("b")), u(R("a", GONE), R("b", GONE))],
            2,
            id="in a new message at the end",
        ),
    ],
)
def test_inserted_results_share_one_message_on_anthropic(messages: list[Any], expected: list[Any], hits: int) -> None:
    result = run(body(*messages), PAIRING)
    assert accepted(result) == expected
    assert counts(result) == (0, hits, 0)


def test_inserted_results_share_one_message_on_gemini() -> None:
    request = conv("u:q", "a>a,b,c", "rb:x", "a:so", "u:q", format="gemini")
    result = run(request, PAIRING, format="gemini")
    (message,) = accepted(result, "gemini")[2:3]
    assert [part["functionResponse"]["id"] for part in message["parts"]] == ["a", "c", "b"]
    assert counts(result) == (0, 2, 0)


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_each_inserted_result_is_a_message_of_its_own_in_other_formats(format: str) -> None:
    request = conv("u:q", "a>a,b,c", "rb:x", "a:so", "u:q", format=format)
    result = run(request, PAIRING, format=format)
    accepted(result, format)
    messages = read(result.request, format).messages
    results = [(message.results[0].call_id, *message.texts()) for message in messages if message.role == "tool"]
    assert sorted(results) == [("a", GONE), ("b", "x"), ("c", GONE)]
    if format == "openai-chat":
        assert results == [("a", GONE), ("c", GONE), ("b", "x")]
    assert counts(result) == (0, 2, 0)


def test_a_result_beside_text_answers_its_call_on_anthropic() -> None:
    request = body(u("q"), a(C("a")), u(R("a"), "and"), a("so"), u("q"))
    assert run(request, PAIRING).request is request


def test_a_result_without_its_call_goes_and_the_text_beside_it_stays() -> None:
    result = run(body(u("q"), a("so"), u(R("x"), R("y"), "and")), PAIRING)
    assert accepted(result) == [u("q"), a("so"), u("and")]
    assert counts(result) == (0, 1, 0)


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": LONG}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": "x" * 5000}


def test_server_tool_calls_are_carried_on_anthropic() -> None:
    searches = [a({**SEARCH, "id": id}, {**FOUND, "tool_use_id": id}, "so") for id in ("s1", "s2")]
    request = body(u("q"), searches[0], u("q"), searches[1], u("q"), a(SEARCH | {"id": "s3"}), u("q"), *talk(10))
    for profile in ("codetether", "codetether-all", "devboy"):
        result = ibidem.compact(request, profile=profile)
        assert (result.request is request, result.reason) == (True, "")


def test_server_tool_calls_are_carried_on_responses() -> None:
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": LONG}
    code = {"type": "mcp_call", "id": "m", "name": "t", "arguments": json.dumps(LONG), "output": "x" * 5000}
    history = [{"role": "user", "content": "q"}, search, code, search, code, *[{"role": "user", "content": "q"}] * 10]
    for profile in ("codetether", "codetether-all", "devboy"):
        result = ibidem.compact({"input": history}, profile=profile, format="openai-responses")
        assert (result.request["input"] is history, result.reason) == (True, "")


def test_the_exact_result_is_sent_if_the_provider_would_reject_the_request_anyway() -> None:
    """Two user messages in a row are rejected anyway, so no deviation can help."""
    request = body(u("q"), u("q"), a(H()), u("q"), a("..."), u("q"), *talk(8))
    assert ibidem.validate(request)
    result = run(request, PruneThinking(), Lingua())
    assert result.request["messages"] == [u("q"), u("q"), u("q"), a("\n"), u("q"), *talk(8)]
    assert (result.reason, counts(result)) == ("", (0, 2, 4))


# --- deviations: thinking that is signed against the text before it -----------------------------------

REPEATED = (a(C("a")), u(R("a", "x" * 300)), a(C("b")), u(R("b", "x" * 300)))


MARKER = "[DEDUP] identical to tool_call_id=a (300 bytes)"
MOVING = Dedup(window=1)
"""Its window moves, so it edits text that thinking was signed against."""


def test_nothing_before_the_thinking_of_the_active_tool_loop_is_edited_on_models_that_sign_it() -> None:
    loop = (a(H(), C("c")), u(R("c", "x" * 300)), a(C("d")), u(R("d", "x" * 300)))
    request = body(u("q"), *REPEATED, a("so"), u("q"), *loop, model=SIGNING_MODEL)
    result = run(request, MOVING)
    history = accepted(result)
    assert has_valid_thinking(result.request)
    assert [message for number, message in enumerate(history) if number != 8] == [
        message for number, message in enumerate(request["messages"]) if number != 8
    ]
    assert history[8] == u(R("c", MARKER))
    assert counts(result) == (1, 0, 300 - len(MARKER))


def test_later_thinking_goes_with_an_edit_on_models_that_sign_it() -> None:
    request = body(
        *(u("q"), a(H("first"), "so"), u("q"), *REPEATED, a(H("later"), "so"), u("q"), a("so"), u("q")),
        model=SIGNING_MODEL,
    )
    result = run(request, MOVING)
    history = accepted(result)
    assert has_valid_thinking(result.request)
    assert [block["type"] for block in history[1]["content"]] == ["thinking", "text"]
    assert history[6:8] == [u(R("b", MARKER)), a("so")]
    assert counts(result) == (1, 0, 300 - len(MARKER))


@pytest.mark.parametrize("strategy", [Dedup(), Devboy()], ids=lambda strategy: strategy.name)
def test_thinking_is_signed_against_the_edits_of_strategies_that_never_change_them(strategy: Any) -> None:
    request = body(u("q"), model=SIGNING_MODEL)
    for number in range(4):
        sent = run(request, strategy).request
        thinking = {**H(), "signature": signature_of(sent)}
        answers = [a(thinking, C(f"c{number}")), u(R(f"c{number}", "x" * 300))]
        request = {**request, "messages": [*request["messages"], *answers]}
    result = run(request, strategy)
    assert len(result.plan) == 3
    assert accepted(result)
    assert has_valid_thinking(result.request)
    assert not has_valid_thinking(request)


def test_thinking_is_removed_from_the_start_on_models_that_sign_it() -> None:
    request = body(u("q"), a(H("1"), "m"), u("q"), a(H("2"), "m"), u("q"), a(H("3"), "m"), u("q"), model=SIGNING_MODEL)
    result = run(request, PruneThinking())
    accepted(result)
    assert has_valid_thinking(result.request)
    assert [len(message["content"]) for message in result.request["messages"][1::2]] == [1, 2, 2]
    assert counts(result) == (0, 1, 1)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        pytest.param(MODEL, {}, id="a model that does not sign the text"),
        pytest.param(
            SIGNING_MODEL,
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
            id="a request that lets the provider drop thinking",
        ),
    ],
)
def test_signed_thinking_is_no_reason_to_deviate_elsewhere(model: str, fields: Any) -> None:
    request = body(u("q"), *REPEATED, a(H(), C("c")), u(R("c")), model=model, **fields)
    result = run(request, MOVING)
    assert [block["type"] for block in accepted(result)[5]["content"]] == ["thinking", "tool_use"]
    assert result.stats.dedup_hits == 1


@pytest.mark.parametrize(
    ("strategy", "messages"),
    [
        pytest.param(MOVING, [u("q"), *REPEATED, a(H()), u("q")], id="a message of thinking alone follows an edit"),
        pytest.param(
            PruneThinking(window=1),
            [u("q"), a(H()), u("q"), a(H(), "m"), u("q"), a(H(), C("a")), u(R("a"))],
            id="a message of thinking alone stays before thinking that goes",
        ),
        pytest.param(
            PruneThinking(),
            [u("q"), {"role": "system", "content": "s"}, a(H()), u("q"), a("m"), u("q"), a(C("a")), u(R("a"))],
            id="a message of thinking alone follows a system message",
        ),
        pytest.param(
            TRIM,
            [u("q"), a("m"), u("q"), a(H(), C("z")), u(R("z")), *LOOP],
            id="the trimmed range has thinking of the active tool loop",
        ),
        pytest.param(
            TRIM,
            [u("q"), a("m"), u("q"), a(H(), C("z")), u(R("z"), "and"), a(C("a")), u(R("a"))],
            id="the trimmed range ends in half a message",
        ),
    ],
)
@pytest.mark.parametrize("model", [MODEL, SIGNING_MODEL])
def test_requests_with_signed_thinking_stay_acceptable(model: str, strategy: Any, messages: list[Any]) -> None:
    request = body(*messages, model=model)
    assert ibidem.validate(request) == []
    result = run(request, strategy)
    accepted(result)
    assert model == MODEL or has_valid_thinking(result.request)


# --- profiles ---------------------------------------------------------------------------------------


def test_an_empty_history_stays_empty() -> None:
    result = ibidem.compact([], profile="codetether")
    assert (result.request, counts(result)) == ([], (0, 0, 0))


@every_format
def test_a_chat_without_tools_stays_unchanged(format: str) -> None:
    request = conv(*filler(50)[1:], format=format)
    for profile in ("codetether", "lossless", "devboy"):
        assert ibidem.compact(request, profile=profile, format=format).request is request


@every_format
def test_strategies_run_in_the_order_of_the_profile(format: str, caplog: pytest.LogCaptureFixture) -> None:
    output = "file contents: hello world" * 40
    lines = ["u:q", "a?hm:I   look>1", f"r1:{output}", "a>2", f"r2:{output}", "a:ok", *filler(7)]
    request = conv(*lines, format=format) | {"model": MODEL}
    with caplog.at_level("INFO", logger="ibidem"):
        result = ibidem.compact(request, profile="codetether", format=format)
    keeps_thinking = format == "openai-responses"
    assert list(result.stats.strategies) == ["dedup", "lingua"] if keeps_thinking else ["thinking", "dedup", "lingua"]
    saved = 2 * (not keeps_thinking) + 1040 - len("[DEDUP] identical to tool_call_id=1 (1040 bytes)") + 2
    hits = 1 if keeps_thinking else 2
    assert counts(result) == (1, hits, saved)
    assert [record.getMessage() for record in caplog.records] == [
        f"context rewritten: dedup_hits=1 snippet_hits={hits} bytes_saved={saved}"
    ]


def test_codetether_all_has_the_strategies_of_release_4_6_0_in_order() -> None:
    names = ["thinking", "tool_calls", "dedup", "snippet", "lingua", "middle", "pairing"]
    assert [strategy.name for strategy in ibidem.PROFILES["codetether-all"]] == names


def test_responses_without_ids_are_paired_after_an_edit() -> None:
    """Gemini often sends calls and responses without ids; both are then found by the name of the tool."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": "q"}]}]
    for _ in range(2):
        response = {"name": "t", "response": {"output": "x" * 300}}
        contents += [
            {"role": "model", "parts": [{"functionCall": {"name": "t", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": response}]},
        ]
    contents += [{"role": "model", "parts": [{"text": "hm", "thought": True}]}, *[contents[0]] * 4]
    result = ibidem.compact({"contents": contents}, profile="codetether")
    accepted(result, "gemini")
    assert counts(result)[:2] == (1, 1)


# --- devboy over a history --------------------------------------------------------------------------

BODIES = {key: key * 300 for key in "AB012345"}
HASHED_ID = hashlib.sha256(b"c0").hexdigest()[:8]


def history_of(*steps: str, format: str = "openai-chat") -> Any:
    """Return a request with a call and a result per step, such as `Read a:A`: tool, path and name of the body."""
    lines, calls = ["u:go"], {}
    for number, step in enumerate(steps):
        call, output = step.split(":")
        name, path = call.split()
        calls[f"c{number}"] = (name, {"file_path": path})
        lines += [f"a>c{number}", f"rc{number}:{BODIES.get(output, output)}"]
    return conv(*lines, format=format, calls=calls)


@every_format
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(["Read a:A", "Read a:A"], ["A", "> [ref: c0, byte-identical]"], id="a repeated read"),
        pytest.param(["Read a:A", "Edit a:ok", "Read a:A"], ["A", "ok", "A"], id="a read after an edit of its file"),
        pytest.param(
            ["Read a:A", "Edit b:ok", "Read a:A"],
            ["A", "ok", "> [ref: c0, byte-identical]"],
            id="a read after an edit of another file",
        ),
        pytest.param(
            [*(f"Read {n}:{n}" for n in range(6)), "Read 0:0"],
            ["0", "1", "2", "3", "4", "5", "0"],
            id="a read after five others",
        ),
        pytest.param(["Bash x:s", "Bash x:s"], ["s", "s"], id="short results"),
    ],
)
def test_devboy_replaces_results_in_every_format(steps: list[str], expected: list[str], format: str) -> None:
    result = ibidem.compact(history_of(*steps, format=format), profile="devboy", format=format)
    assert result_texts(result.request, format) == [BODIES.get(text, text) for text in expected]


@pytest.mark.parametrize(
    ("strategy", "steps", "expected"),
    [
        pytest.param(
            Devboy(verbosity="verbose"),
            ["Read a:A", "Bash b:A"],
            ["A", "> [ref: c0, byte-identical, from: other]"],
            id="verbose hints",
        ),
        pytest.param(
            Devboy(hash_ids=True),
            ["Read a:A", "Read a:A"],
            ["A", f"> [ref: {HASHED_ID}, byte-identical]"],
            id="hashed ids",
        ),
        pytest.param(Devboy(capacity=1), ["Read a:A", "Read b:B", "Read a:A"], ["A", "B", "A"], id="a capacity of one"),
        pytest.param(
            Devboy(capacity=1, tools={"Bash": ToolSettings(capacity=2)}),
            ["Read a:A", "Read b:B", "Read a:A"],
            ["A", "B", "> [ref: c0, byte-identical]"],
            id="a larger capacity of one tool",
        ),
        pytest.param(
            Devboy(min_bytes=2),
            ["Bash a:s", "Bash a:ok", "Bash a:ok", "Bash a:s"],
            ["s", "ok", "> [ref: c1, byte-identical]", "s"],
            id="a smaller minimum",
        ),
        pytest.param(
            Devboy(near=NearRefConfig(min_body_bytes=5)),
            ["Read a:A", "Read a:B"],
            ["A", "B"],
            id="near-references of texts that are not JSON",
        ),
        pytest.param(
            Devboy(tools={"status": ToolSettings(dedup=False)}),
            ["status a:A", "status a:A", "Bash a:A"],
            ["A", "A", "> [ref: c0, byte-identical]"],
            id="a tool without dedup",
        ),
        pytest.param(
            Devboy(tools={"*": ToolSettings(invalidates=("get",)), "get": ToolSettings()}),
            ["get a:A", "put a:B", "get a:A", "get a:A"],
            ["A", "B", "A", "> [ref: c2, byte-identical]"],
            id="settings for all tools",
        ),
    ],
)
def test_devboy_has_settings(strategy: Devboy, steps: list[str], expected: list[str]) -> None:
    result = run(history_of(*steps), strategy, format="openai-chat")
    assert result_texts(result.request, "openai-chat") == [BODIES.get(text, text) for text in expected]


def test_devboy_refers_to_similar_results_if_asked() -> None:
    old, new = (json.dumps({"status": status, "pad": "x" * 500}) for status in ("open", "closed"))
    request = reads(old, new, format="openai-chat")
    assert run(request, Devboy(), format="openai-chat").request is request
    result = run(request, Devboy(near=NearRefConfig()), format="openai-chat")
    assert result_texts(result.request, "openai-chat") == [old, "> [near-ref: c0, status: open→closed]"]


def test_devboy_forgets_at_a_compaction() -> None:
    compaction = {"type": "compaction", "content": "summary"}
    read_twice = [a(C("a")), u(R("a", "x" * 300)), a(C("b")), u(R("b", "x" * 300))]
    forgets = body(u("q"), *read_twice[:2], a(compaction, C("b")), u(R("b", "x" * 300)))
    assert run(forgets, Devboy()).request is forgets
    assert counts(run(body(u("q"), *read_twice), Devboy())) == (0, 0, 300 - len("> [ref: a, byte-identical]"))


@pytest.mark.parametrize("key", ["file_path", "path", "notebook_path"])
def test_devboy_finds_the_path_in_the_arguments(key: str) -> None:
    calls = {"1": ("Read", {key: "a"}), "2": ("Edit", {key: "a"}), "3": ("Read", {key: "a"})}
    text = "x" * 300
    request = conv("u:go", "a>1", f"r1:{text}", "a>2", "r2:ok", "a>3", f"r3:{text}", format="openai-chat", calls=calls)
    assert run(request, Devboy(), format="openai-chat").request is request


def test_a_second_run_of_devboy_may_replace_more() -> None:
    """A hint is a short text like any other, so it does not refresh the entry that it names."""
    request = history_of("Read a:A", "Read b:B", "Read a:A", "Read 0:0", "Read b:B")
    once = run(request, Devboy(capacity=2), format="openai-chat")
    assert result_texts(once.request, "openai-chat")[2:] == ["> [ref: c0, byte-identical]", "0" * 300, "B" * 300]
    twice = run(once.request, Devboy(capacity=2), format="openai-chat")
    assert result_texts(twice.request, "openai-chat")[4] == "> [ref: c1, byte-identical]"
