"""A conversation that grows: each call does the work for what is new, and gives what `compact` would give.

A session remembers what it has seen of a history: a fingerprint of every message, the state of the fold, and the edits
it made. A request that begins with the same messages costs their comparison and what comes after them. Any other
request (a fork, a rewind, a history that the client changed, another conversation) is worked on from the start. What
counts as the same is what the fold can see: a cache mark that moved does not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import engine, formats, profiles
from .arrival.said_once import Fold, SaidOnce
from .engine import Compacted
from .model import Message, Text, ToolCall, ToolResult
from .plan import Edit, Plan, Strategy
from .stats import Stats
from .wire import Change, Scanned, scan


class Session:
    """Thread-safe: calls are carried out one after the other."""

    def __init__(
        self,
        profile: str = "lossless",
        *,
        strategies: Sequence[Strategy] | None = None,
        format: str | None = None,
        model: str | None = None,
    ) -> None:
        self._strategies = tuple(profiles.named(profile) if strategies is None else strategies)
        self._format = format
        self._model = model
        self._lock = threading.Lock()
        self._seen: _Seen | None = None

    def compact(self, request: Any) -> Compacted:
        """As `ibidem.compact` with the session's settings."""
        with self._lock:
            if len(self._strategies) == 1 and isinstance(self._strategies[0], SaidOnce):
                scanned = scan(request)
                if scanned is not None:
                    return self._grow(scanned, self._strategies[0])
            return self._afresh(request)

    def _afresh(self, request: Any) -> Compacted:
        return engine.compact(request, strategies=self._strategies, format=self._format, model=self._model)

    def _grow(self, scanned: Scanned, strategy: SaidOnce) -> Compacted:
        sketch = scanned.sketch
        dialect = formats.named(self._format) if self._format else formats.detect(sketch)
        if isinstance(sketch, dict) and scanned.key != dialect.history_key:
            return self._afresh(scanned.given)
        head = {name: value for name, value in sketch.items() if name != scanned.key} if scanned.key else {}
        refers = not dialect.clears_history(head)
        seen = self._seen
        if seen is None or seen.dialect is not dialect or seen.fold.refers != refers or not seen.continues(scanned):
            seen = _Seen(dialect, Fold(strategy, refers))
        self._seen = None  # until all went well
        try:
            seen.take(scanned)
        except Exception:
            return self._afresh(scanned.given)
        self._seen = seen
        model = self._model or (head["model"] if isinstance(head.get("model"), str) else None)
        plan = Plan(tuple(edit for edits in seen.edits.values() for edit in edits))
        return Compacted(scanned.write(seen.changes), plan, Stats.of(plan, model), "", dialect.name)


class _Message(NamedTuple):
    fingerprint: int | None
    """Of the message as it came, if it came as text."""
    essence: int
    """Of what the fold can see of it."""


class _Seen:
    """What is known of a history."""

    def __init__(self, dialect: formats.Format, fold: Fold) -> None:
        self.dialect = dialect
        self.fold = fold
        self.messages: list[_Message] = []
        self.edits: dict[int, list[Edit]] = {}
        self.changes: dict[int, list[Change]] = {}

    def continues(self, scanned: Scanned) -> bool:
        """Whether the request begins with the messages seen so far."""
        if len(scanned) < len(self.messages):
            return False
        for index, known in enumerate(self.messages):
            fingerprint = scanned.fingerprint(index)
            if fingerprint is not None and fingerprint == known.fingerprint:
                continue
            if essence(self.dialect.read(index, scanned.value(index))) != known.essence:
                return False
            self.messages[index] = _Message(fingerprint, known.essence)
        return True

    def take(self, scanned: Scanned) -> None:
        """Work on what is new."""
        for index in range(len(self.messages), len(scanned)):
            message = self.dialect.read(index, scanned.value(index))
            edits = list(engine.admitted(message, self.fold.feed(message), self.fold.settings))
            if edits:
                self.edits[index] = edits
                self.changes[index] = [Change(edit.path, "set", edit.added) for edit in edits]
            self.messages.append(_Message(scanned.fingerprint(index), essence(message)))


def essence(message: Message) -> int:
    """A fingerprint of what a strategy can see of a message, and of where it stands in it."""
    seen: list[Any] = [message.role]
    for part in message.parts:
        if isinstance(part, ToolCall):
            seen.append((part.id, part.name, part.arguments, part.path))
        elif isinstance(part, ToolResult):
            seen.append((part.call_id, part.failed, part.path))
            seen.extend((seg.path, seg.text if isinstance(seg, Text) else seg.kind) for seg in part.segments)
        elif isinstance(part, Text):
            seen.append((part.path, part.text, part.bound))
        else:
            seen.append((type(part).__name__, part.path))
    return hash(tuple(seen))
