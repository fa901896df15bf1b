"""Restore a request: replace references with the text they point at, and stubs with their originals in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import formats
from ..markers import placed
from ..markers.backref import Source
from ..markers.evicted import refs_in, stub
from ..markers.layout import Shown
from ..markers.numbering import Sources
from ..markers.restore import Budget, left_of, restore
from ..markers.thinking import Spine, blocks_of, recorded, stood
from ..model import Conversation, Message, Path
from ..plan import own_texts
from ..store.recall import checked_store
from ..wire import Change, open_document
from . import marking

if TYPE_CHECKING:
    from ..store import Store


def expand(request: Any, *, format: str | None = None, store: Store | None = None) -> Any:
    """Return the request as it was before `compact`, byte for byte.

    Repeated text is restored from the compacted request. Evicted text and added cache breakpoints (`cache="auto"`) need
    the store and stay without it. A text is restored only if it matches the digest in its marker; all other content is
    unchanged. The result has the type of `request`, and is the same object if there is no text to restore.
    """
    checked_store(store)
    document = open_document(request)
    try:
        dialect = formats.named(format) if format is not None else formats.detect(document.value)
    except formats.Ambiguous:
        return request  # `compact` did not change it
    if format is None and isinstance(document.value, dict) and dialect.history_key not in document.value:
        return request
    prefix = (dialect.history_key,) if isinstance(document.value, dict) else ()
    try:
        conv = formats.parse(document.value, dialect)
        if store is not None and (undo := _marks(conv, store)):
            document = open_document(document.write(undo))
            conv = formats.parse(document.value, dialect)
        messages = conv.messages
        known = Expansion(messages, store)
    except RecursionError:
        return request  # nested too deeply for `compact` to change it
    restored = document.write([Change((*prefix, *path), "set", text) for path, text in known.texts])
    if store is None:
        return restored
    if known.texts:  # the positions of removed thinking depend on the restored texts
        document = open_document(restored)
        messages = formats.parse(document.value, dialect).messages
    return document.write(
        [Change((*prefix, *path), "before", block) for path, block in _thinking(messages, store, dialect)]
    )


class Expansion:
    """The texts of a history that can be restored."""

    def __init__(self, messages: Sequence[Message], store: Store | None) -> None:
        self.texts: list[tuple[Path, str]] = []
        """Path and original of each text."""
        self._sources = Sources()
        self._sent: dict[Source, str] = {}
        self._shown: dict[Source, Shown] = {}
        self._length = self._fetched = 0
        """Characters of the texts so far, and characters fetched to restore them."""
        self._kept = {} if store is None else _kept(messages, store)
        for message in messages:
            self._read(message)

    def _source(self, source: Source) -> Shown | None:
        if source in self._sent and source not in self._shown:
            self._shown[source] = Shown.of(self._sent[source], self._sources.tag)
        return self._shown.get(source)

    def _read(self, message: Message) -> None:
        for place in self._sources.read(message):
            self._sent[place.source] = place.text
            evicted = restored = None
            if place.segment is not None:
                evicted = self._evicted(place.text)
                restored = self._restored(place.text) if evicted is None else None
                if (original := restored if evicted is None else evicted) is not None:
                    self.texts.append(((message.index, *place.segment.path), original))
            # `compact` counts the same: an evicted text was sent in full once, a referenced text was not.
            self._length += len(place.text if evicted is None else evicted)
        for path, text in own_texts(message):
            original = self._evicted(text)
            if original is not None:
                self.texts.append(((message.index, *path), original))
                self._length += len(original)

    def _restored(self, text: str) -> str | None:
        budget = Budget(self._length, self._fetched)
        found = restore(text, self._sources.tag, self._source, budget)
        if found is None:
            return None
        self._fetched += budget.used
        return found.original

    def _evicted(self, text: str) -> str | None:
        """Return the original if the text is a real stub, not a marker that a tool or the model quoted."""
        found = stub(text, self._sources.tag)
        original = self._kept.get(found.ref) if found else None
        if found is None or original is None or not left_of(text, original, self._sources.tag):
            return None
        return original


def _kept(messages: Iterable[Message], store: Store) -> dict[str, str]:
    """Return the originals in the store of all references in the history."""
    refs: set[str] = set()
    sources = Sources()
    for message in messages:
        texts = [place.text for place in sources.read(message) if place.segment is not None]
        for text in (*texts, *(text for _, text in own_texts(message))):
            refs.update(refs_in(text, sources.tag))
    return store.get(refs) if refs else {}


def _marks(conv: Conversation, store: Store) -> list[Change]:
    """Return the changes that remove the cache breakpoints that we added to the request."""
    key, history = conv.dialect.history_key, [message.wire for message in conv.messages]
    if not conv.dialect.marks.asks(conv.head, conv.dialect.marks.found(conv.head, history)):
        return []
    refs = store.refs(placed.session_of(marking.key_of(conv.messages)))
    return placed.taken_off(len(history), {**conv.head, key: history}, store.get(refs).values()) if refs else []


def _thinking(messages: Sequence[Message], store: Store, dialect: formats.Format) -> Iterator[tuple[Path, Any]]:
    """Yield the removed thinking blocks, each with the path before which it must be inserted."""
    spine = Spine()
    for message in messages:
        spine.read(message)
    refs = store.refs(spine.name) if spine.name else ()
    known = recorded(store.get(refs).values()) if refs else {}
    for message, place in zip(messages, spine.places, strict=True):
        blocks, parts = stood(known.get(message.index, ()), place), dialect.parts_path(message)
        if blocks_of(message) or any(path[:-1] != parts for path in blocks):
            continue
        for shift, path in enumerate(sorted(blocks, key=lambda path: path[-1])):
            yield (message.index, *path[:-1], int(path[-1]) - shift), blocks[path]
