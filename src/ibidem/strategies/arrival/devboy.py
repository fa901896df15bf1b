"""A history as the response seat would have written it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ...calls import arguments
from ...model import Conversation, Kind, Opaque, Text, ToolCall
from ...plan import Edit
from ..strategy import Strategy

if TYPE_CHECKING:
    from ...cache import NearRefConfig, ResponsePipeline

_PATHS = ("file_path", "path", "notebook_path")
"""Not `calls.FILE_KEYS`: which reads a write makes stale is the ported system's own habit, kept to the byte."""
_HINT = re.compile(r"> \[ref: (.*?)(?:, byte-identical(?:, from: [a-z-]+)?)?\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Devboy(Strategy):
    """Run every result through a `DedupCache`, in the order they were produced.

    A hint that already stands in the history counts as the reference it once was, so that a second pass finds the
    cache as the first one did (law 10). That trusts text a tool could have written; it can only change which of the
    last few results is forgotten first.
    """

    name: ClassVar[str] = "devboy"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    final: ClassVar[bool] = True

    capacity: int = 5
    """Results remembered."""
    min_bytes: int = 200
    """Shorter results pass."""
    verbosity: Literal["terse", "standard", "verbose"] = "standard"
    near: NearRefConfig | None = None
    """Also refer to JSON objects that differ in a few fields. Off: what is sent as a difference is then remembered as
    if it had been sent in full."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        from ...cache import DedupCache, HintVerbosity, ResponsePipeline  # not needed to import ibidem

        verbosity = HintVerbosity(self.verbosity)
        pipeline = ResponsePipeline(
            DedupCache(self.capacity), self.min_bytes, self.near, verbosity, short_bodies_invalidate=False
        )
        calls: dict[str, ToolCall] = {}
        for message in conv.messages:
            if any(isinstance(part, Opaque) and part.kind == "compaction" for part in message.parts):
                pipeline.cache.on_compaction_boundary()
            calls.update((call.id, call) for call in message.calls)
            for result in message.results:
                call = calls.get(result.call_id)
                for segment in result.segments:
                    if isinstance(segment, Text) and not segment.bound:
                        yield from self._emit(pipeline, message.index, segment, result.call_id, call)

    def _emit(
        self, pipeline: ResponsePipeline, index: int, segment: Text, call_id: str, call: ToolCall | None
    ) -> Iterator[Edit]:
        name = call.name if call else ""
        emission = pipeline.emit(call_id, name, segment.text, path=_path(call) if call else None)
        if emission.kind == "short" and (hint := _HINT.fullmatch(segment.text)):
            pipeline.note_reference(hint[1])
        if emission.kind in ("hint", "near"):
            yield Edit(
                strategy=self.name,
                op="set",
                message=index,
                path=segment.path,
                removed=(segment.text,),
                added=emission.text,
                reason="sent before" if emission.kind == "hint" else "sent before but for a few fields",
            )


def _path(call: ToolCall) -> str | None:
    """The file a call names, also by an empty name."""
    given = arguments(call) or {}
    return next((given[key] for key in _PATHS if isinstance(given.get(key), str)), None)
