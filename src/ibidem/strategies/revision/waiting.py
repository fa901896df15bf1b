"""Queue of the texts that wait for a revision. It computes which may be evicted now, and how many tokens that frees.

If another text refers to a whole text, that text stays until the other one is evicted too. If it refers to some lines,
only these lines stay. So the decisions depend on each other and are made together. Most requests change no text: for
these, an upper bound of the freeable tokens is enough. The bound is updated incrementally.
Each text adds the tokens that it would free if all other possible texts were evicted. After a joint computation it adds
the computed tokens, until a text that it depends on is queued.

The total work is limited to a fixed multiple of the conversation's text (invariant 11). A history that is built to cost
more is checked less often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from ...markers.backref import Source
from ...markers.layout import Shown
from ...model import size
from ...wire import no_larger
from .entry import Entry, Eviction, Pin
from .stub import eviction_of, still_true

if TYPE_CHECKING:
    from .evict import Evict

MIN_FREED_TOKENS = 40.0
"""Minimum tokens that the eviction of a text must free."""
ESTIMATE_SLACK = 8.0
"""Tokens by which an estimate may be wrong, even for a short text."""
LOOKS_PER_CHARACTER = 16
"""Characters that may be read again for each character of the conversation."""
STARTING_CREDIT = 1 << 22
"""Characters that may be read again in addition: enough for short conversations."""
KNOWN_ANSWER_COST = 64
"""Cost of a cached option, in characters."""
MAX_OUTLOOKS = 4
"""Maximum cached options of a text."""
ESTIMATE_ERROR = 1.05
"""Factor by which a token estimate may be too low."""


class Outlook(NamedTuple):
    """A possible eviction of a text if certain lines must stay."""

    going: Eviction | None
    smaller: bool
    true: bool
    """True if references still find their lines."""


class Waiting:
    """The texts that are eligible for eviction."""

    def __init__(self, settings: Evict) -> None:
        self.settings = settings
        self.tag = ""
        self.texts: dict[int, Entry] = {}
        """Queued texts by `id`."""
        self.floor = -1
        """Index of the last message with thinking that stays and is signed against all text before it. Only texts after
        it may change. -1: no such message."""
        self.thinking_stays = False
        """True if thinking must stay, because its records would be ambiguous."""
        self._by_source: dict[Source, Entry] = {}
        self._referrers: dict[Source, dict[int, tuple[Entry, tuple[Pin, ...]]]] = {}
        """Texts that refer to a source and are not evicted, with their pins."""
        self._lasting: dict[Source, dict[int, tuple[Pin, ...]]] = {}
        """Pins of those that are not queued, or could not be evicted even if all other texts were."""
        self.tokens = 0.0
        """Tokens of all queued texts."""
        self.turn = 0
        """Number of the request that will be sent next."""
        self._begun = self._sum_begun = self._thinking_begun = 0.0
        """Sum of tokens times the request number when they were queued: all texts, the upper bound, only thinking."""
        self._places: list[tuple[int, int]] = []
        """Heap of queued texts by message. It may still contain texts that left the queue."""
        self._hopeful: dict[int, Entry] = {}
        """Texts that might be evicted now."""
        self._bounds: dict[int, float] = {}
        """Upper bound of the tokens that each of these would free."""
        self._sum = 0.0
        self._unsure: dict[int, Entry] = {}
        """Texts whose bound must be computed."""
        self._settled: set[int] = set()
        """Texts whose bound comes from a joint computation."""
        self._thoughts: dict[int, Entry] = {}
        """Queued thinking. No reference points at it, and it is removed as a whole."""
        self._thinking = 0.0
        """Tokens of the queued thinking."""
        self._came = 0
        """Number of texts that were ever queued."""
        self._newest = -1
        """Last message with a text that is or was queued."""
        self._credit = STARTING_CREDIT

    def taken(self, entry: Entry) -> None:
        """Register a new text of the conversation, queued or not."""
        self._by_source.update(dict.fromkeys(entry.sources, entry))
        self._credit += LOOKS_PER_CHARACTER * len(entry.text)

    def refer(self, entry: Entry, pins: Iterable[Pin]) -> None:
        """Record the lines that a text refers to."""
        entry.pins = tuple(pins)
        by_source: dict[Source, list[Pin]] = {}
        for pin in entry.pins:
            if pin.marker.source is not None:
                by_source.setdefault(pin.marker.source, []).append(pin)
        for source, found in by_source.items():
            self._referrers.setdefault(source, {})[id(entry)] = entry, tuple(found)
            self._lasting.setdefault(source, {})[id(entry)] = tuple(found)

    def add(self, entry: Entry) -> None:
        """Queue a text, or update its reason."""
        if id(entry) not in self.texts:
            self._credit -= len(entry.text) if entry.rank else 0  # it was queued before: its cached options are lost
            entry.rank = self._came = self._came + 1
            entry.since = self.turn
            self.tokens += entry.sent
            self._begun += entry.sent * entry.since
            heappush(self._places, (entry.message, id(entry)))
            if entry.kind == "thinking":
                self._thoughts[id(entry)] = entry
                self._thinking += entry.sent
                self._thinking_begun += entry.sent * entry.since
            else:
                self._newest = max(self._newest, entry.message)
        self.texts[id(entry)] = entry
        entry.answers.clear()
        if entry.kind != "thinking":
            self._doubt(entry)

    # ── Upper bounds ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def first(self) -> int:
        """Index of the first message with a queued text; 0 if the queue is empty."""
        while self._places and self._places[0][1] not in self.texts:
            heappop(self._places)
        return self._places[0][0] if self._places else 0

    def all(self) -> tuple[float, float]:
        """Return the tokens of all queued texts, and the sum of tokens times requests that they have waited."""
        return self.tokens, self.turn * self.tokens - self._begun

    def most(self) -> tuple[float, float]:
        """Return an upper bound of `waiting_tokens` for the texts that could be evicted now."""
        while self._unsure and self._credit >= 0:
            self._tighten(self._unsure.popitem()[1])
        if self._credit < 0:
            return 0.0, 0.0
        freed = begun = 0.0
        if self._bounds and self._newest > self.floor:
            freed, begun = self._sum * (1 + 1e-9) + 1e-6, self._sum_begun * (1 - 1e-9)  # sums are not exact
        if not self.thinking_stays:
            freed, begun = freed + self._thinking, begun + self._thinking_begun
        return freed, self.turn * freed - begun

    def _doubt(self, entry: Entry) -> None:
        """Recompute the bound of a text later."""
        self._settled.discard(id(entry))
        self._unsure.pop(id(entry), None)
        self._unsure[id(entry)] = entry

    def _bound(self, entry: Entry, tokens: float | None) -> None:
        """Set the bound of a text. None: it stays."""
        known = self._bounds.pop(id(entry), 0.0)
        self._sum -= known
        self._sum_begun -= known * entry.since
        self._hopeful.pop(id(entry), None)
        if tokens is not None:
            self._hopeful[id(entry)] = entry
            self._bounds[id(entry)] = tokens
            self._sum += tokens
            self._sum_begun += tokens * entry.since

    def _tighten(self, entry: Entry) -> None:
        tokens = self._at_most(entry)
        self._bound(entry, tokens)
        for target in self._lasts(entry, tokens is None):
            self._doubt(target)
        if tokens is not None:  # it may be evicted, so related texts may be, too
            for other in self._beside(entry):
                if id(other) in self._settled:
                    self._doubt(other)

    def _lasts(self, entry: Entry, lasts: bool) -> list[Entry]:
        """Record if a text stays in any case. Return the queued texts whose bound changes by that."""
        changed: dict[Source, Entry] = {}
        for pin in entry.pins:
            source = pin.marker.source
            if source is None or source in changed or (id(entry) in self._lasting[source]) is lasts:
                continue
            if lasts:
                self._lasting[source][id(entry)] = self._referrers[source][id(entry)][1]
            else:
                del self._lasting[source][id(entry)]
            target = self._by_source.get(source)
            if target is not None and id(target) in self.texts:
                changed[source] = target
        return list(changed.values())

    def _at_most(self, entry: Entry) -> float | None:
        """Return the tokens that a text frees if all other possible texts are evicted; None if it stays even then.

        It is an upper bound: if more lines must stay, fewer tokens are freed.
        """
        pins = [pin for source in entry.sources for each in self._lasting.get(source, {}).values() for pin in each]
        self._credit -= KNOWN_ANSWER_COST + len(pins)
        if _stuck(pins):
            return None
        answer = self._answer(entry, pins)
        if answer.going is None or not answer.smaller:
            return None
        if not answer.true:
            return entry.sent
        freed = entry.sent - answer.going.left
        freed = min(entry.sent, ESTIMATE_ERROR * freed + ESTIMATE_SLACK) if pins else freed
        return freed if freed >= (0.0 if entry.pins else least(entry)) else None

    def _beside(self, entry: Entry) -> Iterator[Entry]:
        """Yield the queued texts that this one refers to, or that refer to it."""
        for pin in entry.pins:
            target = self._by_source.get(pin.marker.source) if pin.marker.source else None
            if target is not None and id(target) in self.texts:
                yield target
        for source in entry.sources:
            for key, (other, _) in self._referrers.get(source, {}).items():
                if key in self.texts:
                    yield other

    # ── Selection ────────────────────────────────────────────────────────────────────────────────────────────────────

    def free_to_go(self) -> list[Entry]:
        """Return the queued texts that may be evicted now, each with its planned eviction.

        Evicted texts refer to no other text. So start with all possible texts, and remove those that cannot be evicted
        while others stay. After each removal, check the related texts again.
        """
        hopeful = sorted(self._hopeful.values(), key=lambda entry: entry.rank)
        going = {id(entry): entry for entry in hopeful if entry.message > self.floor}
        held = len(going) < len(hopeful)
        unsure = dict(going)
        while unsure:
            staying = [entry for entry in unsure.values() if not self._goes(entry, going)]
            for entry in staying:
                del going[id(entry)]
            unsure = {id(each): each for entry in staying for each in self._beside(entry) if id(each) in going}
            if self._credit < 0:
                return []
        if not held:
            self._settle(hopeful, going)
        return sorted([*going.values(), *self._going_thoughts(bool(going))], key=lambda entry: entry.message)

    def goes_alone(self, entry: Entry) -> bool:
        """Return True if a text may go while everything else stays."""
        waits = id(entry) in self.texts and entry.message > self.floor and self._credit >= 0
        return waits and self._goes(entry, {id(entry): entry})

    def _going_thoughts(self, with_texts: bool) -> Iterable[Entry]:
        """Return all queued thinking, or an empty list. Signed thinking must not stay after a text that changes."""
        few = self._thinking < MIN_FREED_TOKENS
        if self.thinking_stays or (few and not (with_texts and self.settings.preserves_thinking)):
            return ()
        for entry in self._thoughts.values():
            assert entry.candidate is not None
            entry.going = Eviction(entry.candidate.label, "", 0.0, entry.candidate.reason, {})
        return self._thoughts.values()

    def _goes(self, entry: Entry, going: Mapping[int, Entry]) -> bool:
        referrers = [each for source in entry.sources for each in self._referrers.get(source, {}).values()]
        pins = [pin for other, found in referrers if id(other) not in going for pin in found]
        self._credit -= KNOWN_ANSWER_COST + len(referrers) + len(pins)
        if _stuck(pins):
            return False
        answer = self._answer(entry, pins)
        entry.going = answer.going
        if entry.going is None or entry.sent - entry.going.left < (0.0 if self._frees(entry, going) else least(entry)):
            return False
        return answer.smaller and answer.true

    def _answer(self, entry: Entry, pins: list[Pin]) -> Outlook:
        """Return the eviction option of a text with these pins, cached."""
        key = frozenset((pin.first, pin.last, pin.marker.unit) for pin in pins)
        found = entry.answers.get(key)
        if found is None:
            self._credit -= (
                len(entry.text) + len(entry.now) if entry.answers else 0
            )  # the first computation for each text is free, because it is unavoidable
            stay, shown = [(first, last) for first, last, _ in key], Shown.of(entry.now, self.tag)
            going = eviction_of(entry, shown, stay, self.settings.way)
            smaller = going is not None and _smaller(going.added, entry.text)
            true = going is not None and smaller and still_true(shown, going.added, pins)
            found = Outlook(going, smaller, true)
            if len(entry.answers) >= MAX_OUTLOOKS:
                del entry.answers[next(iter(entry.answers))]
            entry.answers[key] = found
        return found

    def _frees(self, entry: Entry, going: Mapping[int, Entry]) -> bool:
        """Return True if another text can be evicted only together with this one. Then its length does not matter."""
        targets = (self._by_source.get(pin.marker.source) for pin in entry.pins if pin.marker.source)
        return any(target is not None and id(target) in going for target in targets)

    def _settle(self, hopeful: Iterable[Entry], going: Mapping[int, Entry]) -> None:
        """Use the result of the joint computation as bounds, until a related text is queued."""
        for entry in hopeful:
            how = entry.going if id(entry) in going else None
            self._bound(entry, None if how is None else entry.sent - how.left)
            self._settled.add(id(entry))

    def evict(self, entry: Entry) -> float:
        """Record the eviction of a text. Return the freed tokens."""
        assert entry.going is not None
        freed = entry.sent - entry.going.left
        self._remove(entry)
        for pin in entry.pins:
            if pin.marker.source is not None:
                self._referrers[pin.marker.source].pop(id(entry), None)
                self._lasting[pin.marker.source].pop(id(entry), None)
        entry.evicted, entry.pins, entry.sent = entry.going, (), entry.going.left
        return freed

    def withdraw(self, entry: Entry) -> None:
        """Remove a text that stays from the queue."""
        self._remove(entry)
        for target in self._lasts(entry, True):
            self._doubt(target)

    def _remove(self, entry: Entry) -> None:
        if self.texts.pop(id(entry), None) is not None:
            self.tokens -= entry.sent
            self._begun -= entry.sent * entry.since
            if self._thoughts.pop(id(entry), None) is not None:
                self._thinking -= entry.sent
                self._thinking_begun -= entry.sent * entry.since
            self._bound(entry, None)
            self._settled.discard(id(entry))
            self._unsure.pop(id(entry), None)
            entry.answers.clear()


def _smaller(new: str, old: str) -> bool:
    return size(new) < size(old) and no_larger(new, old)


def least(entry: Entry) -> float:
    """Return the minimum tokens that a text must free; 0 for thinking, which is removed together and has no marker."""
    return 0.0 if entry.kind == "thinking" else MIN_FREED_TOKENS


def _stuck(pins: list[Pin]) -> bool:
    """Return True if a reference needs the whole text."""
    return any(not pin.last for pin in pins)
