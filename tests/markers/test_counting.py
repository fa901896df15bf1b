"""What counts up by one is told apart as a text is that is looked at line by line."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.markers import layout_codecs
from ibidem.markers.layout import parse_layout, split_line_numbers
from ibidem.markers.layout_codecs.line_numbers_codec import tab_line_numbers
from ibidem.markers.line_numbers import STYLES, TABBED, detect_style, split_numbered_lines
from ibidem.markers.sequential_lines import TABLE_NUMBERS, TabbedUnits, find_sequential_lines, format_line_numbers
from ibidem.strategies.arrival.result_encoder import least_tokens
from ibidem.tokens import counter_for, token_difference

BODIES = st.sampled_from(
    ["", " x", "return 1", "\tx", "7\ty", "  12: z", "é", "12→a", "/ b", "00001|c", "x  ", "\r", "\u2028", " \x0b", ")"]
)
AROUND = st.lists(
    st.sampled_from(["", "Contents of app.py:", "3\tc", "  4\td", "     5→e", "٣\tf", "6: g", " "]), max_size=3
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Mostly pieces of a file; some with a number left out, said twice, or padded otherwise."""
    style = draw(st.sampled_from([*STYLES[:2] * 3, *STYLES]))
    pad = draw(st.sampled_from(["", "6", "6", "3", "05", "012"])) if not style.before else ""
    first = draw(st.sampled_from([0, 1, 7, 98, 996, TABLE_NUMBERS - 3, 999_999_996]))
    bodies = draw(st.lists(BODIES, min_size=1, max_size=70))
    odd = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    lines = [f"{style.before}{first + at + odd * (at > 5):{pad}}{style.after}{body}" for at, body in enumerate(bodies)]
    return "\n".join([*draw(AROUND), *lines, *draw(AROUND)])


@given(texts())
@settings(deadline=None)
@example("     1\ta\n     2\tb\n     3\tc\n\n<system-reminder>\nnot a line of it\n</system-reminder>")
def test_both_ways_tell_the_same_apart(text: str) -> None:
    lines = text.split("\n")
    found, style = find_sequential_lines(lines), detect_style(lines)
    if found is None:
        return
    assert style is not None
    slow = split_numbered_lines(text, style)
    quick = found.to_numbered_lines(lines) if 2 * len(found.bodies) >= len(lines) else None
    assert quick == slow
    folded = tab_line_numbers(text, found)
    other = tab_line_numbers(text)
    assert (folded and folded[:3]) == (other and other[:3])


@given(texts())
@settings(deadline=None)
def test_what_was_folded_is_laid_out_as_whoever_reads_it_does(text: str) -> None:
    folded = layout_codecs.encode_layout(text)
    assert layout_codecs.decode_layout(folded.text, folded.flags, len(text)) == text
    assert not folded.has_no_numbers or parse_layout(folded.text, "\0").numbers is None
    if folded.numbered_lines is not None:
        assert [*TabbedUnits(folded.numbered_lines)] == folded.text.split("\n")
        layout = parse_layout(folded.text, "\0")
        assert (layout.bodies, layout.numbers, layout.style_letter, [*layout.edges]) == (
            folded.numbered_lines.bodies,
            folded.numbered_lines.numbers,
            TABBED.letter,
            [*folded.numbered_lines.edges],
        )


@given(texts())
@settings(deadline=None)
def test_tokens_that_are_known_to_be_spared_are_spared(text: str) -> None:
    folded = layout_codecs.encode_layout(text)
    count = counter_for()
    assert not folded.saved_tokens or count(text) - count(folded.text) >= folded.saved_tokens


PIECES = [
    "\n",
    "\n\n",
    " ",
    "/",
    "//",
    "a",
    "foo",
    "12",
    ")",
    "é",
    "→",
    "\t",
    "\r\n",
    "x\ny",
    "\n/",
    "'s",
    "\n1",
    "\x85",
]
SOME = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)


CHUNK = "Chunk ID: {:06x}\nWall time: {} seconds\nProcess {} {}\nOriginal token count: {}\nOutput:\n{}"
ENDS = st.sampled_from(["exited with code", "running with session ID"])


@given(
    st.integers(0, 2**24 - 1),
    st.floats(0, 9999).map("{:.4f}".format),
    ENDS,
    st.integers(-1, 99999),
    st.integers(0),
    SOME,
)
@settings(deadline=None)
@example(1, "0.0", "exited with code", 0, 0, "/")
def test_tokens_of_a_header_that_are_known_to_be_spared_are_spared(
    chunk: int, seconds: str, end: str, code: int, tokens: int, rest: str
) -> None:
    text = CHUNK.format(chunk, seconds, end, code, tokens, rest)
    folded, count = layout_codecs.encode_layout(text), counter_for()
    assert count(text) - count(folded.text) >= folded.saved_tokens
    assert text.endswith(folded.text[len(folded.text) - folded.shared_tail :])


def test_numbers_are_written_alike_from_a_table_and_beyond_it() -> None:
    style = STYLES[0]
    assert format_line_numbers(style, "6", 7, 2) == ["     7→", "     8→"]
    assert format_line_numbers(style, "05", TABLE_NUMBERS - 1, 3)[1:] == format_line_numbers(
        style, "05", TABLE_NUMBERS, 2
    )
    assert format_line_numbers(STYLES[8], "0", 9, 2) == ["L9: ", "L10: "]


@pytest.mark.parametrize("at", [slice(0, 2), slice(1, None), slice(None), slice(3, 1)])
def test_units_are_written_when_asked_for(at: slice) -> None:
    lines = ["head", "1\ta", "2\tb", "3\tc", "tail"]
    apart = find_sequential_lines(lines)
    assert apart is not None
    units = TabbedUnits(apart.to_numbered_lines(lines))
    assert units[at] == lines[at]
    assert [units[place] for place in range(len(units))] == lines == [*split_line_numbers(lines).units]


@given(SOME, SOME, SOME, SOME)
@settings(deadline=None)
@example("a", "/'sa", "\n1", "")
def test_tokens_are_counted_where_texts_differ_alone(before: str, one: str, other: str, behind: str) -> None:
    count, long, short = counter_for(), before + one + behind, before + other + behind
    assert token_difference(long, short, count) == count(long) - count(short)


@pytest.mark.parametrize(("text", "tokens"), [("a<|endoftext|>b", 9), ("<|fim_prefix|>", 6), ("<|im_start|>", 6)])
def test_a_special_token_counts_as_the_text_that_it_is(text: str, tokens: int) -> None:
    assert counter_for()(text) == tokens


BLANKS = [chr(code) for code in range(0x3001) if chr(code).isspace()]


@given(st.lists(st.sampled_from([*PIECES, *BLANKS, "(", "\x1c)", "/\n/", "=\r/"]), max_size=30).map("".join))
@settings(deadline=None)
def test_a_text_has_no_fewer_tokens_than_that(text: str) -> None:
    assert least_tokens(text) <= counter_for()(text)
