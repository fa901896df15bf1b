"""Choose what to send for one text of a result, and check that the text can be restored from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ...markers import backref, layout_codecs
from ...markers.backref import ABOVE, Marker, Source
from ...markers.layout import (
    ITEM_SEPARATORS,
    Layout,
    VisibleText,
    drop_line_numbers,
    numbered_layout,
    separator_letter,
    split_line_numbers,
)
from ...markers.line_numbers import TABBED
from ...markers.line_offsets import split_lines
from ...markers.patches import SIGN_BY_VIEW, may_be_patch, signed_lines
from ...markers.restore import DecodedText, ExpansionBudget, restore_text
from ...markers.sequential_lines import TabbedUnits
from ...markers.source_numbers import NumberedText
from ...model import utf8_size
from ...tokens import TokenCounter, token_difference
from ...wire import no_larger, surely_no_larger
from .hints import HintStyle, render_hint
from .indexed_text import IndexedText, LineMatch
from .line_index import Address
from .partial_output import PartialOutput

MAX_COUNTED = 512
"""Maximum characters of a replacement whose tokens are estimated before the original is counted."""
WORD = 8
"""Approximate characters of a word with its separator."""
SLACK = 4
"""Tokens by which a joined text may exceed the sum of its parts."""


class TokenGain(NamedTuple):
    """The minimum saving of a replacement. Counting is expensive, so cheap lower bounds are tried first."""

    count: TokenCounter
    gain: int
    """Minimum number of saved tokens."""

    def is_worthwhile(self, before: str, after: str) -> bool:
        """Return True if the replacement has fewer bytes and saves enough tokens."""
        if utf8_size(after) >= utf8_size(before):
            return False
        words = least_tokens(before[: 3 * WORD * len(after)]) if len(after) <= MAX_COUNTED else 0
        if words >= len(after) + self.gain:
            return True
        least = self.count(after) + self.gain
        return words >= least or self.count(before) >= least

    def surely_saves(self, before: str, after: str) -> bool:
        """Return True if a cheap lower bound shows that enough is saved. `before` may be a part of the original."""
        if utf8_size(after) >= utf8_size(before):
            return False
        if least_tokens(before[: 2 * WORD * len(after)]) >= len(after) + self.gain:  # usually a start is enough
            return True
        words = least_tokens(before)
        return words >= len(after) + self.gain or words >= self.count(after) + self.gain

    def is_encoding_worthwhile(self, text: str, encoded_text: str, marker: str, saved_tokens: int) -> bool:
        """Return True if the encoded text plus its marker saves enough. The codec reports `saved_tokens`."""
        sent_text = f"{encoded_text}\n{marker}"
        if utf8_size(sent_text) >= utf8_size(text):
            return False
        known_gain = saved_tokens - SLACK - self.gain
        if known_gain > 0 and known_gain >= self.count(f"\n{marker}"):
            return True
        return (
            token_difference(text, encoded_text, self.count) + token_difference(encoded_text, sent_text, self.count)
            >= self.gain
        )

    def has_tokens(self, text: str, tokens: int) -> bool:
        """Return True if the text has at least this number of tokens."""
        return least_tokens(text[: 3 * WORD * tokens]) >= tokens or self.count(text) >= tokens


def least_tokens(text: str) -> int:
    """Return a lower bound of the tokens: no token spans two words, except one that ends in a slash at a line start."""
    return len(text.split()) - text.count("\n/") - text.count("\r/")


if TYPE_CHECKING:
    from .backrefs import BackReferenceState

MIN_TEXT = 64
"""Minimum characters of a text that may be replaced."""
LINES_READ = 48
"""Number of replaced lines that are checked first, to see that the saving is enough."""
NO_LINE = "\x00" * 3
"""Placeholder for a line that is not compared."""
MAX_FIELDS = 12
"""Maximum lines or fields that may differ from an earlier text if only the differences are sent."""


class EncodingAttempt(NamedTuple):
    """A possible replacement of a text, with its reason."""

    sent: str
    strategy: str = ""
    reason: str = ""
    is_reference: bool = False
    """True if it points at a text that was sent before."""
    is_foreign: bool = False
    """True if it has another system's wording, which `expand` cannot restore."""


class ResultEncoder:
    """Chooses what to send for one text of a result.

    It updates the strategy state at once: all texts share one budget for following markers, and the first marker of a
    conversation explains what markers are.
    """

    def __init__(self, state: BackReferenceState, place: NumberedText, repeated_content: int | None) -> None:
        self.state = state
        self.settings = state.settings
        self.token_gain = TokenGain(state.count, state.settings.min_gain)
        self.line_index = state.known
        self.text = place.text
        self.tool = place.call.tool
        self.repeated_content = repeated_content
        """Content hash of the last result of this call, if the call is repeated; else None."""
        self.visible_texts: dict[Source, VisibleText | None] = {}
        self.min_repeat_tokens = state.settings.inside
        self.has_first_marker = self.is_sent_in_full = self.has_own_marker = self.has_repeats = False
        self.encoded_text = self.flags = ""
        self.encoding = layout_codecs.EncodedText("")
        self.layout: Layout | None = None
        self.partial_output: PartialOutput | None = None

    def choose_encoding(self) -> EncodingAttempt:
        """Return what to send: the text itself if a replacement does not pay, or is unsafe."""
        if backref.marker_prefix(self.line_index.tag) in self.text:
            return EncodingAttempt(self.text, is_reference=self._recognize_own_text())
        if self.state.rewritten or self.state.as_is or len(self.text) < MIN_TEXT:
            return EncodingAttempt(self.text)
        self.encoding = self._encode_layout()
        self.encoded_text, self.flags = self.encoding.text, self.encoding.flags
        self.is_sent_in_full = self.repeated_content is not None and self.content_hash == self.repeated_content
        may_refer = self.state.refers and not self.is_sent_in_full
        for make_attempt in (
            (self._try_whole_result, self._try_partial_references, self._try_layout_only)
            if may_refer
            else (self._try_layout_only,)
        ):
            attempt = make_attempt()
            if attempt is not None:
                return self._accept_if_safe(attempt) or self._without_repeats() or EncodingAttempt(self.text)
        return EncodingAttempt(self.text)

    def _without_repeats(self) -> EncodingAttempt | None:
        """Try again without references inside the text. They can make it look like another layout, so that it cannot
        be restored."""
        if not self.has_repeats:
            return None
        self.min_repeat_tokens, self.has_repeats, self.has_first_marker = None, False, False
        attempt = self._try_partial_references() or self._try_layout_only()
        return attempt and self._accept_if_safe(attempt)

    def _accept_if_safe(self, attempt: EncodingAttempt) -> EncodingAttempt | None:
        """Return the attempt if it would be admitted and restores the text; else None.

        The check is made here, because the index needs the sent text.
        """
        sent_text = attempt.sent
        if utf8_size(sent_text) >= utf8_size(self.text) or not self._is_no_larger(sent_text):
            return None
        if attempt.is_foreign:
            return attempt
        sent_text = self._drop_line_numbers(sent_text) if self.settings.numbers == "sparse" else sent_text
        if not self._can_restore(sent_text):
            return None
        self.state.has_explained_markers = True
        return attempt._replace(sent=sent_text)

    def _is_no_larger(self, sent_text: str) -> bool:
        """Return True if the text is no larger in JSON. A common tail is skipped if the rest decides it."""
        tail, end = self.encoding.shared_tail, len(self.encoded_text)
        if not tail or not sent_text.startswith(self.encoded_text):
            return no_larger(sent_text, self.text)
        rest = sent_text[: end - tail] + sent_text[end:]
        return surely_no_larger(rest, self.text[: len(self.text) - tail]) or no_larger(sent_text, self.text)

    def _encode_layout(self) -> layout_codecs.EncodedText:
        index = (
            self.line_index
        )  # an equal text that was sent unchanged can be referenced as a whole, so keep the layout
        is_repeat = index.find_equal_text(self.text, self.state.reach_start) is not None
        if is_repeat or not self.settings.shapes or index.has_no_layout(self.text):
            return layout_codecs.EncodedText(self.text)
        return self.state.encode_layout(self.text)

    def _can_restore(self, sent_text: str) -> bool:
        """Return True if `expand` restores exactly this text (invariant 6)."""
        state = self.state
        budget = ExpansionBudget(state.sent_characters, state.fetched_characters)
        # The codec has already checked that the encoded text decodes to this one.
        decoded_text = DecodedText(self.encoded_text, self.flags, self.text)
        restored_text = restore_text(sent_text, self.line_index.tag, self._visible_text, budget, decoded_text)
        self.has_own_marker = restored_text is not None and restored_text.original == self.text
        state.fetched_characters += budget.used_characters if self.has_own_marker else 0
        return self.has_own_marker

    def _drop_line_numbers(self, sent_text: str) -> str:
        other = drop_line_numbers(sent_text, self.line_index.tag)
        if other is None or len(other) >= len(sent_text):
            return sent_text
        restored_text = restore_text(
            other,
            self.line_index.tag,
            self._visible_text,
            ExpansionBudget(self.state.sent_characters, self.state.fetched_characters),
        )
        return other if restored_text is not None and restored_text.original == self.text else sent_text

    @property
    def content_hash(self) -> int:
        """Hash of the content, without a header that differs each time."""
        start = self.encoded_text.index("\n") if layout_codecs.HEADER_FLAG in self.flags else 0
        return hash(self.encoded_text[start:])

    def _recognize_own_text(self) -> bool:
        """Return True if this text was rewritten by us before and refers to another text.

        It then counts as its original, so that a second pass decides like the first. A text whose markers cannot be
        proven ours is opaque: it stays unchanged and does not affect other texts. The work on such texts is limited
        over the whole conversation, because there may be very many.
        """
        state = self.state
        state.rewritten = state.rewritten or state.is_evicted(self.text)
        if state.rewritten:
            return False
        budget = ExpansionBudget(
            state.sent_characters, state.fetched_characters + state.tried_characters, 2
        )  # the other half is for texts that we rewrote before

        def fetch_text(source: Source) -> VisibleText | None:
            if source not in self.visible_texts:
                budget.spend(self.line_index.unread_characters(source))
            return self._visible_text(source)

        restored_text = restore_text(self.text, self.line_index.tag, fetch_text, budget)
        if restored_text is None:
            state.tried_characters += budget.used_characters
            return False
        state.fetched_characters += budget.used_characters  # `expand` counts the same
        state.has_explained_markers = True
        self.has_own_marker, self.encoded_text, self.flags = True, restored_text.encoded, restored_text.flags
        self.is_sent_in_full = (
            not restored_text.has_references
            and self.repeated_content is not None
            and self.content_hash == self.repeated_content
        )
        return restored_text.has_references

    def _visible_text(self, source: Source) -> VisibleText | None:
        if source not in self.visible_texts:
            self.visible_texts[source] = self.line_index.shown(source)
        return self.visible_texts[source]

    def _make_marker(self, **fields: Any) -> Marker:
        """Return a marker. The first of a text has its digest and flags, the first of a conversation an explanation."""
        first = not self.has_first_marker
        self.has_first_marker = True
        digest = backref.digest_of(self.text) if first else ""
        return Marker(
            self.line_index.tag,
            digest,
            self.flags if first else "",
            explains=first and not self.state.has_explained_markers,
            **fields,
        )

    def _try_whole_result(self) -> EncodingAttempt | None:
        number = (
            self.line_index.find_equal_text(self.encoded_text, self.state.reach_start) if self.settings.dedup else None
        )
        if number is None:
            return None
        slot = self.line_index.slots[number]
        if self.settings.hints is not HintStyle.IBIDEM:
            return self._try_hint(slot)
        sent_text = str(self._make_marker(source=slot.source, label=self.line_index.text_label(number)))
        if not self.token_gain.is_worthwhile(self.text, sent_text):
            self.has_first_marker = False
            return None
        return EncodingAttempt(sent_text, "dedup", f"same as {slot.source}", is_reference=True)

    def sent_layout(self, sent_text: str) -> Layout | None:
        """Return the layout of the sent text, equal to that of `parse_layout`; None if it must be computed."""
        if self.layout is None or sent_text is self.encoded_text:
            return self.layout
        if self.settings.numbers == "sparse" or not self.has_own_marker:
            return None
        if self.partial_output is not None and self.partial_output.done_units:
            return self.partial_output.sent_layout()
        return self.layout._replace(has_markers=True) if self.is_encoded_only(sent_text) else None

    def is_encoded_only(self, sent_text: str) -> bool:
        """Return True if the sent text is the whole encoded text plus its marker, without references."""
        return self.has_own_marker and sent_text.startswith(self.encoded_text)

    def _try_hint(self, slot: IndexedText) -> EncodingAttempt | None:
        """Return a reference to a whole result in another system's wording, which names results by call id."""
        if slot.sent_text != self.text or not slot.call_id:
            return None
        sent_text = render_hint(self.settings.hints, slot.call_id, self.text)
        if not self.token_gain.is_worthwhile(self.text, sent_text):
            return None
        return EncodingAttempt(sent_text, "dedup", f"same as {slot.source}", is_reference=True, is_foreign=True)

    def _try_partial_references(self) -> EncodingAttempt | None:
        layout = self._choose_layout()
        encoding_flags = self.flags
        self.flags += layout.comma
        attempt = self._try_difference(layout) if self.settings.fields else None
        if attempt is None and self.settings.spans:
            attempt = self._try_line_references(layout)
        if attempt is None:
            self.flags, self.has_first_marker = encoding_flags, False
        return attempt

    def _choose_layout(self) -> Layout:
        """Return the layout to compare with earlier texts. Line numbers are separate only if they can be restored."""
        comma = separator_letter(self.encoded_text)
        if comma:
            units = self.encoded_text.split(ITEM_SEPARATORS[comma])
            self.layout = Layout(units, units, None, "", comma, False)
        else:
            apart = self.encoding.numbered_lines
            if apart is not None:
                self.layout = numbered_layout(TabbedUnits(apart), apart)
            elif self.encoding.has_no_numbers:
                self.layout = numbered_layout(split_lines(self.encoded_text), None)
            else:
                self.layout = split_line_numbers(split_lines(self.encoded_text))
        layout = self.layout
        if layout.numbers is None or self.encoding.numbered_lines is not None:
            return layout
        if layout.style_letter == TABBED.letter and self._has_canonical_numbers(layout, layout.numbers):
            return layout
        return Layout(layout.units, layout.units, None, "", "", False)

    def _has_canonical_numbers(self, layout: Layout, numbers: Sequence[int | None]) -> bool:
        """Return True if all line numbers have the form in which they would be restored."""
        text = self.encoded_text
        if text[0] not in " 0" and "\n0" not in text and "\n " not in text:
            return True
        rows = zip(layout.units, layout.bodies, numbers, strict=True)
        return all(line_number is None or unit == f"{line_number}\t{body}" for unit, body, line_number in rows)

    def _try_line_references(self, layout: Layout) -> EncodingAttempt | None:
        self.partial_output = output = PartialOutput(layout)
        labelled_sources: set[Source] = set()
        last_source: Source | None = None
        for match, lines, view in self._find_matches(layout, lambda: output.done_units):
            if match.first < output.done_units:
                continue
            last_source = None if self._replace_repeats(output, match.first) else last_source
            left_out = layout.separator.join(layout.units[match.first : min(match.last, match.first + LINES_READ)])
            is_complete = match.last <= match.first + LINES_READ
            if is_complete and len(left_out) < MIN_TEXT:
                continue
            address, label = self.line_index.match_address(match), ""
            if self.line_index.slots[match.slot].source not in labelled_sources:
                match, address, label = self.line_index.choose_location(lines, match, address, self.state.reach_start)
            marker = str(self._make_line_reference(layout, match, address, label, last_source, view))
            if (
                is_complete or not self.token_gain.surely_saves(left_out, marker)
            ) and not self.token_gain.is_worthwhile(
                left_out if is_complete else layout.separator.join(layout.units[match.first : match.last]), marker
            ):
                self.has_first_marker = self.has_first_marker and bool(output.done_units)
                continue
            output.replace_units(match.first, match.last, marker)
            last_source = self.line_index.slots[match.slot].source
            labelled_sources.add(last_source)
        self._replace_repeats(output, len(layout.units))
        if not output.done_units:
            return None
        targets = ", ".join([*map(str, sorted(labelled_sources)), *["itself"] * self.has_repeats])
        return EncodingAttempt(output.complete_text(), "spans", f"stands in part in {targets}", is_reference=True)

    def _find_matches(self, layout: Layout, done_units: Callable[[], int]) -> Iterator[tuple[LineMatch, Layout, str]]:
        """Yield the repeats of earlier texts from left to right, each with the compared layout and its diff view."""
        nearest = self.state.reach_start
        layouts = {"": layout}
        if self.settings.diffs and layout.numbers is None and not layout.comma and may_be_patch(self.text):
            for view, sign in SIGN_BY_VIEW.items():
                layouts[view] = layout._replace(bodies=signed_lines(layout.units, sign, NO_LINE))
        matches_by_view = [
            zip(self.line_index.find_matches(lines, nearest, done_units), repeat(lines), repeat(view))
            for view, lines in layouts.items()
        ]
        for match, lines, view in (
            merge(*matches_by_view, key=lambda each: each[0].first) if len(matches_by_view) > 1 else matches_by_view[0]
        ):
            # A view of a view has no notation, and a line that was not compared may match by chance.
            if view and (self.line_index.slots[match.slot].view or NO_LINE in lines.bodies[match.first : match.last]):
                continue
            yield match, lines, view

    def _replace_repeats(self, output: PartialOutput, end: int) -> bool:
        """Replace repeats inside the text up to unit `end`. Return True if any was replaced."""
        layout, min_tokens, done_units = output.layout, self.min_repeat_tokens, output.done_units
        if min_tokens is None or layout.comma:
            return False
        # Line numbers could not be restored. And a patch stays whole, so that later texts can refer to its new side.
        if layout is not self.layout or may_be_patch(self.text):
            return False
        for run in output.find_repeats(end):
            left_out = layout.separator.join(layout.units[run.first : run.last])
            if len(left_out) < MIN_TEXT or not self.token_gain.has_tokens(left_out, min_tokens):
                continue
            unit, first, last = output.line_address(run)
            own = layout.numbers[run.first] if layout.numbers else None
            marker = str(self._make_marker(source=ABOVE, unit=unit, first=first, last=last, own=own))
            if not self.token_gain.is_worthwhile(left_out, marker):
                self.has_first_marker = self.has_first_marker and bool(output.done_units)
                continue
            output.replace_units(run.first, run.last, marker)
            self.has_repeats = True
        return output.done_units > done_units

    def _make_line_reference(
        self, layout: Layout, match: LineMatch, address: Address, label: str, last_source: Source | None, view: str
    ) -> Marker:
        slot = self.line_index.slots[match.slot]
        unit, first, last = address
        return self._make_marker(
            source=slot.source,
            unit=unit,
            first=first,
            last=last,
            own=layout.numbers[match.first] if layout.numbers else None,
            label=label,
            omits_source=slot.source == last_source,
            view=view or slot.view,
        )

    def _try_difference(self, layout: Layout) -> EncodingAttempt | None:
        """Try to send only the units that differ from the last result of the same tool."""
        number = self.state.last_slot_by_tool.get(self.tool)
        if number is None or number in self.line_index.removed_slots or layout.numbers is not None:
            return None
        slot = self.line_index.slots[number]
        units = layout.units
        if (
            slot.units != len(units)
            or slot.comma != layout.comma
            or not slot.whole
            or slot.characters_before < self.state.reach_start
        ):
            return None
        if slot.numbering is not None:
            return None
        old = slot.text.split("\n")
        different_units = [at for at, (here, there) in enumerate(zip(units, old, strict=True)) if here != there]
        if not different_units or len(different_units) > MAX_FIELDS or len(different_units) * 4 > len(units):
            return None
        marker = self._make_marker(source=slot.source, label=self.line_index.text_label(number), but=True)
        sent_text = "\n".join([str(marker), *(f"{at + 1}: {units[at]}" for at in different_units)])
        if not self.token_gain.is_worthwhile(self.encoded_text, sent_text):  # the shorter layout alone saves as much
            self.has_first_marker = False
            return None
        return EncodingAttempt(
            sent_text,
            "fields",
            f"as {slot.source} but for {len(different_units)} {layout.unit_name}s",
            is_reference=True,
        )

    def _try_layout_only(self) -> EncodingAttempt | None:
        if not self.flags:
            return None
        marker = str(self._make_marker())
        if not self.token_gain.is_encoding_worthwhile(self.text, self.encoded_text, marker, self.encoding.saved_tokens):
            self.has_first_marker = False
            return None
        return EncodingAttempt(
            f"{self.encoded_text}\n{marker}", "shapes", f"folded: {layout_codecs.describe_codecs(self.flags)}"
        )
