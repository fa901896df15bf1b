"""Run devboy's response pipeline over the results of a history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from ...model import Conversation, Kind, Opaque, Text, ToolCall, ToolResult
from ...plan import Edit
from ...tool_arguments import arguments_by_name
from ..strategy import ProviderDemands
from .ported_strategy import Ported

if TYPE_CHECKING:
    from ...cache import NearRefConfig, ToolSettings

_PATHS = ("file_path", "path", "notebook_path")
"""Not `calls.FILE_KEYS`: the original reads only these arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devboy(Ported):
    """Send each result through a `ResponsePipeline`, in the order in which they were produced.

    A second pass over its own output may decide otherwise: a hint is a short text like any other, so it no longer
    refreshes the entry that it names.
    """

    name: ClassVar[str] = "devboy"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    final: ClassVar[bool] = True

    capacity: int = 5
    """Number of results in the cache."""
    min_bytes: int = 200
    """Shorter results are sent as they are."""
    verbosity: Literal["terse", "standard", "verbose"] = "standard"
    near: NearRefConfig | None = None
    """Limits of near-references; None makes none."""
    hash_ids: bool = False
    """Print the hashed ids of the original pipeline instead of the ids themselves."""
    tools: Mapping[str, ToolSettings] = field(default_factory=dict)
    """Settings by tool name, or `*`."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        from ...cache import DedupCache, HintVerbosity, ResponsePipeline  # not needed to import ibidem

        sizes = [each.capacity for each in self.tools.values() if each.capacity is not None]
        pipeline = ResponsePipeline(
            DedupCache(max([self.capacity, *sizes])),
            self.min_bytes,
            self.near,
            HintVerbosity(self.verbosity),
            hash_ids=self.hash_ids,
            tools=self.tools,
        )
        calls: dict[str, ToolCall] = {}
        for message in conv.messages:
            for part in message.parts:
                if type(part) is ToolCall:
                    calls[part.id] = part
                elif type(part) is Opaque and part.kind == "compaction":
                    pipeline.on_compaction_boundary()
            for part in message.parts:
                if type(part) is not ToolResult:
                    continue
                call = calls.get(part.call_id)
                path = _file_argument(call) if call else None
                for segment in part.segments:
                    if type(segment) is not Text or segment.bound:
                        continue
                    emission = pipeline.emit(part.call_id, call.name if call else "", segment.text, path=path)
                    if emission.kind in ("hint", "near"):
                        yield Edit(
                            strategy=self.name,
                            op="set",
                            message=message.index,
                            path=segment.path,
                            removed=(segment.text,),
                            added=emission.text,
                            reason="sent before" if emission.kind == "hint" else "sent before except for a few fields",
                        )


def _file_argument(call: ToolCall) -> str | None:
    """The file that a call names, even by an empty name."""
    call_arguments = arguments_by_name(call) or {}
    return next((call_arguments[key] for key in _PATHS if isinstance(call_arguments.get(key), str)), None)
