"""Refusals by a provider, and which of them may be due to what was rewritten.

A request that is too long, that nobody pays for, or that comes too soon is refused however it is written. Everything
else that a provider calls a bad request may be our doing, and is worth another try without new edits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..wire.content_encoding import decoder
from .headers import HeaderList, first

REFUSAL_STATUSES = frozenset({400, 422})

MAX_HELD_BYTES = 2**16
"""Bytes of a refusal that are held until it is decided. A longer one is passed on as it comes."""

FEED_BYTES = 512
"""Bytes of it that are unpacked at a time: what is made to be huge is found out early."""

MAX_READ_BYTES = 2**18
"""Bytes that it may unpack to, to be read: that is done while everybody waits."""

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
"""What providers call errors that are about size, context, credit, rate, or who asks."""

OTHER_ERROR_WORDS = re.compile(
    r"prompt is too long|too many (?:input |total )?tokens|(?:context|prompt|input) (?:length|window|size)"
    r"|maximum (?:context|prompt)|token (?:count|limit)|tokens? exceeds?|exceeds? the (?:maximum|limit|context)"
    r"|\bcredits?\b|\bbilling\b|quota|rate limit|too large|api key",
    re.IGNORECASE,
)
"""What messages say of such errors, where nothing else tells. They are read here and told nowhere."""

QUOTED_NAME = re.compile(r"([`'\"])[\w.:/-]+\1", re.ASCII)
"""A tool, a field or a model of the client's: what it is called says nothing about the error."""

THINKING_WORDS = re.compile(r"thinking|signature", re.IGNORECASE)
"""Words in messages about thinking that does not fit the text before it."""

ERROR_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(slots=True)
class Refusal:
    """An answer that is held."""

    status: int
    reason: str
    headers: HeaderList
    body: bytearray = field(default_factory=bytearray)

    @property
    def kind(self) -> str | None:
        """What its provider calls the error; None if that has nothing to do with how the request is written."""
        error = _error(_read(self.headers, bytes(self.body)))
        names = [name for name in _names(error) if ERROR_NAME.fullmatch(name)]
        message = error.get("message")
        said = QUOTED_NAME.sub("", message) if isinstance(message, str) else ""
        if OTHER_ERROR_KINDS.intersection(names) or OTHER_ERROR_WORDS.search(said):
            return None
        return names[0] if names else "unknown"

    @property
    def names_thinking(self) -> bool:
        """Whether its message is about thinking or a signature."""
        message = _error(_read(self.headers, bytes(self.body))).get("message")
        return isinstance(message, str) and THINKING_WORDS.search(message) is not None


def _read(headers: HeaderList, body: bytes) -> Any:
    try:
        found, whole = decoder(first(headers, "content-encoding")), bytearray()
        if found is None:
            return None
        for start in range(0, len(body), FEED_BYTES):
            whole += found.decompress(body[start : start + FEED_BYTES])
            if len(whole) > MAX_READ_BYTES:
                return None
        return json.loads(whole)
    except Exception:  # each package has its own, and a refusal may be anything
        return None


def _error(found: Any) -> dict[str, Any]:
    """The one object that says what is wrong, in the shape of any provider."""
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        inside = found.get("error", found)
        if isinstance(inside, dict):
            return inside
        return {"message": inside}
    return {}


def _names(error: dict[str, Any]) -> Iterator[str]:
    for key in ("code", "type", "status"):
        if isinstance(found := error.get(key), str):
            yield found
