"""The command line: what it prints, what it writes, and how it ends."""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import ibidem
from ibidem.cli import main
from ibidem.cli.command_errors import InputError
from ibidem.cli.request_input import InputRequest, call_library
from ibidem.cli.root_group import COMMANDS
from ibidem.strategies.profiles import strategy_labels

SAMPLES = Path(ibidem.__file__).parent / "samples"
LONG = "line of output\n" * 40
TOKEN = json.dumps(LONG).encode()
OTHER = b'"nothing that was said before"'

CALLS = (
    b'{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"run","input":{}},'
    b'{"type":"tool_use","id":"b","name":"run","input":{}}]}'
)
RESULTS = (
    b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":' + TOKEN + b"},"
    b'{"type":"tool_result","tool_use_id":"b","content":@@}]}'
)
MESSAGES = b'[{"role":"user","content":"go"},' + CALLS + b"," + RESULTS + b"]"
BODY = b'{"system":"s","messages":' + MESSAGES + b"}"
"""A request whose second result stands at @@."""

REPEATS = BODY.replace(b"@@", TOKEN)
MARKER = json.dumps(ibidem.compact(json.loads(REPEATS)).plan.edits[0].added).encode()
"""What stands there instead; the same in every request that begins with these words."""
SHORTER = BODY.replace(b"@@", MARKER)
PLAIN = BODY.replace(b"@@", OTHER)
REFUSED = b'{"system":"s","messages":[{"role":"assistant","content":"a"}]}'
UNCLEAR = b'{"messages":[{"role":"user","content":"hi"}]}'


def run(*args: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin, catch_exceptions=False)


def process(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm", **options.pop("env", {})}
    command = [sys.executable, "-m", "ibidem.cli", *map(str, args)]
    return subprocess.run(command, env=env, capture_output=True, timeout=60, check=False, **options)


def the_error(result: Result) -> str:
    """The one line that was said, after its beginning."""
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("ibidem: ") if line.startswith("ibidem: ") else pytest.fail(f"begins otherwise: {line}")


def written(tmp_path: Path, content: bytes, name: str = "request.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


# --- help and usage -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["--version"], [f"ibidem {ibidem.__version__}"], id="the version is one line"),
        pytest.param([], ["Usage: ibidem", "compact", "validate"], id="without a command the help is shown"),
        pytest.param(["-h"], ["Usage: ibidem", "compact", "validate"], id="the short option shows the help"),
        pytest.param(["compact", "--help"], [*ibidem.PROFILES, "--format"], id="help on compact names the profiles"),
        pytest.param(["validate", "-h"], ["FILE", "openai-chat"], id="help on validate names the formats"),
    ],
)
def test_help(args: list[str], words: list[str]) -> None:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(word in result.stdout for word in words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["validate"], "Missing argument 'FILE' (see ibidem validate --help)", id="validate needs a file"),
        pytest.param(["compress"], "No such command 'compress' (see ibidem --help)", id="an unknown command"),
        pytest.param(["compact", "--profil", "x"], "see ibidem compact --help", id="an unknown option"),
        pytest.param(["compact", "--profile", "x"], "'lossless', 'codetether'", id="a wrong profile: the right ones"),
        pytest.param(["compact", "--format", "x"], "'anthropic', 'openai-chat'", id="a wrong format: the right ones"),
        pytest.param(["compact", "a", "b"], "unexpected extra argument (b)", id="two files"),
    ],
)
def test_usage_errors_are_one_line(args: list[str], words: str) -> None:
    assert words in the_error(run(*args))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param("/bin/ibidem", "ibidem", id="as it is called"),
        pytest.param("/bin/ibidem-llm", "ibidem-llm", id="by its other name"),
        pytest.param("/bin/ibidem-llm.exe", "ibidem-llm", id="by its other name on Windows"),
        pytest.param("/lib/ibidem/cli/__main__.py", "ibidem", id="as a module"),
    ],
)
def test_help_speaks_of_the_command_that_was_called(command: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [command])
    assert f"Usage: {name} compact" in run("compact", "--help").stdout
    assert f"(see {name} validate --help)" in the_error(run("validate"))


# --- input that cannot be worked on -------------------------------------------------------------


@pytest.mark.parametrize("command", ["compact", "validate"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", ["empty", "pass a JSON request"], id="an empty file"),
        pytest.param(b" \n\r\n\t", ["empty", "pass a JSON request"], id="nothing but whitespace"),
        pytest.param(b'{\n "messages": [}\n', ["line 2, column 15", "not valid JSON", "correct it"], id="broken JSON"),
        pytest.param(PLAIN[:-9], ["line 1, column", "not valid JSON"], id="JSON that breaks off"),
        pytest.param(PLAIN + b" more", ["line 1, column", "Extra data"], id="more on the same line"),
        pytest.param(b"17", ["object or a list of messages, not a number"], id="a number"),
        pytest.param(b'"hello"', ["object or a list of messages, not a string"], id="a string"),
        pytest.param(b"null", ["object or a list of messages, not null"], id="null"),
        pytest.param(b"{}", ["no conversation found", "messages, input, contents"], id="an object with no history"),
        pytest.param(
            b'{"system":"s","messages":7}',
            ["'messages'", "a list of messages", "not a number"],
            id="a history of a wrong type",
        ),
        pytest.param(b"[" * 10_000 + b"]" * 10_000, ["nested too deeply"], id="10,000 lists in each other"),
        pytest.param(b'{"system":"\xff","messages":[]}', ["byte 11", "UTF-8", "save it as"], id="invalid UTF-8"),
        pytest.param(PLAIN.decode().encode("utf-16"), ["UTF-16", "save it as UTF-8"], id="UTF-16"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00", ["UTF-8"], id="an image"),
        pytest.param(
            b'{"system":' + b"1" * 5000 + b"}", ["more digits than can be read"], id="a number beyond reading"
        ),
    ],
)
def test_unreadable_input_is_one_line(tmp_path: Path, command: str, content: bytes, words: list[str]) -> None:
    path = written(tmp_path, content)
    said = the_error(run(command, path))
    assert said.startswith(f"{path}: ")
    assert all(word in said for word in words), said
    assert the_error(run(command, "-", stdin=content)).startswith("standard input: ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("missing.json", "no such file or folder: check the path", id="a missing file"),
        pytest.param(".", "this is a folder: name a file", id="a folder"),
        pytest.param("request.json/x", "part of this path is a file", id="a path through a file"),
    ],
)
def test_paths_that_lead_nowhere(tmp_path: Path, name: str, words: str) -> None:
    written(tmp_path, REPEATS)
    path = os.path.join(tmp_path, name)
    for command in ("compact", "validate"):
        assert the_error(run(command, path)).startswith(f"{path}: {words}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param(".", "this is a folder", id="OUT is a folder"),
        pytest.param("missing/out.json", "no such file or folder", id="OUT is in no folder"),
    ],
)
def test_output_that_cannot_be_written(tmp_path: Path, name: str, words: str) -> None:
    assert words in the_error(run("compact", written(tmp_path, REPEATS), "-o", os.path.join(tmp_path, name)))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_are_respected(tmp_path: Path) -> None:
    path, out = written(tmp_path, REPEATS), written(tmp_path, b"kept", "out.json")
    out.chmod(0o444)
    assert "no permission" in the_error(run("compact", path, "-o", out))
    path.chmod(0)
    assert "no permission" in the_error(run("compact", path))
    assert out.read_bytes() == b"kept"


def test_names_and_messages_cannot_break_out_of_their_line(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"system":"s","messages":[{"role":"\\u001b[31m\\n\\ud800","content":"x"}]}', "a\nb.json")
    found = run("validate", path).stdout
    assert "\x1b" not in found
    assert all(line.startswith(f"{tmp_path}{os.sep}a\\nb.json: ") for line in found.splitlines())


def test_a_fault_of_ours_is_called_ours() -> None:
    with pytest.raises(InputError, match=r"^f line 3: this is a bug in ibidem: .*ZeroDivisionError"):
        call_library(lambda data: 1 // len(data), InputRequest(b"", "f", 3))


# --- byte for byte ------------------------------------------------------------------------------


def with_field(value: bytes) -> bytes:
    return b'{"odd":' + value + b',"system":"s","messages":' + MESSAGES + b',"odd again":' + value + b"}"


def indented(newline: bytes) -> bytes:
    text = json.dumps(json.loads(PLAIN), indent=2).replace(json.dumps(json.loads(OTHER)), "@@")
    return text.encode().replace(b"\n", newline)


ODD = [
    pytest.param(BODY, id="compact JSON"),
    pytest.param(MESSAGES, id="a bare list of messages"),
    pytest.param(indented(b"\n"), id="indented JSON"),
    pytest.param(indented(b"\r\n") + b"\r\n", id="indented JSON with CRLF"),
    pytest.param(indented(b"\r"), id="indented JSON with bare carriage returns"),
    pytest.param(BODY + b"\n", id="a final newline"),
    pytest.param(b"\n\n" + BODY + b" \n\t\n", id="empty lines before and after"),
    pytest.param(b"\xef\xbb\xbf" + BODY, id="a byte order mark"),
    pytest.param(BODY.replace(b":", b" : ").replace(b",", b"\t, "), id="spaces around everything"),
    pytest.param(with_field(b"[1.0, 1.50, 1E5, 1e+05, -0, -0.0, 0.1e-7]"), id="number spellings"),
    pytest.param(with_field(b"[1" + b"0" * 400 + b", 1e400, 18446744073709551616]"), id="numbers beyond 64 bits"),
    pytest.param(with_field(b"[NaN, Infinity, -Infinity]"), id="numbers that JSON does not have"),
    pytest.param(with_field(b'"\\u0041\\/\\u00e9\\u20AC\\ud83d\\ude00"'), id="escapes that need not be"),
    pytest.param(with_field('"é€😀\u2028\u2029\x7f"'.encode()), id="characters that could be escaped"),
    pytest.param(with_field(b'"\\ud800 \\udfff"'), id="lone surrogates"),
    pytest.param(with_field(b'"\\u0000"'), id="a null character"),
    pytest.param(with_field(b'{"k":1,"k":2,"":{},"":[]}'), id="duplicate and empty keys"),
    pytest.param(with_field(b"[" * 300 + b"]" * 300), id="300 lists in each other"),
    pytest.param(b"\xef\xbb\xbf" + indented(b"\r\n"), id="a byte order mark before indented JSON with CRLF"),
    pytest.param(with_field(b'"' + b"x" * 100_000 + b'"'), id="a very long string"),
]


@pytest.mark.parametrize("template", ODD)
def test_what_is_not_edited_is_written_as_it_came(tmp_path: Path, template: bytes) -> None:
    text = template.replace(b"@@", OTHER)
    path, out = written(tmp_path, text), tmp_path / "out.json"
    assert run("compact", path, "-o", out).exit_code == 0
    assert out.read_bytes() == text
    assert run("compact", "-", "-o", "-", stdin=text).stdout_bytes == text


@pytest.mark.parametrize("template", ODD)
def test_an_edit_changes_its_token_and_nothing_else(tmp_path: Path, template: bytes) -> None:
    path, out = written(tmp_path, template.replace(b"@@", TOKEN)), tmp_path / "out.json"
    assert run("compact", path, "-o", out).exit_code == 0
    assert out.read_bytes() == template.replace(b"@@", MARKER)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["lines end in LF", "lines end in CRLF"])
def test_lines_are_edited_each_on_its_own(tmp_path: Path, newline: bytes) -> None:
    bodies = [param.values[0] for param in ODD]
    lines = [body.strip(b"\r\n").removeprefix(b"\xef\xbb\xbf") for body in bodies if isinstance(body, bytes)]
    lines = [b"\xef\xbb\xbf" + BODY, b"", *(line for line in lines if not {10, 13} & {*line}), b" \t"]
    path, out = written(tmp_path, newline.join(lines).replace(b"@@", TOKEN), "many.jsonl"), tmp_path / "out.jsonl"
    assert run("compact", path, "-o", out).exit_code == 0
    assert out.read_bytes() == newline.join(lines).replace(b"@@", MARKER)


def test_a_request_that_cannot_be_edited_safely_is_left_with_its_reason(tmp_path: Path) -> None:
    text = REPEATS.replace(b'"tool_use_id":"b",', b'"tool_use_id":"b","content":"first of two",')
    path, out = written(tmp_path, text), tmp_path / "out.json"
    result = run("compact", path, "-o", out, "--json")
    (left,) = json.loads(result.stdout)["left_as_it_came"]
    assert (left["position"], "appears twice" in left["reason"]) == ("request", True)
    assert (result.exit_code, out.read_bytes()) == (0, text)
    assert "Request not rewritten" in run("compact", path).stdout


# --- one request or one per line ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "requests"),
    [
        pytest.param("a.json", PLAIN + b"\n", 1, id="one line is one request"),
        pytest.param("a.jsonl", PLAIN, 1, id="one line of a .jsonl file is one request too"),
        pytest.param("a.json", indented(b"\n").replace(b"@@", OTHER), 1, id="a request over many lines"),
        pytest.param("a.json", b"[\n" + MESSAGES[1:].replace(b"@@", OTHER), 1, id="a list over two lines"),
        pytest.param("a.json", PLAIN + b"\n\n" + PLAIN, 2, id="more behind a complete first line"),
        pytest.param("a.log", b"\n" + PLAIN + b"\r\n" + PLAIN + b"\r\n", 2, id="empty lines before the first"),
        pytest.param("a.JSONL", PLAIN + b"\n" + PLAIN + b"\n", 2, id="the extension in capitals"),
    ],
)
def test_content_and_extension_tell_requests_apart(tmp_path: Path, name: str, content: bytes, requests: int) -> None:
    assert json.loads(run("compact", written(tmp_path, content, name), "--json").stdout)["requests"] == requests
    assert json.loads(run("compact", "-", "--json", stdin=content).stdout)["requests"] == requests


def test_an_unreadable_line_is_passed_on_and_the_rest_is_done(tmp_path: Path) -> None:
    lines = [REPEATS, b"", b'{"messages": [}', UNCLEAR, REPEATS, b"17", b"\xff"]
    path, out = written(tmp_path, b"\n".join(lines), "many.jsonl"), tmp_path / "out.jsonl"
    result = run("compact", path, "-o", out, "--json")
    assert out.read_bytes() == b"\n".join(SHORTER if line == REPEATS else line for line in lines)
    assert result.exit_code == 2
    said = result.stderr.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in said] == [f"{path} line {n}" for n in (3, 6, 7)]
    assert "line 3: column 15: not valid JSON" in said[0]
    figures = json.loads(result.stdout)
    assert (figures["requests"], figures["strategies"]["dedup"]["hits"]) == (3, 2)
    assert [left["position"] for left in figures["left_as_it_came"]] == ["line 3", "line 6", "line 7"]
    assert "Unreadable, not rewritten: 3." in run("compact", path).stdout


@pytest.mark.slow
def test_forty_megabytes_are_rewritten_without_counting_their_tokens(tmp_path: Path) -> None:
    filler = (f'{{"role":"user","content":"{number:09}{"x" * 1_000_000}"}},'.encode() for number in range(40))
    template = BODY.replace(b'[{"role":"user"', b"[" + b"".join(filler) + b'{"role":"user"', 1)
    path, out = written(tmp_path, template.replace(b"@@", TOKEN)), tmp_path / "out.json"
    result = run("compact", path, "-o", out, "--json")
    figures = json.loads(result.stdout)
    assert figures["tokens"] == {"before": None, "after": None}
    assert figures["strategies"]["dedup"]["tokens"] > 0
    assert len(out.read_bytes()) == len(template) - len(b"@@") + len(MARKER)
    assert ibidem.expand(out.read_bytes()) == path.read_bytes()
    assert "not counted" in run("compact", path).stdout


# --- where things go ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "request_to", "figures_to"),
    [
        pytest.param([], None, "stdout", id="figures alone go to standard output"),
        pytest.param(["--json"], None, "stdout", id="figures as JSON too"),
        pytest.param(["-o", "OUT"], "OUT", "stderr", id="with a file they give way to it"),
        pytest.param(["-o", "OUT", "--json"], "OUT", "stdout", id="as JSON they stay on standard output"),
        pytest.param(["-o", "-"], "stdout", "stderr", id="a request on standard output stands alone"),
        pytest.param(["-o", "-", "--json"], "stdout", "stderr", id="even when figures are JSON"),
    ],
)
def test_destinations(tmp_path: Path, args: list[str], request_to: str | None, figures_to: str) -> None:
    path, out = written(tmp_path, REPEATS), tmp_path / "out.json"
    result = run("compact", path, *(str(out) if arg == "OUT" else arg for arg in args))
    streams = {"stdout": result.stdout, "stderr": result.stderr}
    assert "dedup" in streams.pop(figures_to)
    assert streams == ({"stdout": SHORTER.decode()} if request_to == "stdout" else dict.fromkeys(streams, ""))
    assert out.exists() == (request_to == "OUT")
    assert not out.exists() or out.read_bytes() == SHORTER


def test_a_file_may_be_its_own_output(tmp_path: Path) -> None:
    for name, content in (("a.json", REPEATS), ("a.jsonl", (REPEATS + b"\n") * 3)):
        path = written(tmp_path, content, name)
        assert run("compact", path, "-o", path).exit_code == 0
        assert path.read_bytes() == content.replace(REPEATS, SHORTER)
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.jsonl"]


def test_a_failed_run_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    out = written(tmp_path, b"kept", "out.json")
    the_error(run("compact", written(tmp_path, b"{"), "-o", out))
    assert out.read_bytes() == b"kept"
    assert sorted(os.listdir(tmp_path)) == ["out.json", "request.json"]


@pytest.mark.skipif(os.name == "nt", reason="links and modes of another kind")
def test_a_replaced_file_keeps_its_mode_and_the_links_to_it(tmp_path: Path) -> None:
    out, link = written(tmp_path, b"old", "out.json"), tmp_path / "link.json"
    out.chmod(0o640)
    link.symlink_to(out)
    assert run("compact", written(tmp_path, REPEATS), "-o", link).exit_code == 0
    assert (link.is_symlink(), out.read_bytes(), stat.S_IMODE(out.stat().st_mode)) == (True, SHORTER, 0o640)


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no such device")
def test_a_device_is_written_to_not_replaced(tmp_path: Path) -> None:
    assert run("compact", written(tmp_path, REPEATS), "-o", "/dev/null").exit_code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


# --- figures ------------------------------------------------------------------------------------


def test_figures_as_json(tmp_path: Path) -> None:
    path = written(tmp_path, REPEATS)
    count = ibidem.tokens.counter_for()
    assert json.loads(run("compact", path, "--json").stdout) == {
        "file": str(path),
        "format": "anthropic",
        "profile": "lossless",
        "requests": 1,
        "messages": 3,
        "bytes": {"before": len(REPEATS), "after": len(SHORTER)},
        "tokens": {"before": count(REPEATS.decode()), "after": count(SHORTER.decode())},
        "strategies": {
            "dedup": {
                "hits": 1,
                "bytes": len(json.loads(TOKEN)) - len(json.loads(MARKER)),
                "tokens": count(json.loads(TOKEN)) - count(json.loads(MARKER)),
            },
            **{name: {"hits": 0, "bytes": 0, "tokens": 0} for name in ("spans", "shapes", "fields")},
        },
        "left_as_it_came": [],
        "sent_in_full": [],
    }


@pytest.mark.parametrize("profile", ibidem.PROFILES)
def test_every_strategy_of_a_profile_has_its_figures(profile: str) -> None:
    figures = json.loads(run("compact", "--profile", profile, "--json").stdout)
    assert figures["profile"] == profile
    assert list(figures["strategies"]) == strategy_labels(ibidem.PROFILES[profile])
    assert figures["messages"] == 29


def test_the_table_shows_messages_that_went() -> None:
    rows = [line.split() for line in run("compact", "--profile", "codetether-all").stdout.splitlines()]
    (messages,) = (row for row in rows if row[:1] == ["messages"])
    assert int(messages[1]) == 29 > int(messages[2])


def test_figures_of_several_formats_name_them_all(tmp_path: Path) -> None:
    chat = b'{"messages":[{"role":"user","content":"hi"}],"logprobs":true,"max_completion_tokens":1}'
    gemini = b'{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}'
    path = written(tmp_path, b"\n".join([gemini, PLAIN, gemini]), "many.jsonl")
    assert json.loads(run("compact", path, "--json").stdout)["format"] == "gemini, anthropic"
    named = written(tmp_path, chat)
    assert json.loads(run("compact", named, "--format", "openai-chat", "--json").stdout)["format"] == "openai-chat"


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["20", "60", "120"])
def test_the_table_is_clean_at_any_width(columns: str) -> None:
    shown = process("compact", env={"COLUMNS": columns}).stdout.decode()
    assert shown.startswith("No file given. Using the bundled sample conversation.\n")
    assert "\x1b" not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())
    saved = ibidem.compact((SAMPLES / "conversation.json").read_bytes()).stats.strategies["dedup"]
    assert f"dedup           {saved.hits}    {saved.bytes:,}      {saved.tokens}" in shown


@pytest.mark.slow
def test_colour_is_for_those_who_want_it(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN + b"\nbroken\n", "many.jsonl")
    yellow = b"\x1b[33m"
    assert yellow in process("compact", path, env={"FORCE_COLOR": "1"}).stdout
    assert yellow not in process("compact", path, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


# --- the sample ---------------------------------------------------------------------------------


def test_the_sample_is_valid_and_saves_something(tmp_path: Path) -> None:
    out = tmp_path / "sample.json"
    result = run("compact", "-o", out, "--json")
    assert result.stderr == "No file given. Using the bundled sample conversation.\n"
    figures = json.loads(result.stdout)
    assert figures["messages"] >= 12
    assert figures["strategies"]["dedup"]["hits"] >= 2
    assert figures["bytes"]["after"] < figures["bytes"]["before"] < 20_480
    assert "@" not in out.read_text().replace("@dataclass", "").replace("@classmethod", "")
    assert run("validate", out).stdout == f"{out}: no violations in 1 request\n"


# --- validate -----------------------------------------------------------------------------------

FIRST = "messages[0]: The first message must be the user's, not 'assistant'. [first-is-user]"
LAST = "messages[0]: The last message must not be the assistant's. [last-is-not-assistant]"


@pytest.mark.parametrize(
    ("name", "content", "code", "lines"),
    [
        pytest.param("a.json", PLAIN, 0, [": no violations in 1 request"], id="nothing to say against it"),
        pytest.param("a.json", REFUSED, 1, [f": {FIRST}", f": {LAST}", ": 2 violations in 1 request"], id="refused"),
        pytest.param(
            "a.jsonl",
            PLAIN + b"\n\n" + REFUSED,
            1,
            [f" line 3: {FIRST}", f" line 3: {LAST}", ": 2 violations in 2 requests"],
            id="lines are counted with the empty ones",
        ),
        pytest.param(
            "a.jsonl",
            b"nonsense\n" + REFUSED,
            2,
            [f" line 2: {FIRST}", f" line 2: {LAST}", ": 2 violations in 1 request, 1 unreadable"],
            id="an unreadable line outranks violations",
        ),
    ],
)
def test_validate(tmp_path: Path, name: str, content: bytes, code: int, lines: list[str]) -> None:
    path = written(tmp_path, content, name)
    result = run("validate", path)
    assert result.stdout.splitlines() == [f"{path}{line}" for line in lines]
    assert result.exit_code == code
    assert ("ibidem: " in result.stderr) == (code == 2)


def test_validate_as_json(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN + b"\n" + REFUSED, "many.jsonl")
    found = json.loads(run("validate", path, "--json").stdout)
    assert [finding["rule"] for finding in found] == ["first-is-user", "last-is-not-assistant"]
    position, _, message = FIRST.removesuffix(" [first-is-user]").partition(": ")
    assert found[0] == {
        "file": str(path),
        "line": 2,
        "rule": "first-is-user",
        "position": position,
        "message": message,
    }
    single = json.loads(run("validate", "-", "--json", stdin=REFUSED).stdout)
    assert (single[0]["file"], single[0]["line"]) == ("standard input", None)
    assert json.loads(run("validate", "-", "--json", stdin=PLAIN).stdout) == []


def test_validate_takes_the_format_it_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, UNCLEAR)
    assert run("validate", path, "--format", "openai-chat").exit_code == 0


# --- as a process -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "content", "code"),
    [
        pytest.param(["compact", "-"], REPEATS, 0, id="compact"),
        pytest.param(["validate", "-"], PLAIN, 0, id="no violations"),
        pytest.param(["validate", "-"], REFUSED, 1, id="violations"),
        pytest.param(["validate", "-"], b"{", 2, id="unreadable"),
        pytest.param(["validate"], b"", 2, id="usage"),
    ],
)
def test_exit_codes(args: list[str], content: bytes, code: int) -> None:
    done = process(*args, input=content)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == (code == 2)
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["output is buffered", "output is not buffered"])
def test_a_reader_that_goes_ends_it_quietly(tmp_path: Path, unbuffered: str) -> None:
    path = written(tmp_path, REPEATS.replace(b'"s"', b'"' + b"s" * 1_000_000 + b'"'))
    command = [sys.executable, "-m", "ibidem.cli", "compact", str(path), "-o", "-"]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stderr
        assert running.stdout.read(10) == path.read_bytes()[:10]
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 141


def interrupted(running: subprocess.Popen[bytes]) -> int:
    """Its exit code. Python notes a signal that comes just before it waits for input only when it has waited, so that
    one has to be sent again, as a person would."""
    for _ in range(12):
        running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return running.wait(5)
    raise AssertionError("it goes on")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="interrupts of another kind")
def test_an_interrupt_leaves_everything_as_it_was(tmp_path: Path) -> None:
    out = written(tmp_path, b"kept", "out.jsonl")
    command = [sys.executable, "-m", "ibidem.cli", "compact", "-", "-o", str(out)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write(REPEATS + b"\nbroken\n")
        running.stdin.flush()
        assert b"standard input line 2" in running.stderr.readline()  # so it is at work, and waits for more
        assert interrupted(running) == 130
        assert running.stderr.read().strip() == b""
    assert out.read_bytes() == b"kept"
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize(
    "args", [["compact"], ["compact", "-o", "-"], ["--help"]], ids=["figures", "a request", "help"]
)
def test_a_full_disk_is_an_error_like_any_other(args: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "ibidem.cli", *args]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(b"ibidem: standard output: the disk is full")
    assert b"Exception" not in done.stderr


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        pytest.param("import ibidem", {"click", "rich"}, id="the library needs no command line"),
        pytest.param("from ibidem.cli import main", {"rich"}, id="the command line needs no tables until one is drawn"),
    ],
)
def test_imports_are_paid_for_when_they_are_needed(code: str, absent: set[str]) -> None:
    shown = subprocess.check_output([sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], text=True)
    assert absent.isdisjoint(shown.split())


HEAVY = (
    "aiohttp",
    "asyncio",
    "backports",
    "genai_prices",
    "ibidem.wire",
    "msgspec",
    "pydantic",
    "rich",
    "splintr",
    "ssl",
)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_no_command_is_loaded_to_tell_the_version_or_to_list_them(option: str) -> None:
    code = (
        f"import sys, atexit; sys.argv[1:] = [{option!r}]\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from ibidem.cli import launch; launch()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stderr.split())
    assert not loaded.intersection(HEAVY)
    assert not {name for name in loaded if name.startswith("ibidem.")} - {
        *("ibidem.cli", "ibidem.cli.root_group", "ibidem.cli.command_errors", "ibidem.errors")
    }


def test_the_list_of_commands_says_of_each_what_it_says_of_itself() -> None:
    context = click.Context(main)
    for name, (_, about) in COMMANDS.items():
        found = main.get_command(context, name)
        assert found is not None
        assert (found.name, found.short_help) == (name, about)
    assert list(COMMANDS) == main.list_commands(context)
    assert main.get_command(context, "no-such") is None


def test_a_misspelled_command_gets_a_suggestion() -> None:
    assert the_error(run("reprot")) == "No such command 'reprot'. Did you mean 'report'? (see ibidem --help)"
