"""Detect a running client that may write to a log.

Clients close their log after each write, so open files are not enough. These signs are checked, in this order:

1. a process has the log open for writing (Linux);
2. a process of the agent has the session id on its command line, or in Claude Code's list of running sessions;
3. a process of the agent runs in a folder of the session;
4. the log was written a few seconds ago, for clients that are not visible here (another container or machine).

Processes are read from /proc, or listed with `ps` and `lsof` if there is no /proc. If neither works (Windows), only the
last sign is checked, with a longer time.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

PROC = Path("/proc")
RECENT_SECONDS, RECENT_SECONDS_UNSEEN = 5.0, 60.0
"""Age of a log in seconds below which a client is assumed to run. The second: if processes cannot be listed."""
PATIENCE_SECONDS = 10.0
"""Seconds that `ps` and `lsof` may take."""
RUNTIMES = ("node", "bun", "deno", "nodejs")
"""Programs that run a script. The script's path identifies the agent."""
MAX_ENTRY_BYTES = 1 << 16
"""Bytes of an entry in Claude Code's list of sessions that are read."""


class AgentProgram(NamedTuple):
    """Names by which a process of an agent is recognized."""

    commands: tuple[str, ...]
    packages: tuple[str, ...]


PROGRAMS = {
    "claude-code": AgentProgram(("claude",), ("claude-code", "claude-agent-sdk")),
    "pi": AgentProgram(("pi",), ("pi-coding-agent",)),
}


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine."""

    pid: int
    name: str
    words: tuple[str, ...]
    """Command line."""
    folder: str | None
    """Working folder; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class WatchedSession:
    """A session whose client must not run."""

    agent: str
    title: str
    """Name of the agent for users."""
    id: str
    logs: tuple[Path, ...]
    folders: frozenset[str]
    """Folders in which its client worked."""
    registry: Path | None = None
    """Folder in which Claude Code lists running sessions."""


def describe_client(session: WatchedSession) -> str:
    """Describe the client that may write to the log, and what to do; "" if there is none."""
    processes = list_processes()
    others = [each for each in processes or () if each.pid != os.getpid()]
    if writer := _find_writer(session.logs, others):
        return f"{writer.name} (pid {writer.pid}) has the log open. Quit it first."
    registered = set(_registered_pids(session))
    folders = {os.path.realpath(folder) for folder in session.folders}
    for each in others:
        if not is_client(each, PROGRAMS[session.agent]):
            continue
        who = f"{session.title} (pid {each.pid}) is running"
        if each.pid in registered or (session.id and session.id in each.words):
            return f"{who} with this conversation. Quit it first."
        if each.folder is None:
            return f"{who}, and its folder is unknown. Quit it first."
        if os.path.realpath(each.folder) in folders or _project_folder_name(each.folder) == session.logs[0].parent.name:
            return f"{who} in this project. Quit it first."
    return _recent_write_message(session.logs, RECENT_SECONDS if processes is not None else RECENT_SECONDS_UNSEEN)


def is_client(process: Process, program: AgentProgram) -> bool:
    """Return whether a process runs the agent, by its name, its command or the script that a runtime runs."""
    command = os.path.basename(process.words[0]) if process.words else ""
    names = {process.name, command.removesuffix(".exe")}
    if names & {*program.commands}:
        return True
    if not names & {*RUNTIMES}:
        return False
    scripts = [word for word in process.words[1:] if not word.startswith("-")][:1]
    parts = {part for script in scripts for part in re.split(r"[\\/]", script)}
    return bool(parts & {*program.packages, *program.commands})


def _recent_write_message(logs: Iterable[Path], limit: float) -> str:
    age = min((abs(time.time() - path.lstat().st_mtime) for path in logs), default=limit)
    if age >= limit:
        return ""
    return f"The log was written {age:.0f} s ago. Quit the client, and run this again after {limit:.0f} s."


def _project_folder_name(folder: str) -> str:
    """The name of a project's folder as Claude Code forms it."""
    return re.sub(r"[^A-Za-z0-9]", "-", folder)


def _registered_pids(session: WatchedSession) -> Iterator[int]:
    """Processes that Claude Code lists for this session. Entries of a killed client stay, so this is a hint only."""
    if session.registry is None:
        return
    for path in session.registry.glob("*.json"):
        with suppress(OSError, msgspec.DecodeError):
            with path.open("rb") as file:
                entry = msgspec.json.decode(file.read(MAX_ENTRY_BYTES))
            match entry:
                case {"pid": int(pid), "sessionId": session.id}:
                    yield pid


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def list_processes() -> list[Process] | None:
    """List all visible processes; None if the system has no way to list them."""
    if (PROC / "self").exists():
        return list(_list_from_proc(PROC))
    return _list_with_ps() if os.name == "posix" else None


def _list_from_proc(proc: Path) -> Iterator[Process]:
    own = os.geteuid()
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):  # the process has ended
            name = (entry / "comm").read_text(errors="replace").strip()
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            folder: str | None = ""
            try:
                folder = os.readlink(entry / "cwd").removesuffix(" (deleted)")
            except OSError:
                folder = None if entry.stat().st_uid == own else ""  # other users' clients do not write to this log
            yield Process(int(entry.name), name, tuple(filter(None, words)), folder)


def _find_writer(logs: Collection[Path], processes: Iterable[Process]) -> Process | None:
    """Return a process that has one of the logs open for writing. Readers are allowed."""
    log_paths = {os.path.realpath(path) for path in logs}
    for process in processes:
        process_folder = PROC / str(process.pid)
        with suppress(OSError):  # it has ended, or belongs to another user
            for name in os.listdir(process_folder / "fd"):
                if _link_target(process_folder / "fd" / name) in log_paths and _is_writing(
                    process_folder / "fdinfo" / name
                ):
                    return process
    return None


def _link_target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # the file was closed
        return ""


def _is_writing(info_file: Path) -> bool:
    match = re.search(r"^flags:\s*([0-7]+)", info_file.read_text(), re.MULTILINE)
    return match is None or int(match[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _list_with_ps() -> list[Process] | None:
    output = _output("ps", "-axww", "-o", "pid=,command=")
    if output is None:
        return None
    rows = [(int(match[1]), match[2].split()) for match in re.finditer(r"^\s*(\d+)\s+(.*)$", output, re.MULTILINE)]
    processes = [Process(pid, os.path.basename(words[0]), tuple(words), None) for pid, words in rows if words]
    clients = [each for each in processes if any(is_client(each, program) for program in PROGRAMS.values())]
    folders = _working_folders([each.pid for each in clients])
    return [Process(each.pid, each.name, each.words, folders.get(each.pid)) for each in clients]


def _working_folders(pids: Collection[int]) -> dict[int, str]:
    """Return working folders by process id, as far as `lsof` can read them."""
    output = _output("lsof", "-a", "-d", "cwd", "-Fpn", "-p", ",".join(map(str, pids))) if pids else ""
    folders: dict[int, str] = {}
    pid = 0
    for line in (output or "").splitlines():
        if line.startswith("p") and line[1:].isdecimal():
            pid = int(line[1:])
        elif line.startswith("n"):
            folders[pid] = line[1:]
    return folders


def _output(*command: str) -> str | None:
    """Return a program's output. Ignores its exit code: `lsof` returns 1 if one of several processes has ended."""
    try:
        result = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.decode(errors="replace")
