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

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...markers.backref import Source
from ...model import size
from ...wire import no_larger
from .entry import Going, Held, Pin
from .stub import carried, leaving, still_true

if TYPE_CHECKING:
    from .evict import LookBack

LEAST = 40.0
"""Tokens that must be freed, or a text had better stay."""
THOUGHT = 8.0
"""The same of thinking, which leaves no marker."""
LOOKS = 16
"""Characters that may be looked at again for each that was taken in."""
START = 1 << 22
"""The same at the beginning, for short conversations."""
STEP = 64
"""What an answer that is known already costs, in characters."""
REMEMBERED = 4
"""Answers that are known of a text."""
NOISE = 1.05
"""How much less than the truth an estimate of tokens may be."""


class Answer(NamedTuple):
    """How a text goes of which certain lines must stay."""

    going: Going | None
    smaller: bool
    true: bool
    """References still find what they point at."""


class Waiting:
    def __init__(self, settings: LookBack) -> None:
        self.settings = settings
        self.tag = ""
        self.loop = 0
        """The message from which on the running tool loop reaches."""
        self.texts: dict[int, Held] = {}
        """By identity."""
        self.gone: list[Held] = []
        """Those that left a marker, in the order of the conversation."""
        self._by_source: dict[Source, Held] = {}
        self._referrers: dict[Source, dict[int, tuple[Held, tuple[Pin, ...]]]] = {}
        """What refers to a text and is not gone."""
        self._lasting: dict[Source, dict[int, tuple[Pin, ...]]] = {}
        """Those of them that do not wait, or could not go if everything else went."""
        self.tokens = 0.0
        """Of everything that waits."""
        self._hopeful: dict[int, Held] = {}
        """Those that might go now."""
        self._bounds: dict[int, float] = {}
        """Tokens that each of these could free, at most."""
        self._sum = 0.0
        self._unsure: dict[int, Held] = {}
        """Those whose bound has to be found out."""
        self._settled: set[int] = set()
        """Those whose bound is what was worked out with all others."""
        self._thoughts: deque[Held] = deque()
        """Thinking that waits in the running tool loop, oldest first."""
        self._free_thoughts = 0.0
        """Tokens of the other thinking that waits."""
        self._came = 0
        """How many came to wait."""
        self._credit = START

    def taken(self, held: Held) -> None:
        """One more text in the conversation."""
        self._by_source.update(dict.fromkeys(held.sources, held))
        self._credit += LOOKS * len(held.text)

    def refer(self, held: Held, pins: Iterable[Pin]) -> None:
        """A text refers to others."""
        held.pins = tuple(pins)
        by_source: dict[Source, list[Pin]] = {}
        for pin in held.pins:
            if pin.marker.source is not None:
                by_source.setdefault(pin.marker.source, []).append(pin)
        for source, found in by_source.items():
            target = self._by_source.get(source)
            if target is not None and id(target) in self.texts and _has_ends(target) and not self._lasting.get(source):
                self._doubt(target)
            self._referrers.setdefault(source, {})[id(held)] = held, tuple(found)
            self._lasting.setdefault(source, {})[id(held)] = tuple(found)

    def add(self, held: Held) -> None:
        """A text waits, or waits to go in another way."""
        if id(held) not in self.texts:
            held.rank = self._came = self._came + 1
            self.tokens += held.sent
            if held.kind == "thinking":
                self._thoughts.append(held)
                self._hopeful[id(held)] = held
        self.texts[id(held)] = held
        held.answers.clear()
        if held.kind != "thinking":
            self._doubt(held)

    # ── at most ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def most(self) -> float:
        """Tokens that a change could free now, and maybe more."""
        while self._thoughts and self._thoughts[0].message < self.loop:
            self._free_thoughts += self._thoughts.popleft().sent
        while self._unsure and self._credit >= 0:
            self._tighten(self._unsure.popitem()[1])
        if self._credit < 0:
            return 0.0
        texts = self._sum * (1 + 1e-9) + 1e-6 if self._bounds else 0.0  # sums are not exact
        return texts + self._free_thoughts

    def _doubt(self, held: Held) -> None:
        """What a text could free has to be found out again."""
        self._settled.discard(id(held))
        self._unsure.pop(id(held), None)
        self._unsure[id(held)] = held

    def _bound(self, held: Held, tokens: float | None) -> None:
        """None: it stays."""
        self._sum -= self._bounds.pop(id(held), 0.0)
        self._hopeful.pop(id(held), None)
        if tokens is not None:
            self._hopeful[id(held)] = held
            self._bounds[id(held)] = tokens
            self._sum += tokens

    def _tighten(self, held: Held) -> None:
        tokens = self._at_most(held)
        self._bound(held, tokens)
        for target in self._lasts(held, tokens is None):
            self._doubt(target)
        if tokens is not None:  # it may go: then what depends on it may, too
            for other in self._beside(held):
                if id(other) in self._settled:
                    self._doubt(other)

    def _lasts(self, held: Held, lasts: bool) -> list[Held]:
        """Note whether a text stays in any case; returns those that wait for it, if that is new."""
        changed: dict[Source, Held] = {}
        for pin in held.pins:
            source = pin.marker.source
            if source is None or source in changed or (id(held) in self._lasting[source]) is lasts:
                continue
            if lasts:
                self._lasting[source][id(held)] = self._referrers[source][id(held)][1]
            else:
                del self._lasting[source][id(held)]
            target = self._by_source.get(source)
            if target is not None and id(target) in self.texts:
                changed[source] = target
        return list(changed.values())

    def _at_most(self, held: Held) -> float | None:
        """Tokens that a text frees if everything else that may go does; None if it stays even then.

        The more of it stays, the fewer.
        """
        pins = [pin for source in held.sources for each in self._lasting.get(source, {}).values() for pin in each]
        self._credit -= STEP + len(pins)
        if _stuck(held, pins):
            return None
        if self._odd(held):
            return held.sent
        answer = self._answer(held, pins)
        if answer.going is None or not answer.smaller:
            return None
        if not answer.true:
            return held.sent
        freed = held.sent - answer.going.left
        freed = min(held.sent, NOISE * freed + THOUGHT) if pins else freed
        return freed if freed >= (0.0 if held.pins else least(held)) else None

    def _odd(self, held: Held) -> bool:
        """Whether it could free more if less went: what refers to it may go, and it keeps its ends only then."""
        if not _has_ends(held) or any(self._lasting.get(source) for source in held.sources):
            return False
        return any(self._referrers.get(source) for source in held.sources)

    def _beside(self, held: Held) -> Iterator[Held]:
        """The texts that wait which this one refers to, or which refer to it."""
        for pin in held.pins:
            target = self._by_source.get(pin.marker.source) if pin.marker.source else None
            if target is not None and id(target) in self.texts:
                yield target
        for source in held.sources:
            for key, (other, _) in self._referrers.get(source, {}).items():
                if key in self.texts:
                    yield other

    # ── what goes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def free_to_go(self) -> list[Held]:
        """What waits and may go now, each with how it goes.

        What goes refers to nothing any more. So first all of it goes but what something refers to as a whole that
        stays; then, of each, the lines stay that something refers to. Whenever a text stays after all, those beside it
        are looked at again.
        """
        hopeful = sorted(self._hopeful.values(), key=lambda held: held.rank)
        going = {id(held): held for held in hopeful if not self._needed(held)}
        unsure = dict(going)
        while unsure:
            staying = [held for held in unsure.values() if not self._goes(held, going)]
            for held in staying:
                del going[id(held)]
            unsure = {id(each): each for held in staying for each in self._beside(held) if id(each) in going}
            if self._credit < 0:
                return []
        self._settle(hopeful, going)
        return sorted(self._recorded(list(going.values())), key=lambda held: held.message)

    def _needed(self, held: Held) -> bool:
        """Thinking of the running tool loop is demanded by providers."""
        return held.kind == "thinking" and held.message >= self.loop

    def _goes(self, held: Held, going: Mapping[int, Held]) -> bool:
        referrers = [each for source in held.sources for each in self._referrers.get(source, {}).values()]
        pins = [pin for other, found in referrers if id(other) not in going for pin in found]
        self._credit -= STEP + len(referrers) + len(pins)
        if _stuck(held, pins):
            return False
        answer = self._answer(held, pins)
        held.going = answer.going
        if held.going is None or held.sent - held.going.left < (0.0 if self._frees(held, going) else least(held)):
            return False
        return answer.smaller and answer.true

    def _answer(self, held: Held, pins: list[Pin]) -> Answer:
        """How a text goes with these lines pinned; worked out once."""
        key = frozenset((pin.first, pin.last, pin.marker.unit) for pin in pins)
        found = held.answers.get(key)
        if found is None:
            self._credit -= len(held.text) + len(held.now) if held.answers else 0  # once for each text is unavoidable
            stay, settings = [(first, last) for first, last, _ in key], self.settings
            going = leaving(held, stay, self.tag, settings.ends, settings.way)
            smaller = going is not None and _smaller(going.added, held.text)
            true = going is not None and smaller and still_true(held.now, going.added, pins, self.tag)
            found = Answer(going, smaller, true)
            if len(held.answers) >= REMEMBERED:
                del held.answers[next(iter(held.answers))]
            held.answers[key] = found
        return found

    def _frees(self, held: Held, going: Mapping[int, Held]) -> bool:
        """Whether something can go only because this goes too: then it may go however short it is."""
        targets = (self._by_source.get(pin.marker.source) for pin in held.pins if pin.marker.source)
        return any(target is not None and id(target) in going for target in targets)

    def _settle(self, hopeful: Iterable[Held], going: Mapping[int, Held]) -> None:
        """What was worked out is what could be freed, until something else begins to wait."""
        for held in hopeful:
            if held.kind != "thinking" and not self._odd(held):
                how = held.going if id(held) in going else None
                self._bound(held, None if how is None else held.sent - how.left)
                self._settled.add(id(held))

    def _recorded(self, going: list[Held]) -> list[Held]:
        """Thinking goes only where a marker can name its record, and only behind the first marker of the conversation:
        whoever reads the request again sees that it was looked at before (law 10)."""
        others = [held for held in going if held.kind != "thinking"]
        first = min((held.message for held in (*others, *self.gone)), default=None)
        thoughts = [held for held in going if held.kind == "thinking" and first is not None and held.message >= first]
        if sum(held.sent for held in thoughts) < LEAST:
            return others
        carrier = carried(thoughts, others, self.gone)
        if carrier is None:
            return others
        return [*others, *thoughts] if carrier in others else [*others, *thoughts, carrier]

    def let_go(self, held: Held) -> float:
        """Returns the tokens freed."""
        assert held.going is not None
        freed = held.sent - held.going.left
        if self.texts.pop(id(held), None) is not None:
            self.tokens -= held.sent
            self._free_thoughts -= held.sent if held.kind == "thinking" else 0.0
            self._bound(held, None)
            self._settled.discard(id(held))
            self._unsure.pop(id(held), None)
            held.answers.clear()
        for pin in held.pins:
            if pin.marker.source is not None:
                self._referrers[pin.marker.source].pop(id(held), None)
                self._lasting[pin.marker.source].pop(id(held), None)
        if held.kind != "thinking" and not held.gone:
            insort(self.gone, held, key=lambda held: held.message)
        held.went, held.pins, held.sent = held.going, (), held.going.left
        return freed


def _smaller(new: str, old: str) -> bool:
    return size(new) < size(old) and no_larger(new, old)


def least(held: Held) -> float:
    return THOUGHT if held.kind == "thinking" else LEAST


def _stuck(held: Held, pins: list[Pin]) -> bool:
    """Something refers to all of it; or to what is left of it, which stays as it is then."""
    return any(not pin.last for pin in pins) or bool(held.gone and pins)


def _has_ends(held: Held) -> bool:
    """Whether it keeps its head and its tail, and has a marker: it loses these when lines of it must stay."""
    return held.edit is not None and held.wish is not None and held.wish.ends
