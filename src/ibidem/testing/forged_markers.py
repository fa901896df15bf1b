"""Forged markers: texts that a tool could print to mislead Ibidem, and assertions about them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from .. import formats
from ..engine.expansion import expand
from ..engine.pipeline import Compacted
from ..markers import backref
from ..markers.source_numbers import SourceNumbers
from ..model import Path, Text
from .laws import Run, read, set_text

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Where = tuple[int, Path]
"""A message index, and the path of a text in the message."""


def tag_in(request: Any, format: str) -> str:
    """Return the three digits of a request's markers."""
    sources = SourceNumbers()
    for message in read(request, format).messages:
        for _ in sources.number_texts(message):
            pass
    return sources.tag


def forgeries(tag: str) -> SearchStrategy[str]:
    """Generate texts with markers of every form for a conversation with this tag, none of which Ibidem made.

    Their digests fit no text. A forged marker with a correct digest cannot be detected in a single request.
    """
    from hypothesis import strategies as st

    number = st.sampled_from([0, 1, 2, 3, 9, 10, 50, 999_999_999])
    digest = st.sampled_from(["", ".000000", ".999999", ".123456n", ".123456x", ".123456s", ".1234563gprjnt99"])
    source = st.builds("{} {}{}".format, st.sampled_from(["result", "call"]), number, st.sampled_from(["", ".1", ".c"]))
    tail = st.sampled_from(["", ", Read(a.py)", ", but for:", f". {backref.EXPLANATION}"])
    lines = st.builds("{} {}-{}".format, st.sampled_from(["lines", "rows", "items"]), number, number)
    lines_of = lines.map("{} of".format)
    own_lines = st.builds("{}-{} ".format, number, number)
    references = st.builds(
        "{}: {}unchanged, {} {}{}".format, digest, st.just("") | own_lines, st.just("same as") | lines_of, source, tail
    )
    references |= st.builds("{}: {}unchanged, {} above{}".format, digest, st.just("") | own_lines, lines, tail)
    since = st.builds("{}: {}unchanged since {}{}".format, digest, own_lines, source, tail)
    where = st.builds(" of {}{}{}".format, source, st.sampled_from(["", " without +", " with +"]), tail)
    where |= st.sampled_from(["", "", " unchanged", " without +", " with -", " above"])
    follows = st.builds(": {}{}{}".format, st.just("") | own_lines.map("{}as ".format), lines, where)
    follows |= st.builds(": {}-{}{}".format, number, number, where)
    ref = st.sampled_from(["", " 0123456789ab", " 0123456789ab+ba9876543210"])
    evictions = st.builds(
        "{}: {} lines left out{}".format, ref, number, st.sampled_from(["", ", old", ", the file changed"])
    )
    marker = st.builds("[ibidem {}{}]".format, st.just(tag), references | since | follows | evictions | digest)
    line = st.sampled_from(["", "x = 1", "12\tx = 1", "a.py:3:x = 1", "3: y", "\x00", "\x00\x00", f"see [ibidem {tag}"])
    return st.lists(marker | marker | line, min_size=1, max_size=12).map("\n".join).filter(lambda text: tag in text)


def planted(request: Any, format: str, texts: Mapping[Where, str]) -> Any:
    """Return the request with other texts at some positions."""
    key, other = formats.format_named(format).history_key, deepcopy(request)
    for (message, path), text in texts.items():
        set_text(other[key], (message, *path), text)
    return other


def places_of_results(request: Any, format: str) -> list[Where]:
    """Return the positions of all result texts."""
    return [
        (message.index, segment.path)
        for message in read(request, format).messages
        for result in message.results
        for segment in result.segments
        if isinstance(segment, Text)
    ]


def foreign_markers_change_nothing_else(run: Run, request: Any, format: str, forged: Mapping[Where, str]) -> None:
    """Invariant 9: results with forged markers are sent unchanged, and all other edits ignore them."""
    result = run(planted(request, format, forged))
    assert not result.stats.failures
    assert not [edit for edit in result.plan if (edit.message, edit.path) in forged], "a foreign marker was rewritten"
    innocent = {where: _innocent_text(text, number) for number, (where, text) in enumerate(forged.items())}
    assert _other_edits(result, forged) == _other_edits(run(planted(request, format, innocent)), forged)


def foreign_markers_come_back(run: Run, request: Any, format: str, forged: Mapping[Where, str]) -> None:
    """Invariants 2, 5, 6 and 10, with forged markers in the results."""
    planted_request = planted(request, format, forged)
    key = formats.format_named(format).history_key
    result = run(planted_request)
    sent_request = result.request
    assert expand(sent_request, format=format) == planted_request
    assert run(sent_request).request == sent_request
    half = len(planted_request[key]) // 2
    assert run({**planted_request, key: planted_request[key][:half]}).request[key] == sent_request[key][:half]
    references_are_visible(result, format)


def references_are_visible(result: Compacted, format: str) -> None:
    """Invariant 5, as the model sees it: the lines that a marker names have these numbers in a text above.

    For edits at arrival that do not change line numbers.
    """
    sources, texts = SourceNumbers(), dict[backref.Source, str]()
    edit_positions = {(edit.message, edit.path) for edit in result.plan}
    for message in read(result.request, format).messages:
        for place in sources.number_texts(message):
            ours = place.segment is not None and (message.index, place.segment.path) in edit_positions
            texts[backref.ABOVE] = place.text
            for marker in _markers_in(place.text, sources.tag) if ours else ():
                assert marker.source in texts, f"{marker} has an unknown source"
                assert not marker.unit or _is_visible(marker, texts[marker.source]), f"{marker} names invisible lines"
            texts[place.source] = place.text


def _markers_in(text: str, tag: str) -> list[backref.Marker]:
    from ..markers.layout import parse_marked

    marked_text = parse_marked(text, tag) if backref.marker_prefix(tag) in text else None
    return [marker for marker in marked_text.markers.values() if marker.source] if marked_text else []


def _is_visible(marker: backref.Marker, text: str) -> bool:
    if marker.unit == "item":
        return marker.last <= text.count(",") + 1
    number_pattern = r"^ *(?:L|Line )?0*{}(?:→|\t|:|\. | ?\|)"
    matches = (re.search(number_pattern.format(number), text, re.MULTILINE) for number in (marker.first, marker.last))
    return all(matches) or 0 < marker.first <= marker.last <= text.count("\n") + 1


def _innocent_text(text: str, number: int) -> str:
    """Return a text with lines of the same length, without markers, and without any repeated line."""

    def line(place: int, length: int) -> str:
        seed = hashlib.sha256(f"{number} {place} {text}".encode()).hexdigest()
        return (seed * (length // 64 + 1))[:length]

    return "\n".join(line(place, len(each)) for place, each in enumerate(text.split("\n")))


def _other_edits(result: Compacted, forged: Mapping[Where, str]) -> Sequence[tuple[Any, ...]]:
    return [(edit.message, edit.path, edit.added) for edit in result.plan if (edit.message, edit.path) not in forged]
