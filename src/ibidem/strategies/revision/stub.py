"""Make the stub that replaces an evicted text, and check that the original can be restored."""

from __future__ import annotations

from collections.abc import Iterable

from ...markers.eviction_markers import EvictedMarker, refs_in, remove_lines
from ...markers.layout import ITEM_SEPARATORS, SPARSE_FLAG, VisibleText, parse_markers
from ...markers.restore import is_remainder_of
from ...store.references import reference
from ...tokens import estimate
from ...wire import JsonChange, apply_changes
from .entry import Eviction, InventoryEntry, Pin

LineRanges = list[tuple[int, int]]


def make_eviction(
    entry: InventoryEntry, visible_text: VisibleText, kept_ranges: LineRanges, recall_tool: str = ""
) -> Eviction | None:
    """Return the eviction of a text, except for the lines in `kept_ranges`; None if it is not possible."""
    candidate, tag = entry.candidate, visible_text.tag
    assert candidate is not None
    marker = EvictedMarker(tag, reference(entry.text), entry.text.count("\n") + 1, candidate.why, recall_tool)
    if entry.kind == "arguments":
        stub_text = str(marker) if not kept_ranges and _can_restore_json(entry, str(marker)) else None
    else:
        stub_text = _remove_lines(entry, visible_text, kept_ranges, marker)
    if stub_text is None or marker.ref not in refs_in(stub_text, tag):
        return None
    if stub_text != str(marker) and not is_remainder_of(stub_text, entry.text, tag):
        return None
    reason = candidate.reason or candidate.why
    return Eviction(candidate.label, stub_text, estimate(stub_text), reason, {marker.ref: entry.text})


def is_still_valid(old: VisibleText, after: str, pins: Iterable[Pin]) -> bool:
    """Return True if references still find their lines (invariant 5): a shorter text may parse differently."""
    new = VisibleText.from_text(after, old.tag)
    return all(old.find_units(pin.marker) == new.find_units(pin.marker) is not None for pin in pins)


def _can_restore_json(entry: InventoryEntry, stub_text: str) -> bool:
    """Return True if the arguments, sent as JSON text, can be restored byte for byte (invariant 6)."""
    if not entry.containing_json:
        return True
    key = entry.path[-1:]
    try:
        sent_json = apply_changes(entry.containing_json, [JsonChange(key, "set", stub_text)])
        return bool(apply_changes(sent_json, [JsonChange(key, "set", entry.text)]) == entry.containing_json)
    except (ValueError, RecursionError):  # for example a duplicate key
        return False


def _remove_lines(
    entry: InventoryEntry, visible_text: VisibleText, kept_ranges: LineRanges, marker: EvictedMarker
) -> str | None:
    if not kept_ranges:
        return str(marker)
    lines = entry.current_text.split("\n")
    markers = parse_markers(entry.current_text, lines, marker.tag)
    flags = "".join(each.flags for each in markers.values())
    has_differences = any(
        each.but for each in markers.values()
    )  # the text has only lines that differ from another text
    if has_differences or visible_text.layout.comma or any(each in flags for each in (SPARSE_FLAG, *ITEM_SEPARATORS)):
        return None
    # Remove lines with references: their targets may be evicted later.
    return remove_lines(lines[: len(visible_text.layout.units)], kept_ranges, marker, set(markers))
