"""devboy's way with an output, to the word: a hint is the id of the call that it repeats.

The order of steps, sizes and wordings are that system's, for `profile="devboy"` and for hosts that resolve such an id.
A model sees none: `OutputMemory` says what it can find.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final

from .dedup import DedupCache, Hint
from .near import DeltaField, NearRefConfig, joined
from .outputs import Emission, ToolKind, be_names, be_text, content_hash, path_hash, utf8


class HintVerbosity(enum.Enum):
    """How much a hint says beside the id."""

    TERSE = "terse"
    STANDARD = "standard"
    VERBOSE = "verbose"


def render_reference_hint(
    id: str, verbosity: HintVerbosity = HintVerbosity.STANDARD, source: ToolKind | None = None
) -> str:
    """The line sent in place of an output that equals the one of call `id`.

    Only VERBOSE names the source; without a source it reads like STANDARD.
    """
    if verbosity is HintVerbosity.TERSE:
        return f"> [ref: {id}]"
    if verbosity is HintVerbosity.STANDARD or source is None:
        return f"> [ref: {id}, byte-identical]"
    return f"> [ref: {id}, byte-identical, from: {source.value}]"


def render_near_ref(id: str, deltas: Sequence[DeltaField]) -> str:
    """The line sent in place of an output that differs from the one of call `id` in `deltas`."""
    return f"> [near-ref: {joined((id,), deltas)}]"


class ResponsePipeline:
    """One tool output in, the text to send out, in the words of devboy. Settings are fixed, the cache is its state."""

    def __init__(
        self,
        cache: DedupCache | None = None,
        min_bytes: int = 200,
        near: NearRefConfig | None = None,
        verbosity: HintVerbosity = HintVerbosity.STANDARD,
        *,
        short_bodies_invalidate: bool = True,
    ) -> None:
        """`near=None` makes no near-references and keeps no bodies.

        `short_bodies_invalidate=False` is devboy's way: a declared `invalidates` counts only if
        the writer's own output was sent in full and remembered, not if it was short or repeated.
        """
        # An empty cache is falsy, so `or` would replace the one that was passed in.
        self.cache: Final = DedupCache() if cache is None else cache
        self.min_bytes: Final = min_bytes
        self.near: Final = near
        self.verbosity: Final = verbosity
        self.short_bodies_invalidate: Final = short_bodies_invalidate

    def emit(
        self,
        tool_call_id: str,
        tool_name: str,
        body: str,
        *,
        path: str | None = None,
        kind: ToolKind | None = None,
        invalidates: Iterable[str] = (),
    ) -> Emission:
        """Decide what to send for `body`; never more bytes than it has. `kind` is for names that do not tell."""
        be_text(body)
        be_names(invalidates)
        kind = ToolKind.from_tool_name(tool_name) if kind is None else kind
        file = None if path is None else path_hash(path)
        # First of all, and for a body of any size: the file has changed, whatever was printed.
        if kind is ToolKind.FILE_MUTATE and file is not None:
            self.cache.invalidate_file(file)
        data = utf8(body)
        hash = content_hash(data)
        emission = self._decide(hash, body, len(data), kind)
        if emission.kind in ("fresh", "near"):
            kept = None if self.near is None else body
            self.cache.insert_with_body(hash, tool_call_id, kind, file, kept, tool_name)
        if self.short_bodies_invalidate or emission.kind == "fresh":
            self.cache.invalidate_by_tool(invalidates)
        return emission

    def note_reference(self, tool_call_id: str) -> bool:
        """A hint to this call stands in a history read again: refresh it; False if forgotten."""
        return self.cache.touch(tool_call_id)

    def _decide(self, hash: bytes, body: str, size: int, kind: ToolKind) -> Emission:
        if size < self.min_bytes:
            return Emission(body, "short")
        fresh = Emission(body, "fresh")
        found = self.cache.check(hash)
        if isinstance(found, Hint):
            hint = render_reference_hint(found.reference_tool_call_id, self.verbosity, kind)
            reference = Emission(hint, "hint")
        elif self.near and (near := self.cache.find_near_ref(body, self.near)):
            reference = Emission(render_near_ref(*near), "near")
        else:
            return fresh
        return reference if len(utf8(reference.text)) < size else fresh
