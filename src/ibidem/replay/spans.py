"""From which request to which an edit was made, what it took out, and for which tool and file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Message, Text, ToolCall, ToolResult
from ..plan import Edit
from .groundwork import CallTarget

NOT_KEPT = Edit(strategy="", op="set", message=-1)
"""In place of an edit: there are as many of them as calls, and with their texts they are about as large as a log."""


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
    """Its texts, and why it was made; `NOT_KEPT` where nobody asks for that."""


class SpanBegun(NamedTuple):
    """An edit that is made."""

    first: int
    edit: Edit
    tokens: float


class _Known:
    """What is known of some messages, by their identity."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        """Those that are the session's own: segments share those that they have in common."""
        self.taken_out: dict[tuple[Any, ...], float] = {}
        self.counted: set[tuple[int, int]] = set()
        """Both go by hashes of texts: the texts themselves are large."""


class EditSpans:
    """The edits of a session, each text of which counts once."""

    def __init__(self, texts: bool = True) -> None:
        """`texts` if somebody asks for those of edits."""
        self.all: list[EditSpan] = []
        self._texts = texts
        self._shared = self._here = _Known()

    def owns(self, messages: Iterable[Message], apart: bool = False) -> None:
        """A segment begins, with these messages of its own. `apart`: no other one has them."""
        self._here = _Known() if apart else self._shared
        self._here.own.update(map(id, messages))

    def add(self, span: SpanBegun, last: int, asked: Mapping[str, CallTarget], history: Sequence[Message]) -> None:
        """An edit that is not made from a request on."""
        first, edit, tokens = span
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        what = _asked(message, edit, asked) if message else CallTarget()
        taken, hits = self._once_counted(edit, message, tokens)
        self.all.append(
            EditSpan(edit.strategy, what, tokens, taken, hits, first, last, edit if self._texts else NOT_KEPT)
        )

    def _once_counted(self, edit: Edit, message: Message | None, tokens: float) -> tuple[float, int]:
        """What an edit takes out that none before it did, and how often it hits."""
        if message is not None and id(message) not in self._here.own:
            return 0.0, 0
        taken_out, counted = self._here.taken_out, self._here.counted
        owner = id(message)
        if message is None:
            taken_out, counted, owner = self._shared.taken_out, self._shared.counted, edit.message
        place = (owner, edit.path, hash(edit.added) if edit.op in ("before", "after") else 0)
        before = taken_out.get(place)
        taken_out[place] = tokens if before is None else max(before, tokens)
        known = (owner, hash(identity(edit)))
        hits = 0 if known in counted else edit.hits
        counted.add(known)
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
