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
from ..engine.breakpoint_placement import CacheSettings
from ..engine.incremental import SentPrefix
from ..engine.journal_store import JournalStore
from ..engine.pipeline import Compacted
from ..engine.session import Session
from ..errors import IbidemError
from ..model import Message, Text
from ..store import Store
from ..store.guarded import GuardedStore
from ..store.references import ConversationOpening, conversation_key, opening_text
from ..wire import ScannedRequest, scan
from ..wire.json_text import parse
from ..wire.request_scan import LastRequest, scan_tolerantly
from .conversation import NOTHING_SENT, ConversationKey, LiveConversation, SentRequest, UnreportedSend, continues_prefix
from .policy import Experiment, NullStore, Pause, PauseLog, PauseState, ReplayStore, RewritePolicies, RewritePolicy
from .types import SingleMessage, UnreadableRequest

log = logging.getLogger("ibidem")

TITLE_LENGTH = 80


def open_request(format: str, body: bytes) -> tuple[ScannedRequest, list[Message]]:
    """Parse a request. Return it with its messages before the first response of the model."""
    scanned = scan(body) or scan_tolerantly(body)
    if scanned is None:
        raise SingleMessage if _has_single_message(format, body) else UnreadableRequest("the request has no history")
    return scanned, list(_opening_messages(format, scanned))


def detect_format(body: bytes, model: str = "") -> str:
    """Detect the format of a request. Raises `UnreadableRequest` if no format fits, or several do."""
    try:
        return formats.detect_format(parse(body), model or None).name
    except formats.AmbiguousFormat as error:
        choices = " or ".join(each.name for each in error.candidates)
        raise UnreadableRequest(f"the request fits more than one format: name one of them ({choices})") from None
    except formats.FormatError:
        raise UnreadableRequest("the request has no conversation") from None
    except IbidemError:
        raise UnreadableRequest("the request cannot be read") from None


def _has_single_message(format: str, body: bytes) -> bool:
    try:
        value = parse(body)
    except IbidemError:
        return False
    return isinstance(value, dict) and isinstance(value.get(formats.format_named(format).history_key), str | dict)


def _opening_messages(format: str, scanned: ScannedRequest) -> Iterator[Message]:
    """Yield the messages before the model's first response. They identify the conversation."""
    dialect, opening = formats.format_named(format), ConversationOpening()
    for index in range(len(scanned)):
        message = dialect.read_message(index, scanned.message_at(index))
        opening.read_message(message)
        if opening.ended:
            return
        yield message


def conversation_title(messages: list[Message]) -> str:
    """Return the user's first words. Texts that start with a tag are a client's own and are skipped."""
    messages_of_user = [message for message in messages if message.role == "user"] or messages[-1:]
    texts = [part.text.strip() for message in messages_of_user for part in message.parts if isinstance(part, Text)]
    own = [text for text in texts if not text.startswith("<")]
    first = " ".join((own or texts or [""])[-1 if own else 0].split())
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1] + "…"


class ConversationMatch(NamedTuple):
    """A conversation and the request that continues it."""

    conversation: LiveConversation
    scanned: ScannedRequest
    version: int
    """The conversation's `version` when it was found."""


class OpenedRequest(NamedTuple):
    """A request that is seen for the first time."""

    key: ConversationKey
    body: bytes
    scanned: ScannedRequest
    messages: list[Message]
    """Messages before the model's first response."""
    name: str
    """Name of its conversation in the store."""
    same_name: list[LiveConversation]
    """Conversations in memory with that name, the newest first."""


PrefixHint = tuple[ConversationKey, int]
"""The key of a conversation and a hash of its requests' first bytes."""

HINT_BYTES = 2048
"""First bytes that requests of one conversation usually share."""


def prefix_hint(key: ConversationKey, body: bytes) -> PrefixHint:
    return key, hash(body[:HINT_BYTES])


class ConversationIndex:
    """Conversations by name or hint. Used under the lock of `Conversations`."""

    def __init__(self) -> None:
        self._by_name: dict[Hashable, OrderedDict[str, LiveConversation]] = {}

    def newest_for(self, name: Hashable, limit: int | None = None) -> list[LiveConversation]:
        """Return up to `limit` conversations with this name, the newest first."""
        conversations = self._by_name.get(name)
        return [] if conversations is None else [*islice(reversed(conversations.values()), limit)]

    def add(self, name: Hashable, conversation: LiveConversation) -> None:
        conversations = self._by_name.setdefault(name, OrderedDict())
        conversations[conversation.id] = conversation
        conversations.move_to_end(conversation.id)

    def drop(self, name: Hashable, conversation: LiveConversation) -> None:
        conversations = self._by_name[name]
        conversations.pop(conversation.id, None)
        if not conversations:
            del self._by_name[name]


class RecentBodies:
    """The last request bodies of conversations, within a memory limit. Without a body, hashes of its messages are
    compared.

    Used under the lock of `Conversations`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._requests: OrderedDict[str, LastRequest] = OrderedDict()
        """Last requests by conversation id."""
        self.size_bytes = 0
        """Total size of the stored bodies."""

    def last_request(self, conversation: LiveConversation) -> LastRequest | None:
        """Return the last request of a conversation; None if it is not stored."""
        return self._requests.get(conversation.id)

    def put(self, conversation: LiveConversation, scanned: ScannedRequest) -> None:
        """Store the last request of a conversation, and evict the oldest others."""
        self.drop(conversation)
        last = scanned.make_last_request()
        if last is None or last.size_bytes > self._max_bytes:
            return
        self._requests[conversation.id] = last
        self.size_bytes += last.size_bytes
        while self.size_bytes > self._max_bytes:
            self.size_bytes -= self._requests.popitem(last=False)[1].size_bytes

    def drop(self, conversation: LiveConversation) -> None:
        request = self._requests.pop(conversation.id, None)
        self.size_bytes -= request.size_bytes if request is not None else 0


SizeCheck = Callable[[int], None]

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

RELEASE_BYTES = 2**25
"""Evicted bytes after which free memory is returned to the system."""

PER_MESSAGE, PER_CONVERSATION, PER_ENTRY = 400, 14_000, 600
"""Measured bytes in memory in addition to the texts: per message (a minimum), per conversation, and per journal entry.
All runs of the same prompt share one journal, so each of them has the entries of all."""


class Conversations:
    """The conversations in memory. Safe to use from several threads."""

    def __init__(
        self,
        profile: str,
        store: Store,
        max_count: int,
        max_bytes: int,
        observe: bool = False,
        cache: CacheSettings | None = None,
        prefix: str = "",
        experiment: Experiment | None = None,
        release_memory: Callable[[], object] = lambda: None,
    ) -> None:
        """Create an empty set. Ids start with `prefix`. An `experiment` may have some conversations only measured.

        `release_memory` is called after much memory was freed.
        """
        self._prefix = prefix
        self._release_memory = release_memory
        self._store = store if isinstance(store, GuardedStore) else GuardedStore(store, on_change=log.info)
        self._originals = NullStore() if observe else self._store
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._all: OrderedDict[str, LiveConversation] = OrderedDict()
        """The least recently used first."""
        self._by_hint = ConversationIndex()
        self._by_name = ConversationIndex()
        self._recent = RecentBodies(min(RECENT_BYTES, int(RECENT_SHARE * max_bytes)))
        self._lock = threading.Lock()
        self._created_count = 0
        self._pause_state = PauseState()
        self._pauses = PauseLog(self._store, self._apply_pause)
        self.on_pause_change: Callable[[LiveConversation], None] = lambda _: None
        """Called in the current thread when a request pauses or resumes its conversation."""
        self._lookups: Counter[str] = Counter()
        self.memory_bytes = 0
        """Estimated bytes of all conversations."""
        self._evicted_bytes = 0
        """Bytes that were evicted since memory was last returned to the system."""
        self._policies = RewritePolicies(RewritePolicy(profile, cache or CacheSettings()), experiment)
        self.can_revise, self.needs_journal = self._policies.default.can_revise, self._policies.default.needs_journal
        self.sets_cache_directives = self._policies.default.sets_cache_directives
        """Properties of the default `RewritePolicy`, for requests that do not select a profile."""

    def __len__(self) -> int:
        return len(self._all)

    def has_conversation(self, conversation: LiveConversation) -> bool:
        """Return True if the conversation is in memory here."""
        return self._all.get(conversation.id) is conversation

    def find_conversation(
        self, key: ConversationKey, body: bytes, check_size: SizeCheck = lambda _: None
    ) -> ConversationMatch | None:
        """Find the conversation that a request continues; None for a new one. Raises `UnreadableRequest`.

        `check_size` gets the offset of the first new byte before the new part is parsed. It may raise.
        """
        return self._find_by_hint(key, body, check_size) or self._longest_match(self._open_request(key, body))

    def find_or_create(
        self, key: ConversationKey, body: bytes, check_size: SizeCheck = lambda _: None
    ) -> ConversationMatch:
        """Find the conversation that a request continues, or create one."""
        match = self._find_by_hint(key, body, check_size)
        if match is None:
            first_request = self._open_request(key, body)
            match = self._longest_match(first_request)
            if match is None:
                return self._create_conversation(first_request)
        self.count_warm()
        return match

    def count_warm(self) -> None:
        """Count a request that continues a conversation in memory."""
        with self._lock:
            self._lookups["warm"] += 1

    def _find_by_hint(self, key: ConversationKey, body: bytes, check_size: SizeCheck) -> ConversationMatch | None:
        """Find a conversation by the request's first bytes. The part that is known is not parsed again."""
        start = 0
        for conversation in self._indexed_candidates(self._by_hint, prefix_hint(key, body), MAX_CANDIDATES):
            version, last = conversation.version, conversation.last_prefix
            rescanned = last.rescan(body, self._recent.last_request(conversation)) if last is not None else None
            start = max(start, rescanned.unchanged_end if rescanned is not None else 0)
            if rescanned is not None and continues_prefix(last, rescanned):
                check_size(rescanned.unchanged_end)
                return ConversationMatch(conversation, rescanned, version)
        check_size(start)
        return None

    def find_warm(self, key: ConversationKey, body: bytes, max_new_bytes: int) -> ConversationMatch | None:
        """Find a conversation that can be continued in the event loop; None if anything could take long.

        The request has at most `max_new_bytes` new bytes, and needs neither a store call nor code of other packages.
        """
        if not self._policies.policy_for(key).is_fast:
            return None
        for conversation in self._indexed_candidates(self._by_hint, prefix_hint(key, body), MAX_CANDIDATES):
            version, last = conversation.version, conversation.last_prefix
            scan_state = last.scan_state if last is not None else None
            if last is None or scan_state is None:
                continue
            if len(body) - scan_state.spans[-1][1] > max_new_bytes or len(scan_state.spans) > MAX_WARM_MESSAGES:
                return None
            rescanned = last.rescan(body, self._recent.last_request(conversation))
            if rescanned is not None and continues_prefix(last, rescanned):
                is_small = len(body) - rescanned.unchanged_end <= max_new_bytes
                return (
                    ConversationMatch(conversation, rescanned, version)
                    if is_small and conversation.can_continue_directly(rescanned)
                    else None
                )
        return None

    def _open_request(self, key: ConversationKey, body: bytes) -> OpenedRequest:
        scanned, messages = open_request(key[0], body)
        identity = "\0".join((*key, self._policies.policy_for(key).profile, conversation_key(opening_text(messages))))
        name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return OpenedRequest(key, body, scanned, messages, name, self._indexed_candidates(self._by_name, name))

    def _longest_match(self, first_request: OpenedRequest) -> ConversationMatch | None:
        """Find the conversation with the most messages whose last request this one starts with."""
        scanned = first_request.scanned
        candidates = ((each, each.version) for each in first_request.same_name)
        matches = [
            ConversationMatch(each, scanned, turn)
            for each, turn in candidates
            if turn and continues_prefix(each.last_prefix, scanned)
        ]
        return max(matches, key=lambda one: one.conversation.messages, default=None)

    def refresh_match(self, match: ConversationMatch, body: bytes) -> ConversationMatch | None:
        """Return the match after other threads changed its conversation; None if the request does not continue it any
        more.

        Call under the conversation's lock.
        """
        conversation = match.conversation
        if conversation.version == match.version:
            return match
        last = conversation.last_prefix
        scanned = (last.rescan(body) if last is not None else None) or match.scanned
        return (
            ConversationMatch(conversation, scanned, conversation.version) if continues_prefix(last, scanned) else None
        )

    def _create_conversation(self, first_request: OpenedRequest) -> ConversationMatch:
        key, scanned, messages = first_request.key, first_request.scanned, first_request.messages
        assignment = self._policies.assign_variant(key, first_request.name)
        policy = self._policies.policy_for(key, assignment)
        session = self._create_session(key[0], policy)
        notebook = None if policy.is_observed else JournalStore(session, self._store, first_request.name)
        if notebook is not None:
            self._read_journal(notebook, policy, is_new=len(scanned) == len(messages))
        candidates = [
            (last.shared_length(scanned), each)
            for each in first_request.same_name
            if (last := each.last_prefix) is not None
        ]
        shared_count, nearest = max(candidates, key=lambda one: one[0], default=(0, None))
        last, hint = (
            SentPrefix.from_unchanged(formats.format_named(key[0]), scanned),
            prefix_hint(key, first_request.body),
        )
        is_parent_paused = nearest is not None and nearest.is_paused and shared_count > len(messages)
        with self._lock:
            self._created_count += 1
            conversation = LiveConversation(
                f"{self._prefix}c{self._created_count}",
                key,
                first_request.name,
                session,
                conversation_title(messages),
                parent=nearest.id if nearest is not None else "",
                hint=hint,
                messages=shared_count,
                memory_bytes=PER_CONVERSATION,
                notebook=notebook,
                last_prefix=last,
                history=nearest.history if nearest is not None else NOTHING_SENT,
                is_remote=self._pause_state.is_remote(first_request.name),
                is_paused=self._pause_state.starts_off(
                    first_request.name, len(scanned) > len(messages), is_parent_paused
                ),
                assignment=assignment,
            )
            self._lookups["store" if notebook else "new" if len(scanned) == len(messages) else "cold"] += 1
            self.memory_bytes += conversation.memory_bytes
            self._all[conversation.id] = conversation
            self._by_name.add(conversation.name, conversation)
            self._by_hint.add(hint, conversation)
            self._evict_oldest()
        return ConversationMatch(conversation, scanned, 0)

    def _read_journal(self, notebook: JournalStore, policy: RewritePolicy, is_new: bool = False) -> None:
        """Read the journal of a conversation. Policies that can continue without it ignore an unavailable store."""
        if policy.can_revise:
            notebook.read()
        elif policy.sets_cache_directives or not is_new:
            self._try_read_journal(notebook)

    def _try_read_journal(self, notebook: JournalStore) -> None:
        """Read the journal if the store responds soon. Without it a request may be rejected once, and is sent again."""
        try:
            with self._store.time_limit(QUICK_SECONDS):
                notebook.read()
        except Exception as error:
            log.debug("a conversation continues without its notes: %s", type(error).__name__)

    def catch_up(self, match: ConversationMatch) -> None:
        """Read the journal of a conversation that continued on another replica. Call under the conversation's lock."""
        notebook = match.conversation.notebook
        if notebook is not None and match.conversation.may_have_moved(match.scanned):
            self._try_read_journal(notebook)

    def reread(self, conversation: LiveConversation) -> None:
        """Read the notes of a conversation again, if that is soon done: another replica may have added some."""
        if conversation.notebook is not None and conversation.lock.acquire(timeout=QUICK_SECONDS):
            try:
                self._try_read_journal(conversation.notebook)
            finally:
                conversation.lock.release()

    def store_deadline(self, seconds: float) -> AbstractContextManager[None]:
        """Set the deadline for calls of the store."""
        return self._store.time_limit(seconds)

    def iter_candidates(self, key: ConversationKey, body: bytes, may_parse: bool) -> Iterator[list[LiveConversation]]:
        """Yield conversations that a request may continue, the likeliest first. Unless `may_parse`, do not parse the
        request.

        All conversations of one agent may start with the same bytes, so none is left out. The caller stops at the first
        that fits.
        """
        candidates = self._indexed_candidates(self._by_hint, prefix_hint(key, body))
        yield candidates[:MAX_CANDIDATES]
        yield [*candidates[MAX_CANDIDATES:], *(self._open_request(key, body).same_name if may_parse else ())]

    def _indexed_candidates(
        self, index: ConversationIndex, name: Hashable, limit: int | None = None
    ) -> list[LiveConversation]:
        with self._lock:
            return index.newest_for(name, limit)

    def _create_session(
        self, format: str, policy: RewritePolicy, model: str = "", state: bytes | None = None
    ) -> Session:
        session = Session(
            strategies=policy.strategies,
            format=format,
            model=model or None,
            store=NullStore() if policy.is_observed else self._originals,
            cache=policy.cache.mode,
            pauses=policy.cache.pauses,
            state=state,
        )
        session.sees_responses = policy.sees_responses
        return session

    def preview_request(
        self, format: str, match: ConversationMatch | None, body: bytes, at: float, model: str = ""
    ) -> Compacted:
        """Return the request that would be sent, without side effects and without cache breakpoints of ours."""
        state = match.conversation.session.state() if match else None
        return self._create_session(format, self._policies.default.without_breakpoints, model, state).compact(
            body, at=at
        )

    def is_observed(self, key: ConversationKey, match: ConversationMatch | None, body: bytes) -> bool:
        """Return True if an experiment sends the request's conversation unchanged and only measures it."""
        if match is not None:
            return match.conversation.is_observed
        if self._policies.experiment is None:
            return False
        assignment = self._policies.assign_variant(key, self._open_request(key, body).name)
        return assignment is not None and assignment.is_observed

    def rewrite_request(self, match: ConversationMatch, at: float) -> Compacted:
        """Return the request to send. Call under the conversation's lock."""
        conversation, scanned = match.conversation, match.scanned
        notebook, policy = conversation.notebook, self._policies.policy_for(conversation.key)
        if notebook is not None and (policy.needs_journal or conversation.may_have_moved(scanned)):
            self._read_journal(notebook, policy)
        try:
            return conversation.rewrite_request(scanned, at)
        finally:
            self._record_use(conversation, scanned)

    def apply_inbox(self, conversation: LiveConversation) -> None:
        """Inform the session of requests that were not sent as planned. Call under the conversation's lock."""
        scanned = conversation.apply_inbox()
        if scanned is not None:
            self._record_use(conversation, scanned)

    def adopt_request(self, request: SentRequest | None, unreported: UnreportedSend) -> LiveConversation:
        """Return the conversation of a request that was sent and accepted before its conversation was known."""
        conversation = self.find_or_create(unreported.key, unreported.body).conversation
        conversation.record_accepted(request, unreported)
        return conversation

    def can_revise_in(self, conversation: LiveConversation) -> bool:
        """Return True if the conversation's strategies may change text that was already sent."""
        return self._policies.policy_for(conversation.key).can_revise

    def replay_prefix(self, conversation: LiveConversation, body: bytes, first_unchanged: int) -> SentPrefix | None:
        """Reconstruct how a request is sent with its messages from `first_unchanged` on unchanged. Takes no lock."""
        model, store = conversation.session.model, ReplayStore(self._store, QUICK_SECONDS)
        strategies = self._policies.policy_for(conversation.key).strategies
        session = Session(strategies=strategies, format=conversation.key[0], model=model, store=store)
        if conversation.notebook is not None:
            conversation.notebook.share_with(session)
        session.sent_otherwise(body, first_unchanged)
        # A paused conversation is not rewritten, so this is where it learns what another replica had to drop.
        conversation.thinking_dropped = max(conversation.thinking_dropped, session.thinking_dropped)
        return session.sent_prefix

    @property
    def lookup_counts(self) -> dict[str, int]:
        """Number of requests by conversation: in memory (`warm`), only in the store (`store`), in neither although the
        request has a history (`cold`), or new (`new`)."""
        return {name: self._lookups[name] for name in LOOKUPS}

    @property
    def total_bytes(self) -> int:
        """Estimated bytes of all conversations and of the stored last requests."""
        return self.memory_bytes + self._recent.size_bytes

    # ── pause and resume ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def all_off(self) -> bool:
        """True if new conversations start paused."""
        return self._pause_state.all_off

    @property
    def paused_ids(self) -> list[str]:
        """Ids of the conversations in memory that are paused."""
        with self._lock:
            return [each.id for each in self._all.values() if each.is_paused]

    def read_pauses(self) -> None:
        """Apply pauses of other replicas, and those from before a restart. Raises StoreError."""
        self._pauses.apply_new()

    def add_pause(self, name: str, is_paused: bool) -> None:
        """Inform other replicas of a pause: of the conversation with this name, or of all. Raises StoreError."""
        self._pauses.add(Pause(name, is_paused))

    def _apply_pause(self, pause: Pause) -> None:
        if pause.name:
            self.apply_remote_pause([pause.name], pause.off)
        else:
            self.set_all_paused(pause.off)

    def set_paused(self, id: str, is_paused: bool) -> bool:
        """Pause or resume one conversation. Return False if it is not in memory."""
        with self._lock:
            conversation = self._all.get(id)
            if conversation is not None:
                conversation.is_paused = is_paused
                if not is_paused:
                    self._pause_state.record_resumed(conversation.name)
            return conversation is not None

    def names_by_id(self, id_prefix: str = "") -> dict[str, str]:
        """Return names in the store, by id, of the conversations in memory whose id starts with `id`."""
        with self._lock:
            return {each.id: each.name for each in self._all.values() if each.id.startswith(id_prefix)}

    def apply_pause_header(self, conversation: LiveConversation, is_paused: bool) -> None:
        """Pause or resume a conversation as its request demands."""
        if conversation.is_paused != is_paused:
            conversation.is_paused = is_paused
            self.on_pause_change(conversation)

    def apply_remote_pause(self, names: Iterable[str], is_paused: bool) -> None:
        """Apply a pause that another process made to the conversations with these names."""
        with self._lock:
            names = list(names)
            self._pause_state.record_remote(names, is_paused)
            for name in names:
                for each in self._by_name.newest_for(name):
                    each.is_paused = is_paused

    def set_all_paused(self, is_paused: bool) -> list[str]:
        """Pause or resume all conversations, also later ones. Return the ids of those in memory."""
        with self._lock:
            self._pause_state.set_all(is_paused)
            for each in self._all.values():
                each.is_paused = is_paused
            return list(self._all)

    def save_journal(self, conversation: LiveConversation, in_background: bool = False) -> None:
        """Write new journal entries to the store before returning. Call under the conversation's lock.

        A policy that decides from the request alone has entries only after a failure. Its requests do not wait for the
        store. What cannot be written then is written with the next request.
        """
        notebook, policy = conversation.notebook, self._policies.policy_for(conversation.key)
        if notebook is None or not (policy.needs_journal or conversation.session.unusual):
            return
        seconds = BACKGROUND_SECONDS if in_background else math.inf if policy.can_revise else QUICK_SECONDS
        try:
            with self._store.time_limit(seconds):
                notebook.write()
        except Exception as error:
            if policy.can_revise or in_background:
                raise
            log.warning("cannot write the journal of a conversation to the store: %s", type(error).__name__)

    def _record_use(self, conversation: LiveConversation, scanned: ScannedRequest) -> None:
        """Update indexes and sizes after a request, and evict what exceeds the limits."""
        session = conversation.session
        size = PER_CONVERSATION + PER_MESSAGE * len(scanned) + session.weight + PER_ENTRY * session.notes
        hint = prefix_hint(conversation.key, scanned.original)
        with self._lock:
            if conversation.id not in self._all:  # it was evicted in the meantime
                return
            self.memory_bytes += size - conversation.memory_bytes
            conversation.memory_bytes = size
            self._all.move_to_end(conversation.id)
            self._recent.put(conversation, scanned)
            self._by_name.add(conversation.name, conversation)
            if conversation.hint is not None and conversation.hint != hint:
                self._by_hint.drop(conversation.hint, conversation)
            conversation.hint = hint
            self._by_hint.add(hint, conversation)
            self._evict_oldest()
        if self._evicted_bytes > RELEASE_BYTES:
            self._evicted_bytes = 0
            self._release_memory()

    def _evict_oldest(self) -> None:
        """Evict the least recently used conversations until the rest fits. At least one stays."""
        max_bytes = self._max_bytes - self._recent.size_bytes
        while len(self._all) > 1 and (len(self._all) > self._max_count or self.memory_bytes > max_bytes):
            evicted = self._all.popitem(last=False)[1]
            self._recent.drop(evicted)
            self._pause_state.record_evicted(evicted.name, evicted.is_paused)
            self.memory_bytes -= evicted.memory_bytes
            self._evicted_bytes += evicted.memory_bytes
            self._by_name.drop(evicted.name, evicted)
            if evicted.hint is not None:
                self._by_hint.drop(evicted.hint, evicted)
