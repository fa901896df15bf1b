"""The edits of a request for display: position, both texts line by line, and the targets of markers."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, Literal, NamedTuple

from ... import formats
from ...engine.pipeline import Compacted
from ...errors import one_line
from ...markers import codetether
from ...markers.backref import ABOVE, Marker, Source
from ...markers.layout import VisibleText, parse_markers
from ...markers.source_numbers import NumberedText, SourceNumbers
from ...model import Conversation, Message, Path, to_json
from ...plan import Edit
from ...rules.demands import position_text
from ...tokens import counter_for
from ...tool_arguments import arguments_by_name, call_label
from ...wire import open_document
from ..request_input import InputRequest
from .compact_summary import BeforeAfter, CompactSummary

LineStyle = Literal["kept", "gone", "new", "marker"]

SHOWN_END_LINES = 3
"""Lines shown at the start and the end of a collapsed run."""
MAX_DIFF_LINES = 2000
"""Lines of both texts above which `difflib` takes too long. A faster, less exact alignment is used instead."""
SHORT_RUN_LINES = 10
"""Longest run of lines that is not collapsed."""

FOREIGN_MARKERS = (
    codetether.DEDUPED,
    codetether.SNIPPED,
    "[...streaming-llm trim",
    "[REPEAT of call_id=",
    "[tool result ",
    "> [ref: ",
)
"""Prefixes of the seed profiles' markers."""
_CALL_ID = re.compile(r"(?:call_id=|\[ref: )([^\s,\]]+)")


class ViewLine(NamedTuple):
    """A line of the original or the sent text."""

    text: str
    look: LineStyle
    place: int
    """Line number in its text, from 0."""
    marker: Marker | None = None
    """The parsed marker; None for other lines and for markers of seed profiles."""


class Block(NamedTuple):
    """Lines of the original, and the lines sent instead."""

    original: list[ViewLine]
    sent: list[ViewLine]

    @property
    def kept(self) -> bool:
        """Both texts are the same."""
        return bool(self.original) and self.original[0].look == "kept"


class LinkTarget(NamedTuple):
    """Target of a marker: lines of a text, as it is sent."""

    source: Source
    lines: list[str]
    first: int | None = None
    """Index of the first line; None if the target is the whole text."""


@dataclass(frozen=True, slots=True)
class EditView:
    """An edit with everything that is shown for it."""

    edit: Edit
    position: str
    """JSON path in the request, such as `messages[10].content[0]`."""
    name: str
    """`result 6, read_file(larder/amounts.py)`"""
    source: Source | None
    original: str
    sent: str
    tokens: BeforeAfter
    blocks: list[Block]
    facts: str = ""
    """For recorded sessions: the request that made the edit first, and its savings."""

    def as_dict(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return {
            "message": self.edit.message,
            "path": list(self.edit.path),
            "strategy": self.edit.strategy,
            "reason": self.edit.reason,
            "original": self.original,
            "sent": self.sent,
            "bytes_saved": self.edit.bytes_saved,
            "tokens": {"before": self.tokens.before, "after": self.tokens.after},
        }


@dataclass(slots=True, kw_only=True)
class EditTexts:
    """The edits of a request, and the texts that their markers point at."""

    tag: str = ""
    parts: list[EditView] = field(default_factory=list)
    places: dict[Source, NumberedText] = field(default_factory=dict)
    """Every text that a marker can point at, as it is sent."""
    _shown: dict[Source, VisibleText] = field(default_factory=dict)

    def target(self, line: ViewLine) -> LinkTarget | None:
        """Return the target of a marker line; None for other lines and unknown targets."""
        if line.look != "marker":
            return None
        place = self._find_target(line)
        if place is None:
            return None
        lines = place.text.split("\n")
        marker = line.marker
        if marker is None or not marker.unit:
            return LinkTarget(place.source, lines)
        visible = self.shown(place.source)
        if visible.layout.comma:  # the units are items of one long line, so the target is the whole line
            return LinkTarget(place.source, lines)
        first = visible.find_position(marker)
        if first < 0:
            return LinkTarget(place.source, lines)
        return LinkTarget(place.source, lines[first : first + marker.last - marker.first + 1], first)

    def shown(self, source: Source) -> VisibleText:
        """Return the parsed layout of a source, which maps units of markers to lines."""
        if source not in self._shown:
            self._shown[source] = VisibleText.from_text(self.places[source].text, self.tag)
        return self._shown[source]

    def _find_target(self, line: ViewLine) -> NumberedText | None:
        if line.marker is not None:
            return self.places.get(line.marker.source) if line.marker.source else None
        match = _CALL_ID.search(line.text)
        results = (place for place in self.places.values() if match and place.call_id == match[1])
        return next(results, None)


@dataclass(slots=True, kw_only=True)
class RequestView(EditTexts):
    """One request before and after rewriting."""

    request: InputRequest
    figures: CompactSummary


def view_request(request: InputRequest, result: Compacted, profile: str) -> RequestView:
    """Return the view of a request from the result of `compact`."""
    figures = CompactSummary(request.where, profile)
    figures.add(request, result)
    if result.conversation is None:
        return RequestView(request=request, figures=figures)
    conversation = formats.parse_request(open_document(request.data).value, formats.format_named(result.format))
    places, tag = index_texts(result.conversation)
    model = conversation.head.get("model")
    count = counter_for(model if isinstance(model, str) else None)
    names = PositionNames(conversation, tag)
    parts = [
        names.view_edit(edit, BeforeAfter(sum(map(count, edit.removed)), count(sent_text(edit))))
        for edit in sorted(result.plan, key=lambda edit: edit.message)
    ]
    return RequestView(request=request, figures=figures, tag=tag, parts=parts, places=places)


def index_texts(conversation: Conversation) -> tuple[dict[Source, NumberedText], str]:
    """Return all texts of a request that a marker can point at, and the tag of its markers."""
    sources = SourceNumbers()
    return {
        place.source: place for message in conversation.messages for place in sources.number_texts(message)
    }, sources.tag


class PositionNames:
    """Display names of the positions in a request. They are also valid for every request that is a prefix of it."""

    def __init__(self, conversation: Conversation, tag: str) -> None:
        self._given, self._tag = conversation, tag
        self._names = _name_positions(conversation)

    def view_edit(self, edit: Edit, tokens: BeforeAfter, facts: str = "") -> EditView:
        """Return the view of an edit."""
        original, new_text = "\n".join(edit.removed), sent_text(edit)
        message_name = self._names.get((edit.message, ()), (None, ""))
        source, name = self._names.get((edit.message, edit.path), message_name)
        position = position_text(self._given, Message(edit.message, "", (), None), edit.path)
        edit_blocks = list(align_blocks(original, new_text, self._tag, source))
        return EditView(edit, position, name, source, original, new_text, tokens, edit_blocks, facts)


def _name_positions(conversation: Conversation) -> dict[tuple[int, Path], tuple[Source | None, str]]:
    """Return source and display name by position: the result, the call, or the message's role."""
    names: dict[tuple[int, Path], tuple[Source | None, str]] = {}
    sources = SourceNumbers()
    calls = 0
    for message in conversation.messages:
        names[message.index, ()] = (None, f"{message.role} message")
        for place in sources.number_texts(message):
            if place.segment is not None:
                name = ", ".join(filter(None, (str(place.source), place.call.label)))
                names[message.index, place.segment.path] = (place.source, name)
        for call in message.calls:
            calls += 1
            names[message.index, call.input_path] = (
                None,
                f"call {calls}, {call_label(call.name, arguments_by_name(call))}",
            )
    return names


def sent_text(edit: Edit) -> str:
    """Return an edit's new text, or its new value as JSON if it has no text."""
    if edit.added and not isinstance(edit.value, list):
        return edit.added
    return "" if edit.value is None else to_json(edit.value)


def align_blocks(original: str, sent: str, tag: str, source: Source | None = None) -> Iterator[Block]:
    """Align both texts line by line."""
    old, new = _split_lines(original), _split_lines(sent)
    parsed_markers = parse_markers(sent, new, tag)
    markers = {
        at: each._replace(source=source) if each.source == ABOVE else each for at, each in parsed_markers.items()
    }
    for is_equal, first, last, start, end in _align_lines(old, new):
        yield Block(
            [ViewLine(old[place], "kept" if is_equal else "gone", place) for place in range(first, last)],
            [
                ViewLine(new[place], "kept", place) if is_equal else _make_line(new[place], place, markers.get(place))
                for place in range(start, end)
            ],
        )


def _align_lines(old: list[str], new: list[str]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Yield aligned line ranges of both texts: an equality flag, then start and end in each text.

    In long texts, each new line is aligned with its next occurrence in the old text.
    """
    if len(old) + len(new) <= MAX_DIFF_LINES:
        for op, *stretch in SequenceMatcher(None, old, new).get_opcodes():
            yield op == "equal", *stretch  # type: ignore[misc]  # four numbers
        return
    places: dict[str, list[int]] = {}
    for place, line in enumerate(old):
        places.setdefault(line, []).append(place)
    at = start = 0
    while start < len(new):
        end, next_at = start, len(old)
        while end < len(new) and (next_at := _next_occurrence(places, new[end], at)) < 0:
            end += 1
        next_at = next_at if end < len(new) else len(old)
        if at < next_at or start < end:
            yield False, at, next_at, start, end
        at, start = next_at, end
        while at < len(old) and end < len(new) and old[at] == new[end]:
            at, end = at + 1, end + 1
        if start < end:
            yield True, next_at, at, start, end
        start = end
    if at < len(old):
        yield False, at, len(old), start, start


def _next_occurrence(places: dict[str, list[int]], line: str, at: int) -> int:
    """Return the index of a line's next occurrence from `at` on; -1 if there is none."""
    occurrences = places.get(line, [])
    number = bisect_left(occurrences, at)
    return occurrences[number] if number < len(occurrences) else -1


def _split_lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _make_line(line: str, place: int, marker: Marker | None) -> ViewLine:
    return ViewLine(line, "marker" if marker or line.startswith(FOREIGN_MARKERS) else "new", place, marker)


def collapse_runs(lines: list[ViewLine]) -> Iterator[tuple[bool, list[ViewLine]]]:
    """Split lines into runs of one style. The flag is True for the middle of a long run, which can be collapsed."""
    for look, group in groupby(lines, key=lambda line: line.look):
        run = list(group)
        if look == "marker" or len(run) <= SHORT_RUN_LINES:
            yield False, run
        else:
            yield from (
                (False, run[:SHOWN_END_LINES]),
                (True, run[SHOWN_END_LINES:-SHOWN_END_LINES]),
                (False, run[-SHOWN_END_LINES:]),
            )


def escape_controls(text: str) -> str:
    """Prepare a line for display: expand tabs, and escape all other control characters."""
    return one_line(text.expandtabs(4))


def collapsed_label(lines: list[ViewLine]) -> str:
    """Return the text that replaces collapsed lines."""
    return f"… {len(lines):,} lines …"


def format_token_change(tokens: BeforeAfter) -> str:
    """Format the tokens before and after an edit."""
    return f"{tokens.before:,} → {tokens.after:,} tokens"
