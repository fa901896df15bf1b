"""Read token counts, cleared tool uses and compactions from a response while it is forwarded.

A response is a stream of events (server-sent events, or Amazon's binary frames) or one JSON document, and may be
compressed. It arrives in chunks that end anywhere; how it is split does not change the counts. `UsageReader` never
raises. Content that it cannot parse is not counted.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..billing.usage import Usage, anthropic_usage, compaction_usage, count_in
from ..wire.content_encoding import Decoder, decoder

__all__ = ["UsageReader", "decoder"]

MAX_HELD_BYTES = 8 * 2**20
"""Bytes of a document, or of one event of a stream, that are held in memory. Longer ones are not parsed."""

MAX_CLEARED = 1_000_000
"""Upper bound for reported cleared tool uses, against absurd values."""

NOTED = (b"usage", b"applied_edits", b"compaction")
"""Words that an event must contain to be parsed. Other events are skipped."""

FRAME_BYTES = 16
"""Size of an Amazon frame without headers and content."""


class UsageReader:
    """Usage reader for one response: pass chunks to `feed`, then call `finish`."""

    def __init__(self, format: str, content_type: str = "", content_encoding: str = "") -> None:
        self._usage = USAGES[format]
        self._decoder: Decoder | None = decoder(content_encoding)
        self._plain = content_encoding.strip().lower() in ("", "identity")
        self._stream = "event-stream" in content_type.lower()
        self._framed = "amazon.eventstream" in content_type.lower()
        self._held: list[bytes] = []
        """The whole document, or the incomplete last line of a stream."""
        self._event: list[bytes] = []
        """Data of the incomplete last event."""
        self._size = 0
        """Bytes in the two lists above."""
        self._found: dict[str, Any] = {}
        self.model = ""
        """Model that responded, if it is in the same object as the counts."""
        self.cleared_tool_uses = 0
        """Tool uses that the provider reports as cleared from the context of this request. Known after `finish`."""
        self.compacted = False
        """True if the response has a compaction block or item. Known after `finish`."""
        self.compaction = Usage()
        """Tokens of compactions. `finish` counts them too; the size of the context is the difference."""

    def feed(self, data: bytes) -> None:
        """Read the next chunk of the response body."""
        if self._decoder is None:
            return
        try:
            self._take(data if self._plain else self._decoder.decompress(data))
        except Exception:  # a broken encoding concerns only the client and the provider
            self._give_up()

    def finish(self) -> Usage | None:
        """Return the billed tokens, or None if the response contains no counts. Call this at the end of the body."""
        try:
            if self._stream:
                self._line(b"".join(self._held))
                self._line(b"")
            elif self._framed:
                for event in _framed_events(b"".join(self._held)):
                    self._merge(event)
            elif self._held:
                self._merge(b"".join(self._held))
            self.compaction = compaction_usage(self._found)
            return self._usage(self._found) if self._found else None
        except Exception:  # a malformed count is not a reason to break the response
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
        if not self._size and not _is_noted(data) and data.endswith((b"\n\n", b"\r\n\r\n")):
            return  # fast path for most chunks: whole events without counts
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line(b"".join((*self._held, line)))
            self._held.clear()
        self._hold(self._held, rest)

    def _hold(self, where: list[bytes], data: bytes) -> None:
        if data and self._size <= MAX_HELD_BYTES:  # a longer text is cut, so it will not parse
            where.append(data)
            self._size += len(data)

    def _line(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._hold(self._event, line[5:])
            return
        if line:  # a comment, or a field without counts
            return
        data = b"\n".join(self._event)
        self._event.clear()
        self._size = 0
        if _is_noted(data):
            self._merge(data)

    def _merge(self, data: bytes) -> None:
        try:
            value = _EVENTS.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        for each in value if isinstance(value, list) else [value]:  # Gemini also streams as one list
            places = [*_places(each)]
            self.model = next(filter(None, map(_named, places)), self.model)
            self.cleared_tool_uses = max(self.cleared_tool_uses, *map(_cleared, places))
            self.compacted = self.compacted or _has_compaction(each, places)
            for name, count in _counted(places).items():
                if count or name not in self._found:  # the last event may report zero for counts sent earlier
                    self._found[name] = count

    def _give_up(self) -> None:
        self._decoder = None
        self._held, self._event, self._found = [], [], {}


class _Chunk(msgspec.Struct):
    bytes: str = ""


def _framed_events(data: bytes) -> Iterator[bytes]:
    """Yield the events with counts in Amazon's binary stream.

    A frame has two lengths, a checksum, headers, a JSON value with the event in Base64, and a checksum.
    """
    at = 0
    while at + FRAME_BYTES <= len(data):
        size, headers = struct.unpack_from(">II", data, at)
        if size < FRAME_BYTES + headers:
            return
        event = b64decode(msgspec.json.decode(data[at + 12 + headers : at + size - 4] or b"{}", type=_Chunk).bytes)
        if _is_noted(event):
            yield event
        at += size


def _is_noted(data: bytes) -> bool:
    return any(word in data for word in NOTED)


class _Place(msgspec.Struct):
    """Object that may contain counts. The decoder skips other fields without building them."""

    usage: Any = None
    usageMetadata: Any = None
    model: Any = None
    modelVersion: Any = None
    context_management: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()
    """Blocks of an Anthropic response."""
    output: msgspec.Raw = msgspec.Raw()
    """Items of an OpenAI Responses response."""


class _Event(_Place):
    """Document or stream event. The counts are in it, or in the object that it contains."""

    message: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    content_block: msgspec.Raw = msgspec.Raw()
    item: msgspec.Raw = msgspec.Raw()


class _Block(msgspec.Struct):
    type: Any = None


_PLACE = msgspec.json.Decoder(_Place)
_EVENTS = msgspec.json.Decoder(list[_Event] | _Event)
_BLOCK = msgspec.json.Decoder(_Block)
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])
"""Built once, because building a decoder takes longer than decoding."""


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
    """Yield the event, then the objects in it that may contain counts. The same keys may hold a text instead."""
    yield event
    for raw in (event.message, event.response):
        if bytes(memoryview(raw)[:1]) == b"{":
            yield _PLACE.decode(raw)


def _cleared(place: _Place) -> int:
    """Return the number of cleared tool uses in `context_management.applied_edits`."""
    try:
        found = msgspec.json.decode(place.context_management) if place.context_management else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
    edits = found.get("applied_edits") if isinstance(found, dict) else None
    total = sum(
        count_in(edit, "cleared_tool_uses")
        for edit in (edits if isinstance(edits, list) else ())
        if isinstance(edit, dict) and str(edit.get("type")).startswith("clear_tool_uses")
    )
    return min(total, MAX_CLEARED)


def _has_compaction(event: _Event, places: Iterable[_Place]) -> bool:
    if _is_compaction(event.content_block) or _is_compaction(event.item):
        return True
    lists = (raw for place in places for raw in (place.content, place.output))
    return any(_is_compaction(raw) for each in lists for raw in _listed(each))


def _listed(raw: msgspec.Raw) -> list[msgspec.Raw]:
    if bytes(memoryview(raw)[:1]) != b"[" or b'"compaction"' not in bytes(raw):
        return []
    try:
        return _RAW_LIST.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []


def _is_compaction(raw: msgspec.Raw) -> bool:
    if bytes(memoryview(raw)[:1]) != b"{":
        return False
    try:
        return bool(_BLOCK.decode(raw).type == "compaction")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _openai(found: Mapping[str, Any]) -> Usage:
    total = count_in(found, "prompt_tokens") or count_in(found, "input_tokens")
    inside = "prompt_tokens_details" if "prompt_tokens_details" in found else "input_tokens_details"
    read = count_in(found, inside, "cached_tokens") or count_in(found, "prompt_cache_hit_tokens")
    written = count_in(found, inside, "cache_write_tokens") or count_in(found, inside, "cache_creation_tokens")
    output = count_in(found, "completion_tokens") or count_in(found, "output_tokens")
    thought = count_in(found, "completion_tokens_details", "reasoning_tokens")
    thought = thought or count_in(found, "output_tokens_details", "reasoning_tokens")
    return Usage(max(0, total - read - written), read, written, output=output, reasoning=thought)


def _gemini(found: Mapping[str, Any]) -> Usage:
    total, read = count_in(found, "promptTokenCount"), count_in(found, "cachedContentTokenCount")
    thought = count_in(found, "thoughtsTokenCount")
    output = count_in(found, "candidatesTokenCount") + thought
    return Usage(max(0, total - read), read, output=output, reasoning=thought)


USAGES: dict[str, Callable[[Mapping[str, Any]], Usage]] = {
    "anthropic": anthropic_usage,
    "openai-chat": _openai,
    "openai-responses": _openai,
    "gemini": _gemini,
}
