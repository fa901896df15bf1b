"""The texts that stand in a conversation, and which of them may go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...markers.backref import Source, opening
from ...markers.layout import Shown, parsed
from ...model import Message, Path, Text, Thinking, ToolCall, ToolResult, size, to_json
from ...plan import Edit, given_to
from ...tokens import estimate
from ..arrival.sent import Said
from .entry import Held, Pin, Wish
from .files import Touch, touches
from .waiting import Waiting, least

if TYPE_CHECKING:
    from .evict import LookBack

REPEATED = 256
"""Bytes from which a string in the arguments of a repeated call is worth a marker."""
LONG = 1024
"""Bytes from which a string in arguments goes with the middle of a conversation."""
READS = 128
"""Reads of a file that are compared with the next, the last ones: a file may be read in any number of pieces."""
BEGINNING = 2
"""Messages that are not the middle of a conversation."""


class Holding:
    """Everything that stands in the conversation so far, in order."""

    def __init__(self, settings: LookBack) -> None:
        self.settings = settings
        self.turn = 0
        """The request that will be sent next."""
        self.all: list[Held] = []
        self.waiting = Waiting(settings)
        """Those that may go when a change pays."""
        self._ageing: deque[Held] = deque()
        self._results: deque[Held] = deque()
        """Those that are not masked yet, oldest first."""
        self._middle: deque[Held] = deque()
        """Those that may go with the middle of the conversation, oldest first."""
        self._reads: dict[str, list[tuple[Held, Touch]]] = {}
        self._asked: dict[str, tuple[Touch, ...]] = {}
        self._made: set[tuple[str, str]] = set()
        """Tools and arguments of the calls so far."""
        self._calls = self._messages = 0
        self._tag = ""
        self.thinks = False
        """There is thinking in the conversation."""

    def take(self, message: Message, said: Iterable[Said], edits: Mapping[Path, Edit], tag: str) -> list[Held]:
        """The texts of a message, with their arrival edits."""
        begun, self._tag = bool(self._tag), tag
        self.waiting.tag = tag
        places = {each.place.segment.path: each for each in said if each.place.segment is not None}
        found = list(self._texts(message, places, begun))
        for held in found:
            held.tokens = held.sent = estimate(held.text)
            if (edit := edits.get(held.path)) is not None and held.kind == "result":
                held.edit, held.sent = edit, estimate(edit.added)
            self.waiting.taken(held)
            if held.free:
                self._ageing.append(held)
                self._middle.append(held)
        if message.role == "user" and not message.results:
            self.waiting.loop = message.index + 1
        self._messages += 1
        self.all.extend(found)
        return found

    def _texts(self, message: Message, places: Mapping[Path, Said], begun: bool) -> Iterator[Held]:
        """What the tag comes from stays: what stands before it is known, results apart, which it never comes from."""
        alone = all(isinstance(part, Thinking) for part in message.parts)
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from self._result(message, part, places)
            elif isinstance(part, ToolCall):
                yield from self._call(message, part, begun)
            elif isinstance(part, Thinking):
                self.thinks = True
                free = part.removable and not alone and begun and len(part.path) == 2
                yield Held(message.index, part.path, "thinking", part.text, self.turn, free=free, whole=message)
            elif isinstance(part, Text):
                said = message.role == "assistant"
                held = Held(message.index, part.path, "assistant text" if said else "messages", part.text, self.turn)
                held.free = said and begun and not part.bound and opening(self._tag) not in part.text
                yield held

    def _call(self, message: Message, call: ToolCall, begun: bool) -> Iterator[Held]:
        """Long strings in the arguments may go one by one; the rest of them stays."""
        self._calls += 1
        self._asked[call.id] = touches(call)
        asked = (call.name, call.arguments)
        repeats = asked in self._made
        self._made.add(asked)
        named, rest = given_to(call), dict[Any, Any]()
        texts: Mapping[Any, Any] = {} if named is None else named
        if named is None and isinstance(call.input, str) and call.input_path[-1] == "input":
            texts = {"input": call.input}  # free text
        for key, value in texts.items():
            may = self._may(value, repeats) if begun and not call.bound else frozenset[str]()
            if not may or opening(self._tag) in value:
                rest[key] = value
                continue
            path = call.input_path if named is None else (*call.input_path, key)
            held = Held(message.index, path, "arguments", value, self.turn)
            held.sources, held.may = (Source("call", self._calls, str(key)),), may
            held.written_in = call.input if isinstance(call.input, str) and named is not None else ""
            yield held
        text = to_json(rest) if texts else call.arguments
        yield Held(message.index, call.input_path, "arguments", text, self.turn, free=False)

    def _may(self, value: Any, repeats: bool) -> frozenset[str]:
        """What a value may go for."""
        if not isinstance(value, str):
            return frozenset()
        settings, length = self.settings, size(value)
        found = {
            "arguments": settings.arguments is not None and length >= settings.arguments,
            "calls": settings.calls and repeats and length >= REPEATED,
            "middle": settings.middle is not None and length >= LONG,
        }
        return frozenset(label for label, so in found.items() if so)

    def _result(self, message: Message, result: ToolResult, places: Mapping[Path, Said]) -> Iterator[Held]:
        touched = () if result.failed else self._asked.get(result.call_id, ())
        for segment in result.segments:
            if not isinstance(segment, Text):
                continue
            held = Held(message.index, segment.path, "result", segment.text, self.turn)
            rewritten = opening(self._tag) in segment.text  # what came with a marker is left as it came
            held.free = not segment.bound and not result.failed and not rewritten
            if (said := places.get(segment.path)) is not None:
                held.sources = (said.place.source,)
            for touch in touched:
                self._outdated(touch, held)
            if held.free:
                self._results.append(held)
                self._reads_of(held, touched)
            touched = tuple(touch for touch in touched if touch.kind == "read")  # what was written is told once
            yield held

    def _reads_of(self, held: Held, touched: Iterable[Touch]) -> None:
        for touch in touched:
            if touch.kind == "read":
                self._reads.setdefault(touch.path, []).append((held, touch))

    def _outdated(self, later: Touch, by: Held) -> None:
        """Reads of a file that was written, or of what has now been read again: lines that are the same are referred
        to and so stay; a note that nothing changed is no reading."""
        reads = self._reads.get(later.path, [])
        if later.kind == "write":
            for held, _ in reads:
                self._wish(held, Wish("stale", "the file was changed later"))
            reads.clear()
            return
        recent = reads[-READS:]
        del reads[-READS:]
        for held, touch in recent:
            if later.covers(touch) and 2 * len(by.text) >= len(held.text):
                self._wish(held, Wish("stale", "the file was read again later"))
            else:
                reads.append((held, touch))

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
            if marker.unit and not marker.but and target is not None and not target.comma:
                first = target.position(marker)
                last = first + marker.last - marker.first + 1
            pins.append(Pin(marker, max(first, 0), last if first >= 0 else 0))
        self.waiting.refer(held, pins)

    # ── what could go ───────────────────────────────────────────────────────────────────────────────────────────────

    def grow_older(self) -> None:
        """One more request is about to be sent."""
        settings = self.settings
        self.turn += 1
        while self._ageing and self._ageing[0].turn < self.turn - settings.age:
            held = self._ageing.popleft()
            if (wish := self._when_old(held)) is not None:
                self._wish(held, wish)
        while settings.mask is not None and len(self._results) > settings.mask:
            self._wish(self._results.popleft(), Wish("mask", "old", reason=f"before the last {settings.mask} results"))
        while (
            settings.middle is not None and self._middle and self._middle[0].message < self._messages - settings.middle
        ):
            held = self._middle.popleft()
            fits = held.kind in ("result", "assistant text") or "middle" in held.may
            if fits and held.message >= BEGINNING:
                self._wish(held, Wish("middle", "old", reason=f"before the last {settings.middle} messages"))

    def _when_old(self, held: Held) -> Wish | None:
        settings, length = self.settings, size(held.now)
        if held.kind == "result" and settings.snippet is not None and length >= settings.snippet:
            return Wish("snippet", "", ends=True, reason="the middle of an old result")
        if held.kind == "arguments" and "arguments" in held.may:
            return Wish("arguments", "old", reason="an old argument")
        if held.kind == "arguments" and "calls" in held.may:
            return Wish("calls", "as in an earlier call")
        if held.kind == "thinking" and settings.thinking:
            return Wish("thinking", "", reason="old thinking")
        if held.kind == "assistant text" and settings.prose is not None and length >= settings.prose:
            return Wish("prose", "", ends=True, reason="from an old text")
        return None

    def _wish(self, held: Held, wish: Wish) -> None:
        """What takes more goes before what takes less."""
        short = held.sent < least(held) and not held.pins
        if not held.free or short or (held.wish is not None and not held.wish.ends) or (held.gone and wish.ends):
            return
        if wish.label == "stale" and not self.settings.stale:
            return
        held.wish = wish
        self.waiting.add(held)
