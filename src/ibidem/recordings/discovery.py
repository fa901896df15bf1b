"""Find and load the logs of agents on this machine.

Callers pass the environment, the home folder and the platform, so that tests can replace them. Environment variables
change the log folder, as they do for the agent. All of these agents use the home folder on every platform (on Windows
the user profile).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec

from .log_file import LogError
from .opencode_store import is_store, read_exports

DATABASES = ("opencode.db", "opencode-*.db")
COMPRESSION_ENDINGS = ("", ".gz", ".zst")
"""Endings of plain and compressed files."""
LOG_ENDINGS = tuple(f"{ending}{packing}" for ending in (".jsonl", ".json", ".traj") for packing in COMPRESSION_ENDINGS)
"""Endings of log names, in a folder or at a URL."""
LOG_PATTERNS = (*(f"*{ending}" for ending in LOG_ENDINGS), *DATABASES)
"""Name patterns of the logs in a folder that the user passes."""


def _with_compressed(*names: str) -> tuple[str, ...]:
    """Return the patterns with those of compressed copies, because users often compress old logs."""
    return tuple(f"{name}{ending}" for name in names for ending in COMPRESSION_ENDINGS)


class LogFiles(NamedTuple):
    """Log files in a folder of an agent."""

    folder: str
    """Path below the agent's root folder."""
    names: tuple[str, ...]
    """Name patterns."""
    is_recursive: bool = True
    """Search subfolders too."""


class LogRoot(NamedTuple):
    """Folder where an agent stores its data."""

    default: str
    """Path below the home folder."""
    variable: str = ""
    """Environment variable that replaces the default."""
    subfolder: str = ""
    """Path below the folder in the variable."""
    platforms: tuple[str, ...] = ("linux", "darwin", "win32")


class AgentLogs(NamedTuple):
    """Locations of one agent's logs."""

    agent: str
    roots: tuple[LogRoot, ...]
    files: tuple[tuple[LogFiles, ...], ...]
    """Alternatives. The first one that matches any file is used."""


LIST_VARIABLES = frozenset({"CLAUDE_CONFIG_DIR"})
"""Variables that can contain several folders, separated by commas."""

AGENT_LOGS: tuple[AgentLogs, ...] = (
    AgentLogs(
        "claude-code",
        (
            LogRoot(".claude", "CLAUDE_CONFIG_DIR"),
            LogRoot(".config/claude", "XDG_CONFIG_HOME", "claude", ("linux", "darwin")),
        ),
        ((LogFiles("projects", _with_compressed("*.jsonl")),),),
    ),
    AgentLogs(
        "codex",
        (LogRoot(".codex", "CODEX_HOME"),),
        (
            (
                LogFiles("sessions", _with_compressed("rollout-*.jsonl")),
                LogFiles("archived_sessions", _with_compressed("rollout-*.jsonl")),
            ),
        ),
    ),
    AgentLogs(
        "copilot-cli",
        (LogRoot(".copilot", "COPILOT_HOME"),),
        # The session's folder also has other files, of any type.
        (
            (
                LogFiles("session-state", _with_compressed("events.jsonl")),
                LogFiles("session-state", _with_compressed("*.jsonl"), is_recursive=False),
            ),
        ),
    ),
    AgentLogs(
        "gemini-cli",
        (LogRoot(".gemini", "GEMINI_CLI_HOME", ".gemini"),),
        # The chat of a subagent is in a folder with the name of its session.
        ((LogFiles("tmp", _with_compressed("chats/session-*.json", "chats/session-*.jsonl", "chats/*/*.jsonl")),),),
    ),
    AgentLogs(
        "pi", (LogRoot(".pi/agent", "PI_CODING_AGENT_DIR"),), ((LogFiles("sessions", _with_compressed("*.jsonl")),),)
    ),
    AgentLogs(
        "opencode",
        (LogRoot(".local/share/opencode", "XDG_DATA_HOME", "opencode"),),
        # The database replaced the folder.
        ((LogFiles("", DATABASES, is_recursive=False),), (LogFiles("storage", ("session",), is_recursive=False),)),
    ),
)


def discover_logs(environ: Mapping[str, str], home: Path, platform: str) -> list[Path]:
    """Return the logs of all known agents. Unreadable folders are skipped."""
    return _unique_paths(path for _, path in _find_all_logs(environ, home, platform))


def discover_by_agent(environ: Mapping[str, str], home: Path, platform: str) -> dict[str, list[Path]]:
    """Return the logs that `discover_logs` finds, grouped by agent. Agents without logs are omitted."""
    owners: dict[Path, str] = {}
    for agent, path in _find_all_logs(environ, home, platform):
        owners.setdefault(path, agent)
    paths = _unique_paths(owners)
    agents = dict.fromkeys(owners.values())
    return {agent: own for agent in agents if (own := [path for path in paths if owners[path] == agent])}


def _find_all_logs(environ: Mapping[str, str], home: Path, platform: str) -> Iterator[tuple[str, Path]]:
    """Yield agents with the paths of their logs."""
    for agent_logs in AGENT_LOGS:
        for root in _root_folders(agent_logs, environ, home, platform):
            for files in agent_logs.files:
                if paths := {path for one in files for path in _find_files(root, one)}:
                    yield from ((agent_logs.agent, path) for path in paths)
                    break
    yield from _logs_from_variables(environ, home)


def _root_folders(agent_logs: AgentLogs, environ: Mapping[str, str], home: Path, platform: str) -> Iterator[Path]:
    for root in agent_logs.roots:
        if not platform.startswith(root.platforms):
            continue
        value = environ.get(root.variable, "")
        for folder in value.split(",") if root.variable in LIST_VARIABLES else [value]:
            yield _expand_home(folder, home) / root.subfolder if folder.strip() else home / root.default


def _logs_from_variables(environ: Mapping[str, str], home: Path) -> Iterator[tuple[str, Path]]:
    """Yield logs whose path is in its own variable: pi's session folder and OpenCode's database."""
    if folder := environ.get("PI_CODING_AGENT_SESSION_DIR"):
        yield from (
            ("pi", path) for path in _find_files(_expand_home(folder, home), LogFiles("", _with_compressed("*.jsonl")))
        )
    if name := environ.get("OPENCODE_DB"):
        data = environ.get("XDG_DATA_HOME")
        base = _expand_home(data, home) if data else home / ".local/share"
        path = base / "opencode" / _expand_home(name, home)
        if path.is_file():
            yield "opencode", path


def _expand_home(folder: str, home: Path) -> Path:
    folder = folder.strip()
    return home / folder[1:].lstrip("/\\") if folder == "~" or folder.startswith(("~/", "~\\")) else Path(folder)


def _find_files(root: Path, files: LogFiles) -> Iterator[Path]:
    for path in _walk_files(root / files.folder, deep=files.is_recursive):
        if _matches_any(path, files.names):
            yield path


def _matches_any(path: PurePath, names: Iterable[str]) -> bool:
    return any(path.match(name) for name in names)


def _walk_files(folder: Path, *, deep: bool) -> Iterator[Path]:
    """Yield the files in a folder. Links are followed, but no folder is visited twice. A store counts as one file."""
    visited_folders: set[str] = set()
    for current, folders, names in os.walk(folder, followlinks=True):
        real_path = os.path.realpath(current)
        if real_path in visited_folders:
            folders.clear()
            continue
        visited_folders.add(real_path)
        for store in [name for name in folders if is_store(Path(current, name))]:
            folders.remove(store)
            yield Path(current, store)
        yield from (Path(current, name) for name in names)
        if not deep:
            folders.clear()


def _unique_paths(paths: Iterable[Path]) -> list[Path]:
    """Return the paths sorted, without duplicates. If several paths lead to one file, the first one counts."""
    unique: dict[object, Path] = {}
    for path in sorted(paths):
        unique.setdefault(_file_identity(path), path)
    return list(unique.values())


def _file_identity(path: Path) -> object:
    """Return the device and inode of a file, which needs one system call. If they are unknown, return the real path."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)


def find_logs(path: Path) -> list[Path]:
    """Return the logs in a folder, also in hidden folders, where agents store them. For a file, return its path."""
    if not path.is_dir() or is_store(path):
        return [path]
    return _unique_paths(one for one in _walk_files(path, deep=True) if one.is_dir() or _matches_any(one, LOG_PATTERNS))


def load_log(path: Path) -> bytes:
    """Return the bytes of a log. A store is exported with one session per line. Raises OSError and LogError."""
    if is_store(path):
        return b"".join(msgspec.json.encode(export) + b"\n" for export in read_exports(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LogError(f"{path}: not a regular file. Copy its content to a file and pass that file.")
    return path.read_bytes()
