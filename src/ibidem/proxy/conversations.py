"""Which conversation a request belongs to, read off the request itself.

A conversation is known by its first messages (and by what the client calls it, if it says); it goes on in a request
that begins with everything it has said so far. A request that shares only its beginning is a branch of its own: a fork,
a rewind, a sub-agent, another run of the same prompt. So two conversations never mix, and what is remembered of one is
a matter of speed alone: `lossless` decides from the request, and what other profiles need beside it is in the store.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple

from .. import formats
from ..engine.incremental import SentPrefix
from ..engine.marking import CacheSettings
from ..engine.pipeline import Compacted
from ..engine.session import Session
from ..model import IbidemError, Message
from ..store import MemoryStore, Store
from ..store.naming import conversation_key, words_of
from ..strategies import profiles
from ..wire import Scanned
from .conversation import Deviation, Key, LiveConversation, goes_on
from .opening import opened, title
from .switch import Switch

log = logging.getLogger("ibidem")

Weigh = Callable[[int], None]

OpeningHint = tuple[Key, int]
"""The key of a conversation, and what a request begins with."""

HINT_BYTES = 2048
"""Bytes that the requests of a conversation usually begin with alike."""

MAX_CANDIDATES = 4
"""Conversations with such a beginning that are tried before a request is looked at closely."""

TEXT, PER_MESSAGE, PER_CONVERSATION, PER_NOTE = 2, 700, 6000, 600
"""Bytes that a conversation takes in memory, as measured: by bytes of its last request, by message, at least, and by
note: those of all runs of the same prompt are in each of them."""


class Found(NamedTuple):
    """What a request goes on."""

    conversation: LiveConversation
    scanned: Scanned
    turn: int
    """Of the conversation, when it was found."""


class _Opening(NamedTuple):
    """A request that is looked at for the first time."""

    key: Key
    body: bytes
    scanned: Scanned
    messages: list[Message]
    """Up to the user's first."""
    name: str
    """That its conversation has in the store."""
    alike: list[LiveConversation]
    """Those of that name, the newest first."""


class _NothingKept(MemoryStore):
    """For requests that go out as they came: no marker points at a text of theirs, so none is kept."""

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        pass


class Conversations:
    """Those that are in use. Safe to use from several threads."""

    def __init__(
        self,
        profile: str,
        store: Store,
        most: int,
        most_bytes: int,
        observe: bool = False,
        cache: CacheSettings | None = None,
    ) -> None:
        self._profile = profile
        self._cache = cache or CacheSettings()
        self._store = store
        self._originals = _NothingKept() if observe else store
        self._most = most
        self._most_bytes = most_bytes
        self._all: OrderedDict[str, LiveConversation] = OrderedDict()
        """The least recently used first."""
        self._by_hint = _Index()
        self._by_name = _Index()
        self._lock = threading.Lock()
        self._made = 0
        self._switch = Switch()
        self.held = 0
        """Bytes that all of them take in memory, about."""
        self._strategies = profiles.named(profile)
        self.revises = not all(each.final for each in self._strategies)
        self.remembers = self.revises or bool(self._cache)
        """Whether it matters when requests came, and what their provider counted."""
        self.asks_to_keep = bool(self._cache)
        """Whether requests may be sent with other marks or lifetimes than their client's."""

    def __len__(self) -> int:
        return len(self._all)

    def find(self, key: Key, body: bytes, weigh: Weigh = lambda _: None) -> Found | None:
        """The conversation that a request goes on; None for one that is new. `Unreadable` for what is none.

        `weigh` is told from where on it is new to the byte, before that is read, and may raise.
        """
        return self._hinted(key, body, weigh) or self._longest(self._opening(key, body))

    def find_or_begin(self, key: Key, body: bytes, weigh: Weigh = lambda _: None) -> Found:
        """The conversation that a request goes on, or one of its own."""
        found = self._hinted(key, body, weigh)
        if found is not None:
            return found
        opening = self._opening(key, body)
        return self._longest(opening) or self._begin(opening)

    def _hinted(self, key: Key, body: bytes, weigh: Weigh) -> Found | None:
        """By its first bytes, of which none is read that is known."""
        start = 0
        for each in self._candidates(self._by_hint, _hint(key, body))[:MAX_CANDIDATES]:
            turn, last = each.turns, each.last
            again = last.rescan(body) if last is not None else None
            start = max(start, again.start if again is not None else 0)
            if again is not None and goes_on(last, again):
                weigh(again.start)
                return Found(each, again, turn)
        weigh(start)
        return None

    def _opening(self, key: Key, body: bytes) -> _Opening:
        scanned, messages = opened(key[0], body)
        whole = "\0".join((*key, self._profile, conversation_key(words_of(messages))))
        name = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return _Opening(key, body, scanned, messages, name, self._candidates(self._by_name, name))

    def _longest(self, opening: _Opening) -> Found | None:
        """By its messages."""
        scanned = opening.scanned
        alike = ((each, each.turns) for each in opening.alike)
        found = [Found(each, scanned, turn) for each, turn in alike if turn and goes_on(each.last, scanned)]
        return max(found, key=lambda one: one.conversation.messages, default=None)

    def current(self, found: Found, body: bytes) -> Found | None:
        """What was found, after others worked on it; None if it went another way. Under the conversation's lock."""
        conversation = found.conversation
        if conversation.turns == found.turn:
            return found
        last = conversation.last
        scanned = (last.rescan(body) if last is not None else None) or found.scanned
        return Found(conversation, scanned, conversation.turns) if goes_on(last, scanned) else None

    def _begin(self, opening: _Opening) -> Found:
        key, scanned, messages = opening.key, opening.scanned, opening.messages
        state = self._remembered(opening.name, begins=len(scanned) == len(messages))
        session = self._session(key[0], state, self._cache)
        alike = [(last.shared(scanned), each) for each in opening.alike if (last := each.last) is not None]
        shared, nearest = max(alike, key=lambda one: one[0], default=(0, None))
        last, hint = SentPrefix.unwritten(formats.named(key[0]), scanned), _hint(key, opening.body)
        goes_off = nearest is not None and nearest.off and shared > len(messages)
        with self._lock:
            self._made += 1
            found = LiveConversation(
                f"c{self._made}",
                key,
                opening.name,
                session,
                title(messages),
                parent=nearest.id if nearest is not None else "",
                hint=hint,
                messages=shared,
                held=PER_CONVERSATION,
                saved=state,
                last=last,
                sent=nearest.sent if nearest is not None else None,
                off=self._switch.begins_off(opening.name, len(scanned) > len(messages), goes_off),
            )
            self.held += found.held
            self._all[found.id] = found
            self._by_name.add(found.name, found)
            self._by_hint.add(hint, found)
            self._let_go()
        return Found(found, scanned, 0)

    def _remembered(self, name: str, begins: bool) -> bytes | None:
        """What the store knows of a conversation. Those who can do without do, if it cannot be asked."""
        if self.revises:
            return self._store.load(name)
        try:
            return None if begins and not self._cache else self._store.load(name)
        except Exception as error:
            log.debug("a conversation goes on without what may be known of it: %s", type(error).__name__)
            return None

    def alike(self, key: Key, body: bytes, closely: bool) -> Iterator[list[LiveConversation]]:
        """Conversations that a request may go on, the likeliest first; unless `closely`, without reading any of it.

        Many may begin alike, as all of one agent do, so none of them is left out: who asks stops when one fits.
        """
        hinted = self._candidates(self._by_hint, _hint(key, body))
        yield hinted[:MAX_CANDIDATES]
        yield [*hinted[MAX_CANDIDATES:], *(self._opening(key, body).alike if closely else ())]

    def _candidates(self, index: _Index, name: Hashable) -> list[LiveConversation]:
        with self._lock:
            return index.newest(name)

    def _session(self, format: str, state: bytes | None, cache: CacheSettings, model: str = "") -> Session:
        session = Session(
            strategies=self._strategies,
            format=format,
            model=model or None,
            store=self._originals,
            cache=cache.mode,
            pauses=cache.pauses,
        )
        _learn(session, state)
        return session

    def preview(self, format: str, found: Found | None, body: bytes, at: float, model: str = "") -> Compacted:
        """What would be sent, without a trace. Nothing is kept of what is only counted: it has no marks of ours."""
        state = found.conversation.session.state() if found else None
        return self._session(format, state, CacheSettings(), model).compact(body, at=at)

    def rewrite(self, found: Found, at: float) -> Compacted:
        """The request as it is to be sent. Under the conversation's lock."""
        conversation, scanned = found.conversation, found.scanned
        if self.remembers or conversation.went_elsewhere(scanned):
            self._learn(conversation)
        try:
            return conversation.rewrite(scanned, at)
        finally:
            self._used(conversation, scanned)

    def settle(self, conversation: LiveConversation) -> None:
        """Its session learns of what was sent otherwise than planned. Under the conversation's lock."""
        scanned = conversation.settle()
        if scanned is not None:
            self._used(conversation, scanned)

    def adopt(self, deviation: Deviation) -> LiveConversation:
        """The conversation of a request that was sent before that was known."""
        found = self.find_or_begin(deviation.key, deviation.body).conversation
        found.deviate(deviation)
        return found

    def replay(self, conversation: LiveConversation, body: bytes, since: int) -> SentPrefix | None:
        """How a request is sent with its messages from `since` on as they came. Without a trace, a lock or a store."""
        model, store = conversation.session.model, _NothingKept()
        session = Session(strategies=self._strategies, format=conversation.key[0], model=model, store=store)
        _learn(session, conversation.saved)
        session.sent_otherwise(body, since)
        return session.sent_prefix

    # ── off, and on again ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def all_off(self) -> bool:
        """Whether those to come are off."""
        return self._switch.all_off

    @property
    def off(self) -> list[str]:
        with self._lock:
            return [each.id for each in self._all.values() if each.off]

    def turn(self, id: str, off: bool) -> list[str]:
        """Switch one off or on, by its id or the beginning of that. Returns all that fit: if several, none was."""
        with self._lock:
            alike = [id] if id in self._all else [each for each in self._all if each.startswith(id)]
            if len(alike) == 1:
                self._all[alike[0]].off = off
            return alike

    def turn_all(self, off: bool) -> list[str]:
        """Switch all of them off or on, and those to come. Returns those that are in use."""
        with self._lock:
            self._switch.turn_all(off)
            for each in self._all.values():
                each.off = off
            return list(self._all)

    def _learn(self, conversation: LiveConversation) -> None:
        """What other replicas came to know since."""
        state = self._remembered(conversation.name, begins=False)
        if state is not None and state != conversation.saved:
            _learn(conversation.session, state)
            conversation.saved = state

    def save(self, conversation: LiveConversation) -> None:
        """What is to be remembered is in the store when this returns. Under the conversation's lock.

        A profile that decides from the request alone has something to remember only after a mishap.
        """
        if not self.remembers and not conversation.session.unusual:
            return
        state = conversation.session.state()
        if state == conversation.saved:
            return
        try:
            self._store.save(conversation.name, state, ())
        except Exception as error:
            if self.revises:
                raise
            log.warning("what happened to a conversation is known here alone: %s", type(error).__name__)
        conversation.saved = state

    def _used(self, found: LiveConversation, scanned: Scanned) -> None:
        """It is the one that was used last, with this request."""
        held = PER_CONVERSATION + PER_MESSAGE * len(scanned) + TEXT * len(scanned.given)
        held += PER_NOTE * found.session.notes
        hint = _hint(found.key, scanned.given)
        with self._lock:
            if found.id not in self._all:  # it was let go meanwhile: so be it
                return
            self.held += held - found.held
            found.held = held
            self._all.move_to_end(found.id)
            self._by_name.add(found.name, found)
            if found.hint is not None and found.hint != hint:
                self._by_hint.drop(found.hint, found)
            found.hint = hint
            self._by_hint.add(hint, found)
            self._let_go()

    def _let_go(self) -> None:
        """Those that were not used for longest, until the others fit. Never the last."""
        while len(self._all) > 1 and (len(self._all) > self._most or self.held > self._most_bytes):
            gone = self._all.popitem(last=False)[1]
            self._switch.let_go(gone.name, gone.off)
            self.held -= gone.held
            self._by_name.drop(gone.name, gone)
            if gone.hint is not None:
                self._by_hint.drop(gone.hint, gone)


class _Index:
    """Conversations by something that they share."""

    def __init__(self) -> None:
        self._found: dict[Hashable, OrderedDict[str, LiveConversation]] = {}

    def newest(self, name: Hashable) -> list[LiveConversation]:
        """Those that were added last come first."""
        return list(reversed(self._found.get(name, {}).values()))

    def add(self, name: Hashable, conversation: LiveConversation) -> None:
        known = self._found.setdefault(name, OrderedDict())
        known[conversation.id] = conversation
        known.move_to_end(conversation.id)

    def drop(self, name: Hashable, conversation: LiveConversation) -> None:
        known = self._found[name]
        known.pop(conversation.id, None)
        if not known:
            del self._found[name]


def _learn(session: Session, state: bytes | None) -> None:
    """What is no state, or one of another version, is nothing to go on with: it is begun without."""
    if state is not None:
        try:
            session.learn(state)
        except IbidemError as error:
            log.warning("a conversation begins without what was known of it: %s", error)


def _hint(key: Key, body: bytes) -> OpeningHint:
    return key, hash(body[:HINT_BYTES])
