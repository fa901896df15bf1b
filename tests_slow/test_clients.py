"""Claude Code and Codex themselves, through `ibidem wrap`, against a scripted provider on loopback.

They are installed from npm, which takes a while and half a gigabyte: set IBIDEM_TEST_CLIENTS to a folder to keep them.

    python -m pytest tests_slow
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ibidem
from ibidem.testing import Answer, Calls, Says, Seen, Thinks, Upstream, by_turn

from .conftest import Tally
from .default_clients import codex_exec

PATIENCE = 300
SHOWN = ("cat a.py", "head -n 140 a.py", "tail -n 140 a.py")
"""Who asks for the very same thing again gets it in full again, so each of these is another."""
END = "All files were looked at."
FILE = "".join(
    f"def function_{number}(argument): return argument * {number}  # line {number}\n" for number in range(150)
)

QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    seen: list[Seen]
    log: list[dict[str, Any]]


def run(upstream: Upstream, tmp_path: Path, programs: Path, *command: str, **variables: str) -> Ended:
    """In a folder and a home of its own, with nothing of this machine's but the programs."""
    home, project, log = tmp_path / "home", tmp_path / "project", tmp_path / "log.jsonl"
    for folder in (home, project):
        folder.mkdir(exist_ok=True)
    (project / "a.py").write_text(FILE)
    wrap = [sys.executable, "-m", "ibidem.cli", "wrap", "--json-log", str(log), "--store", "memory:"]
    for provider in ("anthropic", "openai", "vertex", "bedrock"):
        wrap += ["--upstream", f"{provider}={upstream.url}"]
    paths = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    own = {"PATH": paths, "HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    ended = subprocess.run(
        [*wrap, "--", *command],
        cwd=project,
        env={**own, **QUIET, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    lines = log.read_text().splitlines() if log.exists() else []
    asked = [each for each in upstream.seen if each.method == "POST"]
    return Ended(ended.returncode, ended.stdout, ended.stderr, asked, [json.loads(line) for line in lines])


def rewritten(seen: list[Seen], format: str) -> float:
    """Every turn came, later ones with what stood above said once, and all of it can be had back; the share saved."""
    last = seen[-1].text.decode()
    whole = ibidem.expand(last, format=format)
    assert "[ibidem " in last
    assert whole.count("def function_77(argument)") == 3
    assert last.count("def function_77(argument)") == 1
    assert len(last) < len(whole) - 1.5 * len(FILE)
    assert ibidem.compact(whole, format=format).request == last
    for before, after in pairwise(seen):
        key = ibidem.formats.format_named(format).history_key
        assert len(after.json[key]) > len(before.json[key])
    return 1 - len(last) / len(whole)


def look(tmp_path: Path) -> Callable[[Seen], Answer]:
    read = Calls(("Read", {"file_path": str(tmp_path / "project" / "a.py")}), says="Let me look.")
    more = [Calls(("Bash", {"command": command, "description": "Show the file"})) for command in SHOWN[1:]]
    talk = by_turn([Thinks("First the file.", then=read), *more, Says(END)])

    def script(seen: Seen) -> Answer:
        """Requests on the side, for a title or the like, come without tools."""
        return talk(seen) if seen.json.get("tools") else Says("ok")

    return script


ASKED = ("-p", "Look at a.py, three times.", "--output-format", "json", "--allowedTools", "Read,Bash")


def looked(tmp_path: Path, programs: Path, **variables: str) -> tuple[Ended, list[Seen]]:
    """Claude Code came to its end; and the turns of its conversation."""
    with Upstream(look(tmp_path)) as upstream:
        named = {name: text.replace("{url}", upstream.url) for name, text in variables.items()}
        ended = run(upstream, tmp_path, programs, "claude", *ASKED, **named)
    assert ended.code == 0, ended
    told = json.loads(ended.out)
    assert (told["result"], told["is_error"], told["num_turns"]) == (END, False, 4)
    return ended, [each for each in ended.seen if each.json.get("tools") and "count" not in each.path]


def test_claude_code(tmp_path: Path, programs: Path, tally: Tally) -> None:
    ended, turns = looked(tmp_path, programs, ANTHROPIC_API_KEY="sk-ant-opens-nothing")
    assert {each.path for each in turns} == {"/v1/messages"}
    assert len(turns) == 4
    tally("claude code, wrap", requests=len(turns), fewer_bytes=f"{rewritten(turns, 'anthropic'):.0%}")
    assert all(each.header("x-api-key") == "sk-ant-opens-nothing" for each in turns)
    assert {each["outcome"] for each in ended.log if each["edits"]} == {"rewritten"}
    assert "ibidem" in ended.err.splitlines()[-1]


def test_claude_code_on_vertex(tmp_path: Path, programs: Path) -> None:
    """A region may be set for one model: the path says which it is. The billing line has a checksum (`cch`), so that
    requests are forwarded unchanged, and `wrap` says so before the session and at its end."""
    ended, turns = looked(
        tmp_path,
        programs,
        CLAUDE_CODE_USE_VERTEX="1",
        CLAUDE_CODE_SKIP_VERTEX_AUTH="1",
        ANTHROPIC_VERTEX_PROJECT_ID="project",
        CLOUD_ML_REGION="global",
        ANTHROPIC_MODEL="claude-sonnet-4-5@20250929",
        VERTEX_REGION_CLAUDE_4_5_SONNET="europe-west1",
    )
    models = "/v1/projects/project/locations/europe-west1/publishers/anthropic/models"
    assert {each.path for each in turns} == {f"{models}/claude-sonnet-4-5@20250929:streamRawPredict"}
    assert all("model" not in each.json for each in turns)
    assert all("cch=" in each.json["system"][0]["text"] for each in turns)
    assert not any(b"[ibidem " in each.body for each in turns)
    assert {(each["outcome"], each["edits"]) for each in ended.log} == {("unchanged", 0)}
    assert all(each["paid"] for each in ended.log)
    said = [line for line in ended.err.splitlines() if line.startswith("ibidem: ")]
    assert len(said) == 2
    assert all("checksum" in line for line in said)


@pytest.mark.parametrize("signs", ["a token", "nothing"])
def test_claude_code_on_bedrock_without_a_signature(tmp_path: Path, programs: Path, signs: str) -> None:
    own = {"AWS_BEARER_TOKEN_BEDROCK": "x"} if signs == "a token" else {"CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1"}
    ended, turns = looked(tmp_path, programs, CLAUDE_CODE_USE_BEDROCK="1", AWS_REGION="us-east-1", **own)
    assert all(each.path.endswith("/invoke-with-response-stream") for each in turns)
    rewritten(turns, "anthropic")
    told = [each for each in ended.log if each["edits"]]
    assert {each["outcome"] for each in told} == {"rewritten"}
    assert all(each["paid"] for each in told)


def test_claude_code_on_bedrock_with_credentials_goes_where_it_went(tmp_path: Path, programs: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "x", "ANTHROPIC_BEDROCK_BASE_URL": "{url}"}
    ended, turns = looked(tmp_path, programs, CLAUDE_CODE_USE_BEDROCK="1", AWS_REGION="us-east-1", **keys)
    assert all((each.header("authorization") or "").startswith("AWS4-HMAC-SHA256 ") for each in turns)
    assert not any(b"[ibidem " in each.body for each in turns)
    assert ended.log == []


def test_codex(tmp_path: Path, programs: Path, tally: Tally) -> None:
    calls = [Calls(codex_exec(command)) for command in SHOWN]
    with Upstream(by_turn([*calls, Says(END)])) as upstream:
        asked = ["exec", "--skip-git-repo-check", "--json", "Look at a.py, three times."]
        ended = run(upstream, tmp_path, programs, "codex", *asked, CODEX_API_KEY="sk-opens-nothing")
    assert ended.code == 0, ended
    events = [json.loads(line) for line in ended.out.splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["type"] for item in items] == ["command_execution"] * 3 + ["agent_message"]
    assert items[-1]["text"] == END
    turns = [each for each in ended.seen if each.path == "/v1/responses"]
    assert len(turns) == 4
    tally("codex, wrap", requests=len(turns), fewer_bytes=f"{rewritten(turns, 'openai-responses'):.0%}")
    assert "exec(cat a.py)" in turns[-1].text.decode(), "the reference names the command, not the script around it"
    assert all(each.header("authorization") == "Bearer sk-opens-nothing" for each in turns)
    assert {each["outcome"] for each in ended.log if each["edits"]} == {"rewritten"}
    assert "ibidem" in ended.err.splitlines()[-1]
    assert "ERROR" not in ended.err, "that it had to use HTTP is no error"
    settings = tmp_path / "home" / ".codex" / "config.toml"
    assert not settings.exists() or "base_url" not in settings.read_text()


def test_what_a_client_exits_with_is_what_wrap_exits_with(tmp_path: Path, programs: Path) -> None:
    with Upstream() as upstream:
        ended = run(upstream, tmp_path, programs, "codex", "no-such-command", "--and-no-such-flag")
    assert ended.code == 2
    assert ended.seen == []
