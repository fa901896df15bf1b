"""The outputs that one context received in full, and the hints that replace repeats.

A model acts on a hint, so it names text that the model saw: `[ibidem: unchanged, same as the result 3 calls ago,
Read(src/app.py)]`. To keep that true and useful, only outputs that were sent in full are stored. They are dropped after
a number of calls, after a time, and on request. If the same call is repeated after a hint, the text is sent, and later
hints refer to that.

Callers pass in the time.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ..markers.output_hints import contains_reference, parse_arguments, repeat_hint, short_call
from ..model import utf8_size
from ..tool_arguments import FILE_KEYS
from .json_changes import describe_changes, parse_plain_object
from .near_references import DEFAULT_NEAR, NearRefConfig
from .outputs import Emission, ToolKind, check_names, check_text, encode_utf8

MAX_PARTITIONS = 64


class OutputMemories:
    """An `OutputMemory` per key, such as (session, subagent). The least recently used is evicted first.

    A key identifies what one model can see. If several contexts cannot be told apart, no key is correct for them, and
    no outputs may be stored.
    """

    def __init__(self, settings: MemorySettings | None = None, max_partitions: int = MAX_PARTITIONS) -> None:
        self.settings: Final = MemorySettings() if settings is None else settings
        self.max_partitions: Final = max(1, max_partitions)
        self._memories: OrderedDict[Hashable, OutputMemory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._memories)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._memories

    def of(self, key: Hashable) -> OutputMemory:
        """Return the memory of this context, a new one if needed. It becomes the most recently used."""
        memory = self._memories.get(key)
        if memory is None:
            while len(self._memories) >= self.max_partitions:
                self._memories.popitem(last=False)
            memory = self._memories[key] = OutputMemory(self.settings)
        self._memories.move_to_end(key)
        return memory

    def forget(self, key: Hashable) -> bool:
        """Drop the memory of this context. Return False if there was no memory."""
        return self._memories.pop(key, None) is not None

    def forget_where(self, test: Callable[[Hashable], bool]) -> int:
        """Drop the memories of all contexts whose key passes `test`. Return their number."""
        dropped_keys = [key for key in self._memories if test(key)]
        for key in dropped_keys:
            del self._memories[key]
        return len(dropped_keys)


MAX_NEAR_BYTES = 65_536
"""Larger outputs are not stored for near-references. The limit applies to every entry of every context."""


MAX_TURN_CALLS = 256
"""Calls of one turn that are distinguished by their arguments. Further ones are not named in hints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Limits of an `OutputMemory`: how many outputs, and for how long."""

    capacity: int = 5
    """Number of stored outputs, least recently used evicted first; at least one."""
    max_calls: int = 20
    """Calls after which an output is dropped, counted from when it was sent in full."""
    max_age: float = 900.0
    """Seconds after which an output is dropped: an idle host may have cleared its context."""
    min_bytes: int = 200
    """Shorter outputs are forwarded unchanged."""
    near: NearRefConfig | None = DEFAULT_NEAR
    """Limits for references to JSON objects that differ in a few fields; None stores no texts."""
    counted: str = ""
    """Name of the calls that are seen, if the model also makes others: with `git`, hints count `3 git calls ago`."""
    by_turn: bool = False
    """Count turns in hints, as reported by `next_turn`: calls of one turn may run at once, and end in any order.
    Outputs of the current turn are never named."""


_DEFAULT: Final = MemorySettings()


@dataclass(slots=True, eq=False)
class _FullOutput:
    """One output that was sent in full."""

    label: str
    tool: str
    path: str | None
    body: str | None
    call: int
    turn: int
    sent_at: float
    hinted_calls: set[bytes] = field(default_factory=set)
    """Hashes of calls that received a hint to this output. Repeating such a call shows that the hint did not help."""
    is_ambiguous: bool = False
    """True if another call of its turn has the same short form and returned another output, so a hint could mean
    either."""


class OutputMemory:
    """Replaces repeated tool outputs for one context of one model. Not thread-safe."""

    def __init__(self, settings: MemorySettings = _DEFAULT) -> None:
        self.settings: Final = settings
        self._outputs: OrderedDict[bytes, _FullOutput] = OrderedDict()
        self._calls = self._turns = 0
        self._has_explained = False
        self._take_back: Callable[[], None] = _no_hint
        self._turn_outputs: dict[str, int] = {}
        """Hash of the output of each call of this turn, by label."""

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def calls(self) -> int:
        """Number of outputs seen, of any kind and size."""
        return self._calls

    def forget(self) -> None:
        """Drop everything after the host compacted: the model no longer sees the outputs that hints would name."""
        self._outputs.clear()
        self._has_explained = False

    def next_turn(self) -> None:
        """Report that all calls of a turn have ended, and the model sees their outputs."""
        self._turns += 1
        self._turn_outputs.clear()

    def take_back(self) -> None:
        """Report that the last hint was not sent and its output was sent in full. The next hint explains itself
        again."""
        self._take_back()
        self._take_back = _no_hint

    def skip(self) -> None:
        """Count a call whose output is not known here."""
        self._calls += 1

    def emit(
        self,
        tool_name: str,
        arguments: Any,
        body: str,
        *,
        now: float = 0.0,
        failed: bool = False,
        path: str | None = None,
        kind: ToolKind | None = None,
        invalidates: Iterable[str] = (),
    ) -> Emission:
        """Return what to send for the output `body` of a call; never more bytes than it has.

        `arguments` is a JSON object or its text. `path` is the file that was read or changed, if the arguments do not
        name it. `kind` is what the tool does to it, if its name does not determine that. `now` is in seconds on any
        monotonic clock. `invalidates` names tools whose earlier outputs this call has made obsolete.
        """
        check_text(body)
        stale, arguments = set(check_names(invalidates)), parse_arguments(arguments)
        self._calls += 1
        self._take_back = _no_hint
        self._drop_where(lambda each: not self._is_current(each, now))
        label = short_call(tool_name, arguments)
        is_ambiguous = self.settings.by_turn and self._is_vague(label, body)
        kind = ToolKind.from_tool_name(tool_name) if kind is None else kind
        file = _file_argument(arguments) if path is None else path
        if kind is ToolKind.FILE_MUTATE and file is not None:
            self._drop_where(lambda each: each.path == file)
        if failed or contains_reference(body):
            emission = Emission(body, "left")
        elif (size_bytes := utf8_size(body)) < self.settings.min_bytes:
            emission = Emission(body, "short")
        else:
            read_path = file if kind is ToolKind.FILE_READ else None
            new = _FullOutput(
                label, tool_name, read_path, None, self._calls, self._turns, now, is_ambiguous=is_ambiguous
            )
            emission = self._choose_emission(new, arguments, body, size_bytes)
        if stale:
            self._drop_where(lambda each: each.tool in stale)
        return emission

    def _choose_emission(self, new: _FullOutput, arguments: Any, body: str, size_bytes: int) -> Emission:
        content, call_hash = hashlib.sha256(encode_utf8(body)).digest(), _call_hash(new.tool, arguments)
        self._drop_where(lambda each: call_hash in each.hinted_calls)
        body_to_store = body if self.settings.near and size_bytes <= MAX_NEAR_BYTES else None
        earlier = self._outputs.get(content)
        if earlier is not None:
            emission = self._make_hint(content, earlier, call_hash, size_bytes, "")
        else:
            emission = (
                None
                if body_to_store is None
                else self._refer_to_similar(new.tool, body_to_store, call_hash, size_bytes)
            )
        if emission is not None:
            return emission
        new.body = body_to_store
        self._outputs.pop(content, None)
        while len(self._outputs) >= max(1, self.settings.capacity):
            self._outputs.popitem(last=False)
        self._outputs[content] = new
        return Emission(body, "fresh")

    def _refer_to_similar(self, tool: str, body: str, call_hash: bytes, size_bytes: int) -> Emission | None:
        config = self.settings.near
        new = parse_plain_object(body) if config is not None and size_bytes >= config.min_body_bytes else None
        if config is None or new is None:
            return None
        # Only outputs that were sent in full are stored, so a difference never refers to another difference.
        for content, each in sorted(self._outputs.items(), key=lambda item: -item[1].call):
            if each.tool != tool or each.body is None or not self._was_seen(each):
                continue
            if (changes := describe_changes(each.body, new, config)) is not None:
                return self._make_hint(content, each, call_hash, size_bytes, changes)
        return None

    def _make_hint(
        self, content: bytes, earlier: _FullOutput, call_hash: bytes, size_bytes: int, but: str
    ) -> Emission | None:
        """Return a hint; None if the text itself is shorter, or the model has not seen the earlier output yet."""
        if not self._was_seen(earlier):
            return None
        ago, unit = self._calls - earlier.call, "call"
        if self.settings.by_turn:
            ago, unit = self._turns - earlier.turn, "turn"
        for explains in (False,) if self._has_explained else (True, False):
            text = repeat_hint(
                ago, earlier.label, unit=unit, call_kind=self.settings.counted, but=but, has_explanation=explains
            )
            if utf8_size(text) < size_bytes:
                self._take_back = partial(self._undo_hint, earlier, call_hash, self._has_explained)
                earlier.hinted_calls.add(call_hash)
                self._outputs.move_to_end(content)
                self._has_explained = self._has_explained or explains
                return Emission(text, "near" if but else "hint")
        return None

    def _undo_hint(self, earlier: _FullOutput, call_hash: bytes, was_explained: bool) -> None:
        earlier.hinted_calls.discard(call_hash)
        self._has_explained = was_explained

    def _was_seen(self, each: _FullOutput) -> bool:
        return not self.settings.by_turn or (each.turn < self._turns and not each.is_ambiguous)

    def _is_vague(self, label: str, body: str) -> bool:
        """Return True if calls of this turn with the same label had different outputs. No such call can be named
        then."""
        if len(self._turn_outputs) < MAX_TURN_CALLS:
            self._turn_outputs.setdefault(label, hash(body))
        if self._turn_outputs.get(label) == hash(body):
            return False
        for each in self._outputs.values():
            each.is_ambiguous = each.is_ambiguous or (each.turn == self._turns and each.label == label)
        return True

    def _is_current(self, each: _FullOutput, now: float) -> bool:
        recent = self._calls - each.call <= self.settings.max_calls
        return recent and 0 <= now - each.sent_at <= self.settings.max_age

    def _drop_where(self, test: Callable[[_FullOutput], bool]) -> None:
        for content in [content for content, each in self._outputs.items() if test(each)]:
            del self._outputs[content]


def _no_hint() -> None:
    """The last output was not a hint."""


def _file_argument(arguments: Any) -> str | None:
    arguments_by_name = arguments if isinstance(arguments, dict) else {}
    return next((value for key in FILE_KEYS if isinstance(value := arguments_by_name.get(key), str) and value), None)


def _call_hash(tool: str, arguments: Any) -> bytes:
    """Return a hash that is equal for the same tool and arguments, in any order of the arguments."""
    try:
        arguments_text = json.dumps(arguments, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        arguments_text = ""  # then any call of the tool matches; at worst a text is sent in full
    return hashlib.sha256(encode_utf8(f"{tool}\0{arguments_text}")).digest()
