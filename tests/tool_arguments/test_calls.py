"""What a call asks for: its arguments by name, its file, its label."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ibidem.model import ToolCall
from ibidem.tool_arguments import (
    MAX_FREE_TEXT,
    MAX_SCRIPT,
    MAX_TOKENS,
    SCRIPT_TOKENS,
    arguments_by_name,
    call_label,
    file_argument,
)
from tests.support.timed import best


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
    assert arguments_by_name(call(given)) == named


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
    assert file_argument(call(given)) == file


def test_a_call_that_is_nested_deeply_names_none() -> None:
    assert file_argument(call("[" * 100_000)) == ""


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
    assert call_label(tool, given) == label


RUN = 'const r = await tools.exec_command({cmd:"cat a.py","workdir":"/src","yield_time_ms":10000});\ntext(r.output);\n'
SCRIPTS: dict[str, tuple[str, str]] = {
    "a command": (RUN, "cat a.py"),
    "a command behind a directive": (f'// @exec: {{"yield_time_ms": 10000}}\n{RUN}', "cat a.py"),
    "keys in quotes, another order": (
        "text(await tools.exec_command({'workdir': '/', 'cmd' : 'cat a.py'}))",
        "cat a.py",
    ),
    "a template": ("const r = await tools.exec_command({cmd: `cat ${name}`})", "cat ${name}"),
    "a raw template": (r"await tools.exec_command({cmd: String.raw`grep '\d' a.py`})", r"grep '\d' a.py"),
    "a command in words": ("await tools.shell({command: 'ls -la', timeout_ms: 1})", "ls -la"),
    "quotes and line breaks in a command": (
        r'await tools.exec_command({cmd:"grep \"it\\\"s\" a\nls"})',
        r'grep "it\"s" a ls',
    ),
    "several commands": (
        'const [a, b] = await Promise.all([\n tools.exec_command({cmd:"cat a.py"}),\n tools.exec_command({cmd:"ls"})])',
        "cat a.py; ls",
    ),
    "a command in a variable": ('const cmd = "cat a.py";\nawait tools.exec_command({ cmd, workdir })', "cat a.py"),
    "a variable of another name": ("let line = 'cat a.py'; await tools.exec_command({cmd: line})", "cat a.py"),
    "commands in a list": (
        "const jobs = [{cmd: 'cat a.py'}, {cmd: 'ls'}];\nfor (const {cmd} of jobs) await tools.exec_command({cmd})",
        "cat a.py; ls",
    ),
    "another tool": ('const r = await tools.write_stdin({session_id:7,chars:""}); text(r)', "write_stdin"),
    "another tool, then a command": (
        'await tools.web__run({open:[{ref_id:"x"}]}); await tools.exec_command({cmd:"ls"})',
        "web__run; ls",
    ),
    "a patch": (
        r'const patch = "*** Begin Patch\n*** Update File: src/app.py\n@@\n-a\n+b"; await tools.apply_patch(patch)',
        "src/app.py",
    ),
    "a patch in a template": (
        "await tools.apply_patch(`*** Begin Patch\n*** Add File: src/app.py\n+tools.exec_command({cmd:'x'})`)",
        "src/app.py",
    ),
    "a call in a comment": (f'// tools.exec_command({{cmd:"rm x"}})\n/* tools.web__run( */\n{RUN}', "cat a.py"),
    "a call in a command": (
        "await tools.exec_command({cmd:\"rg 'tools.exec_command({cmd:' src\"})",
        "rg 'tools.exec_command({cmd:' sr",
    ),
    "a string without an end": ('await tools.exec_command({cmd:"cat a.py', "cat a.py"),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_label_of_a_script_names_the_commands_in_it(case: str) -> None:
    script, label = SCRIPTS[case]
    assert call_label("exec", {"input": script}) == f"exec({label})"


@pytest.mark.parametrize(
    "script",
    [
        "const hits = ALL_TOOLS.filter(x => x)\ntext(hits)",
        "const cmd = pick()\nawait tools.exec_command({cmd})",
        " \n" * MAX_SCRIPT + RUN,
        "'' " * MAX_TOKENS + RUN,
    ],
    ids=["no call", "a command that is not in it", "a call too far down", "a call after too many strings"],
)
def test_script_without_a_command_is_labeled_by_its_first_line(script: str) -> None:
    line = script[:MAX_FREE_TEXT].strip().partition("\n")[0]
    assert call_label("exec", {"input": script}) == call_label("run", {"input": line}).replace("run", "exec", 1)


def test_script_of_another_tool_is_not_read() -> None:
    assert call_label("eval", {"input": RUN}) == "eval(const r = await tools.exec_comma)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ['\\"', '"\\"', '"', "`", "'\"", "a ", "a", "a=", "cmd:", "/*", "\\", "tools.", "{ cmd", '"cmd":"\\']
)
def test_hostile_script_is_scanned_in_linear_time(piece: str) -> None:
    short, long = (piece * (length // len(piece)) for length in (2**12, 2**15))
    fast, slow = best([partial(_scan, short), partial(_scan, long)], 5)
    assert slow < 24 * fast


def _scan(text: str) -> int:
    return sum(1 for _ in SCRIPT_TOKENS.finditer(text))
