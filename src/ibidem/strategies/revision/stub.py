"""How a text goes: what is left in its place, and that it can come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...markers.backref import opening
from ...markers.evicted import EvictedMarker, refs_in, thinned
from ...markers.layout import ITEM_SEPARATORS, SPARSE_FLAG, Shown, parsed
from ...markers.restore import left_of
from ...store.naming import reference
from ...tokens import estimate
from ...wire import Change, rebuild
from .entry import Candidate, Entry, Eviction, Pin
from .prose import plain

Stretches = list[tuple[int, int]]


def eviction_of(entry: Entry, shown: Shown, stay: Stretches, ends: int, way: str = "") -> Eviction | None:
    """How a text, shown like that, goes of which these lines must stay, and of a snippet so many characters at its
    ends; None if it cannot."""
    candidate, tag = entry.candidate, shown.tag
    assert candidate is not None
    marker = EvictedMarker(tag, reference(entry.text), entry.text.count("\n") + 1, candidate.why, way)
    if entry.kind == "arguments":
        added = str(marker) if not stay and _comes_back(entry, str(marker)) else None
    elif entry.kind == "assistant text":
        added = _shortened(entry.text, candidate, marker)
    else:
        added = _thinned(entry, shown, stay, ends if candidate.ends else 0, marker)
    if added is None or marker.ref not in refs_in(added, tag):
        return None
    # Ends of a text without a marker are its rest by how they are made; what else cannot be told to be it stays whole.
    plain_ends = entry.kind == "result" and not stay and opening(tag) not in entry.text
    if added != str(marker) and not plain_ends and not left_of(added, entry.text, tag):
        return None
    reason = candidate.reason or candidate.why
    return Eviction(candidate.label, added, estimate(added), reason, {marker.ref: entry.text})


def still_true(old: Shown, after: str, pins: Iterable[Pin]) -> bool:
    """Whether references still find what they point at (law 5): fewer lines may look like another layout."""
    new = Shown.of(after, old.tag)
    return all(old.bodies(pin.marker) == new.bodies(pin.marker) is not None for pin in pins)


def _comes_back(entry: Entry, added: str) -> bool:
    """Whether JSON text in a string is the same again afterwards, to the byte (law 6)."""
    if not entry.written_in:
        return True
    key = entry.path[-1:]
    try:
        sent = rebuild(entry.written_in, [Change(key, "set", added)])
        return bool(rebuild(sent, [Change(key, "set", entry.text)]) == entry.written_in)
    except (ValueError, RecursionError):  # a key that stands twice
        return False


def _shortened(text: str, candidate: Candidate, marker: EvictedMarker) -> str | None:
    if not candidate.ends:
        return str(marker)
    lines = text.split("\n")
    edges = [0, *(edge for stretch in plain(lines) for edge in stretch), len(lines)]
    stay = [pair for pair in zip(edges[::2], edges[1::2], strict=True) if pair[0] < pair[1]]
    return thinned(lines, stay, marker, range(len(lines))) if len(edges) > 2 else None


def _thinned(entry: Entry, shown: Shown, stay: Stretches, room: int, marker: EvictedMarker) -> str | None:
    refers: set[int] = set()
    if stay:
        lines = entry.now.split("\n")
        found = parsed(entry.now, lines, marker.tag)
        refers = set(found)  # to what may be gone tomorrow
        flags = "".join(each.flags for each in found.values())
        told_apart = any(each.but for each in found.values())  # lines that differ stand there under their numbers
        if told_apart or shown.layout.comma or any(each in flags for each in (SPARSE_FLAG, *ITEM_SEPARATORS)):
            return None
        lines = lines[: len(shown.layout.units)]
    elif not room:
        return str(marker)
    else:
        lines = entry.text.split("\n")
    if room:
        ends = [] if refers else _ends(lines, room)
        if not stay and not ends:
            return f"{entry.text[:room]}\n{marker}\n{entry.text[-room:]}"  # lines that are too long
        stay = [*stay, *ends]
    return thinned(lines, stay, marker, refers)


def _ends(lines: Sequence[str], most: int) -> Stretches:
    """Head and tail in whole lines; none if the lines are too long."""
    found = []
    for step, edge in ((1, 0), (-1, len(lines))):
        room, count = most, 0
        for line in lines[::step]:
            room -= len(line) + 1
            if room < 0:
                break
            count += 1
        if count:
            found.append((edge, edge + count) if step > 0 else (edge - count, edge))
    return found
