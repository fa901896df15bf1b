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

`outputs_of` reads a segment once, in time linear in its text. `find_needs` then judges a profile by its evictions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ..calls import decoded
from ..calls.file_access import touches
from ..model import Message, Path, Text, ToolCall, ToolResult
from ..plan import Edit
from ..strategies.arrival.backrefs import BackReferences
from ..strategies.revision.names import loose_names
from ..strategies.revision.rewrites import CONTENT_KEYS, REPLACED_KEYS

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


class Output(NamedTuple):
    """A recorded output: its lines and edits that use text of the request."""

    request: int
    lines: list[UsedLine]
    edits: list[UsedEdit]


class Outputs(NamedTuple):
    """The outputs of a segment. Requests are counted from 0 within it."""

    texts: list[HistoryText]
    at: dict[tuple[int, Path], int]
    """Message and path → number of the text."""
    by_message: dict[int, list[int]]
    all: list[Output]
    edits: int
    """Edits with an old text, in all outputs."""


class Evicted(NamedTuple):
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


def outputs_of(history: Sequence[Message], lengths: Sequence[int]) -> Outputs:
    """Read a segment: its texts, and the lines and edits of each output. `lengths`: entries of the history per
    request."""
    reader = _Reader(history, lengths)
    found = Outputs([], {}, {}, [], 0)
    edits = 0
    for request, (first, last) in enumerate(reader.outputs):
        reader.take(history[len(found.by_message) : first], request, found)
        output = reader.read_output(history[first:last], request, found)
        edits += reader.edits
        if output.lines or output.edits:
            found.all.append(output)
    return found._replace(edits=edits)


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
            for _, text, _ in _texts(message, {}):
                self._holders.update((line, []) for line in lines_of(text))
            for call in message.calls:
                for old in old_texts(call):
                    self._holders.setdefault(_anchor(old), [])
        self._normalized = lru_cache(MAX_NORMALIZED)(normalized)

    def take(self, messages: Iterable[Message], request: int, found: Outputs) -> None:
        """Add the texts that are new in a request."""
        for message in messages:
            numbers = found.by_message[message.index] = []
            for call in message.calls:
                self._called[call.id] = call
            for path, text, owner in _texts(message, self._called):
                number = len(found.texts)
                found.texts.append(HistoryText(message.index, path, text, owner.name if owner else "", request))
                found.at[message.index, path] = number
                numbers.append(number)
                for line in self._holders.keys() & set(normalized(text).split("\n")):
                    self._holders[line].append(number)
                for name in loose_names(owner, touches(owner)) if owner else ():
                    self._files.setdefault(name, []).append(number)

    def read_output(self, messages: Sequence[Message], request: int, found: Outputs) -> Output:
        used: dict[str, UsedLine] = {}
        edits: list[UsedEdit] = []
        self.edits = 0
        for message in messages:
            for _, text, call in _texts(message, {each.id: each for each in message.calls}):
                purpose: Purpose = "answer" if call is None else "edit" if _edits(call) else "command"
                for line in lines_of(text):
                    holders = self._holders[line]
                    if holders and self._written[line] < HABIT_OUTPUTS:
                        used.setdefault(line, UsedLine(line, holders, len(holders), purpose))
            for call in message.calls:
                for old in old_texts(call):
                    self.edits += 1
                    if holding := self._holding(call, old, found):
                        edits.append(UsedEdit(old, holding))
        written = {line for message in messages for _, text, _ in _texts(message, {}) for line in lines_of(text)}
        self._written.update(written)
        return Output(request, list(used.values()), edits)

    def _holding(self, call: ToolCall, old: str, found: Outputs) -> tuple[int, ...]:
        """Find the texts that contain an old text in one piece, among those with its longest line or about its file."""
        candidates = set(self._holders[_anchor(old)])
        for name in loose_names(call, touches(call)):
            candidates.update(self._files.get(name, ()))
        return tuple(number for number in sorted(candidates) if old in self._normalized(found.texts[number].text))


def _output_end(history: Sequence[Message], first: int, end: int) -> int:
    """Find the end of the model's messages after a request."""
    while first < end and history[first].role == "assistant":
        first += 1
    return first


def _texts(message: Message, called: Mapping[str, ToolCall]) -> Iterator[tuple[Path, str, ToolCall | None]]:
    """Yield the texts of a message without thinking, with the call of each."""
    for part in message.parts:
        if isinstance(part, Text):
            yield part.path, part.text, None
        elif isinstance(part, ToolResult):
            for segment in part.segments:
                if isinstance(segment, Text):
                    yield segment.path, segment.text, called.get(part.call_id)
        elif isinstance(part, ToolCall):
            given = decoded(part)
            if isinstance(given, dict):
                for key, value in given.items():
                    if text := "\n".join(_strings(value)):
                        yield (*part.input_path, key), text, part
            elif text := "\n".join(_strings(given)):
                yield part.input_path, text, part


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def normalized(text: str) -> str:
    """Normalize a text so that its lines can be compared. JSON output is parsed, because its line breaks are
    escaped."""
    if text.startswith("{") and "\\n" in text:
        with suppress(ValueError, RecursionError):
            text = "\n".join(_strings(json.loads(text)))
    return _MARGIN.sub("", text)


def lines_of(text: str) -> set[str]:
    """Collect the lines of a text that are long and specific enough to compare."""
    return {line for line in normalized(text).split("\n") if len(line) >= MIN_LINE and _says_something(line)}


def _says_something(line: str) -> bool:
    return not _IMPORT.match(line) and sum(map(len, _WORDS.findall(line))) >= MIN_LETTERS


def _anchor(old: str) -> str:
    return max(old.split("\n"), key=len)


def old_texts(call: ToolCall) -> list[str]:
    """List the old texts that a call's edits replace, normalized."""
    found = [normalized(text) for text in _replaced(decoded(call))]
    return [text for text in found if text.strip()]


def _edits(call: ToolCall) -> bool:
    return bool(old_texts(call)) or call.name in CONTENT_KEYS


def _replaced(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        for patch in _HUNK.findall(given):
            yield from _hunks(patch)
    elif isinstance(given, dict | list):
        pairs = given.items() if isinstance(given, dict) else enumerate(given)
        for key, value in pairs:
            if key in REPLACED_KEYS and isinstance(value, str):
                yield value
            else:
                yield from _replaced(value)


def _hunks(patch: str) -> Iterator[str]:
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


class _Gone(NamedTuple):
    """An eviction of a text, in some requests."""

    first: int
    last: int
    label: str
    tokens: float
    left: str
    """The part of the text that is still sent."""
    lines: frozenset[str]


State = Callable[[int], _Gone | None]
"""Number of a text → its eviction in one request; None if the text is sent completely."""


def find_needs(outputs: Outputs, evicted: Iterable[Evicted]) -> list[Need]:
    """Find the requests that need evicted text. `evicted` and `outputs` count requests from the start of the
    segment."""
    gone: dict[int, list[_Gone]] = {}
    for each in evicted:
        if is_eviction(each.edit):
            left = normalized(each.edit.added)
            how = _Gone(each.first, each.last, each.edit.strategy, each.tokens, left, frozenset(left.split("\n")))
            for number in _texts_at(outputs, each.edit):
                gone.setdefault(number, []).append(how)
    if not gone:
        return []
    return [need for output in outputs.all if (need := _need(outputs, output, gone)) is not None]


def is_eviction(edit: Edit) -> bool:
    """Whether an edit removes text from the model's view. A back-reference does not: its target is still sent."""
    return edit.op in ("set", "drop") and edit.strategy not in BackReferences.labels


def _texts_at(outputs: Outputs, edit: Edit) -> Collection[int]:
    number = outputs.at.get((edit.message, edit.path))
    if number is not None:
        return (number,)
    inside = outputs.by_message.get(edit.message, ())  # a part, or a whole message
    return [each for each in inside if outputs.texts[each].path[: len(edit.path)] == edit.path]


def _need(outputs: Outputs, output: Output, gone: Mapping[int, list[_Gone]]) -> Need | None:
    request = output.request

    def state(number: int) -> _Gone | None:
        return next((each for each in gone.get(number, ()) if each.first <= request < each.last), None)

    missing = [used for used in output.lines if _missing(used, state)]
    lost = [edit for edit in output.edits if _lost(edit, state)]
    if not lost and len(missing) < 2 and not any(len(used.line) >= SURE_LINE for used in missing):
        return None
    concerned = {used.holders[used.known - 1] for used in missing} | {edit.holders[-1] for edit in lost}
    newest = max(concerned)
    text, how = outputs.texts[newest], state(newest)
    assert how is not None
    purposes = ["edit"] * bool(lost) + [used.purpose for used in missing]
    purpose: Purpose = next(each for each in ("edit", "command", "answer") if each in purposes)
    tokens = sum(each.tokens for number in concerned if (each := state(number)) is not None)
    keys = frozenset((outputs.texts[number].message, outputs.texts[number].path) for number in concerned)
    return Need(request, len(lost), how.label, text.tool, request - text.first, purpose, tokens, keys)


def _missing(used: UsedLine, state: State) -> bool:
    """Whether no text with a line is sent with this line. The search starts with the newest, which nearly always is."""
    for place in range(used.known - 1, -1, -1):
        how = state(used.holders[place])
        if how is None or used.line in how.lines:
            return False
    return True


def _lost(edit: UsedEdit, state: State) -> bool:
    """Whether the old text of an edit is no longer sent in one piece."""
    return all((how := state(number)) is not None and edit.old not in how.left for number in reversed(edit.holders))
