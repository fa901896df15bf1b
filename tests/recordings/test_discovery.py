"""Where logs are found, in homes that are made up here."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ibidem import recordings
from ibidem.recordings import LogError
from ibidem.recordings.discovery import LOG_ENDINGS, discover_by_agent, discover_logs, find_logs, load_log

PLATFORMS = ("linux", "darwin", "win32")
FOUND = [
    ".claude/projects/-shop/1/subagents/agent-1.jsonl",
    ".claude/projects/-shop/1.jsonl",
    ".claude/projects/-shop/2.jsonl.gz",
    ".codex/archived_sessions/rollout-3.jsonl",
    ".codex/sessions/2026/01/02/rollout-1.jsonl",
    ".codex/sessions/2026/01/02/rollout-2.jsonl.zst",
    ".codex/sessions/2026/01/02/rollout-3.jsonl.gz",
    ".copilot/session-state/1.jsonl",
    ".copilot/session-state/2/events.jsonl",
    ".copilot/session-state/3/events.jsonl.zst",
    ".gemini/tmp/shop/chats/5e551011/a9e27.jsonl",
    ".gemini/tmp/shop/chats/session-1.json",
    ".gemini/tmp/shop/chats/session-1.json.gz",
    ".gemini/tmp/shop/chats/session-2.jsonl",
    ".pi/agent/sessions/--shop--/1.jsonl",
    ".pi/agent/sessions/--shop--/2.jsonl.gz",
]
PASSED_OVER = [
    ".claude/history.jsonl",
    ".claude/projects/-shop/notes.json",
    ".codex/history.jsonl",
    ".codex/sessions/other.jsonl",
    ".copilot/session-state/2/files/data.jsonl",
    ".gemini/projects.json",
    ".gemini/tmp/shop/logs.json",
    ".local/share/opencode/storage/migration",
    ".pi/agent/settings.json",
]


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def found(home: Path, platform: str = "linux", **environ: str) -> list[str]:
    return [path.relative_to(home).as_posix() for path in discover_logs(environ, home, platform)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_logs_of_every_agent_are_found(tmp_path: Path, platform: str) -> None:
    put(tmp_path, *FOUND, *PASSED_OVER)
    assert found(tmp_path, platform) == FOUND


@pytest.mark.parametrize("platform", PLATFORMS)
def test_logs_are_told_by_agent(tmp_path: Path, platform: str) -> None:
    put(tmp_path, *FOUND, *PASSED_OVER, "pi/3.jsonl", "my.db")
    environ = {"PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "pi"), "OPENCODE_DB": str(tmp_path / "my.db")}
    by_agent = discover_by_agent(environ, tmp_path, platform)
    assert set(by_agent) <= {reader.agent for reader in recordings.READERS}
    assert list(by_agent) == ["claude-code", "codex", "copilot-cli", "gemini-cli", "pi", "opencode"]
    assert [len(paths) for paths in by_agent.values()] == [3, 4, 3, 4, 3, 1]
    everything = discover_logs(environ, tmp_path, platform)
    assert sorted(path for paths in by_agent.values() for path in paths) == everything
    assert all(paths == [path for path in everything if path in paths] for paths in by_agent.values())
    assert discover_by_agent({}, tmp_path / "nobody", platform) == {}


def test_one_file_has_one_agent(tmp_path: Path) -> None:
    put(tmp_path, ".claude/projects/a/1.jsonl")
    shared = {"PI_CODING_AGENT_SESSION_DIR": str(tmp_path / ".claude/projects")}
    assert discover_by_agent(shared, tmp_path, "linux") == {"claude-code": [tmp_path / ".claude/projects/a/1.jsonl"]}


def test_folders_take_every_ending_packed_and_plain(tmp_path: Path) -> None:
    names = [f"a{ending}{packing}" for ending in (".json", ".jsonl", ".traj") for packing in ("", ".gz", ".zst")]
    put(tmp_path, *names, "a.txt", "a.gz", "a.tar.gz", "opencode.db")
    assert [path.name for path in find_logs(tmp_path)] == sorted([*names, "opencode.db"])
    assert sorted(LOG_ENDINGS) == sorted(name[1:] for name in names)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_an_empty_home_has_no_logs(tmp_path: Path, platform: str) -> None:
    assert found(tmp_path / "nobody", platform) == []


def test_the_other_folder_of_claude_code_is_not_on_windows(tmp_path: Path) -> None:
    put(tmp_path, ".config/claude/projects/-shop/1.jsonl")
    assert [len(found(tmp_path, platform)) for platform in PLATFORMS] == [1, 1, 0]


MOVED = {
    "several folders for Claude Code": ("CLAUDE_CONFIG_DIR", "{0}/one, ~/two", "one/projects/a/1.jsonl"),
    "the second of them": ("CLAUDE_CONFIG_DIR", "{0}/one, ~/two", "two/projects/a/1.jsonl"),
    "the XDG folder of Claude Code": ("XDG_CONFIG_HOME", "{0}/xdg", "xdg/claude/projects/a/1.jsonl"),
    "Codex": ("CODEX_HOME", "{0}/one", "one/sessions/2026/rollout-1.jsonl"),
    "Copilot CLI": ("COPILOT_HOME", "~/one", "one/session-state/1/events.jsonl"),
    "Gemini CLI": ("GEMINI_CLI_HOME", "{0}/one", "one/.gemini/tmp/shop/chats/session-1.jsonl"),
    "pi": ("PI_CODING_AGENT_DIR", "{0}/one", "one/sessions/a/1.jsonl"),
    "sessions of pi": ("PI_CODING_AGENT_SESSION_DIR", "{0}/one", "one/1.jsonl"),
    "OpenCode": ("XDG_DATA_HOME", "{0}/one", "one/opencode/opencode.db"),
    "a database of OpenCode": ("OPENCODE_DB", "{0}/one/my.db", "one/my.db"),
    "a database of OpenCode in its folder": ("OPENCODE_DB", "my.db", ".local/share/opencode/my.db"),
}


@pytest.mark.parametrize("case", MOVED)
def test_a_variable_moves_a_place(tmp_path: Path, case: str) -> None:
    variable, value, name = MOVED[case]
    put(tmp_path, name)
    assert found(tmp_path, **{variable: value.format(tmp_path)}) == [name]
    assert found(tmp_path, **{variable: " " if "DIR" in variable else ""}) == []


def test_a_moved_place_is_the_only_one(tmp_path: Path) -> None:
    put(tmp_path, ".codex/sessions/rollout-1.jsonl", "one/sessions/rollout-2.jsonl")
    assert found(tmp_path, CODEX_HOME=str(tmp_path / "one")) == ["one/sessions/rollout-2.jsonl"]


def test_two_ways_to_one_file_are_one_log(tmp_path: Path) -> None:
    put(tmp_path, ".claude/projects/a/1.jsonl")
    (tmp_path / ".config").mkdir()
    link(tmp_path / ".config/claude", tmp_path / ".claude")
    assert len(found(tmp_path)) == 1


def test_links_that_go_in_circles_do_no_harm(tmp_path: Path) -> None:
    put(tmp_path, ".claude/projects/a/1.jsonl")
    link(tmp_path / ".claude/projects/a/again", tmp_path / ".claude")
    link(tmp_path / ".claude/projects/self", tmp_path / ".claude/projects/self")
    assert found(tmp_path) == [".claude/projects/a/1.jsonl"]
    assert [path.name for path in find_logs(tmp_path)] == ["1.jsonl"]


def test_folders_that_cannot_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, ".claude/projects/a/1.jsonl", ".claude/projects/b/1.jsonl")
    scan = os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "a":
            raise PermissionError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)  # permissions do not hold for every user that runs tests
    assert found(tmp_path) == [".claude/projects/b/1.jsonl"]


def test_logs_below_a_folder(tmp_path: Path) -> None:
    wanted = [".hidden/a.jsonl", "b.json", "c.traj", "d/e.jsonl.zst", "opencode.db"]
    put(tmp_path, *wanted, "readme.md", "d/other.db")
    assert [path.relative_to(tmp_path).as_posix() for path in find_logs(tmp_path)] == wanted
    assert find_logs(tmp_path / "readme.md") == [tmp_path / "readme.md"]
    assert load_log(tmp_path / "b.json") == b"{}"


INFO = {"role": "user", "time": {"created": 1}}
ANSWER = {"role": "assistant", "time": {"created": 2}, "modelID": "m", "providerID": "anthropic"}
MESSAGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("m2", ANSWER, {"type": "text", "text": "Hello."}),
    ("m1", INFO, {"type": "text", "text": "Hi"}),
]


def store_files(data: Path) -> Path:
    storage = data / "storage"
    put(
        storage,
        "session/p/s1.json",
        "session/p/s2.json",
        "message/s2/m9.json",
        "part/m9/p1.json",
        "session_diff/s1.json",
    )
    (storage / "session/p/s1.json").write_text(json.dumps({"id": "old", "directory": "/shop", "title": "Greeting"}))
    (storage / "message/s2/m9.json").write_text("no JSON")
    for name, info, part in MESSAGES:
        put(storage, f"message/s1/{name}.json", f"part/{name}/p1.json")
        (storage / f"message/s1/{name}.json").write_text(json.dumps(info))
        (storage / f"part/{name}/p1.json").write_text(json.dumps(part))
    return storage / "session"


def store_database(data: Path) -> Path:
    path = data / "opencode.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (id TEXT, directory TEXT, parent_id TEXT, title TEXT)")
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
        database.execute("INSERT INTO session VALUES ('s1', '/shop', NULL, 'Greeting'), ('s2', '/till', 's1', '')")
        database.execute("INSERT INTO message VALUES ('m9', 's2', 1, 'no JSON')")
        for name, info, part in MESSAGES:
            row = (name, "s1", info["time"]["created"], json.dumps(info))
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            database.execute("INSERT INTO part VALUES (?, ?, 's1', ?)", (f"p{name}", name, json.dumps(part)))
        database.commit()
    return path


@pytest.mark.parametrize("make", [store_files, store_database])
def test_what_opencode_keeps_reads_like_an_export(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    data = tmp_path / ".local/share/opencode"
    path = make(data)
    before = path.read_bytes() if path.is_file() else b""
    assert discover_logs({}, tmp_path, "linux") == [path]
    assert path in find_logs(data)
    [session] = recordings.read(str(path), load_log(path))
    assert (session.agent, session.project, session.name, session.length) == ("opencode", "/shop", "s1", 1)
    assert (session.id, session.title) == ("s1", "Greeting")
    assert session.segments[0].history == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
    ]
    assert [line for line, _ in session.skipped] == [2]
    assert before == (path.read_bytes() if path.is_file() else b"")
    assert sorted(one.name for one in data.iterdir()) in (["storage"], ["opencode.db"])


def test_the_database_comes_before_the_files_it_took_over(tmp_path: Path) -> None:
    data = tmp_path / ".local/share/opencode"
    path = store_database(data)
    store_files(data)
    assert discover_logs({}, tmp_path, "linux") == [path]


def test_another_database_gets_a_clear_message(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE something (id TEXT)")
        database.commit()
    with pytest.raises(recordings.LogError, match="not a database of OpenCode's"):
        load_log(path)
    path.write_bytes(path.read_bytes()[:100] + b"rubbish" * 100)
    with pytest.raises(recordings.LogError, match=r"opencode\.db: "):
        load_log(path)


def link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("links cannot be made here")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files on this system")
def test_a_pipe_a_socket_or_a_device_is_not_opened(tmp_path: Path) -> None:
    """Opening a FIFO waits for its writer, and a device may have no end."""
    pipe, address = tmp_path / "pipe.jsonl", tmp_path / "socket.jsonl"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        for path in (pipe, address, Path("/dev/zero")):
            assert find_logs(path) == [path]
            with pytest.raises(LogError, match="not a regular file"):
                load_log(path)
        assert set(find_logs(tmp_path)) == {pipe, address}
