"""The way back: every reference replaced by what it points at."""

from __future__ import annotations

from typing import Any

from . import formats
from .layout import Shown, restore
from .references import Source
from .sources import Sources
from .wire import Change, open_document


def expand(request: Any, *, format: str | None = None) -> Any:
    """The request as it was before `compact(profile="lossless")`, byte for byte, from the compacted request alone.

    A part is restored only if the digest in its marker agrees with the outcome; everything else is passed on as it is.
    Same type and shape as given; the same object if there is nothing to restore.
    """
    document = open_document(request)
    if document.value == [] and format is None:
        return request
    dialect = formats.named(format) if format else formats.detect(document.value)
    prefix = (dialect.history_key,) if isinstance(document.value, dict) else ()
    sources = Sources()
    texts: dict[Source, str] = {}
    known: dict[Source, Shown] = {}

    def shown(source: Source) -> Shown | None:
        if source in texts and source not in known:
            known[source] = Shown.of(texts[source], sources.tag)
        return known.get(source)

    changes: list[Change] = []
    for message in formats.parse(document.value, dialect).messages:
        for place in sources.read(message):
            texts[place.source] = place.text
            if place.segment is not None:
                original = restore(place.text, sources.tag, shown)
                if original is not None:
                    changes.append(Change((*prefix, message.index, *place.segment.path), "set", original))
    return document.write(changes)
