"""The response seat: say "as before" where only tool outputs are seen, one by one.

A gateway or a hook never holds the conversation: it sees an output, passes it on, and can only
remember. So the memory is small, forgets the least recently used output first, and is emptied when
the host compacts its context: a hint helps only while the model can still see what it names. Two
kinds of repetition are recognised: an output equal byte for byte and, if asked for, a JSON object
that differs from a remembered one in a few scalar values.

Outputs also go stale. A call that changes a file drops the remembered reads of its path, and a call
may declare tools whose answers it makes obsolete; what comes next is sent in full, even if equal.

Texts, sizes and order of steps are those of devboy. All sizes are UTF-8 bytes.
"""

import enum
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from .model import UsageError


def _utf8(text: str) -> bytes:
    # Text read from a process or a file name may hold lone surrogates; hashing it must not fail.
    return text.encode("utf-8", "surrogatepass")


def content_hash(data: bytes | str) -> bytes:
    """The first 16 bytes of SHA-256. Nothing is normalised: one other byte, another hash."""
    raw = _utf8(data) if isinstance(data, str) else data
    return hashlib.sha256(raw).digest()[:16]


def path_hash(path: str) -> str:
    """The first 8 hex digits of SHA-256 of the path as spelled; `./a` and `a` are two paths."""
    return hashlib.sha256(_utf8(path)).hexdigest()[:8]


class ToolKind(enum.Enum):
    """What a call does to files, as far as its tool's name tells."""

    FILE_READ = "file-read"
    FILE_MUTATE = "file-mutate"
    OTHER = "other"

    @classmethod
    def from_tool_name(cls, name: str) -> "ToolKind":
        """Names are matched exactly; an unknown one is OTHER."""
        return _KIND_OF_TOOL.get(name, cls.OTHER)


_KIND_OF_TOOL: Final = {
    **dict.fromkeys(("Read", "Grep", "Glob", "NotebookRead"), ToolKind.FILE_READ),
    **dict.fromkeys(("Edit", "Write", "MultiEdit", "NotebookEdit"), ToolKind.FILE_MUTATE),
}


class HintVerbosity(enum.Enum):
    """How much a hint says beside the id."""

    TERSE = "terse"
    STANDARD = "standard"
    VERBOSE = "verbose"


def render_reference_hint(
    id: str, verbosity: HintVerbosity = HintVerbosity.STANDARD, source: ToolKind | None = None
) -> str:
    """The line sent in place of an output that equals the one of call `id`.

    Only VERBOSE names the source; without a source it reads like STANDARD.
    """
    if verbosity is HintVerbosity.TERSE:
        return f"> [ref: {id}]"
    if verbosity is HintVerbosity.STANDARD or source is None:
        return f"> [ref: {id}, byte-identical]"
    return f"> [ref: {id}, byte-identical, from: {source.value}]"


@dataclass(frozen=True, slots=True)
class NearRefConfig:
    """When a changed JSON object is worth a near-reference."""

    max_delta_bytes: int = 50
    """Largest rendered delta, see `extract_delta`; equal still fits."""

    min_body_bytes: int = 500
    """Smallest new body; the size of the old one does not matter."""


_DEFAULT_NEAR: Final = NearRefConfig()
_Object = dict[str, object]


@dataclass(frozen=True, slots=True)
class DeltaField:
    """One top-level key whose scalar value changed, with both values as rendered."""

    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class _Number:
    """A JSON number by its spelling: 1 and 1.0 differ, and no digit is lost to a float."""

    spelling: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _json_object(text: str) -> _Object | None:
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _scalar_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Number):
        return value.spelling
    if isinstance(value, str):
        return value
    raise ValueError("a list or an object has no place in a one-line delta")


def _joined(head: Sequence[str], deltas: Sequence[DeltaField]) -> str:
    return ", ".join([*head, *(f"{each.key}: {each.old}→{each.new}" for each in deltas)])


def _new_object(body: str, config: NearRefConfig) -> _Object | None:
    return _json_object(body) if len(_utf8(body)) >= config.min_body_bytes else None


def _delta(old_body: str, new: _Object, config: NearRefConfig) -> tuple[DeltaField, ...] | None:
    old = _json_object(old_body)
    if old is None or old.keys() != new.keys():
        return None
    try:
        deltas = tuple(
            DeltaField(key, _scalar_text(old[key]), _scalar_text(value))
            for key, value in new.items()
            if value != old[key]
        )
        # Strict on purpose: an escaped lone surrogate would make a line nobody can send.
        size = len(_joined((), deltas).encode("utf-8"))
    except (ValueError, RecursionError):  # comparing values descends as deep as parsing them
        return None
    return deltas if deltas and size <= config.max_delta_bytes else None


def extract_delta(old_body: str, new_body: str, config: NearRefConfig = _DEFAULT_NEAR) -> tuple[DeltaField, ...] | None:
    """The changed fields, in the order of the new body's keys, or None if not eligible.

    Eligible: the new body is long enough, both are JSON objects with the same top-level keys, at
    least one value differs, every differing value is scalar on both sides, and the rendered delta
    fits. The rendered delta is `key: old→new, key2: old→new`, without the frame and the id around
    it; the arrow counts three bytes. Null renders empty, a number as it was spelled, a string raw.
    Never raises: broken JSON, NaN or nesting too deep to parse is not eligible.
    """
    new = _new_object(new_body, config)
    return None if new is None else _delta(old_body, new, config)


def render_near_ref(id: str, deltas: Sequence[DeltaField]) -> str:
    """The line sent in place of an output that differs from the one of call `id` in `deltas`."""
    return f"> [near-ref: {_joined((id,), deltas)}]"


@dataclass(frozen=True, slots=True)
class Fresh:
    """Not remembered: send the output in full, then insert it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Remembered: the output is equal to the one of this call."""

    reference_tool_call_id: str


_Key = tuple[Literal["hash", "id", "path", "tool"], str | bytes]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """One remembered output. Compared by identity, so that equal ones are kept apart."""

    tool_call_id: str
    body: str | None
    keys: tuple[_Key, ...]
    """The groups it is found by; "path" only for file reads, as no other entry goes stale so."""


def _be_hash(hash: Any) -> None:
    if not isinstance(hash, bytes):
        raise UsageError(f"hash: {type(hash).__name__} is no hash: pass content_hash(text)")


def _be_names(names: Iterable[str]) -> Iterable[str]:
    if isinstance(names, str):
        raise UsageError(f"{names!r} is one name: pass a list, [{names!r}]")
    return names


class DedupCache:
    """A bounded memory of the outputs last sent, least recently used first out; at least one.

    Constant time per operation, amortised; dropping takes the number dropped, and only
    `find_near_ref` looks at every entry. Entries are grouped by what they are looked up by, each
    group in the order of the whole: its first is what a scan from the oldest would find.
    """

    def __init__(self, capacity: int = 5) -> None:
        self._capacity = max(1, capacity)
        self._partition = 0
        # Not plain dicts: those find their first key by walking over the holes of removed ones.
        self._order: OrderedDict[_Entry, None] = OrderedDict()
        self._groups: dict[_Key, OrderedDict[_Entry, None]] = {}

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def partition(self) -> int:
        """How many compaction boundaries have passed."""
        return self._partition

    def __len__(self) -> int:
        return len(self._order)

    def check(self, hash: bytes) -> Fresh | Hint:
        """Of several equal entries the least recent is found; a hit is made the most recent."""
        _be_hash(hash)
        entry = self._promote_first(("hash", hash))
        return Fresh() if entry is None else Hint(entry.tool_call_id)

    def touch(self, tool_call_id: str) -> bool:
        """Make the least recent entry of this call the most recent; False if there is none."""
        return self._promote_first(("id", tool_call_id)) is not None

    def insert(
        self,
        hash: bytes,
        id: str,
        kind: ToolKind = ToolKind.OTHER,
        path_hash: str | None = None,
        tool_name: str = "",
    ) -> None:
        """Remember as the most recent; when full, the least recent goes. Nothing is merged."""
        self.insert_with_body(hash, id, kind, path_hash, None, tool_name)

    def insert_with_body(
        self,
        hash: bytes,
        id: str,
        kind: ToolKind = ToolKind.OTHER,
        path_hash: str | None = None,
        body: str | None = None,
        tool_name: str = "",
    ) -> None:
        """`insert`, and keep the text, if there is one, for near-references to point at."""
        _be_hash(hash)
        if not isinstance(kind, ToolKind):
            raise UsageError(f"kind: {kind!r} is no ToolKind: pass ToolKind.from_tool_name(tool_name)")
        if len(self._order) >= self._capacity:
            self._drop(next(iter(self._order)))
        keys: tuple[_Key, ...] = (("hash", hash), ("id", id), ("tool", tool_name))
        if kind is ToolKind.FILE_READ and path_hash is not None:
            keys += (("path", path_hash),)
        entry = _Entry(id, body, keys)
        self._order[entry] = None
        for key in keys:
            self._groups.setdefault(key, OrderedDict())[entry] = None

    def find_near_ref(
        self, body: str, config: NearRefConfig = _DEFAULT_NEAR
    ) -> tuple[str, tuple[DeltaField, ...]] | None:
        """The most recent entry with an eligible delta to `body`. Recency stays as it is."""
        new = _new_object(body, config)
        if new is None:
            return None
        for entry in reversed(self._order):
            deltas = None if entry.body is None else _delta(entry.body, new, config)
            if deltas is not None:
                return entry.tool_call_id, deltas
        return None

    def invalidate_file(self, path_hash: str) -> int:
        """Drop the file reads of this path, and nothing else that names it; returns how many."""
        return self._drop_group(("path", path_hash))

    def invalidate_by_tool(self, names: Iterable[str]) -> int:
        """Drop every entry of these tools; returns how many."""
        return sum(self._drop_group(("tool", name)) for name in _be_names(names))

    def on_compaction_boundary(self) -> None:
        """Forget everything: the model no longer sees what a hint would name."""
        self._order.clear()
        self._groups.clear()
        self._partition += 1

    def _promote_first(self, key: _Key) -> _Entry | None:
        group = self._groups.get(key)
        if group is None:
            return None
        entry = next(iter(group))
        self._order.move_to_end(entry)
        for each in entry.keys:
            self._groups[each].move_to_end(entry)
        return entry

    def _drop_group(self, key: _Key) -> int:
        stale = list(self._groups.get(key, ()))
        for entry in stale:
            self._drop(entry)
        return len(stale)

    def _drop(self, entry: _Entry) -> None:
        del self._order[entry]
        for key in entry.keys:
            group = self._groups[key]
            del group[entry]
            if not group:  # a group is never empty, so it can be told by its absence
                del self._groups[key]


@dataclass(frozen=True, slots=True)
class Emission:
    """What to send for one output, and why: only a hint or a near-reference is not the body."""

    text: str
    kind: Literal["fresh", "short", "hint", "near"]


class ResponsePipeline:
    """One tool output in, the text to send out. Settings are fixed, the cache is its state."""

    def __init__(
        self,
        cache: DedupCache | None = None,
        min_bytes: int = 200,
        near: NearRefConfig | None = None,
        verbosity: HintVerbosity = HintVerbosity.STANDARD,
        *,
        short_bodies_invalidate: bool = True,
    ) -> None:
        """`near=None` makes no near-references and keeps no bodies.

        `short_bodies_invalidate=False` is devboy's way: a declared `invalidates` counts only if
        the writer's own output was sent in full and remembered, not if it was short or repeated.
        """
        # An empty cache is falsy, so `or` would replace the one that was passed in.
        self.cache: Final = DedupCache() if cache is None else cache
        self.min_bytes: Final = min_bytes
        self.near: Final = near
        self.verbosity: Final = verbosity
        self.short_bodies_invalidate: Final = short_bodies_invalidate

    def emit(
        self,
        tool_call_id: str,
        tool_name: str,
        body: str,
        *,
        path: str | None = None,
        invalidates: Iterable[str] = (),
    ) -> Emission:
        """Decide what to send for `body`; never more bytes than it has."""
        if not isinstance(body, str):
            raise UsageError(f"body: {type(body).__name__} is no text: pass what the model is to read")
        _be_names(invalidates)
        kind = ToolKind.from_tool_name(tool_name)
        file = None if path is None else path_hash(path)
        # First of all, and for a body of any size: the file has changed, whatever was printed.
        if kind is ToolKind.FILE_MUTATE and file is not None:
            self.cache.invalidate_file(file)
        data = _utf8(body)
        hash = content_hash(data)
        emission = self._decide(hash, body, len(data), kind)
        if emission.kind in ("fresh", "near"):
            kept = None if self.near is None else body
            self.cache.insert_with_body(hash, tool_call_id, kind, file, kept, tool_name)
        if self.short_bodies_invalidate or emission.kind == "fresh":
            self.cache.invalidate_by_tool(invalidates)
        return emission

    def note_reference(self, tool_call_id: str) -> bool:
        """A hint to this call stands in a history read again: refresh it; False if forgotten."""
        return self.cache.touch(tool_call_id)

    def _decide(self, hash: bytes, body: str, size: int, kind: ToolKind) -> Emission:
        if size < self.min_bytes:
            return Emission(body, "short")
        fresh = Emission(body, "fresh")
        found = self.cache.check(hash)
        if isinstance(found, Hint):
            hint = render_reference_hint(found.reference_tool_call_id, self.verbosity, kind)
            reference = Emission(hint, "hint")
        elif self.near and (near := self.cache.find_near_ref(body, self.near)):
            reference = Emission(render_near_ref(*near), "near")
        else:
            return fresh
        return reference if len(_utf8(reference.text)) < size else fresh
