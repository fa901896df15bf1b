"""Make probes: questions about text in a request, to test whether a model can follow a reference.

A probe is appended to a request and requests one line or 20 lines of a file's last read. For half of the probes, the
rewritten request has a reference at that position. The other half is a control. All are appended to the original
request, too. The correct answer is in the original, so no judge is needed.

An altered reference names another result, by number and label. A model that follows references then returns the text
at that other position. A model that finds the text in another way does not. Altered requests have no other use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from random import Random
from textwrap import dedent
from typing import NamedTuple

from .. import formats
from ..errors import one_line
from ..markers import layout
from ..markers.backref import ABOVE, Marker, Source, ordinal_label, parse_marker
from ..markers.source_numbers import NumberedText, SourceNumbers
from ..model import Message, Path
from ..recordings.recording import Json
from ..tool_arguments.file_access import file_accesses
from ..wire import JsonChange
from ..wire.json_tree import apply_changes
from .file_views import is_same_file
from .outcomes import ProbeAnswer, ProbeKind
from .rewritten_histories import VariantHistories

HALF = 2
"""Maximum number of probes per point about text behind a reference. There are as many control probes."""
BLOCK_LINES = 20
MAX_BLOCK, MAX_LINE = 3000, 300
"""Maximum characters of a correct answer, for 20 lines and for one line."""
LEAST_LINE = 8
"""Minimum characters of a requested line. Shorter ones can be guessed."""
MAX_TRIES = 40
"""Maximum number of lines of a view that are tried for one probe."""
BEYOND = 20, 400
"""Smallest and largest distance of a line that was never shown from the last line that was."""
NOT_SHOWN = "not shown"
WEIGHTS = {ProbeKind.LINE: 3, ProbeKind.BLOCK: 2, ProbeKind.WHICH: 3, ProbeKind.ABSENT: 1}
"""Relative frequency of each kind of probe."""

_NUMBERED = re.compile(r"\s*(\d{1,9})(?:→|\t|: |\|)(.*)")


@dataclass(frozen=True, slots=True)
class AlteredMarker:
    """A text of the rewritten history whose reference was changed to name another result."""

    message: int
    path: Path
    text: str
    truth: str
    """Text that the changed reference points at."""

    def replace_in(self, history: Sequence[Json]) -> list[Json]:
        """Return the history with this text in place of the original one."""
        changed_message = apply_changes(history[self.message], [JsonChange(self.path, "set", self.text)])
        return [*history[: self.message], changed_message, *history[self.message + 1 :]]


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about a text in a request, with its correct answer."""

    kind: ProbeKind
    inside: bool
    fits: int
    """Number of earlier results with the label of the reference; 0 without a reference."""
    question: str
    truth: str
    altered: AlteredMarker | None = None

    @property
    def question_tokens(self) -> int:
        """Upper estimate of the question's tokens, twice the usual one, because the budget reserves its cost."""
        return len(self.question) // 2

    @property
    def answer_tokens(self) -> int:
        """Estimated tokens of a correct answer."""
        return 10 + len(self.truth) // 3


def append_question(body: Json, format: str, question: str) -> Json:
    """Return a request with a question after its last results. All other content is unchanged."""
    dialect = formats.format_named(format)
    history = list(body[dialect.history_key])
    last = dialect.read_message(len(history) - 1, history[-1])
    where = dialect.parts_path(last) if history[-1].get("role") == "user" else None
    if where is None:
        history.append(dialect.user_message(question))
    else:
        (name,) = where
        history[-1] = {**history[-1], name: [*history[-1][name], dialect.text_block(question)]}
    return {**body, dialect.history_key: history}


def grade_answer(probe: Probe, text: str, *, has_called_tool: bool, is_altered: bool = False) -> ProbeAnswer:
    """Grade the response to a probe, by comparing its text with the correct answer."""
    answer, truth = _normalize_answer(text), _normalize_answer(probe.truth)
    if probe.kind is ProbeKind.ABSENT:
        right, ratio = _is_denial(answer), float(_is_denial(answer))
    else:
        right, ratio = answer == truth, _text_similarity(answer, truth)
    has_followed = _matches_truth(answer, probe.altered.truth) if is_altered and probe.altered else None
    return ProbeAnswer(probe.kind, probe.inside, probe.fits, right, round(ratio, 3), has_called_tool, has_followed)


def _matches_truth(answer: str, truth: str) -> bool:
    return _is_denial(answer) if truth == NOT_SHOWN else answer == _normalize_answer(truth)


def _is_denial(answer: str) -> bool:
    return answer.casefold().strip(" .\"'`*").startswith(NOT_SHOWN)


def _text_similarity(answer: str, truth: str) -> float:
    if not answer or _is_denial(answer):
        return 0.0
    return SequenceMatcher(None, answer[: 2 * len(truth) + LEAST_LINE], truth, autojunk=False).ratio()


def _normalize_answer(text: str) -> str:
    """Return a text without fences, line numbers, common indentation and surrounding blanks."""
    lines = [line.rstrip() for line in text.strip("\n").rstrip().split("\n")]
    if lines[0].lstrip().startswith("```"):
        lines = lines[1:-1] if lines[-1].strip() == "```" else lines[1:]
    number_matches = [_NUMBERED.fullmatch(line) for line in lines]
    if all(number_matches):
        lines = [match[2] for match in number_matches if match]
    whole = dedent("\n".join(lines)).strip("\n").rstrip()
    is_quoted = len(lines) == 1 and len(whole) > 1 and whole[0] == whole[-1] == "`"
    return whole.strip("`").strip() if is_quoted else whole


# ── selection of lines ──────────────────────────────────────────────────────────────────────────────────────────────


class _ReadResult(NamedTuple):
    """Result of a file read, in the original and in the rewritten history."""

    number: int
    original: NumberedText
    lines: dict[int, str]
    """Original lines by line number; empty if they have no numbers."""
    message: int
    sent_text: str
    path: Path


class _ReferenceSite(NamedTuple):
    """A reference in a rewritten text, with the line range that it replaces."""

    first: int
    last: int
    marker: Marker
    naming_line: int
    """Index of the line that names the source. A marker may share the source of the marker above it."""


def parse_numbered_lines(text: str) -> dict[int, str]:
    """Return the lines of a numbered text by their numbers, or an empty dict if the numbers do not increase."""
    lines: dict[int, str] = {}
    last = 0
    for line in text.split("\n"):
        if match := _NUMBERED.fullmatch(line):
            number = int(match[1])
            if number <= last:
                return {}
            lines[number] = match[2]
            last = number
    return lines


def find_probes(histories: VariantHistories, format: str, seed: str) -> tuple[Probe, ...]:
    """Return probes for a request, half of them about text behind references. At most one has an altered reference."""
    finder = _ProbeFinder(histories, format, Random(seed))
    inside = finder.draw_probes(inside=True)
    outside = finder.draw_probes(inside=False) if inside else []
    count = min(len(inside), len(outside))
    # The text after an altered marker is not in the provider's cache, so one altered probe per point is enough.
    altered_index = next((at for at, probe in enumerate(inside[:count]) if probe.altered), None)
    inside_probes = [
        each if at == altered_index else replace(each, altered=None) for at, each in enumerate(inside[:count])
    ]
    return (*inside_probes, *outside[:count])


class _ProbeFinder:
    def __init__(self, histories: VariantHistories, format: str, chance: Random) -> None:
        self._chance = chance
        original, rewritten = SourceNumbers(), SourceNumbers()
        read = formats.format_named(format).read_message
        self._labels: dict[Source, str] = {}
        self._results: list[_ReadResult] = []
        before = [_read_texts(original, read, histories.original), _read_texts(rewritten, read, histories.rewritten)]
        if [each.source for _, each in before[0]] == [each.source for _, each in before[1]]:
            for (_, was), (message, now) in zip(*before, strict=True):
                self._add_read(was, now, message)
        self._tag = rewritten.tag
        self._files: dict[tuple[str, str], list[_ReadResult]] = {}
        for each in self._results:
            self._files.setdefault(_result_file(each), []).append(each)
        self._unclear = _ambiguous_files(self._files)

    def _add_read(self, was: NumberedText, now: NumberedText, message: int) -> None:
        self._labels[was.source] = was.call.label
        call = was.call.call
        if was.segment is None or now.segment is None or call is None:
            return
        if any(touch.kind == "read" for touch in file_accesses(call)):
            lines = {} if was.is_error or was.source.part else parse_numbered_lines(was.text)
            self._results.append(_ReadResult(was.source.number, was, lines, message, now.text, now.segment.path))

    def draw_probes(self, *, inside: bool) -> list[Probe]:
        kinds = [kind for kind in ProbeKind if not (inside and kind is ProbeKind.ABSENT)]
        kinds.sort(key=lambda kind: -(self._chance.random() ** (1 / WEIGHTS[kind])))
        candidates = (self._find_probe(kind, inside) for kind in kinds)
        return [probe for probe in candidates if probe is not None][:HALF]

    def _find_probe(self, kind: ProbeKind, inside: bool) -> Probe | None:
        files = [views for file, views in self._files.items() if views[-1].lines and file not in self._unclear]
        self._chance.shuffle(files)
        for views in files:
            if kind is ProbeKind.ABSENT:
                return self._make_absent_probe(views)
            spots = list(_reference_sites(views[-1].sent_text, self._tag)) if inside else []
            if inside and not spots:
                continue
            if probe := self._find_in_view(kind, views, spots if inside else None):
                return probe
        return None

    def _make_absent_probe(self, views: Sequence[_ReadResult]) -> Probe:
        last = max(max(view.lines, default=0) for view in views)
        number = last + self._chance.randint(*BEYOND)
        return Probe(ProbeKind.ABSENT, False, 0, _question_text(views, number, 1), NOT_SHOWN)

    def _find_in_view(
        self, kind: ProbeKind, views: Sequence[_ReadResult], spots: list[_ReferenceSite] | None
    ) -> Probe | None:
        """Return a probe about the last of these views, or None if no line fits.

        `spots` are its references. None selects lines that are still visible in the rewritten text.
        """
        view, count = views[-1], BLOCK_LINES if kind is ProbeKind.BLOCK else 1
        visible_lines = {} if spots is not None else _visible_lines(view.sent_text, self._tag)
        numbers = [number for number in view.lines if number + count - 1 in view.lines]
        for number in self._chance.sample(numbers, min(MAX_TRIES, len(numbers))):
            lines = [view.lines.get(each) for each in range(number, number + count)]
            if not _can_be_asked(lines) or (_has_changed(views, number) is (kind is ProbeKind.LINE) and count == 1):
                continue
            spot = None
            if spots is None:
                fits = all(visible_lines.get(number + at) == line for at, line in enumerate(lines))
            else:
                spot = next((each for each in spots if each.first <= number and number + count - 1 <= each.last), None)
                fits = spot is not None and sum(str(line).strip() not in view.sent_text for line in lines) * 2 > count
            if fits:
                return self._make_probe(kind, views, number, count, spot)
        return None

    def _make_probe(
        self, kind: ProbeKind, views: Sequence[_ReadResult], number: int, count: int, spot: _ReferenceSite | None
    ) -> Probe:
        view = views[-1]
        truth = "\n".join(view.lines[number + at] for at in range(count))
        question = _question_text(views, number, count)
        if spot is None:
            return Probe(kind, False, 0, question, truth)
        altered_marker = self._alter_marker(view, spot, number, count)
        return Probe(kind, True, self._count_fitting(view, spot), question, truth, altered_marker)

    def _count_fitting(self, view: _ReadResult, spot: _ReferenceSite) -> int:
        """Return the number of earlier sources with the same kind and label as the referenced one."""
        source = spot.marker.source
        if source is None or source == ABOVE:
            return 1
        label, kind = self._labels.get(source, ""), source.kind
        numbers = {
            each.number
            for each, other in self._labels.items()
            if each.kind == kind and other == label and (kind == "call" or each.number < view.number)
        }
        return max(1, len(numbers))

    def _alter_marker(self, view: _ReadResult, spot: _ReferenceSite, number: int, count: int) -> AlteredMarker | None:
        """Return the text with its marker changed to another result, or None if no result fits.

        Results with other lines at that position are preferred, then results of the same file. Results without such
        lines come last: the correct answer is then "not shown".
        """
        marker, source = spot.marker, spot.marker.source
        if source is None or source == ABOVE or marker.view or marker.unit not in ("", "line"):
            return None
        first = number if not marker.unit or marker.own is None else number - marker.own + marker.first
        truth_lines = [view.lines[number + at] for at in range(count)]
        candidates: list[tuple[bool, bool, str, _ReadResult]] = []
        for other in self._results:
            there = [other.lines.get(first + at) for at in range(count)]
            if other.number >= view.number or ("result", other.number) == source[:2] or there == truth_lines:
                continue
            if all(line is not None and line.strip() in other.sent_text for line in there):
                candidates.append((False, _result_file(other) != _result_file(view), "\n".join(map(str, there)), other))
            elif other.lines and not any(there):
                candidates.append((True, _result_file(other) != _result_file(view), NOT_SHOWN, other))
        self._chance.shuffle(candidates)
        for _, _, truth, other in sorted(candidates, key=lambda each: each[:2])[:1]:
            text = _redirect_marker(view.sent_text, self._tag, spot.naming_line, other, self._labels.get(source, ""))
            return AlteredMarker(view.message, view.path, text, truth) if text else None
        return None


def _read_texts(
    sources: SourceNumbers, read: Callable[[int, Json], Message], history: Sequence[Json]
) -> list[tuple[int, NumberedText]]:
    return [(at, text) for at, entry in enumerate(history) for text in sources.number_texts(read(at, entry))]


def _result_file(result: _ReadResult) -> tuple[str, str]:
    call = result.original.call.call
    assert call is not None
    return call.name, next(touch.path for touch in file_accesses(call))


def _ambiguous_files(files: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return files with several path spellings, absolute and relative. Their last result is ambiguous."""
    by_name: dict[tuple[str, str], list[str]] = {}
    for tool, path in files:
        by_name.setdefault((tool, path.rpartition("/")[2]), []).append(path)
    return {
        (tool, path)
        for (tool, _), paths in by_name.items()
        for path in paths[:MAX_TRIES]
        if any(path != other and is_same_file(path, other) for other in paths[:MAX_TRIES])
    } | {(tool, path) for (tool, _), paths in by_name.items() for path in paths[MAX_TRIES:]}


def _question_text(views: Sequence[_ReadResult], number: int, count: int) -> str:
    tool, path = (one_line(lines_text) for lines_text in _result_file(views[-1]))
    times = f" (it was read {len(views)} times; the last one counts)" if len(views) > 1 else ""
    what = f"what does line {number} say" if count == 1 else f"what do lines {number} to {number + count - 1} say"
    each = "that line" if count == 1 else "these lines"
    return (
        f"Answer in text, call no tool: {what} in the last result of {tool} on {path}{times}? Reply with {each} alone, "
        f"verbatim and without line numbers; if it stands nowhere in this conversation, reply: {NOT_SHOWN}"
    )


def _can_be_asked(lines: Sequence[str | None]) -> bool:
    known_lines = [line for line in lines if line is not None]
    if len(known_lines) < len(lines) or sum(map(len, known_lines)) > (MAX_LINE if len(lines) == 1 else MAX_BLOCK):
        return False
    return sum(len(line.strip()) >= LEAST_LINE for line in known_lines) * 2 > len(lines)


def _has_changed(views: Sequence[_ReadResult], number: int) -> bool:
    """Return whether an earlier view had another text in this line."""
    now = views[-1].lines[number]
    return any(view.lines.get(number, now) != now for view in views[:-1])


def _visible_lines(sent_text: str, tag: str) -> dict[int, str]:
    """Return the lines that are visible in a rewritten text, by number."""
    marked_text = layout.parse_marked(sent_text, tag)
    if marked_text is None:
        return parse_numbered_lines(sent_text)
    lines = (
        layout.restore_line_numbers(marked_text.lines)
        if layout.SPARSE_FLAG in marked_text.head.flags
        else marked_text.lines
    )
    return parse_numbered_lines("\n".join(line for at, line in enumerate(lines) if at not in marked_text.markers))


def _reference_sites(sent_text: str, tag: str) -> Iterator[_ReferenceSite]:
    marked_text = layout.parse_marked(sent_text, tag) if tag else None
    naming = 0
    for at, marker in marked_text.markers.items() if marked_text else ():
        if marker.source is None:
            continue
        naming = naming if marker.omits_source else at
        if not marker.unit:
            yield _ReferenceSite(1, 10**9, marker, naming)
        elif marker.own is not None:
            yield _ReferenceSite(marker.own, marker.own + marker.last - marker.first, marker, naming)


def _redirect_marker(sent_text: str, tag: str, naming: int, other: _ReadResult, label: str) -> str:
    """Return a text whose marker in line `naming` names the result `other`, or "" if that is not a valid marker."""
    lines = sent_text.split("\n")
    marker = parse_marker(lines[naming], tag)
    if marker is None:
        return ""
    original = other.original.call
    new_label = ordinal_label(original.label, original.nth) if marker.label.removesuffix(label) else original.label
    changed_line = str(marker._replace(source=Source("result", other.number), label=new_label if marker.label else ""))
    if parse_marker(changed_line, tag) is None:
        return ""
    lines[naming] = changed_line
    return "\n".join(lines)
