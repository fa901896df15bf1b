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

from .log import LogError
from .opencode_store import exports, is_store

DATABASES = ("opencode.db", "opencode-*.db")
PACKINGS = ("", ".gz", ".zst")
"""Endings of plain and compressed files."""
LOG_ENDINGS = tuple(f"{ending}{packing}" for ending in (".jsonl", ".json", ".traj") for packing in PACKINGS)
"""Endings of log names, in a folder or at a URL."""
LOGS = (*(f"*{ending}" for ending in LOG_ENDINGS), *DATABASES)
"""Name patterns of the logs in a folder that the user passes."""


def _packed(*names: str) -> tuple[str, ...]:
    """Return the patterns with those of compressed copies, because users often compress old logs."""
    return tuple(f"{name}{packing}" for name in names for packing in PACKINGS)


class Files(NamedTuple):
    """Log files in a folder of an agent."""

    folder: str
    """Path below the agent's root folder."""
    names: tuple[str, ...]
    """Name patterns."""
    deep: bool = True
    """Search subfolders too."""


class Root(NamedTuple):
    """Folder where an agent stores its data."""

    default: str
    """Path below the home folder."""
    variable: str = ""
    """Environment variable that replaces the default."""
    below: str = ""
    """Path below the folder in the variable."""
    platforms: tuple[str, ...] = ("linux", "darwin", "win32")


class AgentLogs(NamedTuple):
    """Locations of one agent's logs."""

    agent: str
    roots: tuple[Root, ...]
    files: tuple[tuple[Files, ...], ...]
    """Alternatives. The first one that matches any file is used."""


LIST_VARIABLES = frozenset({"CLAUDE_CONFIG_DIR"})
"""Variables that can contain several folders, separated by commas."""

AGENT_LOGS: tuple[AgentLogs, ...] = (
    AgentLogs(
        "claude-code",
        (
            Root(".claude", "CLAUDE_CONFIG_DIR"),
            Root(".config/claude", "XDG_CONFIG_HOME", "claude", ("linux", "darwin")),
        ),
        ((Files("projects", _packed("*.jsonl")),),),
    ),
    AgentLogs(
        "codex",
        (Root(".codex", "CODEX_HOME"),),
        (
            (
                Files("sessions", _packed("rollout-*.jsonl")),
                Files("archived_sessions", _packed("rollout-*.jsonl")),
            ),
        ),
    ),
    AgentLogs(
        "copilot-cli",
        (Root(".copilot", "COPILOT_HOME"),),
        # The session's folder also has other files, of any type.
        ((Files("session-state", _packed("events.jsonl")), Files("session-state", _packed("*.jsonl"), deep=False)),),
    ),
    AgentLogs(
        "gemini-cli",
        (Root(".gemini", "GEMINI_CLI_HOME", ".gemini"),),
        # The chat of a subagent is in a folder with the name of its session.
        ((Files("tmp", _packed("chats/session-*.json", "chats/session-*.jsonl", "chats/*/*.jsonl")),),),
    ),
    AgentLogs("pi", (Root(".pi/agent", "PI_CODING_AGENT_DIR"),), ((Files("sessions", _packed("*.jsonl")),),)),
    AgentLogs(
        "opencode",
        (Root(".local/share/opencode", "XDG_DATA_HOME", "opencode"),),
        # The database replaced the folder.
        ((Files("", DATABASES, deep=False),), (Files("storage", ("session",), deep=False),)),
    ),
)


def discover(environ: Mapping[str, str], home: Path, platform: str) -> list[Path]:
    """Return the logs of all known agents. Unreadable folders are skipped."""
    return _told_apart(path for _, path in _everywhere(environ, home, platform))


def discover_by_agent(environ: Mapping[str, str], home: Path, platform: str) -> dict[str, list[Path]]:
    """Return the logs that `discover_logs` finds, grouped by agent. Agents without logs are omitted."""
    owners: dict[Path, str] = {}
    for agent, path in _everywhere(environ, home, platform):
        owners.setdefault(path, agent)
    paths = _told_apart(owners)
    agents = dict.fromkeys(owners.values())
    return {agent: own for agent in agents if (own := [path for path in paths if owners[path] == agent])}


def _everywhere(environ: Mapping[str, str], home: Path, platform: str) -> Iterator[tuple[str, Path]]:
    """Yield agents with the paths of their logs."""
    for place in AGENT_LOGS:
        for root in _roots(place, environ, home, platform):
            for files in place.files:
                if paths := {path for one in files for path in _found(root, one)}:
                    yield from ((place.agent, path) for path in paths)
                    break
    yield from _named(environ, home)


def _roots(place: AgentLogs, environ: Mapping[str, str], home: Path, platform: str) -> Iterator[Path]:
    for root in place.roots:
        if not platform.startswith(root.platforms):
            continue
        value = environ.get(root.variable, "")
        for folder in value.split(",") if root.variable in LIST_VARIABLES else [value]:
            yield _expanded(folder, home) / root.below if folder.strip() else home / root.default


def _named(environ: Mapping[str, str], home: Path) -> Iterator[tuple[str, Path]]:
    """Yield logs whose path is in its own variable: pi's session folder and OpenCode's database."""
    if folder := environ.get("PI_CODING_AGENT_SESSION_DIR"):
        yield from (("pi", path) for path in _found(_expanded(folder, home), Files("", _packed("*.jsonl"))))
    if name := environ.get("OPENCODE_DB"):
        data = environ.get("XDG_DATA_HOME")
        base = _expanded(data, home) if data else home / ".local/share"
        path = base / "opencode" / _expanded(name, home)
        if path.is_file():
            yield "opencode", path


def _expanded(folder: str, home: Path) -> Path:
    folder = folder.strip()
    return home / folder[1:].lstrip("/\\") if folder == "~" or folder.startswith(("~/", "~\\")) else Path(folder)


def _found(root: Path, files: Files) -> Iterator[Path]:
    for path in _below(root / files.folder, deep=files.deep):
        if _matches(path, files.names):
            yield path


def _matches(path: PurePath, names: Iterable[str]) -> bool:
    return any(path.match(name) for name in names)


def _below(folder: Path, *, deep: bool) -> Iterator[Path]:
    """Yield the files in a folder. Links are followed, but no folder is visited twice. A store counts as one file."""
    seen: set[str] = set()
    for where, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        for store in [name for name in folders if is_store(Path(where, name))]:
            folders.remove(store)
            yield Path(where, store)
        yield from (Path(where, name) for name in names)
        if not deep:
            folders.clear()


def _told_apart(paths: Iterable[Path]) -> list[Path]:
    """Return the paths sorted, without duplicates. If several paths lead to one file, the first one counts."""
    found: dict[object, Path] = {}
    for path in sorted(paths):
        found.setdefault(_identity(path), path)
    return list(found.values())


def _identity(path: Path) -> object:
    """Return the device and inode of a file, which needs one system call. If they are unknown, return the real path."""
    try:
        known = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (known.st_dev, known.st_ino) if known.st_ino else os.path.realpath(path)


def logs_in(path: Path) -> list[Path]:
    """Return the logs in a folder, also in hidden folders, where agents store them. For a file, return its path."""
    if not path.is_dir() or is_store(path):
        return [path]
    return _told_apart(one for one in _below(path, deep=True) if one.is_dir() or _matches(one, LOGS))


def load(path: Path) -> bytes:
    """Return the bytes of a log. A store is exported with one session per line. Raises OSError and LogError."""
    if is_store(path):
        return b"".join(msgspec.json.encode(export) + b"\n" for export in exports(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LogError(f"{path}: not a regular file. Copy its content to a file and pass that file.")
    return path.read_bytes()
