"""What was sent is looked at again, and goes when it is no longer needed: the strategy behind `recoverable`.

A fold over the requests of a conversation. New text gets its arrival edits first (`BackReferences`). Texts that are no
longer needed wait together until a change is free or pays (`billing.budget`); then all of them go at once, each with a
marker that carries the reference under which the store keeps the original. What lost its middle may lose the rest
later. A text that a later reference points at stays until every text that refers to it goes too (law 5), and what is
gone is never referred to again. A history that carries such a marker already was looked at before, by someone who knows
more of it: it stays as it is from there on (law 10). A tool may print what looks like one, so the store has to confirm
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ...billing.budget import Bank, Economy, Moment, Point
from ...markers.evicted import stub
from ...markers.restore import left_of
from ...model import Conversation, IbidemError, Kind, Message
from ...plan import Edit, Plan, own_texts
from ...store.recall import Keep, conversation_key, keeper
from ..arrival.backrefs import BackReferences, BackrefFold
from .entry import Entry, Eviction
from .inventory import Inventory

MAX_DOUBTED = 64
"""Texts that merely look as if lines of them had been let go, after which no store is asked any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Say nothing twice, and let go of what is no longer needed, when that pays."""

    name: ClassVar[str] = "look-back"
    labels: ClassVar[tuple[str, ...]] = (
        *BackReferences.labels,
        *("stale", "snippet", "mask", "thinking", "arguments", "calls", "prose", "middle"),
    )
    touches: ClassVar[frozenset[Kind]] = frozenset({"result", "thinking", "arguments", "assistant text"})

    arrival: BackReferences = field(default_factory=BackReferences)
    economy: Economy | None = None
    """What the provider charges; `compact` and `Session` look it up by the model."""
    phi: float = 0.6
    """The share of what was saved that a change may spend."""
    age: int = 4
    """Requests that a text has been in before it may be snipped, or thinking and arguments go."""
    stale: bool = True
    """Reads of a file that was written later, or read again, go."""
    snippet: int | None = 2048
    """Bytes from which an old result keeps only its head and its tail."""
    ends: int = 512
    """Characters of each, rounded down to whole lines if there are any."""
    mask: int | None = None
    """Results before the last so many go."""
    thinking: bool = False
    """Old thinking goes, never that of the running tool loop, and only together with something that has a marker: its
    record in the store is named there."""
    arguments: int | None = None
    """Bytes from which a string in the arguments of an old call goes."""
    calls: bool = False
    """Strings in the arguments of an old call go if a call before it had the same arguments."""
    prose: int | None = None
    """Bytes from which an old text of the model keeps only its first and last paragraph and what is not plain prose."""
    middle: int | None = None
    """Results, long strings in arguments, and texts of the model before the last so many messages go."""
    store: Any = None
    """Where originals are kept. `compact` and `Session` put one here; without, nothing is kept: for measuring only."""

    way: str = ""
    """The tool that gives a text back, named in its marker. `compact` and `Session` look for it in the request."""

    def settled(self, economy: Economy, store: Any, way: str) -> Evict:
        """With what was left open: what the provider charges, a store, and the way back."""
        return replace(self, economy=self.economy or economy, store=self.store or store, way=self.way or way)

    def plan(self, conv: Conversation) -> Plan:
        keep = None if self.store is None else keeper(self.store, conversation_key(conv.messages))
        return EvictionFold(self, not conv.dialect.clears_history(conv.head), keep).through(conv.messages)


class EvictionFold:
    """The state after some requests."""

    def __init__(self, settings: Evict, refers: bool = True, keep: Keep | None = None) -> None:
        self.settings = settings
        self.fold = BackrefFold(settings.arrival, refers, self._evicted)
        self._went: set[str] = set()
        """References of what this fold let go itself."""
        self._doubted = 0
        """Texts that the store did not confirm."""
        self.bank = Bank(settings.economy or Economy(), settings.phi)
        self.points: list[Point] = []
        self.length = 0
        """Messages that were taken in."""
        self.sent = -1
        """Messages of the last request."""
        self.refused = False
        """At the last request, what was to go could not be kept."""
        self.inventory = Inventory(settings)
        self.looks = True
        self._keep = keep
        self._last = ""
        """The role of the last message."""
        self._standing = self._removed = 0.0
        """Tokens of the last request as it was sent, and of what it did without."""
        self._new = self._spared = 0.0
        """The same of what came since."""

    def through(self, messages: Sequence[Message], moments: Mapping[int, Moment] | None = None) -> Plan:
        """Take in what is new of a history, with a request wherever the model spoke, and one at its end."""
        return self.further(messages[self.length :], moments or {})

    def further(self, new: Sequence[Message], moments: Mapping[int, Moment]) -> Plan:
        """The same, given only what is new."""
        for message in new:
            place = self.length
            answered = place and message.role == "assistant" and self._last != "assistant"
            if (answered or place in moments) and self.sent != place:
                self.request(moments.get(place, Moment()))
            self.feed(message)
        if self.sent != self.length:  # the same request again is no other request
            self.request(moments.get(self.length, Moment()))
        if self._keep is not None and (self.points or not self.looks):
            self._keep({})  # what was let go is still referred to
        return self.plan

    @property
    def plan(self) -> Plan:
        edits = [entry.edit for entry in self.inventory.all if entry.edit is not None]
        return Plan(tuple(edits), tuple(self.points))

    def feed(self, message: Message) -> None:
        """Take in a message. Its arrival edits are made here."""
        edits = {edit.path: edit for edit in self.fold.feed(message)}
        tag = self.fold.sources.tag
        targets = {source for said in self.fold.said for source in said.targets}
        shown = {source: found for source in targets if (found := self.fold.known.shown(source)) is not None}
        for entry in self.inventory.take(message, self.fold.said, edits, tag):
            if entry.kind == "result":
                self.inventory.refer(entry, shown)
            self._new += entry.sent
            self._spared += entry.tokens - entry.sent
        if any(self._evicted(text) for _, text in own_texts(message)):
            self.fold.rewritten = True
        self.looks = self.looks and not self.fold.rewritten
        self.length += 1
        self._last = message.role

    def request(self, moment: Moment) -> None:
        """Everything taken in is sent. Whether something goes first is decided here."""
        economy = self.bank.economy
        self.bank.reported(moment.context, self._standing)
        self.inventory.grow_older()
        cold = not self._standing or economy.forgets(moment.idle)
        self.refused, self.sent = moment.refused, self.length
        undone = self.length - 1 in self.fold.as_is  # it went out without what was planned for it
        if self.looks and not (moment.refused or undone or (economy.preserved_thinking and self.inventory.thinks)):
            self._look(moment)
        self.bank.settle(self._removed, self._spared, cold)
        self._standing += self._new
        self._removed += self._spared
        self._new = self._spared = 0.0

    def _look(self, moment: Moment) -> None:
        waiting = self.inventory.waiting
        if self.bank.reason(self._standing, waiting.tokens, moment) is None:  # more than can go: this is a quick no
            return
        if self.bank.reason(self._standing, waiting.most(), moment) is None:  # and this a slower one
            return
        going = waiting.free_to_go()
        freed = sum(entry.sent - entry.going.left for entry in going if entry.going)
        reason = self.bank.reason(self._standing, freed, moment)
        if reason is None:
            return
        if not self._kept(going):
            self.refused = True
            return
        rewritten, break_even = self.bank.pay(self._standing, freed, reason)
        first = min(entry.message for entry in going)
        self.points.append(Point(self.length, first, reason, rewritten, freed, break_even))
        for entry in going:
            self._evict(entry)

    def _evicted(self, text: str) -> bool:
        """Whether a text is what is left of one that the store keeps, and not just a text that says so."""
        found = stub(text, self.fold.sources.tag)
        if found is None or self.settings.store is None or found.ref in self._went or self._doubted >= MAX_DOUBTED:
            return False
        try:
            kept = self.settings.store.get([found.ref])
        except IbidemError:
            kept = {}
        if found.ref in kept and left_of(text, kept[found.ref], self.fold.sources.tag):
            return True
        self._doubted += 1
        return False

    def _kept(self, going: Sequence[Entry]) -> bool:
        originals = {ref: text for entry in going if entry.going for ref, text in entry.going.originals.items()}
        return self._keep is None or not originals or self._keep(originals)

    def _evict(self, entry: Entry) -> None:
        assert entry.going is not None
        self._went.update(entry.going.originals)
        entry.edit = _edit(entry, entry.going)
        freed = self.inventory.waiting.evict(entry)
        self._standing -= freed
        self._removed += freed
        for source in entry.sources:
            self.fold.forget(source)


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
    )
