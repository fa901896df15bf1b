"""Amazon Bedrock and Google's Vertex in front of a scripted upstream, for frameworks and SDKs that speak to them.

>>> with Upstream(by_turn(script)) as upstream, Cloud(upstream.url) as cloud:
...     client = boto3.client("bedrock-runtime", endpoint_url=cloud.url, region_name=REGION, …)

Converse, ConverseStream, InvokeModel, InvokeModelWithResponseStream, and rawPredict of Vertex with Anthropic's bodies.
A body is passed on to the upstream byte for byte, so that `upstream.seen` has what the client sent; the upstream
answers as Anthropic does, and the answer is put into the words of whoever was asked. A request for Bedrock whose
signature does not fit its body is refused with 403, as Amazon does, and never comes to the upstream.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ibidem.testing import Says, Upstream

REGION = "us-east-1"
ACCESS_KEY = "AKIDOPENSNOTHING"
SECRET_KEY = "a-secret-that-opens-nothing"
MODEL = "us.anthropic.claude-sonnet-4-6-v1:0"
PROJECT = "a-project"

AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=(\S+?), SignedHeaders=(\S+?), Signature=(\w+)")
ERRORS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
JSON, STREAM = "application/json", "application/vnd.amazon.eventstream"


class Cloud:
    """Listens on loopback until it is left. `refused` counts requests whose signature did not fit."""

    def __init__(self, upstream: str) -> None:
        self.refused = 0
        handler = type("Handler", (_Handler,), {"cloud": self, "upstream": urlsplit(upstream).netloc})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="cloud", daemon=True)

    def __enter__(self) -> Cloud:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    cloud: Cloud
    upstream: str
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        amazon = "Predict" not in self.path
        asked = self.path.rpartition("/" if amazon else ":")[2]
        if asked not in _SPOKEN:
            return self._answer(404, _error("no such operation"))
        if amazon and not signature_fits(self.command, self.path, self.headers.items(), body):
            self.cloud.refused += 1
            return self._answer(403, _error("The request signature we calculated does not match"))
        try:
            status, kind, answer = self._ask(body)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            return None
        if status < 400 and kind == JSON:
            return self._answer(status, *_SPOKEN[asked](json.loads(answer)))
        if amazon:  # which has no 529
            return self._answer(min(status, 503), _error(json.loads(answer)["error"]["message"]))
        return self._answer(status, answer, kind)

    def _ask(self, body: bytes) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            headers = {"content-type": JSON, "x-api-key": ACCESS_KEY, "x-asked-at": self.path}
            connection.request("POST", "/v1/messages", body, headers)
            response = connection.getresponse()
            return response.status, response.headers["content-type"], response.read()
        finally:
            connection.close()

    def _answer(self, status: int, body: bytes, kind: str = JSON) -> None:
        self.send_response(status)
        if status >= 400:
            self.send_header("x-amzn-errortype", ERRORS.get(status, ERRORS[500]))
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _error(message: str) -> bytes:
    return json.dumps({"message": message}).encode()


# ── signatures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def signature_fits(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes) -> bool:
    """Whether a request is signed as Amazon's own code would sign it, with what really came."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    sent = {name.lower(): value for name, value in headers}
    match = AUTHORIZATION.fullmatch(sent.get("authorization", ""))
    if match is None:
        return False
    (key, _, region, service, _), names, signature = match[1].split("/"), match[2].split(";"), match[3]
    signed = {name: sent.get(name, "") for name in names}
    if signed.get("x-amz-content-sha256", digest := hashlib.sha256(body).hexdigest()) != digest:
        return False
    request = AWSRequest(method, f"http://{sent['host']}{target}", headers=signed, data=body)
    request.context["timestamp"] = sent.get("x-amz-date", "")
    signer = SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), service, region)
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return (key, region, service) == (ACCESS_KEY, REGION, "bedrock") and signature == expected


def checks_signatures() -> None:
    """One byte that is changed after a request was signed, and it is refused; without that, it is answered."""
    with Upstream([Says("hello")]) as upstream, Cloud(upstream.url) as cloud:
        for body, expected in ((b'{"messages": []}', 200), (b'{"messages":[ ]}', 403)):
            address = urlsplit(cloud.url).netloc
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request("POST", PATH, body, signed(address, b'{"messages": []}'))
            response = connection.getresponse()
            response.read()
            connection.close()
            assert response.status == expected, response.status
        assert (len(upstream.seen), cloud.refused) == (1, 1)


PATH = "/model/some-model/invoke"


def signed(address: str, body: bytes) -> dict[str, str]:
    """Headers for a body that is sent to `PATH`."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("POST", f"http://{address}{PATH}", data=body)
    SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "bedrock", REGION).add_auth(request)
    return dict(request.headers.items())


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _converse(message: dict[str, Any]) -> tuple[bytes, str]:
    said = {"role": "assistant", "content": [_block(block) for block in message["content"]]}
    answer = {"output": {"message": said}, "stopReason": message["stop_reason"], **_metadata(message)}
    return json.dumps(answer).encode(), JSON


def _converse_stream(message: dict[str, Any]) -> tuple[bytes, str]:
    return b"".join(frame(kind, value) for kind, value in _converse_events(message)), STREAM


def _invoke(message: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(message).encode(), JSON


def _invoke_stream(message: dict[str, Any]) -> tuple[bytes, str]:
    events = (base64.b64encode(json.dumps(event).encode()).decode() for event in _events(message))
    return b"".join(frame("chunk", {"bytes": event}) for event in events), STREAM


_SPOKEN: dict[str, Callable[[dict[str, Any]], tuple[bytes, str]]] = {
    "converse": _converse,
    "converse-stream": _converse_stream,
    "invoke": _invoke,
    "invoke-with-response-stream": _invoke_stream,
    "rawPredict": _invoke,
    "streamRawPredict": _invoke,  # whose body asks for a stream, so that the upstream's own is passed on
}
"""By the last word of a path."""


def frame(kind: str, value: Any) -> bytes:
    """One event in Amazon's binary framing: lengths, their checksum, headers, payload, the checksum of all."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(_header(name, text) for name, text in named.items())
    payload = json.dumps(value).encode()
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _header(name: str, text: str) -> bytes:
    return struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(text)) + text.encode()


def _block(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "thinking":
            return {"reasoningContent": {"reasoningText": {"text": block["thinking"], "signature": block["signature"]}}}
        case _:
            return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}


def _metadata(message: dict[str, Any]) -> dict[str, Any]:
    usage = message["usage"]
    counts = {
        "inputTokens": usage["input_tokens"],
        "outputTokens": usage["output_tokens"],
        "cacheReadInputTokens": usage["cache_read_input_tokens"],
        "cacheWriteInputTokens": usage["cache_creation_input_tokens"],
    }
    return {"usage": {**counts, "totalTokens": sum(counts.values())}, "metrics": {"latencyMs": 1}}


def _deltas(block: dict[str, Any]) -> list[dict[str, Any]]:
    match block["type"]:
        case "text":
            return [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            thinking = {"type": "thinking_delta", "thinking": block["thinking"]}
            return [thinking, {"type": "signature_delta", "signature": block["signature"]}]
        case _:
            return [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


_EMPTY = {"text": "", "thinking": "", "signature": "", "input": {}}


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole answer as Anthropic streams it."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        empty = {key: _EMPTY.get(key, value) for key, value in block.items()}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(block))
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _converse_events(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(message["content"]):
        place = {"contentBlockIndex": index}
        if block["type"] == "tool_use":
            yield (
                "contentBlockStart",
                {**place, "start": {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}},
            )
        yield from (("contentBlockDelta", {**place, "delta": _delta(delta)}) for delta in _deltas(block))
        yield "contentBlockStop", place
    yield "messageStop", {"stopReason": message["stop_reason"]}
    yield "metadata", _metadata(message)


def _delta(delta: dict[str, Any]) -> dict[str, Any]:
    match delta["type"]:
        case "text_delta":
            return {"text": delta["text"]}
        case "thinking_delta":
            return {"reasoningContent": {"text": delta["thinking"]}}
        case "signature_delta":
            return {"reasoningContent": {"signature": delta["signature"]}}
        case _:
            return {"toolUse": {"input": delta["partial_json"]}}


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_anthropic(body: dict[str, Any]) -> dict[str, Any]:
    """A Converse body in Anthropic's format, with nothing left out: what has no word there is carried as it is."""
    others = {key: value for key, value in body.items() if key not in ("messages", "system", "toolConfig")}
    tools = (body.get("toolConfig") or {}).get("tools", [])
    messages = [{**message, "content": _marked(message["content"])} for message in body["messages"]]
    system = _marked(body.get("system") or [])
    return {**others, "system": system, "tools": _marked(tools, _tool), "messages": messages}


def _marked(
    blocks: list[dict[str, Any]], read: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """A point behind a block is a mark on it there."""
    found: list[dict[str, Any]] = []
    for block in blocks:
        if "cachePoint" in block and found:
            lasting = {"ttl": block["cachePoint"]["ttl"]} if "ttl" in block["cachePoint"] else {}
            found[-1] = {**found[-1], "cache_control": {"type": "ephemeral", **lasting}}
        else:
            found.append((read or _read_block)(block))
    return found


def _read_block(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"text": text}:
            return {"type": "text", "text": text}
        case {"image": {"format": kind, "source": {"bytes": data}}}:
            return {"type": "image", "source": {"type": "base64", "media_type": f"image/{kind}", "data": data}}
        case {"toolUse": {"toolUseId": ident, "name": name, "input": arguments}}:
            return {"type": "tool_use", "id": ident, "name": name, "input": arguments}
        case {"toolResult": {"toolUseId": ident, "content": content, **others}}:
            failed = {"is_error": others["status"] == "error"} if "status" in others else {}
            return {"type": "tool_result", "tool_use_id": ident, "content": [*map(_read_block, content)], **failed}
        case {"reasoningContent": {"reasoningText": {"text": text, **signed}}}:
            return {"type": "thinking", "thinking": text, "signature": signed.get("signature")}
        case _:
            return _other(block)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    match tool:
        case {"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}}:
            return {"name": name, "description": description, "input_schema": schema}
        case _:
            return _other(tool)


def _other(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": next(iter(block), "none"), "value": block}
