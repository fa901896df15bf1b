"""Auto mode of Claude Code: `safeguards` in a request and `safeguard_results` in its response pass unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ibidem.testing.answers import Raw
from tests.support.proxied import dumped, growing, talk

SAFEGUARDS = (
    b'"safeguards" : [ {"type":"dangerous_tool_use", "classifier_context":{"cwd":"/src","rules":["caf\\u00e9",1e2]}} ]'
)
RESULTS = [
    {
        "type": "dangerous_tool_use",
        "status": {"type": "available", "tool_uses": {"toolu_1": {"type": "evaluated", "outcome": "not_flagged"}}},
    }
]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
USAGE = {"input_tokens": 4321, "output_tokens": 7}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "stop_reason": "tool_use"}


def body() -> bytes:
    return json.dumps({**MESSAGE, "content": [CALL], "safeguard_results": RESULTS, "usage": USAGE}, indent=1).encode()


def stream() -> bytes:
    delta = {"stop_reason": "tool_use", "safeguard_results": RESULTS}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None, "usage": USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": CALL},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": delta, "usage": USAGE},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), dumped(each)) for each in events)


@pytest.mark.parametrize(
    ("kind", "answer"), [("application/json", body()), ("text/event-stream", stream())], ids=["body", "stream"]
)
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_safeguards_pass_unchanged_beside_rewritten_results(profile: str, kind: str, answer: bytes) -> None:
    lines = ("HTTP/1.1 200 OK", f"content-type: {kind}", f"content-length: {len(answer)}", "connection: close", "", "")
    head = "\r\n".join(lines).encode()
    with talk(lambda _: Raw(head + answer), profile=profile) as found:
        for each in growing("anthropic", 6):
            request = dumped(each)[:-1] + b"," + SAFEGUARDS + b"}"
            assert found.send("anthropic", request, anthropic_beta="dangerous-tool-use-2026-09-03") == (200, answer)
        sent = found.upstream.seen[-1]
        totals = found.settled(7)["totals"]
    assert b"[ibidem " in sent.body
    assert sent.body.endswith(b"," + SAFEGUARDS + b"}")
    assert sent.header("anthropic-beta") == "dangerous-tool-use-2026-09-03"
    assert totals["input"] == 7 * USAGE["input_tokens"]
