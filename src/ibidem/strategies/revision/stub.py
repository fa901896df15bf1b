"""Make the stub that replaces an evicted text, and check that the original can be restored."""

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
    """Return the eviction of a text, except for the lines in `kept_ranges`; None if it is not possible."""
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
    """Return True if references still find their lines (invariant 5): a shorter text may parse differently."""
    new = Shown.of(after, old.tag)
    return all(old.bodies(pin.marker) == new.bodies(pin.marker) is not None for pin in pins)


def _comes_back(entry: Entry, added: str) -> bool:
    """Return True if the arguments, sent as JSON text, can be restored byte for byte (invariant 6)."""
    if not entry.written_in:
        return True
    key = entry.path[-1:]
    try:
        sent = rebuild(entry.written_in, [Change(key, "set", added)])
        return bool(rebuild(sent, [Change(key, "set", entry.text)]) == entry.written_in)
    except (ValueError, RecursionError):  # for example a duplicate key
        return False


def _thinned(entry: Entry, shown: Shown, stay: Stretches, marker: EvictedMarker) -> str | None:
    if not stay:
        return str(marker)
    lines = entry.now.split("\n")
    found = parsed(entry.now, lines, marker.tag)
    flags = "".join(each.flags for each in found.values())
    told_apart = any(each.but for each in found.values())  # the text has only lines that differ from another text
    if told_apart or shown.layout.comma or any(each in flags for each in (SPARSE_FLAG, *ITEM_SEPARATORS)):
        return None
    # Remove lines with references: their targets may be evicted later.
    return thinned(lines[: len(shown.layout.units)], stay, marker, set(found))
