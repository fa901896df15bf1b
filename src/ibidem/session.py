"""A conversation that grows: each call does the work for what is new, and gives what `compact` would give.

A session remembers what it has seen of a history: a fingerprint of every message, the state of the fold, and the edits
it made. A request that begins with the same messages costs their comparison and what comes after them. Any other
request (a fork, a rewind, a history that the client changed, another conversation) is worked on from the start. What
counts as the same is what the fold can see: a cache mark that moved does not matter.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from . import engine, formats, profiles
from .arrival.said_once import Fold, SaidOnce
from .engine import Compacted
from .keeping import conversation_key, keeper
from .model import Conversation, IbidemError, Message, Text, ToolCall, ToolResult
from .plan import Edit, Kind, Plan, Strategy
from .revision.look_back import Folding, LookBack
from .stats import Stats
from .timing import Economy, Moment
from .wire import Change, Scanned, scan
from .wire.scan import Written

if TYPE_CHECKING:
    from .store import Store


class Session:
    """Thread-safe: calls are carried out one after the other."""

    def __init__(
        self,
        profile: str = "lossless",
        *,
        strategies: Sequence[Strategy] | None = None,
        format: str | None = None,
        model: str | None = None,
        store: Store | None = None,
        state: bytes | None = None,
    ) -> None:
        """`store` keeps what is let go; the user's own if there is none. With `state`, go on where another was."""
        self._strategies = tuple(profiles.named(profile) if strategies is None else strategies)
        self._looking: LookingBack | None = None
        if len(self._strategies) == 1 and isinstance(self._strategies[0], LookBack):
            self._looking = LookingBack(self._strategies[0], store)
            self._looking.load(state)
        self._format = format
        self._model = model
        self._lock = threading.Lock()
        self._seen: _Seen | None = None

    def state(self) -> bytes:
        """What is known beside the history: enough for another session, anywhere, to go on in the same way."""
        with self._lock:
            return self._looking.state() if self._looking else b"{}"

    def compact(self, request: Any, *, idle: float | None = None, context: int | None = None) -> Compacted:
        """As `ibidem.compact` with the session's settings.

        For profiles that look back: `idle` is how many seconds ago the last answer came (the provider's cache may have
        forgotten it), `context` how many input tokens the provider counted for the request before.
        """
        with self._lock:
            if self._looking is not None:
                self._looking.moment = Moment(idle, context)
                strategies: tuple[Strategy, ...] = (self._looking,)
                return engine.compact(request, strategies=strategies, format=self._format, model=self._model)
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
        return Compacted(scanned.write(seen.changes, seen.written), plan, Stats.of(plan, model), "", dialect.name)


class LookingBack:
    """A strategy that remembers the requests of one conversation, and goes on from them."""

    name: ClassVar[str] = LookBack.name
    labels: ClassVar[tuple[str, ...]] = LookBack.labels
    touches: ClassVar[frozenset[Kind]] = LookBack.touches

    def __init__(self, settings: LookBack, store: Store | None) -> None:
        self.moment = Moment()
        self._settings = settings
        self._store = settings.store or store
        self._moments: dict[int, Moment] = {}
        self._messages: list[int] = []
        self._folding: Folding | None = None

    def settled(self, economy: Economy, store: Store) -> LookingBack:
        """What the engine knows of the provider, and where it would keep things."""
        self._settings = replace(self._settings, economy=self._settings.economy or economy)
        self._store = self._store or store
        return self

    def plan(self, conv: Conversation) -> Plan:
        messages = [essence(message) for message in conv.messages]
        common = next(
            (place for place, (old, new) in enumerate(zip(self._messages, messages, strict=False)) if old != new),
            min(len(self._messages), len(messages)),
        )
        folding = self._folding
        if folding is None or common < len(self._messages):  # begun, or the client changed its history
            if self._messages:
                self._moments = {length: each for length, each in self._moments.items() if length <= common}
            keep = keeper(self._store, conversation_key(conv.messages)) if self._store else None
            folding = Folding(self._settings, not conv.dialect.clears_history(conv.head), keep)
        self._folding = None  # until all went well
        self._moments.setdefault(len(messages), self.moment)
        plan = folding.through(conv.messages, self._moments)
        if folding.refused:
            self._moments[len(messages)] = self._moments[len(messages)]._replace(refused=True)
        self._folding, self._messages = folding, messages
        return plan

    def state(self) -> bytes:
        moments = [[length, *moment] for length, moment in sorted(self._moments.items())]
        return json.dumps({"version": 1, "moments": moments}).encode()

    def load(self, state: bytes | None) -> None:
        if state is None:
            return
        try:
            found = json.loads(state)
            self._moments = {int(length): Moment(*rest) for length, *rest in found.get("moments", [])}
        except (ValueError, TypeError, AttributeError) as error:
            raise IbidemError(f"this is no state of a session ({error}): begin without one") from None


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
        self.written: Written = {}

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
