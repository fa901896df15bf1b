"""The texts that stand in a conversation, and which of them may go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...calls import arguments
from ...markers.backref import Source, opening
from ...markers.layout import Shown, parsed
from ...markers.numbering import Sources
from ...model import Message, Path, Text, Thinking, ToolCall, ToolResult, size, to_json
from ...plan import Edit
from ...tokens import estimate
from ..arrival.sent import SentText
from .entry import Candidate, Entry, Pin
from .files import Touch, touches
from .waiting import Waiting, least

if TYPE_CHECKING:
    from .evict import Evict

MIN_REPEATED_ARGUMENT = 256
"""Bytes from which a string in the arguments of a repeated call is worth a marker."""
MIN_MIDDLE_ARGUMENT = 1024
"""Bytes from which a string in arguments goes with the middle of a conversation."""
MAX_READS = 128
"""Reads of a file that are compared with the next, the last ones: a file may be read in any number of pieces."""
BEGINNING_MESSAGES = 2
"""Messages that are not the middle of a conversation."""


class Inventory:
    """Everything that stands in the conversation so far, in order."""

    def __init__(self, settings: Evict) -> None:
        self.settings = settings
        self.turn = 0
        """The request that will be sent next."""
        self.all: list[Entry] = []
        self.waiting = Waiting(settings)
        """Those that may go when a change pays."""
        self._ageing: deque[Entry] = deque()
        self._results: deque[Entry] = deque()
        """Those that are not masked yet, oldest first."""
        self._middle: deque[Entry] = deque()
        """Those that may go with the middle of the conversation, oldest first."""
        self._reads: dict[str, list[tuple[Entry, Touch]]] = {}
        self._asked: dict[str, tuple[Touch, ...]] = {}
        self._made: set[tuple[str, str]] = set()
        """Tools and arguments of the calls so far."""
        self._calls = self._messages = 0
        self._tag = ""
        self.thinks = False
        """There is thinking in the conversation."""

    def take(
        self, message: Message, said: Iterable[SentText], edits: Mapping[Path, Edit], sources: Sources
    ) -> list[Entry]:
        """The texts of a message, with their arrival edits."""
        begun = sources.begun
        self._tag = self.waiting.tag = sources.tag
        places = {each.place.segment.path: each for each in said if each.place.segment is not None}
        found = list(self._texts(message, places, begun))
        for entry in found:
            entry.tokens = entry.sent = estimate(entry.text)
            if (edit := edits.get(entry.path)) is not None and entry.kind == "result":
                entry.edit, entry.sent = edit, estimate(edit.added)
            self.waiting.taken(entry)
            if entry.free:
                self._ageing.append(entry)
                self._middle.append(entry)
        if message.role == "user" and not message.results:
            self.waiting.loop = message.index + 1
        self._messages += 1
        self.all.extend(found)
        return found

    def _texts(self, message: Message, places: Mapping[Path, SentText], begun: bool) -> Iterator[Entry]:
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
                yield Entry(message.index, part.path, "thinking", part.text, self.turn, free=free, whole=message)
            elif isinstance(part, Text):
                said = message.role == "assistant"
                entry = Entry(message.index, part.path, "assistant text" if said else "messages", part.text, self.turn)
                entry.free = said and begun and not part.bound and opening(self._tag) not in part.text
                yield entry

    def _call(self, message: Message, call: ToolCall, begun: bool) -> Iterator[Entry]:
        """Long strings in the arguments may go one by one; the rest of them stays."""
        self._calls += 1
        self._asked[call.id] = touches(call)
        asked = (call.name, call.arguments)
        repeats = asked in self._made
        self._made.add(asked)
        named, rest = arguments(call), dict[Any, Any]()
        texts: Mapping[Any, Any] = {} if named is None else named
        if named is None and isinstance(call.input, str) and call.input_path[-1] == "input":
            texts = {"input": call.input}  # free text
        for key, value in texts.items():
            may = self._may(value, repeats) if begun and not call.bound else frozenset[str]()
            if not may or opening(self._tag) in value:
                rest[key] = value
                continue
            path = call.input_path if named is None else (*call.input_path, key)
            entry = Entry(message.index, path, "arguments", value, self.turn)
            entry.sources, entry.may = (Source("call", self._calls, str(key)),), may
            entry.written_in = call.input if isinstance(call.input, str) and named is not None else ""
            yield entry
        text = to_json(rest) if texts else call.arguments
        yield Entry(message.index, call.input_path, "arguments", text, self.turn, free=False)

    def _may(self, value: Any, repeats: bool) -> frozenset[str]:
        """What a value may go for."""
        if not isinstance(value, str):
            return frozenset()
        settings, length = self.settings, size(value)
        found = {
            "arguments": settings.arguments is not None and length >= settings.arguments,
            "calls": settings.calls and repeats and length >= MIN_REPEATED_ARGUMENT,
            "middle": settings.middle is not None and length >= MIN_MIDDLE_ARGUMENT,
        }
        return frozenset(label for label, so in found.items() if so)

    def _result(self, message: Message, result: ToolResult, places: Mapping[Path, SentText]) -> Iterator[Entry]:
        touched = () if result.failed else self._asked.get(result.call_id, ())
        for segment in result.segments:
            if not isinstance(segment, Text):
                continue
            entry = Entry(message.index, segment.path, "result", segment.text, self.turn)
            rewritten = opening(self._tag) in segment.text  # what came with a marker is left as it came
            entry.free = not segment.bound and not result.failed and not rewritten
            if (said := places.get(segment.path)) is not None:
                entry.sources = (said.place.source,)
            for touch in touched:
                self._outdated(touch, entry)
            if entry.free:
                self._results.append(entry)
                self._reads_of(entry, touched)
            touched = tuple(touch for touch in touched if touch.kind == "read")  # what was written is told once
            yield entry

    def _reads_of(self, entry: Entry, touched: Iterable[Touch]) -> None:
        for touch in touched:
            if touch.kind == "read":
                self._reads.setdefault(touch.path, []).append((entry, touch))

    def _outdated(self, later: Touch, by: Entry) -> None:
        """Reads of a file that was written, or of what has now been read again: lines that are the same are referred
        to and so stay; a note that nothing changed is no reading."""
        reads = self._reads.get(later.path, [])
        if later.kind == "write":
            for entry, _ in reads:
                self._propose(entry, Candidate("stale", "the file was changed later"))
            reads.clear()
            return
        recent = reads[-MAX_READS:]
        del reads[-MAX_READS:]
        for entry, touch in recent:
            if later.covers(touch) and 2 * len(by.text) >= len(entry.text):
                self._propose(entry, Candidate("stale", "the file was read again later"))
            else:
                reads.append((entry, touch))

    def refer(self, entry: Entry, shown: Mapping[Source, Shown]) -> None:
        """Note what a text refers to, given the texts that it does."""
        if opening(self._tag) not in entry.now:
            return
        pins = []
        for marker in parsed(entry.now.split("\n"), self._tag):
            if marker is None or marker.source is None:
                continue
            target = shown.get(marker.source)
            first, last = 0, 0
            if marker.unit and not marker.but and target is not None and not target.comma:
                first = target.position(marker)
                last = first + marker.last - marker.first + 1
            pins.append(Pin(marker, max(first, 0), last if first >= 0 else 0))
        self.waiting.refer(entry, pins)

    # ── what could go ───────────────────────────────────────────────────────────────────────────────────────────────

    def grow_older(self) -> None:
        """One more request is about to be sent."""
        settings = self.settings
        self.turn += 1
        while self._ageing and self._ageing[0].turn < self.turn - settings.age:
            entry = self._ageing.popleft()
            if (candidate := self._when_old(entry)) is not None:
                self._propose(entry, candidate)
        while settings.mask is not None and len(self._results) > settings.mask:
            self._propose(
                self._results.popleft(), Candidate("mask", "old", reason=f"before the last {settings.mask} results")
            )
        while (
            settings.middle is not None and self._middle and self._middle[0].message < self._messages - settings.middle
        ):
            entry = self._middle.popleft()
            fits = entry.kind in ("result", "assistant text") or "middle" in entry.may
            if fits and entry.message >= BEGINNING_MESSAGES:
                self._propose(entry, Candidate("middle", "old", reason=f"before the last {settings.middle} messages"))

    def _when_old(self, entry: Entry) -> Candidate | None:
        settings, length = self.settings, size(entry.now)
        if entry.kind == "result" and settings.snippet is not None and length >= settings.snippet:
            return Candidate("snippet", "", ends=True, reason="the middle of an old result")
        if entry.kind == "arguments" and "arguments" in entry.may:
            return Candidate("arguments", "old", reason="an old argument")
        if entry.kind == "arguments" and "calls" in entry.may:
            return Candidate("calls", "as in an earlier call")
        if entry.kind == "thinking" and settings.thinking:
            return Candidate("thinking", "", reason="old thinking")
        if entry.kind == "assistant text" and settings.prose is not None and length >= settings.prose:
            return Candidate("prose", "", ends=True, reason="from an old text")
        return None

    def _propose(self, entry: Entry, candidate: Candidate) -> None:
        """What takes more goes before what takes less."""
        short = entry.sent < least(entry) and not entry.pins
        if (
            not entry.free
            or short
            or (entry.candidate is not None and not entry.candidate.ends)
            or (entry.gone and candidate.ends)
        ):
            return
        if candidate.label == "stale" and not self.settings.stale:
            return
        entry.candidate = candidate
        self.waiting.add(entry)
