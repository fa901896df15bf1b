"""The texts that stand in a conversation, what became of them, and which of them may go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrival.said_once import Said
from ..layout import COMMAS, SPARSE, Shown, parsed
from ..model import Message, Path, Text, Thinking, ToolCall, ToolResult, size, to_json
from ..plan import Edit, Kind
from ..references import Marker, Source, opening
from ..removals import Gone, reference, refs_in, thinned
from ..tokens import estimate
from .files import Touch, touches

if TYPE_CHECKING:
    from .look_back import LookBack

LEAST = 40.0
"""Tokens that must be freed, or a text had better stay."""

ENDS = 1024
"""Characters that a snippet keeps at either end, rounded down to whole lines if there are any."""


class Wish(NamedTuple):
    """Why a text could go, and how much of it."""

    label: str
    why: str
    ends: bool = False
    """Its head and its tail stay."""


class Going(NamedTuple):
    """How a text goes."""

    label: str
    added: str
    left: float
    """Tokens of what stands there afterwards."""
    reason: str
    originals: Mapping[str, str]
    """What the store has to keep, by reference."""


class Pin(NamedTuple):
    """Lines of a text that another refers to."""

    marker: Marker
    """It says which."""
    first: int
    last: int
    """Not included; 0 for all of it."""


@dataclass(slots=True, eq=False)
class Held:
    """A text in the conversation."""

    message: int
    path: Path
    kind: Kind
    text: str
    """As it came."""
    turn: int
    """The request that is the first to send it."""
    label: str = ""
    """What the model knows it by."""
    sources: tuple[Source, ...] = ()
    """What references call it."""
    pins: tuple[Pin, ...] = ()
    """What it refers to."""
    tokens: float = 0.0
    sent: float = 0.0
    """Tokens of what stands there now."""
    edit: Edit | None = None
    wish: Wish | None = None
    """Waits for its moment."""
    going: Going | None = None
    gone: bool = False
    free: bool = True
    """May go at all."""

    @property
    def now(self) -> str:
        return self.text if self.edit is None else self.edit.added


class Holding:
    """Everything that stands in the conversation so far, in order."""

    def __init__(self, settings: LookBack) -> None:
        self.settings = settings
        self.turn = 0
        """The request that will be sent next."""
        self.all: list[Held] = []
        self.pending: dict[int, Held] = {}
        self.pending_tokens = 0.0
        """About what they would free, at most."""
        self._by_source: dict[Source, Held] = {}
        self._referrers: dict[Source, list[Held]] = {}
        self._ageing: deque[Held] = deque()
        self._results: deque[Held] = deque()
        """Those that are not masked yet, oldest first."""
        self._reads: dict[str, list[tuple[Held, Touch]]] = {}
        self._asked: dict[str, tuple[Touch, ...]] = {}
        self._calls = 0
        self._loop = 0
        """The message from which on the running tool loop reaches."""
        self._tag = ""
        self.thinks = False
        """There is thinking in the conversation."""

    def take(self, message: Message, said: Iterable[Said], edits: Mapping[Path, Edit], tag: str) -> list[Held]:
        """The texts of a message, with their arrival edits."""
        self._tag = tag
        places = {each.place.segment.path: each for each in said if each.place.segment is not None}
        found = list(self._texts(message, places))
        for held in found:
            held.tokens = held.sent = estimate(held.text)
            if (edit := edits.get(held.path)) is not None and held.kind == "result":
                held.edit, held.sent = edit, estimate(edit.added)
            self._by_source.update(dict.fromkeys(held.sources, held))
            if held.free:
                self._ageing.append(held)
        if message.role == "user" and not message.results:
            self._loop = message.index + 1
        self.all.extend(found)
        return found

    def _texts(self, message: Message, places: Mapping[Path, Said]) -> Iterator[Held]:
        alone = all(isinstance(part, Thinking) for part in message.parts)
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from self._result(message, part, places)
            elif isinstance(part, ToolCall):
                yield from self._call(message, part)
            elif isinstance(part, Thinking):
                self.thinks = True
                free = part.removable and not alone and bool(self._tag)  # what the tag comes from stays
                yield Held(message.index, part.path, "thinking", part.text, self.turn, free=free)
            elif isinstance(part, Text):
                yield Held(message.index, part.path, "messages", part.text, self.turn, free=False)

    def _call(self, message: Message, call: ToolCall) -> Iterator[Held]:
        """Long strings in arguments that are an object may go one by one; the rest of them stays."""
        self._calls += 1
        self._asked[call.id] = touches(call)
        given, least = call.input, self.settings.arguments
        rest: Any = {}
        if not isinstance(given, dict) or call.bound or least is None:
            yield Held(message.index, call.input_path, "arguments", call.arguments, self.turn, free=False)
            return
        for key, value in given.items():
            if isinstance(value, str) and size(value) >= least:
                source = Source("call", self._calls, key)
                path = (*call.input_path, key)
                yield Held(message.index, path, "arguments", value, self.turn, call.name, (source,))
            else:
                rest[key] = value
        yield Held(message.index, call.input_path, "arguments", to_json(rest), self.turn, free=False)

    def _result(self, message: Message, result: ToolResult, places: Mapping[Path, Said]) -> Iterator[Held]:
        touched = () if result.failed else self._asked.get(result.call_id, ())
        for segment in result.segments:
            if not isinstance(segment, Text):
                continue
            held = Held(message.index, segment.path, "result", segment.text, self.turn)
            rewritten = opening(self._tag) in segment.text  # what came with a marker is left as it came
            held.free = not segment.bound and not result.failed and not rewritten
            if (said := places.get(segment.path)) is not None:
                held.label, held.sources = said.place.asked.label, (said.place.source,)
            for touch in touched:
                self._outdated(touch, held)
            if held.free:
                self._results.append(held)
                self._reads_of(held, touched)
            yield held

    def _reads_of(self, held: Held, touched: Iterable[Touch]) -> None:
        for touch in touched:
            if touch.kind == "read":
                self._reads.setdefault(touch.path, []).append((held, touch))

    def _outdated(self, later: Touch, by: Held) -> None:
        """Reads of a file that was written, or of what has now been read again: lines that are the same are referred
        to and so stay; a note that nothing changed is no reading."""
        kept = []
        for held, touch in self._reads.get(later.path, ()):
            if later.kind == "write":
                self._wish(held, Wish("stale", "the file was changed later"))
            elif later.covers(touch) and 2 * len(by.text) >= len(held.text):
                self._wish(held, Wish("stale", "the file was read again later"))
            else:
                kept.append((held, touch))
        self._reads[later.path] = kept

    def refer(self, held: Held, shown: Mapping[Source, Shown]) -> None:
        """Note what a text refers to, given the texts that it does."""
        if opening(self._tag) not in held.now:
            return
        pins = []
        for marker in parsed(held.now.split("\n"), self._tag):
            if marker is None or marker.source is None:
                continue
            target = shown.get(marker.source)
            first, last = 0, 0
            if marker.unit and not marker.but and target is not None and not target.layout.comma:
                numbering = target.numbering
                first = marker.first - 1 if numbering is None else numbering.position(marker.unit, marker.first)
                last = first + marker.last - marker.first + 1
            pins.append(Pin(marker, max(first, 0), last if first >= 0 else 0))
            self._referrers.setdefault(marker.source, []).append(held)
        held.pins = tuple(pins)

    def grow_older(self) -> None:
        """One more request is about to be sent."""
        settings = self.settings
        self.turn += 1
        while self._ageing and self._ageing[0].turn < self.turn - settings.age:
            held = self._ageing.popleft()
            if held.kind == "result" and settings.snippet is not None and size(held.now) >= settings.snippet:
                self._wish(held, Wish("snippet", "", ends=True))
            elif held.kind == "arguments":
                self._wish(held, Wish("arguments", "an old argument"))
            elif held.kind == "thinking" and settings.thinking:
                self._wish(held, Wish("thinking", "old thinking"))
        while settings.mask is not None and len(self._results) > settings.mask:
            self._wish(self._results.popleft(), Wish("mask", f"before the last {settings.mask} results"))

    def _wish(self, held: Held, wish: Wish) -> None:
        """What takes more goes before what takes less."""
        short = held.sent < LEAST and not held.pins
        if held.gone or not held.free or short or (held.wish is not None and not held.wish.ends):
            return
        if wish.label == "stale" and not self.settings.stale:
            return
        if id(held) not in self.pending:
            self.pending_tokens += held.sent
        held.wish = wish
        self.pending[id(held)] = held

    def free_to_go(self) -> list[Held]:
        """What waits and may go now, each with how it goes.

        What goes refers to nothing any more. So first all of it goes but what something refers to as a whole that
        stays; then, of each, the lines stay that something refers to.
        """
        going = {key: held for key, held in self.pending.items() if not self._needed(held)}
        while True:
            stays = [key for key, held in going.items() if not self._goes(held, going)]
            if not stays:
                return sorted(going.values(), key=lambda held: held.message)
            for key in stays:
                del going[key]

    def _needed(self, held: Held) -> bool:
        """Thinking of the running tool loop is demanded by providers."""
        return held.kind == "thinking" and held.message >= self._loop

    def _goes(self, held: Held, going: Mapping[int, Held]) -> bool:
        pins = [
            pin
            for source in held.sources
            for other in self._referrers.get(source, ())
            if not other.gone and id(other) not in going
            for pin in other.pins
            if pin.marker.source == source
        ]
        if any(not pin.last for pin in pins) or (pins and held.kind != "result"):
            return False
        held.going = self._how(held, [(pin.first, pin.last) for pin in pins])
        if held.going is None or held.sent - held.going.left < (0.0 if self._frees(held, going) else LEAST):
            return False
        return size(held.going.added) < size(held.text) and self._still_true(held.now, held.going.added, pins)

    def _frees(self, held: Held, going: Mapping[int, Held]) -> bool:
        """Whether something can go only because this goes too: then it may go however short it is."""
        targets = (self._by_source.get(pin.marker.source) for pin in held.pins if pin.marker.source)
        return any(target is not None and id(target) in going for target in targets)

    def _still_true(self, before: str, after: str, pins: Iterable[Pin]) -> bool:
        """Whether references still find what they point at (law 5): fewer lines may look like another layout."""
        old, new = Shown.of(before, self._tag), Shown.of(after, self._tag)
        return all(old.bodies(pin.marker) == new.bodies(pin.marker) is not None for pin in pins)

    def _how(self, held: Held, stay: list[tuple[int, int]]) -> Going | None:
        wish = held.wish
        assert wish is not None
        if held.kind == "thinking":
            return Going(wish.label, "", 0.0, wish.why, {})
        marker = Gone(self._tag, reference(held.text), held.text.count("\n") + 1, wish.why, held.label)
        added = str(marker) if held.kind == "arguments" else self._thinned(held, stay, wish, marker)
        if added is None:
            return None
        reason = wish.why or "the middle of an old result"
        return Going(wish.label, added, estimate(added), reason, {marker.ref: held.text})

    def _thinned(self, held: Held, stay: list[tuple[int, int]], wish: Wish, marker: Gone) -> str | None:
        shown = Shown.of(held.now, self._tag)
        lines = held.now.split("\n")
        found = parsed(lines, self._tag)
        refers = [place for place, each in enumerate(found) if each is not None]  # to what may be gone tomorrow
        flags = "".join(each.flags for each in found if each is not None)
        if stay and (shown.layout.comma or any(letter in flags for letter in (SPARSE, *COMMAS))):
            return None
        if stay:
            lines = lines[: len(shown.layout.units)]
        else:
            lines, refers = held.text.split("\n"), []
        if wish.ends:
            ends = [] if refers else _ends(lines)
            if not stay and not ends:
                return _cut(held.text, marker)
            stay = [*stay, *ends]
        added = thinned(lines, stay, marker, refers)
        return added if refs_in(added, self._tag) else None

    def let_go(self, held: Held) -> float:
        """Returns the tokens freed."""
        assert held.going is not None
        freed = held.sent - held.going.left
        self.pending_tokens -= held.sent
        self.pending.pop(id(held), None)
        held.gone, held.pins, held.sent = True, (), held.going.left
        return freed


def _ends(lines: list[str]) -> list[tuple[int, int]]:
    """Head and tail in whole lines; none if the lines are too long."""
    found = []
    for step, edge in ((1, 0), (-1, len(lines))):
        room, count = ENDS, 0
        for line in lines[::step]:
            room -= len(line) + 1
            if room < 0:
                break
            count += 1
        if count:
            found.append((edge, edge + count) if step > 0 else (edge - count, edge))
    return found


def _cut(text: str, marker: Gone) -> str:
    """Of lines that are too long, the first and the last characters."""
    return f"{text[:ENDS]}\n{marker}\n{text[-ENDS:]}"
