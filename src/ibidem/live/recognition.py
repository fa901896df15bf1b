"""Which conversation a request belongs to, decided from the request itself.

A conversation is recognized by its first messages, and by the client's name for it if there is one. A request continues
it if it starts with all messages of its last request. A request that shares only the first messages is a separate
branch: a fork, a rewind, a subagent, another run of the same prompt. So two conversations never mix. Memory only saves
time: `lossless` decides from the request alone, and the facts that other profiles also need are in the store.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple

from .. import formats
from ..engine.incremental import SentPrefix
from ..engine.marking import CacheSettings
from ..engine.notebook import Notebook
from ..engine.pipeline import Compacted
from ..engine.session import Session
from ..errors import IbidemError
from ..model import Message, Text
from ..store import Store
from ..store.guarded import GuardedStore
from ..store.naming import Opening, conversation_key, words_of
from ..wire import Scanned, scan
from ..wire.scan import LastRequest, scan_tolerantly
from ..wire.text import parse
from .conversation import NOTHING_SENT, Deviation, Key, LiveConversation, SentRequest, goes_on
from .policy import Experiment, Manner, Manners, NothingKept, OnlyStored, Pause, PauseLog, Switch
from .types import SingleMessage, Unreadable

log = logging.getLogger("ibidem")

TITLE_LENGTH = 80


def opened(format: str, body: bytes) -> tuple[Scanned, list[Message]]:
    """Parse a request. Return it with its messages before the first response of the model."""
    found = scan(body) or scan_tolerantly(body)
    if found is None:
        raise SingleMessage if _is_single(format, body) else Unreadable("the request has no history")
    return found, list(_beginning(format, found))


def detected(body: bytes, model: str = "") -> str:
    """Detect the format of a request. Raises `UnreadableRequest` if no format fits, or several do."""
    try:
        return formats.detect(parse(body), model or None).name
    except formats.Ambiguous as error:
        choices = " or ".join(each.name for each in error.candidates)
        raise Unreadable(f"the request fits more than one format: name one of them ({choices})") from None
    except formats.FormatError:
        raise Unreadable("the request has no conversation") from None
    except IbidemError:
        raise Unreadable("the request cannot be read") from None


def _is_single(format: str, body: bytes) -> bool:
    try:
        value = parse(body)
    except IbidemError:
        return False
    return isinstance(value, dict) and isinstance(value.get(formats.named(format).history_key), str | dict)


def _beginning(format: str, scanned: Scanned) -> Iterator[Message]:
    """Yield the messages before the model's first response. They identify the conversation."""
    dialect, opening = formats.named(format), Opening()
    for index in range(len(scanned)):
        message = dialect.read(index, scanned.value(index))
        opening.read(message)
        if opening.ended:
            return
        yield message


def title(messages: list[Message]) -> str:
    """Return the user's first words. Texts that start with a tag are a client's own and are skipped."""
    said = [message for message in messages if message.role == "user"] or messages[-1:]
    texts = [part.text.strip() for message in said for part in message.parts if isinstance(part, Text)]
    own = [text for text in texts if not text.startswith("<")]
    first = " ".join((own or texts or [""])[-1 if own else 0].split())
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1] + "…"


class Found(NamedTuple):
    """A conversation and the request that continues it."""

    conversation: LiveConversation
    scanned: Scanned
    turn: int
    """The conversation's `version` when it was found."""


class OpenedRequest(NamedTuple):
    """A request that is seen for the first time."""

    key: Key
    body: bytes
    scanned: Scanned
    messages: list[Message]
    """Messages before the model's first response."""
    name: str
    """Name of its conversation in the store."""
    alike: list[LiveConversation]
    """Conversations in memory with that name, the newest first."""


OpeningHint = tuple[Key, int]
"""The key of a conversation and a hash of its requests' first bytes."""

HINT_BYTES = 2048
"""First bytes that requests of one conversation usually share."""


def hint_of(key: Key, body: bytes) -> OpeningHint:
    return key, hash(body[:HINT_BYTES])


class ConversationIndex:
    """Conversations by name or hint. Used under the lock of `Conversations`."""

    def __init__(self) -> None:
        self._found: dict[Hashable, OrderedDict[str, LiveConversation]] = {}

    def newest(self, name: Hashable, most: int | None = None) -> list[LiveConversation]:
        """Return up to `most` conversations with this name, the newest first."""
        found = self._found.get(name)
        return [] if found is None else [*islice(reversed(found.values()), most)]

    def add(self, name: Hashable, conversation: LiveConversation) -> None:
        known = self._found.setdefault(name, OrderedDict())
        known[conversation.id] = conversation
        known.move_to_end(conversation.id)

    def drop(self, name: Hashable, conversation: LiveConversation) -> None:
        known = self._found[name]
        known.pop(conversation.id, None)
        if not known:
            del self._found[name]


class RecentBodies:
    """The last request bodies of conversations, within a memory limit. Without a body, hashes of its messages are
    compared.

    Used under the lock of `Conversations`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[str, LastRequest] = OrderedDict()
        """Last requests by conversation id."""
        self.size = 0
        """Total size of the stored bodies."""

    def last(self, conversation: LiveConversation) -> LastRequest | None:
        """Return the last request of a conversation; None if it is not stored."""
        return self._found.get(conversation.id)

    def put(self, conversation: LiveConversation, scanned: Scanned) -> None:
        """Store the last request of a conversation, and evict the oldest others."""
        self.drop(conversation)
        last = scanned.last()
        if last is None or last.size > self._most:
            return
        self._found[conversation.id] = last
        self.size += last.size
        while self.size > self._most:
            self.size -= self._found.popitem(last=False)[1].size

    def drop(self, conversation: LiveConversation) -> None:
        gone = self._found.pop(conversation.id, None)
        self.size -= gone.size if gone is not None else 0


Weigh = Callable[[int], None]

LOOKUPS = ("warm", "store", "cold", "new")

QUICK_SECONDS, BACKGROUND_SECONDS = 0.05, 1.0
"""Seconds that a request waits for the store if its profile can continue without it, and that journal entries of a
response wait: they delay the next request of the conversation."""

MAX_CANDIDATES = 4
"""Conversations with the same first bytes that are tried before a request is parsed."""

MAX_WARM_MESSAGES = 1000
"""Longest conversation that is continued in the event loop. Comparing each message takes time."""

RECENT_BYTES, RECENT_SHARE = 2**24, 0.25
"""Bytes of last requests that are stored, at most, and the share of the memory setting that they may use."""

GONE_BYTES = 2**25
"""Evicted bytes after which free memory is returned to the system."""

PER_MESSAGE, PER_CONVERSATION, PER_NOTE = 400, 14_000, 600
"""Measured bytes in memory in addition to the texts: per message (a minimum), per conversation, and per journal entry.
All runs of the same prompt share one journal, so each of them has the entries of all."""


class Conversations:
    """The conversations in memory. Safe to use from several threads."""

    def __init__(
        self,
        profile: str,
        store: Store,
        most: int,
        most_bytes: int,
        observe: bool = False,
        cache: CacheSettings | None = None,
        prefix: str = "",
        experiment: Experiment | None = None,
        give_back: Callable[[], object] = lambda: None,
    ) -> None:
        """Create an empty set. Ids start with `prefix`. An `experiment` may have some conversations only measured.

        `give_back` is called after much memory was freed.
        """
        self._prefix = prefix
        self._give_back = give_back
        self._store = store if isinstance(store, GuardedStore) else GuardedStore(store, on_change=log.info)
        self._originals = NothingKept() if observe else self._store
        self._most = most
        self._most_bytes = most_bytes
        self._all: OrderedDict[str, LiveConversation] = OrderedDict()
        """The least recently used first."""
        self._by_hint = ConversationIndex()
        self._by_name = ConversationIndex()
        self._recent = RecentBodies(min(RECENT_BYTES, int(RECENT_SHARE * most_bytes)))
        self._lock = threading.Lock()
        self._made = 0
        self._switch = Switch()
        self._pauses = PauseLog(self._store, self._apply)
        self.switched: Callable[[LiveConversation], None] = lambda _: None
        """Called in the current thread when a request pauses or resumes its conversation."""
        self._lookups: Counter[str] = Counter()
        self.held = 0
        """Estimated bytes of all conversations."""
        self._gone = 0
        """Bytes that were evicted since memory was last returned to the system."""
        self._manners = Manners(Manner(profile, cache or CacheSettings()), experiment)
        self.revises, self.remembers = self._manners.usual.revises, self._manners.usual.remembers
        self.asks_to_keep = self._manners.usual.asks_to_keep
        """Properties of the default `RewritePolicy`, for requests that do not select a profile."""

    def __len__(self) -> int:
        return len(self._all)

    def has(self, conversation: LiveConversation) -> bool:
        """Return True if the conversation is in memory here."""
        return self._all.get(conversation.id) is conversation

    def find(self, key: Key, body: bytes, weigh: Weigh = lambda _: None) -> Found | None:
        """Find the conversation that a request continues; None for a new one. Raises `UnreadableRequest`.

        `weigh` gets the offset of the first new byte before the new part is parsed. It may raise.
        """
        return self._hinted(key, body, weigh) or self._longest(self._opening(key, body))

    def find_or_begin(self, key: Key, body: bytes, weigh: Weigh = lambda _: None) -> Found:
        """Find the conversation that a request continues, or create one."""
        found = self._hinted(key, body, weigh)
        if found is None:
            opening = self._opening(key, body)
            found = self._longest(opening)
            if found is None:
                return self._begin(opening)
        self.count_warm()
        return found

    def count_warm(self) -> None:
        """Count a request that continues a conversation in memory."""
        with self._lock:
            self._lookups["warm"] += 1

    def _hinted(self, key: Key, body: bytes, weigh: Weigh) -> Found | None:
        """Find a conversation by the request's first bytes. The part that is known is not parsed again."""
        start = 0
        for each in self._candidates(self._by_hint, hint_of(key, body), MAX_CANDIDATES):
            turn, last = each.turns, each.last
            again = last.rescan(body, self._recent.last(each)) if last is not None else None
            start = max(start, again.start if again is not None else 0)
            if again is not None and goes_on(last, again):
                weigh(again.start)
                return Found(each, again, turn)
        weigh(start)
        return None

    def warm(self, key: Key, body: bytes, most: int) -> Found | None:
        """Find a conversation that can be continued in the event loop; None if anything could take long.

        The request has at most `most` new bytes, and neither a store call nor code of other packages is needed.
        """
        if not self._manners.of(key).quick:
            return None
        for each in self._candidates(self._by_hint, hint_of(key, body), MAX_CANDIDATES):
            turn, last = each.turns, each.last
            known = last.known if last is not None else None
            if last is None or known is None:
                continue
            if len(body) - known.spans[-1][1] > most or len(known.spans) > MAX_WARM_MESSAGES:
                return None
            again = last.rescan(body, self._recent.last(each))
            if again is not None and goes_on(last, again):
                near = len(body) - again.start <= most
                return Found(each, again, turn) if near and each.goes_on_as_ever(again) else None
        return None

    def _opening(self, key: Key, body: bytes) -> OpenedRequest:
        scanned, messages = opened(key[0], body)
        whole = "\0".join((*key, self._manners.of(key).profile, conversation_key(words_of(messages))))
        name = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return OpenedRequest(key, body, scanned, messages, name, self._candidates(self._by_name, name))

    def _longest(self, opening: OpenedRequest) -> Found | None:
        """Find the conversation with the most messages whose last request this one starts with."""
        scanned = opening.scanned
        alike = ((each, each.turns) for each in opening.alike)
        found = [Found(each, scanned, turn) for each, turn in alike if turn and goes_on(each.last, scanned)]
        return max(found, key=lambda one: one.conversation.messages, default=None)

    def current(self, found: Found, body: bytes) -> Found | None:
        """Return the match after other threads changed its conversation; None if the request does not continue it any
        more.

        Call under the conversation's lock.
        """
        conversation = found.conversation
        if conversation.turns == found.turn:
            return found
        last = conversation.last
        scanned = (last.rescan(body) if last is not None else None) or found.scanned
        return Found(conversation, scanned, conversation.turns) if goes_on(last, scanned) else None

    def _begin(self, opening: OpenedRequest) -> Found:
        key, scanned, messages = opening.key, opening.scanned, opening.messages
        assignment = self._manners.assign(key, opening.name)
        manner = self._manners.of(key, assignment)
        session = self._session(key[0], manner)
        notebook = None if manner.measured else Notebook(session, self._store, opening.name)
        if notebook is not None:
            self._read(notebook, manner, begins=len(scanned) == len(messages))
        alike = [(last.shared(scanned), each) for each in opening.alike if (last := each.last) is not None]
        shared, nearest = max(alike, key=lambda one: one[0], default=(0, None))
        last, hint = SentPrefix.unwritten(formats.named(key[0]), scanned), hint_of(key, opening.body)
        goes_off = nearest is not None and nearest.off and shared > len(messages)
        with self._lock:
            self._made += 1
            found = LiveConversation(
                f"{self._prefix}c{self._made}",
                key,
                opening.name,
                session,
                title(messages),
                parent=nearest.id if nearest is not None else "",
                hint=hint,
                messages=shared,
                held=PER_CONVERSATION,
                notebook=notebook,
                last=last,
                history=nearest.history if nearest is not None else NOTHING_SENT,
                elsewhere=self._switch.is_elsewhere(opening.name),
                off=self._switch.begins_off(opening.name, len(scanned) > len(messages), goes_off),
                assignment=assignment,
            )
            self._lookups["store" if notebook else "new" if len(scanned) == len(messages) else "cold"] += 1
            self.held += found.held
            self._all[found.id] = found
            self._by_name.add(found.name, found)
            self._by_hint.add(hint, found)
            self._let_go()
        return Found(found, scanned, 0)

    def _read(self, notebook: Notebook, manner: Manner, begins: bool = False) -> None:
        """Read the journal of a conversation. Policies that can continue without it ignore an unavailable store."""
        if manner.revises:
            notebook.read()
        elif manner.asks_to_keep or not begins:
            self._read_quickly(notebook)

    def _read_quickly(self, notebook: Notebook) -> None:
        """Read the journal if the store responds soon. Without it a request may be rejected once, and is sent again."""
        try:
            with self._store.until(QUICK_SECONDS):
                notebook.read()
        except Exception as error:
            log.debug("a conversation continues without its notes: %s", type(error).__name__)

    def catch_up(self, found: Found) -> None:
        """Read the journal of a conversation that continued on another replica. Call under the conversation's lock."""
        notebook = found.conversation.notebook
        if notebook is not None and found.conversation.went_elsewhere(found.scanned):
            self._read_quickly(notebook)

    def reread(self, conversation: LiveConversation) -> None:
        """Read the notes of a conversation again, if that is soon done: another replica may have added some."""
        if conversation.notebook is not None and conversation.lock.acquire(timeout=QUICK_SECONDS):
            try:
                self._read_quickly(conversation.notebook)
            finally:
                conversation.lock.release()

    def until(self, seconds: float) -> AbstractContextManager[None]:
        """Set the deadline for calls of the store."""
        return self._store.until(seconds)

    def alike(self, key: Key, body: bytes, closely: bool) -> Iterator[list[LiveConversation]]:
        """Yield conversations that a request may continue, the likeliest first. Unless `closely`, do not parse the
        request.

        All conversations of one agent may start with the same bytes, so none is left out. The caller stops at the first
        that fits.
        """
        hinted = self._candidates(self._by_hint, hint_of(key, body))
        yield hinted[:MAX_CANDIDATES]
        yield [*hinted[MAX_CANDIDATES:], *(self._opening(key, body).alike if closely else ())]

    def _candidates(self, index: ConversationIndex, name: Hashable, most: int | None = None) -> list[LiveConversation]:
        with self._lock:
            return index.newest(name, most)

    def _session(self, format: str, manner: Manner, model: str = "", state: bytes | None = None) -> Session:
        found = Session(
            strategies=manner.strategies,
            format=format,
            model=model or None,
            store=NothingKept() if manner.measured else self._originals,
            cache=manner.cache.mode,
            pauses=manner.cache.pauses,
            state=state,
        )
        found.sees_responses = manner.sees_responses
        return found

    def preview(self, format: str, found: Found | None, body: bytes, at: float, model: str = "") -> Compacted:
        """Return the request that would be sent, without side effects and without cache breakpoints of ours."""
        state = found.conversation.session.state() if found else None
        return self._session(format, self._manners.usual.unmarked, model, state).compact(body, at=at)

    def measures(self, key: Key, found: Found | None, body: bytes) -> bool:
        """Return True if an experiment sends the request's conversation unchanged and only measures it."""
        if found is not None:
            return found.conversation.measured
        if self._manners.experiment is None:
            return False
        assignment = self._manners.assign(key, self._opening(key, body).name)
        return assignment is not None and assignment.measured

    def rewrite(self, found: Found, at: float) -> Compacted:
        """Return the request to send. Call under the conversation's lock."""
        conversation, scanned = found.conversation, found.scanned
        notebook, manner = conversation.notebook, self._manners.of(conversation.key)
        if notebook is not None and (manner.remembers or conversation.went_elsewhere(scanned)):
            self._read(notebook, manner)
        try:
            return conversation.rewrite(scanned, at)
        finally:
            self._used(conversation, scanned)

    def settle(self, conversation: LiveConversation) -> None:
        """Inform the session of requests that were not sent as planned. Call under the conversation's lock."""
        scanned = conversation.settle()
        if scanned is not None:
            self._used(conversation, scanned)

    def adopt(self, sent: SentRequest | None, deviation: Deviation) -> LiveConversation:
        """Return the conversation of a request that was sent and accepted before its conversation was known."""
        found = self.find_or_begin(deviation.key, deviation.body).conversation
        found.accept(sent, deviation)
        return found

    def revises_in(self, conversation: LiveConversation) -> bool:
        """Return True if the conversation's strategies may change text that was already sent."""
        return self._manners.of(conversation.key).revises

    def replay(self, conversation: LiveConversation, body: bytes, since: int) -> SentPrefix | None:
        """Reconstruct how a request is sent with its messages from `since` on unchanged. Takes no lock."""
        model, store = conversation.session.model, OnlyStored(self._store, QUICK_SECONDS)
        strategies = self._manners.of(conversation.key).strategies
        session = Session(strategies=strategies, format=conversation.key[0], model=model, store=store)
        if conversation.notebook is not None:
            conversation.notebook.tell(session)
        session.sent_otherwise(body, since)
        # A paused conversation is not rewritten, so this is where it learns what another replica had to drop.
        conversation.thinking_dropped = max(conversation.thinking_dropped, session.thinking_dropped)
        return session.sent_prefix

    @property
    def lookups(self) -> dict[str, int]:
        """Number of requests by conversation: in memory (`warm`), only in the store (`store`), in neither although the
        request has a history (`cold`), or new (`new`)."""
        return {name: self._lookups[name] for name in LOOKUPS}

    @property
    def memory(self) -> int:
        """Estimated bytes of all conversations and of the stored last requests."""
        return self.held + self._recent.size

    # ── pause and resume ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def all_off(self) -> bool:
        """True if new conversations start paused."""
        return self._switch.all_off

    @property
    def off(self) -> list[str]:
        """Ids of the conversations in memory that are paused."""
        with self._lock:
            return [each.id for each in self._all.values() if each.off]

    def read_pauses(self) -> None:
        """Apply pauses of other replicas, and those from before a restart. Raises StoreError."""
        self._pauses.read()

    def note_pause(self, name: str, off: bool) -> None:
        """Inform other replicas of a pause: of the conversation with this name, or of all. Raises StoreError."""
        self._pauses.add(Pause(name, off))

    def _apply(self, pause: Pause) -> None:
        if pause.name:
            self.hear([pause.name], pause.off)
        else:
            self.turn_all(pause.off)

    def turn(self, id: str, off: bool) -> bool:
        """Pause or resume one conversation. Return False if it is not in memory."""
        with self._lock:
            found = self._all.get(id)
            if found is not None:
                found.off = off
                if not off:
                    self._switch.forget(found.name)
            return found is not None

    def named(self, id: str = "") -> dict[str, str]:
        """Return names in the store, by id, of the conversations in memory whose id starts with `id`."""
        with self._lock:
            return {each.id: each.name for each in self._all.values() if each.id.startswith(id)}

    def wish(self, conversation: LiveConversation, off: bool) -> None:
        """Pause or resume a conversation as its request demands."""
        if conversation.off != off:
            conversation.off = off
            self.switched(conversation)

    def hear(self, names: Iterable[str], off: bool) -> None:
        """Apply a pause that another process made to the conversations with these names."""
        with self._lock:
            names = list(names)
            self._switch.hear(names, off)
            for name in names:
                for each in self._by_name.newest(name):
                    each.off = off

    def turn_all(self, off: bool) -> list[str]:
        """Pause or resume all conversations, also later ones. Return the ids of those in memory."""
        with self._lock:
            self._switch.turn_all(off)
            for each in self._all.values():
                each.off = off
            return list(self._all)

    def save(self, conversation: LiveConversation, in_background: bool = False) -> None:
        """Write new journal entries to the store before returning. Call under the conversation's lock.

        A policy that decides from the request alone has entries only after a failure. Its requests do not wait for the
        store. What cannot be written then is written with the next request.
        """
        notebook, manner = conversation.notebook, self._manners.of(conversation.key)
        if notebook is None or not (manner.remembers or conversation.session.unusual):
            return
        seconds = BACKGROUND_SECONDS if in_background else math.inf if manner.revises else QUICK_SECONDS
        try:
            with self._store.until(seconds):
                notebook.write()
        except Exception as error:
            if manner.revises or in_background:
                raise
            log.warning("cannot write the journal of a conversation to the store: %s", type(error).__name__)

    def _used(self, found: LiveConversation, scanned: Scanned) -> None:
        """Update indexes and sizes after a request, and evict what exceeds the limits."""
        session = found.session
        held = PER_CONVERSATION + PER_MESSAGE * len(scanned) + session.weight + PER_NOTE * session.notes
        hint = hint_of(found.key, scanned.given)
        with self._lock:
            if found.id not in self._all:  # it was evicted in the meantime
                return
            self.held += held - found.held
            found.held = held
            self._all.move_to_end(found.id)
            self._recent.put(found, scanned)
            self._by_name.add(found.name, found)
            if found.hint is not None and found.hint != hint:
                self._by_hint.drop(found.hint, found)
            found.hint = hint
            self._by_hint.add(hint, found)
            self._let_go()
        if self._gone > GONE_BYTES:
            self._gone = 0
            self._give_back()

    def _let_go(self) -> None:
        """Evict the least recently used conversations until the rest fits. At least one stays."""
        most_bytes = self._most_bytes - self._recent.size
        while len(self._all) > 1 and (len(self._all) > self._most or self.held > most_bytes):
            gone = self._all.popitem(last=False)[1]
            self._recent.drop(gone)
            self._switch.let_go(gone.name, gone.off)
            self.held -= gone.held
            self._gone += gone.held
            self._by_name.drop(gone.name, gone)
            if gone.hint is not None:
                self._by_hint.drop(gone.hint, gone)
