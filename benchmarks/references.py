"""How easily references are found, and what they cost: `python -m benchmarks.references CORPUS`.

A reference is findable if, of the texts above it with the label it names, the newest that shows the lines it names is
the one it means. Else its label may say which one (`2nd Read(src/app.py)`); the rest are neither. A second marker of a
part for the same text is found as the first was, and one for lines of the part itself does not count. `label 3+` are
those whose label alone fits three texts or more. Read off the last request of each session as it is sent, by the
markers' own words and not by how they were chosen. Tokens are o200k; those of markers and of ordinals are shares of
what is sent of results.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import ibidem
from ibidem import testing
from ibidem.formats import FORMATS
from ibidem.markers.backref import ABOVE, Marker, Source
from ibidem.markers.layout import VisibleText, parse_marked
from ibidem.markers.source_numbers import NumberedText, SourceNumbers
from ibidem.tokens import counter_for

from .corpus import Recorded, sessions

ORDINAL = re.compile(r"^([0-9]+)(?:st|nd|rd|th) ")
MANY = 3
"""Texts that a label fits from which on it says little."""


class Reference(NamedTuple):
    marker: Marker
    how: str
    """`findable`, `nth` or `neither`."""
    alike: int
    """Texts above that have the label."""


class Above(NamedTuple):
    """A text that a reference may mean."""

    place: NumberedText
    shown: VisibleText

    @property
    def name(self) -> tuple[str, str, str]:
        """Results are told by their label, arguments of calls by their own name as well."""
        source = self.place.source
        return source.kind, source.part if source.kind == "call" else "", self.place.call.label

    def fits(self, marker: Marker) -> bool:
        if not marker.unit:
            return self.shown.full_text() is not None
        return bool(self.shown.comma) is (marker.unit == "item") and self.shown.find_units(marker) is not None


def references(request: Any, format: str) -> Iterator[Reference]:
    """Those of a request as it is sent."""
    sources = SourceNumbers()
    above: dict[Source, Above] = {}
    alike: dict[tuple[str, str, str], list[Above]] = {}
    for message in testing.read(request, format).messages:
        for place in sources.number_texts(message):
            told: dict[Source, str] = {}
            for marker in _markers(place, sources.tag):
                if marker.source not in (None, ABOVE):
                    meant = above[marker.source]
                    others = alike[meant.name]
                    how = told.setdefault(marker.source, told.get(marker.source) or _how(marker, meant, others))
                    yield Reference(marker, how, len(others))
            above[place.source] = here = Above(place, VisibleText.from_text(place.text, sources.tag))
            alike.setdefault(here.name, []).append(here)


def _markers(place: NumberedText, tag: str) -> list[Marker]:
    form = parse_marked(place.text, tag) if place.segment is not None else None
    return [] if form is None else [*form.markers.values()]


def _how(marker: Marker, meant: Above, others: list[Above]) -> str:
    said = ORDINAL.match(marker.label)
    if said is not None:
        return "nth" if int(said[1]) == meant.place.call.nth else "neither"
    newest = next(each for each in reversed(others) if each is meant or each.fits(marker))
    return "findable" if newest is meant else "neither"


def measure(session: Recorded) -> tuple[str, Counter[str]]:
    """Folder, and counts of references by how they are found, with their tokens."""
    request = {FORMATS[session.format].history_key: session.history}
    sent = ibidem.compact(request, profile="lossless", format=session.format).request
    count, found, sources = counter_for(), Counter[str](), SourceNumbers()
    for message in testing.read(sent, session.format).messages:
        for place in sources.number_texts(message):
            found["text"] += count(place.text) if place.segment is not None else 0
            found["marker"] += sum(count(str(marker)) for marker in _markers(place, sources.tag))
    for marker, how, alike in references(sent, session.format):
        found.update({"references": 1, how: 1, "many": alike >= MANY})
        words = ORDINAL.sub("", marker.label) if how == "nth" else marker.label
        found["ordinal"] += count(str(marker)) - count(str(marker._replace(label=words)))
    return session.folder, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--folder", action="append", help="only this folder of the corpus")
    args = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(measure, sessions(args.corpus, args.folder), chunksize=4))
    print(f"{'':14} {'references':>10} {'findable':>9} {'by nth':>7} {'neither':>8} {'label 3+':>9}", end="")
    print(f" {'tokens':>10} {'markers':>8} {'ordinals':>9}")
    for folder in [*sorted({folder for folder, _ in outcomes}), "all"]:
        found = sum((each for name, each in outcomes if folder in (name, "all")), Counter[str]())
        every, text = found["references"] or 1, found["text"] or 1
        shares = [found[name] / every for name in ("findable", "nth", "neither", "many")]
        print(f"{folder:14} {found['references']:10,}", end="")
        print(" {:9.1%} {:7.1%} {:8.1%} {:9.1%}".format(*shares), end="")
        print(f" {text:10,} {found['marker'] / text:8.2%} {found['ordinal'] / text:9.3%}")


if __name__ == "__main__":
    main()
