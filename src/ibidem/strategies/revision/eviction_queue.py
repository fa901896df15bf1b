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
from ...markers.layout import VisibleText
from ...model import utf8_size
from ...wire import no_larger
from .entry import Eviction, InventoryEntry, Pin
from .stub import is_still_valid, make_eviction

if TYPE_CHECKING:
    from .evict import Evict

MIN_FREED_TOKENS = 40.0
"""Minimum tokens that the eviction of a text must free."""
ESTIMATE_SLACK = 8.0
"""Tokens by which an estimate may be wrong, even for a short text."""
WORK_PER_CHARACTER = 16
"""Characters that may be read again for each character of the conversation."""
STARTING_CREDIT = 1 << 22
"""Characters that may be read again in addition: enough for short conversations."""
KNOWN_OPTION_COST = 64
"""Cost of a cached option, in characters."""
MAX_OPTIONS = 4
"""Maximum cached options of a text."""
ESTIMATE_ERROR = 1.05
"""Factor by which a token estimate may be too low."""


class EvictionOption(NamedTuple):
    """A possible eviction of a text if certain lines must stay."""

    eviction: Eviction | None
    is_smaller: bool
    is_valid: bool
    """True if references still find their lines."""


class EvictionQueue:
    """The texts that are eligible for eviction."""

    def __init__(self, settings: Evict) -> None:
        self.settings = settings
        self.tag = ""
        self.texts: dict[int, InventoryEntry] = {}
        """Queued texts by `id`."""
        self.floor = -1
        """Index of the last message with thinking that stays and is signed against all text before it. Only texts after
        it may change. -1: no such message."""
        self.thinking_stays = False
        """True if thinking must stay, because its records would be ambiguous."""
        self._by_source: dict[Source, InventoryEntry] = {}
        self._referrers: dict[Source, dict[int, tuple[InventoryEntry, tuple[Pin, ...]]]] = {}
        """Texts that refer to a source and are not evicted, with their pins."""
        self._lasting_pins: dict[Source, dict[int, tuple[Pin, ...]]] = {}
        """Pins of those that are not queued, or could not be evicted even if all other texts were."""
        self.tokens = 0.0
        """Tokens of all queued texts."""
        self.turn = 0
        """Number of the request that will be sent next."""
        self._token_starts = self._bound_starts = self._thinking_starts = 0.0
        """Sum of tokens times the request number when they were queued: all texts, the upper bound, only thinking."""
        self._message_heap: list[tuple[int, int]] = []
        """Heap of queued texts by message. It may still contain texts that left the queue."""
        self._possible: dict[int, InventoryEntry] = {}
        """Texts that might be evicted now."""
        self._bounds: dict[int, float] = {}
        """Upper bound of the tokens that each of these would free."""
        self._bound_sum = 0.0
        self._unsure: dict[int, InventoryEntry] = {}
        """Texts whose bound must be computed."""
        self._settled_ids: set[int] = set()
        """Texts whose bound comes from a joint computation."""
        self._thinking_entries: dict[int, InventoryEntry] = {}
        """Queued thinking. No reference points at it, and it is removed as a whole."""
        self._thinking_tokens = 0.0
        """Tokens of the queued thinking."""
        self._added_count = 0
        """Number of texts that were ever queued."""
        self._last_message = -1
        """Last message with a text that is or was queued."""
        self._credit = STARTING_CREDIT

    def register_entry(self, entry: InventoryEntry) -> None:
        """Register a new text of the conversation, queued or not."""
        self._by_source.update(dict.fromkeys(entry.sources, entry))
        self._credit += WORK_PER_CHARACTER * len(entry.text)

    def record_pins(self, entry: InventoryEntry, pins: Iterable[Pin]) -> None:
        """Record the lines that a text refers to."""
        entry.pins = tuple(pins)
        by_source: dict[Source, list[Pin]] = {}
        for pin in entry.pins:
            if pin.marker.source is not None:
                by_source.setdefault(pin.marker.source, []).append(pin)
        for source, source_pins in by_source.items():
            self._referrers.setdefault(source, {})[id(entry)] = entry, tuple(source_pins)
            self._lasting_pins.setdefault(source, {})[id(entry)] = tuple(source_pins)

    def add(self, entry: InventoryEntry) -> None:
        """Queue a text, or update its reason."""
        if id(entry) not in self.texts:
            self._credit -= (
                len(entry.text) if entry.queue_order else 0
            )  # it was queued before: its cached options are lost
            entry.queue_order = self._added_count = self._added_count + 1
            entry.eligible_since = self.turn
            self.tokens += entry.sent_tokens
            self._token_starts += entry.sent_tokens * entry.eligible_since
            heappush(self._message_heap, (entry.message, id(entry)))
            if entry.kind == "thinking":
                self._thinking_entries[id(entry)] = entry
                self._thinking_tokens += entry.sent_tokens
                self._thinking_starts += entry.sent_tokens * entry.eligible_since
            else:
                self._last_message = max(self._last_message, entry.message)
        self.texts[id(entry)] = entry
        entry.options_by_pins.clear()
        if entry.kind != "thinking":
            self._mark_unsure(entry)

    # ── Upper bounds ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def first_message(self) -> int:
        """Index of the first message with a queued text; 0 if the queue is empty."""
        while self._message_heap and self._message_heap[0][1] not in self.texts:
            heappop(self._message_heap)
        return self._message_heap[0][0] if self._message_heap else 0

    def waiting_tokens(self) -> tuple[float, float]:
        """Return the tokens of all queued texts, and the sum of tokens times requests that they have waited."""
        return self.tokens, self.turn * self.tokens - self._token_starts

    def freeable_tokens(self) -> tuple[float, float]:
        """Return an upper bound of `waiting_tokens` for the texts that could be evicted now."""
        while self._unsure and self._credit >= 0:
            self._compute_bound(self._unsure.popitem()[1])
        if self._credit < 0:
            return 0.0, 0.0
        tokens = token_starts = 0.0
        if self._bounds and self._last_message > self.floor:
            tokens, token_starts = (
                self._bound_sum * (1 + 1e-9) + 1e-6,
                self._bound_starts * (1 - 1e-9),
            )  # sums are not exact
        if not self.thinking_stays:
            tokens, token_starts = tokens + self._thinking_tokens, token_starts + self._thinking_starts
        return tokens, self.turn * tokens - token_starts

    def _mark_unsure(self, entry: InventoryEntry) -> None:
        """Recompute the bound of a text later."""
        self._settled_ids.discard(id(entry))
        self._unsure.pop(id(entry), None)
        self._unsure[id(entry)] = entry

    def _set_bound(self, entry: InventoryEntry, tokens: float | None) -> None:
        """Set the bound of a text. None: it stays."""
        old_bound = self._bounds.pop(id(entry), 0.0)
        self._bound_sum -= old_bound
        self._bound_starts -= old_bound * entry.eligible_since
        self._possible.pop(id(entry), None)
        if tokens is not None:
            self._possible[id(entry)] = entry
            self._bounds[id(entry)] = tokens
            self._bound_sum += tokens
            self._bound_starts += tokens * entry.eligible_since

    def _compute_bound(self, entry: InventoryEntry) -> None:
        tokens = self._max_freed_tokens(entry)
        self._set_bound(entry, tokens)
        for target in self._update_lasting(entry, tokens is None):
            self._mark_unsure(target)
        if tokens is not None:  # it may be evicted, so related texts may be, too
            for other in self._related_entries(entry):
                if id(other) in self._settled_ids:
                    self._mark_unsure(other)

    def _update_lasting(self, entry: InventoryEntry, is_lasting: bool) -> list[InventoryEntry]:
        """Record if a text stays in any case. Return the queued texts whose bound changes by that."""
        targets: dict[Source, InventoryEntry] = {}
        for pin in entry.pins:
            source = pin.marker.source
            if source is None or source in targets or (id(entry) in self._lasting_pins[source]) is is_lasting:
                continue
            if is_lasting:
                self._lasting_pins[source][id(entry)] = self._referrers[source][id(entry)][1]
            else:
                del self._lasting_pins[source][id(entry)]
            target = self._by_source.get(source)
            if target is not None and id(target) in self.texts:
                targets[source] = target
        return list(targets.values())

    def _max_freed_tokens(self, entry: InventoryEntry) -> float | None:
        """Return the tokens that a text frees if all other possible texts are evicted; None if it stays even then.

        It is an upper bound: if more lines must stay, fewer tokens are freed.
        """
        pins = [pin for source in entry.sources for each in self._lasting_pins.get(source, {}).values() for pin in each]
        self._credit -= KNOWN_OPTION_COST + len(pins)
        if _is_pinned_whole(pins):
            return None
        option = self._find_option(entry, pins)
        if option.eviction is None or not option.is_smaller:
            return None
        if not option.is_valid:
            return entry.sent_tokens
        freed_tokens = entry.sent_tokens - option.eviction.remaining_tokens
        freed_tokens = min(entry.sent_tokens, ESTIMATE_ERROR * freed_tokens + ESTIMATE_SLACK) if pins else freed_tokens
        return freed_tokens if freed_tokens >= (0.0 if entry.pins else minimum_tokens(entry)) else None

    def _related_entries(self, entry: InventoryEntry) -> Iterator[InventoryEntry]:
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

    def find_evictable(self) -> list[InventoryEntry]:
        """Return the queued texts that may be evicted now, each with its planned eviction.

        Evicted texts refer to no other text. So start with all possible texts, and remove those that cannot be evicted
        while others stay. After each removal, check the related texts again.
        """
        possible = sorted(self._possible.values(), key=lambda entry: entry.queue_order)
        evictable = {id(entry): entry for entry in possible if entry.message > self.floor}
        has_protected = len(evictable) < len(possible)
        unsure = dict(evictable)
        while unsure:
            staying = [entry for entry in unsure.values() if not self._can_evict(entry, evictable)]
            for entry in staying:
                del evictable[id(entry)]
            unsure = {
                id(each): each for entry in staying for each in self._related_entries(entry) if id(each) in evictable
            }
            if self._credit < 0:
                return []
        if not has_protected:
            self._settle_bounds(possible, evictable)
        return sorted(
            [*evictable.values(), *self._evictable_thinking(bool(evictable))], key=lambda entry: entry.message
        )

    def goes_alone(self, entry: InventoryEntry) -> bool:
        """Return True if a text may go while everything else stays."""
        waits = id(entry) in self.texts and entry.message > self.floor and self._credit >= 0
        return waits and self._can_evict(entry, {id(entry): entry})

    def _evictable_thinking(self, with_texts: bool) -> Iterable[InventoryEntry]:
        """Return all queued thinking, or an empty list. Signed thinking must not stay after a text that changes."""
        few = self._thinking_tokens < MIN_FREED_TOKENS
        if self.thinking_stays or (few and not (with_texts and self.settings.preserves_thinking)):
            return ()
        for entry in self._thinking_entries.values():
            assert entry.candidate is not None
            entry.planned_eviction = Eviction(entry.candidate.label, "", 0.0, entry.candidate.reason, {})
        return self._thinking_entries.values()

    def _can_evict(self, entry: InventoryEntry, evictable: Mapping[int, InventoryEntry]) -> bool:
        referrers = [each for source in entry.sources for each in self._referrers.get(source, {}).values()]
        pins = [pin for other, source_pins in referrers if id(other) not in evictable for pin in source_pins]
        self._credit -= KNOWN_OPTION_COST + len(referrers) + len(pins)
        if _is_pinned_whole(pins):
            return False
        option = self._find_option(entry, pins)
        entry.planned_eviction = option.eviction
        if entry.planned_eviction is None or entry.sent_tokens - entry.planned_eviction.remaining_tokens < (
            0.0 if self._unblocks_other(entry, evictable) else minimum_tokens(entry)
        ):
            return False
        return option.is_smaller and option.is_valid

    def _find_option(self, entry: InventoryEntry, pins: list[Pin]) -> EvictionOption:
        """Return the eviction option of a text with these pins, cached."""
        key = frozenset((pin.first, pin.last, pin.marker.unit) for pin in pins)
        option = entry.options_by_pins.get(key)
        if option is None:
            self._credit -= (
                len(entry.text) + len(entry.current_text) if entry.options_by_pins else 0
            )  # the first computation for each text is free, because it is unavoidable
            kept_ranges, visible_text = (
                [(first, last) for first, last, _ in key],
                VisibleText.from_text(entry.current_text, self.tag),
            )
            eviction = make_eviction(entry, visible_text, kept_ranges, self.settings.way)
            is_smaller = eviction is not None and _is_smaller(eviction.stub_text, entry.text)
            is_valid = eviction is not None and is_smaller and is_still_valid(visible_text, eviction.stub_text, pins)
            option = EvictionOption(eviction, is_smaller, is_valid)
            if len(entry.options_by_pins) >= MAX_OPTIONS:
                del entry.options_by_pins[next(iter(entry.options_by_pins))]
            entry.options_by_pins[key] = option
        return option

    def _unblocks_other(self, entry: InventoryEntry, evictable: Mapping[int, InventoryEntry]) -> bool:
        """Return True if another text can be evicted only together with this one. Then its length does not matter."""
        targets = (self._by_source.get(pin.marker.source) for pin in entry.pins if pin.marker.source)
        return any(target is not None and id(target) in evictable for target in targets)

    def _settle_bounds(self, possible: Iterable[InventoryEntry], evictable: Mapping[int, InventoryEntry]) -> None:
        """Use the result of the joint computation as bounds, until a related text is queued."""
        for entry in possible:
            eviction = entry.planned_eviction if id(entry) in evictable else None
            self._set_bound(entry, None if eviction is None else entry.sent_tokens - eviction.remaining_tokens)
            self._settled_ids.add(id(entry))

    def evict(self, entry: InventoryEntry) -> float:
        """Record the eviction of a text. Return the freed tokens."""
        assert entry.planned_eviction is not None
        freed_tokens = entry.sent_tokens - entry.planned_eviction.remaining_tokens
        self._remove_entry(entry)
        for pin in entry.pins:
            if pin.marker.source is not None:
                self._referrers[pin.marker.source].pop(id(entry), None)
                self._lasting_pins[pin.marker.source].pop(id(entry), None)
        entry.eviction, entry.pins, entry.sent_tokens = (
            entry.planned_eviction,
            (),
            entry.planned_eviction.remaining_tokens,
        )
        return freed_tokens

    def withdraw_entry(self, entry: InventoryEntry) -> None:
        """Remove a text that stays from the queue."""
        self._remove_entry(entry)
        for target in self._update_lasting(entry, True):
            self._mark_unsure(target)

    def _remove_entry(self, entry: InventoryEntry) -> None:
        if self.texts.pop(id(entry), None) is not None:
            self.tokens -= entry.sent_tokens
            self._token_starts -= entry.sent_tokens * entry.eligible_since
            if self._thinking_entries.pop(id(entry), None) is not None:
                self._thinking_tokens -= entry.sent_tokens
                self._thinking_starts -= entry.sent_tokens * entry.eligible_since
            self._set_bound(entry, None)
            self._settled_ids.discard(id(entry))
            self._unsure.pop(id(entry), None)
            entry.options_by_pins.clear()


def _is_smaller(new: str, old: str) -> bool:
    return utf8_size(new) < utf8_size(old) and no_larger(new, old)


def minimum_tokens(entry: InventoryEntry) -> float:
    """Return the minimum tokens that a text must free; 0 for thinking, which is removed together and has no marker."""
    return 0.0 if entry.kind == "thinking" else MIN_FREED_TOKENS


def _is_pinned_whole(pins: list[Pin]) -> bool:
    """Return True if a reference needs the whole text."""
    return any(not pin.last for pin in pins)
