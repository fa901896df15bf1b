"""The grammar of the markers: what is written can be read, what is not ours is not read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ibidem
from ibidem.formats import FORMATS
from ibidem.markers.backref import ABOVE, EXPLANATION, Marker, Source, digest_of, marker_prefix, parse_marker, tag_of
from ibidem.markers.patches import VIEW, VIEWS
from ibidem.model import Text
from ibidem.testing import conv, read
from ibidem.tool_arguments import MAIN_KEYS, MAX_LABEL, call_label

QUICK = settings(deadline=None)
every_format = pytest.mark.parametrize("format", FORMATS)

HOSTILE = (
    "",
    "src/app.py",
    "a\nb",
    "]\n[ibidem 123: unchanged, same as result 1]",
    "[[]]",
    'it\'s "quoted" \\ back',
    ", but for:",
    ". " + EXPLANATION,
    "x" * 5000,
    "/a/very/" + "long/" * 40 + "path.py",
    "line\u2028separator\u2029\x85\x0b\x0c\x1c\r",
    "\x00\x1b[31mred\x7f",
    "ünï🦀→\u202ertl",
    "\ud800",
    "   ",
    "of result 2, lines 1-9 of result 3",
    "a without +",
    " without +, b",
    "1-9 unchanged since",
)

# ── render and parse ────────────────────────────────────────────────────────────────────────────────────────────────

SOURCE = Source("result", 14)
PATCH = Source("call", 7, "input")
ROWS: dict[str, tuple[Marker, str]] = {
    "a whole result": (
        Marker("447", "243886", source=SOURCE, label="Read(src/app.py)"),
        "[ibidem 447.243886: unchanged, same as result 14, Read(src/app.py)]",
    ),
    "without a label": (Marker("447", "243886", source=SOURCE), "[ibidem 447.243886: unchanged, same as result 14]"),
    "the second text of a result": (
        Marker("447", "243886", source=Source("result", 3, "2")),
        "[ibidem 447.243886: unchanged, same as result 3.2]",
    ),
    "a run of lines": (
        Marker("447", "243886", source=SOURCE, unit="line", first=120, last=340, label="Read(src/app.py)"),
        "[ibidem 447.243886: unchanged, lines 120-340 of result 14, Read(src/app.py)]",
    ),
    "one line": (
        Marker("447", "243886", source=SOURCE, unit="line", first=7, last=7),
        "[ibidem 447.243886: unchanged, line 7 of result 14]",
    ),
    "lines whose own numbers differ": (
        Marker("447", "243886", "n", SOURCE, "line", 120, 340, own=118, label="Read(src/app.py)"),
        "[ibidem 447.243886n: 118-338 unchanged, lines 120-340 of result 14, Read(src/app.py)]",
    ),
    "one line with its own number": (
        Marker("447", "243886", source=SOURCE, unit="row", first=3, last=3, own=0),
        "[ibidem 447.243886: 0 unchanged, row 3 of result 14]",
    ),
    "lines whose own numbers are the same": (
        Marker("447", "243886", "n", SOURCE, "line", 120, 340, own=120, label="Read(src/app.py)"),
        "[ibidem 447.243886n: 120-340 unchanged since result 14, Read(src/app.py)]",
    ),
    "rows whose own numbers are the same": (
        Marker("447", "243886", "n", SOURCE, "row", 2, 3, own=2),
        "[ibidem 447.243886n: 2-3 unchanged, rows 2-3 of result 14]",
    ),
    "the second of a part": (
        Marker("447", source=SOURCE, unit="line", first=120, last=340),
        "[ibidem 447: lines 120-340 of result 14]",
    ),
    "the second of a part, with a label": (
        Marker("447", source=Source("call", 3, "content"), unit="line", first=7, last=7, label="Write(a.py)"),
        "[ibidem 447: line 7 of call 3.content, Write(a.py)]",
    ),
    "the second of a part, numbered": (
        Marker("447", source=SOURCE, unit="line", first=120, last=340, own=118),
        "[ibidem 447: 118-338 as lines 120-340 of result 14]",
    ),
    "the second of a part, with the same numbers": (
        Marker("447", source=SOURCE, unit="line", first=120, last=340, own=120),
        "[ibidem 447: 120-340 of result 14]",
    ),
    "one for the same source": (
        Marker("447", source=SOURCE, unit="line", first=120, last=340, omits_source=True),
        "[ibidem 447: lines 120-340]",
    ),
    "one for the same source, numbered": (
        Marker("447", source=SOURCE, unit="row", first=3, last=4, own=118, omits_source=True),
        "[ibidem 447: 118-119 as rows 3-4]",
    ),
    "lines of the new side of a patch": (
        Marker("447", "243886", source=PATCH, unit="line", first=12, last=40, label="apply_patch", view=VIEW),
        "[ibidem 447.243886: unchanged, lines 12-40 of call 7.input without +, apply_patch]",
    ),
    "lines of a new side that have the same numbers there": (
        Marker("447", source=PATCH, unit="line", first=12, last=40, own=12, view=VIEW),
        "[ibidem 447: 12-40 as lines 12-40 of call 7.input without +]",
    ),
    "lines of the new side, for the same source": (
        Marker("447", source=SOURCE, unit="line", first=12, last=40, omits_source=True, view=VIEW),
        "[ibidem 447: lines 12-40 without +]",
    ),
    "lines of a file as a diff shows them": (
        Marker("447", "243886", source=SOURCE, unit="line", first=12, last=40, label="Read(a.py)", view="with -"),
        "[ibidem 447.243886: unchanged, lines 12-40 of result 14 with -, Read(a.py)]",
    ),
    "lines of a file as a diff shows them, for the same source": (
        Marker("447", source=SOURCE, unit="line", first=12, last=40, omits_source=True, view="with +"),
        "[ibidem 447: lines 12-40 with +]",
    ),
    "one for the same source, with the same numbers": (
        Marker("447", source=SOURCE, unit="line", first=12, last=12, own=12, omits_source=True),
        "[ibidem 447: 12 unchanged]",
    ),
    "lines of the part itself": (
        Marker("447", "243886", source=ABOVE, unit="line", first=12, last=40),
        "[ibidem 447.243886: unchanged, lines 12-40 above]",
    ),
    "lines of the part itself, numbered": (
        Marker("447", "243886", "n", ABOVE, "line", 12, 40, own=112, explains=True),
        f"[ibidem 447.243886n: 112-140 unchanged, lines 12-40 above. {EXPLANATION}]",
    ),
    "lines of the part itself, the second of a part": (
        Marker("447", source=ABOVE, unit="line", first=12, last=12),
        "[ibidem 447: line 12 above]",
    ),
    "rows of the part itself that have the same numbers": (
        Marker("447", source=ABOVE, unit="row", first=12, last=40, own=12),
        "[ibidem 447: 12-40 as rows 12-40 above]",
    ),
    "items of one long line": (
        Marker("447", "000001", "jx", SOURCE, "item", 2, 9),
        "[ibidem 447.000001jx: unchanged, items 2-9 of result 14]",
    ),
    "an argument of a call": (
        Marker("447", "243886", "n", Source("call", 2, "content"), "line", 1, 9, own=1, label="Write(a.py)"),
        "[ibidem 447.243886n: 1-9 unchanged since call 2.content, Write(a.py)]",
    ),
    "the same but for a few lines": (
        Marker("447", "243886", "x", SOURCE, label="Bash(ls)", but=True),
        "[ibidem 447.243886x: unchanged, same as result 14, Bash(ls), but for:]",
    ),
    "only folded": (Marker("447", "243886", "n4"), "[ibidem 447.243886n4]"),
    "the first of a conversation": (
        Marker("447", "243886", source=SOURCE, label="Read(f)", explains=True),
        f"[ibidem 447.243886: unchanged, same as result 14, Read(f). {EXPLANATION}]",
    ),
    "the first of a conversation, only folded": (
        Marker("447", "243886", "n", explains=True),
        f"[ibidem 447.243886n. {EXPLANATION}]",
    ),
    "the first of a conversation, but for a few lines": (
        Marker("447", "243886", source=SOURCE, but=True, explains=True),
        f"[ibidem 447.243886: unchanged, same as result 14, but for:. {EXPLANATION}]",
    ),
}
BEFORE = Marker("447", "243886", source=SOURCE, unit="line", first=1, last=9)
"""Stands above each of them in its part."""
each_row = pytest.mark.parametrize(("marker", "line"), ROWS.values(), ids=ROWS)


@each_row
def test_a_marker_reads_like_this_and_is_read_back(marker: Marker, line: str) -> None:
    assert str(marker) == line
    assert parse_marker(line, "447", BEFORE) == marker
    assert line.startswith(marker_prefix("447"))


@each_row
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(" ", "", id="indented"),
        pytest.param("", " ", id="with a space behind it"),
        pytest.param("", "\n", id="with a line break behind it"),
        pytest.param("", "\r", id="with a carriage return behind it"),
        pytest.param("12\t", "", id="on a numbered line"),
        pytest.param("> ", "", id="quoted"),
        pytest.param("", " and more", id="followed by words"),
        pytest.param("", "]", id="with a bracket too many"),
        pytest.param("\x1b[31m", "\x1b[0m", id="in colour"),
    ],
)
def test_a_line_that_holds_more_than_a_marker_is_none(marker: Marker, line: str, before: str, after: str) -> None:
    assert parse_marker(before + line + after, "447", BEFORE) is None


@each_row
def test_a_marker_of_another_conversation_is_none(marker: Marker, line: str) -> None:
    assert parse_marker(line, "448", BEFORE) is None
    assert parse_marker(line.replace("447", "0447", 1), "447", BEFORE) is None


@pytest.mark.parametrize(
    "above",
    [
        pytest.param(None, id="no marker"),
        pytest.param(Marker("447", "243886", "n"), id="one that leaves nothing out"),
        pytest.param(Marker("447", "243886", source=SOURCE), id="one for a whole result"),
        pytest.param(Marker("447", "243886", source=ABOVE, unit="line", first=1, last=9), id="one for the part itself"),
    ],
)
@pytest.mark.parametrize("line", [str(marker) for marker, _ in ROWS.values() if marker.omits_source])
def test_a_marker_that_rests_on_the_one_above_is_none_without_it(line: str, above: Marker | None) -> None:
    assert parse_marker(line, "447", above) is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="an empty line"),
        pytest.param("[ibidem 447", id="no end"),
        pytest.param("[ibidem 447.24388]", id="five digits of a digest"),
        pytest.param("[ibidem 447.2438861]", id="seven digits of a digest"),
        pytest.param("[ibidem 447n]", id="flags without a digest"),
        pytest.param("[ibidem 447: unchanged, same as result ]", id="no number"),
        pytest.param("[ibidem 447: unchanged, same as file 3]", id="an unknown kind of source"),
        pytest.param("[ibidem 447: unchanged, page 3 of result 1]", id="an unknown unit"),
        pytest.param("[Ibidem 447: unchanged, same as result 1]", id="another case"),
        pytest.param("[ibidem 447.243886: unchanged, same as result 1, Read([x])]", id="brackets in the label"),
        pytest.param("[ibidem 447: unchanged, same as result 1]", id="a whole result without a digest"),
        pytest.param("[ibidem 447: ]", id="nothing said"),
        pytest.param("[ibidem 447: unchanged]", id="no lines"),
        pytest.param("[ibidem 447: lines 1-9 unchanged]", id="lines and more words than needed"),
        pytest.param("[ibidem 447: 1-9 as lines 1-9]", id="numbers said twice"),
        pytest.param("[ibidem 447: 1-8 as lines 2-10]", id="as many lines as there are not"),
        pytest.param("[ibidem 447: 1-9]", id="numbers alone"),
        pytest.param("[ibidem 447: 1-9 without +]", id="numbers alone, without signs"),
        pytest.param("[ibidem 447: lines 1-9 of result 1 without -]", id="an unknown view"),
        pytest.param("[ibidem 447: lines 1-9 of result 1 with *]", id="an unknown sign"),
        pytest.param("[ibidem 447: lines 1-9 of result 1 with + without +]", id="a view of a view"),
        pytest.param("[ibidem 447: above]", id="no lines above"),
        pytest.param("[ibidem 447: 1-9 above]", id="numbers alone, above"),
        pytest.param("[ibidem 447.243886: unchanged above]", id="all of what is above"),
        pytest.param("[ibidem 447.243886: 1-9 unchanged since above]", id="numbers since above"),
        pytest.param("[ibidem 447.243886: unchanged, lines 1-9 above result 1]", id="above another result"),
        pytest.param("[ibidem 447.243886: unchanged, lines 1-9 above, but for:]", id="above, but for"),
        pytest.param("[ibidem 447.243886: unchanged, lines 1-9 of]", id="of nothing"),
        pytest.param("[ibidem 447: lines 1-9 above without +]", id="a view of what is above"),
        pytest.param("[ibidem 447: lines 1-9 above, Read(a.py)]", id="a label above"),
        pytest.param("[ibidem 447: lines 1-9 of above 0]", id="above with a number"),
        pytest.param("[ibidem 447: 9-1 unchanged]", id="the last line first"),
        pytest.param("[ibidem 447.243886: 1-9 unchanged since result 1, but for:, but for:]", id="twice but for"),
    ],
)
def test_what_only_resembles_a_marker_is_none(line: str) -> None:
    assert parse_marker(line, "447") is None
    assert parse_marker(line, "447", BEFORE) is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"[ibidem 447: line {'9' * 5000} of result 1]", id="a line"),
        pytest.param(f"[ibidem 447: lines 1-{'9' * 5000} of result 1]", id="a last line"),
        pytest.param(f"[ibidem 447: {'9' * 5000} as line 1 of result 1]", id="an own line"),
        pytest.param(f"[ibidem 447.243886: unchanged, same as result {'9' * 5000}]", id="a result"),
    ],
)
def test_a_number_longer_than_python_reads_is_no_error(line: str) -> None:
    assert parse_marker(line, "447") is None


LABELS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60))
ARGUMENTS = st.dictionaries(
    st.sampled_from([*MAIN_KEYS, "content", "limit"]),
    st.one_of(LABELS, st.none(), st.booleans(), st.integers(), st.lists(LABELS, max_size=3)),
    max_size=4,
)
TOOLS = st.one_of(st.sampled_from(["Read", "Bash", "mcp__server__tool-name"]), st.from_regex(r"[a-zA-Z0-9_-]{0,64}\Z"))


@st.composite
def markers(draw: Any) -> Marker:
    """Every combination of fields that a part can ask for."""
    digest = draw(st.one_of(st.just(""), st.from_regex(r"[0-9]{6}", fullmatch=True)))
    flags = draw(st.from_regex(r"([a-z][0-9]{0,2}){0,4}", fullmatch=True)) if digest else ""
    explains = draw(st.booleans()) if digest else False
    tag = draw(st.from_regex(r"[0-9]{3}", fullmatch=True))
    if digest and draw(st.booleans()):
        return Marker(tag, digest, flags, explains=explains)
    part = draw(st.from_regex(r"([1-9][0-9]?|[a-z_][A-Za-z0-9_]{0,12})?", fullmatch=True))
    source = Source(draw(st.sampled_from(["result", "call"])), draw(st.integers(1, 10**6)), part)
    label = call_label(draw(TOOLS), draw(ARGUMENTS))
    if digest and draw(st.booleans()):
        return Marker(tag, digest, flags, source, label=label, but=draw(st.booleans()), explains=explains)
    first = draw(st.integers(1, 10**6))
    last = first + draw(st.integers(0, 10**4))
    own = draw(st.one_of(st.none(), st.just(first), st.integers(0, 10**6)))
    unit = draw(st.sampled_from(["line", "row", "item"]))
    if draw(st.integers(0, 3)) == 0:
        return Marker(tag, digest, flags, ABOVE, unit, first, last, own, explains=explains)
    leans = not digest and draw(st.booleans())
    label = "" if leans else label
    view = draw(st.sampled_from(["", *VIEWS]))
    return Marker(tag, digest, flags, source, unit, first, last, own, label, False, explains, leans, view)


@given(marker=markers())
@QUICK
def test_whatever_is_written_is_read_and_written_alike(marker: Marker) -> None:
    line = str(marker)
    above = marker._replace(digest="123456", omits_source=False)
    found = parse_marker(line, marker.tag, above)
    assert found == marker
    assert str(found) == line
    assert len(line.splitlines()) == 1
    assert parse_marker(line, f"{(int(marker.tag) + 1) % 1000:03d}", above) is None
    assert not marker.omits_source or parse_marker(line, marker.tag) is None


@given(marker=markers(), before=st.text(max_size=3), after=st.text(max_size=3))
@QUICK
def test_a_marker_fills_its_line(marker: Marker, before: str, after: str) -> None:
    above = marker._replace(digest="123456", omits_source=False)
    assert (parse_marker(before + str(marker) + after, marker.tag, above) is not None) == (not before and not after)


# ── labels ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(tool=LABELS, arguments=st.one_of(ARGUMENTS, st.none(), st.text(), st.lists(st.integers())))
@QUICK
def test_a_label_is_short_on_one_line_and_without_brackets(tool: str, arguments: Any) -> None:
    label = call_label(tool, arguments)
    assert not set("[]") & set(label)
    assert len(label.splitlines()) <= 1
    assert len(label) <= 2 * MAX_LABEL + 2
    assert label == call_label(tool, arguments)


# ── tags and digests ────────────────────────────────────────────────────────────────────────────────────────────────


@given(text=st.text(st.characters(), max_size=80))
@QUICK
def test_tags_and_digests_have_a_fixed_width(text: str) -> None:
    tag, digest = tag_of(text), digest_of(text)
    assert (len(tag), tag.isdecimal(), tag.isascii()) == (3, True, True)
    assert (len(digest), digest.isdecimal(), digest.isascii()) == (6, True, True)


@pytest.mark.parametrize(
    ("words", "tag"),
    [
        pytest.param("", "192", id="of nothing"),
        pytest.param("go", "447", id="of a word"),
        pytest.param("\ud800", "867", id="of a lone surrogate"),
    ],
)
def test_a_tag_is_the_same_in_every_process(words: str, tag: str) -> None:
    assert tag_of(words) == tag


def test_a_digest_is_the_same_in_every_process() -> None:
    assert digest_of("some text\n") == "553891"


# ── the explanation ─────────────────────────────────────────────────────────────────────────────────────────────────

FILE = "".join(f"line {n} of the first file\n" for n in range(40))
NUMBERED = "\n".join(f"{n:6}→def function_{n}(): return {n}" for n in range(1, 60))
OTHER = "".join(f"and here is row {n} of another\n" for n in range(40))


@every_format
@pytest.mark.parametrize(
    ("outputs", "explaining"),
    [
        pytest.param([FILE, OTHER], None, id="no marker, no explanation"),
        pytest.param([FILE, FILE, FILE, OTHER, OTHER], 1, id="of three references the first"),
        pytest.param([NUMBERED, FILE, FILE], 0, id="a text that is only folded explains as well"),
        pytest.param([FILE + OTHER, FILE + "between\n" * 9 + OTHER + "after"], 1, id="of two runs in a text the first"),
    ],
)
def test_the_first_marker_of_a_conversation_alone_explains(
    outputs: list[str], explaining: int | None, format: str
) -> None:
    lines = ["u:go"]
    for number, output in enumerate(outputs):
        lines += [f"a>{number}", f"r{number}:{output}"]
    sent = ibidem.compact(conv(*lines, format=format), format=format).request
    results = [result for message in read(sent, format).messages for result in message.results]
    texts = [segment.text for result in results for segment in result.segments if isinstance(segment, Text)]
    assert [number for number, text in enumerate(texts) for _ in range(text.count(EXPLANATION))] == (
        [] if explaining is None else [explaining]
    )
