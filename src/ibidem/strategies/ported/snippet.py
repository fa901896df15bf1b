"""Shorten large old results to their head and their tail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, Text, ToolResult, utf8_size
from ...plan import Edit
from ..strategy import ProviderDemands
from .ported_strategy import Ported, codetether_messages, older_than

_MARKER_BYTES = 64
"""More than any marker has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet(Ported):
    """Elide the middle of large results that are older than the window."""

    name: ClassVar[str] = "snippet"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"result", "messages"})

    window: int = 8
    """Number of last messages whose results stay whole."""
    min_bytes: int = 4096
    """Shorter results stay whole."""
    head: int = 1024
    """Bytes that stay at the start, rounded down to a character."""
    tail: int = 1024
    """Bytes that stay at the end. Their start is rounded up to a character."""
    heed_markers: bool = False
    """Do not edit results that contain `[...elided` or start with `[DEDUP]`, as in the original. A tool can print that
    text and so prevent edits (invariant 9)."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        for message in older_than(codetether_messages(conv), self.window):
            for part in message.parts:
                if type(part) is not ToolResult:
                    continue
                for segment in part.segments:
                    if type(segment) is Text and not segment.bound and self._is_snippable(segment.text):
                        yield Edit(
                            strategy=self.name,
                            op="set",
                            message=message.index,
                            path=segment.path,
                            removed=(segment.text,),
                            added=self.snip(segment.text),
                            reason=f"older than the last {self.window} messages",
                        )

    def _is_snippable(self, text: str) -> bool:
        if 4 * len(text) < self.min_bytes or utf8_size(text) < self.min_bytes:
            return False
        has_marker = self.heed_markers and (codetether.SNIPPED in text or text.startswith(codetether.DEDUPED))
        # A result that was shortened before is short enough to stay, for all settings (invariant 10).
        return not has_marker and utf8_size(text) > self.head + self.tail + _MARKER_BYTES

    def snip(self, text: str) -> str:
        """Return head, marker and tail of the text."""
        data = text.encode("utf-8", "surrogatepass")
        head, tail = self.head, len(data) - self.tail
        while head > 0 and data[head] & 0xC0 == 0x80:
            head -= 1
        while tail < len(data) and data[tail] & 0xC0 == 0x80:
            tail += 1
        before, after = (piece.decode("utf-8", "surrogatepass") for piece in (data[:head], data[tail:]))
        return before + codetether.snip_marker(tail - head) + after
