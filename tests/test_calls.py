"""What a call asks for: its arguments by name, its file, its label."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.calls import arguments, file_of, label_of
from ibidem.model import ToolCall


def call(given: Any) -> ToolCall:
    return ToolCall(id="t1", name="Read", input=given, path=(), input_path=())


ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "an object": ({"path": "a.py"}, {"path": "a.py"}),
    "the text of an object": ('{"path": "a.py"}', {"path": "a.py"}),
    "the text of a list": ("[1]", None),
    "a text that is no JSON": ("*** Begin Patch", None),
    "null": (None, None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_have_names_if_they_are_an_object(case: str) -> None:
    given, named = ARGUMENTS[case]
    assert arguments(call(given)) == named


FILES: dict[str, tuple[Any, str]] = {
    "as an object": ({"file_path": "a.py", "limit": 5}, "a.py"),
    "as JSON in a text": ('{"path": "a.py"}', "a.py"),
    "by the more telling of two names": ({"file": "b.py", "file_path": "a.py"}, "a.py"),
    "in a text that is no JSON": ("a.py", ""),
    "in JSON that is no object": ('["a.py"]', ""),
    "by a number": ({"path": 7}, ""),
    "by nothing": ({"path": ""}, ""),
    "not at all": ({"command": "ls a.py"}, ""),
    "in an object in an object": ({"input": {"path": "a.py"}}, ""),
}


@pytest.mark.parametrize("case", FILES)
def test_a_call_names_its_file(case: str) -> None:
    given, file = FILES[case]
    assert file_of(call(given)) == file


def test_a_call_that_is_nested_deeply_names_none() -> None:
    assert file_of(call("[" * 100_000)) == ""


@pytest.mark.parametrize(
    ("tool", "given", "label"),
    [
        pytest.param("Read", {"file_path": "src/app.py"}, "Read(src/app.py)", id="a tool and its path"),
        pytest.param("Bash", {"command": "ls -la"}, "Bash(ls -la)", id="a command"),
        pytest.param("read", {"filePath": "src/app.py"}, "read(src/app.py)", id="a path by another name"),
        pytest.param("exec", {"input": "\nrun(1)\nrun(2)"}, "exec(run(1))", id="the first line of a free text"),
        pytest.param(
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: src/app.py\n@@\n-a\n+b"},
            "apply_patch(src/app.py)",
            id="the file of a patch",
        ),
        pytest.param("ask", {"input": {"path": "a.py"}}, "ask", id="an input that is no text"),
        pytest.param("shell", {"command": ["bash", "-lc", "ls"]}, "shell(bash -lc ls)", id="a command in words"),
        pytest.param("Grep", {"pattern": "x", "path": "src"}, "Grep(src)", id="the path comes before the pattern"),
        pytest.param("Read", {"file_path": "", "pattern": "x"}, "Read(x)", id="an empty argument is passed over"),
        pytest.param("Task", {"prompt": "do it"}, "Task", id="no main argument"),
        pytest.param("Task", {}, "Task", id="no arguments"),
        pytest.param("Task", None, "Task", id="arguments that are null"),
        pytest.param("Task", ["file_path"], "Task", id="arguments that are a list"),
        pytest.param("", {}, "", id="nothing at all"),
        pytest.param("Read", {"path": "a[1]\nb"}, "Read(a 1 b)", id="brackets and line breaks become spaces"),
        pytest.param("Read", {"path": " \n "}, "Read", id="a blank argument"),
        pytest.param("Read", {"path": 5}, "Read(5)", id="a number"),
        pytest.param(
            "Read",
            {"path": "/home/someone/projects/thing/src/package/module.py"},
            "Read(thing/src/package/module.py)",
            id="of a long path the end, from a folder on",
        ),
        pytest.param(
            "Bash",
            {"command": "git log --oneline --graph --all -- src/package"},
            "Bash(git log --oneline --graph --all)",
            id="of a long command the start",
        ),
    ],
)
def test_a_label_names_the_tool_and_its_main_argument(tool: str, given: Any, label: str) -> None:
    assert label_of(tool, given) == label
