"""First inputs of each harness, from the examples of the quick tests. A byte 0xff parts a text from its choices."""

from __future__ import annotations

import json
from typing import Any

from tests.markers.test_backref import ROWS
from tests.providers.test_rejections import NOT_OURS, OURS
from tests.recordings.test_contract import EXAMPLES

CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Read", "input": {"path": "é\ud800"}}]}
ARGUMENTS = {
    "role": "assistant",
    "tool_calls": [{"function": {"arguments": '{"path": "a.py", "\u00e9": ["<\ud800>"]}'}}],
}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1\ta\n2\tb"}]}
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}, CALL, RESULT, ARGUMENTS],
    "n": 1.50,
}
LISTS = [[1, "a", [], {}], [{"role": "user", "content": "Hi"}] * 3]
MESSAGES = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"clientInfo": {"name": "codex"}}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {"threadId": "t"}}},
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "Read", "outputSchema": {}}], "nextCursor": ""}},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "Read", "_meta": {"threadId": "t"}}},
    {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "same text " * 40}]}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}},
]
"""Lines of a client and of its server; a harness takes them in pairs of request and result."""


def _json(value: Any, **options: Any) -> bytes:
    return json.dumps(value, **options).encode("utf-8", "backslashreplace")


def _framed(*numbers: int) -> bytes:
    lines = [_json(MESSAGES[number]) for number in numbers]
    return b"\n".join(lines) + b"\n"


TEXTS = ["\n".join(["1\tfirst", str(marker), "3\tthird"]) for marker, _ in ROWS.values()]
TEXTS += [text for _, text in ROWS.values()]
TEXTS += [
    "[ibidem 123 3f9a1c0b77de: 340 lines left out, the file was changed later]\nlast\n[ibidem 123: 3 lines left out]"
]
TEXTS += [
    "[ibidem 447.243886s: lines 1-2 above]\n1\ta\n\tb",
    "src/a.py:1:x\nsrc/a.py:2:y",
    '{\n  "a": [\n    1\n  ]\n}',
    '[{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": {"c": "y"}}, {"a": 3, "b": {"c": "z"}}]',
    "Chunk ID: 0a1b2c\nWall time: 0.0512 seconds\nProcess exited with code 0\nOriginal token count: 3\nOutput:\na.py\n",
]

STYLES: list[dict[str, Any]] = [{}, {"ensure_ascii": False}, {"indent": 2}, {"separators": (",", ":")}]
"""Arguments of `json.dumps`."""

SEEDS: dict[str, list[bytes]] = {
    "wire": [
        _json(value, **options) + b"\xff" + bytes([number, 7 * number, 3])
        for value in (BODY, {**BODY, "input": 1}, *LISTS)
        for number, options in enumerate(STYLES)
    ],
    "markers": [text.encode() for text in TEXTS],
    "logs": [example.data for example in EXAMPLES if len(example.data) < 8192],
    "rejections": [bytes([number % 4]) + _json(body) for number, body in enumerate([*NOT_OURS.values()])]
    + [b"\0" + _json(body) for body, _ in OURS.values()],
    "recorded": [example.data for example in EXAMPLES if example.agent == "ibidem-recording"]
    + [b"\xfe".join([_json(BODY), _json({**BODY, "n": 2}), b"\x80\xff" * 50 + _json(BODY)])],
    "framing": [
        _framed(0, 1, 2, 3, 4, 3, 4, 5) + b"\xff\x03\x11",
        b"event: message\r\nid: 7\r\ndata: "
        + _json(MESSAGES[4])
        + b"\r\n\r\n: ping\n\ndata: a\ndata: b\r\r\xff\x02\x09",
    ],
}
