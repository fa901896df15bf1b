"""Restore a request: replace references with the text they point at, and stubs with their originals in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import formats
from ..markers import breakpoint_records
from ..markers.backref import Source
from ..markers.eviction_markers import parse_stub, refs_in
from ..markers.layout import VisibleText
from ..markers.restore import ExpansionBudget, is_remainder_of, restore_text
from ..markers.source_numbers import SourceNumbers
from ..markers.thinking_records import HistoryFingerprint, blocks_of, parse_records, removed_blocks
from ..model import Conversation, Message, Path
from ..plan import model_texts
from ..store.recall import check_store
from ..wire import JsonChange, open_document
from . import breakpoint_placement

if TYPE_CHECKING:
    from ..store import Store


def expand(request: Any, *, format: str | None = None, store: Store | None = None) -> Any:
    """Return the request as it was before `compact`, byte for byte.

    Repeated text is restored from the compacted request. Evicted text and added cache breakpoints (`cache="auto"`) need
    the store and stay without it. A text is restored only if it matches the digest in its marker; all other content is
    unchanged. The result has the type of `request`, and is the same object if there is no text to restore.
    """
    check_store(store)
    document = open_document(request)
    try:
        dialect = formats.format_named(format) if format is not None else formats.detect_format(document.value)
    except formats.AmbiguousFormat:
        return request  # `compact` did not change it
    if format is None and isinstance(document.value, dict) and dialect.history_key not in document.value:
        return request
    prefix = (dialect.history_key,) if isinstance(document.value, dict) else ()
    try:
        conv = formats.parse_request(document.value, dialect)
        if store is not None and (undo := _breakpoint_removals(conv, store)):
            document = open_document(document.write(undo))
            conv = formats.parse_request(document.value, dialect)
        messages = conv.messages
        expansion = Expansion(messages, store)
    except RecursionError:
        return request  # nested too deeply for `compact` to change it
    restored_request = document.write([JsonChange((*prefix, *path), "set", text) for path, text in expansion.texts])
    if store is None:
        return restored_request
    if expansion.texts:  # the positions of removed thinking depend on the restored texts
        document = open_document(restored_request)
        messages = formats.parse_request(document.value, dialect).messages
    return document.write(
        [JsonChange((*prefix, *path), "before", block) for path, block in _missing_thinking(messages, store, dialect)]
    )


class Expansion:
    """The texts of a history that can be restored."""

    def __init__(self, messages: Sequence[Message], store: Store | None) -> None:
        self.texts: list[tuple[Path, str]] = []
        """Path and original of each text."""
        self._sources = SourceNumbers()
        self._sent_texts: dict[Source, str] = {}
        self._visible_texts: dict[Source, VisibleText] = {}
        self._sent_characters = self._fetched_characters = 0
        """Characters of the texts so far, and characters fetched to restore them."""
        self._originals = {} if store is None else _load_originals(messages, store)
        for message in messages:
            self._read_message(message)

    def _visible_text(self, source: Source) -> VisibleText | None:
        if source in self._sent_texts and source not in self._visible_texts:
            self._visible_texts[source] = VisibleText.from_text(self._sent_texts[source], self._sources.tag)
        return self._visible_texts.get(source)

    def _read_message(self, message: Message) -> None:
        for place in self._sources.number_texts(message):
            self._sent_texts[place.source] = place.text
            evicted_text = restored_text = None
            if place.segment is not None:
                evicted_text = self._original_of_stub(place.text)
                restored_text = self._restore_text(place.text) if evicted_text is None else None
                if (original := restored_text if evicted_text is None else evicted_text) is not None:
                    self.texts.append(((message.index, *place.segment.path), original))
            # `compact` counts the same: an evicted text was sent in full once, a referenced text was not.
            self._sent_characters += len(place.text if evicted_text is None else evicted_text)
        for path, text in model_texts(message):
            original = self._original_of_stub(text)
            if original is not None:
                self.texts.append(((message.index, *path), original))
                self._sent_characters += len(original)

    def _restore_text(self, text: str) -> str | None:
        budget = ExpansionBudget(self._sent_characters, self._fetched_characters)
        restored_text = restore_text(text, self._sources.tag, self._visible_text, budget)
        if restored_text is None:
            return None
        self._fetched_characters += budget.used_characters
        return restored_text.original

    def _original_of_stub(self, text: str) -> str | None:
        """Return the original if the text is a real stub, not a marker that a tool or the model quoted."""
        marker = parse_stub(text, self._sources.tag)
        original = self._originals.get(marker.ref) if marker else None
        if marker is None or original is None or not is_remainder_of(text, original, self._sources.tag):
            return None
        return original


def _load_originals(messages: Iterable[Message], store: Store) -> dict[str, str]:
    """Return the originals in the store of all references in the history."""
    refs: set[str] = set()
    sources = SourceNumbers()
    for message in messages:
        texts = [place.text for place in sources.number_texts(message) if place.segment is not None]
        for text in (*texts, *(text for _, text in model_texts(message))):
            refs.update(refs_in(text, sources.tag))
    return store.get(refs) if refs else {}


def _breakpoint_removals(conv: Conversation, store: Store) -> list[JsonChange]:
    """Return the changes that remove the cache breakpoints that we added to the request."""
    key, history = conv.dialect.history_key, [message.wire for message in conv.messages]
    if not conv.dialect.cache_control.has_directives(
        conv.head, conv.dialect.cache_control.all_breakpoints(conv.head, history)
    ):
        return []
    refs = store.refs(breakpoint_records.session_of(breakpoint_placement.cache_key_for(conv.messages)))
    return (
        breakpoint_records.breakpoint_removals(len(history), {**conv.head, key: history}, store.get(refs).values())
        if refs
        else []
    )


def _missing_thinking(messages: Sequence[Message], store: Store, dialect: formats.Format) -> Iterator[tuple[Path, Any]]:
    """Yield the removed thinking blocks, each with the path before which it must be inserted."""
    spine = HistoryFingerprint()
    for message in messages:
        spine.add_message(message)
    refs = store.refs(spine.name) if spine.name else ()
    records = parse_records(store.get(refs).values()) if refs else {}
    for message, place in zip(messages, spine.digests, strict=True):
        blocks, parts = removed_blocks(records.get(message.index, ()), place), dialect.parts_path(message)
        if blocks_of(message) or any(path[:-1] != parts for path in blocks):
            continue
        for shift, path in enumerate(sorted(blocks, key=lambda path: path[-1])):
            yield (message.index, *path[:-1], int(path[-1]) - shift), blocks[path]
