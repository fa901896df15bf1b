"""The way back: every reference replaced by what it points at, and what was let go by what the store kept of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import formats
from .layout import Shown, restore
from .model import Message, ToolCall
from .references import Source
from .removals import refs_in
from .sources import Sources
from .wire import Change, open_document

if TYPE_CHECKING:
    from .store import Store


def expand(request: Any, *, format: str | None = None, store: Store | None = None) -> Any:
    """The request as it was before `compact`, byte for byte.

    What arrival edits left out comes from the compacted request alone; what was let go later comes from the store, and
    stays as it is without one. A part is restored only if the digest in its marker agrees with the outcome; everything
    else is passed on as it is. Same type and shape as given; the same object if there is nothing to restore.
    """
    document = open_document(request)
    if document.value == [] and format is None:
        return request
    dialect = formats.named(format) if format else formats.detect(document.value)
    prefix = (dialect.history_key,) if isinstance(document.value, dict) else ()
    messages = formats.parse(document.value, dialect).messages
    changes = [Change((*prefix, *path), "set", text) for path, text in _restored(messages, store)]
    return document.write(changes)


def _restored(messages: Iterable[Message], store: Store | None) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Where an original stands in the history, and the original."""
    sources = Sources()
    texts: dict[Source, str] = {}
    known: dict[Source, Shown] = {}
    gone: list[tuple[tuple[Any, ...], str]] = []

    def shown(source: Source) -> Shown | None:
        if source in texts and source not in known:
            known[source] = Shown.of(texts[source], sources.tag)
        return known.get(source)

    for message in messages:
        for place in sources.read(message):
            texts[place.source] = place.text
            if place.segment is None:
                continue
            path = (message.index, *place.segment.path)
            if refs := refs_in(place.text, sources.tag):
                gone.append((path, refs[0]))
            elif (original := restore(place.text, sources.tag, shown)) is not None:
                yield path, original
        gone.extend(_stripped(message, sources.tag))
    if store is not None and gone:
        kept = store.get({ref for _, ref in gone})
        yield from ((path, kept[ref]) for path, ref in gone if ref in kept)


def _stripped(message: Message, tag: str) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Arguments of calls that were let go, each where it stood."""
    for part in message.parts:
        if isinstance(part, ToolCall) and isinstance(part.input, dict):
            for key, value in part.input.items():
                if isinstance(value, str) and len(refs := refs_in(value, tag)) == 1:
                    yield (message.index, *part.input_path, key), refs[0]
