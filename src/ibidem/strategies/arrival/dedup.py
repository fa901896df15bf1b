"""Whole results said before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, Text, size
from ...plan import Edit
from ..strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup(Strategy):
    """Point later copies of a tool result at the first one."""

    name: ClassVar[str] = "dedup"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    final: ClassVar[bool] = True

    min_bytes: int = 256
    """Shorter results stay: the marker would be nearly as long, and `ok` is not worth a look elsewhere."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        # Python's string hash is keyed per process and equality is compared in full, so no two different
        # results can pass for one, whoever wrote them; and nothing is copied.
        first: dict[str, str] = {}
        for message in conv.messages:
            for result in message.results:
                for segment in result.segments:
                    if not isinstance(segment, Text) or not self._long_enough(segment.text):
                        continue
                    earlier = first.get(segment.text)
                    if earlier is None:
                        first[segment.text] = result.call_id
                    else:
                        yield from self._refer(message.index, segment, earlier)

    def _long_enough(self, text: str) -> bool:
        return len(text) >= self.min_bytes or (4 * len(text) >= self.min_bytes <= size(text))

    def _refer(self, index: int, segment: Text, earlier: str) -> Iterator[Edit]:
        marker = codetether.same_result(earlier, size(segment.text))
        # A marker that were itself long enough to be a copy of another would not survive a second pass (law 10).
        if size(marker) < self.min_bytes and not segment.bound:
            yield Edit(
                strategy=self.name,
                op="set",
                message=index,
                path=segment.path,
                removed=(segment.text,),
                added=marker,
                reason=f"equal to the result of {earlier}",
            )
