"""Track the texts of a conversation, and decide when a text becomes eligible for eviction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...billing.calibration import TokenWeights
from ...billing.thinking_size import thinking_tokens
from ...markers.backref import ABOVE, Source, marker_prefix
from ...markers.layout import VisibleText, parse_markers
from ...markers.source_numbers import SourceNumbers
from ...markers.thinking_records import is_user_message
from ...model import Kind, Message, Path, Text, Thinking, ToolCall, ToolResult, to_json, utf8_size
from ...plan import Edit
from ...tokens import estimate
from ...tool_arguments import arguments_by_name
from ...tool_arguments.file_access import FileAccess, file_accesses
from ..arrival.sent_text import SentText
from .entry import Candidate, InventoryEntry, Pin
from .eviction_queue import EvictionQueue, minimum_tokens
from .file_names import last_component, loose_names
from .file_protection import FileProtection
from .stale_arguments import NO_STALE_ARGUMENTS, find_stale_arguments
from .token_sums import TokenSums

if TYPE_CHECKING:
    from .evict import Evict

PART_TOKENS = TokenWeights().part
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
        self.entries: list[InventoryEntry] = []
        self.token_sums = TokenSums()
        """Tokens of each message as it is sent now."""
        self.queue = EvictionQueue(settings)
        """Texts that are evicted when a revision pays."""
        self.protection = FileProtection(settings.working_set, settings.pending, settings.edit_arguments or (0, 0))
        self._recent: deque[tuple[InventoryEntry, int]] = deque()
        """Texts that stay because few results follow them, oldest first, each with the number of results before it."""
        self._result_count = 0
        self._reads: dict[str, list[tuple[InventoryEntry, FileAccess]]] = {}
        self._accesses_by_call: dict[str, tuple[FileAccess, ...]] = {}
        self._message_by_call: dict[str, int] = {}
        self._file_names_by_call: dict[str, frozenset[str]] = {}
        self._calls_by_id: dict[str, ToolCall] = {}
        """Calls by id."""
        self._stale_by_call: dict[str, InventoryEntry] = {}
        """Arguments that become stale if their call succeeds, or when its file changes again, by call id."""
        self.replaced: list[InventoryEntry] = []
        """Texts replaced by edits, in calls that no request has sent yet."""
        self._content_by_path: dict[str, InventoryEntry] = {}
        """Arguments with the last written content, by path."""
        self._call_count = self._message_count = 0
        self._tag = ""
        self._loop_thinking: list[InventoryEntry] = []
        """Thinking of the active tool loop. It becomes eligible when the loop ends."""
        self._user_message_count = 0
        """Number of messages by the user."""
        self._has_results = False
        """True if the last message has results. Some providers count a user message after it as part of the tool loop.
        """
        self._last_thinking = self._fixed_thinking = -1
        """Index of the last message with thinking, and of the last one whose thinking cannot be removed."""

    def add_message(
        self, message: Message, sent_texts: Iterable[SentText], edits: Mapping[Path, Edit], sources: SourceNumbers
    ) -> list[InventoryEntry]:
        """Add the texts of a message with their arrival edits. Return their entries."""
        has_tag = sources.has_stable_tag
        self._tag = self.queue.tag = sources.tag
        places = {each.place.segment.path: each for each in sent_texts if each.place.segment is not None}
        entries = list(self._message_entries(message, places, has_tag))
        for entry in entries:
            entry.tokens = entry.sent_tokens = entry.tokens or estimate(entry.text)
            if (edit := edits.get(entry.path)) is not None and entry.kind == "result":
                entry.edit, entry.sent_tokens = edit, estimate(edit.added)
            self.queue.register_entry(entry)
            self.token_sums.add(entry.message, entry.sent_tokens + PART_TOKENS)
            if entry.is_evictable and entry.kind == "thinking":
                self._loop_thinking.append(entry)
        if is_user_message(message) and not self._has_results:
            self._end_loop()
        self._has_results = bool(message.results)
        self._update_floor()
        self._message_count += 1
        self.entries.extend(entries)
        return entries

    def edits_of(self, message: int) -> tuple[Edit, ...]:
        """Return the edits of the texts of a message, in their order."""
        first, last = (find(self.entries, message, key=_message_of) for find in (bisect_left, bisect_right))
        return tuple(entry.edit for entry in self.entries[first:last] if entry.edit is not None)

    def _end_loop(self) -> None:
        """Make the thinking of earlier turns eligible. Providers demand only that of the active tool loop."""
        self._user_message_count += 1
        for entry in self._loop_thinking:
            self._enqueue_entry(entry, Candidate("thinking", "", reason="thinking of an earlier turn"))
        self._loop_thinking.clear()

    def _update_floor(self) -> None:
        """If thinking is signed against all text before it, protect all text before thinking that stays."""
        if self.settings.preserves_thinking:
            loop = self._loop_thinking[-1].message if self._loop_thinking else -1
            protected_message = self._last_thinking if self.queue.thinking_stays else self._fixed_thinking
            self.queue.floor = max(loop, protected_message)

    def keep_thinking(self, stays: bool) -> None:
        """Set if all thinking stays from now on."""
        self.queue.thinking_stays = stays
        self._update_floor()

    def _message_entries(
        self, message: Message, places: Mapping[Path, SentText], has_tag: bool
    ) -> Iterator[InventoryEntry]:
        """Yield the entries of a message. Texts that determine the conversation's tag stay: all texts before the tag is
        known, except results."""
        thoughts = [part for part in message.parts if isinstance(part, Thinking)]
        whole = len(thoughts) < len(message.parts) and all(
            part.removable and len(part.path) == 2 for part in thoughts
        )  # remove all thinking of a message or none, and never leave a message empty
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from self._result_entries(message, part, places)
            elif isinstance(part, ToolCall):
                yield from self._call_entries(message, part, has_tag)
            elif isinstance(part, Thinking):
                entry = InventoryEntry(message.index, part.path, "thinking", part.text, self.turn)
                entry.tokens = thinking_tokens(part, estimate(part.text))
                entry.is_evictable = (
                    self.settings.thinking
                    and whole
                    and has_tag
                    and self._user_message_count > 0
                    and self._may_remove_thinking
                )
                self._last_thinking = message.index
                if not entry.is_evictable:
                    self._fixed_thinking = message.index
                yield entry
            elif isinstance(part, Text):
                kind: Kind = "assistant text" if message.role == "assistant" else "messages"
                yield InventoryEntry(message.index, part.path, kind, part.text, self.turn, is_evictable=False)

    @property
    def _may_remove_thinking(self) -> bool:
        """True if thinking may be removed. Signed thinking may be missing only from the start on, without a gap."""
        return not self.settings.preserves_thinking or self._fixed_thinking < 0

    def _call_entries(self, message: Message, call: ToolCall, has_tag: bool) -> Iterator[InventoryEntry]:
        """Yield the entries of a call: its long string arguments, each evictable, and one for the rest, which stays."""
        self._call_count += 1
        self._stale_by_call.pop(call.id, None)  # left by a call with the same id that failed or has no result
        accesses = self._accesses_by_call[call.id] = file_accesses(call)
        self._message_by_call[call.id] = message.index
        self._calls_by_id[call.id] = call
        names = self._file_names_by_call[call.id] = loose_names(call, accesses)
        for entry in self.protection.record_access(names, self.turn):
            self._protect_again(entry)
        rewrite = find_stale_arguments(call, accesses) if self.settings.stale_arguments else NO_STALE_ARGUMENTS
        named_arguments, other_arguments = arguments_by_name(call), dict[Any, Any]()
        texts: Mapping[Any, Any] = {} if named_arguments is None else named_arguments
        if named_arguments is None and isinstance(call.input, str) and call.input_path[-1] == "input":
            texts = {"input": call.input}  # free text
        for key, value in texts.items():
            stale = rewrite.argument_role(key)
            labels = self._allowed_labels(value, bool(names), stale) if has_tag and not call.bound else frozenset[str]()
            if not labels or marker_prefix(self._tag) in value:
                other_arguments[key] = value
                continue
            path = call.input_path if named_arguments is None else (*call.input_path, key)
            entry = InventoryEntry(message.index, path, "arguments", value, self.turn)
            entry.sources, entry.eviction_labels, entry.call = (
                (Source("call", self._call_count, str(key)),),
                labels,
                call,
            )
            entry.file_names = names
            entry.containing_json = call.input if isinstance(call.input, str) and named_arguments is not None else ""
            if stale in labels:
                self._stale_by_call[call.id] = entry
            if "arguments" in labels:
                self._recent.append((entry, self._result_count))
            yield entry
        text = to_json(other_arguments) if texts else call.arguments
        yield InventoryEntry(message.index, call.input_path, "arguments", text, self.turn, is_evictable=False)

    def _allowed_labels(self, value: Any, of_file: bool, stale: str) -> frozenset[str]:
        """Return the labels under which an argument may be evicted."""
        if not isinstance(value, str):
            return frozenset()
        settings, length = self.settings, utf8_size(value)
        is_size_enough = settings.arguments is not None and (not of_file or settings.edit_arguments is not None)
        conditions = {
            "arguments": is_size_enough and length >= (settings.arguments or 0),
            stale: bool(stale) and length >= MIN_STALE_ARGUMENT,
        }
        return frozenset(label for label, so in conditions.items() if so)

    def _result_entries(
        self, message: Message, result: ToolResult, places: Mapping[Path, SentText]
    ) -> Iterator[InventoryEntry]:
        accesses = () if result.failed else self._accesses_by_call.get(result.call_id, ())
        for segment in result.segments:
            if not isinstance(segment, Text):
                continue
            entry = InventoryEntry(message.index, segment.path, "result", segment.text, self.turn)
            entry.call = self._calls_by_id.get(result.call_id)
            has_marker = marker_prefix(self._tag) in segment.text  # a text that already has markers stays unchanged
            entry.is_evictable = not segment.bound and not result.failed and not has_marker
            if (sent_text := places.get(segment.path)) is not None:
                entry.sources = (sent_text.place.source,)
            for touch in accesses:
                self._mark_outdated(touch, entry, self._message_by_call[result.call_id])
            if not result.failed:
                self._record_success(result.call_id, accesses)
            if entry.is_evictable:
                self._result_count += 1
                entry.file_names = self._file_names_by_call.get(result.call_id, frozenset())
                self._recent.append((entry, self._result_count))
                self._record_reads(entry, accesses)
            accesses = tuple(touch for touch in accesses if touch.kind == "read")  # a write counts once
            yield entry

    def _record_success(self, call: str, accesses: tuple[FileAccess, ...]) -> None:
        """Note that a call succeeded. Text that it replaced is stale now; content that it wrote, at the next change."""
        entry = self._stale_by_call.pop(call, None)
        if entry is not None and "replaced" in entry.eviction_labels:
            self._enqueue_entry(entry, Candidate("stale_arguments", "replaced", reason="what an edit replaced"))
            if entry.turn == self.turn:
                self.replaced.append(entry)
        elif entry is not None:
            self._content_by_path[accesses[0].path] = entry

    def _record_reads(self, entry: InventoryEntry, accesses: Iterable[FileAccess]) -> None:
        for touch in accesses:
            if touch.kind == "read":
                self._reads.setdefault(touch.path, []).append((entry, touch))

    def _mark_outdated(self, later: FileAccess, by: InventoryEntry, call_message: int) -> None:
        """Make reads eligible whose lines were all read again. Lines with back-references stay.

        A short note that the file has not changed does not count as a read.
        """
        reads, content_entry = self._reads.get(later.path, []), self._content_by_path.get(later.path)
        content_entry = None if content_entry is not None and content_entry.message == call_message else content_entry
        if later.kind == "write":
            self.protection.record_write(last_component(later.path), self.turn)
            if content_entry is not None:
                del self._content_by_path[later.path]
            return
        if content_entry is not None and _shows_whole_file(later, by, content_entry):
            self._enqueue_entry(content_entry, Candidate("stale_arguments", READ_AGAIN))
            del self._content_by_path[later.path]
        recent = reads[-MAX_READS:]
        del reads[-MAX_READS:]
        for entry, touch in recent:
            if later.covers(touch) and 2 * len(by.text) >= len(entry.text):
                self._enqueue_entry(entry, Candidate("stale", READ_AGAIN))
            else:
                reads.append((entry, touch))

    def record_references(self, entry: InventoryEntry, visible_texts: Mapping[Source, VisibleText]) -> None:
        """Record the lines that a text refers to. `visible_texts` has the texts with these lines."""
        if marker_prefix(self._tag) not in entry.current_text:
            return
        pins = []
        for marker in parse_markers(entry.current_text, entry.current_text.split("\n"), self._tag).values():
            if marker.source in (None, ABOVE):  # no target, or the text itself
                continue
            target = visible_texts.get(marker.source)
            first, last = 0, 0
            if marker.unit and not marker.but and target is not None and not target.comma:
                first = target.find_position(marker)
                last = first + marker.last - marker.first + 1
            pins.append(Pin(marker, max(first, 0), last if first >= 0 else 0))
        self.queue.record_pins(entry, pins)

    # ── Candidates for eviction ──────────────────────────────────────────────────────────────────────────────────────

    def start_request(self, cold: bool) -> None:
        """Start a request: queue texts that are old enough, or no longer protected. `cold`: its cache has expired."""
        settings = self.settings
        self.turn += 1
        self.queue.turn = self.turn
        while self._recent and self._recent[0][1] <= self._result_count - settings.mask:
            entry, _ = self._recent.popleft()
            if entry.candidate is None:
                self._release_old(entry)
        for entry in self.protection.release_expired(self.turn, cold):
            self._enqueue_entry(entry, _old_candidate(entry))

    def finish_request(self, cold: bool) -> None:
        """Finish a request. Texts that were eligible only because of its cold cache are protected again."""
        for entry in [each for each in self.queue.texts.values() if each.is_file_protected] if cold else ():
            if self.protection.is_protected(entry, self.turn):
                self.protection.remove_entry(entry)
                self._protect_again(entry)

    def _release_old(self, entry: InventoryEntry) -> None:
        """Queue a text that is old enough, unless a file in use may protect it."""
        if entry.file_names:
            entry.is_file_protected = True
            self.protection.protect_entry(entry)
        else:
            self._enqueue_entry(entry, _old_candidate(entry))

    def _protect_again(self, entry: InventoryEntry) -> None:
        """Take a text out of the queue and protect it again."""
        if entry.candidate is not None and not entry.is_evicted:
            self.queue.withdraw_entry(entry)
            entry.candidate = None
            self.protection.protect_entry(entry)

    def _enqueue_entry(self, entry: InventoryEntry, candidate: Candidate) -> None:
        """Queue a text for eviction, if it is long enough."""
        is_too_short = entry.sent_tokens < minimum_tokens(entry) and not entry.pins
        if not entry.is_evictable or is_too_short or entry.is_evicted:
            return
        if candidate.why != OLD and entry.is_file_protected:  # stale text is evicted even if its file is in use
            entry.is_file_protected, entry.candidate = False, None
            self.protection.remove_entry(entry)
        if entry.candidate is not None:
            return
        entry.candidate = candidate
        self.queue.add(entry)


def _old_candidate(entry: InventoryEntry) -> Candidate:
    if entry.kind == "arguments":
        return Candidate("arguments", OLD, reason="an old argument")
    return Candidate("mask", OLD, reason="an old result")


def _shows_whole_file(read: FileAccess, by: InventoryEntry, content_entry: InventoryEntry) -> bool:
    """Return True if a read shows the whole written file. A short note that it has not changed does not count."""
    whole = FileAccess("read", read.path, 1, content_entry.text.count("\n") + 1)
    return read.covers(whole) and 2 * len(by.text) >= len(content_entry.text)
