"""The plugin of Claude Code, installed from this clone into the real program, against a scripted provider on loopback.

The program comes from npm; set IBIDEM_TEST_CLIENTS to a folder to keep it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ibidem.cli.hooks import HookServer
from ibidem.proxy.settings import Settings
from ibidem.testing import Answer, Calls, Says, Seen, Upstream

from .conftest import Tally

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a terminal of another kind")

PLUGIN = Path(__file__).parents[1] / "plugins" / "claude-code"
PATIENCE = 120
TOKEN = "opens-the-hooks"
END, SUMMARY = "All files were looked at.", "The file a.py was looked at, there is more to do."
SUBAGENT = "You are a helper that looks at a.py twice."
FILE = "".join(
    f"def function_{number}(argument): return argument * {number}  # line {number}\n" for number in range(150)
)

TELLING = "def function_77(argument)"
QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "ANTHROPIC_API_KEY": "sk-ant-opens-nothing-at-all",
}


@pytest.fixture(scope="session")
def program(programs: Path) -> Path:
    return programs / "claude"


class Place:
    """A folder with a home, a project, and the variables of a client in it: nothing of this machine's."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.home, self.project, self.program = folder / "home", folder / "project", program
        self.status = folder / "status.jsonl"
        commands = folder / "bin"
        for each in (self.home / ".claude", self.project, commands):
            each.mkdir(parents=True)
        (commands / "ibidem").write_text(f'#!/bin/sh\nexec {sys.executable} -m ibidem.cli "$@"\n')
        (commands / "ibidem").chmod(0o755)
        (self.project / "a.py").write_text(FILE)
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        known = {"approved": [QUIET["ANTHROPIC_API_KEY"][-20:]], "rejected": []}
        (self.home / ".claude.json").write_text(
            json.dumps(
                {
                    "hasCompletedOnboarding": True,
                    "theme": "dark",
                    "projects": {str(self.project): trusted},
                    "customApiKeyResponses": known,
                }
            )
        )
        status = {"type": "command", "command": f"cat >> {self.status}; echo >> {self.status}"}
        (self.home / ".claude" / "settings.json").write_text(json.dumps({"statusLine": status}))
        path = os.pathsep.join([str(commands), str(program.parent), os.environ.get("PATH", "")])
        own = {"PATH": path, "HOME": str(self.home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.variables = {**own, **QUIET, "IBIDEM_TOKEN": TOKEN, "TERM": "xterm-256color"}

    def run(self, *args: str, **variables: str) -> str:
        ended = subprocess.run(
            [self.program, *args],
            cwd=self.project,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ended.returncode == 0, ended
        return ended.stdout

    def clear(self) -> None:
        """What earlier conversations left behind."""
        shutil.rmtree(self.home / ".claude" / "projects", ignore_errors=True)
        self.status.unlink(missing_ok=True)

    def transcripts(self) -> str:
        return "".join(each.read_text() for each in (self.home / ".claude" / "projects").rglob("*.jsonl"))

    def last_status(self) -> dict[str, Any]:
        lines = self.status.read_text().split("\n") if self.status.exists() else []
        return next((json.loads(line) for line in reversed(lines) if line.startswith("{") and line.endswith("}")), {})


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, program: Path) -> Place:
    """With the plugin; that takes the client a while, so it is done once."""
    place = Place(tmp_path_factory.mktemp("installed"), program)
    assert "Validation passed" in place.run("plugin", "validate", str(PLUGIN))
    place.run("plugin", "marketplace", "add", str(PLUGIN))
    place.run("plugin", "install", "ibidem@ibidem")
    assert "enabled" in place.run("plugin", "list")
    return place


@pytest.fixture
def place(installed: Place) -> Place:
    installed.clear()
    return installed


@contextlib.contextmanager
def answering() -> Iterator[HookServer]:
    """What `ibidem hooks` runs."""
    with HookServer(Settings(port=0, token=TOKEN)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Script:
    """A main agent and a subagent, each with its own answers; and who asks for a summary gets one."""

    def __init__(self, main: Sequence[Answer], sub: Sequence[Answer] = ()) -> None:
        self.left = {"main": list(main), "sub": list(sub)}
        self.turns: list[tuple[str, Seen]] = []
        """Whose request it was; "summary" for one that was not a turn."""
        self.ended = threading.Event()

    def __call__(self, seen: Seen) -> Answer:
        said = seen.json["messages"]
        if not seen.json.get("tools"):
            return Says("ok")
        if "create a detailed summary" in json.dumps(said[-1]):
            self.turns.append(("summary", seen))
            return Says(f"<summary>{SUMMARY}</summary>")
        whose = "sub" if SUBAGENT in json.dumps(said[0]) else "main"
        self.turns.append((whose, seen))
        answer = self.left[whose].pop(0) if self.left[whose] else Says("Nothing more.")
        if whose == "main" and not self.left[whose]:
            self.ended.set()
        return answer


def results(seen: Seen) -> list[str]:
    """What tools gave, as this request tells it."""
    return [text for _, text in by_turn(seen)]


def by_turn(seen: Seen) -> list[tuple[int, str]]:
    """The turn of the model that each result belongs to, and its text."""
    turns: dict[str, int] = {}
    found = []
    for number, message in enumerate(seen.json["messages"]):
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                turns[block["id"]] = number
            elif block["type"] == "tool_result":
                text = block["content"] if isinstance(block["content"], str) else json.dumps(block["content"])
                found.append((turns[block["tool_use_id"]], text))
    order = sorted(set(turns.values()))
    return [(order.index(number), text) for number, text in found]


HINT = re.compile(r"\[ibidem: unchanged, same as the result ([0-9]+) turns? ago, (\w+)\(")


def all_true(turns: Sequence[tuple[str, Seen]]) -> int:
    """How many hints the last request has; each of every request names a turn of it that has the text in full."""
    count = 0
    for _, seen in turns:
        given = by_turn(seen)
        hints = [(turn, int(hint[1])) for turn, text in given if (hint := HINT.search(text))]
        for turn, ago in hints:
            assert any(TELLING in text for other, text in given if other == turn - ago)
        count = len(hints)
    return count


def test_hints_reach_only_who_has_seen_the_text(place: Place, tally: Tally) -> None:
    """A main agent and a subagent read the same file; each is told so of what it has itself, and nothing else."""
    read = Calls(("Read", {"file_path": str(place.project / "a.py")}))
    start = {"description": "look", "prompt": SUBAGENT, "subagent_type": "general-purpose", "run_in_background": False}
    script = Script([read, read, Calls(("Agent", start)), read, Says(END)], [read, read, Says("I looked twice.")])
    with Upstream(script) as upstream, answering() as server:
        at = {"ANTHROPIC_BASE_URL": upstream.url, "IBIDEM_HOOKS_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        place.run("-p", "Look at a.py.", "--allowedTools", "Read,Agent", **at)
    main, sub = ([seen for who, seen in script.turns if who == whose] for whose in ("main", "sub"))
    assert all_true([each for each in script.turns if each[0] == "main"]) == 1
    assert all_true([each for each in script.turns if each[0] == "sub"]) == 1
    assert [TELLING in text for text in results(sub[-1])] == [True, False], "the subagent had the text once itself"
    given = results(main[4])
    assert [TELLING in given[at] for at in (0, 1, 3)] == [True, False, True], "asked for again after a hint: in full"
    assert server._hooks.repeats == 2
    tally("claude code, plugin", outputs=server._hooks.outputs, repeated=server._hooks.repeats, untrue=0)
    assert "hook error" not in place.transcripts()


def test_calls_that_run_at_once(place: Place) -> None:
    """They end in any order, and so do their hooks: turns are counted, and none of the same turn is named."""
    path = str(place.project / "a.py")
    whole, part = ("Read", {"file_path": path}), ("Read", {"file_path": path, "limit": 120})
    slow = ("Bash", {"command": "sleep 0.3; cat a.py", "description": "Show the file"})
    script = Script([Calls(whole, slow, part, whole), Calls(part, slow, whole), Calls(part), Says(END)])
    with Upstream(script) as upstream, answering() as server:
        at = {"ANTHROPIC_BASE_URL": upstream.url, "IBIDEM_HOOKS_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        place.run("-p", "Look at a.py.", "--allowedTools", "Read,Bash", **at)
    assert all_true(script.turns) == 3
    assert not any(HINT.search(text) for turn, text in by_turn(script.turns[-1][1]) if turn in (0, 2))


def test_compaction_empties_the_memory(place: Place) -> None:
    """The client compacts by itself in the middle of a turn; what it leaves out is sent in full when it comes again."""
    read = Calls(("Read", {"file_path": str(place.project / "a.py")}))
    script = Script([*[read] * 8, Says(END)])
    early = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "21"}
    with Upstream(script) as upstream, answering() as server:
        at = {"ANTHROPIC_BASE_URL": upstream.url, "IBIDEM_HOOKS_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        place.run("-p", "Look at a.py.", "--allowedTools", "Read", **at, **early)
    order = [whose for whose, _ in script.turns]
    assert "summary" in order
    assert 0 < order.index("summary") < len(order) - 2
    all_true(script.turns)
    assert server._hooks.repeats > 0


def test_nobody_listens(place: Place) -> None:
    """The client says nothing of it, in its transcript or on the screen, and the model gets what it would get."""
    read = Calls(("Read", {"file_path": str(place.project / "a.py")}))
    script = Script([read, read, Says(END)])
    with Upstream(script) as upstream:
        at = {"ANTHROPIC_BASE_URL": upstream.url, "IBIDEM_HOOKS_URL": "http://127.0.0.1:9"}
        screen = shown(place, script, [str(place.program), "Look at a.py.", "--allowedTools", "Read"], at)
    assert [TELLING in text for text in results(script.turns[-1][1])] == [True, True]
    assert "hook error" not in screen
    assert "hook_non_blocking_error" not in place.transcripts()


@pytest.mark.parametrize("way", ["without us", "plugin", "wrap", "plugin and wrap"])
def test_the_client_counts_no_miss_of_the_prompt_cache(
    tmp_path: Path, program: Path, way: str, request: pytest.FixtureRequest, tally: Tally
) -> None:
    """Its own figures, which its status line is given."""
    place: Place = request.getfixturevalue("place") if "plugin" in way else Place(tmp_path, program)
    reads = ({"file_path": str(place.project / "a.py")}, {"file_path": str(place.project / "a.py"), "limit": 120})
    script = Script([*(Calls(("Read", each)) for each in (*reads, *reads)), Says(END)])
    with Upstream(script) as upstream, answering() as server:
        at = {"ANTHROPIC_BASE_URL": upstream.url, "IBIDEM_HOOKS_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        wrap = [sys.executable, "-m", "ibidem.cli", "wrap", "--store", "memory:", "--"] if "wrap" in way else []
        shown(place, script, [*wrap, str(place.program), "Look at a.py.", "--allowedTools", "Read"], at)
    cache = place.last_status()["prompt_cache"]
    assert cache["requests"] >= 4
    assert (cache["misses"], cache["miss_recache_tokens"]) == (0, 0), cache
    tally(f"claude code's own figures, {way}", requests=cache["requests"], misses=cache["misses"])
    last = script.turns[-1][1].text.decode()
    assert ("[ibidem: unchanged" in last) == (way == "plugin"), "under wrap the hooks do nothing"
    assert bool(re.search(r"\[ibidem [0-9]{3}\.[0-9]{6}", last)) == ("wrap" in way)
    assert (server._hooks.outputs > 0) == (way == "plugin")


def shown(place: Place, script: Script, command: Sequence[str], variables: dict[str, str]) -> str:
    """All that a client writes to its terminal until it has answered and told its status, then it is ended."""
    import fcntl
    import pty
    import select
    import struct
    import termios

    child, terminal = pty.fork()
    if child == 0:
        os.chdir(place.project)
        os.execve(command[0], list(command), {**place.variables, **variables})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    written, end, turns = b"", time.monotonic() + PATIENCE, len(script.left["main"])
    while time.monotonic() < end and not (script.ended.is_set() and _told(place, turns)):
        if select.select([terminal], [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                written += os.read(terminal, 65536)
    os.kill(child, 15)
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], 2.0)[0] and (more := os.read(terminal, 65536)):
            written += more
    os.close(terminal)
    os.waitpid(child, 0)
    assert script.ended.is_set(), written[-2000:]
    return re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07", "", written.decode(errors="replace"))


def _told(place: Place, requests: int) -> bool:
    cache = place.last_status().get("prompt_cache") or {}
    return bool(cache.get("requests", 0) >= requests)
