"""The mock provider: calls of custom tools, and verdicts on tool calls for requests with `safeguards`."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest

from ibidem.testing import Answer, Calls, Says, Upstream

SCRIPT = 'const r = await tools.exec_command({"cmd": "cat a.py"});\ntext(r.output);'
SAFEGUARDS = [{"type": "dangerous_tool_use", "classifier_context": {}}]


def respond(answer: Answer, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The response as JSON values: one, or one for each event of a stream."""
    with Upstream([answer]) as upstream:
        request = Request(upstream.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urlopen(request, timeout=30) as response:
            text = response.read().decode()
    if not body.get("stream"):
        return [json.loads(text)]
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_string_as_arguments_calls_a_custom_tool(stream: bool) -> None:
    events = respond(Calls(("exec", SCRIPT)), "/v1/responses", {"model": "gpt-5", "input": "Look.", "stream": stream})
    (item,) = (events[-1]["response"] if stream else events[-1])["output"]
    assert {key: item[key] for key in ("type", "name", "input")} == {
        "type": "custom_tool_call",
        "name": "exec",
        "input": SCRIPT,
    }
    if stream:
        deltas = [each["delta"] for each in events if each["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == SCRIPT
        added = next(each["item"] for each in events if each["type"] == "response.output_item.added")
        assert (added["input"], added["call_id"]) == ("", item["call_id"])


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("answer", [Calls(("Bash", {"command": "ls"}), ("Bash", {"command": "pwd"})), Says("Done.")])
def test_request_with_safeguards_gets_a_verdict_on_each_call(answer: Answer, stream: bool) -> None:
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Look."}]}
    events = respond(answer, "/v1/messages", {**body, "stream": stream, "safeguards": SAFEGUARDS})
    last = next(each["delta"] for each in events if each["type"] == "message_delta") if stream else events[0]
    blocks = [each["content_block"] for each in events if "content_block" in each] if stream else last["content"]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    (found,) = last["safeguard_results"]
    assert (found["type"], found["status"]["type"]) == ("dangerous_tool_use", "available")
    assert found["status"]["tool_uses"] == {ident: {"type": "evaluated", "outcome": "not_flagged"} for ident in calls}
    assert len(calls) == (2 if answer != Says("Done.") else 0)


def test_other_requests_get_no_verdict() -> None:
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Look."}]}
    (found,) = respond(Says("Done."), "/v1/messages", body)
    assert "safeguard_results" not in found
