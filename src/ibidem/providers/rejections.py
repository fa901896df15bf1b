"""Rejections by a provider (HTTP 400 or 422), and which of them a rewritten request may have caused.

Size, billing and rate errors do not depend on how a request is written. Any other bad request may be caused by our
edits, and is worth another try without new edits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..wire.content_encoding import make_decoder
from .headers import HeaderList, first_header

REJECTION_STATUSES = frozenset({400, 422})

MAX_HELD_BYTES = 2**16
"""Bytes of a rejection that are held back until the retry is decided. A longer one is forwarded at once."""

FEED_BYTES = 512
"""Compressed bytes that are decoded at a time, so that a decompression bomb is detected early."""

MAX_READ_BYTES = 2**18
"""Maximum decoded bytes. Decoding blocks the event loop, so larger rejections are not parsed."""

OTHER_ERROR_KINDS = frozenset(
    {
        *("request_too_large", "rate_limit_error", "billing_error", "overloaded_error"),  # Anthropic
        *("authentication_error", "permission_error", "not_found_error"),
        *(
            "context_length_exceeded",
            "insufficient_quota",
            "rate_limit_exceeded",
            "billing_hard_limit_reached",
        ),  # OpenAI
        *("invalid_api_key", "model_not_found", "string_above_max_length", "array_above_max_length"),
        *("RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "PERMISSION_DENIED", "UNAUTHENTICATED"),  # Gemini
        *("exceed_context_size_error", "context_window_exceeded"),  # gateways and local servers
    }
)
"""Names of errors about size, context, credit, rate, or authentication."""

OTHER_ERROR_WORDS = re.compile(
    r"prompt is too long|too many (?:input |total )?tokens|(?:context|prompt|input) (?:length|window|size)"
    r"|maximum (?:context|prompt)|token (?:count|limit)|tokens? exceeds?|exceeds? the (?:maximum|limit|context)"
    r"|\bcredits?\b|\bbilling\b|quota|rate limit|too large|api key",
    re.IGNORECASE,
)
"""Words of such errors in messages, for responses without a name. The messages are neither logged nor stored."""

QUOTED_NAME = re.compile(r"([`'\"])[\w.:/-]+\1", re.ASCII)
"""Quoted name of a tool, a field or a model. It may contain such words, but does not describe the error."""

THINKING_WORDS = re.compile(r"thinking|signature", re.IGNORECASE)
"""Words in messages about thinking whose signature does not match the text before it."""

ERROR_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(slots=True)
class Rejection:
    """Response with an error status, held back until the retry is decided."""

    status: int
    reason: str
    headers: HeaderList
    body: bytearray = field(default_factory=bytearray)

    @property
    def error_kind(self) -> str | None:
        """Provider's name for the error; None if the error does not depend on how the request is written."""
        error = _error_object(_decode_body(self.headers, bytes(self.body)))
        names = [name for name in _error_names(error) if ERROR_NAME.fullmatch(name)]
        message = error.get("message")
        unquoted = QUOTED_NAME.sub("", message) if isinstance(message, str) else ""
        if OTHER_ERROR_KINDS.intersection(names) or OTHER_ERROR_WORDS.search(unquoted):
            return None
        return names[0] if names else "unknown"

    @property
    def is_about_thinking(self) -> bool:
        """True if the error message is about thinking or a signature."""
        message = _error_object(_decode_body(self.headers, bytes(self.body))).get("message")
        return isinstance(message, str) and THINKING_WORDS.search(message) is not None


def _decode_body(headers: HeaderList, body: bytes) -> Any:
    try:
        decompressor, decompressed = make_decoder(first_header(headers, "content-encoding")), bytearray()
        if decompressor is None:
            return None
        for start in range(0, len(body), FEED_BYTES):
            decompressed += decompressor.decompress(body[start : start + FEED_BYTES])
            if len(decompressed) > MAX_READ_BYTES:
                return None
        return json.loads(decompressed)
    except Exception:  # each decompressor has its own errors, and a rejection may contain any bytes
        return None


def _error_object(value: Any) -> dict[str, Any]:
    """Return the error object of a response, in the format of any provider."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        inside = value.get("error", value)
        if isinstance(inside, dict):
            return inside
        return {"message": inside}
    return {}


def _error_names(error: dict[str, Any]) -> Iterator[str]:
    for key in ("code", "type", "status"):
        if isinstance(name := error.get(key), str):
            yield name
