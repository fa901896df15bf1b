"""`ibidem detach`: a conversation continues without Ibidem, and nothing is lost when something is in the way."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ibidem
from ibidem import recordings
from ibidem.cli import main, running_clients
from ibidem.cli.detach import detach_advice
from ibidem.cli.running_clients import PROGRAMS, Process, is_client, list_processes
from ibidem.testing import Calls, Says, Signing, Thinks, Upstream
from ibidem.testing.signing import has_valid_thinking
from tests.recordings import pi
from tests.recordings.claude_code import Script, call, result, text
from tests.recordings.codex import EXAMPLES as CODEX
from tests.recordings.examples import lines
from tests.recordings.opencode import EXAMPLES as OPENCODE
from tests.support.signed import Agent, thinks

from .test_report import empty_home

ID = "5f0a1d2e-1111-4222-8333-444455556666"
OTHER = "6f0a1d2e-1111-4222-8333-444455556666"
SIGNING, EARLIER = "claude-opus-5-5", "claude-opus-4-6"
PROJECT = "/home/me/shop"
LONG_AGO = 1_700_000_000
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}
DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing runs."""
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    monkeypatch.setattr(running_clients, "PROC", folder)
    return folder


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["detach", *map(str, args)], catch_exceptions=False)


def told(*args: str | Path) -> list[str]:
    found = run(*args)
    assert (found.exit_code, found.stderr) == (0, "")
    return found.stdout.splitlines()


def error(*args: str | Path) -> str:
    """The one line that says why nothing was done."""
    found = run(*args)
    assert (found.exit_code, found.stdout) == (2, "")
    (line,) = found.stderr.splitlines()
    return line.removeprefix("ibidem: ")


def claude_rows(session: str = ID, model: str = SIGNING, **fields: Any) -> list[dict[str, Any]]:
    s = Script(sessionId=session, cwd=PROJECT, **fields)
    rows = [s.user("Begin"), s.answer("m1", THOUGHT), s.answer("m1", call("t1")), s.user([result("t1")])]
    rows += [s.answer("m2", THOUGHT), s.answer("m2", text("Done"))]
    return [signed(row, model) for row in rows]


def signed(row: dict[str, Any], model: str = SIGNING) -> dict[str, Any]:
    return {**row, "message": {**row["message"], "model": model}} if row["type"] == "assistant" else row


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def log(home: Path) -> Path:
    return written(home / ".claude" / "projects" / "-home-me-shop" / f"{ID}.jsonl", lines(*claude_rows()))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ── what it is for ──────────────────────────────────────────────────────────────────────────────────────────────────


def conversation(*, rewritten: bool) -> list[dict[str, Any]]:
    """Messages whose thinking was signed over what was sent, with Ibidem or without."""
    agent, session = Agent(outputs=2, model=SIGNING), ibidem.Session()
    sent = ""
    signing = Signing(thinks)
    with Upstream(signing) as provider:
        for _ in range(6):
            sent = json.dumps(session.compact(agent.body).request if rewritten else agent.body)
            headers = {"x-api-key": "none", "content-type": "application/json"}
            request = urllib.request.Request(f"{provider.url}/v1/messages", sent.encode(), headers)
            with urllib.request.urlopen(request) as response:
                agent.hear(json.load(response)["content"])
    assert signing.refused == 0
    assert ("[ibidem " in sent) == rewritten
    messages: list[dict[str, Any]] = agent.body["messages"]
    return messages


def logged(messages: list[dict[str, Any]]) -> bytes:
    """As Claude Code logs it: one row per block."""
    s, rows = Script(sessionId=ID, cwd=PROJECT), []
    for number, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == "assistant":
            rows += [signed(s.answer(f"m{number}", block)) for block in blocks]
        else:
            rows += [s.user([block]) for block in blocks] or [s.user(message["content"])]
    return lines(*rows)


def resumed(path: Path) -> list[Any]:
    """The messages that a client sends that continues from this log."""
    (session,) = recordings.read(str(path), path.read_bytes())
    messages: list[Any] = list(session.requests())[-1].body["messages"]
    return messages


def test_the_provider_accepts_a_detached_conversation_that_ibidem_rewrote(log: Path) -> None:
    messages = conversation(rewritten=True)
    written(log, logged(messages))
    before = resumed(log)
    assert before == messages[: len(before)]
    assert not has_valid_thinking({"messages": before})
    assert told(ID)[0] == f"Removed 6 thinking blocks from session {ID} (Claude Code)."
    after = resumed(log)
    assert has_valid_thinking({"messages": after})
    blocks = [block for message in before if message["role"] == "assistant" for block in message["content"]]
    left = [block for message in after if message["role"] == "assistant" for block in message["content"]]
    assert left == [block for block in blocks if block["type"] != "thinking"]
    assert len(left) < len(blocks)


def test_the_provider_accepts_a_conversation_that_nobody_rewrote(log: Path) -> None:
    """So it is the rewriting that the test above is about."""
    written(log, logged(conversation(rewritten=False)))
    assert has_valid_thinking({"messages": resumed(log)})


# ── what it says and does ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["the id", "its beginning", "the path"])
def test_it_removes_thinking_and_says_what_that_means(log: Path, how: str) -> None:
    named = {"the id": ID, "its beginning": ID[:6], "the path": str(log)}[how]
    before = log.read_bytes()
    backup = log.with_name(f"{ID}.jsonl.ibidem-backup")
    assert told(named) == [
        f"Removed 2 thinking blocks from session {ID} (Claude Code).",
        f"Backup: {backup}",
        "The model no longer sees its earlier thinking in this conversation. Everything else stays.",
        f"You can now continue without Ibidem: claude --resume {ID}",
        f"To undo this before you continue: ibidem detach --undo {named}",
    ]
    assert backup.read_bytes() == before
    left = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert [(row["uuid"], row["parentUuid"]) for row in left] == [
        ("u1", None),
        ("u3", "u1"),
        ("u4", "u3"),
        ("u6", "u4"),
    ]


def test_a_dry_run_changes_nothing(log: Path) -> None:
    before = contents(log.parent)
    assert told("--dry-run", ID) == [
        f"Would remove 2 thinking blocks from session {ID} (Claude Code):",
        f"  2 in {log}",
        "Nothing was changed.",
    ]
    assert contents(log.parent) == before


def test_undo_restores_the_log(log: Path) -> None:
    before = contents(log.parent)
    told(ID)
    assert contents(log.parent) != before
    assert told("--undo", ID) == [
        f"Restored its log of session {ID} (Claude Code). This conversation continues only with Ibidem."
    ]
    assert contents(log.parent) == before
    assert error("--undo", ID) == f"{log}: there is no backup. Nothing was changed."


def test_undo_refuses_once_the_conversation_continued(log: Path) -> None:
    told(ID)
    with log.open("ab") as file:
        file.write(b'{"type":"user"}\n')
    os.utime(log, (LONG_AGO + 9, LONG_AGO + 9))
    before = contents(log.parent)
    assert "the conversation continued after it was detached" in error("--undo", ID)
    assert contents(log.parent) == before


def test_a_second_time_there_is_nothing_to_do(log: Path) -> None:
    told(ID)
    before = contents(log.parent)
    (line,) = told(ID)
    assert line.startswith(f"session {ID} (Claude Code): its log has no thinking. Nothing was changed.")
    assert contents(log.parent) == before


def test_models_that_do_not_sign_need_nothing(log: Path) -> None:
    written(log, lines(*claude_rows(model=EARLIER)))
    before = contents(log.parent)
    for options in ((), ("--dry-run",)):
        (line,) = told(*options, ID)
        assert "its models do not sign thinking over the history. Nothing was changed." in line
    assert contents(log.parent) == before


def test_options_exclude_each_other(log: Path) -> None:
    assert "--dry-run and --undo exclude each other" in error("--dry-run", "--undo", ID)


# ── logs of subagents ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def subagents(log: Path) -> list[Path]:
    """One in a folder of the session, one beside the log as in older releases, and one of another session."""
    own, older, strange = (
        lines(*claude_rows(session, isSidechain=True, agentId=name))
        for session, name in ((ID, "a1"), (ID, "a2"), (OTHER, "a3"))
    )
    return [
        written(log.with_suffix("") / "subagents" / "agent-a1.jsonl", own),
        written(log.with_name("agent-a2.jsonl"), older),
        written(log.with_name("agent-a3.jsonl"), strange),
    ]


def test_logs_of_subagents_are_detached_with_the_session(log: Path, subagents: list[Path]) -> None:
    before = contents(log.parent)
    printed = told(ID)
    assert printed[0] == f"Removed 6 thinking blocks in 3 logs from session {ID} (Claude Code)."
    assert len([line for line in printed if line.startswith("Backup: ")]) == 3
    for path in (log, *subagents[:2]):
        assert b'"thinking"' not in path.read_bytes()
    assert b'"thinking"' in subagents[2].read_bytes()
    assert told("--undo", ID)[0].startswith("Restored 3 logs of session")
    assert contents(log.parent) == before


def test_undo_restores_only_what_the_last_run_changed(log: Path, subagents: list[Path]) -> None:
    told(ID)
    detached = subagents[0].read_bytes()
    written(log, lines(*claude_rows()))
    assert told(ID)[0] == f"Removed 2 thinking blocks from session {ID} (Claude Code)."
    told("--undo", ID)
    assert log.read_bytes() == lines(*claude_rows())
    assert subagents[0].read_bytes() == detached


def test_the_log_of_a_subagent_can_be_named_itself(log: Path, subagents: list[Path]) -> None:
    shutil.copy2(subagents[1], log.with_name("agent-a4.jsonl"))
    before = contents(log.parent)
    told(subagents[1])
    after = contents(log.parent)
    assert {name for name in after if after[name] != before.get(name)} == {
        "agent-a2.jsonl",
        "agent-a2.jsonl.ibidem-backup",
    }


def test_if_one_log_fails_none_is_changed(log: Path, subagents: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before, usual = contents(log.parent), os.fsync
    left = [2]  # of the new logs of the subagents

    def full(descriptor: int) -> None:
        if os.path.isdir(f"/dev/fd/{descriptor}"):
            return
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "no space left")
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    found = error(ID)
    assert found == f"{log}: the disk is full: make room and run again (nothing was changed)"
    assert contents(log.parent) == before


# ── other agents ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pi_is_detached_too(home: Path) -> None:
    rows = [
        pi.HEADER,
        pi.entry(1, None, message=pi.user("Go")),
        pi.entry(2, 1, message=pi.answer(pi.THOUGHT, "Ah", model=SIGNING)),
    ]
    path = written(home / ".pi" / "agent" / "sessions" / "--home-me-shop--" / f"2026_{ID}.jsonl", lines(*rows))
    printed = told(ID)
    assert printed[0] == "Removed 1 thinking block from session s (pi)."
    assert printed[3] == "You can now continue without Ibidem: pi --session s"
    assert b'"thinking"' not in path.read_bytes()
    told("--undo", ID)
    assert path.read_bytes() == lines(*rows)


def test_agents_whose_models_do_not_sign_need_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "rollout.jsonl", CODEX[0].data)
    (line,) = told(path)
    assert line.endswith("(codex): its models do not sign thinking over the history. You can continue without Ibidem.")


def test_agents_whose_logs_cannot_be_edited_say_so(tmp_path: Path) -> None:
    data = OPENCODE[0].data.replace(b'"modelID": "model-a"', f'"modelID": "{SIGNING}"'.encode())
    path = written(tmp_path / "export.json", data)
    models = recordings.read(str(path), data)[0].models
    assert SIGNING in models, models
    found = error(path)
    assert "(opencode): the logs of this agent cannot be edited. Start a new conversation" in found
    assert path.read_bytes() == data


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def process(
    proc: Path, pid: int, *words: str, name: str = "", cwd: str = "/", opened: Path | None = None, flags: int = 1
) -> None:
    folder = proc / str(pid)
    for each in ("fd", "fdinfo"):
        (folder / each).mkdir(parents=True)
    (folder / "comm").write_text((name or Path(words[0]).name) + "\n")
    (folder / "cmdline").write_bytes("\0".join([*words, ""]).encode())
    (folder / "cwd").symlink_to(cwd)
    if opened is not None:
        (folder / "fd" / "7").symlink_to(opened)
        (folder / "fdinfo" / "7").write_text(f"pos:\t0\nflags:\t0{flags:o}\n")


def registered(home: Path, pid: int, session: str = ID) -> None:
    folder = home / ".claude" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{pid}.json").write_text(json.dumps({"pid": pid, "sessionId": session}))
    (folder / "broken.json").write_text("{")


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
NODE = "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"


@linux
@pytest.mark.parametrize(
    ("words", "cwd", "why"),
    [
        (("claude",), PROJECT, "Claude Code (pid 7) is running in this project. Quit it first."),
        (("/opt/claude.exe", "-p", "x"), PROJECT, "Claude Code (pid 7) is running in this project. Quit it first."),
        (("node", "--no-warnings", NODE), PROJECT, "Claude Code (pid 7) is running in this project. Quit it first."),
        (("claude", "--resume", ID), "/", "Claude Code (pid 7) is running with this conversation. Quit it first."),
        (("claude",), "/", ""),
        (("node", "server.js"), PROJECT, ""),
        (("grep", "claude"), PROJECT, ""),
        (("vim", ID), PROJECT, ""),
        (("pi",), PROJECT, ""),
    ],
)
def test_it_refuses_while_the_client_runs(log: Path, proc: Path, words: tuple[str, ...], cwd: str, why: str) -> None:
    process(proc, 7, *words, cwd=cwd)
    before = contents(log.parent)
    if not why:
        assert told(ID)[0].startswith("Removed 2")
        return
    assert error(ID) == f"session {ID} (Claude Code): {why} Nothing was changed."
    assert contents(log.parent) == before
    assert told("--dry-run", ID)[0].startswith("Would remove 2")


@linux
def test_undo_refuses_while_the_client_runs(log: Path, proc: Path) -> None:
    told(ID)
    before = contents(log.parent)
    process(proc, 7, "claude", cwd=PROJECT)
    assert "is running in this project" in error("--undo", ID)
    assert contents(log.parent) == before


@linux
def test_the_folder_of_the_log_tells_the_project_where_the_log_does_not(log: Path, proc: Path) -> None:
    written(log, re.sub(rb', "cwd": "[^"]*"', b"", lines(*claude_rows())))
    process(proc, 7, "claude", cwd=PROJECT)
    assert "is running in this project" in error(ID)


@linux
def test_claude_code_lists_its_sessions(log: Path, proc: Path, home: Path) -> None:
    process(proc, 7, "claude", cwd="/")
    process(proc, 8, "bash", cwd="/")
    registered(home, 8)
    registered(home, 9)
    registered(home, 7, OTHER)
    assert told("--dry-run", ID)
    told(ID)
    told("--undo", ID)
    registered(home, 7)
    assert "Claude Code (pid 7) is running with this conversation" in error(ID)


@linux
@pytest.mark.parametrize("flags", [os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_RDONLY])
def test_it_refuses_while_any_program_has_the_log_open_for_writing(log: Path, proc: Path, flags: int) -> None:
    process(proc, 7, "sync-tool", opened=log, flags=flags)
    if flags == os.O_RDONLY:
        told(ID)
    else:
        assert "sync-tool (pid 7) has the log open. Quit it first." in error(ID)


@linux
def test_a_client_whose_folder_is_hidden_may_be_ours(log: Path, proc: Path) -> None:
    process(proc, 7, "claude")
    (proc / "7" / "cwd").unlink()
    assert "Claude Code (pid 7) is running, and its folder is unknown. Quit it first." in error(ID)


@linux
@pytest.mark.slow
def test_a_real_process_is_seen(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_clients, "PROC", Path("/proc"))
    project, program = tmp_path / "project", tmp_path / "claude"
    project.mkdir()
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    written(log, lines(*claude_rows()).replace(PROJECT.encode(), str(project).encode()))
    with subprocess.Popen([program, "60"], cwd=project) as running:
        try:
            assert f"Claude Code (pid {running.pid}) is running in this project" in error(ID)
        finally:
            running.kill()
    with log.open("ab"):
        assert "has the log open" not in run("--dry-run", ID).stdout
        writing = subprocess.Popen(
            [sys.executable, "-c", "import sys; f = open(sys.argv[1], 'ab'); print(); input()", log],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    try:
        assert writing.stdout is not None
        writing.stdout.readline()
        assert f"(pid {writing.pid}) has the log open" in error(ID)
    finally:
        writing.communicate(b"\n")
    assert told(ID)[0].startswith("Removed 2")


def test_a_log_that_was_just_written_is_left_alone(log: Path) -> None:
    os.utime(log)
    assert re.search(r"The log was written \d s ago\. Quit the client, and run this again after 5 s\.", error(ID))


PS = """\
    1 /sbin/launchd
   70 /opt/homebrew/bin/claude --continue
   71 node /usr/local/bin/pi
   72 tail -f claude
"""


@pytest.mark.skipif(os.name != "posix", reason="asks programs of Unix")
def test_without_proc_other_programs_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers: dict[str, str | None] = {"ps": PS, "lsof": f"p70\nfcwd\nn{PROJECT}\np71\nfcwd\nn/\n"}
    monkeypatch.setattr(running_clients, "PROC", tmp_path / "none")
    monkeypatch.setattr(running_clients, "_output", lambda *command: answers[command[0]])
    known = list_processes()
    assert known is not None
    assert [(each.pid, each.folder) for each in known] == [(70, PROJECT), (71, "/")]
    assert [each.pid for each in known if is_client(each, PROGRAMS["pi"])] == [71]
    answers["lsof"] = None
    assert [each.folder for each in list_processes() or ()] == [None, None]
    answers["ps"] = None
    assert list_processes() is None


def test_where_processes_cannot_be_seen_the_log_has_to_rest_longer(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_clients, "list_processes", lambda: None)
    os.utime(log, (time.time() - 30, time.time() - 30))
    assert "run this again after 60 s" in error(ID)


def test_a_process_without_words_is_no_client() -> None:
    assert not is_client(Process(1, "kthreadd", (), "/"), PROGRAMS["claude-code"])


@pytest.mark.skipif(os.name != "posix", reason="links of another kind")
@pytest.mark.parametrize("what", ["the log", "its folder", "a pipe"])
def test_no_link_is_followed(log: Path, what: str) -> None:
    if what == "a pipe":
        pipe = log.with_name("pipe")
        os.mkfifo(pipe)
        assert "not a regular file" in error(pipe)
        return
    moved = log if what == "the log" else log.parent
    real = moved.with_name("real.jsonl" if what == "the log" else "elsewhere")
    moved.rename(real)
    moved.symlink_to(real)
    before = contents(log.parent)
    assert f"{moved}: a symbolic link" in error(log)
    assert contents(log.parent) == before


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("no-such-session", "no session id in 1 logs on this machine starts with this"),
        ("no/such/file.jsonl", "no such file or folder"),
        ("https://example.com/log.jsonl", "only a log on this machine can be edited"),
    ],
)
def test_what_is_not_there_is_named(log: Path, argument: str, why: str) -> None:
    assert why in error(argument)


def test_a_compressed_log_is_left_alone(home: Path) -> None:
    import gzip

    path = written(home / ".claude" / "projects" / "x" / f"{OTHER}.jsonl.gz", gzip.compress(lines(*claude_rows())))
    before = path.read_bytes()
    assert "not one JSON object per line: decompress it first" in error(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("session", ["\x1b]0;owned\x07\u202e", None], ids=["an id", "the name of the file"])
def test_no_escape_reaches_the_terminal(tmp_path: Path, session: str | None) -> None:
    rows = [{**row, "sessionId": session} for row in claude_rows()]
    path = written(tmp_path / "x" / "\x1b[31mlog.jsonl", lines(*rows))
    printed = [
        CliRunner().invoke(main, ["detach", *words, str(path)], color=True).output  # as a terminal gets it
        for words in (["--dry-run"], [], ["--undo"], ["--undo"])
    ]
    assert "Removed" in printed[1]
    assert "Restored" in printed[2]
    assert all(text.replace("\n", "").isprintable() for text in printed), printed
    assert all("\\x1b" in text for text in (printed[0], printed[1], printed[3]))


# ── wrap ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def state(model: str = SIGNING, removed: int = 5, observe: bool = False) -> dict[str, Any]:
    return {"observe": observe, "conversations": [{"model": model, "removed": removed}]}


@pytest.fixture
def here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the logs of the folder that we are in."""
    monkeypatch.chdir(tmp_path)
    return home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(tmp_path))


def test_wrap_tells_of_detach_if_a_conversation_here_needs_it(here: Path) -> None:
    assert detach_advice(state(), LONG_AGO) == ""
    written(here.with_name("-elsewhere") / f"{OTHER}.jsonl", b"{}")
    assert detach_advice(state(), LONG_AGO) == ""
    written(here / f"{ID}.jsonl", b"{}")
    line = "to continue this conversation without Ibidem, run: ibidem detach"
    assert detach_advice(state(), LONG_AGO) == f"{line} {ID}"
    assert detach_advice(state(), LONG_AGO + 1) == ""
    assert detach_advice(state(model=EARLIER), LONG_AGO) == ""
    assert detach_advice(state(removed=0), LONG_AGO) == ""
    assert detach_advice(state(observe=True), LONG_AGO) == ""
    written(here / f"{OTHER}.jsonl", b"{}")
    assert detach_advice(state(), LONG_AGO) == f"{line} SESSION"


CLIENT = """
import json, os, sys, urllib.request
log, model = sys.argv[1:]
messages = [{"role": "user", "content": "look"}]
for turn in range(3):
    body = json.dumps({"model": model, "max_tokens": 9, "messages": messages}).encode()
    headers = {"x-api-key": "none", "content-type": "application/json"}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body, headers)
    content = json.load(urllib.request.urlopen(request))["content"]
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    text = "\\n".join(f"line {number} of a file that is long enough" for number in range(60)) + f"\\n{turn}"
    results = [{"type": "tool_result", "tool_use_id": call, "content": text} for call in calls]
    messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
os.makedirs(os.path.dirname(log), exist_ok=True)
open(log, "w").close()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="wrap of another kind")
@pytest.mark.parametrize("model", [SIGNING, EARLIER])
def test_wrap_says_it_once_at_the_end(here: Path, tmp_path: Path, model: str) -> None:
    script = Thinks("hm", Calls(("Read", {"file_path": "a.py"})))
    with Upstream(lambda seen: script if seen.json.get("messages") else Says("ok")) as provider:
        wrap = [sys.executable, "-m", "ibidem.cli", "wrap", "--upstream", f"anthropic={provider.url}", "--"]
        command = [*wrap, sys.executable, "-c", CLIENT, str(here / f"{ID}.jsonl"), model]
        variables = {**os.environ, "IBIDEM_BUDGET_MS": "60000"}
        ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stderr.splitlines() if "ibidem detach" in line]
    assert "3 requests" in ended.stderr
    line = f"ibidem: to continue this conversation without Ibidem, run: ibidem detach {ID}"
    assert said == ([line] if model == SIGNING else [])


# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_shows_the_help() -> None:
    shown = CliRunner().invoke(main, ["detach", "--help"], prog_name="ibidem", terminal_width=100).stdout
    assert shown.strip() in (DOCS / "stopping.md").read_text(encoding="utf-8")
