"""Large old results keep their head and their tail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, Text, size
from ...plan import Edit
from ..strategy import Strategy

_SLACK = 64  # bytes, more than any marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet(Strategy):
    """Elide the middle of large results that are older than the window."""

    name: ClassVar[str] = "snippet"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})

    window: int = 8
    """Results in the last so many messages stay whole."""
    min_bytes: int = 4096
    """Shorter results stay whole."""
    head: int = 1024
    """Bytes kept at the start, rounded down to a character."""
    tail: int = 1024
    """Bytes kept at the end, its start rounded up to a character."""
    heed_markers: bool = False
    """Leave results alone that contain `[...elided` or start with `[DEDUP]`. A tool can write that itself and so
    steer us (law 9), hence only the codetether profile does it."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        for message in conv.older_than(self.window):
            for result in message.results:
                for segment in result.segments:
                    if isinstance(segment, Text) and not segment.bound and self._applies(segment.text):
                        yield Edit(
                            strategy=self.name,
                            op="set",
                            message=message.index,
                            path=segment.path,
                            removed=(segment.text,),
                            added=self.snip(segment.text),
                            reason=f"older than the last {self.window} messages",
                        )

    def _applies(self, text: str) -> bool:
        if 4 * len(text) < self.min_bytes or size(text) < self.min_bytes:
            return False
        marked = self.heed_markers and (codetether.SNIPPED in text or text.startswith(codetether.DEDUPED))
        # What was snipped before is short enough to stay, whatever the constants: no second bite (law 10).
        return not marked and size(text) > self.head + self.tail + _SLACK

    def snip(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        head, tail = self.head, len(data) - self.tail
        while head > 0 and data[head] & 0xC0 == 0x80:
            head -= 1
        while tail < len(data) and data[tail] & 0xC0 == 0x80:
            tail += 1
        kept = data[:head], data[tail:]
        before, after = (piece.decode("utf-8", "surrogatepass") for piece in kept)
        return before + codetether.snipped(tail - head) + after
