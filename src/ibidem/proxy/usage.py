"""Reads what a provider charged for out of an answer that passes by, without touching it.

Answers come in pieces that end anywhere, as a stream of events (of text, or Amazon's) or as one JSON document, and may
be compressed. A `UsageReader` is fed the pieces; splitting them elsewhere gives the same counts. What it cannot read it
does not report, and nothing that it is fed makes it raise.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..billing.usage import Usage
from .encodings import Decoder, decoder

__all__ = ["UsageReader", "decoder"]

MAX_HELD_BYTES = 8 * 2**20
"""Bytes of a document, or of one event of a stream, that are held to be read. Longer ones go unread."""

FRAME_BYTES = 16
"""Bytes of a frame of Amazon's without headers and content."""


class UsageReader:
    """Of one answer."""

    def __init__(self, format: str, content_type: str = "", content_encoding: str = "") -> None:
        self._usage = USAGES[format]
        self._decoder: Decoder | None = decoder(content_encoding)
        self._plain = content_encoding.strip().lower() in ("", "identity")
        self._stream = "event-stream" in content_type.lower()
        self._framed = "amazon.eventstream" in content_type.lower()
        self._held: list[bytes] = []
        """Of a document all, of a stream the line that has not ended."""
        self._event: list[bytes] = []
        """The data of the event that has not ended."""
        self._size = 0
        """Bytes in these two."""
        self._found: dict[str, Any] = {}
        self.model = ""
        """Who answered, as far as that stands beside the counts."""

    def feed(self, data: bytes) -> None:
        if self._decoder is None:
            return
        try:
            self._take(data if self._plain else self._decoder.decompress(data))
        except Exception:  # a broken encoding is between the client and the provider
            self._give_up()

    def finish(self) -> Usage | None:
        """What was charged for; None if the answer does not say. Call it at the end."""
        try:
            if self._stream:
                self._line(b"".join(self._held))
                self._line(b"")
            elif self._framed:
                for event in _framed_events(b"".join(self._held)):
                    self._merge(event)
            elif self._held:
                self._merge(b"".join(self._held))
            return self._usage(self._found) if self._found else None
        except Exception:  # whatever it was, it was no count
            return None
        finally:
            self._held, self._event = [], []

    def _take(self, data: bytes) -> None:
        if not self._stream:
            self._held.append(data)
            self._size += len(data)
            if self._size > MAX_HELD_BYTES:
                self._give_up()
            return
        if not self._size and b"usage" not in data and data.endswith((b"\n\n", b"\r\n\r\n")):
            return  # whole events, none of which counts: most pieces are like this
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line(b"".join((*self._held, line)))
            self._held.clear()
        self._hold(self._held, rest)

    def _hold(self, where: list[bytes], data: bytes) -> None:
        if data and self._size <= MAX_HELD_BYTES:  # what is longer is cut, and so cannot be read
            where.append(data)
            self._size += len(data)

    def _line(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._hold(self._event, line[5:])
            return
        if line:  # a comment, or a field that says nothing of tokens
            return
        data = b"\n".join(self._event)
        self._event.clear()
        self._size = 0
        if b"usage" in data:
            self._merge(data)

    def _merge(self, data: bytes) -> None:
        try:
            value = _EVENTS.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        for each in value if isinstance(value, list) else [value]:  # Gemini also streams as one list
            places = [*_places(each)]
            self.model = next(filter(None, map(_named, places)), self.model)
            for name, count in _counted(places).items():
                if count or name not in self._found:  # a last word about the output does not take back the input
                    self._found[name] = count

    def _give_up(self) -> None:
        self._decoder = None
        self._held, self._event, self._found = [], [], {}


class _Chunk(msgspec.Struct):
    bytes: str = ""


def _framed_events(data: bytes) -> Iterator[bytes]:
    """Of Amazon's binary stream: frames of two lengths, a checksum, headers, a JSON value with the event in Base64, and
    a checksum."""
    at = 0
    while at + FRAME_BYTES <= len(data):
        size, headers = struct.unpack_from(">II", data, at)
        if size < FRAME_BYTES + headers:
            return
        event = b64decode(msgspec.json.decode(data[at + 12 + headers : at + size - 4] or b"{}", type=_Chunk).bytes)
        if b"usage" in event:
            yield event
        at += size


class _Place(msgspec.Struct):
    """Where counts stand. All else is skipped without being built."""

    usage: Any = None
    usageMetadata: Any = None
    model: Any = None
    modelVersion: Any = None


class _Event(_Place):
    """A document, or an event of a stream: counts are its own, or those of what it carries."""

    message: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()


_PLACE = msgspec.json.Decoder(_Place)
_EVENTS = msgspec.json.Decoder(list[_Event] | _Event)
"""Made once: to tell a decoder what it is to find takes longer than to find it."""


def _counted(places: Iterable[_Place]) -> dict[str, Any]:
    for place in places:
        for found in (place.usage, place.usageMetadata):
            if isinstance(found, dict):
                return {name: value for name, value in found.items() if value is not None}
    return {}


def _named(place: _Place) -> str:
    if isinstance(place.model, str):
        return place.model
    return place.modelVersion if isinstance(place.modelVersion, str) else ""


def _places(event: _Event) -> Iterator[_Place]:
    """Itself, then what it carries. It may also have a text of that name."""
    yield event
    for raw in (event.message, event.response):
        if bytes(memoryview(raw)[:1]) == b"{":
            yield _PLACE.decode(raw)


def _number(found: Any, *path: str) -> int:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _anthropic(found: Mapping[str, Any]) -> Usage:
    short = _number(found, "cache_creation", "ephemeral_5m_input_tokens")
    long = _number(found, "cache_creation", "ephemeral_1h_input_tokens")
    return Usage(
        fresh=_number(found, "input_tokens"),
        read=_number(found, "cache_read_input_tokens"),
        written=max(short, _number(found, "cache_creation_input_tokens") - long),
        written_1h=long,
        output=_number(found, "output_tokens"),
    )


def _openai(found: Mapping[str, Any]) -> Usage:
    total = _number(found, "prompt_tokens") or _number(found, "input_tokens")
    inside = "prompt_tokens_details" if "prompt_tokens_details" in found else "input_tokens_details"
    read = _number(found, inside, "cached_tokens") or _number(found, "prompt_cache_hit_tokens")
    written = _number(found, inside, "cache_write_tokens") or _number(found, inside, "cache_creation_tokens")
    output = _number(found, "completion_tokens") or _number(found, "output_tokens")
    thought = _number(found, "completion_tokens_details", "reasoning_tokens")
    thought = thought or _number(found, "output_tokens_details", "reasoning_tokens")
    return Usage(max(0, total - read - written), read, written, output=output, reasoning=thought)


def _gemini(found: Mapping[str, Any]) -> Usage:
    total, read = _number(found, "promptTokenCount"), _number(found, "cachedContentTokenCount")
    thought = _number(found, "thoughtsTokenCount")
    output = _number(found, "candidatesTokenCount") + thought
    return Usage(max(0, total - read), read, output=output, reasoning=thought)


USAGES: dict[str, Callable[[Mapping[str, Any]], Usage]] = {
    "anthropic": _anthropic,
    "openai-chat": _openai,
    "openai-responses": _openai,
    "gemini": _gemini,
}
