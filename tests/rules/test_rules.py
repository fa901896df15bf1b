"""Each rule, broken and just not broken, in every format that makes the demand; and that no plan gets past them.

A row holds a request that breaks exactly one rule, where, and a near neighbour that breaks none. docs/providers.md
has the source of each, under its name.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, ClassVar, NamedTuple

import pytest

import ibidem
from ibidem.model import Conversation, Kind, Text
from ibidem.rules import RULES

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic", "openai-chat", "openai-responses", "gemini"

# --- small change ---------------------------------------------------------------------------------


def user(*content: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": content[0] if len(content) == 1 and content[0].__class__ is str else list(content),
    }


def assistant(*content: Any) -> dict[str, Any]:
    return user(*content) | {"role": "assistant"}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(ident: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "read", "input": {"path": "x"}, **more}


def result(ident: str = "a", content: Any = "out", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}


def thinking(**more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "Hm.", "signature": "EqQ=", **more}


def short(**more: Any) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", **more}}


LONG_LIVED = short(ttl="1h")
SEARCH = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}


def calls(*idents: str, **more: Any) -> dict[str, Any]:
    function = {"name": "read", "arguments": '{"path":"x"}'}
    made = [{"id": ident, "type": "function", "function": function} for ident in idents]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def tool(ident: str = "a", content: Any = "out") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content}


def function_call(ident: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": "read", "arguments": '{"path":"x"}', **more}


def output(ident: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": "out", **more}


SHELL = {"type": "shell_call", "call_id": "a", "action": {}}
SHELL_OUTPUT = {"type": "shell_call_output", "call_id": "a", "output": []}
CUSTOM = {"type": "custom_tool_call", "call_id": "a", "name": "x", "input": ""}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "a", "output": "x"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def content(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return content(*parts) | {"role": "model"}


def gcall(name: str = "read", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"path": "x"}, **more}}


def gresponse(name: str = "read", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "out"}, **more}}


Q = user("q")
SETS = {"role": "system", "content": [], "output_config": {"effort": "low"}}
GQ = content("q")


# --- the table ------------------------------------------------------------------------------------


class Row(NamedTuple):
    rule: str
    format: str
    sentence: str
    at: list[str]
    broken: Any
    """A history or a body."""
    near: Any
    """What breaks nothing."""


A, C, R, G = ANTHROPIC, CHAT, RESPONSES, GEMINI

TABLE = [
    Row("shape", A, "a message that is a number", ["messages[1]"], [Q, 7], [Q]),
    Row("shape", A, "a role that is a number", ["messages[1]"],
        [Q, {"role": 5, "content": "x"}], [Q, assistant("x"), Q]),
    Row("shape", A, "content that is a number", ["messages[0].content"], [{"role": "user", "content": 7}], [user("7")]),
    Row("shape", A, "no content", ["messages[0].content"], [{"role": "user"}], [Q]),
    Row("shape", A, "a block that is a string", ["messages[0].content[1]"],
        [user(text("x"), "y")], [user(text("x"), text("y"))]),
    Row("shape", A, "a block without a type", ["messages[0].content[0]"],
        [user({"text": "x"})], [user({"type": "new", "x": 1})]),
    Row("shape", A, "a result of junk", ["messages[2].content[0].content[1]"],
        [Q, assistant(use()), user(result(content=[text("x"), 7]))],
        [Q, assistant(use()), user(result(content=[text("x"), IMAGE]))]),
    Row("shape", C, "a message that is a list", ["messages[1]"], [Q, ["user", "x"]], [Q]),
    Row("shape", C, "no role", ["messages[0]"], [{"content": "x"}], [Q]),
    Row("shape", C, "content that is an object", ["messages[0].content"],
        [{"role": "user", "content": {"text": "x"}}], [Q]),
    Row("shape", C, "a call that is a string", ["messages[1].tool_calls[0]"],
        [Q, calls("a", tool_calls=["read"])], [Q, calls("a"), tool()]),
    Row("shape", C, "a result that is a number", ["messages[2].content"],
        [Q, calls("a"), tool(content=7)], [Q, calls("a"), tool(content="7")]),
    Row("shape", R, "an item that is null", ["input[1]"], [Q, None], [Q]),
    Row("shape", R, "a message without a role", ["input[0]"], [{"type": "message", "content": "x"}], [Q]),
    Row("shape", R, "content that is a number", ["input[0].content"], [{"role": "user", "content": 7}], [Q]),
    Row("shape", R, "a block that is a number", ["input[0].content[0]"], [{"role": "user", "content": [7]}], [Q]),
    Row("shape", G, "a content that is a string", ["contents[1]"], [GQ, "x"], [GQ]),
    Row("shape", G, "a role that is a number", ["contents[0]"],
        [GQ | {"role": 5}], [{"parts": [{"text": "no role is the user's"}]}]),
    Row("shape", G, "parts that are a string", ["contents[0].parts"], [{"role": "user", "parts": "x"}], [GQ]),
    Row("shape", G, "an empty part", ["contents[0].parts[1]"],
        [content("x", {})], [content("x", {"inlineData": {"data": ""}})]),
    Row("shape", G, "an empty part that is not signed", ["contents[1].parts[1]"],
        [GQ, model("x", {})], [GQ, model("x", {"thoughtSignature": "CiQ="})]),
    #
    Row("history-not-empty", A, "no messages", ["messages"], {"messages": []}, {"messages": [Q]}),
    Row("history-not-empty", C, "no messages", ["messages"], {"messages": []}, {"messages": [Q]}),
    Row("history-not-empty", R, "no input", ["input"], {"input": []}, {"input": [], "previous_response_id": "resp_1"}),
    Row("history-not-empty", R, "a prompt is input", ["input"], {"input": []}, {"input": "hello"}),
    Row("history-not-empty", G, "no contents", ["contents"], {"contents": []}, {"contents": [GQ]}),
    #
    Row("known-roles", A, "a role of another format", ["messages[1]"],
        [Q, {"role": "developer", "content": "x"}, assistant("x"), Q],
        [Q, {"role": "system", "content": "x"}, assistant("x"), Q]),
    Row("known-roles", C, "a role of another format", ["messages[1]"],
        [Q, {"role": "model", "content": "x"}], [Q, {"role": "developer", "content": "x"}]),
    Row("known-roles", R, "a role of another format", ["input[1]"],
        [Q, {"role": "tool", "content": "x"}], [Q, {"role": "developer", "content": "x"}]),
    Row("known-roles", G, "a role of another format", ["contents[1]"],
        [GQ, GQ | {"role": "system"}], [GQ, GQ | {"role": "model"}]),
    #
    Row("first-is-user", A, "the assistant speaks first", ["messages[0]"], [assistant("x"), Q], [Q, assistant("x"), Q]),
    #
    Row("alternating-roles", A, "two user messages", ["messages[1]"], [Q, Q], [Q, assistant("x"), Q]),
    Row("alternating-roles", A, "results and then the user", ["messages[3]"],
        [Q, assistant(use()), user(result()), Q], [Q, assistant(use()), user(result(), text("q"))]),
    Row("alternating-roles", A, "two user messages around a system message", ["messages[2]"],
        [Q, {"role": "system", "content": "x"}, Q], [Q, {"role": "system", "content": "x"}, assistant("y"), Q]),
    #
    Row("system-messages", A, "after the assistant, unless it only sets something", ["messages[2]"],
        [Q, assistant("x"), {"role": "system", "content": "x"}, Q], [Q, assistant("x"), SETS, Q]),
    Row("system-messages", A, "after the assistant", ["messages[2]"],
        [Q, assistant("x"), {"role": "system", "content": "x"}, Q],
        [Q, {"role": "system", "content": "x"}, assistant("x"), Q]),
    Row("system-messages", A, "with an image", ["messages[1]"],
        [Q, {"role": "system", "content": [IMAGE]}], [Q, {"role": "system", "content": [text("x")]}]),
    Row("system-messages", A, "two in a row", ["messages[2]"],
        [Q, *[{"role": "system", "content": "x"}] * 2], [Q, {"role": "system", "content": "x"}]),
    #
    Row("last-is-not-assistant", A, "words put in its mouth", ["messages[1]"],
        [Q, assistant("{")], [Q, assistant("{"), Q]),
    #
    Row("calls-answered", A, "text instead of a result", ["messages[1].content[0]"],
        [Q, assistant(use()), Q], [Q, assistant(use()), user(result())]),
    Row("calls-answered", A, "one result of two", ["messages[1].content[0]"],
        [Q, assistant(use("a"), use("b")), user(result("b"))],
        [Q, assistant(use("a"), use("b")), user(result("b"), result("a"))]),
    Row("calls-answered", C, "text instead of a result", ["messages[1].tool_calls[0]"],
        [Q, calls("a"), Q], [Q, calls("a"), tool(), Q]),
    Row("calls-answered", C, "one result of two", ["messages[1].tool_calls[1]"],
        [Q, calls("a", "b"), tool("a"), Q], [Q, calls("a", "b"), tool("b"), tool("a"), Q]),
    Row("calls-answered", R, "no output at all", ["input[1]"],
        [Q, function_call(), Q], [Q, function_call(), Q, output()]),
    Row("calls-answered", R, "a shell call without output", ["input[1]"],
        [Q, SHELL, Q],
        [Q, SHELL, SHELL_OUTPUT]),
    Row("calls-answered", R, "a custom call without output", ["input[1]"],
        [Q, CUSTOM, Q],
        [Q, CUSTOM, CUSTOM_OUTPUT]),
    Row("calls-answered", G, "text instead of a response", ["contents[1].parts[0]"],
        [GQ, model(gcall()), GQ], [GQ, model(gcall()), content(gresponse())]),
    # Gemini CLI gives a response an id that its call did not have, LangChain gives none where the call had one.
    Row("calls-answered", G, "no response, where one with an id of its own would do", ["contents[1].parts[0]"],
        [GQ, model(gcall()), GQ], [GQ, model(gcall()), content(gresponse(id="read-1755899286321"))]),
    Row("calls-answered", G, "no response, where one without the call's id would do", ["contents[1].parts[0]"],
        [GQ, model(gcall(id="a")), GQ], [GQ, model(gcall(id="a")), content(gresponse())]),
    Row("calls-answered", G, "one response of two", ["contents[1].parts[0]"],
        [GQ, model(gcall("read"), gcall("grep")), content(gresponse("grep"))],
        [GQ, model(gcall("read"), gcall("grep")), content(gresponse("read"), gresponse("grep"))]),
    Row("calls-answered", G, "one response of two to the same tool", ["contents[1].parts[1]"],
        [GQ, model(gcall(), gcall()), content(gresponse())],
        [GQ, model(gcall(), gcall()), content(gresponse(), gresponse())]),
    #
    Row("results-answer-calls", A, "nobody called", ["messages[0].content[0]"],
        [user(result())], [Q, assistant(use()), user(result())]),
    Row("results-answer-calls", A, "a second result", ["messages[2].content[1]"],
        [Q, assistant(use()), user(result(), result())], [Q, assistant(use()), user(result(), text("x"))]),
    Row("results-answer-calls", A, "again, a turn later", ["messages[4].content[0]"],
        [Q, assistant(use()), user(result()), assistant("x"), user(result())],
        [Q, assistant(use()), user(result()), assistant("x"), Q]),
    Row("results-answer-calls", C, "nobody called", ["messages[1]"], [Q, tool()], [Q, calls("a"), tool()]),
    Row("results-answer-calls", C, "a second result", ["messages[3]"],
        [Q, calls("a"), tool(), tool(), Q], [Q, calls("a"), tool(), Q, calls("a"), tool(), Q]),
    Row("results-answer-calls", R, "nobody called", ["input[1]"],
        {"input": [Q, output()]}, {"input": [Q, output()], "conversation": "conv_1"}),
    Row("results-answer-calls", R, "a second output", ["input[3]"],
        [Q, function_call(), output(), output()], [Q, function_call(), output(), function_call(), output()]),
    Row("results-answer-calls", G, "nobody called", ["contents[0].parts[0]"],
        {"contents": [content(gresponse())]},
        {"contents": [content(gresponse())], "cachedContent": "cachedContents/1"}),
    Row("results-answer-calls", G, "a second response", ["contents[2].parts[1]"],
        [GQ, model(gcall()), content(gresponse(), gresponse())],
        [GQ, model(gcall(), gcall()), content(gresponse(), gresponse())]),
    #
    Row("unique-call-ids", A, "an id used again", ["messages[3].content[0]"],
        [Q, assistant(use()), user(result()), assistant(use()), user(result())],
        [Q, assistant(use("a")), user(result("a")), assistant(use("b")), user(result("b"))]),
    #
    Row("results-first", A, "text before a result", ["messages[2].content[1]"],
        [Q, assistant(use()), user(text("x"), result())], [Q, assistant(use()), user(result(), text("x"))]),
    Row("results-first", A, "an image between results", ["messages[2].content[2]"],
        [Q, assistant(use("a"), use("b")), user(result("a"), IMAGE, result("b"))],
        [Q, assistant(use("a"), use("b")), user(result("a"), result("b"), IMAGE)]),
    #
    Row("thinking-before-calls", A, "thinking after the call", ["messages[1].content[1]"],
        [Q, assistant(use(), thinking()), user(result())],
        [Q, assistant(thinking(), text("x"), use()), user(result())]),
    Row("thinking-before-calls", A, "redacted thinking after the call", ["messages[1].content[1]"],
        [Q, assistant(use(), {"type": "redacted_thinking", "data": "Em"}), user(result())],
        [Q, assistant({"type": "redacted_thinking", "data": "Em"}, use()), user(result())]),
    Row("thinking-before-calls", A, "thinking around a tool that the provider ran", ["messages[1].content[1]"],
        [Q, assistant(use(), thinking()), user(result())],
        [Q, assistant(thinking(), *SEARCH, thinking(), use()), user(result())]),
    #
    Row("reasoning-before-its-item", R, "the user comes between", ["input[1]"],
        [Q, REASONING, Q], [Q, REASONING, {"role": "assistant", "content": "x"}, Q]),
    Row("reasoning-before-its-item", R, "it comes last", ["input[1]"],
        [Q, REASONING], [Q, REASONING, function_call(), output()]),
    Row("reasoning-before-its-item", R, "an output comes between", ["input[2]"],
        [Q, function_call(), REASONING, output()], [Q, REASONING, REASONING, function_call(), output()]),
    Row("reasoning-before-its-item", R, "it led to a call the provider ran", ["input[1]"],
        [Q, REASONING, Q], [Q, REASONING, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, Q]),
    #
    Row("call-arguments", A, "input that is a string", ["messages[1].content[0].input"],
        [Q, assistant(use(input="{}")), user(result())], [Q, assistant(use(input={})), user(result())]),
    Row("call-arguments", A, "input that is null", ["messages[1].content[0].input"],
        [Q, assistant(use(input=None)), user(result())], [Q, assistant(use()), user(result())]),
    Row("call-arguments", C, "arguments that are an object", ["messages[1].tool_calls[0].function.arguments"],
        [Q, calls("a", tool_calls=[{"id": "a", "function": {"name": "x", "arguments": {}}}]), tool()],
        [Q, calls("a", tool_calls=[{"id": "a", "function": {"name": "x", "arguments": ""}}]), tool()]),
    Row("call-arguments", R, "arguments that are an object", ["input[1].arguments"],
        [Q, function_call(arguments={}), output()],
        [Q, SHELL, output()]),
    Row("call-arguments", G, "args that are a string", ["contents[1].parts[0].functionCall.args"],
        [GQ, model(gcall(args="{}")), content(gresponse())],
        [GQ, model({"functionCall": {"name": "read"}}), content(gresponse())]),
    #
    Row("text-not-empty", A, "an empty string", ["messages[0].content"], [user("")], [user("x")]),
    Row("text-not-empty", A, "only whitespace", ["messages[0].content[1].text"],
        [user(text("x"), text(" \n"))], [user(text("x"), text(" \nx"))]),
    Row("text-not-empty", G, "an empty part", ["contents[0].parts[1].text"], [content("x", "")], [content("x", " ")]),
    # The last chunk of a stream often holds a signature and no text, and must go back as it came.
    Row("text-not-empty", G, "an empty part that is not signed", ["contents[1].parts[1].text"],
        [GQ, model("x", "")], [GQ, model("x", {"text": "", "thoughtSignature": "CiQ="})]),
    #
    Row("result-not-empty", A, "an empty list", ["messages[2].content[0]"],
        [Q, assistant(use()), user(result(content=[]))], [Q, assistant(use()), user(result(content=""))]),
    Row("result-not-empty", A, "an empty list, where none at all would do", ["messages[2].content[0]"],
        [Q, assistant(use()), user(result(content=[]))],
        [Q, assistant(use()), user({"type": "tool_result", "tool_use_id": "a"})]),
    Row("result-not-empty", C, "an empty string", ["messages[2]"],
        [Q, calls("a"), tool(content="")], [Q, calls("a"), tool(content=" ")]),
    Row("result-not-empty", C, "an empty list", ["messages[2]"],
        [Q, calls("a"), tool(content=[])], [Q, calls("a"), tool(content=[text("x")])]),
    Row("result-not-empty", C, "null", ["messages[2]"],
        [Q, calls("a"), tool(content=None)], [Q, calls("a"), tool(content="null")]),
    Row("result-not-empty", C, "one empty text", ["messages[2]"],
        [Q, calls("a"), tool(content=[text("")])], [Q, calls("a"), tool(content=[text(""), text("x")])]),
    #
    Row("content-or-calls", C, "null and no calls", ["messages[1]"],
        [Q, {"role": "assistant", "content": None}], [Q, calls("a"), tool()]),
    Row("content-or-calls", C, "an empty list of calls", ["messages[1]"],
        [Q, {"role": "assistant", "tool_calls": []}], [Q, {"role": "assistant", "content": None, "refusal": "No."}]),
    Row("content-or-calls", C, "not even null", ["messages[1]"],
        [Q, {"role": "assistant"}], [Q, {"role": "assistant", "function_call": {"name": "x", "arguments": "{}"}}]),
    #
    Row("parts-not-empty", A, "an empty list", ["messages[0]"], [user()], [user(text("x"))]),
    Row("parts-not-empty", A, "a system message that sets nothing", ["messages[1]"],
        [Q, {"role": "system", "content": []}], [Q, SETS]),
    Row("parts-not-empty", G, "an empty list", ["contents[0]"], [content()], [GQ]),
    Row("parts-not-empty", G, "no parts", ["contents[0]"], [{"role": "user"}], [GQ]),
    #
    Row("response-is-object", G, "a string", ["contents[2].parts[0]"],
        [GQ, model(gcall()), content(gresponse(response="out"))],
        [GQ, model(gcall()), content(gresponse(response={}))]),
    Row("response-is-object", G, "a list", ["contents[2].parts[0]"],
        [GQ, model(gcall()), content(gresponse(response=["out"]))],
        [GQ, model(gcall()), content(gresponse(response={"output": ["out"]}))]),
    Row("response-is-object", G, "missing", ["contents[2].parts[0]"],
        [GQ, model(gcall()), content({"functionResponse": {"name": "read"}})],
        [GQ, model(gcall()), content(gresponse(response={"content": [7]}))]),
    #
    Row("compaction-first", A, "behind a text", ["messages[1].content[1]"],
        [Q, assistant(text("x"), {"type": "compaction", "content": "…"}), Q],
        [Q, assistant({"type": "compaction", "content": "…"}, text("x")), Q]),
    #
    Row("cache-marks", A, "five", ["messages[0].content[3]"],
        {"system": [text("x", **short())], "messages": [user(*[text("x", **short())] * 4)]},
        {"system": [text("x", **short())], "messages": [user(*[text("x", **short())] * 3, text("x"))]}),
    Row("cache-marks", A, "five with one on a tool", ["messages[0].content[3]"],
        {"tools": [{"name": "x", "input_schema": {}, **short()}], "messages": [user(*[text("x", **short())] * 4)]},
        {"tools": [{"name": "x", "cache_control": None}], "messages": [user(*[text("x", **short())] * 4)]}),
    Row("cache-marks", A, "five with one inside a result", ["messages[2].content[0].content[0]"],
        [user(*[text("x", **short())] * 4), assistant(use()), user(result(content=[text("x", **short())]))],
        [user(*[text("x", **short())] * 3), assistant(use()), user(result(content=[text("x", **short())]))]),
    Row("cache-marks", A, "an hour behind five minutes", ["messages[0].content[1]"],
        [user(text("x", **short()), text("y", **LONG_LIVED))], [user(text("x", **LONG_LIVED), text("y", **short()))]),
    Row("cache-marks", A, "an hour in the messages, five minutes in the system", ["messages[0].content[0]"],
        {"system": [text("x", **short(ttl="5m"))], "messages": [user(text("y", **LONG_LIVED))]},
        {"system": [text("x", **LONG_LIVED)], "messages": [user(text("y", **LONG_LIVED))]}),
    Row("cache-marks", A, "on thinking", ["messages[1].content[0]"],
        [Q, assistant(thinking(**short()), text("x")), Q], [Q, assistant(thinking(), text("x", **short())), Q]),
    Row("cache-marks", A, "on an empty text in the system", ["system[0]"],
        {"system": [text("", **short())], "messages": [Q]}, {"system": [text("x", **short())], "messages": [Q]}),
    Row("cache-marks", A, "five with one for the whole request", ["cache_control"],
        {**short(), "messages": [user(*[text("x", **short())] * 4)]},
        {**short(), "messages": [user(*[text("x", **short())] * 3)]}),
    Row("cache-marks", A, "an hour for the whole request behind five minutes", ["cache_control"],
        {**LONG_LIVED, "messages": [user(text("x", **short()))]},
        {**short(), "messages": [user(text("x", **LONG_LIVED))]}),
    Row("cache-marks", A, "on a tool that is loaded later", ["tools[0]"],
        {"tools": [{"name": "x", "defer_loading": True, **short()}], "messages": [Q]},
        {"tools": [{"name": "x", **short()}, {"name": "y", "defer_loading": True}], "messages": [Q]}),
]  # fmt: skip

IDS = [f"{row.format}: {row.rule}: {row.sentence}" for row in TABLE]


@pytest.mark.parametrize("row", TABLE, ids=IDS)
def test_a_broken_rule_is_named_with_its_place_and_a_sentence(row: Row) -> None:
    found = ibidem.validate(row.broken, format=row.format)
    assert [(violation.rule, violation.position) for violation in found] == [(row.rule, place) for place in row.at]
    for violation in found:
        assert violation.message.endswith(".")
        assert " " in violation.message
        assert str(violation) == f"{violation.position}: {violation.message} [{row.rule}]"


@pytest.mark.parametrize("row", TABLE, ids=IDS)
def test_its_neighbour_breaks_no_rule(row: Row) -> None:
    assert ibidem.validate(row.near, format=row.format) == []


def test_every_rule_has_rows_in_every_format_that_makes_the_demand() -> None:
    assert {(row.rule, row.format) for row in TABLE} == {
        (rule.name, format) for rule in RULES for format in rule.formats
    }


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


PAIRING = ["calls-answered", "results-answer-calls"]


@pytest.mark.parametrize(
    ("format", "history", "rules"),
    [
        pytest.param(A, [Q, assistant(use())], ["last-is-not-assistant", "calls-answered"],
            id="a call that is still running"),
        pytest.param(A, [{"role": "system", "content": "x"}, Q], ["first-is-user", "system-messages"],
            id="a system message in front"),
        pytest.param(A, [Q, assistant(use()), Q, assistant("x"), user(result())], PAIRING,
            id="a result two turns late"),
        pytest.param(C, [Q, calls("a"), Q, tool()], PAIRING,
            id="a result behind the user's words"),
        pytest.param(R, [Q, output(), function_call()], PAIRING,
            id="an output before its call"),
        pytest.param(G, [GQ, model(gcall(id="a")), GQ, content(gresponse(id="a"))], PAIRING,
            id="a response behind the user's words"),
        pytest.param(G, [GQ, model(gcall("read")), content(gresponse("grep"))], PAIRING,
            id="a response of another tool"),
        pytest.param(G, [GQ, model(gcall("read"), gcall("read")), *[content(gresponse("read"))] * 2], PAIRING,
            id="responses in two contents"),
    ],
)  # fmt: skip
def test_a_request_can_break_several_rules(format: str, history: Any, rules: list[str]) -> None:
    assert [violation.rule for violation in ibidem.validate(history, format=format)] == rules


# --- rich requests that are all right --------------------------------------------------------------

RICH: dict[str, Any] = {
    ANTHROPIC: {
        "model": "claude-opus-5-5",
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "system": [text("You are Claude Code.", **LONG_LIVED), text("Be brief.")],
        "tools": [
            {"name": "Read", "input_schema": {"type": "object"}, **LONG_LIVED},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "messages": [
            user(text("<system-reminder>…</system-reminder>"), text("Fix it."), IMAGE),
            assistant(thinking(), {"type": "redacted_thinking", "data": "EmwK"}, text("Both."), use("a"), use("b")),
            user(result("a"), result("b", [text("x"), IMAGE, text("y")], is_error=True, **short()), text("Go on.")),
            {"role": "system", "content": "Plan mode is off."},
            assistant(
                *SEARCH,
                text("Found.", citations=[{"type": "web_search_result_location"}]),
                use("c", input={}),
            ),
            user({"type": "tool_result", "tool_use_id": "c"}),
            assistant({"type": "compaction", "content": "So far …"}, text("Done.")),
            user(text("Thanks.", **short())),
        ],
    },
    CHAT: {
        "model": "deepseek-reasoner",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [text("Be brief.")]},
            user(text("Fix it."), {"type": "image_url", "image_url": {"url": "data:"}}),
            calls(
                "a", "b", reasoning_content="Hm.", reasoning_details=[{"type": "reasoning.encrypted", "data": "gAAA"}]
            ),
            tool("b"),
            tool("a", [text("x"), text("y")]),
            calls("a", content=""),
            tool("a", "the id was used again"),
            {"role": "assistant", "content": "", "annotations": []},
            {"role": "assistant", "content": "Done."},
            user("Thanks."),
        ],
    },
    RESPONSES: {
        "model": "gpt-5.6-codex",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "You are Codex.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
            REASONING,
            function_call("a"),
            {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin Patch"},
            output("a"),
            {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "Done!"}]},
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            output("c"),
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "compaction", "encrypted_content": "gAAA"},
            REASONING,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
            },
            {"type": "item_reference", "id": "msg_1"},
            {"role": "user", "content": "Thanks."},
        ],
    },
    GEMINI: {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            content("Fix it.", {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}),
            model(
                {"text": "Hm.", "thought": True}, gcall() | {"thoughtSignature": "CiQ="}, gcall(), gcall("grep", id="g")
            ),
            content(
                gresponse(), gresponse("grep", id="g"), gresponse(response={"content": [{"type": "text", "text": "x"}]})
            ),
            model({"text": "Done.", "thoughtSignature": "CiQ="}),
            model("Really."),
            {"parts": [{"text": "Thanks."}]},
        ],
    },
}


@pytest.mark.parametrize("format", RICH)
def test_a_rich_request_breaks_no_rule(format: str) -> None:
    assert ibidem.detect(RICH[format]) == format
    assert ibidem.validate(RICH[format]) == []


# --- no plan gets past them ------------------------------------------------------------------------

EVERYTHING: frozenset[Kind] = frozenset({"result", "assistant text", "thinking", "arguments", "messages"})
SAID = "The quick brown fox jumps over the lazy dog. " * 20


class Proposes:
    """A strategy that is named for everything and proposes what it is told to."""

    name: ClassVar[str] = "proposes"
    touches: ClassVar[frozenset[Kind]] = EVERYTHING

    def __init__(self, *edits: dict[str, Any]) -> None:
        self.edits = edits

    def plan(self, conv: Conversation) -> Iterable[ibidem.Edit]:
        return [ibidem.Edit(**{"strategy": self.name, "op": "set", "added": "#", **edit}) for edit in self.edits]


LOOP: dict[str, Any] = {
    ANTHROPIC: {
        "model": "claude-opus-5-5",
        "system": SAID,
        "messages": [
            user(text(SAID), IMAGE),
            assistant(
                thinking(thinking=SAID), text(SAID), text(SAID, citations=[{"type": "x"}]), use(input={"said": SAID})
            ),
            user(result(content=[text(SAID), IMAGE, text(SAID, citations=[{"type": "x"}])], **short()), text(SAID)),
            {"role": "system", "content": SAID},
        ],
    },
    CHAT: {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": SAID},
            user(SAID),
            calls("a", content=SAID),
            tool(content=SAID),
            user(SAID),
        ],
    },
    RESPONSES: {
        "model": "gpt-5",
        "input": [user({"type": "input_text", "text": SAID}), REASONING, function_call(), output(output=SAID)],
    },
    GEMINI: {
        "contents": [
            content(SAID),
            model(
                {"text": SAID, "thought": True},
                {"text": SAID, "thoughtSignature": "C"},
                gcall(id="a") | {"thoughtSignature": "C"},
            ),
            content(gresponse(id="a", response={"output": SAID})),
        ]
    },
}


def propose(
    format: str, *edits: dict[str, Any], named_for: frozenset[Kind] = EVERYTHING
) -> tuple[Any, ibidem.Compacted]:
    class Named(Proposes):
        touches = named_for

    request = deepcopy(LOOP[format])
    return request, ibidem.compact(request, strategies=[Named(*edits)], format=format)


@pytest.mark.parametrize(
    ("format", "edits"),
    [
        pytest.param(A, [{"op": "drop", "message": 2}], id="anthropic: the results go"),
        pytest.param(A, [{"op": "drop", "message": 1}], id="anthropic: the calls go"),
        pytest.param(A, [{"op": "drop", "message": 0}], id="anthropic: the first message goes"),
        pytest.param(A, [{"op": "drop", "message": 2, "path": ("content", 0)}], id="anthropic: one result goes"),
        pytest.param(A, [{"op": "after", "message": 2, "value": user("x")}], id="anthropic: the user speaks twice"),
        pytest.param(A, [{"op": "before", "message": 2, "path": ("content", 0), "value": text("x")}],
            id="anthropic: text in front of a result"),
        pytest.param(A, [{"message": 1, "path": ("content", 3, "input"), "value": "x"}],
            id="anthropic: arguments become a string"),
        pytest.param(A, [{"message": 2, "value": user("x")}], id="anthropic: another message in the results' place"),
        pytest.param(A, [{"message": 2, "path": ("content", 0, "content", 0, "text"), "value": {"x": 1}}],
            id="anthropic: a result text becomes an object"),
        pytest.param(A, [{"message": 1, "path": ("content", 0)}], id="anthropic: a string in a thinking block's place"),
        pytest.param(A, [{"message": 1, "path": ("content", 1, "text"), "added": " "}],
            id="anthropic: an answer becomes blank"),
        pytest.param(C, [{"op": "drop", "message": 3}], id="chat: a result goes"),
        pytest.param(C, [{"op": "drop", "message": 2}], id="chat: a call goes"),
        pytest.param(C, [{"op": "after", "message": 2, "value": user("x")}],
            id="chat: words between a call and its result"),
        pytest.param(C, [{"message": 2, "path": ("tool_calls", 0, "function", "arguments"), "value": {"x": 1}}],
            id="chat: arguments become an object"),
        pytest.param(C, [{"message": 3, "path": ("content",), "value": 7}], id="chat: a result becomes a number"),
        pytest.param(R, [{"op": "drop", "message": 3}, {"op": "after", "message": 3, "value": user("x")}],
            id="responses: an output goes"),
        pytest.param(R, [{"op": "drop", "message": 2}, {"op": "drop", "message": 3}],
            id="responses: reasoning is left alone"),
        pytest.param(R, [{"op": "before", "message": 2, "value": user("x")}],
            id="responses: words between reasoning and its call"),
        pytest.param(R, [{"op": "drop", "message": n} for n in range(4)], id="responses: everything goes"),
        pytest.param(G, [{"op": "drop", "message": 2}], id="gemini: the responses go"),
        pytest.param(G, [{"op": "before", "message": 2, "value": content("x")}],
            id="gemini: words between a call and its response"),
        pytest.param(G, [{"message": 2, "value": content("x")}], id="gemini: another content in the responses' place"),
    ],
)  # fmt: skip
def test_a_plan_that_would_break_a_rule_leaves_the_request_as_it_came(format: str, edits: list[dict[str, Any]]) -> None:
    request, compacted = propose(format, *edits)
    assert ibidem.validate(LOOP[format], format=format) == []
    assert ibidem.validate(compacted.request, format=format) == []
    assert compacted.request is request
    assert request == LOOP[format]


@pytest.mark.parametrize("format", LOOP)
def test_a_refused_plan_says_what_it_would_have_broken(format: str) -> None:
    results = {ANTHROPIC: 2, CHAT: 3, RESPONSES: 3, GEMINI: 2}[format]
    request, compacted = propose(format, {"op": "drop", "message": results})
    assert compacted.request is request
    assert compacted.violations != []
    assert str(compacted.violations[0]) in compacted.reason
    assert compacted.stats.failures == (compacted.reason,)
    assert compacted.stats.total_bytes_saved == 0
    assert not compacted.plan


def test_what_the_provider_may_accept_is_not_given_up_because_one_rule_was_broken_before() -> None:
    """Older models continue an answer that was begun for them. A plan must not part calls and results there either."""
    request = {"messages": [Q, assistant(use()), user(result()), assistant("{")]}
    compacted = ibidem.compact(request, strategies=[Proposes({"op": "drop", "message": 2})], format=ANTHROPIC)
    assert compacted.request is request


@pytest.mark.parametrize(
    ("format", "edit"),
    [
        pytest.param(A, {"message": 0, "path": ("content", 0, "text")}, id="anthropic: the user's text"),
        pytest.param(A, {"message": 2, "path": ("content", 1, "text")}, id="anthropic: the user's text beside results"),
        pytest.param(A, {"message": 3, "path": ("content",)}, id="anthropic: a system message"),
        pytest.param(A, {"message": 0, "path": ("content", 1)}, id="anthropic: an image"),
        pytest.param(A, {"message": 0, "path": ("content", 1), "op": "drop"}, id="anthropic: an image, dropped"),
        pytest.param(A, {"message": 0, "path": ("content", 1, "source", "data")}, id="anthropic: the data of an image"),
        pytest.param(A, {"message": 2, "path": ("content", 0, "content", 1)}, id="anthropic: an image in a result"),
        pytest.param(A, {"message": 2, "path": ("content", 0, "content", 1), "op": "drop"},
            id="anthropic: an image in a result, dropped"),
        pytest.param(A, {"message": 1, "path": ("content", 2, "text")}, id="anthropic: an answer with citations"),
        pytest.param(A, {"message": 2, "path": ("content", 0, "content", 2, "text")},
            id="anthropic: a result with citations"),
        pytest.param(A, {"message": 1, "path": ("content", 3, "id")}, id="anthropic: the id of a call"),
        pytest.param(A, {"message": 2, "path": ("content", 0, "tool_use_id")}, id="anthropic: the id of a result"),
        pytest.param(A, {"message": 2, "path": ("content", 0, "cache_control")}, id="anthropic: a cache mark"),
        pytest.param(A, {"message": 1, "path": ("content", 0, "signature")}, id="anthropic: a signature"),
        pytest.param(A, {"message": 0, "path": ("role",)}, id="anthropic: a role"),
        pytest.param(C, {"message": 0, "path": ("content",)}, id="chat: a system message"),
        pytest.param(C, {"message": 1, "path": ("content",)}, id="chat: the user's text"),
        pytest.param(C, {"message": 3, "path": ("tool_call_id",)}, id="chat: the id of a result"),
        pytest.param(R, {"message": 0, "path": ("content", 0, "text")}, id="responses: the user's text"),
        pytest.param(R, {"message": 1, "path": ("encrypted_content",)}, id="responses: encrypted reasoning"),
        pytest.param(R, {"message": 2, "path": ("call_id",)}, id="responses: the id of a call"),
        pytest.param(G, {"message": 0, "path": ("parts", 0, "text")}, id="gemini: the user's text"),
        pytest.param(G, {"message": 1, "path": ("parts", 1, "text")}, id="gemini: a signed answer"),
        pytest.param(G, {"message": 1, "path": ("parts", 2, "functionCall", "args")}, id="gemini: signed arguments"),
        pytest.param(G, {"message": 1, "path": ("parts", 2, "thoughtSignature")}, id="gemini: a signature"),
    ],
)  # fmt: skip
def test_what_is_sacred_is_not_edited_by_anyone(format: str, edit: dict[str, Any]) -> None:
    for told in ({}, {"removed": (SAID,)}):
        request, compacted = propose(format, edit | told)
        assert compacted.request is request
        assert not compacted.plan
        assert compacted.stats.total_bytes_saved == 0
        assert compacted.reason == ""


FREE: dict[Kind, tuple[str, dict[str, Any]]] = {
    "result": (A, {"message": 2, "path": ("content", 0, "content", 0, "text")}),
    "assistant text": (A, {"message": 1, "path": ("content", 1, "text")}),
    "arguments": (A, {"message": 1, "path": ("content", 3, "input"), "value": {"x": 1}}),
    "thinking": (A, {"message": 1, "path": ("content", 0), "op": "drop", "added": ""}),
    "messages": (C, {"message": 4, "op": "drop", "added": ""}),
}


@pytest.mark.parametrize("kind", FREE)
def test_a_strategy_edits_what_it_is_named_for(kind: Kind) -> None:
    format, edit = FREE[kind]
    edit = {"removed": (SAID,), **edit}
    request, compacted = propose(format, edit, named_for=frozenset({kind}))
    assert compacted.request != request
    assert request == LOOP[format]
    assert compacted.stats.total_bytes_saved > 0
    request, compacted = propose(format, edit, named_for=EVERYTHING - {kind})
    assert compacted.request is request


@pytest.mark.parametrize(
    ("edit", "index"),
    [
        pytest.param({"op": "before", "message": 0}, 0, id="in front"),
        pytest.param({"op": "after", "message": 1}, 2, id="behind one"),
        pytest.param({"op": "before", "message": 5}, 5, id="at the very end"),
    ],
)
def test_a_message_can_be_put(edit: dict[str, Any], index: int) -> None:
    said = user("said between")
    request, compacted = propose(CHAT, {"value": said, "added": "", **edit})
    assert compacted.request["messages"] == [*request["messages"][:index], said, *request["messages"][index:]]
    assert compacted.violations == []


# --- law 4: never larger ---------------------------------------------------------------------------

HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@pytest.mark.parametrize(
    ("was", "edit"),
    [
        pytest.param("x y", {"removed": ("x y",), "added": "x y and more"}, id="more text"),
        pytest.param("x y", {"removed": ("x y",), "added": "y x"}, id="as much text"),
        pytest.param("x y", {"removed": ("x y",), "added": ""}, id="none at all, which providers refuse"),
        pytest.param("äöü", {"removed": ("äöü",), "added": "abcdefg"},
            id="more bytes than there were, though counted in UTF-8"),
        pytest.param(" " * 100, {"removed": (" " * 100,), "added": HEX}, id="fewer bytes and more tokens"),
        pytest.param("x y", {"added": "x y and more"}, id="more text, and the old one not declared"),
        pytest.param("x y", {"removed": (SAID,), "added": "x y and more"},
            id="more text than there is, though less than declared"),
        pytest.param("x y", {"removed": ("x y",), "added": "#", "value": SAID}, id="more on the wire than declared"),
    ],
)  # fmt: skip
def test_an_edit_that_makes_a_text_larger_is_refused(was: str, edit: dict[str, Any]) -> None:
    request = [user("q"), calls("a"), tool(content=was)]
    strategy = Proposes({"message": 2, "path": ("content",), **edit})
    compacted = ibidem.compact(request, strategies=[strategy], format=CHAT)
    assert compacted.request == request
    assert compacted.stats.total_bytes_saved == 0


def test_the_other_edits_of_a_plan_stand() -> None:
    request = [user("q"), calls("a", "b"), tool("a", "x y"), tool("b", SAID)]
    refused = {"message": 2, "path": ("content",), "removed": ("x y",), "added": "x y z"}
    admitted = {"message": 3, "path": ("content",), "removed": (SAID,), "added": "#"}
    compacted = ibidem.compact(request, strategies=[Proposes(refused, admitted)], format=CHAT)
    assert compacted.request == [*request[:3], tool("b", "#")]
    assert [edit.message for edit in compacted.plan] == [3]


# --- law 12: fail open -----------------------------------------------------------------------------


class Fails:
    name: ClassVar[str] = "fails"
    touches: ClassVar[frozenset[Kind]] = EVERYTHING

    def __init__(self, edits: Any) -> None:
        self.edits = edits

    def plan(self, conv: Conversation) -> Any:
        if isinstance(self.edits, Exception):
            raise self.edits
        return self.edits


def halfway() -> Iterable[ibidem.Edit]:
    yield ibidem.Edit(strategy="fails", op="set", message=2, path=("content",), removed=(SAID,), added="#")
    raise KeyError("halfway")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Fails(ValueError("no")), id="it raises"),
        pytest.param(lambda: Fails(ibidem.IbidemError("no")), id="it raises an error of ours"),
        pytest.param(lambda: Fails(RecursionError("no")), id="it recurses"),
        pytest.param(lambda: Fails(halfway()), id="it raises when half of it is said"),
        pytest.param(lambda: Fails(None), id="it proposes nothing that can be read"),
        pytest.param(lambda: Fails(["edit"]), id="it proposes what is no edit"),
        pytest.param(lambda: Fails([ibidem.Edit(strategy="fails", op="set", message=99, path=("content",), added="#")]),
            id="it edits a message that is not there"),
    ],
)  # fmt: skip
def test_a_strategy_that_fails_is_survived(make: Any) -> None:
    request = [user("q"), calls("a", "b"), tool("a", SAID), tool("b", SAID)]
    before = deepcopy(request)
    compacted = ibidem.compact(request, strategies=[ibidem.Dedup(), make()], format=CHAT)
    assert compacted.request is request
    assert request == before
    assert compacted.reason
    assert compacted.stats.failures == (compacted.reason,)
    assert compacted.stats.total_bytes_saved == 0
    assert not compacted.plan
    assert compacted.violations == []


def test_only_what_is_gone_from_the_request_counts_as_saved() -> None:
    """A message that an earlier strategy put in has no place in the history as given, so nothing can edit it."""
    long = "".join(f"{n}: a line that is long enough\n" for n in range(20))
    history = [
        user("q"),
        calls("a"),
        tool("a", long),
        calls("b"),
        user("x"),
        tool("b", long),
        user("y"),
        calls("c"),
        tool("c", long),
    ]
    compacted = ibidem.compact(history, strategies=[ibidem.RepairPairing(), ibidem.Dedup()], format=CHAT)
    told = sum(edit.bytes_saved for edit in compacted.plan if edit.strategy == "dedup")
    gone = sum(len(str(message.get("content"))) for message in history) - sum(
        len(str(message.get("content"))) for message in compacted.request
    )
    assert told == gone


def test_a_strategy_sees_what_the_ones_before_it_made() -> None:
    seen: list[str] = []

    class Sees:
        name: ClassVar[str] = "sees"
        touches: ClassVar[frozenset[Kind]] = EVERYTHING

        def plan(self, conv: Conversation) -> list[ibidem.Edit]:
            seen.extend(
                segment.text
                for message in conv.messages
                for result in message.results
                for segment in result.segments
                if isinstance(segment, Text)
            )
            return []

    history = [user("q"), calls("a"), tool("a", SAID)]
    edit = {"message": 2, "path": ("content",), "removed": (SAID,)}
    ibidem.compact(history, strategies=[Proposes(edit), Sees()], format=CHAT)
    assert seen == ["#"]
