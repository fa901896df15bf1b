"""Track the texts of a conversation, and decide when a text becomes eligible for eviction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...billing.calibration import Weights
from ...billing.thinking import thinking_tokens
from ...calls import arguments
from ...calls.file_access import Touch, touches
from ...markers.backref import ABOVE, Source, opening
from ...markers.layout import Shown, parsed
from ...markers.numbering import Sources
from ...markers.thinking import speaks
from ...model import Kind, Message, Path, Text, Thinking, ToolCall, ToolResult, size, to_json
from ...plan import Edit
from ...tokens import estimate
from ..arrival.sent import SentText
from .entry import Candidate, Entry, Pin
from .gate import Gate
from .names import last_component, loose_names
from .rewrites import NO_REWRITE, rewrite_of
from .standing import Standing
from .waiting import Waiting, least

if TYPE_CHECKING:
    from .evict import Evict

PART_TOKENS = Weights().part
"""Tokens for the structure around a text. They stay after its eviction."""
MIN_STALE_ARGUMENT = 160
"""Minimum bytes of a stale argument for which a marker pays."""
MAX_READS = 128
"""Maximum earlier reads of a file that are compared with the next one. A file may be read in many pieces."""
_message_of = attrgetter("message")
READ_AGAIN = "the file was read again later"
OLD = "old"


class Inventory:
    """All texts of the conversation so far, in order."""

    def __init__(self, settings: Evict) -> None:
        self.settings = settings
        self.turn = 0
        """Number of the request that will be sent next."""
        self.all: list[Entry] = []
        self.standing = Standing()
        """Tokens of each message as it is sent now."""
        self.waiting = Waiting(settings)
        """Texts that are evicted when a revision pays."""
        self.gate = Gate(settings.working_set, settings.pending, settings.edit_arguments or (0, 0))
        self._recent: deque[tuple[Entry, int]] = deque()
        """Texts that stay because few results follow them, oldest first, each with the number of results before it."""
        self._results = 0
        self._reads: dict[str, list[tuple[Entry, Touch]]] = {}
        self._asked: dict[str, tuple[Touch, ...]] = {}
        self._asked_in: dict[str, int] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._called: dict[str, ToolCall] = {}
        """Calls by id."""
        self._rewrites: dict[str, Entry] = {}
        """Arguments that become stale if their call succeeds, or when its file changes again, by call id."""
        self.replaced: list[Entry] = []
        """Texts replaced by edits, in calls that no request has sent yet."""
        self._written: dict[str, Entry] = {}
        """Arguments with the last written content, by path."""
        self._calls = self._messages = 0
        self._tag = ""
        self._thoughts: list[Entry] = []
        """Thinking of the active tool loop. It becomes eligible when the loop ends."""
        self._prompts = 0
        """Number of messages by the user."""
        self._answers = False
        """True if the last message has results. Some providers count a user message after it as part of the tool loop.
        """
        self._last_thinking = self._fixed_thinking = -1
        """Index of the last message with thinking, and of the last one whose thinking cannot be removed."""

    def take(
        self, message: Message, said: Iterable[SentText], edits: Mapping[Path, Edit], sources: Sources
    ) -> list[Entry]:
        """Add the texts of a message with their arrival edits. Return their entries."""
        begun = sources.begun
        self._tag = self.waiting.tag = sources.tag
        places = {each.place.segment.path: each for each in said if each.place.segment is not None}
        found = list(self._texts(message, places, begun))
        for entry in found:
            entry.tokens = entry.sent = entry.tokens or estimate(entry.text)
            if (edit := edits.get(entry.path)) is not None and entry.kind == "result":
                entry.edit, entry.sent = edit, estimate(edit.added)
            self.waiting.taken(entry)
            self.standing.add(entry.message, entry.sent + PART_TOKENS)
            if entry.free and entry.kind == "thinking":
                self._thoughts.append(entry)
        if speaks(message) and not self._answers:
            self._end_loop()
        self._answers = bool(message.results)
        self._hold()
        self._messages += 1
        self.all.extend(found)
        return found

    def edits_of(self, message: int) -> tuple[Edit, ...]:
        """Return the edits of the texts of a message, in their order."""
        first, last = (find(self.all, message, key=_message_of) for find in (bisect_left, bisect_right))
        return tuple(entry.edit for entry in self.all[first:last] if entry.edit is not None)

    def _end_loop(self) -> None:
        """Make the thinking of earlier turns eligible. Providers demand only that of the active tool loop."""
        self._prompts += 1
        for entry in self._thoughts:
            self._propose(entry, Candidate("thinking", "", reason="thinking of an earlier turn"))
        self._thoughts.clear()

    def _hold(self) -> None:
        """If thinking is signed against all text before it, protect all text before thinking that stays."""
        if self.settings.preserves_thinking:
            loop = self._thoughts[-1].message if self._thoughts else -1
            stays = self._last_thinking if self.waiting.thinking_stays else self._fixed_thinking
            self.waiting.floor = max(loop, stays)

    def keep_thinking(self, stays: bool) -> None:
        """Set if all thinking stays from now on."""
        self.waiting.thinking_stays = stays
        self._hold()

    def _texts(self, message: Message, places: Mapping[Path, SentText], begun: bool) -> Iterator[Entry]:
        """Yield the entries of a message. Texts that determine the conversation's tag stay: all texts before the tag is
        known, except results."""
        thoughts = [part for part in message.parts if isinstance(part, Thinking)]
        whole = len(thoughts) < len(message.parts) and all(
            part.removable and len(part.path) == 2 for part in thoughts
        )  # remove all thinking of a message or none, and never leave a message empty
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from self._result(message, part, places)
            elif isinstance(part, ToolCall):
                yield from self._call(message, part, begun)
            elif isinstance(part, Thinking):
                entry = Entry(message.index, part.path, "thinking", part.text, self.turn)
                entry.tokens = thinking_tokens(part, estimate(part.text))
                entry.free = self.settings.thinking and whole and begun and self._prompts > 0 and self._runs
                self._last_thinking = message.index
                if not entry.free:
                    self._fixed_thinking = message.index
                yield entry
            elif isinstance(part, Text):
                kind: Kind = "assistant text" if message.role == "assistant" else "messages"
                yield Entry(message.index, part.path, kind, part.text, self.turn, free=False)

    @property
    def _runs(self) -> bool:
        """True if thinking may be removed. Signed thinking may be missing only from the start on, without a gap."""
        return not self.settings.preserves_thinking or self._fixed_thinking < 0

    def _call(self, message: Message, call: ToolCall, begun: bool) -> Iterator[Entry]:
        """Yield the entries of a call: its long string arguments, each evictable, and one for the rest, which stays."""
        self._calls += 1
        self._rewrites.pop(call.id, None)  # left by a call with the same id that failed or has no result
        touched = self._asked[call.id] = touches(call)
        self._asked_in[call.id] = message.index
        self._called[call.id] = call
        names = self._names[call.id] = loose_names(call, touched)
        for entry in self.gate.touch(names, self.turn):
            self._set_aside(entry)
        rewrite = rewrite_of(call, touched) if self.settings.stale_arguments else NO_REWRITE
        named, rest = arguments(call), dict[Any, Any]()
        texts: Mapping[Any, Any] = {} if named is None else named
        if named is None and isinstance(call.input, str) and call.input_path[-1] == "input":
            texts = {"input": call.input}  # free text
        for key, value in texts.items():
            stale = rewrite.part(key)
            may = self._may(value, bool(names), stale) if begun and not call.bound else frozenset[str]()
            if not may or opening(self._tag) in value:
                rest[key] = value
                continue
            path = call.input_path if named is None else (*call.input_path, key)
            entry = Entry(message.index, path, "arguments", value, self.turn)
            entry.sources, entry.may, entry.call = (Source("call", self._calls, str(key)),), may, call
            entry.names = names
            entry.written_in = call.input if isinstance(call.input, str) and named is not None else ""
            if stale in may:
                self._rewrites[call.id] = entry
            if "arguments" in may:
                self._recent.append((entry, self._results))
            yield entry
        text = to_json(rest) if texts else call.arguments
        yield Entry(message.index, call.input_path, "arguments", text, self.turn, free=False)

    def _may(self, value: Any, of_file: bool, stale: str) -> frozenset[str]:
        """Return the labels under which an argument may be evicted."""
        if not isinstance(value, str):
            return frozenset()
        settings, length = self.settings, size(value)
        allowed = settings.arguments is not None and (not of_file or settings.edit_arguments is not None)
        found = {
            "arguments": allowed and length >= (settings.arguments or 0),
            stale: bool(stale) and length >= MIN_STALE_ARGUMENT,
        }
        return frozenset(label for label, so in found.items() if so)

    def _result(self, message: Message, result: ToolResult, places: Mapping[Path, SentText]) -> Iterator[Entry]:
        touched = () if result.failed else self._asked.get(result.call_id, ())
        for segment in result.segments:
            if not isinstance(segment, Text):
                continue
            entry = Entry(message.index, segment.path, "result", segment.text, self.turn)
            entry.call = self._called.get(result.call_id)
            rewritten = opening(self._tag) in segment.text  # a text that already has markers stays unchanged
            entry.free = not segment.bound and not result.failed and not rewritten
            if (said := places.get(segment.path)) is not None:
                entry.sources = (said.place.source,)
            for touch in touched:
                self._outdated(touch, entry, self._asked_in[result.call_id])
            if not result.failed:
                self._succeeded(result.call_id, touched)
            if entry.free:
                self._results += 1
                entry.names = self._names.get(result.call_id, frozenset())
                self._recent.append((entry, self._results))
                self._reads_of(entry, touched)
            touched = tuple(touch for touch in touched if touch.kind == "read")  # a write counts once
            yield entry

    def _succeeded(self, call: str, touched: tuple[Touch, ...]) -> None:
        """Note that a call succeeded. Text that it replaced is stale now; content that it wrote, at the next change."""
        entry = self._rewrites.pop(call, None)
        if entry is not None and "replaced" in entry.may:
            self._propose(entry, Candidate("stale_arguments", "replaced", reason="what an edit replaced"))
            if entry.turn == self.turn:
                self.replaced.append(entry)
        elif entry is not None:
            self._written[touched[0].path] = entry

    def _reads_of(self, entry: Entry, touched: Iterable[Touch]) -> None:
        for touch in touched:
            if touch.kind == "read":
                self._reads.setdefault(touch.path, []).append((entry, touch))

    def _outdated(self, later: Touch, by: Entry, asked_in: int) -> None:
        """Make reads eligible whose lines were all read again. Lines with back-references stay.

        A short note that the file has not changed does not count as a read.
        """
        reads, written = self._reads.get(later.path, []), self._written.get(later.path)
        written = None if written is not None and written.message == asked_in else written
        if later.kind == "write":
            self.gate.write(last_component(later.path), self.turn)
            if written is not None:
                del self._written[later.path]
            return
        if written is not None and _shows(later, by, written):
            self._propose(written, Candidate("stale_arguments", READ_AGAIN))
            del self._written[later.path]
        recent = reads[-MAX_READS:]
        del reads[-MAX_READS:]
        for entry, touch in recent:
            if later.covers(touch) and 2 * len(by.text) >= len(entry.text):
                self._propose(entry, Candidate("stale", READ_AGAIN))
            else:
                reads.append((entry, touch))

    def refer(self, entry: Entry, shown: Mapping[Source, Shown]) -> None:
        """Record the lines that a text refers to. `visible_texts` has the texts with these lines."""
        if opening(self._tag) not in entry.now:
            return
        pins = []
        for marker in parsed(entry.now, entry.now.split("\n"), self._tag).values():
            if marker.source in (None, ABOVE):  # no target, or the text itself
                continue
            target = shown.get(marker.source)
            first, last = 0, 0
            if marker.unit and not marker.but and target is not None and not target.comma:
                first = target.position(marker)
                last = first + marker.last - marker.first + 1
            pins.append(Pin(marker, max(first, 0), last if first >= 0 else 0))
        self.waiting.refer(entry, pins)

    # ── Candidates for eviction ──────────────────────────────────────────────────────────────────────────────────────

    def grow_older(self, cold: bool) -> None:
        """Start a request: queue texts that are old enough, or no longer protected. `cold`: its cache has expired."""
        settings = self.settings
        self.turn += 1
        self.waiting.turn = self.turn
        while self._recent and self._recent[0][1] <= self._results - settings.mask:
            entry, _ = self._recent.popleft()
            if entry.candidate is None:
                self._offer(entry)
        for entry in self.gate.released(self.turn, cold):
            self._propose(entry, _old(entry))

    def sent(self, cold: bool) -> None:
        """Finish a request. Texts that were eligible only because of its cold cache are protected again."""
        for entry in [each for each in self.waiting.texts.values() if each.gated] if cold else ():
            if self.gate.protects(entry, self.turn):
                self.gate.drop(entry)
                self._set_aside(entry)

    def _offer(self, entry: Entry) -> None:
        """Queue a text that is old enough, unless a file in use may protect it."""
        if entry.names:
            entry.gated = True
            self.gate.hold(entry)
        else:
            self._propose(entry, _old(entry))

    def _set_aside(self, entry: Entry) -> None:
        """Take a text out of the queue and protect it again."""
        if entry.candidate is not None and not entry.gone:
            self.waiting.withdraw(entry)
            entry.candidate = None
            self.gate.hold(entry)

    def _propose(self, entry: Entry, candidate: Candidate) -> None:
        """Queue a text for eviction, if it is long enough."""
        short = entry.sent < least(entry) and not entry.pins
        if not entry.free or short or entry.gone:
            return
        if candidate.why != OLD and entry.gated:  # stale text is evicted even if its file is in use
            entry.gated, entry.candidate = False, None
            self.gate.drop(entry)
        if entry.candidate is not None:
            return
        entry.candidate = candidate
        self.waiting.add(entry)


def _old(entry: Entry) -> Candidate:
    if entry.kind == "arguments":
        return Candidate("arguments", OLD, reason="an old argument")
    return Candidate("mask", OLD, reason="an old result")


def _shows(read: Touch, by: Entry, written: Entry) -> bool:
    """Return True if a read shows the whole written file. A short note that it has not changed does not count."""
    whole = Touch("read", read.path, 1, written.text.count("\n") + 1)
    return read.covers(whole) and 2 * len(by.text) >= len(written.text)
