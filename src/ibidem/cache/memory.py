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

from ..calls import FILE_KEYS
from ..markers.repeats import decoded_arguments, refers, repeated, short_call
from ..model import size
from .json_changes import describe_changes, parse_plain_object
from .near_references import DEFAULT_NEAR, NearRefConfig
from .outputs import Emission, ToolKind, be_names, be_text, utf8

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
        found = self._memories.get(key)
        if found is None:
            while len(self._memories) >= self.max_partitions:
                self._memories.popitem(last=False)
            found = self._memories[key] = OutputMemory(self.settings)
        self._memories.move_to_end(key)
        return found

    def forget(self, key: Hashable) -> bool:
        """Drop the memory of this context. Return False if there was no memory."""
        return self._memories.pop(key, None) is not None

    def forget_where(self, test: Callable[[Hashable], bool]) -> int:
        """Drop the memories of all contexts whose key passes `test`. Return their number."""
        gone = [key for key in self._memories if test(key)]
        for key in gone:
            del self._memories[key]
        return len(gone)


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
    at: float
    hinted: set[bytes] = field(default_factory=set)
    """Hashes of calls that received a hint to this output. Repeating such a call shows that the hint did not help."""
    vague: bool = False
    """True if another call of its turn has the same short form and returned another output, so a hint could mean
    either."""


class OutputMemory:
    """Replaces repeated tool outputs for one context of one model. Not thread-safe."""

    def __init__(self, settings: MemorySettings = _DEFAULT) -> None:
        self.settings: Final = settings
        self._sent: OrderedDict[bytes, _FullOutput] = OrderedDict()
        self._calls = self._turns = 0
        self._explained = False
        self._take_back: Callable[[], None] = _nothing
        self._given: dict[str, int] = {}
        """Hash of the output of each call of this turn, by label."""

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def calls(self) -> int:
        """Number of outputs seen, of any kind and size."""
        return self._calls

    def forget(self) -> None:
        """Drop everything after the host compacted: the model no longer sees the outputs that hints would name."""
        self._sent.clear()
        self._explained = False

    def next_turn(self) -> None:
        """Report that all calls of a turn have ended, and the model sees their outputs."""
        self._turns += 1
        self._given.clear()

    def take_back(self) -> None:
        """Report that the last hint was not sent and its output was sent in full. The next hint explains itself
        again."""
        self._take_back()
        self._take_back = _nothing

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
        be_text(body)
        stale, arguments = set(be_names(invalidates)), decoded_arguments(arguments)
        self._calls += 1
        self._take_back = _nothing
        self._drop(lambda each: not self._lasts(each, now))
        label = short_call(tool_name, arguments)
        vague = self.settings.by_turn and self._is_vague(label, body)
        kind = ToolKind.from_tool_name(tool_name) if kind is None else kind
        file = _file(arguments) if path is None else path
        if kind is ToolKind.FILE_MUTATE and file is not None:
            self._drop(lambda each: each.path == file)
        if failed or refers(body):
            emission = Emission(body, "left")
        elif (many := size(body)) < self.settings.min_bytes:
            emission = Emission(body, "short")
        else:
            seen = file if kind is ToolKind.FILE_READ else None
            new = _FullOutput(label, tool_name, seen, None, self._calls, self._turns, now, vague=vague)
            emission = self._decide(new, arguments, body, many)
        if stale:
            self._drop(lambda each: each.tool in stale)
        return emission

    def _decide(self, new: _FullOutput, arguments: Any, body: str, many: int) -> Emission:
        content, asked = hashlib.sha256(utf8(body)).digest(), _call_hash(new.tool, arguments)
        self._drop(lambda each: asked in each.hinted)
        kept = body if self.settings.near and many <= MAX_NEAR_BYTES else None
        earlier = self._sent.get(content)
        if earlier is not None:
            found = self._refer(content, earlier, asked, many, "")
        else:
            found = None if kept is None else self._near(new.tool, kept, asked, many)
        if found is not None:
            return found
        new.body = kept
        self._sent.pop(content, None)
        while len(self._sent) >= max(1, self.settings.capacity):
            self._sent.popitem(last=False)
        self._sent[content] = new
        return Emission(body, "fresh")

    def _near(self, tool: str, body: str, asked: bytes, many: int) -> Emission | None:
        config = self.settings.near
        new = parse_plain_object(body) if config is not None and many >= config.min_body_bytes else None
        if config is None or new is None:
            return None
        # Only outputs that were sent in full are stored, so a difference never refers to another difference.
        for content, each in sorted(self._sent.items(), key=lambda item: -item[1].call):
            if each.tool != tool or each.body is None or not self._was_seen(each):
                continue
            if (changed := describe_changes(each.body, new, config)) is not None:
                return self._refer(content, each, asked, many, changed)
        return None

    def _refer(self, content: bytes, earlier: _FullOutput, asked: bytes, many: int, but: str) -> Emission | None:
        """Return a hint; None if the text itself is shorter, or the model has not seen the earlier output yet."""
        if not self._was_seen(earlier):
            return None
        ago, unit = self._calls - earlier.call, "call"
        if self.settings.by_turn:
            ago, unit = self._turns - earlier.turn, "turn"
        for explains in (False,) if self._explained else (True, False):
            text = repeated(ago, earlier.label, unit=unit, counted=self.settings.counted, but=but, explains=explains)
            if size(text) < many:
                self._take_back = partial(self._unhinted, earlier, asked, self._explained)
                earlier.hinted.add(asked)
                self._sent.move_to_end(content)
                self._explained = self._explained or explains
                return Emission(text, "near" if but else "hint")
        return None

    def _unhinted(self, earlier: _FullOutput, asked: bytes, explained: bool) -> None:
        earlier.hinted.discard(asked)
        self._explained = explained

    def _was_seen(self, each: _FullOutput) -> bool:
        return not self.settings.by_turn or (each.turn < self._turns and not each.vague)

    def _is_vague(self, label: str, body: str) -> bool:
        """Return True if calls of this turn with the same label had different outputs. No such call can be named
        then."""
        if len(self._given) < MAX_TURN_CALLS:
            self._given.setdefault(label, hash(body))
        if self._given.get(label) == hash(body):
            return False
        for each in self._sent.values():
            each.vague = each.vague or (each.turn == self._turns and each.label == label)
        return True

    def _lasts(self, each: _FullOutput, now: float) -> bool:
        recent = self._calls - each.call <= self.settings.max_calls
        return recent and 0 <= now - each.at <= self.settings.max_age

    def _drop(self, test: Callable[[_FullOutput], bool]) -> None:
        for content in [content for content, each in self._sent.items() if test(each)]:
            del self._sent[content]


def _nothing() -> None:
    """The last output was not a hint."""


def _file(arguments: Any) -> str | None:
    named = arguments if isinstance(arguments, dict) else {}
    return next((value for key in FILE_KEYS if isinstance(value := named.get(key), str) and value), None)


def _call_hash(tool: str, arguments: Any) -> bytes:
    """Return a hash that is equal for the same tool and arguments, in any order of the arguments."""
    try:
        told = json.dumps(arguments, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        told = ""  # then any call of the tool matches; at worst a text is sent in full
    return hashlib.sha256(utf8(f"{tool}\0{told}")).digest()
