"""Replace repeated text with back-references: the strategy of the default profile.

`BackReferenceState` gets the messages in order. It encodes each new result with a shorter layout, looks up its lines in
the texts sent before, and replaces repeats with markers. A decision depends only on the result and earlier messages,
and never changes, so every later request starts with the same bytes (invariant 2). Before an edit is used, the result
is restored from it and compared with the original (invariant 6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Literal
from weakref import WeakMethod

from ...markers import backref, layout_codecs
from ...markers.backref import Source
from ...markers.source_numbers import NumberedText, SourceNumbers, hides_earlier_messages
from ...model import Kind, Message, Text
from ...plan import Edit, FullText
from ...tokens import TokenCounter, counter_for
from ..strategy import ConversationStart, Strategy, StrategyState
from .hints import HintStyle
from .line_index import LineIndex
from .result_encoder import ResultEncoder
from .sent_text import SentForm, SentText


@dataclass(frozen=True, slots=True, kw_only=True)
class BackReferences(Strategy):
    """Replace repeated text with back-references, and encode verbose layouts in a shorter form."""

    name: ClassVar[str] = "said-once"
    labels: ClassVar[tuple[str, ...]] = ("dedup", "spans", "shapes", "fields")
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    final: ClassVar[bool] = True

    dedup: bool = True
    """Replace whole results that were sent before."""
    spans: bool = True
    """Replace ranges of lines that are in an earlier result, or in an argument of an earlier call."""
    inside: int | None = None
    """Minimum tokens of a line range that is replaced because it repeats lines of the same result, for example 60.
    None: never. Needs `spans`."""
    shapes: bool = True
    """Shorten padding of line numbers, repeated paths, indented JSON and Codex headers."""
    fields: bool = True
    """Send only the differences of a result that differs from an earlier one of the same tool in a few lines or JSON
    fields."""
    diffs: bool = False
    """Replace lines of a diff that are in an earlier text without their sign. Needs `spans`."""
    hints: HintStyle = HintStyle.IBIDEM
    """Wording of references to whole results. `expand` restores only our own, because the others have no digest."""
    min_gain: int = 4
    """Minimum tokens that a reference must save, its marker deducted."""
    numbers: Literal["all", "sparse"] = "all"
    """`sparse` writes only every tenth of consecutive line numbers. Tools that edit by line number need all."""
    max_distance: int | None = None
    """Maximum distance of a reference, in tokens of four characters. None: no limit."""
    repeat_guard: int = 8
    """If the model repeats a call within this many results after it got a reference, the full text is sent: the model
    could not use the reference. 0: off."""

    @property
    def lossless(self) -> bool:
        return self.hints is HintStyle.IBIDEM

    @property
    def shared_arrival(self) -> BackReferences | None:
        """The settings, so that replay can share one state between profiles. None for a subclass with own behavior."""
        plain = type(self).begin is BackReferences.begin and type(self).plan is Strategy.plan
        return self if plain else None

    def begin(self, start: ConversationStart) -> BackReferenceState:
        return BackReferenceState(self, start.refers)


class BackReferenceState(StrategyState):
    """State of `BackReferences` after some messages."""

    def __init__(self, settings: BackReferences, refers: bool, is_evicted: Callable[[str], bool] | None = None) -> None:
        """`is_evicted` returns True for a text that is the stub of an evicted text."""
        self.settings = settings
        self.refers = self._refers = refers
        self.is_evicted = _weak_callback(is_evicted) if is_evicted is not None else _is_never_evicted
        self.count: TokenCounter = counter_for()
        self.encode_layout: Callable[[str], layout_codecs.EncodedText] = layout_codecs.encode_layout
        self.sources = SourceNumbers()
        self.sent_characters = self.result_count = 0
        self.has_explained_markers = False
        self.referenced_calls: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
        """Calls whose result contains a reference, by label (quick to compute), then by their arguments."""
        self.last_slot_by_tool: dict[str, int] = {}
        self._known: LineIndex | None = None
        self.rewritten = False
        """True if the history contains stubs: it was rewritten before, and later messages stay unchanged."""
        self.fetched_characters = self.tried_characters = 0
        """Characters fetched to restore our own markers, and those fetched for markers that are not ours."""
        self.as_is = False
        """True if the last message was sent unchanged, and must stay unchanged."""
        self.said: list[SentText] = []
        """The texts of the last message, as sent."""
        self.full_texts: tuple[FullText, ...] = ()
        """Texts that the repeat guard sends in full."""

    def fork(self) -> BackReferenceState:
        """Return an independent copy, made between two messages."""
        fork = copy(self)
        fork.sources = self.sources.fork()
        fork.referenced_calls = {call: dict(alike) for call, alike in self.referenced_calls.items()}
        fork.last_slot_by_tool = dict(self.last_slot_by_tool)
        fork._known = None if self._known is None else self._known.fork()
        fork.said = []
        return fork

    @property
    def known(self) -> LineIndex:
        """Index of the texts sent so far. It is created on first access, when the tag is known."""
        if self._known is None:
            self._known = LineIndex(self.sources.tag)
        return self._known

    @property
    def weight(self) -> int:
        return 0 if self._known is None else self._known.memory_bytes

    @property
    def reach_start(self) -> int:
        """Number of sent characters before the first text that a reference may reach."""
        far = self.settings.max_distance
        return 0 if far is None else max(0, self.sent_characters - 4 * far)

    def feed(self, message: Message, as_is: bool = False) -> Iterator[Edit]:
        self.as_is = as_is
        if hides_earlier_messages(message):
            self.refers = self._refers
            self.last_slot_by_tool.clear()
            if self._known is not None:
                self._known.clear_lines()
        self.said = []
        for place in self.sources.number_texts(message):
            index = self.known
            if place.segment is None:
                form = SentForm(place.text)
            else:
                self.result_count = place.source.number
                form = yield from self._encode_result(message.index, place.segment, place)
            if not form.has_own_marker and backref.marker_prefix(index.tag) in form.text:
                index.add_opaque(place, self.sent_characters)
            else:
                reach_start = self.sent_characters + 1 if form.is_sent_in_full else self.reach_start
                index.add_text(place, form, self.sent_characters, reach_start)
            if place.segment is not None and place.call.tool:
                self.last_slot_by_tool[place.call.tool] = index.slot_number(place.source)
            self.sent_characters += len(form.text)
            self.said.append(SentText(place, form.text, form.targets))

    def _encode_result(self, index: int, segment: Text, place: NumberedText) -> Generator[Edit, None, SentForm]:
        """Yield the edit of a result, if there is one. Return how the result is sent."""
        if segment.bound or place.is_error:
            return SentForm(segment.text)
        call = (place.call.tool, place.call.label, place.source.part)
        similar_calls = self.referenced_calls.get(call)
        # If the model repeats a call soon after its result was a reference, it wants the text itself.
        last = similar_calls.pop(place.call.arguments, None) if similar_calls else None
        repeated_content = (
            last[1] if last is not None and self.result_count - last[0] <= self.settings.repeat_guard else None
        )
        outgoing = ResultEncoder(self, place, repeated_content)
        attempt = outgoing.choose_encoding()
        if attempt.sent != segment.text:
            yield Edit(
                strategy=attempt.strategy,
                op="set",
                message=index,
                path=segment.path,
                removed=(segment.text,),
                added=attempt.sent,
                fewer_tokens=True,
                reason=attempt.reason,
            )
        if outgoing.is_sent_in_full:
            self.full_texts += (FullText(index, segment.path),)
        if attempt.is_reference:
            self.referenced_calls.setdefault(call, {})[place.call.arguments] = (
                self.result_count,
                outgoing.content_hash,
            )
        targets = tuple(outgoing.visible_texts) if attempt.is_reference else ()
        has_no_layout = outgoing.layout is not None and attempt.sent is outgoing.encoded_text
        layout = outgoing.sent_layout(attempt.sent)
        encoded_text = outgoing.encoded_text if layout is not None and outgoing.is_encoded_only(attempt.sent) else ""
        return SentForm(
            attempt.sent,
            layout,
            outgoing.is_sent_in_full,
            targets,
            outgoing.has_own_marker,
            has_no_layout,
            encoded_text,
        )

    def results_cleared(self) -> None:
        """Stop making references: the provider clears the oldest results at each request, so a target may be cleared
        before the text that refers to it."""
        self.refers = False

    def forget(self, source: Source) -> None:
        """Note that a text was evicted, so that no later text refers to it."""
        self.known.remove_text(source)


def _is_never_evicted(text: str) -> bool:
    return False


def _weak_callback(is_evicted: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return the method without a strong reference to its object. The object owns the state, so both can be freed."""
    method = WeakMethod(is_evicted)

    def call_owner(text: str) -> bool:
        callback = method()
        return callback is not None and callback(text)

    return call_owner
