"""How a text goes: what is left in its place, and that it can come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...markers.evicted import Dropped, Gone, beside, carrying, record, refs_in, thinned
from ...markers.layout import COMMAS, SPARSE, Shown, parsed
from ...model import size
from ...store.naming import reference
from ...tokens import estimate
from ...wire import Change, no_larger, rebuild
from .entry import Going, Held, Pin, Wish
from .prose import plain

ROOM = 24.0
"""Tokens that a text must free to carry a record as well."""

Stretches = list[tuple[int, int]]


def leaving(held: Held, stay: Stretches, tag: str, ends: int, way: str = "") -> Going | None:
    """How a text goes of which these lines must stay, and of a snippet so many characters at its ends; None if it
    cannot."""
    wish = held.wish
    assert wish is not None
    if held.kind == "thinking":
        return Going(wish.label, "", 0.0, wish.reason, {})
    marker = Gone(tag, reference(held.text), held.text.count("\n") + 1, wish.why, way)
    if held.kind == "arguments":
        added = str(marker) if not stay and _comes_back(held, str(marker)) else None
    elif held.kind == "assistant text":
        added = _shortened(held.text, wish, marker)
    else:
        added = _thinned(held, stay, ends if wish.ends else 0, marker)
    if added is None or marker.ref not in refs_in(added, tag):
        return None
    going = Going(wish.label, added, estimate(added), wish.reason or wish.why, {marker.ref: held.text})
    return _carrying(held, going, held.went.carries) if held.went and held.went.carries else going


def still_true(before: str, after: str, pins: Iterable[Pin], tag: str) -> bool:
    """Whether references still find what they point at (law 5): fewer lines may look like another layout."""
    old, new = Shown.of(before, tag), Shown.of(after, tag)
    return all(old.bodies(pin.marker) == new.bodies(pin.marker) is not None for pin in pins)


def carried(thoughts: Sequence[Held], going: Sequence[Held], gone: Sequence[Held]) -> Held | None:
    """The text whose marker carries the record of thinking that goes; None if there is none.

    One that goes now, or one that is gone: then the marker changes, best behind the first of the thinking, since all
    that stands there has to be written again anyway.
    """
    first = min(held.message for held in thoughts)
    best = [held for held in going if held.going and held.sent - held.going.left >= ROOM]
    behind = [held for held in gone if held.message >= first]
    for held in (*sorted(best, key=lambda held: held.sent)[-1:], *behind[:1], *gone[-1:]):
        how = held.going if held in going else held.went
        if how is not None and (found := _carrying(held, how, (*how.carries, *thoughts))) is not None:
            held.going = found
            return held
    return None


def _carrying(held: Held, going: Going, every: tuple[Held, ...]) -> Going | None:
    text = record(Dropped(each.message, each.path, beside(each.whole), _block(each)) for each in every if each.whole)
    ref = reference(held.text)
    added = carrying(going.added, ref, reference(text))
    left = estimate(added)
    if size(added) >= size(held.text) or not no_larger(added, held.text) or left >= held.tokens:
        return None
    originals = {ref: held.text, reference(text): text}
    return going._replace(added=added, left=left, originals=originals, carries=every)


def _block(held: Held) -> Any:
    value: Any = held.whole and held.whole.wire
    for step in held.path:
        value = value[step]
    return value


def _comes_back(held: Held, added: str) -> bool:
    """Whether JSON text in a string is the same again afterwards, to the byte (law 6)."""
    if not held.written_in:
        return True
    key = held.path[-1:]
    try:
        sent = rebuild(held.written_in, [Change(key, "set", added)])
        return bool(rebuild(sent, [Change(key, "set", held.text)]) == held.written_in)
    except (ValueError, RecursionError):  # a key that stands twice
        return False


def _shortened(text: str, wish: Wish, marker: Gone) -> str | None:
    if not wish.ends:
        return str(marker)
    lines = text.split("\n")
    edges = [0, *(edge for stretch in plain(lines) for edge in stretch), len(lines)]
    stay = [pair for pair in zip(edges[::2], edges[1::2], strict=True) if pair[0] < pair[1]]
    return thinned(lines, stay, marker, range(len(lines))) if len(edges) > 2 else None


def _thinned(held: Held, stay: Stretches, room: int, marker: Gone) -> str | None:
    shown = Shown.of(held.now, marker.tag)
    lines = held.now.split("\n")
    found = parsed(lines, marker.tag)
    refers = {place for place, each in enumerate(found) if each is not None}  # to what may be gone tomorrow
    flags = "".join(each.flags for each in found if each is not None)
    if stay and (shown.layout.comma or any(letter in flags for letter in (SPARSE, *COMMAS))):
        return None
    if stay:
        lines = lines[: len(shown.layout.units)]
    else:
        lines, refers = held.text.split("\n"), set()
    if room:
        ends = [] if refers else _ends(lines, room)
        if not stay and not ends:
            return f"{held.text[:room]}\n{marker}\n{held.text[-room:]}"  # lines that are too long
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
