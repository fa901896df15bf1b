"""One client and one server: what is hinted at, when, and what passes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ibidem.cache.json_limits import MAX_PARTS
from ibidem.cache.outputs import MAX_SHOWN_CHARS
from ibidem.gateway.mcp_session import FORGET_TOOL, MAX_OUTSTANDING, MAX_SECONDS
from ibidem.gateway.tool_rules import GatewayRules, parse_rules

from .talks import LONG, Talk, line, texts


def test_a_repeat_names_what_the_model_saw_and_who_asks_again_gets_the_text() -> None:
    talk = Talk(server="git")
    assert talk.said("log", LONG, path="/x") == LONG
    assert talk.said("show", "short") == "short"
    first = talk.said("log", LONG, path="/x", again=1)
    assert first.startswith("[ibidem: unchanged, same as the result 2 git calls ago, log(/x)")
    assert first.endswith("the same call again brings it in full]")
    assert talk.said("log", LONG, path="/x", again=1) == LONG
    assert talk.said("log", LONG, path="/x", again=2).startswith(
        "[ibidem: unchanged, same as the result 1 git call ago"
    )
    assert (talk.totals.results, talk.totals.hints) == (5, 2)


def test_the_name_that_hints_use_can_be_given() -> None:
    talk = Talk(server="secure-files-server", name="files")
    talk.hinted()
    assert "1 files call ago" in talk.said("read", LONG, again=1)


def test_the_stateless_protocol_names_both_sides_in_every_message() -> None:
    talk = Talk(client=None)
    meta = {"io.modelcontextprotocol/clientInfo": {"name": "an-agent", "version": "1"}}
    result = texts(LONG, resultType="complete", _meta={"io.modelcontextprotocol/serverInfo": {"name": "git"}})
    assert talk.call("read", result, meta) == result
    again = talk.call("read", result, meta, again=1)
    assert again["content"][0]["text"].startswith("[ibidem: unchanged, same as the result 1 git call ago, read")
    assert {**again, "content": result["content"]} == result


@pytest.mark.parametrize(
    ("result", "how"),
    [
        pytest.param(texts(LONG, isError=True), {}, id="an error of the tool"),
        pytest.param(texts(LONG, resultType="input_required"), {}, id="a result that asks for more"),
        pytest.param(texts(LONG, structuredContent={"a": 1}), {}, id="structured content"),
        pytest.param({"content": [{"type": "text", "text": LONG, "_meta": {}}]}, {}, id="a block with _meta"),
        pytest.param({"content": [{"type": "text", "text": LONG, "annotations": {}}]}, {}, id="an annotated block"),
        pytest.param({"content": [{"type": "image", "data": LONG, "mimeType": "a/b"}]}, {}, id="an image"),
        pytest.param({"content": [*texts(LONG)["content"], {"type": "image"}]}, {}, id="a text and an image"),
        pytest.param({"content": []}, {}, id="nothing"),
        pytest.param({"content": LONG}, {}, id="no list"),
        pytest.param({"content": [{"type": "text", "text": 5}]}, {}, id="no text"),
        pytest.param({"task": {"taskId": LONG}}, {}, id="a task"),
        pytest.param(None, {}, id="no result at all"),
        pytest.param(texts(f"[ibidem: {LONG}"), {}, id="a text that looks like a hint"),
        pytest.param(texts(LONG), {"took": MAX_SECONDS + 1}, id="an answer that its client may not have waited for"),
    ],
)
def test_such_results_pass_as_they_came(result: Any, how: dict[str, Any]) -> None:
    talk = Talk()
    for number in range(3):
        talk.ask("tools/call", name="read", arguments={"number": number})
        talk.now += how.get("took", 0)
        data = line(id=talk.id, result=result)
        assert talk.answer(data) is data
    assert talk.totals.hints == 0


def test_several_texts_become_one_hint_and_are_equal_as_a_whole() -> None:
    talk = Talk()
    talk.call("read", texts(LONG, "b"))
    assert talk.call("read", texts(LONG, "c"), n=1) == texts(LONG, "c")
    (block,) = talk.call("read", texts(LONG, "b"), n=2)["content"]
    assert block["text"].startswith("[ibidem: ")
    assert talk.said("read", LONG, n=3) == LONG


@pytest.mark.parametrize("style", ["ibidem", "devboy"])
def test_a_result_that_a_client_may_show_in_part_is_neither_hinted_at_nor_remembered(style: str) -> None:
    most = "x" * MAX_SHOWN_CHARS
    for text, hints in ((most, True), (most + "x", False)):
        talk = Talk(rules=declared(style=style))
        assert [talk.hinted(text=text, n=number) for number in range(2)] == [False, hints]
    talk = Talk(rules=declared(style=style, max_chars=MAX_SHOWN_CHARS + 1))
    assert [talk.hinted(text=most + "x", n=number) for number in range(2)] == [False, True]
    talk = Talk(rules=declared(style=style), strip_schema=True)
    listed(talk, {"name": "read"})
    # Shown as JSON, which has two characters for each of these.
    result = texts('"' * (MAX_SHOWN_CHARS - 10), structuredContent={"result": '"' * (MAX_SHOWN_CHARS - 10)})
    assert [talk.call("read", result, n=number) for number in range(2)] == [result] * 2


def test_no_text_passes_for_several() -> None:
    talk = Talk()
    talk.call("read", texts(LONG, LONG))
    listed = "\0" + json.dumps([LONG, LONG]) + "\0"
    assert talk.said("read", listed, n=1) == listed


def test_a_result_that_comes_before_that_of_an_earlier_call_is_sent_in_full() -> None:
    """The model reads them in the order of the calls: what was one result ago here is two results ago there."""
    talk = Talk()
    assert talk.said("status", LONG) == LONG
    talk.ask("tools/call", name="status", arguments={})
    talk.ask("tools/call", name="other", arguments={})
    result = line(id=talk.id, result=texts(LONG))
    assert talk.answer(result) is result
    assert talk.said("other", LONG, n=1) != LONG, "which is right below it, whatever becomes of the other"


def test_a_changed_field_is_told_from_the_last_full_text() -> None:
    talk = Talk()
    body = {"id": 7, "text": LONG, "total": 1}
    for total, told in ((1, None), (2, "total: 1→2"), (3, "total: 1→3")):
        said = talk.said("order", json.dumps({**body, "total": total}), n=total)
        assert said.startswith("{") if told is None else f"but for {told}, order(n=1)" in said


def test_everything_else_of_a_changed_message_stays_as_it_was_spelled() -> None:
    talk = Talk()
    talk.hinted()
    talk.ask("tools/call", name="read", arguments={"n": 1})
    content = f'"content":[ {{"text":{json.dumps(LONG)},"type":"text"}} ]'
    odd = f'{{ "result" : {{{content}, "_meta":{{"n":1.00}} }},\t"id":{talk.id} }} \r\n'
    new = talk.answer(odd.encode()).decode()
    start, end = odd.split(json.dumps(LONG))
    assert new.startswith(start + '"[ibidem: unchanged')
    assert new.endswith(end)


# --- whom a hint would be untrue for ---------------------------------------------------------------


ASKED = {"no_subagents": True}
UNKNOWN = (
    *("an-agent", "mcp", "claude-ai", "Code - OSS", "VSCodium", "qwen-cli-mcp-client-git", "Cline", "Roo Code"),
    *("Kilo-Code", "Windsurf", "Zed", "crush", "amp-mcp-client", "github-copilot-developer"),
)


@pytest.mark.parametrize(
    ("client", "settings", "hints", "told"),
    [
        ("claude-code", {}, False, "its subagents share this connection (use its plugin instead"),
        ("claude-code", ASKED, True, ""),
        ("opencode", {}, False, "its subagents share this connection (--no-subagents"),
        ("codex-mcp-client", {}, False, "its scripts would get hints"),
        ("codex-mcp-client", ASKED, False, "its scripts would get hints"),
        ("codex-mcp-client", {"codex": True}, False, ""),  # a call that says nothing of its thread
        *((name, {}, False, f"hints are off for {name}: it may have subagents") for name in UNKNOWN),
        *((name, ASKED, True, "") for name in UNKNOWN),
        (None, {}, False, "the client did not send its name"),
        (None, ASKED, False, "the client did not send its name"),
        ("\x1b[2Jclaude\n", {}, False, "hints are off for \\x1b[2Jclaude"),
    ],
)
def test_hints_are_off_where_they_would_be_untrue(client: str, settings: Any, hints: bool, told: str) -> None:
    talk = Talk(client, **{"no_subagents": False, **settings})
    assert [talk.hinted(n=number) for number in range(2)] == [False, hints]
    assert len(talk.told) == bool(told)
    assert told in "".join(talk.told)


def test_threads_of_codex_are_told_apart_and_a_call_without_one_passes() -> None:
    talk = Talk("codex-mcp-client", codex=True, no_subagents=False)
    one, two = {"threadId": "1"}, {"threadId": "2"}
    assert not talk.hinted(meta=one)
    assert not talk.hinted(meta=two)
    assert talk.hinted(meta=one, n=1)
    assert not talk.hinted(meta={"threadId": "1", "windowId": "after a compaction"}, n=2)
    assert not talk.hinted(n=3)
    assert not talk.hinted(n=4)


# --- when it is forgotten --------------------------------------------------------------------------


def big_batch(talk: Talk) -> None:
    talk.session.from_client(b"[" + line(id=900, method="tools/call").strip() + b"]\n", 0)


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda talk: talk.notify("notifications/cancelled", requestId=talk.id), id="a call is cancelled"),
        pytest.param(lambda talk: talk.session.clear_memory(), id="a message was too long to look at"),
        pytest.param(big_batch, id="several messages came at once"),
        pytest.param(lambda talk: talk.ask("initialize", clientInfo={"name": "an-agent"}), id="the client begins anew"),
        pytest.param(lambda talk: setattr(talk, "now", 1000.0), id="time went by"),
        pytest.param(lambda talk: [talk.said("x", "short") for _ in range(21)], id="many calls went by"),
        pytest.param(
            lambda talk: [talk.ask("tools/call", name="x") for _ in range(MAX_OUTSTANDING + 1)], id="too many"
        ),
        pytest.param(lambda talk: talk.notify("notifications/devboy/compact"), id="the host compacted"),
    ],
)
def test_what_may_be_out_of_sight_is_forgotten(happens: Any) -> None:
    talk = Talk(offers_forget=True)
    assert not talk.hinted()
    happens(talk)
    assert not talk.hinted(n=1)
    assert talk.hinted(n=2)


def test_the_answer_to_a_cancelled_call_is_not_remembered() -> None:
    talk = Talk()
    talk.ask("tools/call", name="read", arguments={})
    asked = talk.id
    talk.notify("notifications/cancelled", requestId=asked)
    late = line(id=asked, result=texts(LONG))
    assert talk.answer(late) is late
    assert not talk.hinted(n=1)


def test_answers_are_matched_by_id_and_direction() -> None:
    talk = Talk()
    talk.hinted()
    talk.ask("tools/call", name="read", arguments={"n": 1})
    for other in (
        line(id=talk.id, method="sampling/createMessage", params={}),  # the server's own request, with the same id
        line(id=str(talk.id), result=texts(LONG)),
        line(id=talk.id + 1, result=texts(LONG)),
        line(method="notifications/progress", params={"progress": 1}),
        line(id=None, result=texts(LONG)),
        line(id=True, result=texts(LONG)),
        line(id=[1], result=texts(LONG)),
    ):
        assert talk.answer(other) is other
    ours = line(id=talk.id, result={"model": "m", "role": "assistant", "content": {"type": "text", "text": LONG}})
    assert talk.session.from_client(ours, 0) == (ours, b"")
    assert b"[ibidem: " in talk.answer(line(id=talk.id, result=texts(LONG)))


@pytest.mark.parametrize(
    ("ended", "hints"),
    [
        ((0, 1, 2, 3), [False, True, True, True]),
        ((1, 2, 0, 3), [False, True, False, False]),
        ((3, 2, 1, 0), [False, False, False, False]),
    ],
)
def test_calls_at_once_are_counted_as_a_model_reads_them_or_not_at_all(ended: Any, hints: list[bool]) -> None:
    talk = Talk()
    asked = []
    for number in range(4):
        talk.ask("tools/call", name="read", arguments={"n": number})
        asked.append(talk.id)
    told = [talk.answer(line(id=asked[number], result=texts(LONG))).decode() for number in ended]
    assert ["[ibidem: " in each for each in told] == hints
    assert all(f"{ended[n] - ended[0]} things call" in each for n, each in enumerate(told) if hints[n])


# --- tools that are listed -------------------------------------------------------------------------


def listed(talk: Talk, *tools: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    talk.ask("tools/list", **({"cursor": "2"} if more.pop("second", False) else {}))
    found: list[dict[str, Any]] = json.loads(talk.answer(line(id=talk.id, result={"tools": [*tools], **more})))[
        "result"
    ]["tools"]
    return found


def test_tools_pass_as_they_came_unless_something_is_asked_for() -> None:
    tool = {"name": "read", "outputSchema": {"type": "object"}}
    assert listed(Talk(), tool) == [tool]
    assert listed(Talk(strip_schema=True), tool, {"name": "b"}) == [{"name": "read"}, {"name": "b"}]


def test_structured_results_are_hinted_at_once_no_tool_promises_them() -> None:
    talk = Talk(strip_schema=True)
    result = texts(LONG, structuredContent={"result": LONG})
    assert talk.call("read", result) == result
    assert talk.call("read", result, n=1) == result, "the client may know of a promise"
    listed(talk, {"name": "read", "outputSchema": {}})
    assert talk.call("read", result, n=2) == result
    (again,) = talk.call("read", result, n=3)["content"]
    assert again["text"].startswith("[ibidem: ")
    other = texts(LONG, structuredContent={"result": LONG, "more": 1})
    assert talk.call("read", other, n=4) == other, "clients show what is structured"
    for value in (1, True, 1.0):  # to Python they are equal
        other = texts(json.dumps({"text": LONG, "n": 1}), structuredContent={"text": LONG, "n": value})
        assert talk.call("read", other, n=5 + len(repr(value))) == other


def test_a_promise_that_could_not_be_taken_out_is_kept() -> None:
    result = texts(LONG, structuredContent={"result": LONG})
    tool = b'{"name": "read", "outputSchema": 1, "outputSchema": 2}'
    twice = b'{"jsonrpc": "2.0", "id": %d, "result": {"tools": [' + tool + b"]}}"
    large = b'{"jsonrpc": "2.0", "id": %d, "result": {"tools": [' + b"[]," * MAX_PARTS + b"0]}}"
    for answer in (twice, large):
        talk = Talk(strip_schema=True, offers_forget=True)
        listed(talk, {"name": "read", "outputSchema": 1})
        talk.call("read", result)
        assert talk.call("read", result, n=1) != result
        talk.ask("tools/list")
        told = answer % talk.id
        assert talk.answer(told) is told
        assert [talk.call("read", result, n=number) for number in range(2, 4)] == [result] * 2
        listed(talk, {"name": "more"}, second=True)
        assert [talk.call("read", result, n=number) for number in range(4, 6)] == [result] * 2, "of the first part"
        listed(talk, {"name": "read", "outputSchema": 1})
        talk.call("read", result, n=6)
        assert talk.call("read", result, n=7) != result


def test_a_tool_that_could_not_be_added_is_not_ours() -> None:
    talk = Talk(offers_forget=True)
    talk.ask("tools/list")
    twice = b'{"jsonrpc": "2.0", "id": %d, "result": {"tools": [], "tools": []}}' % talk.id
    assert talk.answer(twice) is twice
    assert talk.ask("tools/call", name="forget") == b""


def test_a_model_can_have_everything_forgotten() -> None:
    talk = Talk(offers_forget=True)
    assert talk.ask("tools/call", name="forget") == b"", "not offered yet"
    assert listed(talk, {"name": "read"}, nextCursor="2") == [{"name": "read"}]
    assert listed(talk, {"name": "more"}, second=True) == [{"name": "more"}, {"name": "forget", **FORGET_TOOL}]
    assert not talk.hinted()
    answer = json.loads(talk.ask("tools/call", name="forget", arguments={}))
    assert (answer["id"], answer["result"]["isError"]) == (talk.id, False)
    assert not talk.hinted(n=1)


def test_a_tool_of_the_server_with_that_name_stays_its_own() -> None:
    talk = Talk(offers_forget=True)
    assert listed(talk, {"name": "forget"}) == [{"name": "forget"}]
    assert talk.ask("tools/call", name="forget") == b""
    assert talk.told == ["the server already has a tool forget, so the gateway does not offer its own"]


# --- what is declared ------------------------------------------------------------------------------


def declared(**table: Any) -> GatewayRules:
    return parse_rules(table, "rules.toml")


def test_a_tool_that_changes_something_has_it_sent_in_full() -> None:
    rules = declared(
        tools={
            "update_issue": {"invalidates": ["get_issue"]},
            "cat": {"kind": "read", "path": "name"},
            "put": {"kind": "write", "path": "name"},
            "secret": {"never": True},
        }
    )
    talk = Talk(rules=rules)
    assert not talk.hinted("get_issue", n=1)
    assert talk.hinted("get_issue", n=2)
    talk.call("update_issue", texts("done", isError=True))
    assert not talk.hinted("get_issue", n=3)
    text = LONG + "of a file"
    assert not talk.hinted("cat", text, name="a")
    talk.said("put", "done", name="b")
    assert talk.hinted("cat", text, name="a", again=1)
    talk.said("put", "done", name="a")
    assert not talk.hinted("cat", text, name="a", again=2)
    assert [talk.hinted("secret", LONG * 2, n=number) for number in range(3)] == [False] * 3


def test_a_rule_for_all_tools_counts_for_tools_without_their_own() -> None:
    rules = declared(
        tools={
            "*": {"invalidates": ["get_issue"]},
            "get_issue": {},
            "cat": {"kind": "read", "path": "name"},
        }
    )
    talk = Talk(rules=rules)
    assert not talk.hinted("get_issue", n=1)
    talk.said("cat", "short", name="a")
    assert talk.hinted("get_issue", n=2)
    talk.said("close_issue", "done")
    assert not talk.hinted("get_issue", n=3)
    never = Talk(rules=declared(tools={"*": {"never": True}, "log": {}}))
    assert [never.hinted("read", n=number) for number in range(3)] == [False] * 3
    assert [never.hinted("log", LONG * 2, n=number) for number in range(2)] == [False, True]


def test_devboy_style_sends_the_hints_of_devboy() -> None:
    rules = declared(style="devboy", tools={"secret": {"never": True}})
    talk = Talk(rules=rules)
    assert talk.said("get_issue", LONG) == LONG
    first = talk.id
    assert [talk.said("get_issue", LONG) for _ in range(2)] == [f"> [ref: {first}, byte-identical]"] * 2
    assert [talk.hinted("secret", LONG * 2) for _ in range(2)] == [False, False]
    near = Talk(rules=declared(style="devboy", near=True, verbosity="verbose"))
    one, two = (json.dumps({"text": LONG, "n": number}) for number in (1, 2))
    near.said("get", one)
    assert near.said("get", two) == f"> [near-ref: {near.id - 1}, n: 1→2]"
    assert near.said("get", one) == f"> [ref: {near.id - 2}, byte-identical, from: other]"


def test_devboy_style_invalidates_only_after_an_output_that_is_sent_in_full() -> None:
    written = "".join(f"line {number} was written\n" for number in range(20))
    tools = {"update_issue": {"invalidates": ["get_issue"]}, "put": {"kind": "write", "path": "name"}}
    talk = Talk(rules=declared(style="devboy", tools={**tools, "cat": {"kind": "read", "path": "name"}}))
    assert not talk.hinted("get_issue")
    talk.said("update_issue", "done")
    assert talk.hinted("get_issue"), "the output of the writer was short"
    assert not talk.hinted("update_issue", written)
    assert not talk.hinted("get_issue")
    assert talk.hinted("update_issue", written)
    assert talk.hinted("get_issue"), "the output of the writer was replaced"
    assert not talk.hinted("cat", LONG * 2, name="a")
    talk.said("put", "done", name="a")
    assert not talk.hinted("cat", LONG * 2, name="a"), "a path is invalidated by an output of any size"


def test_devboy_style_has_rules_for_all_tools_and_a_minimum() -> None:
    tools = {"*": {"invalidates": ["get"]}, "get": {}, "log": {}}
    talk = Talk(rules=declared(style="devboy", min_bytes=4, tools=tools))
    assert not talk.hinted("get")
    talk.said("put", "ok")
    talk.said("log", "written")
    assert talk.hinted("get"), "the output was shorter than the minimum, or its tool has a rule of its own"
    talk.said("put", "done")
    assert not talk.hinted("get")


def test_a_result_that_says_two_things_passes() -> None:
    talk = Talk()
    talk.hinted()
    talk.ask("tools/call", name="read", arguments={"n": 1})
    twice = line(id=talk.id, result=texts(LONG)).replace(b'"content":', b'"content": [], "content":')
    assert talk.answer(twice) is twice
    assert talk.told == []
    first = talk.said("read", LONG, n=1)
    assert first.endswith("the same call again brings it in full]"), "nobody was told yet what a hint is"


def test_long_arguments_are_kept_as_digests_until_the_answer_comes() -> None:
    talk = Talk()
    one, two = "a" * 100_000, "b" * 100_000
    assert not talk.hinted("put", content=one)
    assert talk.hinted("put", content=two)
    assert not talk.hinted("put", content=two), "asked again"


def test_a_message_too_deep_to_read_passes_and_has_all_forgotten() -> None:
    talk = Talk()
    talk.hinted()
    deep = line(id=5, method="tools/call", params={"name": "x", "arguments": "DEEP"})
    deep = deep.replace(b'"DEEP"', b"[" * 100_000 + b"]" * 100_000)
    assert talk.session.from_client(deep, 0) == (deep, b"")
    assert not talk.hinted(n=1)
