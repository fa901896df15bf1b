"""The texts that wait for a change: how much they could free at most, and which of them may go now.

A text that something refers to as a whole stays until what refers to it goes as well, and of others the lines stay that
something refers to. So which texts may go depends on which others do, and that is worked out for all of them together.
Most requests change nothing: for these it is enough to know that all that waits could not free what a change must free.
That bound is kept up to date by what is new. Each text adds to it what it would free if everything else went that waits
and could go; once all were worked out together, what was found there, until something it depends on begins to wait.

Working it out may cost a fixed multiple of the conversation's text over its lifetime, and not more (law 11). A history
that is made to cost more is looked at less often.
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
"""Tokens that must be freed, or a text had better stay."""
ESTIMATE_SLACK = 8.0
"""Tokens by which an estimate may be wrong, however few there are."""
LOOKS_PER_CHARACTER = 16
"""Characters that may be looked at again for each that was taken in."""
STARTING_CREDIT = 1 << 22
"""Characters that may be looked at again before anything was taken in: enough for short conversations."""
KNOWN_ANSWER_COST = 64
"""What an answer that is known already costs, in characters."""
MAX_OUTLOOKS = 4
"""Answers that are known of a text."""
ESTIMATE_ERROR = 1.05
"""How much less than the truth an estimate of tokens may be."""


class Outlook(NamedTuple):
    """How a text goes of which certain lines must stay."""

    going: Eviction | None
    smaller: bool
    true: bool
    """References still find what they point at."""


class Waiting:
    def __init__(self, settings: Evict) -> None:
        self.settings = settings
        self.tag = ""
        self.texts: dict[int, Entry] = {}
        """By identity."""
        self.floor = -1
        """The last message with thinking that stays and counts on all that was sent before it: only texts behind it may
        change. -1 where there is none, or thinking does not count on that."""
        self.thinking_stays = False
        """What is recorded of it could not be told from something else."""
        self._by_source: dict[Source, Entry] = {}
        self._referrers: dict[Source, dict[int, tuple[Entry, tuple[Pin, ...]]]] = {}
        """What refers to a text and is not gone."""
        self._lasting: dict[Source, dict[int, tuple[Pin, ...]]] = {}
        """Those of them that do not wait, or could not go if everything else went."""
        self.tokens = 0.0
        """Of everything that waits."""
        self.turn = 0
        """The request that will be sent next."""
        self._begun = self._sum_begun = self._thinking_begun = 0.0
        """Tokens times the request from which on they wait: of all, of what could be freed at most, of thinking."""
        self._places: list[tuple[int, int]] = []
        """A heap of what waits, by message; what went is still there."""
        self._hopeful: dict[int, Entry] = {}
        """Those that might go now."""
        self._bounds: dict[int, float] = {}
        """Tokens that each of these could free, at most."""
        self._sum = 0.0
        self._unsure: dict[int, Entry] = {}
        """Those whose bound has to be found out."""
        self._settled: set[int] = set()
        """Those whose bound is what was worked out with all others."""
        self._thoughts: dict[int, Entry] = {}
        """Thinking that waits: nothing refers to it, and it goes whole."""
        self._thinking = 0.0
        """Tokens of it."""
        self._came = 0
        """How many came to wait."""
        self._newest = -1
        """The last message that a text waits in, or waited."""
        self._credit = STARTING_CREDIT

    def taken(self, entry: Entry) -> None:
        """One more text in the conversation."""
        self._by_source.update(dict.fromkeys(entry.sources, entry))
        self._credit += LOOKS_PER_CHARACTER * len(entry.text)

    def refer(self, entry: Entry, pins: Iterable[Pin]) -> None:
        """A text refers to others."""
        entry.pins = tuple(pins)
        by_source: dict[Source, list[Pin]] = {}
        for pin in entry.pins:
            if pin.marker.source is not None:
                by_source.setdefault(pin.marker.source, []).append(pin)
        for source, found in by_source.items():
            self._referrers.setdefault(source, {})[id(entry)] = entry, tuple(found)
            self._lasting.setdefault(source, {})[id(entry)] = tuple(found)

    def add(self, entry: Entry) -> None:
        """A text waits, or waits to go in another way."""
        if id(entry) not in self.texts:
            self._credit -= len(entry.text) if entry.rank else 0  # it waited before: what was worked out is forgotten
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

    # ── at most ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def first(self) -> int:
        """The first message with something that waits; 0 if nothing does."""
        while self._places and self._places[0][1] not in self.texts:
            heappop(self._places)
        return self._places[0][0] if self._places else 0

    def all(self) -> tuple[float, float]:
        """Tokens of all that waits, and how long they have waited: as many for every request."""
        return self.tokens, self.turn * self.tokens - self._begun

    def most(self) -> tuple[float, float]:
        """Tokens that a change could free now, and how long they have waited; maybe more."""
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
        """What a text could free has to be found out again."""
        self._settled.discard(id(entry))
        self._unsure.pop(id(entry), None)
        self._unsure[id(entry)] = entry

    def _bound(self, entry: Entry, tokens: float | None) -> None:
        """None: it stays."""
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
        if tokens is not None:  # it may go: then what depends on it may, too
            for other in self._beside(entry):
                if id(other) in self._settled:
                    self._doubt(other)

    def _lasts(self, entry: Entry, lasts: bool) -> list[Entry]:
        """Note whether a text stays in any case; returns those that wait for it, if that is new."""
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
        """Tokens that a text frees if everything else that may go does; None if it stays even then.

        The more of it stays, the fewer.
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
        """The texts that wait which this one refers to, or which refer to it."""
        for pin in entry.pins:
            target = self._by_source.get(pin.marker.source) if pin.marker.source else None
            if target is not None and id(target) in self.texts:
                yield target
        for source in entry.sources:
            for key, (other, _) in self._referrers.get(source, {}).items():
                if key in self.texts:
                    yield other

    # ── what goes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def free_to_go(self) -> list[Entry]:
        """What waits and may go now, each with how it goes.

        What goes refers to nothing any more. So first all of it goes but what something refers to as a whole that
        stays; then, of each, the lines stay that something refers to. Whenever a text stays after all, those beside it
        are looked at again.
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
        """All thinking that waits, or none. Where it counts on what was sent before it, none may stay behind a text
        that changes."""
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
        """How a text goes with these lines pinned; worked out once."""
        key = frozenset((pin.first, pin.last, pin.marker.unit) for pin in pins)
        found = entry.answers.get(key)
        if found is None:
            self._credit -= (
                len(entry.text) + len(entry.now) if entry.answers else 0
            )  # once for each text is unavoidable
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
        """Whether something can go only because this goes too: then it may go however short it is."""
        targets = (self._by_source.get(pin.marker.source) for pin in entry.pins if pin.marker.source)
        return any(target is not None and id(target) in going for target in targets)

    def _settle(self, hopeful: Iterable[Entry], going: Mapping[int, Entry]) -> None:
        """What was worked out is what could be freed, until something else begins to wait."""
        for entry in hopeful:
            how = entry.going if id(entry) in going else None
            self._bound(entry, None if how is None else entry.sent - how.left)
            self._settled.add(id(entry))

    def evict(self, entry: Entry) -> float:
        """Returns the tokens freed."""
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
        """A text does not wait any more, and stays."""
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
    """Tokens that a text must free. Thinking goes together, and leaves no marker."""
    return 0.0 if entry.kind == "thinking" else MIN_FREED_TOKENS


def _stuck(pins: list[Pin]) -> bool:
    """Something refers to all of it."""
    return any(not pin.last for pin in pins)
