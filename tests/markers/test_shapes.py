"""Layouts that are folded: what becomes of them, what they leave alone, and that every text comes back."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.markers import layout_codecs
from ibidem.markers.layout_codecs import BY_LETTER, SHAPES
from ibidem.markers.line_numbers import STYLES

MANY = settings(deadline=None)


def each(table: dict[str, Any]) -> pytest.MarkDecorator:
    """A parametrization over the rows of a table, with its sentences as ids."""
    return pytest.mark.parametrize("row", table.values(), ids=table)


# ── what is folded ──────────────────────────────────────────────────────────────────────────────────────────────────

CODEX = "Chunk ID: a1b2c3\nWall time: 0.0512 seconds\nProcess {}\nOriginal token count: 12\nOutput:\n"

FOLDED: dict[str, tuple[str, str, str]] = {
    "numbers with arrows lose their padding": (
        "     1→def f():\n     2→    return 1\n     3→\n",
        "1\tdef f():\n2\t    return 1\n3\t\n",
        "n",
    ),
    "the width stands in the flag if it is unusual": ("   1→a\n  10→b\n 100→c", "1\ta\n10\tb\n100\tc", "n4"),
    "a width of eight": ("       1→a\n       2→b", "1\ta\n2\tb", "n8"),
    "numbers grow beyond the width": ("  98→a\n  99→b\n9999→c\n10000→d", "98\ta\n99\tb\n9999\tc\n10000\td", "n4"),
    "numbers with tabs lose their padding": ("     1\tdef f():\n     2\t\treturn 1", "1\tdef f():\n2\t\treturn 1", "t"),
    "a tab in a body stays": ("     1→\ta\tb\n     2→c", "1\t\ta\tb\n2\tc", "n"),
    "an arrow in a body stays": ("     1→a → b→c\n     2→→", "1\ta → b→c\n2\t→", "n"),
    "a reminder at the end stays as it is": (
        "     1→a\n     2→b\n\n<system-reminder>\nBe good.\n</system-reminder>",
        "1\ta\n2\tb\n\n<system-reminder>\nBe good.\n</system-reminder>",
        "n",
    ),
    "a heading before the numbers stays as it is": (
        "Contents of app.py:\n     1→a\n     2→b",
        "Contents of app.py:\n1\ta\n2\tb",
        "n",
    ),
    "carriage returns stay with the bodies": ("     1→a\r\n     2→b\r\n", "1\ta\r\n2\tb\r\n", "n"),
    "other breaks are no line breaks": (
        "     1→a\u2028     2→b\x0b\x85\n     2→c",
        "1\ta\u2028     2→b\x0b\x85\n2\tc",
        "n",
    ),
    "colours stay with the bodies": ("     1→\x1b[31mred\x1b[0m\n     2→b", "1\t\x1b[31mred\x1b[0m\n2\tb", "n"),
    "the path of hits stands once": (
        "src/app.py:1:import os\nsrc/app.py:7:os.path\nsrc/b.py:3:x",
        "src/app.py\n1:import os\n7:os.path\nsrc/b.py\n3:x",
        "g",
    ),
    "context around hits follows their path": (
        "src/app.py-1-import os\nsrc/app.py:2:os.path\nsrc/app.py-3-x\n--\nsrc/app.py:9:y",
        "src/app.py\n1-import os\n2:os.path\n3-x\n--\n9:y",
        "g",
    ),
    "a path with spaces": ("my file.py:3:x\nmy file.py:4:y", "my file.py\n3:x\n4:y", "g"),
    "colours in hits stay": (
        "src/app.py:1:\x1b[1;31mx\x1b[0m\nsrc/app.py:2:\x1b[1;31my\x1b[0m",
        "src/app.py\n1:\x1b[1;31mx\x1b[0m\n2:\x1b[1;31my\x1b[0m",
        "g",
    ),
    "indented JSON becomes compact": (
        '{\n  "a": [\n    1,\n    2.5\n  ],\n  "b": {\n    "c": null\n  }\n}',
        '{"a":[1,2.5],"b":{"c":null}}',
        "j",
    ),
    "an indent of four": ('{\n    "a": "é\\n"\n}', '{"a":"é\\n"}', "j4"),
    "an indent of one": ("[\n 1,\n 12345678901234567890123\n]", "[1,12345678901234567890123]", "j1"),
    "empty containers inside": ('{\n  "a": [],\n  "b": {}\n}', '{"a":[],"b":{}}', "j"),
    "the keys of a list stand once": (
        '[{"name": 1, "size": 2}, {"name": 3, "size": 4}, {"name": 5, "size": 6}]',
        '[{"name": 1, "size": 2}, [3, 4], [5, 6]]',
        "r",
    ),
    "a list without spaces": (
        '[{"name":1,"size":2},{"name":3,"size":4},{"name":5,"size":6}]',
        '[{"name": 1, "size": 2}, [3, 4], [5, 6]]',
        "r1",
    ),
    "objects inside the objects of a list": (
        '{"hits": [{"id": {"kind": "a", "nr": 1}, "of": []}, {"id": {"kind": "b", "nr": 2}, "of": [1]}]}',
        '{"hits": [{"id": {"kind": "a", "nr": 1}, "of": []}, [["b", 2], [1]]]}',
        "r",
    ),
    "a list inside the objects of a list": (
        '[{"of": [{"name": 1}, {"name": 2}]}, {"of": [{"name": 3}, {"name": 4}]}]',
        '[{"of": [{"name": 1}, [2]]}, [[{"name": 3}, [4]]]]',
        "r",
    ),
    "an indented list gives up its keys as well": (
        json.dumps([{"name": n, "size": n} for n in range(3)], indent=2),
        '[{"name": 0, "size": 0}, [1, 1], [2, 2]]',
        "jr1",
    ),
    "what lines have in common stands above them": (
        "src/package/a.py\nsrc/package/b.py\nsrc/package/c.py\nsrc/package/d.py\nend",
        "src/package/*\n a.py\n b.py\n c.py\n d.py\nend",
        "p",
    ),
    "a line that is the common beginning": (
        "src/package/\nsrc/package/b.py\nsrc/package/c.py\nsrc/package/d.py",
        "src/package/*\n \n b.py\n c.py\n d.py",
        "p",
    ),
    "lines that go on with a space or end in a star": (
        "src/package/ a*\nsrc/package/ b*\nsrc/package/*\nsrc/package/d *",
        "src/package/*\n  a*\n  b*\n *\n d *",
        "p",
    ),
    "a log with the package before every line": (
        "@scope/package:test: one\n@scope/package:test: two\n@scope/package:test: three\n@scope/package:test: \n",
        "@scope/package:test: *\n one\n two\n three\n \n",
        "p",
    ),
    "a Codex header becomes one line": (
        CODEX.format("exited with code 0") + "hello\n",
        "exit 0 a1b2c3 0.0512 12\nhello\n",
        "c",
    ),
    "a command that was killed": (CODEX.format("exited with code -9"), "exit -9 a1b2c3 0.0512 12\n", "c"),
    "a command that still runs": (
        CODEX.format("running with session ID 4211") + "x",
        "session 4211 a1b2c3 0.0512 12\nx",
        "c",
    ),
    "numbers with colons": ("1:a\n2: b\n3:", "1\ta\n2\t b\n3\t", "k"),
    "numbers with a colon and a blank each": ("1: a\n2:   b\n3: ", "1\ta\n2\t  b\n3\t", "d"),
    "numbers with bars": ("     9|a\n    10| b\n    11|", "9\ta\n10\t b\n11\t", "b"),
    "numbers with bars, unpadded": ("9|a\n10| b\n11|", "9\ta\n10\t b\n11\t", "b0"),
    "numbers with zeros and bars": ("00009| a\n00010|  b\n00011| ", "9\ta\n10\t b\n11\t", "e"),
    "numbers with a bar between blanks": (" 9 | a\n10 |  b\n11 | ", "9\ta\n10\t b\n11\t", "f2"),
    "numbers with a dot": ("9. a\n10.  b\n11. ", "9\ta\n10\t b\n11\t", "o"),
    "numbers with a letter before them": ("L9: a\nL10:  b\nL11: ", "9\ta\n10\t b\n11\t", "l"),
    "numbers with a word before them": (
        "Found 3 matches\na.py:\n  Line 9: a\n  Line 10:  b\n  Line 11: ",
        "Found 3 matches\na.py:\n9\ta\n10\t b\n11\t",
        "i",
    ),
    "numbers padded with zeros": ("000001→a\n000002→b", "1\ta\n2\tb", "n06"),
    "the number of lines of a command stands in the flag": (
        "Command: /bin/sh -c 'a\nb'\n" + CODEX.format("exited with code 0") + "hello\n",
        "exit 0 a1b2c3 0.0512 12\n$ /bin/sh -c 'a\nb'\nhello\n",
        "c2",
    ),
    "the shorter header of a patch": (
        "Exit code: 0\nWall time: 0.2 seconds\nOutput:\nSuccess.\n",
        "exit 0 0.2\nSuccess.\n",
        "c",
    ),
    "a header before numbered lines": (
        CODEX.format("exited with code 0") + "     1\ta\n     2\tb\n",
        "exit 0 a1b2c3 0.0512 12\n1\ta\n2\tb\n",
        "ct",
    ),
}


@each(FOLDED)
def test_a_layout_is_folded(row: tuple[str, str, str]) -> None:
    text, folded, flags = row
    assert layout_codecs.encode_layout(text)[:2] == (folded, flags)
    assert layout_codecs.decode_layout(folded, flags, len(text)) == text


# ── what is left alone ──────────────────────────────────────────────────────────────────────────────────────────────

LEFT: dict[str, str] = {
    "nothing": "",
    "one line break": "\n",
    "plain words": "nothing here\nhas a layout\n",
    "numbers without padding or arrows": "1\ta\n2\tb",
    "a tail that looks folded already": "     1→a\n     2→b\n\n3\tlooks folded",
    "a number padded to another width": "     1→a\n    22→b\n333→c",
    "a number padded with zeros, and one that is not": "000001→a\n2→b",
    "a line with spaces before its number, of another mark": "1→a\n 2→b\n  3→c",
    "a list that begins anew again and again": "1. a\n1. b\n1. c\n1. d",
    "errors with a code": "404: not here\n200: here\n404: not here\n301: there\n200: here",
    "two numbers that might be anything": "1. first\n2. second",
    "numbers in columns": "a → b\nc → d",
    "a hit without a number": "src/app.py:import os",
    "a hit whose text looks like another line number": "src/app.py\n12:x",
    "a path followed by text that looks folded": "src/app.py:1:x\n\n12:y\n13:z",
    "a time of day": "12:30:00 started\n12:30:01 stopped",
    "an address with a port": "http://localhost:8080/a\nhttp://localhost:8080/b",
    "paths of Windows": "C:\\a\\b.py:3:x\nC:\\a\\b.py:4:y",
    "JSON on one line": '{"a": [1, 2], "b": null}',
    "JSON with a key twice": '{\n  "a": 1,\n  "a": 2\n}',
    "JSON with numbers spelled otherwise": '{\n  "a": 1e5,\n  "b": 1.50\n}',
    "JSON with escapes that need not be": '{\n  "a": "\\u00e9\\/"\n}',
    "JSON with something behind it": '{\n  "a": 1\n}\nDone.',
    "JSON with a line break behind it": '{\n  "a": 1\n}\n',
    "JSON with a tab for an indent": '{\n\t"a": 1\n}',
    "JSON with uneven indents": '{\n  "a": [\n     1\n  ]\n}',
    "JSON that is none": '{\n  "a": 1,\n}',
    "objects with other keys": '[{"a": 1, "b": 2}, {"a": 3}, {"c": 4}]',
    "objects with keys in another order": '[{"name": 1, "size": 2}, {"size": 3, "name": 4}, {"name": 5, "size": 6}]',
    "objects and lists mixed": '[{"name": 1, "size": 2}, [3, 4], [5, 6], {"name": 1}, {"name": 2}]',
    "a list that looks folded already": '{"a": [{"name": 1, "size": 2}, [3, 4]], "b": {"c": {}}}',
    "empty objects": "[{}, {}, {}, {}]",
    "spaces of both kinds": '[{"name": 1,"size": 2}, {"name": 3, "size": 4}, {"name":5, "size": 6}]',
    "a beginning that is only spaces": "\n".join(" " * 20 + f"/{n}" for n in range(6)),
    "two lines that begin alike": "src/package/a.py\nsrc/package/b.py\nother",
    "a beginning too short to be worth it": "src/a\nsrc/b\nsrc/c\nsrc/d",
    "lines that begin alike, without a place to cut": "abcdefghijklm\nabcdefghijkln\nabcdefghijklo\nabcdefghijklp",
    "a run, then a line that starts with a space": "src/package/a\nsrc/package/b\nsrc/package/c\nsrc/package/d\n e",
    "a starred line before an indented one": "list*\n a\nsrc/package/a\nsrc/package/b\nsrc/package/c\nsrc/package/d",
    "a Codex header without its count": CODEX.format("exited with code 0").replace("Original token count: 12\n", ""),
    "a Codex header without a chunk": CODEX.format("exited with code 0").partition("\n")[2],
    "a Codex command without a header": "Command: ls\nOutput:\n",
    "a Codex command that does not end": "Command: " + "x" * 9000 + "\n" + CODEX.format("exited with code 0"),
    "a Codex command of very many lines": "Command: " + "x\n" * 100 + CODEX.format("exited with code 0"),
    "a Codex header further down": "$ ls\n" + CODEX.format("exited with code 0"),
    "a Codex header with carriage returns": CODEX.format("exited with code 0").replace("\n", "\r\n"),
    "what a header is folded to": "exit 0 a1b2c3 0.0512 12\nhello\n",
}


@each(LEFT)
def test_a_text_is_left_alone(row: str) -> None:
    assert layout_codecs.encode_layout(row)[:2] == (row, "")


TRAPS: dict[str, tuple[str, str]] = {
    "a folded number in the tail of numbered lines": ("n", "     1→a\n     2→b\n3\tc"),
    "a second width": ("n", "     1→a\n  2→b"),
    "an unpadded tab among padded ones": ("t", "     1\ta\n2\tb"),
    "a path on a line of its own": ("g", "src/app.py:1:x\nsrc/b.py\n2:y"),
    "a number after hits": ("g", "src/app.py:1:x\n2:y"),
    "an indented line behind a run": ("p", LEFT["a run, then a line that starts with a space"]),
    "a key that stands twice": ("j", LEFT["JSON with a key twice"]),
    "numbers spelled otherwise": ("j", LEFT["JSON with numbers spelled otherwise"]),
    "spaces of both kinds": ("r", LEFT["spaces of both kinds"]),
}


@each(TRAPS)
def test_a_shape_that_loses_something_is_not_used(row: tuple[str, str]) -> None:
    letter, text = row
    folded = BY_LETTER[letter].encode_text(text)
    assert folded is not None, "the shape sees the trap itself: this row tests nothing"
    assert BY_LETTER[letter].decode_text(*folded, 10**6) != text, "nothing is lost: this row tests nothing"
    assert letter not in layout_codecs.encode_layout(text)[1]


POISONED: dict[str, str] = {
    "a list of an object and a list, beside one that folds": json.dumps(
        {"rows": [{"id": n, "name": "x", "size": n} for n in range(9)], "odd": [{"a": 1}, [1, 2]]}
    ),
    "a list of an object and an empty list, beside one that folds": json.dumps(
        [[{"id": n, "name": "x"} for n in range(9)], [{"a": 1}, []]]
    ),
    "an object of an object, and rows that are too short": json.dumps(
        [[{"id": n, "name": "x"} for n in range(9)], [{"a": {"b": 1}}, [1]]]
    ),
}


@each(POISONED)
def test_a_text_that_cannot_be_unfolded_is_no_error(row: str) -> None:
    folded, flags = layout_codecs.encode_layout(row)[:2]
    assert layout_codecs.decode_layout(folded, flags, len(row)) == row


@pytest.mark.parametrize("indent", [1, None], ids=["indented", "on one line"])
def test_json_nested_as_deep_as_it_can_be_read_is_no_error(indent: int | None) -> None:
    usual = sys.getrecursionlimit()
    texts = []
    for depth in range(40, 240):
        value: Any = [{"name": 1, "size": 2}, {"name": 3, "size": 4}, {"name": 5, "size": 6}]
        for _ in range(depth):
            value = [value]
        texts.append(json.dumps(value, indent=indent))
    used = len(inspect.stack(context=0)) - 1
    sys.setrecursionlimit(used + 150)
    try:
        found = [layout_codecs.encode_layout(text)[:2] for text in texts]
    finally:
        sys.setrecursionlimit(usual)
    assert [layout_codecs.decode_layout(*each, 10**6) for each in found] == texts


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.letter)
def test_a_shape_has_one_letter_of_its_own(shape: Any) -> None:
    assert len(shape.letter) == 1
    assert BY_LETTER[shape.letter] is shape


def test_letters_that_are_no_shape_change_nothing() -> None:
    assert layout_codecs.decode_layout("a, b", "x", 4) == layout_codecs.decode_layout("a, b", "y3", 4) == "a, b"


# ── every text comes back ───────────────────────────────────────────────────────────────────────────────────────────

BODIES = st.one_of(
    st.sampled_from(
        ["", "x = 1", "\treturn", "    return self", "a → b", "→", "12→x", "12\tx", "é🦀", "\x1b[31mred\x1b[0m", "x\r",
         "src/app.py:12:x", "src/app.py-13-x", "a*", "*", " *", "[ibidem 447.243886n]", "\u2028", "--", "12:x", "٣→x"]
    ),
    st.text(max_size=12).filter(lambda text: "\n" not in text),
)  # fmt: skip
TAILS: st.SearchStrategy[list[str]] = st.one_of(
    st.just([]),
    st.sampled_from([[""], ["", "<system-reminder>", "Be good.", "</system-reminder>"], ["3→x"], ["     4→x", "5\tx"]]),
    st.lists(BODIES, max_size=3),
)


@st.composite
def numbered(draw: st.DrawFn) -> str:
    style = draw(st.sampled_from([*STYLES[:2] * 4, *STYLES]))
    pad = draw(st.sampled_from(["", "6", "4", "8", "05"])) if not style.before else ""
    first = draw(st.sampled_from([0, 1, 95, 9990, 99_999_990]))
    bodies = draw(st.lists(BODIES, min_size=1, max_size=14))
    gap = draw(st.sampled_from([1, 1, 1, 7]))
    head = draw(st.sampled_from([[], [], ["Contents of app.py:"], [""]]))
    lines = [f"{style.before}{first + gap * at:{pad}}{style.after}{body}" for at, body in enumerate(bodies)]
    return "\n".join([*head, *lines, *draw(TAILS)])


PATHS = st.sampled_from(
    ["src/app.py", "src/app-2.py", "my file.txt", "C:\\a\\b.py", "http://host:80", "a", "-", "12", "x-1-y", "é/ü.py"]
)


@st.composite
def found(draw: st.DrawFn) -> str:
    lines: list[str] = []
    for path in draw(st.lists(PATHS, min_size=1, max_size=4)):
        number = draw(st.sampled_from([1, 9, 120]))
        for body in draw(st.lists(BODIES, min_size=1, max_size=5)):
            sign = draw(st.sampled_from("::-"))
            lines.append(f"{path}{sign}{number}{sign}{body}")
            number += 1
        lines += draw(st.sampled_from([[], [], ["--"], [""], ["Found 3 files"], [path]]))
    return "\n".join(lines + draw(TAILS))


STRINGS = st.sampled_from(["", "é", 'a"b', "\\", "\n", "\u2028", "a, b", "\ud800"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), STRINGS)
KEYS = st.sampled_from(["id", "name", "file_path", "", "é", 'a"b'])


def tables(inner: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[Any]:
    """Lists of objects that all have the same keys."""
    row = st.fixed_dictionaries({"id": inner, "name": inner, "file_path": inner})
    return st.lists(row, min_size=least, max_size=5)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4), tables(inner)),
    max_leaves=25,
)


@st.composite
def printed_json(draw: st.DrawFn) -> str:
    value, ascii_only = draw(st.one_of(VALUES, VALUES, tables(VALUES, 3))), draw(st.booleans())
    indent = draw(st.sampled_from([None, None, None, 2, 2, 4, 1, 3, 8, 0, "\t"]))
    separators = draw(st.sampled_from([None, None, None, None, (",", ":"), (" , ", " : ")]))
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=separators)
    return text + draw(st.sampled_from(["", "", "", "", "", "\n", " ", "\nDone."]))


@st.composite
def begun_alike(draw: st.DrawFn) -> str:
    lines: list[str] = []
    beginnings = st.sampled_from(
        ["src/package/", "@scope/pkg:test: ", " src/package/a/", "a" * 12 + ">", "x", " " * 12 + "/", "*/" * 8]
    )
    for beginning in draw(st.lists(beginnings, min_size=1, max_size=4)):
        lines += [beginning + body for body in draw(st.lists(BODIES, min_size=1, max_size=6))]
        lines += draw(st.sampled_from([[], [], [" indented"], ["*"], [""], [beginning + "*"], [beginning]]))
    return "\n".join(lines + draw(TAILS))


@st.composite
def codex(draw: st.DrawFn) -> str:
    end = draw(st.sampled_from(["exited with code 0", "exited with code -1", "running with session ID 7", "exited"]))
    lines = CODEX.format(end).split("\n")
    drop = draw(st.sampled_from([None, None, None, 0, 1, 2, 3]))
    if drop is not None:
        del lines[drop]
    return "\n".join(lines) + draw(st.one_of(numbered(), found(), printed_json(), begun_alike(), BODIES))


KINDS = {
    "numbered lines": (numbered(), "nt"),
    "search results": (found(), "g"),
    "JSON": (printed_json(), "jr"),
    "lines that begin alike": (begun_alike(), "p"),
    "output under a Codex header": (codex(), "c"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_comes_back(kind: str) -> None:
    texts, letters = KINDS[kind]
    reached: set[str] = set()

    @given(text=texts)
    @settings(MANY, derandomize=True)  # so that every layout occurs
    def comes_back(text: str) -> None:
        folded, flags = layout_codecs.encode_layout(text)[:2]
        reached.update(flags)
        assert layout_codecs.decode_layout(folded, flags, len(text)) == text
        assert (folded == text) == (not flags)
        assert len(folded) <= len(text)
        assert "\n" not in flags
        assert layout_codecs.encode_layout(text)[:2] == (folded, flags)

    comes_back()
    assert reached >= set(letters), "the shapes this is about never occurred"


@pytest.mark.parametrize("kind", KINDS)
def test_colours_survive(kind: str) -> None:
    @given(text=KINDS[kind][0])
    @settings(deadline=None, max_examples=40)
    def survive(text: str) -> None:
        coloured = "\n".join(f"\x1b[1;32m{line}\x1b[0m" for line in text.split("\n"))
        assert layout_codecs.decode_layout(*layout_codecs.encode_layout(coloured)[:2], len(coloured)) == coloured

    survive()
