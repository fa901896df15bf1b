"""References that can be found: by their label and lines, or because they say which of several they mean."""

from __future__ import annotations

from typing import Any

import pytest

import ibidem
from benchmarks.references import references
from ibidem.formats import FORMATS
from ibidem.markers.backref import ordinal_label, parse_marker, tag_of
from ibidem.model import Text
from ibidem.testing import Turn, build, read

every_format = pytest.mark.parametrize("format", FORMATS)
TAG = tag_of("go")
OLD = [f"def function_{n}(value): return value * {n}" for n in range(40)]
NEW = [f"def another_{n}(value, scale): return scale + {n}" for n in range(40)]
THIRD = [f"class Thing{n}: names = ('thing', {n})" for n in range(40)]


def numbered(lines: list[str], first: int = 1) -> str:
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))


def asked(*steps: tuple[str, str], format: str = "anthropic", tool: str = "Read") -> Any:
    """A conversation in which each file is read in turn, with what came back."""
    turns, calls = [Turn("user", "go")], {}
    for number, (path, output) in enumerate(steps, 1):
        calls[str(number)] = (tool, {"file_path": path})
        turns += [Turn("assistant", calls=[str(number)]), Turn("tool", results=[(str(number), output)])]
    return build(turns, format, calls)


def labels(request: Any, format: str) -> list[str]:
    """What the last result's markers say of what they mean."""
    result = ibidem.compact(request, format=format)
    assert ibidem.expand(result.request, format=format) == request
    segments = [
        segment
        for message in read(result.request, format).messages
        for part in message.results
        for segment in part.segments
    ]
    last = segments[-1]
    assert isinstance(last, Text)
    found = [parse_marker(line, TAG) for line in last.text.split("\n")]
    return [f"{marker.source}, {marker.label}" for marker in found if marker and marker.source]


CASES: dict[str, tuple[list[tuple[str, str]], list[str]]] = {
    "one text has the label": (
        [("a.py", numbered(OLD)), ("b.py", numbered(NEW)), ("c.py", numbered(OLD))],
        ["result 1, Read(a.py)"],
    ),
    "it is the newest with the label": (
        [("a.py", numbered(NEW)), ("a.py", numbered(OLD)), ("c.py", numbered(OLD))],
        ["result 2, Read(a.py)"],
    ),
    "a newer one shows other lines": (
        [("a.py", numbered(OLD)), ("a.py", numbered(NEW, 101)), ("c.py", numbered(OLD[5:30], 6))],
        ["result 1, Read(a.py)"],
    ),
    "a newer one shows lines with these numbers": (
        [("a.py", numbered(OLD)), ("a.py", numbered(NEW)), ("c.py", numbered(OLD[5:30], 6))],
        ["result 1, 1st Read(a.py)"],
    ),
    "a newer one is shown in full as well": (
        [("a.py", numbered(THIRD)), ("a.py", numbered(OLD)), ("a.py", numbered(NEW)), ("c.py", numbered(OLD))],
        ["result 2, 2nd Read(a.py)"],
    ),
    "a newer one only refers to it": (
        [("a.py", numbered(OLD)), ("a.py", numbered(OLD)), ("c.py", numbered(OLD[5:30], 6))],
        ["result 1, Read(a.py)"],
    ),
}


@every_format
@pytest.mark.parametrize("case", CASES)
def test_a_reference_says_which_text_it_means(case: str, format: str) -> None:
    steps, wanted = CASES[case]
    assert labels(asked(*steps, format=format), format) == wanted


@every_format
@pytest.mark.parametrize(
    ("second", "wanted"),
    [
        pytest.param("b.py", "call 3.content, Write(b.py)", id="an equal copy that has a name of its own"),
        pytest.param("a.py", "call 3.content, Write(a.py)", id="an equal copy that is the newest of its name"),
        pytest.param("", "call 1.content, 1st Write(a.py)", id="no equal copy"),
    ],
)
def test_of_equal_copies_the_one_is_meant_that_can_be_found(second: str, wanted: str, format: str) -> None:
    written = [("a.py", OLD), ("a.py", NEW), (second, OLD if second else THIRD)]
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        str(at): ("Write", {"file_path": path, "content": "\n".join(lines)}) for at, (path, lines) in enumerate(written)
    }
    calls["last"] = ("Read", {"file_path": "a.py"})
    again = "\n".join([*OLD[5:30], "and more"])
    turns = [Turn("user", "go")]
    for ident in calls:
        output = again if ident == "last" else "ok"
        turns += [Turn("assistant", calls=[ident]), Turn("tool", results=[(ident, output)])]
    assert labels(build(turns, format, calls), format) == [wanted]


@every_format
def test_every_reference_to_many_texts_of_one_name_is_found(format: str) -> None:
    """More of them than are compared: then it says which."""
    versions = [[f"def version_{version}_{n}(value): return value * {n}" for n in range(8)] for version in range(90)]
    steps = [("a.py", numbered(lines)) for lines in versions]
    steps += [("c.py", numbered([*lines, "and more"])) for lines in versions[::7]]
    request = asked(*steps, format=format)
    sent = ibidem.compact(request, format=format).request
    found = list(references(sent, format))
    assert len(found) == 13
    assert {reference.how for reference in found} == {"nth"}
    assert ibidem.expand(sent, format=format) == request


@pytest.mark.parametrize(
    ("nth", "said"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (113, "113th"), (121, "121st")],
)
def test_an_ordinal_is_english(nth: int, said: str) -> None:
    assert ordinal_label("Read(a.py)", nth) == f"{said} Read(a.py)"
