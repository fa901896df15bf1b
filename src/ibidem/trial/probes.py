"""Probes: questions whose answers stand in a request, asked behind it, to see whether a model can follow a reference.

The last result of a read is asked about: what a line of it says, or twenty. For half of the questions a reference
stands there in the rewritten request; the others are a control. All are asked of the original as well. What is right is
known from the original, so nobody has to judge.

Whether a model follows a reference, or finds the text without, shows where the reference is altered: it names another
result then, number and label, and who follows it says what stands there. Such a request is sent for this alone.
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
from ..calls.file_access import touches
from ..errors import one_line
from ..markers import layout
from ..markers.backref import ABOVE, Marker, Source, parse, which
from ..markers.numbering import NumberedText, Sources
from ..model import Message, Path
from ..recordings.recording import Json
from ..wire import Change
from ..wire.tree import rebuild
from .files import same_file
from .outcomes import ProbeAnswer, ProbeKind
from .replayed import ArmHistories

HALF = 2
"""Questions behind a point that a reference stands for; there are as many others."""
BLOCK_LINES = 20
MAX_BLOCK, MAX_LINE = 3000, 300
"""Characters that are asked for, at the most."""
LEAST_LINE = 8
"""Characters of a line that is asked for: shorter ones can be guessed."""
MAX_TRIES = 40
"""Lines of a view that are looked at for one question."""
BEYOND = 20, 400
"""How far behind the last line that was shown one is that never was."""
NOT_SHOWN = "not shown"
WEIGHTS = {ProbeKind.LINE: 3, ProbeKind.BLOCK: 2, ProbeKind.WHICH: 3, ProbeKind.ABSENT: 1}
"""Chances of kinds, where there is a choice."""

_NUMBERED = re.compile(r"\s*(\d{1,9})(?:→|\t|: |\|)(.*)")


@dataclass(frozen=True, slots=True)
class AlteredMarker:
    """A text of the rewritten history with a reference in it that names another result."""

    message: int
    path: Path
    text: str
    truth: str
    """What the reference points at then."""

    def within(self, history: Sequence[Json]) -> list[Json]:
        changed = rebuild(history[self.message], [Change(self.path, "set", self.text)])
        return [*history[: self.message], changed, *history[self.message + 1 :]]


@dataclass(frozen=True, slots=True)
class Probe:
    kind: ProbeKind
    inside: bool
    fits: int
    """Earlier results that the label of its reference fits; 0 without a reference."""
    question: str
    truth: str
    altered: AlteredMarker | None = None

    @property
    def tokens(self) -> int:
        """Of the question, twice as many as is usual: money is held for it."""
        return len(self.question) // 2

    @property
    def answer_tokens(self) -> int:
        """Of an answer that is right and no more, about."""
        return 10 + len(self.truth) // 3


def asked_behind(body: Json, format: str, question: str) -> Json:
    """A request with a question behind its last results. What stands before it is as it was, marks and all."""
    dialect = formats.named(format)
    history = list(body[dialect.history_key])
    last = dialect.read(len(history) - 1, history[-1])
    where = dialect.parts_path(last) if history[-1].get("role") == "user" else None
    if where is None:
        history.append(dialect.user_message(question))
    else:
        (name,) = where
        history[-1] = {**history[-1], name: [*history[-1][name], dialect.text_block(question)]}
    return {**body, dialect.history_key: history}


def graded(probe: Probe, text: str, *, called: bool, altered: bool = False) -> ProbeAnswer:
    """What an answer is worth."""
    said, truth = _trimmed(text), _trimmed(probe.truth)
    if probe.kind is ProbeKind.ABSENT:
        right, ratio = _denies(said), float(_denies(said))
    else:
        right, ratio = said == truth, _alike(said, truth)
    followed = _says(said, probe.altered.truth) if altered and probe.altered else None
    return ProbeAnswer(probe.kind, probe.inside, probe.fits, right, round(ratio, 3), called, followed)


def _says(said: str, truth: str) -> bool:
    return _denies(said) if truth == NOT_SHOWN else said == _trimmed(truth)


def _denies(said: str) -> bool:
    return said.casefold().strip(" .\"'`*").startswith(NOT_SHOWN)


def _alike(said: str, truth: str) -> float:
    if not said or _denies(said):
        return 0.0
    return SequenceMatcher(None, said[: 2 * len(truth) + LEAST_LINE], truth, autojunk=False).ratio()


def _trimmed(text: str) -> str:
    """Without fences, numbers of lines, what all lines are indented by, and blanks at ends."""
    lines = [line.rstrip() for line in text.strip("\n").rstrip().split("\n")]
    if lines[0].lstrip().startswith("```"):
        lines = lines[1:-1] if lines[-1].strip() == "```" else lines[1:]
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    if all(numbered):
        lines = [found[2] for found in numbered if found]
    whole = dedent("\n".join(lines)).strip("\n").rstrip()
    quoted = len(lines) == 1 and len(whole) > 1 and whole[0] == whole[-1] == "`"
    return whole.strip("`").strip() if quoted else whole


# ── what can be asked about ─────────────────────────────────────────────────────────────────────────────────────────


class _ReadResult(NamedTuple):
    """A result of a read, as it was and as it is sent."""

    number: int
    asked: NumberedText
    lines: dict[int, str]
    """By their numbers; empty if it has none."""
    message: int
    sent: str
    path: Path


class _Spot(NamedTuple):
    """A reference in a sent text, and the lines that it stands for."""

    first: int
    last: int
    marker: Marker
    naming: int
    """The line of the text that names its source: a marker may go on with that of the one above it."""


def numbered_lines(text: str) -> dict[int, str]:
    """Lines that count up, without their numbers; none of a text that does not count up."""
    found: dict[int, str] = {}
    last = 0
    for line in text.split("\n"):
        if match := _NUMBERED.fullmatch(line):
            number = int(match[1])
            if number <= last:
                return {}
            found[number] = match[2]
            last = number
    return found


def probes_of(found: ArmHistories, format: str, seed: str) -> tuple[Probe, ...]:
    """Questions behind a request: as many that a reference stands for as others. One may be asked altered."""
    looking = _Probing(found, format, Random(seed))
    inside = looking.draw(inside=True)
    outside = looking.draw(inside=False) if inside else []
    count = min(len(inside), len(outside))
    dear = next((at for at, each in enumerate(inside[:count]) if each.altered), None)  # one of a point is enough
    kept = [each if at == dear else replace(each, altered=None) for at, each in enumerate(inside[:count])]
    return (*kept, *outside[:count])


class _Probing:
    def __init__(self, found: ArmHistories, format: str, chance: Random) -> None:
        self._chance = chance
        original, rewritten = Sources(), Sources()
        read = formats.named(format).read
        self._labels: dict[Source, str] = {}
        self._results: list[_ReadResult] = []
        before = [_texts(original, read, found.original), _texts(rewritten, read, found.rewritten)]
        if [each.source for _, each in before[0]] == [each.source for _, each in before[1]]:
            for (_, was), (message, now) in zip(*before, strict=True):
                self._take(was, now, message)
        self._tag = rewritten.tag
        self._files: dict[tuple[str, str], list[_ReadResult]] = {}
        for each in self._results:
            self._files.setdefault(_file(each), []).append(each)
        self._unclear = _unclear(self._files)

    def _take(self, was: NumberedText, now: NumberedText, message: int) -> None:
        self._labels[was.source] = was.asked.label
        call = was.asked.call
        if was.segment is None or now.segment is None or call is None:
            return
        if any(touch.kind == "read" for touch in touches(call)):
            lines = {} if was.failed or was.source.part else numbered_lines(was.text)
            self._results.append(_ReadResult(was.source.number, was, lines, message, now.text, now.segment.path))

    def draw(self, *, inside: bool) -> list[Probe]:
        kinds = [kind for kind in ProbeKind if not (inside and kind is ProbeKind.ABSENT)]
        kinds.sort(key=lambda kind: -(self._chance.random() ** (1 / WEIGHTS[kind])))
        found = (self._find(kind, inside) for kind in kinds)
        return [probe for probe in found if probe is not None][:HALF]

    def _find(self, kind: ProbeKind, inside: bool) -> Probe | None:
        files = [views for file, views in self._files.items() if views[-1].lines and file not in self._unclear]
        self._chance.shuffle(files)
        for views in files:
            if kind is ProbeKind.ABSENT:
                return self._absent(views)
            spots = list(_spots(views[-1].sent, self._tag)) if inside else []
            if inside and not spots:
                continue
            if found := self._in_view(kind, views, spots if inside else None):
                return found
        return None

    def _absent(self, views: Sequence[_ReadResult]) -> Probe:
        last = max(max(each.lines, default=0) for each in views)
        number = last + self._chance.randint(*BEYOND)
        return Probe(ProbeKind.ABSENT, False, 0, _question(views, number, 1), NOT_SHOWN)

    def _in_view(self, kind: ProbeKind, views: Sequence[_ReadResult], spots: list[_Spot] | None) -> Probe | None:
        """A question about the last of these; `spots` are its references, None to ask beside them."""
        view, count = views[-1], BLOCK_LINES if kind is ProbeKind.BLOCK else 1
        shown = {} if spots is not None else _shown(view.sent, self._tag)
        numbers = [number for number in view.lines if number + count - 1 in view.lines]
        for number in self._chance.sample(numbers, min(MAX_TRIES, len(numbers))):
            lines = [view.lines.get(each) for each in range(number, number + count)]
            if not _can_be_asked(lines) or (_differs(views, number) is (kind is ProbeKind.LINE) and count == 1):
                continue
            spot = None
            if spots is None:
                fits = all(shown.get(number + at) == line for at, line in enumerate(lines))
            else:
                spot = next((each for each in spots if each.first <= number and number + count - 1 <= each.last), None)
                fits = spot is not None and sum(str(line).strip() not in view.sent for line in lines) * 2 > count
            if fits:
                return self._made(kind, views, number, count, spot)
        return None

    def _made(
        self, kind: ProbeKind, views: Sequence[_ReadResult], number: int, count: int, spot: _Spot | None
    ) -> Probe:
        view = views[-1]
        truth = "\n".join(view.lines[number + at] for at in range(count))
        question = _question(views, number, count)
        if spot is None:
            return Probe(kind, False, 0, question, truth)
        altered = self._altered(view, spot, number, count)
        return Probe(kind, True, self._fitting(view, spot), question, truth, altered)

    def _fitting(self, view: _ReadResult, spot: _Spot) -> int:
        """Earlier texts of that kind whose label is that of the source."""
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

    def _altered(self, view: _ReadResult, spot: _Spot, number: int, count: int) -> AlteredMarker | None:
        """Towards a result that shows other lines there, one of the same file if there is any; else one without such
        lines, of which nothing can be said."""
        marker, source = spot.marker, spot.marker.source
        if source is None or source == ABOVE or marker.view or marker.unit not in ("", "line"):
            return None
        first = number if not marker.unit or marker.own is None else number - marker.own + marker.first
        wanted = [view.lines[number + at] for at in range(count)]
        found: list[tuple[bool, bool, str, _ReadResult]] = []
        for other in self._results:
            there = [other.lines.get(first + at) for at in range(count)]
            if other.number >= view.number or ("result", other.number) == source[:2] or there == wanted:
                continue
            if all(line is not None and line.strip() in other.sent for line in there):
                found.append((False, _file(other) != _file(view), "\n".join(map(str, there)), other))
            elif other.lines and not any(there):
                found.append((True, _file(other) != _file(view), NOT_SHOWN, other))
        self._chance.shuffle(found)
        for _, _, truth, other in sorted(found, key=lambda each: each[:2])[:1]:
            text = _pointing_at(view.sent, self._tag, spot.naming, other, self._labels.get(source, ""))
            return AlteredMarker(view.message, view.path, text, truth) if text else None
        return None


def _texts(
    sources: Sources, read: Callable[[int, Json], Message], history: Sequence[Json]
) -> list[tuple[int, NumberedText]]:
    return [(at, each) for at, entry in enumerate(history) for each in sources.read(read(at, entry))]


def _file(result: _ReadResult) -> tuple[str, str]:
    call = result.asked.asked.call
    assert call is not None
    return call.name, next(touch.path for touch in touches(call))


def _unclear(files: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Files that are named in several ways, absolute and relative: which result of them is the last is hard to say."""
    by_name: dict[tuple[str, str], list[str]] = {}
    for tool, path in files:
        by_name.setdefault((tool, path.rpartition("/")[2]), []).append(path)
    return {
        (tool, path)
        for (tool, _), paths in by_name.items()
        for path in paths[:MAX_TRIES]
        if any(path != other and same_file(path, other) for other in paths[:MAX_TRIES])
    } | {(tool, path) for (tool, _), paths in by_name.items() for path in paths[MAX_TRIES:]}


def _question(views: Sequence[_ReadResult], number: int, count: int) -> str:
    tool, path = (one_line(each) for each in _file(views[-1]))
    times = f" (it was read {len(views)} times; the last one counts)" if len(views) > 1 else ""
    what = f"what does line {number} say" if count == 1 else f"what do lines {number} to {number + count - 1} say"
    each = "that line" if count == 1 else "these lines"
    return (
        f"Answer in text, call no tool: {what} in the last result of {tool} on {path}{times}? Reply with {each} alone, "
        f"verbatim and without line numbers; if it stands nowhere in this conversation, reply: {NOT_SHOWN}"
    )


def _can_be_asked(lines: Sequence[str | None]) -> bool:
    told = [line for line in lines if line is not None]
    if len(told) < len(lines) or sum(map(len, told)) > (MAX_LINE if len(lines) == 1 else MAX_BLOCK):
        return False
    return sum(len(line.strip()) >= LEAST_LINE for line in told) * 2 > len(lines)


def _differs(views: Sequence[_ReadResult], number: int) -> bool:
    """Whether an earlier view shows another line there."""
    now = views[-1].lines[number]
    return any(each.lines.get(number, now) != now for each in views[:-1])


def _shown(sent: str, tag: str) -> dict[int, str]:
    """Lines that stand in a sent text themselves."""
    found = layout.marked(sent, tag)
    if found is None:
        return numbered_lines(sent)
    lines = layout.thicken(found.lines) if layout.SPARSE_FLAG in found.head.flags else found.lines
    return numbered_lines("\n".join(line for at, line in enumerate(lines) if at not in found.markers))


def _spots(sent: str, tag: str) -> Iterator[_Spot]:
    found = layout.marked(sent, tag) if tag else None
    naming = 0
    for at, marker in found.markers.items() if found else ():
        if marker.source is None:
            continue
        naming = naming if marker.leans else at
        if not marker.unit:
            yield _Spot(1, 10**9, marker, naming)
        elif marker.own is not None:
            yield _Spot(marker.own, marker.own + marker.last - marker.first, marker, naming)


def _pointing_at(sent: str, tag: str, naming: int, other: _ReadResult, label: str) -> str:
    """A sent text in which the marker on that line names another result, with its label; empty if that is no marker."""
    lines = sent.split("\n")
    marker = parse(lines[naming], tag)
    if marker is None:
        return ""
    asked = other.asked.asked
    told = which(asked.label, asked.nth) if marker.label.removesuffix(label) else asked.label
    changed = str(marker._replace(source=Source("result", other.number), label=told if marker.label else ""))
    if parse(changed, tag) is None:
        return ""
    lines[naming] = changed
    return "\n".join(lines)
