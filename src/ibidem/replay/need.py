"""Need: whether the model's recorded output used text that a profile had evicted by then.

The recorded model saw all texts. For each request, the recorded next output (texts and tool arguments, no thinking) is
compared with the texts of the request. The request **needs evicted text** if

- the old text of an edit in the output was in one text of the request, and is in no text that the profile sends (an
  *impossible edit*), or
- two lines of 25 or more characters, or one of 40 or more, were in texts of the request, and are in no text that it
  sends.

With the profile, the model would have to fetch the text again: about one more request. Lines are compared without line
numbers, diff signs and surrounding space. Text that a back-reference replaced is visible, since its target is; so need
is 0 for `lossless` by construction. These lines do not count: imports, lines with few letters, and lines that the model
wrote in two earlier outputs (habit). A text that was fetched again is visible again. The measure detects copied lines
only, so it is a lower bound: a paraphrase, or a decision based on evicted text, is not detected.

`read_outputs` reads a segment once, in time linear in its text. `find_needs` then judges a profile by its evictions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ..model import Message, Path, Text, ToolCall, ToolResult
from ..plan import Edit
from ..strategies.arrival.backrefs import BackReferences
from ..strategies.revision.file_names import loose_names
from ..strategies.revision.stale_arguments import CONTENT_KEYS, REPLACED_KEYS
from ..tool_arguments import decode_arguments
from ..tool_arguments.file_access import file_accesses

Purpose = Literal["edit", "command", "answer"]

MIN_LINE = 25
"""Characters of a line that is compared."""
SURE_LINE = 40
"""Characters from which one missing line is enough. Of shorter lines, two must be missing."""
MIN_LETTERS = 12
"""Minimum number of letters and digits in a line that is compared."""
HABIT_OUTPUTS = 2
"""Number of earlier outputs with a line from which on the model is assumed to know it."""
MAX_NORMALIZED = 256
"""Number of normalized texts in the cache of the search for old texts of edits."""

_MARGIN = re.compile(
    r"^[ \t]*(?:(?:[\w./@+-]+:)?L?\d{1,6}(?:→|\t|[:|-] ?))?[ \t]*[+-]?[ \t]*|[ \t\r]+$",
    re.MULTILINE,
)
"""Line numbers (`12→`, `12:`, `path:12:`), a diff sign, and space around a line."""
_IMPORT = re.compile(
    r"(?:import|from|use|using|package|require|include|#include|export \*|@import|mod|extern crate)\b"
    r"|#include|(?:const|let|var) [^=]+= require\("
)
_WORDS = re.compile(r"\w+")
_HUNK = re.compile(r"\*\*\* Begin Patch\n(.*?)(?:\n\*\*\* End Patch|\Z)", re.DOTALL)


class HistoryText(NamedTuple):
    """A text of a history: a tool result, an argument of a call, or what the user or the model wrote."""

    message: int
    path: Path
    text: str
    tool: str
    """The tool that it is a result or an argument of; empty for other texts."""
    first: int
    """The first request with this text."""


class UsedLine(NamedTuple):
    """A line of an output, and the earlier texts that contain it."""

    line: str
    holders: Sequence[int]
    """Numbers of texts, oldest first."""
    known: int
    """Number of first `holders` that are before the output. Later texts are appended to the same list."""
    purpose: Purpose


class UsedEdit(NamedTuple):
    """An edit in an output, and the earlier texts that contain its old text in one piece."""

    old: str
    holders: tuple[int, ...]


class RecordedOutput(NamedTuple):
    """A recorded output: its lines and edits that use text of the request."""

    request: int
    lines: list[UsedLine]
    edits: list[UsedEdit]


class SegmentOutputs(NamedTuple):
    """The outputs of a segment. Requests are counted from 0 within it."""

    texts: list[HistoryText]
    at: dict[tuple[int, Path], int]
    """Message and path → number of the text."""
    by_message: dict[int, list[int]]
    all: list[RecordedOutput]
    edits: int
    """Edits with an old text, in all outputs."""


class EvictedText(NamedTuple):
    """An edit that removed text from requests `first` to `last` (not included)."""

    first: int
    last: int
    edit: Edit
    tokens: float


class Need(NamedTuple):
    """A request whose recorded output used evicted text."""

    request: int
    impossible: int
    """Number of its edits without their old text."""
    label: str
    """The strategy that evicted the newest of the needed texts."""
    tool: str
    age: int
    """Requests since that text arrived."""
    purpose: Purpose
    tokens: float
    """Tokens that fetching the text again adds to the context."""
    evictions: frozenset[tuple[int, Path]]
    """Message and path of the needed texts."""


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_outputs(history: Sequence[Message], lengths: Sequence[int]) -> SegmentOutputs:
    """Read a segment: its texts, and the lines and edits of each output. `lengths`: entries of the history per
    request."""
    reader = _Reader(history, lengths)
    outputs = SegmentOutputs([], {}, {}, [], 0)
    edits = 0
    for request, (first, last) in enumerate(reader.outputs):
        reader.add_texts(history[len(outputs.by_message) : first], request, outputs)
        output = reader.read_output(history[first:last], request, outputs)
        edits += reader.edits
        if output.lines or output.edits:
            outputs.all.append(output)
    return outputs._replace(edits=edits)


class _Reader:
    """The state of one pass over a segment."""

    def __init__(self, history: Sequence[Message], lengths: Sequence[int]) -> None:
        ends = [*lengths[1:], len(history)]
        self.outputs = [(first, _output_end(history, first, end)) for first, end in zip(lengths, ends, strict=True)]
        self.edits = 0
        self._written: Counter[str] = Counter()
        """Outputs that had a line."""
        self._holders: dict[str, list[int]] = {}
        """Lines of outputs → texts that have them."""
        self._files: dict[str, list[int]] = {}
        """Names of files → texts that may show them."""
        self._called: dict[str, ToolCall] = {}
        outputs = [message for first, last in self.outputs for message in history[first:last]]
        for message in outputs:
            for _, text, _ in _message_texts(message, {}):
                self._holders.update((line, []) for line in comparable_lines(text))
            for call in message.calls:
                for old in old_texts(call):
                    self._holders.setdefault(_longest_line(old), [])
        self._normalized = lru_cache(MAX_NORMALIZED)(normalize_text)

    def add_texts(self, messages: Iterable[Message], request: int, outputs: SegmentOutputs) -> None:
        """Add the texts that are new in a request."""
        for message in messages:
            numbers = outputs.by_message[message.index] = []
            for call in message.calls:
                self._called[call.id] = call
            for path, text, owner in _message_texts(message, self._called):
                number = len(outputs.texts)
                outputs.texts.append(HistoryText(message.index, path, text, owner.name if owner else "", request))
                outputs.at[message.index, path] = number
                numbers.append(number)
                for line in self._holders.keys() & set(normalize_text(text).split("\n")):
                    self._holders[line].append(number)
                for name in loose_names(owner, file_accesses(owner)) if owner else ():
                    self._files.setdefault(name, []).append(number)

    def read_output(self, messages: Sequence[Message], request: int, outputs: SegmentOutputs) -> RecordedOutput:
        lines: dict[str, UsedLine] = {}
        edits: list[UsedEdit] = []
        self.edits = 0
        for message in messages:
            for _, text, call in _message_texts(message, {each.id: each for each in message.calls}):
                purpose: Purpose = "answer" if call is None else "edit" if _is_edit(call) else "command"
                for line in comparable_lines(text):
                    holders = self._holders[line]
                    if holders and self._written[line] < HABIT_OUTPUTS:
                        lines.setdefault(line, UsedLine(line, holders, len(holders), purpose))
            for call in message.calls:
                for old in old_texts(call):
                    self.edits += 1
                    if holding := self._find_holders(call, old, outputs):
                        edits.append(UsedEdit(old, holding))
        written_lines = {
            line
            for message in messages
            for _, text, _ in _message_texts(message, {})
            for line in comparable_lines(text)
        }
        self._written.update(written_lines)
        return RecordedOutput(request, list(lines.values()), edits)

    def _find_holders(self, call: ToolCall, old: str, outputs: SegmentOutputs) -> tuple[int, ...]:
        """Find the texts that contain an old text in one piece, among those with its longest line or about its file."""
        candidates = set(self._holders[_longest_line(old)])
        for name in loose_names(call, file_accesses(call)):
            candidates.update(self._files.get(name, ()))
        return tuple(number for number in sorted(candidates) if old in self._normalized(outputs.texts[number].text))


def _output_end(history: Sequence[Message], first: int, end: int) -> int:
    """Find the end of the model's messages after a request."""
    while first < end and history[first].role == "assistant":
        first += 1
    return first


def _message_texts(message: Message, calls: Mapping[str, ToolCall]) -> Iterator[tuple[Path, str, ToolCall | None]]:
    """Yield the texts of a message without thinking, with the call of each."""
    for part in message.parts:
        if isinstance(part, Text):
            yield part.path, part.text, None
        elif isinstance(part, ToolResult):
            for segment in part.segments:
                if isinstance(segment, Text):
                    yield segment.path, segment.text, calls.get(part.call_id)
        elif isinstance(part, ToolCall):
            arguments = decode_arguments(part)
            if isinstance(arguments, dict):
                for key, value in arguments.items():
                    if text := "\n".join(_iter_strings(value)):
                        yield (*part.input_path, key), text, part
            elif text := "\n".join(_iter_strings(arguments)):
                yield part.input_path, text, part


def _iter_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _iter_strings(each)


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def normalize_text(text: str) -> str:
    """Normalize a text so that its lines can be compared. JSON output is parsed, because its line breaks are
    escaped."""
    if text.startswith("{") and "\\n" in text:
        with suppress(ValueError, RecursionError):
            text = "\n".join(_iter_strings(json.loads(text)))
    return _MARGIN.sub("", text)


def comparable_lines(text: str) -> set[str]:
    """Collect the lines of a text that are long and specific enough to compare."""
    return {line for line in normalize_text(text).split("\n") if len(line) >= MIN_LINE and _is_specific(line)}


def _is_specific(line: str) -> bool:
    return not _IMPORT.match(line) and sum(map(len, _WORDS.findall(line))) >= MIN_LETTERS


def _longest_line(old: str) -> str:
    return max(old.split("\n"), key=len)


def old_texts(call: ToolCall) -> list[str]:
    """List the old texts that a call's edits replace, normalized."""
    texts = [normalize_text(text) for text in _replaced_strings(decode_arguments(call))]
    return [text for text in texts if text.strip()]


def _is_edit(call: ToolCall) -> bool:
    return bool(old_texts(call)) or call.name in CONTENT_KEYS


def _replaced_strings(arguments: Any) -> Iterator[str]:
    if isinstance(arguments, str):
        for patch in _HUNK.findall(arguments):
            yield from _hunk_texts(patch)
    elif isinstance(arguments, dict | list):
        pairs = arguments.items() if isinstance(arguments, dict) else enumerate(arguments)
        for key, value in pairs:
            if key in REPLACED_KEYS and isinstance(value, str):
                yield value
            else:
                yield from _replaced_strings(value)


def _hunk_texts(patch: str) -> Iterator[str]:
    """Yield the old side of each hunk: context lines and removed lines."""
    old: list[str] = []
    for line in [*patch.split("\n"), "@@"]:
        if line.startswith(("@@", "***")):
            if old:
                yield "\n".join(old)
            old = []
        elif line[:1] in (" ", "-"):
            old.append(line[1:])


# ── evictions ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _TextEviction(NamedTuple):
    """An eviction of a text, in some requests."""

    first: int
    last: int
    label: str
    tokens: float
    left: str
    """The part of the text that is still sent."""
    lines: frozenset[str]


EvictionLookup = Callable[[int], _TextEviction | None]
"""Number of a text → its eviction in one request; None if the text is sent completely."""


def find_needs(outputs: SegmentOutputs, evicted_texts: Iterable[EvictedText]) -> list[Need]:
    """Find the requests that need evicted text. `evicted_texts` and `outputs` count requests from the start of the
    segment."""
    evictions: dict[int, list[_TextEviction]] = {}
    for each in evicted_texts:
        if is_eviction(each.edit):
            remaining_text = normalize_text(each.edit.added)
            eviction = _TextEviction(
                each.first,
                each.last,
                each.edit.strategy,
                each.tokens,
                remaining_text,
                frozenset(remaining_text.split("\n")),
            )
            for number in _texts_at(outputs, each.edit):
                evictions.setdefault(number, []).append(eviction)
    if not evictions:
        return []
    return [need for output in outputs.all if (need := _find_need(outputs, output, evictions)) is not None]


def is_eviction(edit: Edit) -> bool:
    """Whether an edit removes text from the model's view. A back-reference does not: its target is still sent."""
    return edit.op in ("set", "drop") and edit.strategy not in BackReferences.labels


def _texts_at(outputs: SegmentOutputs, edit: Edit) -> Collection[int]:
    number = outputs.at.get((edit.message, edit.path))
    if number is not None:
        return (number,)
    inside = outputs.by_message.get(edit.message, ())  # a part, or a whole message
    return [each for each in inside if outputs.texts[each].path[: len(edit.path)] == edit.path]


def _find_need(
    outputs: SegmentOutputs, output: RecordedOutput, evictions: Mapping[int, list[_TextEviction]]
) -> Need | None:
    request = output.request

    def eviction_of(number: int) -> _TextEviction | None:
        return next((each for each in evictions.get(number, ()) if each.first <= request < each.last), None)

    missing = [used for used in output.lines if _is_missing(used, eviction_of)]
    lost_edits = [edit for edit in output.edits if _is_lost(edit, eviction_of)]
    if not lost_edits and len(missing) < 2 and not any(len(used.line) >= SURE_LINE for used in missing):
        return None
    numbers = {used.holders[used.known - 1] for used in missing} | {edit.holders[-1] for edit in lost_edits}
    newest = max(numbers)
    text, eviction = outputs.texts[newest], eviction_of(newest)
    assert eviction is not None
    purposes = ["edit"] * bool(lost_edits) + [used.purpose for used in missing]
    purpose: Purpose = next(each for each in ("edit", "command", "answer") if each in purposes)
    tokens = sum(each.tokens for number in numbers if (each := eviction_of(number)) is not None)
    keys = frozenset((outputs.texts[number].message, outputs.texts[number].path) for number in numbers)
    return Need(request, len(lost_edits), eviction.label, text.tool, request - text.first, purpose, tokens, keys)


def _is_missing(used_line: UsedLine, state: EvictionLookup) -> bool:
    """Whether no text with a line is sent with this line. The search starts with the newest, which nearly always is."""
    for place in range(used_line.known - 1, -1, -1):
        eviction = state(used_line.holders[place])
        if eviction is None or used_line.line in eviction.lines:
            return False
    return True


def _is_lost(edit: UsedEdit, state: EvictionLookup) -> bool:
    """Whether the old text of an edit is no longer sent in one piece."""
    return all((how := state(number)) is not None and edit.old not in how.left for number in reversed(edit.holders))
