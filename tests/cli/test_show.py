"""`ibidem show` and `ibidem expand`: what is shown of a rewritten request, and the way back."""

import json
import os
import random
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ibidem
from ibidem.cli import main
from ibidem.cli.view.edits import align_blocks, collapse_runs

LINES = [f"{number:03} something that is said in line {number}" for number in range(40)]
LONG = "\n".join(LINES) + "\n"
HOSTILE = "\x1b[31mred\x1b[0m\x07 [red]markup[/red] :smile: <script>alert(1)</script> \u202e\x9b1m &amp; \ud800\n"


def run(*args: str | Path, stdin: bytes | None = None, **env: str) -> Result:
    found = CliRunner(env=env).invoke(main, [str(arg) for arg in args], input=stdin, catch_exceptions=False)
    assert isinstance(found, Result)
    return found


def process(*args: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[bytes]:
    clean = {**os.environ, "NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm", **(env or {})}
    command = [sys.executable, "-m", "ibidem.cli", *map(str, args)]
    return subprocess.run(command, env=clean, capture_output=True, timeout=60, check=False, **options)


def request(*results: str, tool: str = "read") -> dict[str, Any]:
    """A request in which the tool was called once for every result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, text in enumerate(results):
        call = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": {"path": f"f{number}.py"}}
        messages.append({"role": "assistant", "content": [call]})
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
        messages.append({"role": "user", "content": [answer]})
    return {"system": "s", "messages": messages}


def written(tmp_path: Path, content: bytes, name: str = "request.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def saved(tmp_path: Path, *results: str, name: str = "request.json") -> Path:
    return written(tmp_path, json.dumps(request(*results)).encode(), name)


@pytest.mark.parametrize("command", ["show", "compact"])
def test_a_text_that_the_repeat_guard_sends_in_full_is_mentioned(tmp_path: Path, command: str) -> None:
    repeated = request(LONG, LONG, LONG)
    for message in repeated["messages"][1::2]:
        message["content"][0]["input"] = {"path": "f.py"}
    path, line = written(tmp_path, json.dumps(repeated).encode()), "1 result sent in full: the same call was made again"
    assert line in run(command, path).stdout
    (shown,) = json.loads(run(command, path, "--json").stdout)["sent_in_full"]
    assert shown == f"{line} right after a reference"
    assert "in full:" not in run(command, saved(tmp_path, LONG, LONG)).stdout


PART = LONG + "\n".join(f"and then {number}, which is new" for number in range(20))
MIDDLE = "a start of its own\n" + LONG + "an end of its own\n"


# --- in the terminal ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "beside"), [("60", False), ("99", False), ("100", True), ("160", True)])
def test_texts_stand_beside_each_other_where_there_is_room(columns: str, beside: bool) -> None:
    done = process("show", env={"COLUMNS": columns})
    shown = done.stdout.decode()
    assert (done.returncode, done.stderr, "\x1b" in shown) == (0, b"", False)
    assert (" │ » [ibidem " in shown) == beside
    assert ("\n» [ibidem " in shown) != beside
    assert all(len(line) <= int(columns) and line == line.rstrip() for line in shown.splitlines())


def test_the_sample_is_shown_with_totals_reasons_and_places() -> None:
    shown = run("show", COLUMNS="120").stdout
    assert shown.startswith(
        "No file given. Using the bundled sample conversation.\nsample: anthropic, profile lossless"
    )
    for pattern in (
        r"\ndedup +3 +[\d,]+ +\d+\n",
        r"\nmessages\[10\]\.content\[0\]\.content  result 7, read_file\(larder/amounts\.py\)\n"
        r"dedup: same as result 2 \(387 → \d+ tokens\)\n",
        r"\n- from dataclasses import dataclass +│\n  … 42 lines … +│\n",
        r" │ » \[ibidem \d+\.\d+: unchanged, lines \d+-33 of result 4,",
    ):
        assert re.search(pattern, shown), pattern


@pytest.mark.parametrize("columns", ["60", "140"])
def test_all_shows_every_line(tmp_path: Path, columns: str) -> None:
    path = saved(tmp_path, LONG, MIDDLE)
    short, full = (run("show", path, *args, COLUMNS=columns).stdout for args in ([], ["--all"]))
    assert ("… 34 lines …" in short, "lines …" in full) == (True, False)
    assert [line in short for line in LINES] == [True] * 3 + [False] * 34 + [True] * 3
    assert all(line in full for line in LINES)
    assert "  a start of its own" in short


def test_a_line_too_long_is_cut_unless_all_is_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path, "漢字" * 3000, "漢字" * 3000)
    lines = run("show", path, COLUMNS="80").stdout.splitlines()[1:]  # after the name of the file
    assert max(map(len, lines)) <= 80
    assert run("show", path, "--all", COLUMNS="80").stdout.count("漢") == 3000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "env", "coloured"),
    [
        pytest.param([], {}, False, id="a pipe gets no escape codes"),
        pytest.param([], {"FORCE_COLOR": "1"}, True, id="who insists gets colours"),
        pytest.param([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, id="NO_COLOR is honoured"),
        pytest.param(["--no-color"], {"FORCE_COLOR": "1"}, False, id="so is --no-color"),
    ],
)
def test_colours(args: list[str], env: dict[str, str], coloured: bool) -> None:
    shown = process("show", *args, env={"COLUMNS": "120", **env}).stdout
    assert (b"\x1b[" in shown) == (b"\x1b[1;36m" in shown) == coloured
    if not coloured:
        assert shown == process("show", env={"COLUMNS": "120"}).stdout


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["--all"]], ids=["shortened", "all"])
@pytest.mark.parametrize("columns", ["80", "200"])
def test_what_a_tool_wrote_cannot_reach_the_terminal(tmp_path: Path, columns: str, args: list[str]) -> None:
    path = saved(tmp_path, HOSTILE + LONG, HOSTILE + LONG)
    done = process("show", path, *args, env={"COLUMNS": columns})
    shown = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown.replace("\n", "").isprintable()
    assert r"\x1b[31mred\x1b[0m\x07 [red]markup[/red] :smile: <script>" in shown


def test_a_tools_name_cannot_either(tmp_path: Path) -> None:
    body = request(LONG, LONG, tool="\x1b[5m[bold]x")
    shown = run("show", written(tmp_path, json.dumps(body).encode())).stdout
    assert shown.replace("\n", "").isprintable()
    assert "result 2, " in shown


# --- which request ------------------------------------------------------------------------------


def test_of_several_requests_the_last_that_can_be_read_is_shown(tmp_path: Path) -> None:
    lines = [json.dumps(request(*texts)).encode() for texts in ([LONG], [LONG, LONG])]
    path = written(tmp_path, b"\n".join([b"{", *lines, b"", b"broken"]), "many.jsonl")
    result = run("show", path, COLUMNS="300")
    assert result.stdout.startswith(f"{path} has 4 requests. Showing line 3, the last valid one.\n{path} line 3: ")
    (said,) = result.stderr.splitlines()
    assert said.startswith(f"ibidem: {path} line 5: column 1: not valid JSON")
    assert (result.exit_code, "dedup: same as result 1" in result.stdout) == (0, True)
    found = json.loads(run("show", path, "--json").stdout)
    assert (found["file"], found["line"], len(found["edits"])) == (str(path), 3, 1)


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    for content in (json.dumps(request(LONG)).encode(), b"[]"):
        path = written(tmp_path, content)
        assert run("show", path).stdout.endswith("No edits.\n")
        assert json.loads(run("show", path, "--json").stdout)["edits"] == []
        assert "No edits." in run("show", path, "--html", "-").stdout


@pytest.mark.parametrize("command", ["show", "expand"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "empty", id="an empty file"),
        pytest.param(b"{", "not valid JSON", id="broken JSON"),
        pytest.param(b"17", "not a number", id="a number"),
        pytest.param(b"\xff\xfe{\x00", "UTF-16", id="another encoding"),
    ],
)
def test_broken_input_is_one_line(tmp_path: Path, command: str, content: bytes, words: str) -> None:
    path, out = written(tmp_path, content), written(tmp_path, b"kept", "out")
    for args in ([], ["--html" if command == "show" else "-o", str(out)]):
        result = run(command, path, *args)
        (line,) = result.stderr.splitlines()
        assert (result.exit_code, result.stdout, line.startswith(f"ibidem: {path}: ")) == (2, "", True)
        assert words in line
    assert out.read_bytes() == b"kept"
    assert sorted(os.listdir(tmp_path)) == ["out", "request.json"]


def test_lines_none_of_which_can_be_read_are_one_line_too(tmp_path: Path) -> None:
    result = run("show", written(tmp_path, b"{\n[\n", "many.jsonl"))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


# --- as JSON ------------------------------------------------------------------------------------


def test_edits_as_json(tmp_path: Path) -> None:
    path = saved(tmp_path, LONG, LONG)
    found = json.loads(run("show", path, "--json").stdout)
    (edit,) = ibidem.compact(path.read_bytes()).plan
    count = ibidem.tokens.counter_for()
    assert found.pop("edits") == [
        {
            "message": 4,
            "path": ["content", 0, "content"],
            "strategy": "dedup",
            "reason": "same as result 1",
            "original": LONG,
            "sent": edit.added,
            "bytes_saved": edit.bytes_saved,
            "tokens": {"before": count(LONG), "after": count(edit.added)},
        }
    ]
    assert found == {**json.loads(run("compact", path, "--json").stdout), "line": None}


@pytest.mark.parametrize("profile", ibidem.PROFILES)
def test_every_profile_can_be_shown(tmp_path: Path, profile: str) -> None:
    found = json.loads(run("show", "--profile", profile, "--json").stdout)
    text = run("show", "--profile", profile, COLUMNS="100").stdout
    page = run("show", "--profile", profile, "--html", "-").stdout
    assert found["profile"] == profile
    assert [edit["message"] for edit in found["edits"]] == sorted(edit["message"] for edit in found["edits"])
    for edit in found["edits"]:
        assert f"messages[{edit['message']}]" in text
        assert edit["reason"] in page
    assert "» " in text
    assert 'href="#result-' in page


# --- as a page ----------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


@pytest.mark.parametrize("profile", ibidem.PROFILES)
def test_the_page_needs_nothing_else_and_its_links_lead_somewhere(profile: str) -> None:
    text = run("show", "--profile", profile, "--html", "-").stdout
    page = Page(text)
    assert {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert page.values("src") == []
    assert not re.search(r"https?:|url\(|@import|fetch\(|javascript:", text)
    anchors = page.values("id")
    assert len(anchors) == len(set(anchors))
    assert {link.removeprefix("#") for link in page.values("href")} <= set(anchors)
    assert "default-src 'none'" in page.values("content")[0]


def test_the_page_escapes_what_a_tool_wrote(tmp_path: Path) -> None:
    path, out = saved(tmp_path, HOSTILE + LONG, HOSTILE + LONG, name="<b>&.json"), tmp_path / "page.html"
    result = run("show", path, "--html", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "dedup           1" in result.stderr
    text = out.read_text("utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "<script>alert(1)</script>" in page.text
    assert "&amp; \\ud800" in page.text
    assert text.replace("\n", "").isprintable()
    assert "<b>&.json" in page.text


def test_a_marker_links_to_the_lines_it_points_at(tmp_path: Path) -> None:
    path = saved(tmp_path, PART, "\n".join([*LINES[9:30], "and an end"]))
    page = Page(run("show", path, "--html", "-").stdout)
    (link,) = [attrs for tag, attrs in page.tags if tag == "a"]
    assert (link["href"], link["data-count"]) == ("#result-1-L10", "21")
    (line,) = [attrs for _, attrs in page.tags if attrs.get("id") == "result-1-L10"]
    assert line["data-n"] == "10"


def test_the_page_is_whole_or_not_there(tmp_path: Path) -> None:
    result = run("show", "--html", tmp_path / "missing" / "page.html")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("page.html: no such file or folder: check the path\n")
    assert os.listdir(tmp_path) == []


# --- how texts are lined up ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "sent"),
    [
        pytest.param("", "a", id="put in"),
        pytest.param("a\nb", "", id="dropped"),
        pytest.param("a\nb\nc\n", "a\n[ibidem 001.000000: unchanged, line 1 of result 1]\nc\n", id="a line left out"),
        pytest.param("}\n" * 500, "}\n" * 300, id="nothing but repetition"),
        pytest.param("a\nb\nc\n" * 900, "b\nx\nc\n" * 400 + "y", id="many lines"),
        pytest.param("a\n" * 3000, "b\n" * 3000 + "a", id="many lines that differ"),
    ],
)
def test_no_line_is_lost_and_none_shown_twice(original: str, sent: str) -> None:
    found = list(align_blocks(original, sent, "001"))
    for side, text in enumerate((original, sent)):
        lines = [line for block in found for line in block[side]]
        assert "\n".join(line.text for line in lines) == text
        assert [line.place for line in lines] == list(range(len(lines)))
        assert [line for _, run in collapse_runs(lines) for line in run] == lines


def test_many_lines_are_lined_up_in_no_time() -> None:
    """The best way to do it takes a minute for these."""
    chance = random.Random(1)
    original, sent = list[str](), list[str]()
    for number in range(2000):
        kept = [f"word {chance.randrange(130)}" for _ in range(4)]
        original += [*(f"line {number}.{at}" for at in range(4)), *kept]
        sent += ["[ibidem 001: lines 1-4 of result 1]", *kept]
    start = time.process_time()
    found = list(align_blocks("\n".join(original), "\n".join(sent), "001"))
    assert time.process_time() - start < 5
    assert sum(len(block.original) for block in found if block.kept) == 8000


# --- the way back -------------------------------------------------------------------------------

BODY = request(LONG, PART, LONG, MIDDLE)
COMPACT = json.dumps(BODY).encode()
ODD = b'{"odd": [1.0, 1E5, NaN, 1e400, "\\u0041\\/", "\\ud800"],"k":1, "k":2,' + COMPACT[1:]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("a.json", COMPACT, id="compact JSON"),
        pytest.param("a.json", json.dumps(BODY, indent=2).encode() + b"\n", id="indented JSON"),
        pytest.param("a.json", json.dumps(BODY, indent="\t").replace("\n", "\r\n").encode(), id="tabs and CRLF"),
        pytest.param("a.json", json.dumps(BODY["messages"], indent=1).encode(), id="a bare list"),
        pytest.param("a.json", b"\xef\xbb\xbf\n" + ODD + b" \n\n", id="odd JSON"),
        pytest.param("a.jsonl", COMPACT + b"\r\n\n" + ODD + b"\n" + COMPACT, id="JSONL"),
        pytest.param("a.json", json.dumps(request(LONG)).encode(), id="nothing to restore"),
    ],
)
def test_expand_gives_back_the_file_that_was_compacted(tmp_path: Path, name: str, content: bytes) -> None:
    path, short, back = written(tmp_path, content, name), tmp_path / f"short-{name}", tmp_path / f"back-{name}"
    assert run("compact", path, "-o", short).exit_code == 0
    assert (len(short.read_bytes()) < len(content)) == (content.count(b"017 something") > 1)
    result = run("expand", short, "-o", back)
    assert (result.exit_code, result.output, back.read_bytes()) == (0, "", content)
    assert run("expand", short).stdout_bytes == content
    assert run("expand", "-", stdin=short.read_bytes()).stdout_bytes == content
    assert run("expand", short, "-o", short).exit_code == 0
    assert short.read_bytes() == content


def test_the_sample_comes_back(tmp_path: Path) -> None:
    short = tmp_path / "short.json"
    process("compact", "-o", short)
    sample = Path(ibidem.__file__).parent / "samples" / "conversation.json"
    assert process("expand", short).stdout == sample.read_bytes() != short.read_bytes()


def test_a_line_that_cannot_be_expanded_is_passed_on(tmp_path: Path) -> None:
    path = written(tmp_path, COMPACT + b"\n{\n" + COMPACT, "a.jsonl")
    assert run("compact", path, "-o", path).exit_code == 2
    result = run("expand", path)
    assert result.stdout_bytes == COMPACT + b"\n{\n" + COMPACT
    assert (result.exit_code, result.stderr.count("\n"), "line 2" in result.stderr) == (2, 1, True)
