"""What each wire format is read as, and that an edit of one slot leaves everything else the very same object.

One table of messages drives both directions: how a message is read, and how it is written when one text in it changes.
"""

import json
from copy import deepcopy
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem.formats import FORMATS
from ibidem.model import Conversation, Kind, Message, Opaque, Text, Thinking, ToolCall, ToolResult

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic", "openai-chat", "openai-responses", "gemini"
HISTORY = {ANTHROPIC: "messages", CHAT: "messages", RESPONSES: "input", GEMINI: "contents"}
EVERY_KIND: frozenset[Kind] = frozenset({"result", "assistant text", "thinking", "arguments", "messages"})

LONG = "".join(f"{n}: a line that stands in a file and is said twice\n" for n in range(12))
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


class Probe:
    """A strategy that changes nothing and remembers what it saw."""

    name: ClassVar[str] = "probe"
    touches: ClassVar[frozenset[Kind]] = EVERY_KIND

    conv: Conversation

    def plan(self, conv: Conversation) -> list[ibidem.Edit]:
        self.conv = conv
        return []


class SetResult:
    """A strategy that puts `#` in the place of the n-th result text that may be edited."""

    name: ClassVar[str] = "set-result"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})

    def __init__(self, number: int) -> None:
        self.number = number

    def plan(self, conv: Conversation) -> list[ibidem.Edit]:
        index, text = list(free_results(conv))[self.number]
        return [
            ibidem.Edit(strategy=self.name, op="set", message=index, path=text.path, removed=(text.text,), added="#")
        ]


def free_results(conv: Conversation) -> Any:
    for message in conv.messages:
        for result in message.results:
            for segment in result.segments:
                if isinstance(segment, Text) and not segment.bound and segment.text:
                    yield message.index, segment


def seen(request: Any, format: str) -> Conversation:
    probe = Probe()
    result = ibidem.compact(request, strategies=[probe], format=format)
    assert result.request is request
    assert not result.stats.failures
    return probe.conv


def body(format: str, *messages: Any, **head: Any) -> dict[str, Any]:
    return {"model": "some-model", **head, HISTORY[format]: list(messages)}


def follow(wire: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        wire = wire[step]
    return wire


def told(message: Message) -> list[str]:
    return [_told(part) for part in message.parts]


def _told(part: Any) -> str:
    match part:
        case Text():
            return f"text {part.text!r}" + " bound" * part.bound
        case Thinking():
            return f"thinking {part.text!r}" + " signed" * part.signed + " fixed" * (not part.removable)
        case ToolCall():
            return f"call {part.id}: {part.name} {part.arguments}" + " bound" * part.bound
        case ToolResult():
            return f"result {part.call_id}: " + ", ".join(map(_told, part.segments))
        case Opaque():
            return f"opaque {part.kind}"
    raise AssertionError(part)


# --- the table: format, wire message, role, parts -----------------------------------------------


def _anthropic_result(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}]}


ANTHROPIC_ROWS = [
    pytest.param({"role": "user", "content": "fix it"}, "user", ["text 'fix it'"], id="content as a string"),
    pytest.param({"role": "user", "content": ""}, "user", ["text ''"], id="an empty string is a text"),
    pytest.param(
        {"role": "user", "content": [{"type": "text", "text": "fix"}, {"type": "text", "text": "it"}]},
        "user",
        ["text 'fix'", "text 'it'"],
        id="content as blocks",
    ),
    pytest.param({"role": "user", "content": []}, "user", [], id="no blocks at all"),
    pytest.param(
        {"role": "user", "content": [{"type": "image", "source": PNG}, {"type": "text", "text": "this one"}]},
        "user",
        ["opaque image", "text 'this one'"],
        id="an image is carried",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Both."},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "ä.py", "limit": 10}},
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {}, "caller": {"type": "direct"}},
            ],
        },
        "assistant",
        ["text 'Both.'", 'call toolu_1: Read {"file_path":"ä.py","limit":10}', "call toolu_2: Read {}"],
        id="parallel calls",
    ),
    pytest.param(_anthropic_result("out"), "tool", ["result toolu_1: text 'out'"], id="a result as a string"),
    pytest.param(
        _anthropic_result(
            [{"type": "text", "text": "out 1"}, {"type": "image", "source": PNG}, {"type": "text", "text": "out 2"}]
        ),
        "tool",
        ["result toolu_1: text 'out 1', opaque image, text 'out 2'"],
        id="a result of text, image and text",
    ),
    pytest.param(
        _anthropic_result("No such file", is_error=True, cache_control={"type": "ephemeral", "ttl": "1h"}),
        "tool",
        ["result toolu_1: text 'No such file'"],
        id="a failed result with a cache mark",
    ),
    pytest.param(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]},
        "tool",
        ["result toolu_1: "],
        id="a result without content",
    ),
    pytest.param(
        _anthropic_result([{"type": "tool_reference", "tool_name": "Grep"}]),
        "tool",
        ["result toolu_1: opaque tool_reference"],
        id="a result that refers to a tool",
    ),
    pytest.param(
        _anthropic_result(
            [
                {"type": "text", "text": "cited", "citations": [{"type": "char_location"}]},
                {"type": "text", "text": "free"},
            ]
        ),
        "tool",
        ["result toolu_1: text 'cited' bound, text 'free'"],
        id="a result text with citations is bound",
    ),
    pytest.param(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
            ],
        },
        "user",
        [
            "result toolu_1: text 'one'",
            "result toolu_2: text 'two'",
            "text '<system-reminder>be brief</system-reminder>'",
        ],
        id="results and the user's words in one message",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCkY="},
                {"type": "redacted_thinking", "data": "EmwKAhgB"},
                {"type": "thinking", "thinking": "", "signature": "EqQBCkZ="},
                {"type": "thinking", "thinking": "unsigned", "signature": ""},
                {"type": "text", "text": "Done."},
            ],
        },
        "assistant",
        ["thinking 'Hm.' signed", "thinking '' signed", "thinking '' signed", "thinking 'unsigned'", "text 'Done.'"],
        id="thinking, redacted, withheld and unsigned",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [{"type": "web_search_result"}],
                },
                {"type": "text", "text": "Said there.", "citations": [{"type": "web_search_result_location"}]},
                {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {}},
            ],
        },
        "assistant",
        ["opaque server_tool_use", "opaque web_search_tool_result", "text 'Said there.' bound", "opaque mcp_tool_use"],
        id="tools that the provider runs are not ours",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": [{"type": "compaction", "content": "So far: …"}, {"type": "text", "text": "Go on."}],
        },
        "assistant",
        ["opaque compaction", "text 'Go on.'"],
        id="a compaction block",
    ),
    pytest.param(
        {
            "role": "user",
            "content": [{"type": "from_next_year", "text": "?"}, {"type": "text", "text": "hi", "new_key": 1}],
        },
        "user",
        ["opaque from_next_year", "text 'hi'"],
        id="unknown blocks and unknown keys",
    ),
    pytest.param({"role": "system", "content": "Be brief."}, "system", ["text 'Be brief.'"], id="a system message"),
]

CHAT_ROWS = [
    pytest.param({"role": "user", "content": "fix it"}, "user", ["text 'fix it'"], id="content as a string"),
    pytest.param(
        {
            "role": "user",
            "content": [{"type": "text", "text": "this"}, {"type": "image_url", "image_url": {"url": "data:"}}],
        },
        "user",
        ["text 'this'", "opaque image_url"],
        id="content as parts",
    ),
    pytest.param(
        {"role": "user", "content": [{"type": "from_next_year", "text": "?"}, {"type": "text", "text": "hi", "x": 1}]},
        "user",
        ["opaque from_next_year", "text 'hi'"],
        id="unknown parts and unknown keys",
    ),
    pytest.param(
        {"role": "developer", "content": "Be brief."}, "developer", ["text 'Be brief.'"], id="a developer message"
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "ä"}'}},
                {"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin Patch"}},
                {"id": "call_3", "type": "from_next_year", "from_next_year": {}},
            ],
        },
        "assistant",
        ['call call_1: read {"path": "ä"}', "call call_2: patch *** Begin Patch", "opaque from_next_year"],
        id="parallel calls, one of a custom tool and one unknown",
    ),
    pytest.param(
        {"role": "tool", "tool_call_id": "call_1", "content": "out"},
        "tool",
        ["result call_1: text 'out'"],
        id="a result as a string",
    ),
    pytest.param(
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "name": "read",
            "content": [
                {"type": "text", "text": "out 1", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "data:"}},
                {"type": "text", "text": "out 2"},
            ],
        },
        "tool",
        ["result call_1: text 'out 1', opaque image_url, text 'out 2'"],
        id="a result of text, image and text",
    ),
    pytest.param(
        {"role": "tool", "tool_call_id": "call_1"}, "tool", ["result call_1: "], id="a result without content"
    ),
    pytest.param(
        {"role": "tool", "tool_call_id": "call_1", "content": None},
        "tool",
        ["result call_1: "],
        id="a result with null for content",
    ),
    pytest.param(
        {"role": "assistant", "content": "Done.", "reasoning_content": "Hm.", "tool_calls": None},
        "assistant",
        ["text 'Done.'"],
        id="reasoning_content (DeepSeek) is carried",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "read", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "CiQ="}},
                }
            ],
        },
        "assistant",
        ["text ''", "call call_1: read {} bound"],
        id="a signature in extra_content (Gemini) binds the arguments",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": "Done.",
            "reasoning": "Hm.",
            "reasoning_details": [
                {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1"}
            ],
        },
        "assistant",
        ["text 'Done.'"],
        id="reasoning_details (OpenRouter) are carried",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Said there.", "annotations": [{"type": "url_citation"}]}],
        },
        "assistant",
        ["text 'Said there.' bound"],
        id="a text with annotations is bound",
    ),
    pytest.param(
        {
            "role": "assistant",
            "content": "Said  there.",
            "annotations": [{"type": "url_citation", "url_citation": {"start_index": 6, "end_index": 11, "url": "u"}}],
        },
        "assistant",
        ["text 'Said  there.' bound"],
        id="annotations of the whole message count its characters and bind its text",
    ),
    pytest.param(
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}},
        "assistant",
        [],
        id="a legacy function call is carried",
    ),
    pytest.param(
        {"role": "function", "name": "read", "content": "out"},
        "function",
        ["text 'out'"],
        id="a legacy function result is no slot",
    ),
    pytest.param({"role": "critic", "content": "hm", "x": 1}, "critic", ["text 'hm'"], id="an unknown role"),
]

RESPONSES_ROWS = [
    pytest.param({"role": "user", "content": "fix it"}, "user", ["text 'fix it'"], id="content as a string"),
    pytest.param(
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "this"}, {"type": "input_image", "image_url": "data:"}],
        },
        "user",
        ["text 'this'", "opaque input_image"],
        id="content as parts",
    ),
    pytest.param(
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "Free.", "annotations": [], "logprobs": []},
                {"type": "output_text", "text": "Cited.", "annotations": [{"type": "url_citation", "start_index": 0}]},
                {"type": "refusal", "refusal": "No."},
            ],
        },
        "assistant",
        ["text 'Free.'", "text 'Cited.' bound", "opaque refusal"],
        id="an answer with annotations and a refusal",
    ),
    pytest.param(
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "read",
            "arguments": '{"p":1}',
            "status": "completed",
        },
        "assistant",
        ['call call_1: read {"p":1}'],
        id="a function call",
    ),
    pytest.param(
        {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin Patch\n"},
        "assistant",
        ["call call_1: apply_patch *** Begin Patch\n"],
        id="a custom tool call",
    ),
    pytest.param(
        {
            "type": "local_shell_call",
            "call_id": "call_1",
            "action": {"type": "exec", "command": ["ls"]},
            "status": "completed",
        },
        "assistant",
        ['call call_1: local_shell {"type":"exec","command":["ls"]} bound'],
        id="a built-in call has a typed action",
    ),
    pytest.param(
        {"type": "function_call_output", "call_id": "call_1", "output": "out"},
        "tool",
        ["result call_1: text 'out'"],
        id="an output as a string",
    ),
    pytest.param(
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_text", "text": "out 1"},
                {"type": "input_image", "image_url": "data:"},
                {"type": "input_file", "file_id": "file_1"},
                {"type": "input_text", "text": "out 2"},
            ],
        },
        "tool",
        ["result call_1: text 'out 1', opaque input_image, opaque input_file, text 'out 2'"],
        id="an output of text, image, file and text",
    ),
    pytest.param(
        {"type": "function_call_output", "call_id": "call_1"},
        "tool",
        ["result call_1: "],
        id="an output without content",
    ),
    pytest.param(
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Exit code: 0"},
        "tool",
        ["result call_1: text 'Exit code: 0'"],
        id="the output of a custom tool",
    ),
    pytest.param(
        {
            "type": "shell_call_output",
            "call_id": "call_1",
            "max_output_length": 4096,
            "output": [
                {"stdout": "out 1", "stderr": "err 1", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "out 2", "stderr": "", "outcome": {"type": "timeout"}},
            ],
        },
        "tool",
        ["result call_1: text 'out 1', text 'err 1', text 'out 2', text ''"],
        id="a shell output has a slot per stream",
    ),
    pytest.param(
        {"type": "local_shell_call_output", "id": "call_1", "output": '{"stdout":"x"}', "status": "completed"},
        "tool",
        ['result call_1: text \'{"stdout":"x"}\''],
        id="a local shell output names its call by id",
    ),
    pytest.param(
        {
            "type": "computer_call_output",
            "call_id": "call_1",
            "output": {"type": "computer_screenshot", "image_url": "data:"},
        },
        "tool",
        ["result call_1: opaque structured"],
        id="a screenshot is carried",
    ),
    pytest.param(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm. "}, {"type": "summary_text", "text": "Yes."}],
            "encrypted_content": "gAAA",
        },
        "assistant",
        ["thinking 'Hm. Yes.' signed fixed"],
        id="reasoning belongs to what follows it",
    ),
    pytest.param(
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAA"},
        "assistant",
        ["thinking '' signed fixed"],
        id="reasoning without a summary, as Codex sends it",
    ),
    pytest.param(
        {"type": "compaction", "encrypted_content": "gAAA"}, "compaction", ["opaque compaction"], id="a compaction item"
    ),
    pytest.param(
        {"type": "item_reference", "id": "msg_1"},
        "item_reference",
        ["opaque item_reference"],
        id="a reference to a stored item",
    ),
    pytest.param(
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        "assistant",
        ["opaque web_search_call"],
        id="a call the provider ran",
    ),
    pytest.param(
        {
            "role": "user",
            "content": [{"type": "from_next_year", "text": "?"}, {"type": "input_text", "text": "hi", "x": 1}],
        },
        "user",
        ["opaque from_next_year", "text 'hi'"],
        id="unknown parts and unknown keys",
    ),
    pytest.param(
        {"type": "from_next_year", "output": "out"}, "from_next_year", ["opaque from_next_year"], id="an unknown item"
    ),
]


def _gemini(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


GEMINI_ROWS = [
    pytest.param(_gemini({"text": "fix it"}), "user", ["text 'fix it'"], id="a text part"),
    pytest.param({"parts": [{"text": "fix it"}]}, "user", ["text 'fix it'"], id="no role is the user's"),
    pytest.param({"role": "user"}, "user", [], id="no parts"),
    pytest.param(
        _gemini(
            {"text": "this"},
            {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
            {"file_data": {"file_uri": "u"}},
        ),
        "user",
        ["text 'this'", "opaque inlineData", "opaque file_data"],
        id="images and files are carried",
    ),
    pytest.param(
        _gemini(
            {"functionCall": {"name": "read", "args": {"p": "ä"}, "id": "fc1"}},
            {"function_call": {"name": "read", "args": {}, "id": "fc2"}},
            role="model",
        ),
        "assistant",
        ['call fc1: read {"p":"ä"}', "call fc2: read {}"],
        id="parallel calls, in camel case and in snake case",
    ),
    pytest.param(
        _gemini(*({"functionCall": {"name": name, "args": {}}} for name in ("read", "grep", "read")), role="model"),
        "assistant",
        ["call read@1.0: read {}", "call grep@1.0: grep {}", "call read@1.1: read {}"],
        id="calls without ids are numbered per tool",
    ),
    pytest.param(
        _gemini(
            *({"functionResponse": {"name": name, "response": {"output": name}}} for name in ("read", "grep", "read"))
        ),
        "tool",
        ["result read@0.0: text 'read'", "result grep@0.0: text 'grep'", "result read@0.1: text 'read'"],
        id="responses without ids are numbered the same, for the content before",
    ),
    pytest.param(
        _gemini(
            {"functionCall": {"name": "now"}, "thoughtSignature": "CiQ="},
            {"functionCall": {"name": "now", "args": {}}},
            role="model",
        ),
        "assistant",
        ["call now@1.0: now {} bound", "call now@1.1: now {}"],
        id="a signed call is bound, its parallel one is not",
    ),
    pytest.param(
        _gemini(
            {
                "functionResponse": {
                    "name": "read",
                    "id": "fc1",
                    "response": {"output": "out", "lines": 3, "error": "none"},
                }
            }
        ),
        "tool",
        ["result fc1: text 'out', opaque structured, text 'none'"],
        id="every string of a response is a slot",
    ),
    pytest.param(
        _gemini({"function_response": {"name": "read", "id": "fc1", "response": {"result": "out"}}}, {"text": "go on"}),
        "user",
        ["result fc1: text 'out'", "text 'go on'"],
        id="a response in snake case beside the user's words",
    ),
    pytest.param(
        {
            "role": "function",
            "parts": [{"functionResponse": {"name": "read", "id": "fc1", "response": {"output": "out"}}}],
        },
        "tool",
        ["result fc1: text 'out'"],
        id="the role function is the user's",
    ),
    pytest.param(
        _gemini(
            {
                "functionResponse": {
                    "name": "mcp",
                    "id": "fc1",
                    "response": {
                        "content": [{"type": "text", "text": "out"}, {"type": "image", "data": "iVBO"}],
                        "isError": False,
                    },
                }
            }
        ),
        "tool",
        ["result fc1: text 'out', opaque structured, opaque structured"],
        id="a response shaped like an MCP result",
    ),
    pytest.param(
        _gemini(
            {"functionResponse": {"name": "x", "id": "fc1", "response": {"items": [{"text": "out"}], "content": {}}}}
        ),
        "tool",
        ["result fc1: opaque structured, opaque structured"],
        id="a list that is no MCP content is carried",
    ),
    pytest.param(
        _gemini({"functionResponse": {"name": "read", "id": "fc1", "response": {}}}),
        "tool",
        ["result fc1: "],
        id="an empty response",
    ),
    pytest.param(
        _gemini(
            {"text": "Hm.", "thought": True},
            {"text": "Hm!", "thought": True, "thoughtSignature": "CiQ="},
            {"text": "Done.", "thought_signature": "CiQ="},
            {"text": "So.", "thought": False},
            role="model",
        ),
        "assistant",
        ["thinking 'Hm.'", "thinking 'Hm!' signed fixed", "text 'Done.' bound", "text 'So.'"],
        id="thoughts, signed thoughts and a signed text",
    ),
    pytest.param(
        _gemini(
            {"executableCode": {"code": "1"}},
            {"codeExecutionResult": {"output": "1"}},
            {"fromNextYear": {}},
            role="model",
        ),
        "assistant",
        ["opaque executableCode", "opaque codeExecutionResult", "opaque fromNextYear"],
        id="parts that are not ours and unknown ones",
    ),
]

TABLE = [
    pytest.param(format, *row.values, id=f"{format}: {row.id}")
    for format, rows in (
        (ANTHROPIC, ANTHROPIC_ROWS),
        (CHAT, CHAT_ROWS),
        (RESPONSES, RESPONSES_ROWS),
        (GEMINI, GEMINI_ROWS),
    )
    for row in rows
]

FIRST: dict[str, dict[str, Any]] = {
    ANTHROPIC: {"role": "user", "content": "first"},
    CHAT: {"role": "user", "content": "first"},
    RESPONSES: {"role": "user", "content": "first"},
    GEMINI: {"role": "user", "parts": [{"text": "first"}]},
}


@pytest.mark.parametrize(("format", "wire", "role", "parts"), TABLE)
def test_a_message_is_read_as(format: str, wire: Any, role: str, parts: list[str]) -> None:
    message = seen(body(format, FIRST[format], wire), format).messages[1]
    assert message.wire is wire
    assert (message.role, told(message)) == (role, parts)


@pytest.mark.parametrize(("format", "wire", "role", "parts"), TABLE)
def test_a_path_leads_to_what_was_read_there(format: str, wire: Any, role: str, parts: list[str]) -> None:
    for part in seen(body(format, FIRST[format], wire), format).messages[1].parts:
        slots = [part, *part.segments] if isinstance(part, ToolResult) else [part]
        for slot in slots:
            found = follow(wire, slot.path)
            if isinstance(slot, Text):
                assert found == slot.text
            elif isinstance(slot, ToolCall) and slot.input:
                assert follow(wire, slot.input_path) is slot.input


def assert_only_the_path_is_new(old: Any, new: Any, path: tuple[Any, ...]) -> None:
    """Along the path containers are copied, and beside it every object is the one that was given."""
    if not path:
        assert new == "#"
        return
    assert type(new) is type(old)
    assert new is not old
    keys = list(old) if isinstance(old, dict) else list(range(len(old)))
    assert (list(new) if isinstance(new, dict) else list(range(len(new)))) == keys
    for key in keys:
        if key == path[0]:
            assert_only_the_path_is_new(old[key], new[key], path[1:])
        else:
            assert new[key] is old[key]


def slots(format: str, request: Any) -> list[tuple[Any, ...]]:
    return [(HISTORY[format], index, *text.path) for index, text in free_results(seen(request, format))]


@pytest.mark.parametrize(("format", "wire", "role", "parts"), TABLE)
def test_editing_one_text_copies_only_the_way_to_it(format: str, wire: Any, role: str, parts: list[str]) -> None:
    request = body(format, FIRST[format], wire, FIRST[format], tools=[{"name": "read", "1": 1.0}])
    before = deepcopy(request)
    for number, path in enumerate(slots(format, request)):
        result = ibidem.compact(request, strategies=[SetResult(number)], format=format)
        assert_only_the_path_is_new(request, result.request, path)
        assert request == before
        history = result.request[HISTORY[format]]
        assert ibidem.compact(history, strategies=[Probe()], format=format).request is history


@pytest.mark.parametrize("indent", [None, 2], ids=["on one line", "indented"])
@pytest.mark.parametrize("ascii", [True, False], ids=["escaped", "raw"])
@pytest.mark.parametrize(("format", "wire", "role", "parts"), TABLE)
def test_editing_one_text_of_a_json_body_replaces_that_token_alone(
    format: str, wire: Any, role: str, parts: list[str], ascii: bool, indent: int | None
) -> None:
    request = body(format, FIRST[format], wire, tools=[{"name": "ä", "1": 1.0}])
    text = json.dumps(request, indent=indent, ensure_ascii=ascii)
    for number, path in enumerate(slots(format, request)):
        expected = deepcopy(request)
        follow(expected, path[:-1])[path[-1]] = "#"
        result = ibidem.compact(text, strategies=[SetResult(number)], format=format)
        assert result.request == json.dumps(expected, indent=indent, ensure_ascii=ascii)


# --- law 7 with the default profile --------------------------------------------------------------

TWICE = {
    ANTHROPIC: [
        {"role": "user", "content": [{"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqQ="},
                {"type": "tool_use", "id": "a", "name": "Read", "input": {"file_path": "x"}},
                {"type": "tool_use", "id": "b", "name": "Read", "input": {"file_path": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": LONG},
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": [{"type": "image", "source": PNG}, {"type": "text", "text": LONG, "new": {"x": 1}}],
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ],
    CHAT: [
        {"role": "user", "content": "q", "name": "me"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"p": "x"}'}},
                {"id": "b", "type": "function", "function": {"name": "read", "arguments": '{"p": "x"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": LONG},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": [{"type": "text", "text": "head"}, {"type": "text", "text": LONG}],
        },
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
    ],
    RESPONSES: [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
        {"type": "shell_call", "call_id": "b", "action": {"commands": ["cat x", "cat y"]}},
        {"type": "function_call_output", "call_id": "a", "output": LONG},
        {
            "type": "shell_call_output",
            "call_id": "b",
            "output": [
                {"stdout": "short", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": LONG, "stderr": "warning", "outcome": {"type": "exit", "exit_code": 1}},
            ],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    ],
    GEMINI: [
        {"role": "user", "parts": [{"text": "q"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"name": "read", "args": {"p": "x"}}, "thoughtSignature": "CiQ="},
                {"functionCall": {"name": "read", "args": {"p": "x"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "read", "response": {"output": LONG}}},
                {
                    "functionResponse": {
                        "name": "read",
                        "response": {"lines": 12.0, "content": [{"type": "text", "text": LONG}]},
                    }
                },
            ],
        },
    ],
}
COPY = {
    ANTHROPIC: (2, "content", 1, "content", 1, "text"),
    CHAT: (3, "content", 1, "text"),
    RESPONSES: (5, "output", 1, "stdout"),
    GEMINI: (2, "parts", 1, "functionResponse", "response", "content", 0, "text"),
}


@pytest.mark.parametrize("format", HISTORY)
@pytest.mark.parametrize("bare", [True, False], ids=["bare history", "whole body"])
def test_an_edit_changes_the_copy_and_nothing_else(format: str, bare: bool) -> None:
    request: Any = (
        TWICE[format] if bare else body(format, *TWICE[format], tools=[{"name": "read"}], metadata={"1": -0.0})
    )
    before = deepcopy(request)
    result = ibidem.compact(request, strategies=[ibidem.Dedup()], format=format)
    path = COPY[format] if bare else (HISTORY[format], *COPY[format])
    marker = follow(result.request, path)
    assert marker.startswith("[DEDUP]")
    assert result.stats.dedup_hits == 1
    assert result.stats.total_bytes_saved == len(LONG) - len(marker)
    follow(result.request, path[:-1])[path[-1]] = "#"
    assert_only_the_path_is_new(request, result.request, path)
    assert request == before
    assert ibidem.validate(request, format=format) == []


@pytest.mark.parametrize("profile", ibidem.PROFILES)
@pytest.mark.parametrize("format", HISTORY)
def test_with_nothing_to_edit_the_very_object_comes_back(format: str, profile: str) -> None:
    path = COPY[format]
    history = deepcopy(TWICE[format])
    follow(history, path[:-1])[path[-1]] = "once only"
    for request in (history, body(format, *history), json.dumps(history), json.dumps(body(format, *history)).encode()):
        result = ibidem.compact(request, profile=profile, format=format)
        assert result.request is request
        assert not result.plan
        assert result.reason == ""


def test_a_bound_text_is_never_replaced_by_a_reference() -> None:
    history = deepcopy(TWICE[ANTHROPIC])
    follow(history, COPY[ANTHROPIC][:-1])["citations"] = [{"type": "char_location", "start_char_index": 3}]
    assert ibidem.compact(history, format=ANTHROPIC).request is history


# --- history that the provider keeps -------------------------------------------------------------

OUTPUT = {"type": "function_call_output", "call_id": "call_of_yesterday", "output": "out"}
RESPONSE = {"role": "user", "parts": [{"functionResponse": {"name": "read", "id": "x", "response": {"output": "out"}}}]}


@pytest.mark.parametrize(
    ("request_", "known"),
    [
        pytest.param({"input": [OUTPUT], "previous_response_id": "resp_1"}, True, id="previous_response_id"),
        pytest.param({"input": [OUTPUT], "conversation": "conv_1"}, True, id="a conversation by id"),
        pytest.param({"input": [OUTPUT], "conversation": {"id": "conv_1"}}, True, id="a conversation as an object"),
        pytest.param({"input": [], "previous_response_id": "resp_1"}, True, id="nothing new to say"),
        pytest.param({"contents": [RESPONSE], "cachedContent": "cachedContents/1"}, True, id="cached content"),
        pytest.param(
            {"contents": [RESPONSE], "cached_content": "cachedContents/1"}, True, id="cached content in snake case"
        ),
        pytest.param({"input": [OUTPUT], "previous_response_id": None}, False, id="null is no previous response"),
        pytest.param({"input": [OUTPUT]}, False, id="the whole history is here"),
        pytest.param({"contents": [RESPONSE]}, False, id="nothing cached"),
    ],
)
def test_a_result_may_answer_a_call_that_the_provider_keeps(request_: Any, known: bool) -> None:
    found = [violation.rule for violation in ibidem.validate(request_)]
    assert found == ([] if known else ["results-answer-calls"])


def test_a_reference_to_a_stored_item_may_be_the_call_that_an_output_answers() -> None:
    """With `store: true` the AI SDK sends its earlier calls as references."""
    request = {"input": [FIRST[RESPONSES], {"type": "item_reference", "id": "fc_1"}, OUTPUT]}
    assert ibidem.validate(request) == []
    assert ibidem.compact(request, strategies=[ibidem.RepairPairing()]).request is request


@pytest.mark.parametrize("reference", [{"id": "msg_1"}, {"type": None, "id": "msg_1"}], ids=["no type", "type null"])
def test_a_reference_to_a_stored_item_may_leave_its_type_out(reference: Any) -> None:
    """`type` of an item reference is optional in OpenAI's own schema."""
    assert ibidem.validate({"input": [FIRST[RESPONSES], reference, FIRST[RESPONSES]]}) == []


# --- malformed messages --------------------------------------------------------------------------

SAID = {ANTHROPIC: "content", CHAT: "content", RESPONSES: "content", GEMINI: "parts"}

NO_MESSAGE = [
    pytest.param(format, wire, id=f"{format}: {sentence}")
    for format in HISTORY
    for sentence, wire in [
        ("a number", 7),
        ("null", None),
        ("a list", ["user", "hi"]),
        ("a string", "hi"),
        ("role 5", {"role": 5, SAID[format]: FIRST[format][SAID[format]]}),
        ("role null", {"role": None, SAID[format]: FIRST[format][SAID[format]]}),
        ("role is a list", {"role": ["user"], SAID[format]: FIRST[format][SAID[format]]}),
        ("content 7", {"role": "user", SAID[format]: 7}),
        ("content is an object", {"role": "user", SAID[format]: {"text": "hi"}}),
        ("content is a list of numbers", {"role": "user", SAID[format]: [7]}),
        ("content is a list of null", {"role": "user", SAID[format]: [None]}),
        ("a block without a type", {"role": "user", SAID[format]: [{}]}),
        # Gemini takes a content without a role for the user's.
        *([("no role", {"content": "hi"})] if format != GEMINI else []),
    ]
]


@pytest.mark.parametrize(("format", "wire"), NO_MESSAGE)
def test_a_malformed_message_is_carried_and_named(format: str, wire: Any) -> None:
    request = body(format, FIRST[format], wire)
    for profile in ibidem.PROFILES:
        result = ibidem.compact(request, profile=profile, format=format)
        assert result.request is request
        assert result.reason == ""
    found = [violation for violation in ibidem.validate(request, format=format) if violation.rule == "shape"]
    assert [violation.position.startswith(f"{HISTORY[format]}[1]") for violation in found] == [True]


ODD = [
    (ANTHROPIC, "a call without id, name and input", {"role": "assistant", "content": [{"type": "tool_use"}]}),
    (ANTHROPIC, "a result for no one", {"role": "user", "content": [{"type": "tool_result"}]}),
    (ANTHROPIC, "a result of a number", _anthropic_result(7)),
    (
        ANTHROPIC,
        "a result of a list of junk",
        _anthropic_result([None, 7, "x", {}, {"type": "text"}, {"type": ["text"]}]),
    ),
    (ANTHROPIC, "a type that is a list", {"role": "user", "content": [{"type": ["text"], "text": "x"}]}),
    (ANTHROPIC, "a text that is a number", {"role": "user", "content": [{"type": "text", "text": 7}]}),
    (ANTHROPIC, "thinking that is null", {"role": "assistant", "content": [{"type": "thinking", "thinking": None}]}),
    (CHAT, "calls that are no list", {"role": "assistant", "tool_calls": "x"}),
    (CHAT, "calls of junk", {"role": "assistant", "tool_calls": [None, 7, {}, {"function": 7}, {"function": {}}]}),
    (
        CHAT,
        "a call with an object for arguments",
        {"role": "assistant", "tool_calls": [{"id": 7, "function": {"arguments": {}}}]},
    ),
    (CHAT, "a result for a number", {"role": "tool", "tool_call_id": 7, "content": {"x": 1}}),
    (CHAT, "a type that is a list", {"role": "user", "content": [{"type": ["text"], "text": "x"}]}),
    (RESPONSES, "a type that is null", {"type": None, "role": "user", "content": "x"}),
    (RESPONSES, "a type that is a number", {"type": 7}),
    (RESPONSES, "a type that is a list", {"type": ["message"], "role": "user", "content": "x"}),
    (RESPONSES, "a type that is an object", {"type": {}}),
    (RESPONSES, "a call without anything", {"type": "function_call"}),
    (RESPONSES, "an output for no one", {"type": "function_call_output", "output": 7}),
    (RESPONSES, "reasoning of junk", {"type": "reasoning", "summary": [None, 7, {"type": ["x"]}]}),
    (GEMINI, "a call that is a string", {"role": "model", "parts": [{"functionCall": "read"}]}),
    (GEMINI, "a call without a name", {"role": "model", "parts": [{"functionCall": {}}]}),
    (GEMINI, "args that are null", {"role": "model", "parts": [{"functionCall": {"name": "read", "args": None}}]}),
    (GEMINI, "a response that is a string", {"parts": [{"functionResponse": {"name": "read", "response": "out"}}]}),
    (
        GEMINI,
        "an MCP content of junk",
        {"parts": [{"functionResponse": {"response": {"content": [None, 7, {"text": 7}]}}}]},
    ),
]


@pytest.mark.parametrize(
    ("format", "wire"), [pytest.param(f, wire, id=f"{f}: {sentence}") for f, sentence, wire in ODD]
)
def test_an_odd_message_never_raises_and_costs_no_other_its_savings(format: str, wire: Any) -> None:
    """Law 12: whatever one message looks like, the others are worked on."""
    history = [*TWICE[format], wire]
    ibidem.validate(history, format=format)
    result = ibidem.compact(history, format=format)
    assert result.reason == ""
    assert result.stats.dedup_hits == 1
    assert result.request[-1] is wire


def _words(text: str) -> Any:
    return st.sampled_from(text.split())


_ROLES = _words("user assistant model tool system function a")
_TYPES = _words(
    "text tool_use tool_result thinking redacted_thinking compaction message reasoning function_call shell_call "
    "function_call_output shell_call_output custom_tool_call item_reference a"
)
_KEYS = _words(
    "role type content text id call_id tool_use_id tool_call_id tool_calls function name arguments input output parts "
    "functionCall functionResponse function_response response args summary stdout cache_control thought signature"
)
_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | _words("a b") | st.just(LONG),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=6,
)
_NESTED = ("text", "id", "tool_use_id", "content", "input", "functionCall", "functionResponse", "function", "thought")
_PART = _JUNK | st.fixed_dictionaries({"type": _TYPES | _JUNK}, optional=dict.fromkeys(_NESTED, _JUNK))
_MESSAGE = _JUNK | st.fixed_dictionaries(
    {},
    optional={"role": _ROLES | _JUNK, "type": _TYPES | _JUNK}
    | dict.fromkeys(("content", "parts", "output", "tool_calls"), _JUNK | st.lists(_PART, max_size=3))
    | dict.fromkeys(("tool_call_id", "call_id", "name", "summary", "action"), _JUNK),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(HISTORY)), st.lists(_MESSAGE, min_size=1, max_size=6))
def test_no_junk_raises_or_is_mutated(format: str, history: list[Any]) -> None:
    before = deepcopy(history)
    ibidem.validate(history, format=format)
    for profile in ibidem.PROFILES:
        assert ibidem.compact(history, profile=profile, format=format).stats.failures == ()
    repaired = ibidem.compact(history, strategies=[ibidem.RepairPairing()], format=format)
    assert [reason for reason in repaired.stats.failures if "would break a rule" not in reason] == []
    assert history == before


# ── what a body asks for beside its history ─────────────────────────────────────────────────────────────────────────

TOOLS = {
    ANTHROPIC: [{"name": "Read", "input_schema": {}}, {"name": "Edit"}],
    CHAT: [{"type": "function", "function": {"name": "Read"}}, {"type": "computer", "name": "Edit"}],
    RESPONSES: [{"type": "function", "name": "Read"}, {"type": "custom", "name": "Edit"}, {"type": "web_search"}],
    GEMINI: [{"functionDeclarations": [{"name": "Read"}]}, {"function_declarations": [{"name": "Edit"}]}],
}


@pytest.mark.parametrize("format", TOOLS)
def test_a_format_knows_how_tools_are_named_in_it(format: str) -> None:
    assert FORMATS[format].tool_names({"tools": TOOLS[format]}) == ["Read", "Edit"]


@pytest.mark.parametrize("format", TOOLS)
@pytest.mark.parametrize(
    "tools", [None, "all", 7, [None], [{"name": 7}], [{"function": 7}], [{"functionDeclarations": 7}]]
)
def test_tools_that_are_none_have_no_names(format: str, tools: Any) -> None:
    assert FORMATS[format].tool_names({"tools": tools}) == []


MARK = {"type": "ephemeral", "ttl": "1h"}
MARKED = [
    pytest.param({"system": [{"type": "text", "text": "s", "cache_control": MARK}]}, {}, id="on the system prompt"),
    pytest.param({"cache_control": MARK}, {}, id="on the whole"),
    pytest.param({}, {"cache_control": MARK}, id="on a message's text"),
]


@pytest.mark.parametrize(("head", "fields"), MARKED)
@pytest.mark.parametrize("format", [ANTHROPIC, CHAT])
def test_a_cache_mark_asks_to_be_remembered_for_an_hour(format: str, head: Any, fields: Any) -> None:
    dialect = FORMATS[format]
    wire = {"role": "user", "content": [{"type": "text", "text": 'a "ttl":"1h" in a text asks nothing', **fields}]}
    message = dialect.read_message(0, wire)
    assert dialect.has_one_hour_ttl(head, [message])
    assert not dialect.has_one_hour_ttl({}, [dialect.read_message(0, {"role": "user", "content": '{"ttl":"1h"}'})])
