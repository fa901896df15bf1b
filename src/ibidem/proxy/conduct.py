"""What an agent does in a conversation, counted as requests pass: tasks, files that it reads again, edits that fail.

Read from the history as the client has it, whatever was sent, so that it means the same whether requests are rewritten
or not. Only messages that are new are looked at, and no text is held: of a file, which lines were shown.

- A *turn* is something new that the user asks, or an agent of its helper. Texts in tags are the client's own.
- A file is *read again* where all lines that a call asks for were shown before, and no call wrote to the file since.
- An edit *failed* where the client says so of its result. Where a wire format has no word for that, none is counted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from .. import formats
from ..calls import file_of
from ..engine.journal import previous_length
from ..model import Message, Text, ToolCall, ToolResult
from ..strategies.revision.files import Touch, touches
from ..wire import Scanned

MAX_FILES, MAX_VIEWS, MAX_OPEN_CALLS = 1000, 50, 1000
"""Most that are held of a conversation: files, views of one of them, and calls that were not answered yet."""


class Conduct(NamedTuple):
    """Of one request: what happened since the one before it."""

    turns: int = 0
    rereads: int = 0
    edits: int = 0
    failed_edits: int = 0

    def plus(self, other: Conduct) -> Conduct:
        return Conduct(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _OpenCall(NamedTuple):
    touched: tuple[Touch, ...]
    edits: bool


class ConductReader:
    """Follows one conversation."""

    def __init__(self, format: str) -> None:
        self._dialect = formats.named(format)
        self._messages = 0
        self._asked = False
        """The user spoke since the model was last heard."""
        self._views: OrderedDict[str, list[Touch]] = OrderedDict()
        """By file: what was shown of it since it was last written to."""
        self._open: OrderedDict[str, _OpenCall] = OrderedDict()

    def read(self, scanned: Scanned) -> Conduct:
        """Of a request that goes on this conversation.

        What the model said before its last answer was counted with an earlier request, here or in another process.
        """
        length, read = len(scanned), self._dialect.read
        start = max(self._messages, previous_length(length, lambda index: read(index, scanned.value(index)).role))
        counted = Conduct()
        for index in range(self._messages, length):
            found = self._take(read(index, scanned.value(index)))
            counted = counted.plus(found) if index >= start else counted
        self._messages = length
        return counted if not counted.turns or _has_tools(scanned) else counted._replace(turns=0)

    def _take(self, message: Message) -> Conduct:
        found = Conduct()
        for part in message.parts:
            if isinstance(part, ToolCall):
                found = found.plus(self._call(part))
            elif isinstance(part, ToolResult):
                found = found.plus(self._result(part))
        if message.role == "assistant":
            self._asked = False
        elif not self._asked and _is_asked(message):
            self._asked = True
            found = found._replace(turns=1)
        return found

    def _call(self, call: ToolCall) -> Conduct:
        touched = touches(call)
        writes = any(touch.kind == "write" for touch in touched)
        if not touched:
            return Conduct()
        edits = writes and bool(file_of(call) or "patch" in call.name) and self._dialect.tells_failures
        self._open[call.id] = _OpenCall(touched, edits)
        if len(self._open) > MAX_OPEN_CALLS:
            self._open.popitem(last=False)
        return Conduct(rereads=int(not writes and any(map(self._stands, touched))))

    def _stands(self, touch: Touch) -> bool:
        return any(view.covers(touch) for view in self._views.get(touch.path, ()))

    def _result(self, result: ToolResult) -> Conduct:
        call = self._open.pop(result.call_id, None)
        if call is None:
            return Conduct()
        for touch in () if result.failed else call.touched:
            if touch.kind == "write":
                self._views.pop(touch.path, None)
            elif not self._stands(touch):
                self._show(touch)
        return Conduct(edits=int(call.edits), failed_edits=int(call.edits and result.failed))

    def _show(self, touch: Touch) -> None:
        views = self._views.setdefault(touch.path, [])
        views.append(touch)
        del views[:-MAX_VIEWS]
        self._views.move_to_end(touch.path)
        if len(self._views) > MAX_FILES:
            self._views.popitem(last=False)


def _is_asked(message: Message) -> bool:
    """Whether somebody says something of their own in it, beside results and what a client adds in tags."""
    if message.role != "user" or message.results:
        return False
    return any(isinstance(part, Text) and part.text.lstrip()[:1] not in ("", "<") for part in message.parts)


def _has_tools(scanned: Scanned) -> bool:
    """Without any, a client asks for a title or a summary on its own account."""
    raw = getattr(scanned.head, "raw", None)
    return bool(scanned.head.get("tools")) if raw is None else raw("tools").strip() not in (b"", b"[]", b"null")
