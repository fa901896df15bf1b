"""How a hint of the response seat is worded, whatever a tool and its arguments are called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.markers.output_hints import contains_reference, repeat_hint, short_call

LONG_PATH = "/home/someone/projects/" + "deep/" * 40 + "src/app.py"


@pytest.mark.parametrize(
    ("tool", "arguments", "label"),
    [
        pytest.param("Read", {"file_path": "src/app.py"}, "Read(src/app.py)", id="a file"),
        pytest.param(
            "Read", {"offset": 120, "file_path": "a.py"}, "Read(a.py, offset=120)", id="which part of it, behind it"
        ),
        pytest.param("Bash", '{"command": "ls -l"}', "Bash(ls -l)", id="arguments as text"),
        pytest.param("shell", {"command": ["bash", "-lc", "ls"]}, "shell(bash -lc ls)", id="a command in words"),
        pytest.param("get", {"id": 42, "full": True, "of": None}, "get(id=42, full=true, of=null)", id="scalars"),
        pytest.param("find", {"where": {"a": [1]}, "tags": []}, "find(where={…}, tags=)", id="what is nested"),
        pytest.param("list_all", {}, "list_all", id="no arguments"),
        pytest.param("patch", "*** Begin Patch", "patch(*** Begin Patch)", id="free text"),
        pytest.param("", None, "a tool", id="nothing is known"),
        pytest.param(
            "Read\n\x1b[31m",
            {"path": "a]\u202e[ibidem: b\r\n"},
            "Read (31m(a) (ibidem: b)",
            id="what steers a terminal",
        ),
    ],
)
def test_a_call_in_short(tool: str, arguments: Any, label: str) -> None:
    assert short_call(tool, arguments) == label


@pytest.mark.parametrize(
    ("arguments", "begins", "ends"),
    [
        pytest.param({"file_path": LONG_PATH}, "Read(…", "deep/src/app.py)", id="the end of a path stays"),
        pytest.param({"command": "echo " + "x" * 500}, "Read(echo x", "x…)", id="the start of a command stays"),
        pytest.param({"path": "a", "content": "x" * 99}, "Read(a, ", "…)", id="an argument is left out"),
        pytest.param({"command": "x" * 10_000_000}, "Read(xxx", "…)", id="ten megabytes"),
        pytest.param({"command": " " * 9999 + "x"}, "Read(", "…)", id="all that was looked at is blank"),
        pytest.param({"command": ["x"] * 99}, "Read(x x", "…)", id="many words"),
    ],
)
def test_what_is_cut_is_shown_as_cut(arguments: Any, begins: str, ends: str) -> None:
    label = short_call("Read", arguments)
    assert label.startswith(begins)
    assert label.endswith(ends)
    assert len(label) < 150


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        pytest.param(
            repeat_hint(3, "Read(a.py)"),
            "[ibidem: unchanged, same as the result 3 calls ago, Read(a.py)]",
            id="a repeat",
        ),
        pytest.param(repeat_hint(1, "f"), "[ibidem: unchanged, same as the result 1 call ago, f]", id="the last call"),
        pytest.param(
            repeat_hint(2, "f", unit="turn"), "[ibidem: unchanged, same as the result 2 turns ago, f]", id="turns"
        ),
        pytest.param(
            repeat_hint(2, "log", call_kind="git"),
            "[ibidem: unchanged, same as the result 2 git calls ago, log]",
            id="not all calls are seen",
        ),
        pytest.param(
            repeat_hint(2, "get(id=4)", but="total: 12→13"),
            "[ibidem: unchanged, same as the result 2 calls ago but for total: 12→13, get(id=4)]",
            id="a field differs",
        ),
        pytest.param(
            repeat_hint(2, "f", has_explanation=True),
            "[ibidem: unchanged, same as the result 2 calls ago, f. Ibidem leaves out what stands verbatim above "
            "and says where; the same call again brings it in full]",
            id="the first of a context",
        ),
    ],
)
def test_words(marker: str, words: str) -> None:
    assert marker == words
    assert contains_reference(f"a log\n{marker}\n")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)) | st.just("path"), inner),
    max_leaves=8,
)


@given(tool=st.text(st.characters(codec=None)), arguments=ANYTHING, counted=st.text(st.characters(codec=None)))
def test_law_a_hint_is_one_bounded_line(tool: str, arguments: Any, counted: str) -> None:
    marker = repeat_hint(7, short_call(tool, arguments), call_kind=counted, has_explanation=True)
    assert marker.isprintable()
    assert (marker.count("["), marker.count("]")) == (1, 1)
    assert len(marker) < 480
    marker.encode()
