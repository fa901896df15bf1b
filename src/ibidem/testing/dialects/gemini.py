"""Responses of Gemini generateContent. Lines end with CRLF, and a stream that is not server-sent events is one JSON
array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...billing.usage import Usage
from ..answers import AnswerPart, CallPart, TextPart, ThinkingPart
from ..prompt_cache import Unit
from .dialect import Reply, UpstreamDialect, as_list, compact_json, present_units, split_text

ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
SIGNATURE = "RXZlbiBhIHNjcmlwdGVkIHRob3VnaHQgaXMgc2lnbmVkLg=="


def cache_units(body: Mapping[str, Any]) -> list[Unit]:
    contents = [Unit(content) for content in as_list(body.get("contents"))]
    system = body.get("systemInstruction", body.get("system_instruction"))
    return present_units(("tools", body.get("tools")), ("system", system)) + contents


def full_response(reply: Reply) -> Any:
    parts = [_part_fields(reply, place, part) for place, part in enumerate(reply.parts)]
    return _response_fields(reply, parts, last=True)


def stream_events(reply: Reply) -> Iterator[bytes]:
    chunks = list(_split_parts(reply))
    for number, chunk in enumerate(chunks):
        last = number == len(chunks) - 1
        text = compact_json(_response_fields(reply, [chunk], last=last))
        if reply.sse:
            yield f"data: {text}\r\n\r\n".encode("utf-8", "surrogatepass")
        else:
            start, end = "[" if number == 0 else ",\r\n", "\n]" if last else "\n"
            yield f"{start}{text}{end}".encode("utf-8", "surrogatepass")


def _split_parts(reply: Reply) -> Iterator[dict[str, Any]]:
    for place, part in enumerate(reply.parts):
        if isinstance(part, CallPart):
            yield _part_fields(reply, place, part)
        else:
            for piece in split_text(part.text):
                yield _part_fields(reply, place, part._replace(text=piece))


def _part_fields(reply: Reply, place: int, part: AnswerPart) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"text": text}
        case ThinkingPart(text):
            return {"text": text, "thought": True}
        case CallPart(tool, arguments):
            ident = f"call_{reply.number:06}_{place}"
            call = {"id": ident, "name": tool, "args": dict(arguments)}
            return {"functionCall": call, "thoughtSignature": SIGNATURE}


def _response_fields(reply: Reply, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate],
        "usageMetadata": _usage_fields(reply.usage),
        "modelVersion": reply.model,
        "responseId": f"response_{reply.number:06}",
    }


def _usage_fields(usage: Usage) -> dict[str, Any]:
    cached_field = {"cachedContentTokenCount": usage.read} if usage.read else {}
    thoughts_field = {"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {}
    return {
        "promptTokenCount": usage.input,
        **cached_field,
        "candidatesTokenCount": usage.output - usage.reasoning,
        **thoughts_field,
        "totalTokenCount": usage.input + usage.output,
    }


DIALECT = UpstreamDialect(
    provider="google",
    format="gemini",
    units=cache_units,
    whole=full_response,
    events=stream_events,
    ping=b": ping\r\n\r\n",
    error=lambda status, text: {
        "error": {"code": status, "message": text, "status": ERRORS.get(status, ERRORS[500])},
    },
    count_response=lambda usage: {"totalTokens": usage.input},
    headers=lambda number: (),
)
