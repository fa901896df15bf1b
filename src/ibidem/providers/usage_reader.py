"""Reads what a provider charged for, cleared and compacted out of an answer that passes by, without touching it.

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

from ..billing.usage import Usage, anthropic_usage, compaction_usage, count_in
from ..wire.content_encoding import Decoder, decoder

__all__ = ["UsageReader", "decoder"]

MAX_HELD_BYTES = 8 * 2**20
"""Bytes of a document, or of one event of a stream, that are held to be read. Longer ones go unread."""

MAX_CLEARED = 1_000_000
"""Tool uses that no conversation has. A response that reports more counts for one that reports this many."""

NOTED = (b"usage", b"applied_edits", b"compaction")
"""Words of events that are parsed. All other events are skipped."""

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
        self.cleared_tool_uses = 0
        """Tool uses that the provider reports as cleared from the context of this request. Known after `finish`."""
        self.compacted = False
        """Whether the answer has a compaction block or item. Known after `finish`."""
        self.compaction = Usage()
        """Tokens of compactions. `finish` counts them too; the size of the context is the difference."""

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
            self.compaction = compaction_usage(self._found)
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
        if not self._size and not _is_noted(data) and data.endswith((b"\n\n", b"\r\n\r\n")):
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
        if _is_noted(event):
            yield event
        at += size


def _is_noted(data: bytes) -> bool:
    return any(word in data for word in NOTED)


class _Place(msgspec.Struct):
    """Where counts stand. All else is skipped without being built."""

    usage: Any = None
    usageMetadata: Any = None
    model: Any = None
    modelVersion: Any = None
    context_management: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()
    """Blocks of Anthropic's answer."""
    output: msgspec.Raw = msgspec.Raw()
    """Items of an answer of OpenAI Responses."""


class _Event(_Place):
    """A document, or an event of a stream: counts are its own, or those of what it carries."""

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


def _cleared(place: _Place) -> int:
    """Tool uses in `context_management.applied_edits`."""
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
