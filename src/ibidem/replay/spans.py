"""From which request to which an edit was made, what it took out, and for which tool and file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..model import Message, Text, ToolCall, ToolResult
from ..plan import Edit
from .groundwork import CallTarget


class EditSpan(NamedTuple):
    """An edit, and the requests it was in: from `first` on and before `last`, counted through the session."""

    strategy: str
    asked: CallTarget
    tokens: float
    """Provider tokens that it takes out of each of them, before they are scaled."""
    taken: float
    """Of these, those that no earlier edit of the same text took out: a text may be folded, and let go later."""
    hits: int
    """None for an edit that was counted in an earlier segment, or made in a message of another session."""
    first: int
    last: int
    edit: Edit
    """Its texts, and why it was made."""


class SpanBegun(NamedTuple):
    """An edit that is made."""

    first: int
    edit: Edit
    tokens: float


class EditSpans:
    """The edits of a session, each text of which counts once."""

    def __init__(self, texts: bool = True) -> None:
        """`texts` if somebody asks for those of edits."""
        self.all: list[EditSpan] = []
        self._texts = texts
        self._own: set[int] = set()
        """Messages that are the session's own, by identity: segments share those that they have in common."""
        self._taken_out: dict[tuple[Any, ...], float] = {}
        self._counted: set[tuple[int, int]] = set()
        """Both go by hashes of texts: the texts themselves are large."""

    def owns(self, messages: Iterable[Message]) -> None:
        self._own.update(map(id, messages))

    def add(self, span: SpanBegun, last: int, asked: Mapping[str, CallTarget], history: Sequence[Message]) -> None:
        """An edit that is not made from a request on."""
        first, edit, tokens = span
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        what = _asked(message, edit, asked) if message else CallTarget()
        taken, hits = self._once_counted(edit, message, tokens)
        edit = edit if self._texts else replace(edit, removed=(), added="")
        self.all.append(EditSpan(edit.strategy, what, tokens, taken, hits, first, last, edit))

    def _once_counted(self, edit: Edit, message: Message | None, tokens: float) -> tuple[float, int]:
        """What an edit takes out that none before it did, and how often it hits."""
        if message is not None and id(message) not in self._own:
            return 0.0, 0
        owner = edit.message if message is None else id(message)
        place = (owner, edit.path, hash(edit.added) if edit.op in ("before", "after") else 0)
        before = self._taken_out.get(place)
        self._taken_out[place] = tokens if before is None else max(before, tokens)
        known = (owner, hash(identity(edit)))
        hits = 0 if known in self._counted else edit.hits
        self._counted.add(known)
        return tokens if before is None else max(0.0, tokens - before), hits


def identity(edit: Edit) -> tuple[Any, ...]:
    return (edit.strategy, edit.op, edit.message, edit.path, edit.added)


def _asked(message: Message, edit: Edit, asked: Mapping[str, CallTarget]) -> CallTarget:
    """What an edit of a result was for; for anything else, what was edited."""
    for part in message.parts:
        if isinstance(part, ToolResult) and any(isinstance(s, Text) and s.path == edit.path for s in part.segments):
            return asked.get(part.call_id, CallTarget(part.name))
        if isinstance(part, ToolCall) and edit.path in (part.path, part.input_path):
            return asked.get(part.id, CallTarget(part.name))
    return CallTarget()
