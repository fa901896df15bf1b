"""The way back: every reference replaced by what it points at, and what was let go by what the store kept of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import formats
from .keeping import checked_store
from .layout import Shown, restore
from .model import Message, Text, ToolCall
from .plan import given_to
from .references import Source
from .removals import beside, recorded, records_in, refs_in, stands_for
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
    checked_store(store)
    document = open_document(request)
    try:
        dialect = formats.named(format) if format is not None else formats.detect(document.value)
    except formats.Ambiguous:
        return request  # `compact` left it as it came
    if format is None and isinstance(document.value, dict) and dialect.history_key not in document.value:
        return request
    prefix = (dialect.history_key,) if isinstance(document.value, dict) else ()
    messages = formats.parse(document.value, dialect).messages
    known = Restored(messages, store)
    restored = document.write([Change((*prefix, *path), "set", text) for path, text in known.texts])
    if not known.records:
        return restored
    document = open_document(restored)
    messages = formats.parse(document.value, dialect).messages
    return document.write(
        [Change((*prefix, *path), "before", block) for path, block in _dropped(messages, known.records, dialect)]
    )


Place = tuple[Any, ...]
"""Steps from the history to a value."""


class Restored:
    """The texts of a history that can be told as they were."""

    def __init__(self, messages: Iterable[Message], store: Store | None) -> None:
        self.texts: list[tuple[Place, str]] = []
        """Where an original stands, and the original."""
        self.records: list[str] = []
        """What else the store knows of this history."""
        self._sources = Sources()
        self._sent: dict[Source, str] = {}
        self._shown: dict[Source, Shown] = {}
        self._gone: list[tuple[Place, str, str]] = []
        """Where something stands for a text that was let go, what it is, and the reference."""
        self._refs: list[str] = []
        for message in messages:
            self._read(message)
        if store is not None and (self._gone or self._refs):
            self._ask(store)

    def _source(self, source: Source) -> Shown | None:
        if source in self._sent and source not in self._shown:
            self._shown[source] = Shown.of(self._sent[source], self._sources.tag)
        return self._shown.get(source)

    def _read(self, message: Message) -> None:
        for place in self._sources.read(message):
            self._sent[place.source] = place.text
            if place.segment is None:
                continue
            path, tag = (message.index, *place.segment.path), self._sources.tag
            if refs := refs_in(place.text, tag):
                self._let_go(path, "", refs[0], place.text)
            elif (original := restore(place.text, tag, self._source)) is not None:
                self.texts.append((path, original))
        for path, text in _own(message):
            if refs := refs_in(text, self._sources.tag):
                self._let_go((message.index, *path), text, refs[0], text)

    def _let_go(self, path: Place, text: str, ref: str, sent: str) -> None:
        self._gone.append((path, text, ref))
        self._refs.extend(records_in(sent, self._sources.tag))

    def _ask(self, store: Store) -> None:
        kept = store.get({*(ref for _, _, ref in self._gone), *self._refs})
        tag = self._sources.tag
        for path, text, ref in self._gone:
            # The model may quote a marker: only what stands where lines of the original stood was put there by us.
            if ref in kept and (not text or stands_for(text, kept[ref], tag)):
                self.texts.append((path, kept[ref]))
        self.records = [kept[ref] for ref in dict.fromkeys(self._refs) if ref in kept]


def _own(message: Message) -> Iterator[tuple[Place, str]]:
    """Texts of the model itself, and where they stand in their message."""
    for part in message.parts:
        if isinstance(part, Text) and message.role == "assistant":
            yield part.path, part.text
        elif isinstance(part, ToolCall):
            given = given_to(part)
            if given is None and isinstance(part.input, str):
                yield part.input_path, part.input
            for key, value in (given or {}).items():
                if isinstance(value, str):
                    yield (*part.input_path, key), value


def _dropped(
    messages: Sequence[Message], records: Iterable[str], dialect: formats.Format
) -> Iterator[tuple[Place, Any]]:
    """Blocks that are missing, each with the place of what now stands there: only beside what stood beside them."""
    found = {(each.message, each.path): each for text in records for each in recorded(text)}
    shift: Counter[int] = Counter()
    for each in sorted(found.values(), key=lambda each: (each.message, each.path)):
        message = messages[each.message] if 0 <= each.message < len(messages) else None
        if message is None or beside(message) != each.beside or dialect.parts_path(message) != each.path[:-1]:
            continue
        if each.block in message.wire[each.path[0]]:
            continue
        yield (message.index, *each.path[:-1], int(each.path[-1]) - shift[message.index]), each.block
        shift[message.index] += 1
