"""What one context was sent in full, and what is said in its place when it comes again.

A hint is followed by a model, so it names what the model saw: `[ibidem: unchanged, same as the result 3 calls ago,
Read(src/app.py)]`. For that to be true, and of use, an output is remembered only where it was sent in full; it is
forgotten after a number of calls, after a time, and when told; and who asks for the same thing again after a hint gets
the text, which is then what later hints mean.

The clock is the caller's: times are passed in.
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
    """An `OutputMemory` per key, such as (session, subagent); the one least recently used goes first.

    A key stands for what one model can see. Where several contexts cannot be told apart, there is no key that is true
    of them, and nothing may be remembered.
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
        """The memory of this context, an empty one if there is none; now the most recently used."""
        found = self._memories.get(key)
        if found is None:
            while len(self._memories) >= self.max_partitions:
                self._memories.popitem(last=False)
            found = self._memories[key] = OutputMemory(self.settings)
        self._memories.move_to_end(key)
        return found

    def forget(self, key: Hashable) -> bool:
        """Drop the memory of this context; False if there was none."""
        return self._memories.pop(key, None) is not None

    def forget_where(self, test: Callable[[Hashable], bool]) -> int:
        """Drop the memories of all contexts whose key passes; returns how many."""
        gone = [key for key in self._memories if test(key)]
        for key in gone:
            del self._memories[key]
        return len(gone)


MAX_NEAR_BYTES = 65_536
"""Larger outputs are not kept for near-references: what is kept counts times every entry of every partition."""


MAX_TURN_CALLS = 256
"""Calls of one turn that are told apart by what they were asked for; further ones are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What an `OutputMemory` remembers, and for how long."""

    capacity: int = 5
    """Outputs remembered, least recently used first out; at least one."""
    max_calls: int = 20
    """Calls after which an output is forgotten, counted from when it was sent in full."""
    max_age: float = 900.0
    """Seconds after which it is: a host that was left alone may have cleared its context."""
    min_bytes: int = 200
    """Shorter outputs pass."""
    near: NearRefConfig | None = DEFAULT_NEAR
    """Also refer to JSON objects that differ in a few fields; None keeps no texts."""
    counted: str = ""
    """Which calls are seen, where the model makes others too: with `git` hints say `3 git calls ago`."""
    by_turn: bool = False
    """Hints say how many turns ago, as told by `next_turn`: calls of one turn may run at once, and end in any order.
    What is of the turn that is under way is not named at all."""


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
    """The calls that were sent here: one that is made again could not use the hint."""
    vague: bool = False
    """Another call of its turn reads alike in short and gave something else: which one is meant could not be told."""


class OutputMemory:
    """One tool output in, the text to send out: for one context of one model. Not for several threads at once."""

    def __init__(self, settings: MemorySettings = _DEFAULT) -> None:
        self.settings: Final = settings
        self._sent: OrderedDict[bytes, _FullOutput] = OrderedDict()
        self._calls = self._turns = 0
        self._explained = False
        self._take_back: Callable[[], None] = _nothing
        self._given: dict[str, int] = {}
        """By label, what a call of this turn gave."""

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def calls(self) -> int:
        """How many outputs were seen, of any kind and size."""
        return self._calls

    def forget(self) -> None:
        """The host compacted: the model no longer sees what a hint would name."""
        self._sent.clear()
        self._explained = False

    def next_turn(self) -> None:
        """All calls of a turn have ended, and the model gets to see what they gave."""
        self._turns += 1
        self._given.clear()

    def take_back(self) -> None:
        """The hint that was made last was not sent, its output went in full: so nobody was told what a hint is."""
        self._take_back()
        self._take_back = _nothing

    def skip(self) -> None:
        """A call whose output went another way: it counts, nothing else is known of it."""
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
        """Decide what to send for the output `body` of a call; never more bytes than it has.

        `arguments` is a JSON object or its text; `path` is the file that was read or changed, if the arguments do not
        name it; `kind` is what the tool does to it, if its name does not tell; `now` is in seconds on any clock that
        does not go back; `invalidates` names tools whose earlier outputs this call has made obsolete.
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
        # Only what was sent in full is in here, so no difference is ever told from another difference.
        for content, each in sorted(self._sent.items(), key=lambda item: -item[1].call):
            if each.tool != tool or each.body is None or not self._was_seen(each):
                continue
            if (changed := describe_changes(each.body, new, config)) is not None:
                return self._refer(content, each, asked, many, changed)
        return None

    def _refer(self, content: bytes, earlier: _FullOutput, asked: bytes, many: int, but: str) -> Emission | None:
        """None where the text itself is shorter, or the model has not seen it yet."""
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
        """Whether calls of this turn that read alike gave different things; then none of them can be named."""
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
    """There is no hint to take back."""


def _file(arguments: Any) -> str | None:
    named = arguments if isinstance(arguments, dict) else {}
    return next((value for key in FILE_KEYS if isinstance(value := named.get(key), str) and value), None)


def _call_hash(tool: str, arguments: Any) -> bytes:
    """Equal for the same tool asked for the same, in whatever order the arguments come."""
    try:
        told = json.dumps(arguments, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        told = ""  # then it is any call of the tool: at worst a text goes out in full
    return hashlib.sha256(utf8(f"{tool}\0{told}")).digest()
