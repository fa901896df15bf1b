"""devboy's response pipeline: hints, and the steps that decide which output gets one.

The steps, sizes and texts are the original's. A hint names the id of a call, which most models do not see;
`OutputMemory` names what a model can find.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .dedup import DedupCache, Hint
from .near_references import NearRefConfig, render_near_ref_hint
from .outputs import Emission, ToolKind, check_names, check_text, content_hash, encode_utf8, path_hash


class HintVerbosity(enum.Enum):
    """How much a hint states in addition to the id."""

    TERSE = "terse"
    STANDARD = "standard"
    VERBOSE = "verbose"


def render_reference_hint(
    id: str, verbosity: HintVerbosity = HintVerbosity.STANDARD, source: ToolKind | None = None
) -> str:
    """Return the line that replaces an output that equals the one of call `id`.

    Only VERBOSE names the source. Without a source it reads like STANDARD.
    """
    if verbosity is HintVerbosity.TERSE:
        return f"> [ref: {id}]"
    if verbosity is HintVerbosity.STANDARD or source is None:
        return f"> [ref: {id}, byte-identical]"
    return f"> [ref: {id}, byte-identical, from: {source.value}]"


def render_reference_hint_with(id: str, verbosity: HintVerbosity, source: ToolKind | None) -> str:
    """Return the hint at this verbosity; the original's name for `render_reference_hint` with all arguments."""
    return render_reference_hint(id, verbosity, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """Settings of `ResponsePipeline` for one tool. None takes the pipeline's own."""

    dedup: bool | None = None
    """Whether its outputs are replaced. They are stored either way."""
    min_bytes: int | None = None
    """Smallest output that is looked up and stored."""
    capacity: int | None = None
    """Number of stored outputs. There is one cache for all tools, so the largest capacity counts."""
    invalidates: tuple[str, ...] = ()
    """Tools whose stored outputs are dropped after an output of this tool was sent in full."""


_NO_SETTINGS: Final = ToolSettings()


class ResponsePipeline:
    """Decide for each tool output, in order, what to send for it. Settings are fixed; the cache is its state."""

    def __init__(
        self,
        cache: DedupCache | None = None,
        min_bytes: int = 200,
        near: NearRefConfig | None = None,
        verbosity: HintVerbosity = HintVerbosity.STANDARD,
        *,
        dedup: bool = True,
        hash_ids: bool = False,
        tools: Mapping[str, ToolSettings] | None = None,
        short_bodies_invalidate: bool = False,
    ) -> None:
        """Create a pipeline.

        `near=None` makes no near-references and stores no bodies. `tools` has settings by name, or by `*`.

        `hash_ids=True` prints the first 8 hex digits of the SHA-256 of an id, as the original pipeline does.
        `short_bodies_invalidate=True` differs from the original: a declared `invalidates` then also counts if the
        output was short or replaced.
        """
        self.tools: Final = dict(tools or {})
        if cache is None:
            sizes = [settings.capacity for settings in self.tools.values() if settings.capacity is not None]
            cache = DedupCache(max([DedupCache().capacity, *sizes]))
        self.cache: Final = cache
        self.min_bytes: Final = min_bytes
        self.near: Final = near
        self.verbosity: Final = verbosity
        self.dedup: Final = dedup
        self.hash_ids: Final = hash_ids
        self.short_bodies_invalidate: Final = short_bodies_invalidate

    def emit(
        self,
        tool_call_id: str,
        tool_name: str,
        body: str,
        *,
        path: str | None = None,
        kind: ToolKind | None = None,
        invalidates: Iterable[str] | None = None,
    ) -> Emission:
        """Return what to send for `body`. `kind` is for tools whose name does not determine it.

        `invalidates` names tools whose stored outputs are dropped; None takes the list of the tool's settings.
        """
        check_text(body)
        settings = self.tools.get(tool_name) or self.tools.get("*") or _NO_SETTINGS
        stale = settings.invalidates if invalidates is None else check_names(invalidates)
        kind = ToolKind.from_tool_name(tool_name) if kind is None else kind
        file = None if path is None else path_hash(path)
        # First, and for a body of any size: the file has changed, whatever the tool printed.
        if kind is ToolKind.FILE_MUTATE and file is not None:
            self.cache.invalidate_file(file)
        id = hashlib.sha256(encode_utf8(tool_call_id)).hexdigest()[:8] if self.hash_ids else tool_call_id
        emission = self._decide(settings, id, tool_name, body, kind, file)
        if emission.kind == "fresh" or self.short_bodies_invalidate:
            self.cache.invalidate_by_tool(stale)
        return emission

    def _decide(
        self, settings: ToolSettings, id: str, tool_name: str, body: str, kind: ToolKind, file: str | None
    ) -> Emission:
        data = encode_utf8(body)
        if len(data) < max(1, self.min_bytes if settings.min_bytes is None else settings.min_bytes):
            return Emission(body, "short")
        hash = content_hash(data)
        if self.dedup if settings.dedup is None else settings.dedup:
            decision = self.cache.check(hash)
            if isinstance(decision, Hint):
                return Emission(render_reference_hint(decision.reference_tool_call_id, self.verbosity, kind), "hint")
            if self.near is not None and (near := self.cache.find_near_ref(body, self.near)) is not None:
                self.cache.insert_with_body(hash, id, kind, file, body, tool_name)
                return Emission(render_near_ref_hint(*near), "near")
        self.cache.insert_with_body(hash, id, kind, file, None if self.near is None else body, tool_name)
        return Emission(body, "fresh")

    def on_compaction_boundary(self) -> None:
        """Drop everything: the model no longer sees the outputs that hints would name."""
        self.cache.on_compaction_boundary()

    def invalidate_file(self, path: str) -> int:
        """Drop stored reads of this path and return their number."""
        return self.cache.invalidate_file(path_hash(path))
