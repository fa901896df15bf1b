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

from ...billing.budget import Bank, Economy, Moment, Offer, Point
from ...errors import IbidemError
from ...markers.evicted import stub
from ...markers.restore import left_of
from ...model import Kind, Message
from ...plan import Edit, Plan, own_texts
from ...store.naming import conversation_key
from ...store.recall import Keep, keeper
from ..arrival.backrefs import BackReferences, BackrefFold
from ..strategy import Fold, Revision, Start, Strategy
from .entry import Entry, Eviction
from .gate import Clock
from .inventory import PART_TOKENS, Inventory
from .thoughts import Thoughts

ENTRY_BYTES = 700
"""Bytes in memory of an entry without its text, but with the options that are computed while it is queued."""
MAX_DOUBTED = 64
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
    economy: Economy | None = None
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

    def begin(self, start: Start) -> EvictionFold:
        economy = self.economy or start.economy
        settings = replace(
            self,
            economy=economy,
            store=self.store or start.store,
            way=self.way or start.recall_tool,
            thinking=self.thinking and economy.keeps_thinking and not start.clears_thinking,
            stale_arguments=self.stale_arguments and start.tells_failures,
        )
        return EvictionFold(settings, start.refers, start.arrival or BackrefFold, start.bank)


class EvictionFold(Fold):
    """State of `Evict` after some requests."""

    def __init__(
        self,
        settings: Evict,
        refers: bool = True,
        arrival: Callable[..., Any] = BackrefFold,
        bank: Callable[..., Bank] = Bank,
    ) -> None:
        self.settings = settings
        self.inventory: Inventory = Inventory(settings)
        self._arrival = arrival(settings.arrival, refers, self._evicted)
        self._thoughts = Thoughts(settings.store)
        self._evicted_refs: set[str] = set()
        """References of the texts that this state evicted."""
        self._doubted = 0
        """Number of texts that look like stubs but are not confirmed by the store."""
        self._bank = bank(settings.economy or Economy(), settings.phi, settings.credit)
        self._points: list[Point] = []
        self._copies = 0
        """Bytes in memory of texts that are not in the request: arguments as text, and stubs."""
        self._length = 0
        """Number of messages fed."""
        self._revises = True
        """False once the history shows edits of another process, or the provider cleared results."""
        self._standing = self._removed = 0.0
        """Tokens of the last request as it was sent, and tokens removed from it."""
        self._new = self._spared = 0.0
        """Tokens of newer messages as they will be sent, and tokens removed from them."""

    @cached_property
    def _keep(self) -> Keep | None:
        store = self.settings.store
        return None if store is None else keeper(store, conversation_key(self._arrival.sources.words))

    @property
    def weight(self) -> int:
        return int(self._arrival.weight) + self._copies + ENTRY_BYTES * len(self.inventory.all)

    def feed(self, message: Message, as_is: bool = False) -> list[Edit]:
        """Return the arrival edits of a message."""
        arrival = self._arrival
        edits = {edit.path: edit for edit in arrival.feed(message, as_is)}
        targets = {source for said in arrival.said for source in said.targets}
        shown = {source: found for source in targets if (found := arrival.known.shown(source)) is not None}
        entries = self.inventory.take(message, arrival.said, edits, arrival.sources)
        for entry in entries:
            if entry.kind == "result":
                self.inventory.refer(entry, shown)
            elif entry.kind == "arguments" and not entry.free:
                self._copies += getsizeof(entry.text)
            self._new += entry.sent + PART_TOKENS
            self._spared += entry.tokens - entry.sent
        if self.settings.store is not None and any(self._evicted(text) for _, text in own_texts(message)):
            arrival.rewritten = True
        self._revises = self._revises and not arrival.rewritten
        self._length += 1
        self._thoughts.read(message)
        return [entry.edit for entry in entries if entry.edit is not None]

    def request(self, moment: Moment) -> Revision | None:
        """Decide if texts are evicted before the messages fed so far are sent. Return the revision, if any."""
        self._bank.reported(moment.context, self._standing, moment.cached)
        self._bank.keep(moment)
        forgotten = self._bank.forgets(moment.idle)
        self.inventory.grow_older(forgotten or moment.new_settings)
        cold = not self._standing or forgotten
        undone = self._arrival.as_is  # the request was sent without its planned edits
        revision = None
        if self._revises and not (moment.refused or undone):
            revision = self._revised(moment) or self._evict_unsent()
        self.inventory.replaced.clear()
        self._bank.settle(self._removed, self._spared, cold, self._standing + self._new)
        self.inventory.sent(forgotten)
        self.inventory.waiting.turn += 1  # texts that become eligible from now on are still sent with this request
        self._standing += self._new
        self._removed += self._spared
        self._new = self._spared = 0.0
        self.spent = self._bank.spent
        return revision

    def results_cleared(self) -> None:
        """Stop evicting: it is unknown which texts the provider still counts."""
        self._arrival.results_cleared()
        self._revises = False

    def still_used(self) -> None:
        # Check `_points` first: the conversation has a name only after its first messages, and evictions come later.
        if (self._points or not self._revises) and self._keep is not None:
            self._keep({})
            self._thoughts.still_used()

    def _revised(self, moment: Moment) -> Revision | None:
        waiting, bank = self.inventory.waiting, self._bank
        behind = self._sent_behind(waiting.first)
        if (
            bank.reason(self._standing, Offer(*waiting.all(), behind), moment, self._new) is None
        ):  # more than can go: a quick no
            return None
        if (
            bank.reason(self._standing, Offer(*waiting.most(), behind), moment, self._new) is None
        ):  # and this a slower one
            return None
        if self._thoughts.went_before():
            self._revises = False
            return None
        self.inventory.keep_thinking(self._thoughts.stay)
        going = waiting.free_to_go()
        offer = self._offer(going)
        unsent = self._unsent(going)
        standing = self._standing + unsent  # so that the rest is what was sent and stays
        reason = bank.reason(standing, offer, moment, self._new - unsent)
        if reason is None:
            return None
        if not self._kept(going):
            return Revision(None, refused=True)
        rewritten, break_even = bank.pay(standing, offer, reason, self._new - unsent)
        first = min(entry.message for entry in going)
        self._points.append(Point(self._length, first, reason, rewritten, offer.freed, break_even))
        for entry in going:
            self._evict(entry)
        texts, points = len(self.inventory.all), tuple(self._points)
        changes = {
            message: self.inventory.edits_of(message) for message in dict.fromkeys(each.message for each in going)
        }
        return Revision(lambda: self._plan(texts, points), changes=changes, points=points)

    def _evict_unsent(self) -> Revision | None:
        """Evict the text that edits replaced before its first request: no provider has cached it, so it is free.

        Its need is 0.02 % of requests on recorded sessions (`benchmarks.need`, class stale_arguments).
        """
        going = [entry for entry in self.inventory.replaced if self.inventory.waiting.goes_alone(entry)]
        if not going or self._thoughts.went_before():
            return None
        if not self._kept(going):
            return Revision(None, refused=True)
        for entry in going:
            self._evict(entry)
        texts, points = len(self.inventory.all), tuple(self._points)
        changes = {entry.message: self.inventory.edits_of(entry.message) for entry in going}
        return Revision(lambda: self._plan(texts, points), changes=changes, points=points)

    def _offer(self, going: Sequence[Entry]) -> Offer:
        freed = waited = 0.0
        for entry in going:
            tokens = entry.sent - entry.going.left if entry.going else 0.0
            freed += tokens
            waited += tokens * (self.inventory.turn - entry.since)
        first = min((entry.message for entry in going), default=0)
        return Offer(freed, waited, self._sent_behind(first) + self._unsent(going))

    def _sent_behind(self, message: int) -> float:
        """Tokens from a message on that were already sent."""
        return max(0.0, self.inventory.standing.behind(message) - self._new)

    def _unsent(self, going: Sequence[Entry]) -> float:
        """Tokens freed in texts that were never sent, such as the latest thinking."""
        new = [entry for entry in going if entry.turn == self.inventory.turn - 1]
        return sum(entry.sent - entry.going.left for entry in new if entry.going)

    def _plan(self, texts: int, points: tuple[Point, ...]) -> Plan:
        """All edits of the first `texts` entries. They do not change before the next revision."""
        edits = (entry.edit for entry in self.inventory.all[:texts] if entry.edit is not None)
        return Plan(tuple(edits), points)

    def _evicted(self, text: str) -> bool:
        """Return True if the text is a stub whose original is in the store, and not just text that looks like one."""
        if self.settings.store is None or self._doubted >= MAX_DOUBTED:
            return False
        found = stub(text, self._arrival.sources.tag)
        if found is None or found.ref in self._evicted_refs:
            return False
        try:
            kept = self.settings.store.get([found.ref])
        except IbidemError:
            kept = {}
        if found.ref in kept and left_of(text, kept[found.ref], self._arrival.sources.tag):
            return True
        self._doubted += 1
        return False

    def _kept(self, going: Sequence[Entry]) -> bool:
        originals = {ref: text for entry in going if entry.going for ref, text in entry.going.originals.items()}
        places = {ref: entry.place for entry in going if entry.going for ref in entry.going.originals}
        return (self._keep is None or not originals or self._keep(originals, places)) and self._thoughts.keep(going)

    def _evict(self, entry: Entry) -> None:
        assert entry.going is not None
        self._evicted_refs.update(entry.going.originals)
        self._copies += getsizeof(entry.going.added)
        entry.edit = _edit(entry, entry.going)
        freed = self.inventory.waiting.evict(entry)
        self.inventory.standing.add(entry.message, -freed)
        self._standing -= freed
        self._removed += freed
        for source in entry.sources:
            self._arrival.forget(source)


def _edit(entry: Entry, going: Eviction) -> Edit:
    return Edit(
        strategy=going.label,
        op="drop" if entry.kind == "thinking" else "set",
        message=entry.message,
        path=entry.path,
        removed=(entry.text,),
        added=going.added,
        fewer_tokens=True,
        reason=going.reason,
        counted_tokens=entry.tokens if entry.kind == "thinking" else None,
    )
