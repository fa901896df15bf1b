"""Which file a call touches: what is certain is said, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.model import ToolCall
from ibidem.tool_arguments.file_access import FileAccess, file_accesses

QUICK = settings(deadline=None)


def call(name: str, arguments: Any) -> ToolCall:
    return ToolCall("1", name, arguments, (), ())


def read(path: str, first: int = 1, last: int | None = None) -> tuple[FileAccess, ...]:
    return (FileAccess("read", path, first, last),)


def write(*paths: str) -> tuple[FileAccess, ...]:
    return tuple(FileAccess("write", path) for path in paths)


NOTHING: tuple[FileAccess, ...] = ()
PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-*** Delete File: no.py
+*** Add File: neither.py
 *** Update File: nor.py
*** Add File: /abs//c.py
+x
*** Delete File: ./d.py
*** End Patch
"""
PATCHED = ("src/a.py", "src/b.py", "/abs/c.py", "d.py")
HERE = f"apply_patch <<'EOF'\n{PATCH}EOF\n"

Row = tuple[str, str, Any, tuple[FileAccess, ...]]

TOOLS: list[Row] = [
    # Claude Code
    ("Read without a limit shows 2000 lines", "Read", {"file_path": "/r/a.py"}, read("/r/a.py", 1, 2000)),
    ("Read from an offset", "Read", {"file_path": "/a", "offset": 101}, read("/a", 101, 2100)),
    ("Read with offset and limit", "Read", {"file_path": "/a", "offset": 10, "limit": 5}, read("/a", 10, 14)),
    ("Read takes offset 0 for 1", "Read", {"file_path": "/a", "offset": 0, "limit": 5}, read("/a", 1, 5)),
    ("numbers may be strings", "Read", {"file_path": "/a", "offset": "10", "limit": "5"}, read("/a", 10, 14)),
    ("numbers may be whole floats", "Read", {"file_path": "/a", "offset": 10.0, "limit": 5.0}, read("/a", 10, 14)),
    (
        "null and empty arguments are not there",
        "Read",
        {"file_path": "/a", "pages": "", "limit": None},
        read("/a", 1, 2000),
    ),
    ("pages of a PDF are no lines", "Read", {"file_path": "/a", "pages": "1-5"}, NOTHING),
    ("a PDF has no lines", "Read", {"file_path": "/a.PDF"}, NOTHING),
    ("a notebook has no lines", "Read", {"file_path": "/a.ipynb"}, NOTHING),
    ("a picture has no lines", "Read", {"file_path": "/a.png"}, NOTHING),
    ("more than the tool's own limit", "Read", {"file_path": "/a", "limit": 2001}, NOTHING),
    ("no lines at all", "Read", {"file_path": "/a", "limit": 0}, NOTHING),
    ("a negative offset", "Read", {"file_path": "/a", "offset": -5}, NOTHING),
    ("a broken number", "Read", {"file_path": "/a", "offset": 1.5}, NOTHING),
    ("a boolean is no number", "Read", {"file_path": "/a", "limit": True}, NOTHING),
    ("a read without a path", "Read", {"offset": 5}, NOTHING),
    ("a read with an argument nobody knows", "Read", {"file_path": "/a", "revision": "HEAD~1"}, NOTHING),
    ("a reader of that name with another limit", "Read", {"path": "/a"}, NOTHING),
    ("that reader with its own range", "Read", {"path": "/a", "read_range": [5, 9]}, read("/a", 5, 9)),
    ("Write", "Write", {"file_path": "/a", "content": "x"}, write("/a")),
    ("Edit", "Edit", {"file_path": "/a", "old_string": "x", "new_string": ""}, write("/a")),
    ("MultiEdit", "MultiEdit", {"file_path": "/a", "edits": []}, write("/a")),
    ("NotebookEdit", "NotebookEdit", {"notebook_path": "/a.ipynb", "new_source": "x"}, write("/a.ipynb")),
    ("Edit without a path", "Edit", {"old_string": "x"}, NOTHING),
    ("Grep reads no file for certain", "Grep", {"pattern": "x", "path": "/a"}, NOTHING),
    ("Glob", "Glob", {"pattern": "*", "path": "/a"}, NOTHING),
    ("an unknown tool with a path", "upload", {"path": "/a"}, NOTHING),
    # editors of many commands
    ("str_replace_editor views", "str_replace_editor", {"command": "view", "path": "/a"}, read("/a")),
    ("a range", "str_replace_editor", {"command": "view", "path": "/a", "view_range": [3, 9]}, read("/a", 3, 9)),
    ("to the end", "str_replace_editor", {"command": "view", "path": "/a", "view_range": [3, -1]}, read("/a", 3)),
    ("backwards", "str_replace_editor", {"command": "view", "path": "/a", "view_range": [9, 3]}, NOTHING),
    ("from zero", "str_replace_editor", {"command": "view", "path": "/a", "view_range": [0, 3]}, NOTHING),
    ("one number", "str_replace_editor", {"command": "view", "path": "/a", "view_range": [3]}, NOTHING),
    ("creates", "str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}, write("/a")),
    ("replaces", "str_replace_based_edit_tool", {"command": "str_replace", "path": "/a", "old_str": "x"}, write("/a")),
    ("inserts", "str_replace_based_edit_tool", {"command": "insert", "path": "/a", "insert_line": 1}, write("/a")),
    ("undoes", "str_replace_editor", {"command": "undo_edit", "path": "/a"}, write("/a")),
    ("says what risk it takes", "file_editor", {"command": "view", "path": "/a", "security_risk": "LOW"}, read("/a")),
    ("an unknown command", "str_replace_editor", {"command": "share", "path": "/a"}, NOTHING),
    ("no command", "str_replace_editor", {"path": "/a"}, NOTHING),
    ("a command that is no string", "str_replace_editor", {"command": ["view"], "path": "/a"}, NOTHING),
    ("an editor with a writer's name views", "Edit", {"command": "view", "path": "a.py"}, read("a.py")),
    ("and writes", "Edit", {"command": "str_replace", "path": "a.py"}, write("a.py")),
    # other agents
    ("pi reads", "read", {"path": "a.py", "offset": 5, "limit": 10}, read("a.py", 5, 14)),
    ("pi reads a file", "read", {"path": "a.py"}, read("a.py", 1, 2000)),
    ("pi edits", "edit", {"path": "a.py", "oldText": "x", "newText": "y"}, write("a.py")),
    ("opencode reads from the start", "read", {"filePath": "/a", "offset": 0, "limit": 10}, read("/a", 1, 10)),
    ("opencode has counted from 0 and from 1", "read", {"filePath": "/a", "offset": 5, "limit": 10}, NOTHING),
    ("opencode writes", "write", {"filePath": "/a", "content": "x"}, write("/a")),
    ("Gemini counts from 0", "read_file", {"absolute_path": "/a", "offset": 5, "limit": 10}, read("/a", 6, 15)),
    ("some count from 0, some from 1", "read_file", {"file_path": "/a", "offset": 5, "limit": 10}, NOTHING),
    ("a limit of characters perhaps", "read_file", {"path": "/a", "limit": 10}, NOTHING),
    ("a whole file", "read_file", {"path": "/a"}, read("/a")),
    ("start_line and end_line", "read_file", {"path": "/a", "start_line": 3, "end_line": 9}, read("/a", 3, 9)),
    ("start_line alone", "read_file", {"path": "/a", "start_line": 3}, read("/a", 3)),
    ("start_line alone where the end is not known", "read_file", {"file_path": "/a", "start_line": 3}, NOTHING),
    ("end_line alone", "read_file", {"file_path": "/a", "end_line": 3}, read("/a", 1, 3)),
    ("line_start and line_end", "view_file", {"file": "/a", "line_start": 3, "line_end": 9}, read("/a", 3, 9)),
    ("startLine and endLine", "read_file", {"filePath": "/a", "startLine": 3, "endLine": 9}, read("/a", 3, 9)),
    ("a mixture of ranges", "read_file", {"path": "/a", "start_line": 3, "endLine": 9}, NOTHING),
    ("two ranges", "view", {"path": "/a", "view_range": [3, 9], "lines": "3-9"}, NOTHING),
    ("an end before the start", "read_file", {"path": "/a", "start_line": 9, "end_line": 3}, NOTHING),
    ("lines as text", "read_file", {"path": "/a", "lines": "10-20"}, read("/a", 10, 20)),
    ("lines as other text", "read_file", {"path": "/a", "lines": "10-20,30"}, NOTHING),
    (
        "Cursor shows 200 to 250 lines as asked",
        "read_file",
        {"target_file": "a", "start_line_one_indexed": 1, "end_line_one_indexed_inclusive": 200},
        read("a", 1, 200),
    ),
    (
        "Cursor shows more than asked",
        "read_file",
        {"target_file": "a", "start_line_one_indexed": 1, "end_line_one_indexed_inclusive": 20},
        NOTHING,
    ),
    (
        "Cursor may refuse to show all",
        "read_file",
        {
            "target_file": "a",
            "should_read_entire_file": True,
            "start_line_one_indexed": 1,
            "end_line_one_indexed_inclusive": 250,
        },
        NOTHING,
    ),
    ("Cursor without a range", "read_file", {"target_file": "a"}, NOTHING),
    ("Cursor writes", "edit_file", {"target_file": "a", "code_edit": "x"}, write("a")),
    ("Copilot views", "view", {"path": "/a", "view_range": [3, 9]}, read("/a", 3, 9)),
    ("Copilot creates", "create", {"path": "/a", "file_text": "x"}, write("/a")),
    ("a file of a repository elsewhere", "get_file_contents", {"owner": "o", "repo": "r", "path": "a"}, NOTHING),
    ("a write elsewhere", "create_file", {"owner": "o", "repo": "r", "path": "a", "content": "x"}, NOTHING),
    ("a write that is only tried", "edit_file", {"path": "a", "edits": [], "dryRun": True}, NOTHING),
    ("two paths", "read_file", {"path": "/a", "file_path": "/b"}, NOTHING),
    ("a path that is no string", "read_file", {"path": ["/a"]}, NOTHING),
    ("SWE-agent shows a window around a line", "open", {"path": "a", "line_number": 5}, NOTHING),
    ("a window from the start", "open", {"path": "a"}, NOTHING),
    ("SWE-agent edits what is open", "edit", {"search": "x", "replace": "y"}, NOTHING),
    ("SWE-agent creates", "create", {"filename": "a"}, write("a")),
    ("moatless names spans", "ViewCode", {"files": [{"file_path": "a", "span_ids": []}]}, NOTHING),
    ("a file is moved", "move_file", {"source": "a", "destination": "b"}, write("a", "b")),
    ("a move of something else", "move", {"source": "a", "destination": "b", "board": 1}, NOTHING),
    ("a file is deleted", "delete_file", {"target_file": "a"}, write("a")),
    # paths
    ("dots and slashes", "read_file", {"path": "./src//./a.py"}, read("src/a.py")),
    ("two dots stay", "read_file", {"path": "/r/x/../a.py"}, read("/r/x/../a.py")),
    ("home stays", "read_file", {"path": "~/a.py"}, read("~/a.py")),
    ("Windows", "read_file", {"path": "c:\\r\\.\\a.py"}, read("C:/r/a.py")),
    ("a backslash may be part of a name", "read_file", {"path": "r\\a.py"}, read("r\\a.py")),
    ("a folder", "view", {"path": "/r/"}, NOTHING),
    ("the folder", "view", {"path": "."}, NOTHING),
    ("the root", "view", {"path": "/"}, NOTHING),
    ("an address", "read_file", {"path": "https://x/a.py"}, NOTHING),
    ("a device", "read_file", {"path": "/dev/stdin"}, NOTHING),
    ("two lines", "read_file", {"path": "a\nb"}, NOTHING),
    ("spaces around", "read_file", {"path": " a"}, NOTHING),
    ("spaces inside", "read_file", {"path": "a b"}, read("a b")),
    # arguments
    ("arguments as a string", "Read", '{"file_path":"/a","limit":3}', read("/a", 1, 3)),
    ("broken arguments", "Read", '{"file_path":"/a"', NOTHING),
    ("arguments that are a list", "Read", '["/a"]', NOTHING),
    ("arguments nested without end", "Read", "[" * 100_000, NOTHING),
    # patches
    ("a patch as it is", "apply_patch", PATCH, write(*PATCHED)),
    ("a patch as an argument", "apply_patch", {"input": PATCH}, write(*PATCHED)),
    ("a patch as an argument in a string", "apply_patch", json.dumps({"input": PATCH}), write(*PATCHED)),
    ("a patch without its end", "apply_patch", PATCH[:-15], NOTHING),
    ("a patch of another kind", "apply_patch", "--- a/x\n+++ b/x\n", NOTHING),
    ("a patch applied elsewhere", "apply_patch", PATCH.replace("@@", "@@\n*** Environment ID: 1"), NOTHING),
    ("text that is no patch", "Write", PATCH, NOTHING),
]

SHELL_CALLS: list[Row] = [
    ("Codex: a string and a folder", "exec_command", {"cmd": "cat a", "workdir": "/r"}, read("/r/a")),
    ("Codex: a list", "shell", {"command": ["bash", "-lc", "cat a"], "workdir": "/r/"}, read("/r/a")),
    ("Codex: words", "shell", {"command": ["sed", "-n", "1,$p", "a $b"], "workdir": "/r"}, read("/r/a $b")),
    ("Codex: a patch", "shell", {"command": ["apply_patch", PATCH]}, write(*PATCHED)),
    (
        "Codex: a patch in a here-document",
        "shell",
        {"command": ["bash", "-lc", HERE], "workdir": "/r"},
        write("/r/src/a.py", "/r/src/b.py", "/abs/c.py", "/r/d.py"),
    ),
    ("Codex: the built-in", "local_shell", {"type": "exec", "command": ["cat", "a"], "env": {}}, read("a")),
    ("with an environment", "local_shell", {"type": "exec", "command": ["cat", "a"], "env": {"A": "b"}}, NOTHING),
    ("PowerShell", "shell", {"command": ["powershell.exe", "-Command", "cat a"]}, NOTHING),
    ("another shell", "exec_command", {"cmd": "cat a", "shell": "pwsh"}, NOTHING),
    ("a folder that is no string", "exec_command", {"cmd": "cat a", "workdir": 1}, NOTHING),
    ("two folders", "exec_command", {"cmd": "cat a", "workdir": "/r", "cwd": "/s"}, NOTHING),
    ("two commands", "exec_command", {"cmd": "cat a", "command": "cat b"}, NOTHING),
    ("no command", "exec_command", {"workdir": "/r"}, NOTHING),
    ("an empty list", "shell", {"command": []}, NOTHING),
    ("a list of other things", "shell", {"command": ["cat", 1]}, NOTHING),
    ("in the background", "Bash", {"command": "cat a", "run_in_background": True}, NOTHING),
    ("not in the background", "Bash", {"command": "cat a", "run_in_background": False}, read("a")),
    ("OpenHands: typed into what runs", "execute_bash", {"command": "cat a", "is_input": "true"}, NOTHING),
    ("OpenHands: a command", "execute_bash", {"command": "cat a", "is_input": "false"}, read("a")),
    ("Copilot: waits", "bash", {"command": "cat a", "mode": "sync", "shellId": "1"}, read("a")),
    ("Copilot: does not wait", "bash", {"command": "cat a", "mode": "async"}, NOTHING),
    ("on another machine", "bash", {"command": "cat a", "host": "h"}, NOTHING),
    ("typed into a session", "write_stdin", {"session_id": 1, "chars": "cat a"}, NOTHING),
]

COMMANDS: list[tuple[str, tuple[FileAccess, ...]]] = [
    # the whole file
    ("cat a.py", read("a.py")),
    ("  cat a.py\n", read("a.py")),
    ("cat -n a.py", read("a.py")),
    ("cat 'a b.py'", read("a b.py")),
    ('cat "a b.py"', read("a b.py")),
    ("cat a\\ b.py", read("a b.py")),
    ("cat src/\\$id.tsx", read("src/$id.tsx")),
    ("cat 'src/[id].tsx'", read("src/[id].tsx")),
    ("cat ~/a.py", read("~/a.py")),
    ("nl a.py", read("a.py")),
    ("nl -ba a.py", read("a.py")),
    ("cat", NOTHING),
    ("cat -", NOTHING),
    ("cat -s a.py", NOTHING),
    ("cat a.py b.py", NOTHING),
    ("cat *.py", NOTHING),
    ("cat src/[id].tsx", NOTHING),
    ("cat src/{a,b}.py", NOTHING),
    ("cat $FILE", NOTHING),
    ("cat src/$id.tsx", NOTHING),
    ('cat "$FILE"', NOTHING),
    ("cat `ls`", NOTHING),
    ("cat $(ls)", NOTHING),
    ("cat '~/a.py'", NOTHING),
    ("cat ~-/a.py", NOTHING),
    ("cat ~'x'/a.py", NOTHING),
    ("cat a=~", NOTHING),
    ("cat < a.py", NOTHING),
    ("cat a.py &", NOTHING),
    ("cat a.py 2>/dev/null", NOTHING),
    ("cat a.py 2>&1", NOTHING),
    ("cat a.py # so", NOTHING),
    ("cat a.py; ls", NOTHING),
    ("cat a.py && cat b.py", NOTHING),
    ("cat a.py || true", NOTHING),
    ("cat a.py\nls", NOTHING),
    ("cat 'a.py", NOTHING),
    ("cat a.py '|' head", NOTHING),
    ("sudo cat a.py", NOTHING),
    ("A=1 cat a.py", NOTHING),
    ("bat a.py", NOTHING),
    ("less a.py", NOTHING),
    ("grep x a.py", NOTHING),
    ("cat <<EOF\na.py\nEOF", NOTHING),
    ("", NOTHING),
    # some lines
    ("head a.py", read("a.py", 1, 10)),
    ("head -n 20 a.py", read("a.py", 1, 20)),
    ("head -n20 a.py", read("a.py", 1, 20)),
    ("head -20 a.py", read("a.py", 1, 20)),
    ("head -n -20 a.py", NOTHING),
    ("head -n 0 a.py", NOTHING),
    ("head -c 20 a.py", NOTHING),
    ("head -n 20", NOTHING),
    ("tail -n +20 a.py", read("a.py", 20)),
    ("tail -n 20 a.py", NOTHING),
    ("tail -20 a.py", NOTHING),
    ("tail a.py", NOTHING),
    ("tail -f a.py", NOTHING),
    ("sed -n '10,20p' a.py", read("a.py", 10, 20)),
    ('sed -n "10,20p" a.py', read("a.py", 10, 20)),
    ("sed -n 10,20p a.py", read("a.py", 10, 20)),
    ("sed -n '10p' a.py", read("a.py", 10, 10)),
    ("sed -n '10,$p' a.py", read("a.py", 10)),
    ('sed -n "10,$p" a.py', NOTHING),
    ("sed -n '20,10p' a.py", NOTHING),
    ("sed -n '0,10p' a.py", NOTHING),
    ("sed -n '1,5p;9,12p' a.py", NOTHING),
    ("sed -n '/x/p' a.py", NOTHING),
    ("sed '10,20p' a.py", NOTHING),
    ("sed -n '10,20p' a.py b.py", NOTHING),
    ("sed -n '10,20p' a.py && sed -n '1,5p' b.py", NOTHING),
    # pipelines
    ("nl -ba a.py | sed -n '10,20p'", read("a.py", 10, 20)),
    ("cat -n a.py | sed -n '10,20p'", read("a.py", 10, 20)),
    ("cat a.py | head -n 20", read("a.py", 1, 20)),
    ("cat a.py|head -20", read("a.py", 1, 20)),
    ("cat a.py | tail -n +20", read("a.py", 20)),
    ("cat a.py | tail -n 20", NOTHING),
    ("cat a.py | head -n 20 b.py", NOTHING),
    ("cat a.py | grep x", NOTHING),
    ("cat a.py | rm b.py", NOTHING),
    ("head -50 a.py | sed -n '10,20p'", NOTHING),
    ("git show HEAD:a.py | sed -n '10,20p'", NOTHING),
    ("nl -ba a.py | sed -n '10,20p' | head", NOTHING),
    ("cat a.py | sort | tee b.py", write("b.py")),
    ("| head", NOTHING),
    # folders
    ("cd /r && cat a.py", read("/r/a.py")),
    ("cd /r && cat /s/a.py", read("/s/a.py")),
    ("cd /r/ && nl -ba ./a.py | sed -n '1,9p'", read("/r/a.py", 1, 9)),
    ("cd 'a b' && cat a.py", read("a b/a.py")),
    ("cd ~ && cat a.py", read("~/a.py")),
    ("cd sub && cat a.py", read("sub/a.py")),
    ("cd - && cat a.py", NOTHING),
    ("cd /r; cat a.py", NOTHING),
    ("cd /r || cat a.py", NOTHING),
    ("cd $R && cat a.py", NOTHING),
    ("cd /r && cd s && cat a.py", NOTHING),
    ("cd /r", NOTHING),
    ("cd /r &&", NOTHING),
    # writes
    ("sed -i 's/a/b/' a.py", write("a.py")),
    ("sed -i '' 's/a/b/' a.py", write("a.py")),
    ("sed -i.bak -e 's/a/b/' -e 's/c/d/' a.py", write("a.py")),
    ("sed -E -i 's/(a)$/b/' a.py", write("a.py")),
    ("sed -i 's/a/b/' a.py b.py", NOTHING),
    ("sed -i 's/a/b/' *.py", NOTHING),
    ("sed -i 's/a/b/'", NOTHING),
    ('sed -i "s/a/$b/" a.py', NOTHING),
    ("sed 's/a/b/' a.py", NOTHING),
    ("echo hi > a.py", write("a.py")),
    ("echo 'a > b; c' >> a.py", write("a.py")),
    ("cat a.py > b.py", write("b.py")),
    ("sort a.py | uniq > b.py", write("b.py")),
    ("cd /r && echo hi > a.py", write("/r/a.py")),
    ("make > /dev/null", NOTHING),
    ("make > $LOG", NOTHING),
    ("make > a.log 2>&1", NOTHING),
    ("make >", NOTHING),
    ("make > a.log && cat a.log", NOTHING),
    ("echo '>' a.py", NOTHING),
    ("echo hi >| a.py", NOTHING),
    ("cat > a.py <<'EOF'\nx = 1\nEOF", write("a.py")),
    ("cat <<EOF >> a.py\nx = 1\nEOF\n", write("a.py")),
    ("tee a.py <<EOF\nx\nEOF", write("a.py")),
    ("cat > a.py <<'EOF'\nx = 1\nEOF\npython a.py", NOTHING),
    ("cat > a.py <<'EOF'\nx = 1\nEOF\ncat > b.py <<'EOF'\ny\nEOF", NOTHING),
    ("cat > a.py <<'EOF'\nx = 1", NOTHING),
    ("cat > a.py <<< x\nx", NOTHING),
    ("python <<'EOF'\nopen('a.py', 'w')\nEOF", NOTHING),
    ("echo x | tee a.py", write("a.py")),
    ("echo x | tee -a a.py b.py", write("a.py", "b.py")),
    ("tee", NOTHING),
    ("rm a.py", write("a.py")),
    ("rm -rf a.py b.py", write("a.py", "b.py")),
    ("rm -i a.py", NOTHING),
    ("rm *.py", NOTHING),
    ("rm", NOTHING),
    ("mv a.py b.py", write("a.py", "b.py")),
    ("mv a.py src/", write("a.py")),
    ("mv -n a.py b.py", NOTHING),
    ("mv a.py b.py src", NOTHING),
    ("cp a.py b.py", write("b.py")),
    ("cp -n a.py b.py", NOTHING),
    ("cp a.py b.py src", NOTHING),
    ("git checkout -- a.py", write("a.py")),
    ("git checkout HEAD~1 -- a.py b.py", write("a.py", "b.py")),
    ("git checkout a.py", NOTHING),
    ("git checkout -- .", NOTHING),
    ("git checkout -- '*.py'", NOTHING),
    ("git checkout -b x", NOTHING),
    ("git restore a.py", write("a.py")),
    ("git restore --staged a.py", NOTHING),
    ("git restore ':/a.py'", NOTHING),
    ("git stash", NOTHING),
    ("touch a.py", NOTHING),
    ("perl -pi -e 's/a/b/' a.py", NOTHING),
    ("python fix.py", NOTHING),
    (HERE, write(*PATCHED)),
    (f"cd /r && {HERE}", write("/r/src/a.py", "/r/src/b.py", "/abs/c.py", "/r/d.py")),
    (f"apply_patch '{PATCH}'", write(*PATCHED)),
    (f"{HERE}make", NOTHING),
    ("apply_patch", NOTHING),
    ("apply_patch a.patch", NOTHING),
]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [pytest.param(*row[1:], id=f"{row[1]}: {row[0]}") for row in (*TOOLS, *SHELL_CALLS)],
)
def test_a_call_touches(name: str, arguments: Any, expected: tuple[FileAccess, ...]) -> None:
    assert file_accesses(call(name, arguments)) == expected
    if isinstance(arguments, dict):
        assert file_accesses(call(name, json.dumps(arguments))) == expected


@pytest.mark.parametrize(("command", "expected"), [pytest.param(*row, id=repr(row[0])[:60]) for row in COMMANDS])
def test_a_shell_command_touches(command: str, expected: tuple[FileAccess, ...]) -> None:
    assert file_accesses(call("Bash", {"command": command})) == expected


# ── laws ────────────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = (*TOOLS, *SHELL_CALLS)
names = st.one_of(st.sampled_from(sorted({row[1] for row in ROWS})), st.text(max_size=8))
keys = st.sampled_from(sorted({key for row in ROWS if isinstance(row[2], dict) for key in row[2]}))
BITS = (*"ab \t\n'\"\\$`~*?[]{}()<>|&;!#=-+,./:0129", "&&", "||", ">>", "<<", "EOF", "cd ", "cat ", "sed -n ", "1,5p ")
pieces = st.sampled_from([*BITS, *(command for command, _ in COMMANDS), PATCH])
shell_texts = st.one_of(st.lists(pieces, max_size=8).map("".join), st.text())
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), shell_texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(), inner, max_size=4),
    max_leaves=8,
)
arguments_of_all_kinds = st.one_of(
    values, st.dictionaries(keys, values, max_size=4), st.dictionaries(keys, scalars, max_size=4).map(json.dumps)
)


@QUICK
@given(names, arguments_of_all_kinds)
def test_no_call_is_too_strange(name: str, arguments: Any) -> None:
    found = file_accesses(call(name, arguments))
    kinds = [touch.kind for touch in found]
    assert kinds in ([], ["read"], ["write"] * len(kinds)), "one read, or writes"
    assert all(touch.path and touch.first >= 1 and (touch.last or touch.first) >= touch.first for touch in found)
    assert all((touch.first, touch.last) == (1, None) for touch in found if touch.kind == "write")


@QUICK
@given(shell_texts)
def test_no_shell_command_is_too_strange(command: str) -> None:
    found = file_accesses(call("Bash", {"command": command}))
    assert found == file_accesses(call("shell", {"command": ["bash", "-lc", command]}))


@pytest.mark.parametrize("joint", ["; ", " && ", " || ", " & ", "\n"])
@pytest.mark.parametrize("more", ["ls", "cat b.py", "rm b.py"])
def test_a_second_command_makes_everything_uncertain(joint: str, more: str) -> None:
    for command, expected in COMMANDS:
        if expected and "\n" not in command:
            assert file_accesses(call("Bash", {"command": command + joint + more})) == NOTHING


END = 12
spans = st.tuples(st.integers(1, END), st.none() | st.integers(1, END)).filter(lambda span: (span[1] or END) >= span[0])
some_touches = st.builds(lambda path, span: FileAccess("read", path, *span), st.sampled_from(["a", "b"]), spans)


def lines(touch: FileAccess) -> set[tuple[str, int]]:
    """In a file that is longer than every range that has an end."""
    return {(touch.path, line) for line in range(touch.first, (touch.last or END + 1) + 1)}


@QUICK
@given(some_touches, some_touches)
def test_covering_is_containing_the_lines(one: FileAccess, other: FileAccess) -> None:
    assert one.covers(other) == (lines(one) >= lines(other))


@QUICK
@given(some_touches, some_touches, some_touches)
def test_covering_is_reflexive_and_transitive(one: FileAccess, two: FileAccess, three: FileAccess) -> None:
    assert one.covers(one)
    if one.covers(two) and two.covers(three):
        assert one.covers(three)
