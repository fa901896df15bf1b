"""Classes of answers, and what is told of them beside: made-up calls on made-up histories."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem import formats
from ibidem.model import ToolCall
from ibidem.testing import conv
from ibidem.trial.actions import (
    MAX_WORDS,
    SAYS,
    RecordedAction,
    classify_action,
    has_broken_edit,
    is_reread,
    main_argument,
)
from ibidem.trial.file_views import VisibleFiles, is_same_file

SECRET = "a-word-that-must-not-be-seen"


def call(name: str, given: Any) -> ToolCall:
    return ToolCall("x", name, given, (), ())


def read(path: str, **more: Any) -> ToolCall:
    return call("Read", {"file_path": path, **more})


def edit(path: str, old: str, new: str = "new") -> ToolCall:
    return call("Edit", {"file_path": path, "old_string": old, "new_string": new})


def patch(path: str, *lines: str) -> ToolCall:
    body = "\n".join(("*** Begin Patch", f"*** Update File: {path}", "@@", *lines, "*** End Patch"))
    return call("apply_patch", body)


SAME: dict[str, tuple[ToolCall, ToolCall]] = {
    "the lines asked for are no part of it": (read("/a.py"), read("/a.py", offset=7, limit=20)),
    "nor is the text of an edit": (edit("/a.py", "x"), edit("/a.py", "y")),
    "arguments as an object or as text": (read("/a.py"), call("Read", '{"file_path": "/a.py"}')),
    "a path written in another way": (read("/src/a.py"), read("/src/./a.py")),
    "a command by its program and first path": (
        call("Bash", {"command": "pytest -q tests/a.py"}),
        call("Bash", {"command": "cd /app && pytest tests/a.py -x --tb=short"}),
    ),
    "in a shell of its own": (
        call("shell", {"command": ["bash", "-lc", "pytest tests/a.py"]}),
        call("shell", {"command": ["pytest", "tests/a.py"]}),
    ),
    "a patch by its file": (patch("a.py", "-x", "+y"), patch("a.py", "-z")),
}
DIFFERENT: dict[str, tuple[ToolCall, ToolCall]] = {
    "another file": (read("/a.py"), read("/b.py")),
    "another tool": (read("/a.py"), edit("/a.py", "x")),
    "another program": (call("Bash", {"command": "ls src/a"}), call("Bash", {"command": "cat src/a"})),
    "another pattern": (call("Grep", {"pattern": "x", "path": "/"}), call("Grep", {"pattern": "x", "path": "/b"})),
    "another file of a patch": (patch("a.py", "-x"), patch("b.py", "-x")),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_answers_of_one_class(one: ToolCall, other: ToolCall) -> None:
    assert classify_action([one]) == classify_action([other])


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_answers_of_two_classes(one: ToolCall, other: ToolCall) -> None:
    assert classify_action([one]) != classify_action([other])


def test_several_calls_are_a_set_and_none_says_something() -> None:
    one, other = read("/a.py"), call("Bash", {"command": "ls"})
    assert classify_action([one, other]) == classify_action([other, one, one]) != classify_action([one])
    assert classify_action([]) == SAYS


def test_a_class_holds_no_text_and_no_line_break() -> None:
    hostile = call(f"Read\n\x1b[31m{'x' * 500}", {"file_path": f"/{SECRET}", "query": SECRET})
    found = classify_action([hostile, call("Bash", {"command": f"echo {SECRET}\nrm {SECRET}"})])
    assert SECRET not in found
    assert found.isprintable()
    assert len(found) < 200


def test_a_command_that_is_quoted_wrongly_has_a_class() -> None:
    assert main_argument(call("Bash", {"command": "grep 'x src/a.py"})) == "grep src/a.py"


# ── what stands in the history ──────────────────────────────────────────────────────────────────────────────────────

VIEW = "\n".join(f"{n:6}→line number {n}" for n in range(1, 41))
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "1": ("Read", {"file_path": "/app/a.py", "offset": 1, "limit": 40}),
    "2": ("Edit", {"file_path": "/app/a.py", "old_string": "line number 10", "new_string": "ten\nand a half"}),
    "3": ("Write", {"file_path": "/app/w.py", "content": "written\nby hand\n"}),
    "4": ("shell", {"command": "sed -n '1,9p' src/c.py; ls"}),
    "5": ("Bash", {"command": "rm /app/a.py"}),
}


def shown(*calls: str) -> VisibleFiles:
    results = {"1": VIEW, "4": "def only_there():\n    pass"}
    lines = [line for each in calls for line in (f"a>{each}", f"r{each}:{results.get(each, 'done')}")]
    request = conv("u:go", *lines, calls=CALLS)
    return VisibleFiles(formats.parse_request(request, formats.format_named("anthropic")).messages)


LOOKS: dict[str, tuple[tuple[str, ...], ToolCall, bool]] = {
    "all of what was read": (("1",), read("/app/a.py", offset=1, limit=40), True),
    "a part of it": (("1",), read("/app/a.py", offset=30, limit=5), True),
    "by another name": (("1",), read("a.py", offset=30, limit=5), True),
    "more than was read": (("1",), read("/app/a.py"), False),
    "what was never read": (("1",), read("/app/b.py"), False),
    "with another tool": (("1",), call("Bash", {"command": "sed -n 3,9p /app/a.py"}), True),
    "lines that were changed since": (("1", "2"), read("/app/a.py", offset=8, limit=5), False),
    "lines before the change": (("1", "2"), read("/app/a.py", offset=2, limit=8), True),
    "lines behind the change, where they are now": (("1", "2"), read("/app/a.py", offset=12, limit=30), True),
    "lines behind the change, where they end now": (("1", "2"), read("/app/a.py", offset=12, limit=31), False),
    "what was written": (("3",), read("/app/w.py"), True),
    "what was deleted since": (("1", "5"), read("/app/a.py", offset=1, limit=5), False),
    "an edit is no look": (("1",), edit("/app/a.py", "line number 3"), False),
}


@pytest.mark.parametrize(("calls", "asked", "expected"), LOOKS.values(), ids=LOOKS)
def test_looks_again(calls: tuple[str, ...], asked: ToolCall, expected: bool) -> None:
    assert is_reread([asked], shown(*calls)) is expected


EDITS: dict[str, tuple[tuple[str, ...], ToolCall, bool | None]] = {
    "lines that were read": (("1",), edit("/app/a.py", "line number 7\nline number 8"), False),
    "lines that were not": (("1",), edit("/app/a.py", "line number 7\nline number 99"), True),
    "what an edit put there": (("1", "2"), edit("/app/a.py", "and a half"), False),
    "what was written": (("3",), edit("/app/w.py", "by hand"), False),
    "a file that was never shown": (("1",), edit("/app/b.py", "line number 7"), True),
    "a patch of lines that were read": (("1",), patch("a.py", " line number 7", "-line number 8", "+eight"), False),
    "a patch of lines that were not": (("1",), patch("a.py", "-line number 88"), True),
    "a patch of what a longer command showed": (("4",), patch("src/c.py", "-def only_there():"), False),
    "several at once, one of them not": (
        ("1",),
        call("MultiEdit", {"file_path": "/app/a.py", "edits": [{"old_string": "line number 7"}, {"old_string": "no"}]}),
        True,
    ),
    "an editor of another agent": (
        ("1",),
        call("str_replace_editor", {"command": "str_replace", "path": "/app/a.py", "old_str": "line number 7"}),
        False,
    ),
    "a look is no edit": (("1",), read("/app/a.py"), None),
    "a new file": (("1",), call("Write", {"file_path": "/app/n.py", "content": "x"}), None),
}


@pytest.mark.parametrize(("calls", "asked", "expected"), EDITS.values(), ids=EDITS)
def test_broken_edit(calls: tuple[str, ...], asked: ToolCall, expected: bool | None) -> None:
    assert has_broken_edit([asked], shown(*calls)) is expected


@pytest.mark.parametrize(
    ("recorded", "answered", "file", "alike"),
    [
        ([read("/w/a.py")], [read("a.py")], True, None),
        ([read("/w/a.py")], [read("/w/b.py")], False, None),
        ([read("/w/a.py")], [], False, None),
        ([call("Bash", {"command": "make"})], [read("/w/a.py")], None, None),
        ([edit("/w/a.py", "x", "return one + two")], [edit("/w/a.py", "y", "return one + two")], True, 1.0),
        ([edit("/w/a.py", "x", "return one + two")], [edit("/w/a.py", "x", "return one - two")], True, 0.75),
        ([edit("/w/a.py", "x", "return one")], [read("/w/a.py")], True, 0.0),
        ([edit("/w/a.py", "x", "a b")], [patch("b.py", "-x", "+a b")], False, 1.0),
        ([read("/w/b.py"), edit("/w/a.py", "x", "a")], [read("/w/b.py")], True, 0.0),
    ],
)
def test_held_against_what_was_recorded(
    recorded: list[ToolCall], answered: list[ToolCall], file: bool | None, alike: float | None
) -> None:
    found = RecordedAction.from_calls(recorded)
    assert found.has_same_file(answered) is file
    assert found.edit_similarity(answered) == alike


@pytest.mark.slow
def test_a_very_long_edit_is_compared_in_part() -> None:
    long = edit("/w/a.py", "x", "a " * 1_000_000)
    assert len(RecordedAction.from_calls([long]).edited_words) == MAX_WORDS
    assert RecordedAction.from_calls([long]).edit_similarity([long]) == 1.0


def test_paths_of_one_file() -> None:
    assert is_same_file("/app/src/a.py", "src/a.py")
    assert not is_same_file("/app/src/a.py", "rc/a.py")
    assert not is_same_file("/app/src/a.py", "/src/a.py")
