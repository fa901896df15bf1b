"""Evict text that is no longer needed: the strategy of `balanced`, `recoverable` and `aggressive`.

New text gets its arrival edits first (`BackReferences`). Texts that are no longer needed are queued until a revision is
free or pays (`billing.revision_budget`). Then all of them are evicted at once. Each gets a marker with the reference of
its original in the store; thinking is removed without a marker (`removed_thinking`). Text of files in use stays
(`file_protection`). A text with back-references to it stays until every text that refers to it is evicted too
(invariant 5), and evicted texts are never referenced again. If a history already has eviction markers, or lacks
thinking that the store has, another process edited it: it stays unchanged from there on (invariant 10). A tool may
print text that looks like a marker, so the store must confirm it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from sys import getsizeof
from typing import Any, ClassVar

from ...billing.revision_budget import CachePricing, PricedRevision, RequestContext, RevisionOffer, SavingsBalance
from ...errors import IbidemError
from ...markers.eviction_markers import parse_stub
from ...markers.restore import is_remainder_of
from ...model import Kind, Message
from ...plan import Edit, FullText, Plan, model_texts
from ...store.recall import SaveOriginal, original_writer
from ...store.references import conversation_key
from ..arrival.backrefs import BackReferences, BackReferenceState
from ..strategy import ConversationStart, Revision, Strategy, StrategyState
from .entry import Eviction, InventoryEntry
from .file_protection import Clock
from .inventory import PART_TOKENS, Inventory
from .removed_thinking import ThinkingHistory

ENTRY_BYTES = 700
"""Bytes in memory of an entry without its text, but with the options that are computed while it is queued."""
MAX_UNCONFIRMED = 64
"""Maximum texts that look like stubs but are not confirmed by the store. After that, the store is not queried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(Strategy):
    """Replace repeated text with back-references, and evict text that is no longer needed when that pays."""

    name: ClassVar[str] = "look-back"
    labels: ClassVar[tuple[str, ...]] = (
        *BackReferences.labels,
        *("stale", "stale_arguments", "mask", "thinking", "arguments"),
    )
    touches: ClassVar[frozenset[Kind]] = frozenset({"result", "thinking", "arguments"})
    revises: ClassVar[bool] = True

    arrival: BackReferences = field(default_factory=BackReferences)
    economy: CachePricing | None = None
    """Cache pricing of the provider. Default: `compact` and `Session` look it up by the model."""
    phi: float = 0.8
    """Share of the tokens saved so far that a revision may spend."""
    credit: float = 0.03
    """Share of its cost by which a conversation may temporarily be more expensive than without Ibidem. 0: never."""
    mask: int = 10
    """Number of last results that always stay."""
    working_set: Clock = (25, 8)
    """Number of requests that a read stays after a call last named its file (warm cache, cold cache)."""
    pending: Clock = (40, 20)
    """Number of requests that a read stays after it arrived, if its file was not written since (warm, cold)."""
    arguments: int | None = 512
    """Minimum bytes of a call argument that is evicted like an old result. None: arguments stay."""
    edit_arguments: Clock | None = None
    """Number of requests that an argument of a call that names files stays after a call last named them (warm, cold).
    None: it stays."""
    stale_arguments: bool = True
    """Evict the text that an edit replaced, and file content that was read again after it was written. Needs a format
    with an error flag in results: without it, no call is sure to have succeeded."""
    thinking: bool = True
    """Remove thinking of earlier turns, never that of the active tool loop."""
    store: Any = None
    """Store for originals. `compact` and `Session` set it. Without it, originals are lost: for measurements only."""

    way: str = ""
    """Name of the recall tool, for markers. `compact` and `Session` find it in the request."""

    @property
    def preserves_thinking(self) -> bool:
        """True if the model signs its thinking against all text before it."""
        return self.economy is not None and self.economy.preserved_thinking

    def begin(self, start: ConversationStart) -> EvictionState:
        economy = self.economy or start.economy
        settings = replace(
            self,
            economy=economy,
            store=self.store or start.store,
            way=self.way or start.recall_tool,
            thinking=self.thinking and economy.keeps_thinking and not start.clears_thinking,
            stale_arguments=self.stale_arguments and start.tells_failures,
        )
        return EvictionState(settings, start.refers, start.arrival or BackReferenceState, start.bank)


class EvictionState(StrategyState):
    """State of `Evict` after some requests."""

    def __init__(
        self,
        settings: Evict,
        refers: bool = True,
        arrival: Callable[..., Any] = BackReferenceState,
        bank: Callable[..., SavingsBalance] = SavingsBalance,
    ) -> None:
        self.settings = settings
        self.inventory: Inventory = Inventory(settings)
        self._arrival: BackReferenceState = arrival(settings.arrival, refers, self._is_evicted)
        self._thinking = ThinkingHistory(settings.store)
        self._own_refs: set[str] = set()
        """References of the texts that this state evicted."""
        self._unconfirmed_count = 0
        """Number of texts that look like stubs but are not confirmed by the store."""
        self._balance = bank(settings.economy or CachePricing(), settings.phi, settings.credit)
        self._points: list[PricedRevision] = []
        self._copied_bytes = 0
        """Bytes in memory of texts that are not in the request: arguments as text, and stubs."""
        self._message_count = 0
        """Number of messages fed."""
        self._may_revise = True
        """False once the history shows edits of another process, or the provider cleared results."""
        self._sent_tokens = self._removed_tokens = 0.0
        """Tokens of the last request as it was sent, and tokens removed from it."""
        self._new_tokens = self._new_saved_tokens = 0.0
        """Tokens of newer messages as they will be sent, and tokens removed from them."""

    @cached_property
    def _save_original(self) -> SaveOriginal | None:
        store = self.settings.store
        return None if store is None else original_writer(store, conversation_key(self._arrival.sources.opening_words))

    @property
    def weight(self) -> int:
        return int(self._arrival.weight) + self._copied_bytes + ENTRY_BYTES * len(self.inventory.entries)

    def feed(self, message: Message, as_is: bool = False) -> list[Edit]:
        """Return the arrival edits of a message."""
        arrival = self._arrival
        edits = {edit.path: edit for edit in arrival.feed(message, as_is)}
        targets = {source for sent_text in arrival.said for source in sent_text.targets}
        visible_texts = {
            source: visible_text for source in targets if (visible_text := arrival.known.shown(source)) is not None
        }
        entries = self.inventory.add_message(message, arrival.said, edits, arrival.sources)
        for entry in entries:
            if entry.kind == "result":
                self.inventory.record_references(entry, visible_texts)
            elif entry.kind == "arguments" and not entry.is_evictable:
                self._copied_bytes += getsizeof(entry.text)
            self._new_tokens += entry.sent_tokens + PART_TOKENS
            self._new_saved_tokens += entry.tokens - entry.sent_tokens
        if self.settings.store is not None and any(self._is_evicted(text) for _, text in model_texts(message)):
            arrival.rewritten = True
        self._may_revise = self._may_revise and not arrival.rewritten
        self._message_count += 1
        self._thinking.add_message(message)
        return [entry.edit for entry in entries if entry.edit is not None]

    def request(self, moment: RequestContext) -> Revision | None:
        """Decide if texts are evicted before the messages fed so far are sent. Return the revision, if any."""
        self._balance.add_usage(moment.context, self._sent_tokens, moment.cached)
        self._balance.set_ttl(moment)
        is_cache_expired = self._balance.is_expired(moment.idle)
        self.inventory.start_request(is_cache_expired or moment.new_settings)
        is_cold = not self._sent_tokens or is_cache_expired
        is_unplanned = self._arrival.as_is  # the request was sent without its planned edits
        revision = None
        if self._may_revise and not (moment.refused or is_unplanned):
            revision = self._plan_revision(moment) or self._evict_unsent()
        self.inventory.replaced.clear()
        self._balance.record_request(
            self._removed_tokens, self._new_saved_tokens, is_cold, self._sent_tokens + self._new_tokens
        )
        self.inventory.finish_request(is_cache_expired)
        self.inventory.queue.turn += 1  # texts that become eligible from now on are still sent with this request
        self._sent_tokens += self._new_tokens
        self._removed_tokens += self._new_saved_tokens
        self._new_tokens = self._new_saved_tokens = 0.0
        self.spent = self._balance.spent
        return revision

    def results_cleared(self) -> None:
        """Stop evicting: it is unknown which texts the provider still counts."""
        self._arrival.results_cleared()
        self._may_revise = False

    def still_used(self) -> None:
        # Check `_points` first: the conversation has a name only after its first messages, and evictions come later.
        if (self._points or not self._may_revise) and self._save_original is not None:
            self._save_original({})
            self._thinking.still_used()

    def _plan_revision(self, moment: RequestContext) -> Revision | None:
        queue, bank = self.inventory.queue, self._balance
        rewrite_tokens = self._sent_tokens_from(queue.first_message)
        if (
            bank.decide_revision(
                self._sent_tokens, RevisionOffer(*queue.waiting_tokens(), rewrite_tokens), moment, self._new_tokens
            )
            is None
        ):  # more than can go: a quick no
            return None
        if (
            bank.decide_revision(
                self._sent_tokens, RevisionOffer(*queue.freeable_tokens(), rewrite_tokens), moment, self._new_tokens
            )
            is None
        ):  # and this a slower one
            return None
        if self._thinking.was_removed_before():
            self._may_revise = False
            return None
        self.inventory.keep_thinking(self._thinking.must_stay)
        evictable = queue.find_evictable()
        offer = self._make_offer(evictable)
        unsent_tokens = self._unsent_tokens(evictable)
        sent_tokens = self._sent_tokens + unsent_tokens  # so that the rest is what was sent and stays
        reason = bank.decide_revision(sent_tokens, offer, moment, self._new_tokens - unsent_tokens)
        if reason is None:
            return None
        if not self._save_evicted(evictable):
            return Revision(None, refused=True)
        rewritten_tokens, break_even = bank.record_revision(
            sent_tokens, offer, reason, self._new_tokens - unsent_tokens
        )
        first = min(entry.message for entry in evictable)
        self._points.append(
            PricedRevision(self._message_count, first, reason, rewritten_tokens, offer.freed, break_even)
        )
        for entry in evictable:
            self._evict_entry(entry)
        texts, points = len(self.inventory.entries), tuple(self._points)
        changes = {
            message: self.inventory.edits_of(message) for message in dict.fromkeys(each.message for each in evictable)
        }
        return Revision(lambda: self._plan_of_first(texts, points), changes=changes, points=points)

    def _evict_unsent(self) -> Revision | None:
        """Evict the text that edits replaced before its first request: no provider has cached it, so it is free.

        Its need is 0.02 % of requests on recorded sessions (`benchmarks.need`, class stale_arguments).
        """
        going = [entry for entry in self.inventory.replaced if self.inventory.queue.goes_alone(entry)]
        if not going or self._thinking.was_removed_before():
            return None
        if not self._save_evicted(going):
            return Revision(None, refused=True)
        for entry in going:
            self._evict_entry(entry)
        texts, points = len(self.inventory.entries), tuple(self._points)
        changes = {entry.message: self.inventory.edits_of(entry.message) for entry in going}
        return Revision(lambda: self._plan_of_first(texts, points), changes=changes, points=points)

    @property
    def full_texts(self) -> tuple[FullText, ...]:
        return getattr(self._arrival, "full_texts", ())  # replay passes its own object

    def _make_offer(self, evictable: Sequence[InventoryEntry]) -> RevisionOffer:
        freed_tokens = waited_tokens = 0.0
        for entry in evictable:
            tokens = entry.sent_tokens - entry.planned_eviction.remaining_tokens if entry.planned_eviction else 0.0
            freed_tokens += tokens
            waited_tokens += tokens * (self.inventory.turn - entry.eligible_since)
        first = min((entry.message for entry in evictable), default=0)
        return RevisionOffer(
            freed_tokens, waited_tokens, self._sent_tokens_from(first) + self._unsent_tokens(evictable)
        )

    def _sent_tokens_from(self, message: int) -> float:
        """Tokens from a message on that were already sent."""
        return max(0.0, self.inventory.token_sums.tokens_from(message) - self._new_tokens)

    def _unsent_tokens(self, evictable: Sequence[InventoryEntry]) -> float:
        """Tokens freed in texts that were never sent, such as the latest thinking."""
        new = [entry for entry in evictable if entry.turn == self.inventory.turn - 1]
        return sum(
            entry.sent_tokens - entry.planned_eviction.remaining_tokens for entry in new if entry.planned_eviction
        )

    def _plan_of_first(self, texts: int, points: tuple[PricedRevision, ...]) -> Plan:
        """All edits of the first `texts` entries. They do not change before the next revision."""
        edits = (entry.edit for entry in self.inventory.entries[:texts] if entry.edit is not None)
        return Plan(tuple(edits), points)

    def _is_evicted(self, text: str) -> bool:
        """Return True if the text is a stub whose original is in the store, and not just text that looks like one."""
        if self.settings.store is None or self._unconfirmed_count >= MAX_UNCONFIRMED:
            return False
        marker = parse_stub(text, self._arrival.sources.tag)
        if marker is None or marker.ref in self._own_refs:
            return False
        try:
            originals = self.settings.store.get([marker.ref])
        except IbidemError:
            originals = {}
        if marker.ref in originals and is_remainder_of(text, originals[marker.ref], self._arrival.sources.tag):
            return True
        self._unconfirmed_count += 1
        return False

    def _save_evicted(self, evictable: Sequence[InventoryEntry]) -> bool:
        originals = {
            ref: text
            for entry in evictable
            if entry.planned_eviction
            for ref, text in entry.planned_eviction.originals.items()
        }
        places = {
            ref: entry.description
            for entry in evictable
            if entry.planned_eviction
            for ref in entry.planned_eviction.originals
        }
        return (
            self._save_original is None or not originals or self._save_original(originals, places)
        ) and self._thinking.save_removed(evictable)

    def _evict_entry(self, entry: InventoryEntry) -> None:
        assert entry.planned_eviction is not None
        self._own_refs.update(entry.planned_eviction.originals)
        self._copied_bytes += getsizeof(entry.planned_eviction.stub_text)
        entry.edit = _make_edit(entry, entry.planned_eviction)
        freed_tokens = self.inventory.queue.evict(entry)
        self.inventory.token_sums.add(entry.message, -freed_tokens)
        self._sent_tokens -= freed_tokens
        self._removed_tokens += freed_tokens
        for source in entry.sources:
            self._arrival.forget(source)


def _make_edit(entry: InventoryEntry, eviction: Eviction) -> Edit:
    return Edit(
        strategy=eviction.label,
        op="drop" if entry.kind == "thinking" else "set",
        message=entry.message,
        path=entry.path,
        removed=(entry.text,),
        added=eviction.stub_text,
        fewer_tokens=True,
        reason=eviction.reason,
        counted_tokens=entry.tokens if entry.kind == "thinking" else None,
    )
