"""Lifespan of each edit: its first and last request, its removed tokens, and its tool and file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Message, Text, ToolCall, ToolResult
from ..plan import Edit
from .shared_arrival import CallTarget

NO_EDIT = Edit(strategy="", op="set", message=-1)
"""Placeholder for an edit, if texts are not stored: all edits with their texts are about as large as a log."""


class EditSpan(NamedTuple):
    """An edit in the requests from `first` to before `last`, counted through the session."""

    strategy: str
    asked: CallTarget
    tokens: float
    """Weighted tokens that the edit removes from each request, not scaled."""
    taken: float
    """Tokens that no earlier edit of the same text removed: a text can be encoded first, and evicted later."""
    hits: int
    """Number of hits; 0 if an earlier segment counted the edit, or its message belongs to another session."""
    first: int
    last: int
    edit: Edit
    """The edit with its texts and reason, or `NO_EDIT` if texts are not stored."""


class OpenEdit(NamedTuple):
    """An edit whose last request is not known yet."""

    first: int
    edit: Edit
    tokens: float


class _MessageCache:
    """Removed texts and counted edits of some messages. Messages are keyed by identity."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        """Messages of this session. Segments share the objects of common messages."""
        self.taken_out: dict[tuple[Any, ...], float] = {}
        self.counted: set[tuple[int, int]] = set()
        """Keys of both have hashes of texts, because the texts are large."""


class EditSpans:
    """The edits of a session. Each removed text counts once."""

    def __init__(self, texts: bool = True) -> None:
        """`texts`: store edits with their texts."""
        self.all: list[EditSpan] = []
        self._texts = texts
        self._shared = self._here = _MessageCache()

    def start_segment(self, messages: Iterable[Message], apart: bool = False) -> None:
        """Start a segment with its own messages. `apart`: no other segment shares them."""
        self._here = _MessageCache() if apart else self._shared
        self._here.own.update(map(id, messages))

    def add(self, span: OpenEdit, last: int, targets: Mapping[str, CallTarget], history: Sequence[Message]) -> None:
        """Add an edit that ends before request `last`."""
        first, edit, tokens = span
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        what = _call_target(message, edit, targets) if message else CallTarget()
        new_tokens, hits = self._count_once(edit, message, tokens)
        self.all.append(
            EditSpan(edit.strategy, what, tokens, new_tokens, hits, first, last, edit if self._texts else NO_EDIT)
        )

    def _count_once(self, edit: Edit, message: Message | None, tokens: float) -> tuple[float, int]:
        """Compute the tokens that an edit removes and no earlier edit did, and its new hits."""
        if message is not None and id(message) not in self._here.own:
            return 0.0, 0
        taken_out, counted_edits = self._here.taken_out, self._here.counted
        owner = id(message)
        if message is None:
            taken_out, counted_edits, owner = self._shared.taken_out, self._shared.counted, edit.message
        place = (owner, edit.path, hash(edit.added) if edit.op in ("before", "after") else 0)
        before = taken_out.get(place)
        taken_out[place] = tokens if before is None else max(before, tokens)
        edit_key = (owner, hash(edit_identity(edit)))
        hits = 0 if edit_key in counted_edits else edit.hits
        counted_edits.add(edit_key)
        return tokens if before is None else max(0.0, tokens - before), hits


def edit_identity(edit: Edit) -> tuple[Any, ...]:
    """Make a key that is equal for equal edits of several requests."""
    return (edit.strategy, edit.op, edit.message, edit.path, edit.added)


def _call_target(message: Message, edit: Edit, targets: Mapping[str, CallTarget]) -> CallTarget:
    """Find the tool and file of an edited result or call; empty for other texts."""
    for part in message.parts:
        if isinstance(part, ToolResult) and any(isinstance(s, Text) and s.path == edit.path for s in part.segments):
            return targets.get(part.call_id, CallTarget(part.name))
        if isinstance(part, ToolCall) and edit.path in (part.path, part.input_path):
            return targets.get(part.id, CallTarget(part.name))
    return CallTarget()
