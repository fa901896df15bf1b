"""The mock provider that clears and compacts: the model's view, the reports, and how they travel."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from ibidem.billing.usage import Usage
from ibidem.providers.usage_reader import UsageReader
from ibidem.testing import Answer, Calls, Clearing, Fails, Gzips, Says, Seen, Signing, Thinks, Upstream, conv
from ibidem.testing.clearing import PLACEHOLDER, since_compaction

PATHS = {"anthropic": "/v1/messages", "openai-responses": "/v1/responses", "openai-chat": "/v1/chat/completions"}
TEXTS = [f"{name} = compute({name})\n" * 40 for name in "abcdef"]
NEVER: dict[str, Any] = {"type": "input_tokens", "value": 10**9}


def history(format: str = "anthropic", results: int = 6, **fields: Any) -> dict[str, Any]:
    """A request whose last message is the last of some tool results. Each is of another file."""
    turns = [line for n in range(results) for line in (f"a?step {n}:I look.>{n}", f"r{n}:{TEXTS[n]}")]
    calls = {str(n): ("Read" if n % 2 else "Bash", {"path": f"file{n}"}) for n in range(results)}
    return {**conv("s:Be brief.", "u:go", *turns, format=format, calls=calls), **fields}


def clear(**settings: Any) -> dict[str, Any]:
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 100}, **settings}
    return {"edits": [edit]}


def value(number: int, kind: str = "tool_uses") -> dict[str, Any]:
    return {"type": kind, "value": number}


COMPACT = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 100}}]}
COMPACT_RESPONSES = [{"type": "compaction", "compact_threshold": 100}]


def view(body: dict[str, Any], format: str = "anthropic", answer: Answer | None = None) -> tuple[list[Any], Answer]:
    """What the model sees of a request, and the answer to it."""
    script = Clearing(lambda _: answer or Says("ok"))
    given = script(Seen("POST", PATHS[format], [], json.dumps(body).encode(), 0.0, 1))
    return script.seen_by_model[0], given


def cleared(body: dict[str, Any]) -> list[int]:
    """Numbers of the tool results that the model cannot see."""
    messages, _ = view(body)
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    results = [block["content"] for block in blocks if block["type"] == "tool_result"]
    assert all(text in (PLACEHOLDER, expected) for text, expected in zip(results, TEXTS, strict=False))
    return [number for number, text in enumerate(results) if text == PLACEHOLDER]


def reports(body: dict[str, Any]) -> Any:
    managed = view(body)[1].context_management
    return managed.applied_edits if managed is not None else None


# ── clearing ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"keep": value(1)}, [0, 1, 2, 3, 4]),
        ({"keep": value(0)}, [0, 1, 2, 3, 4, 5]),
        ({"keep": value(9)}, []),
        ({"trigger": NEVER}, []),
        ({"trigger": value(7)}, []),
        ({"trigger": value(6)}, [0, 1, 2]),
        ({"exclude_tools": ["Bash"], "keep": value(1)}, [1, 3]),
        ({"clear_at_least": value(400, "input_tokens")}, [0, 1, 2]),
        ({"clear_at_least": value(9000, "input_tokens")}, []),
    ],
    ids=str,
)
def test_oldest_tool_results_are_cleared(settings: dict[str, Any], expected: list[int]) -> None:
    body = history(context_management=clear(**settings))
    assert cleared(body) == expected
    found = reports(body)
    assert [edit["cleared_tool_uses"] for edit in found] == ([len(expected)] if expected else [])
    size = sum(len(TEXTS[number]) for number in expected) // 4
    assert all(0.8 * size < edit["cleared_input_tokens"] < 1.1 * size for edit in found)


def test_default_trigger_is_that_of_the_provider() -> None:
    assert reports(history(context_management={"edits": [{"type": "clear_tool_uses_20250919"}]})) == ()


def test_response_reports_nothing_if_the_request_asks_for_nothing() -> None:
    assert cleared(history()) == []
    assert reports(history()) is None


@pytest.mark.parametrize(("inputs", "empty"), [(None, 0), (False, 0), (True, 3), (["Read"], 1)])
def test_arguments_are_cleared_on_request(inputs: Any, empty: int) -> None:
    messages, _ = view(history(context_management=clear(clear_tool_inputs=inputs)))
    uses = [block for message in messages for block in message["content"] if isinstance(block, dict)]
    assert sum(block["input"] == {} for block in uses if block["type"] == "tool_use") == empty


def test_client_sends_the_request_unchanged_to_the_inner_script() -> None:
    texts: list[str] = []

    def script(seen: Seen) -> Answer:
        texts.append(seen.json["messages"][2]["content"][0]["content"])
        return Says("ok")

    body = history(context_management=clear())
    Clearing(script)(Seen("POST", PATHS["anthropic"], [], json.dumps(body).encode(), 0.0, 1))
    assert texts == [TEXTS[0]]


@pytest.mark.parametrize(
    ("keep", "left"),
    [(None, 2), ("all", 4), ({"type": "all"}, 4), (value(1, "thinking_turns"), 2), (value(2, "thinking_turns"), 4)],
    ids=str,
)
def test_thinking_of_older_turns_is_cleared(keep: Any, left: int) -> None:
    turns = ("u:one", "a?first>1", "r1:x", "a?second", "u:two", "a?third>2", "r2:y", "a?fourth", "u:three")
    edit = {"type": "clear_thinking_20251015"} | ({"keep": keep} if keep else {})
    body = conv(*turns) | {"context_management": {"edits": [edit]}}
    messages, answer = view(body)
    assert json.dumps(messages).count('"thinking":') == left
    managed = answer.context_management
    assert managed is not None
    assert [edit["cleared_thinking_turns"] for edit in managed.applied_edits or ()] == ([1] if left < 4 else [])


def test_rejections_stay_as_they_are() -> None:
    _, answer = view(history(context_management=clear()), answer=Fails(429))
    assert answer == Fails(429)


def test_other_formats_are_left_alone() -> None:
    body = history("openai-chat", context_management=clear())
    messages, answer = view(body, "openai-chat")
    assert messages == body["messages"]
    assert answer == Says("ok")


# ── compaction ──────────────────────────────────────────────────────────────────────────────────────────────────────

SUMMARY = {"type": "compaction", "content": "Summary of 13 messages."}


def test_compaction_leaves_the_summary() -> None:
    messages, answer = view(history(context_management=COMPACT))
    assert messages == [{"role": "assistant", "content": [SUMMARY]}]
    assert answer.parts == Says("ok").parts
    managed = answer.context_management
    assert managed is not None
    assert managed.summary == SUMMARY["content"]
    assert managed.applied_edits == ()


def test_nothing_is_compacted_below_the_threshold() -> None:
    body = history(context_management={"edits": [{"type": "compact_20260112"}]})
    messages, answer = view(body)
    assert messages == body["messages"]
    assert answer.context_management is not None
    assert answer.context_management.summary == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"context_management": {"edits": [{**COMPACT["edits"][0], "pause_after_compaction": True}]}},
        {"compaction": {"type": "summarize"}},
    ],
    ids=["pauses", "on demand"],
)
def test_nothing_is_sampled_after_a_compaction_that_pauses(fields: dict[str, Any]) -> None:
    messages, answer = view(history(**fields))
    assert messages == []
    assert answer.parts == ()
    assert answer.context_management is not None
    assert answer.context_management.summary == SUMMARY["content"]


def test_messages_before_a_compaction_block_cannot_be_seen() -> None:
    after: list[Any] = [
        {"role": "assistant", "content": [SUMMARY, {"type": "text", "text": "ok"}]},
        {"role": "user", "content": "more"},
    ]
    whole = history()
    whole["messages"] += after
    assert view(whole)[0] == after
    assert view({**whole, "messages": after})[0] == after
    other = [{**after[0], "content": [{"type": "text", "text": "odd"}, *after[0]["content"]]}, after[1]]
    assert view({**whole, "messages": [*whole["messages"], *other]})[0] == after


def test_block_without_a_summary_hides_nothing() -> None:
    body = history()
    body["messages"].append({"role": "assistant", "content": [{"type": "compaction", "content": None}]})
    assert since_compaction(body["messages"]) == body["messages"]
    assert view(body)[0] == body["messages"]


def test_responses_compact_and_forget_what_was_before() -> None:
    body = history("openai-responses", context_management=COMPACT_RESPONSES)
    items, answer = view(body, "openai-responses")
    assert [item["type"] for item in items] == ["compaction"]
    assert answer.context_management is not None
    assert answer.context_management.summary
    after = [{"type": "compaction", "encrypted_content": "x"}, {"type": "message", "role": "user", "content": "more"}]
    body["input"] += after
    assert view({**body, "context_management": None}, "openai-responses")[0] == after
    assert view({**body, "input": "a text"}, "openai-responses")[0] == []


# ── over the wire ───────────────────────────────────────────────────────────────────────────────────────────────────


def post(upstream: Upstream, format: str, body: dict[str, Any]) -> tuple[int, Any, bytes]:
    """The status, the headers and the body of one answer."""
    connection = http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=30)
    try:
        connection.request("POST", PATHS[format], json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def events(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]


def usage_of(format: str, headers: Any, data: bytes) -> tuple[Usage | None, UsageReader]:
    reader = UsageReader(format, headers["content-type"], headers.get("content-encoding", ""))
    reader.feed(data)
    return reader.finish(), reader


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_clearing_is_reported_and_is_not_billed(stream: bool, packed: bool) -> None:
    says = Gzips(Says("ok")) if packed else Says("ok")
    with Upstream(Clearing(lambda _: says), strict=True) as upstream:
        _, headers, before = post(upstream, "anthropic", history(stream=stream))
        full, reader = usage_of("anthropic", headers, before)
        assert reader.cleared_tool_uses == 0
        assert full is not None
        _, headers, after = post(upstream, "anthropic", history(stream=stream, context_management=clear(keep=value(1))))
        less, reader = usage_of("anthropic", headers, after)
    assert (reader.cleared_tool_uses, reader.has_compaction) == (5, False)
    assert less is not None
    assert less.input < full.input / 2


def test_reports_stand_in_the_last_event_and_at_the_top_level() -> None:
    with Upstream(Clearing(lambda _: Says("ok")), strict=True) as upstream:
        body = history(context_management=clear())
        whole = json.loads(post(upstream, "anthropic", body)[2])
        found = events(post(upstream, "anthropic", {**body, "stream": True})[2])
        silent = json.loads(post(upstream, "anthropic", history())[2])
    expected = whole["context_management"]["applied_edits"]
    assert [edit["type"] for edit in expected] == ["clear_tool_uses_20250919"]
    assert [event["type"] for event in found if "context_management" in event] == ["message_delta"]
    assert found[-2]["context_management"] == whole["context_management"]
    assert "context_management" not in silent


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_compaction_of_anthropic_is_billed_in_iterations(stream: bool) -> None:
    with Upstream(Clearing(lambda _: Thinks("hm", Calls(("Read", {"path": "a"})))), strict=True) as upstream:
        _, headers, data = post(upstream, "anthropic", history(stream=stream, context_management=COMPACT))
    found = events(data) if stream else []
    answer = json.loads(data) if not stream else found[-2]
    kinds = [event["content_block"]["type"] for event in found if event["type"] == "content_block_start"]
    kinds = kinds or [block["type"] for block in answer["content"]]
    assert kinds == ["compaction", "thinking", "tool_use"]
    assert [step["type"] for step in answer["usage"]["iterations"]] == ["compaction", "message"]
    assert answer["usage"]["input_tokens"] == answer["usage"]["iterations"][1]["input_tokens"] < 100
    usage, reader = usage_of("anthropic", headers, data)
    assert reader.has_compaction
    assert usage is not None
    assert reader.compaction.input > 10 * (usage.input - reader.compaction.input)
    if stream:
        block = next(event["content_block"] for event in found if event["type"] == "content_block_start")
        assert block == {"type": "compaction", "content": None}
        deltas = [event["delta"] for event in found if event["type"] == "content_block_delta" and event["index"] == 0]
        assert deltas == [{"type": "compaction_delta", "content": SUMMARY["content"]}]


def test_compaction_that_pauses_stops_for_that_reason() -> None:
    with Upstream(Clearing(lambda _: Says("ok")), strict=True) as upstream:
        answer = json.loads(post(upstream, "anthropic", history(compaction={"type": "summarize"}))[2])
    assert answer["content"] == [SUMMARY]
    assert answer["stop_reason"] == "compaction"
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (0, 0)
    assert [step["type"] for step in answer["usage"]["iterations"]] == ["compaction"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_compaction_item_of_responses(stream: bool) -> None:
    with Upstream(Clearing(lambda _: Says("ok")), strict=True) as upstream:
        body = history("openai-responses", stream=stream, context_management=COMPACT_RESPONSES)
        _, headers, data = post(upstream, "openai-responses", body)
        usage, reader = usage_of("openai-responses", headers, data)
        whole = events(data)[-1]["response"] if stream else json.loads(data)
        item = whole["output"][0]
        assert [item["type"] for item in whole["output"]] == ["compaction", "message"]
        if stream:
            about = [event["type"] for event in events(data) if event.get("item", {}).get("type") == "compaction"]
            assert about == ["response.output_item.added", "response.output_item.done"]
        body["input"] += whole["output"]
        body["input"].append({"type": "message", "role": "user", "content": "more"})
        after = json.loads(post(upstream, "openai-responses", {**body, "stream": False})[2])
    assert item.keys() == {"id", "type", "encrypted_content"}
    assert reader.has_compaction
    assert usage is not None
    assert usage.input > 500
    assert after["usage"]["input_tokens"] < 100
    assert [item["type"] for item in after["output"]] == ["message"]


# ── with signed thinking ────────────────────────────────────────────────────────────────────────────────────────────


class SignedTalk:
    """An Anthropic client that continues with the answers it gets."""

    def __init__(self, upstream: Upstream, **fields: Any) -> None:
        self.upstream = upstream
        self.body: dict[str, Any] = {"model": "claude-test", "max_tokens": 9, "messages": [], **fields}
        self.body["messages"].append({"role": "user", "content": "go"})

    def ask(self) -> int:
        status, _, data = post(self.upstream, "anthropic", self.body)
        if status == 200:
            content = json.loads(data)["content"]
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            text = TEXTS[len(self.body["messages"]) % len(TEXTS)]
            results = [{"type": "tool_result", "tool_use_id": call, "content": text} for call in calls]
            self.body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
        return status


def think(_: Seen) -> Answer:
    return Thinks("hm", Calls(("Read", {"path": "a"})))


def test_thinking_is_bound_to_what_the_client_sent() -> None:
    clearing = Clearing(think)
    script = Signing(clearing)
    with Upstream(script, strict=True) as upstream:
        talk = SignedTalk(upstream, context_management=clear(keep=value(1)))
        assert [talk.ask() for _ in range(8)] == [200] * 8
        first = talk.body["messages"][2]["content"][0]
        assert clearing.seen_by_model[-1][2]["content"] == [{**first, "content": PLACEHOLDER}]
        first["content"] = PLACEHOLDER
        assert (talk.ask(), script.refused) == (400, 1), "the client must send what it sent before"


def test_client_may_drop_what_is_before_a_compaction_block() -> None:
    script = Signing(Clearing(think))
    with Upstream(script) as upstream:
        talk = SignedTalk(upstream, context_management=COMPACT)
        assert [talk.ask() for _ in range(2)] == [200, 200]
        assert [block["type"] for block in talk.body["messages"][-2]["content"]] == [
            "compaction",
            "thinking",
            "tool_use",
        ]
        del talk.body["context_management"]
        assert [talk.ask() for _ in range(2)] == [200, 200]
        talk.body["messages"] = since_compaction(talk.body["messages"])
        assert len(talk.body["messages"]) == 6
        assert [talk.ask() for _ in range(2)] == [200, 200]
        talk.body["messages"][1]["content"][0]["content"] = "changed"
        assert (talk.ask(), script.refused) == (400, 1)
