"""How a text goes: what is left in its place, and that it can come back."""

from __future__ import annotations

from collections.abc import Iterable

from ...markers.evicted import EvictedMarker, refs_in, thinned
from ...markers.layout import ITEM_SEPARATORS, SPARSE_FLAG, Shown, parsed
from ...markers.restore import left_of
from ...store.naming import reference
from ...tokens import estimate
from ...wire import Change, rebuild
from .entry import Entry, Eviction, Pin

Stretches = list[tuple[int, int]]


def eviction_of(entry: Entry, shown: Shown, stay: Stretches, way: str = "") -> Eviction | None:
    """How a text, shown like that, goes of which these lines must stay; None if it cannot."""
    candidate, tag = entry.candidate, shown.tag
    assert candidate is not None
    marker = EvictedMarker(tag, reference(entry.text), entry.text.count("\n") + 1, candidate.why, way)
    if entry.kind == "arguments":
        added = str(marker) if not stay and _comes_back(entry, str(marker)) else None
    else:
        added = _thinned(entry, shown, stay, marker)
    if added is None or marker.ref not in refs_in(added, tag):
        return None
    if added != str(marker) and not left_of(added, entry.text, tag):
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


def _thinned(entry: Entry, shown: Shown, stay: Stretches, marker: EvictedMarker) -> str | None:
    if not stay:
        return str(marker)
    lines = entry.now.split("\n")
    found = parsed(entry.now, lines, marker.tag)
    flags = "".join(each.flags for each in found.values())
    told_apart = any(each.but for each in found.values())  # lines that differ stand there under their numbers
    if told_apart or shown.layout.comma or any(each in flags for each in (SPARSE_FLAG, *ITEM_SEPARATORS)):
        return None
    # Lines that refer to others go: those may be gone tomorrow.
    return thinned(lines[: len(shown.layout.units)], stay, marker, set(found))
