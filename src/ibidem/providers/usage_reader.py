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
from ..wire.content_encoding import Decoder, make_decoder

__all__ = ["UsageReader", "make_decoder"]

MAX_HELD_BYTES = 8 * 2**20
"""Bytes of a document, or of one event of a stream, that are held in memory. Longer ones are not parsed."""

MAX_CLEARED = 1_000_000
"""Upper bound for reported cleared tool uses, against absurd values."""

USAGE_WORDS = (b"usage", b"applied_edits", b"compaction")
"""Words that an event must contain to be parsed. Other events are skipped."""

FRAME_BYTES = 16
"""Size of an Amazon frame without headers and content."""


class UsageReader:
    """Usage reader for one response: pass chunks to `feed`, then call `finish`."""

    def __init__(self, format: str, content_type: str = "", content_encoding: str = "") -> None:
        self._usage = USAGES[format]
        self._decoder: Decoder | None = make_decoder(content_encoding)
        self._is_plain = content_encoding.strip().lower() in ("", "identity")
        self._is_event_stream = "event-stream" in content_type.lower()
        self._is_aws_stream = "amazon.eventstream" in content_type.lower()
        self._pending: list[bytes] = []
        """The whole document, or the incomplete last line of a stream."""
        self._event_data: list[bytes] = []
        """Data of the incomplete last event."""
        self._pending_bytes = 0
        """Bytes in the two lists above."""
        self._counts: dict[str, Any] = {}
        self.model = ""
        """Model that responded, if it is in the same object as the counts."""
        self.cleared_tool_uses = 0
        """Tool uses that the provider reports as cleared from the context of this request. Known after `finish`."""
        self.has_compaction = False
        """True if the response has a compaction block or item. Known after `finish`."""
        self.compaction = Usage()
        """Tokens of compactions. `finish` counts them too; the size of the context is the difference."""

    def feed(self, data: bytes) -> None:
        """Read the next chunk of the response body."""
        if self._decoder is None:
            return
        try:
            self._split_data(data if self._is_plain else self._decoder.decompress(data))
        except Exception:  # a broken encoding concerns only the client and the provider
            self._stop_reading()

    def finish(self) -> Usage | None:
        """Return the billed tokens, or None if the response contains no counts. Call this at the end of the body."""
        try:
            if self._is_event_stream:
                self._read_line(b"".join(self._pending))
                self._read_line(b"")
            elif self._is_aws_stream:
                for event in _iter_aws_events(b"".join(self._pending)):
                    self._merge_event(event)
            elif self._pending:
                self._merge_event(b"".join(self._pending))
            self.compaction = compaction_usage(self._counts)
            return self._usage(self._counts) if self._counts else None
        except Exception:  # a malformed count is not a reason to break the response
            return None
        finally:
            self._pending, self._event_data = [], []

    def _split_data(self, data: bytes) -> None:
        if not self._is_event_stream:
            self._pending.append(data)
            self._pending_bytes += len(data)
            if self._pending_bytes > MAX_HELD_BYTES:
                self._stop_reading()
            return
        if not self._pending_bytes and not _may_have_usage(data) and data.endswith((b"\n\n", b"\r\n\r\n")):
            return  # fast path for most chunks: whole events without counts
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._read_line(b"".join((*self._pending, line)))
            self._pending.clear()
        self._hold_data(self._pending, rest)

    def _hold_data(self, buffer: list[bytes], data: bytes) -> None:
        if data and self._pending_bytes <= MAX_HELD_BYTES:  # a longer text is cut, so it will not parse
            buffer.append(data)
            self._pending_bytes += len(data)

    def _read_line(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._hold_data(self._event_data, line[5:])
            return
        if line:  # a comment, or a field without counts
            return
        data = b"\n".join(self._event_data)
        self._event_data.clear()
        self._pending_bytes = 0
        if _may_have_usage(data):
            self._merge_event(data)

    def _merge_event(self, data: bytes) -> None:
        try:
            value = _EVENTS_DECODER.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        for each in value if isinstance(value, list) else [value]:  # Gemini also streams as one list
            places = [*_usage_objects(each)]
            self.model = next(filter(None, map(_model_name, places)), self.model)
            self.cleared_tool_uses = max(self.cleared_tool_uses, *map(_cleared_tool_uses, places))
            self.has_compaction = self.has_compaction or _has_compaction(each, places)
            for name, count in _reported_counts(places).items():
                if count or name not in self._counts:  # the last event may report zero for counts sent earlier
                    self._counts[name] = count

    def _stop_reading(self) -> None:
        self._decoder = None
        self._pending, self._event_data, self._counts = [], [], {}


class _AwsChunk(msgspec.Struct):
    bytes: str = ""


def _iter_aws_events(data: bytes) -> Iterator[bytes]:
    """Yield the events with counts in Amazon's binary stream.

    A frame has two lengths, a checksum, headers, a JSON value with the event in Base64, and a checksum.
    """
    offset = 0
    while offset + FRAME_BYTES <= len(data):
        size, headers = struct.unpack_from(">II", data, offset)
        if size < FRAME_BYTES + headers:
            return
        event = b64decode(
            msgspec.json.decode(data[offset + 12 + headers : offset + size - 4] or b"{}", type=_AwsChunk).bytes
        )
        if _may_have_usage(event):
            yield event
        offset += size


def _may_have_usage(data: bytes) -> bool:
    return any(word in data for word in USAGE_WORDS)


class _UsageFields(msgspec.Struct):
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


class _UsageEvent(_UsageFields):
    """Document or stream event. The counts are in it, or in the object that it contains."""

    message: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    content_block: msgspec.Raw = msgspec.Raw()
    item: msgspec.Raw = msgspec.Raw()


class _TypedBlock(msgspec.Struct):
    type: Any = None


_FIELDS_DECODER = msgspec.json.Decoder(_UsageFields)
_EVENTS_DECODER = msgspec.json.Decoder(list[_UsageEvent] | _UsageEvent)
_BLOCK_DECODER = msgspec.json.Decoder(_TypedBlock)
_LIST_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
"""Built once, because building a decoder takes longer than decoding."""


def _reported_counts(objects: Iterable[_UsageFields]) -> dict[str, Any]:
    for place in objects:
        for usage in (place.usage, place.usageMetadata):
            if isinstance(usage, dict):
                return {name: value for name, value in usage.items() if value is not None}
    return {}


def _model_name(fields: _UsageFields) -> str:
    if isinstance(fields.model, str):
        return fields.model
    return fields.modelVersion if isinstance(fields.modelVersion, str) else ""


def _usage_objects(event: _UsageEvent) -> Iterator[_UsageFields]:
    """Yield the event, then the objects in it that may contain counts. The same keys may hold a text instead."""
    yield event
    for raw in (event.message, event.response):
        if bytes(memoryview(raw)[:1]) == b"{":
            yield _FIELDS_DECODER.decode(raw)


def _cleared_tool_uses(fields: _UsageFields) -> int:
    """Return the number of cleared tool uses in `context_management.applied_edits`."""
    try:
        management = msgspec.json.decode(fields.context_management) if fields.context_management else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
    edits = management.get("applied_edits") if isinstance(management, dict) else None
    total = sum(
        count_in(edit, "cleared_tool_uses")
        for edit in (edits if isinstance(edits, list) else ())
        if isinstance(edit, dict) and str(edit.get("type")).startswith("clear_tool_uses")
    )
    return min(total, MAX_CLEARED)


def _has_compaction(event: _UsageEvent, objects: Iterable[_UsageFields]) -> bool:
    if _is_compaction(event.content_block) or _is_compaction(event.item):
        return True
    lists = (raw for place in objects for raw in (place.content, place.output))
    return any(_is_compaction(raw) for each in lists for raw in _compaction_items(each))


def _compaction_items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    if bytes(memoryview(raw)[:1]) != b"[" or b'"compaction"' not in bytes(raw):
        return []
    try:
        return _LIST_DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []


def _is_compaction(raw: msgspec.Raw) -> bool:
    if bytes(memoryview(raw)[:1]) != b"{":
        return False
    try:
        return bool(_BLOCK_DECODER.decode(raw).type == "compaction")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _openai_usage(counts: Mapping[str, Any]) -> Usage:
    total = count_in(counts, "prompt_tokens") or count_in(counts, "input_tokens")
    details = "prompt_tokens_details" if "prompt_tokens_details" in counts else "input_tokens_details"
    read = count_in(counts, details, "cached_tokens") or count_in(counts, "prompt_cache_hit_tokens")
    written = count_in(counts, details, "cache_write_tokens") or count_in(counts, details, "cache_creation_tokens")
    output = count_in(counts, "completion_tokens") or count_in(counts, "output_tokens")
    thought = count_in(counts, "completion_tokens_details", "reasoning_tokens")
    thought = thought or count_in(counts, "output_tokens_details", "reasoning_tokens")
    return Usage(max(0, total - read - written), read, written, output=output, reasoning=thought)


def _gemini_usage(counts: Mapping[str, Any]) -> Usage:
    total, read = count_in(counts, "promptTokenCount"), count_in(counts, "cachedContentTokenCount")
    thought = count_in(counts, "thoughtsTokenCount")
    output = count_in(counts, "candidatesTokenCount") + thought
    return Usage(max(0, total - read), read, output=output, reasoning=thought)


USAGES: dict[str, Callable[[Mapping[str, Any]], Usage]] = {
    "anthropic": anthropic_usage,
    "openai-chat": _openai_usage,
    "openai-responses": _openai_usage,
    "gemini": _gemini_usage,
}
