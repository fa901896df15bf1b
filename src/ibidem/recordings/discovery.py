"""Where agents keep their logs on this machine, and how to get at what is found there.

The environment, the home folder and the platform are given: nothing here reads them itself. A variable moves a place,
as it does for the agent. All of these agents use the home folder on every platform (on Windows the user profile).
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
"""What the name of a log ends with as it was written, and packed."""
LOG_ENDINGS = tuple(f"{ending}{packing}" for ending in (".jsonl", ".json", ".traj") for packing in PACKINGS)
"""What names of logs end with, in a folder or at a URL."""
LOGS = (*(f"*{ending}" for ending in LOG_ENDINGS), *DATABASES)
"""What is looked for in a folder that the user names."""


def _packed(*names: str) -> tuple[str, ...]:
    """These names, and those of packed copies: old logs are often packed to save space."""
    return tuple(f"{name}{packing}" for name in names for packing in PACKINGS)


class Files(NamedTuple):
    folder: str
    """Below the root."""
    names: tuple[str, ...]
    deep: bool = True
    """Whether the folders below it count."""


class Root(NamedTuple):
    default: str
    """Below the home folder."""
    variable: str = ""
    """Moves it."""
    below: str = ""
    """What follows the variable's value."""
    platforms: tuple[str, ...] = ("linux", "darwin", "win32")


class AgentLogs(NamedTuple):
    agent: str
    roots: tuple[Root, ...]
    files: tuple[tuple[Files, ...], ...]
    """Alternatives: the first that finds something counts."""


LIST_VARIABLES = frozenset({"CLAUDE_CONFIG_DIR"})
"""Variables that may name more than one folder, with commas between them."""

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
        # Beside its events a session keeps files of its own, which may be of any kind.
        ((Files("session-state", _packed("events.jsonl")), Files("session-state", _packed("*.jsonl"), deep=False)),),
    ),
    AgentLogs(
        "gemini-cli",
        (Root(".gemini", "GEMINI_CLI_HOME", ".gemini"),),
        # A sub-agent's chat lies in a folder with the name of the session.
        ((Files("tmp", _packed("chats/session-*.json", "chats/session-*.jsonl", "chats/*/*.jsonl")),),),
    ),
    AgentLogs("pi", (Root(".pi/agent", "PI_CODING_AGENT_DIR"),), ((Files("sessions", _packed("*.jsonl")),),)),
    AgentLogs(
        "opencode",
        (Root(".local/share/opencode", "XDG_DATA_HOME", "opencode"),),
        # The database took over what was in the folder.
        ((Files("", DATABASES, deep=False),), (Files("storage", ("session",), deep=False),)),
    ),
)


def discover(environ: Mapping[str, str], home: Path, platform: str) -> list[Path]:
    """The logs of every agent that is known. Folders that cannot be read are passed over."""
    return _told_apart(path for _, path in _everywhere(environ, home, platform))


def discover_by_agent(environ: Mapping[str, str], home: Path, platform: str) -> dict[str, list[Path]]:
    """The logs that `discover` finds, in its order, by the agent in whose place they lie; only agents that have any."""
    owners: dict[Path, str] = {}
    for agent, path in _everywhere(environ, home, platform):
        owners.setdefault(path, agent)
    paths = _told_apart(owners)
    agents = dict.fromkeys(owners.values())
    return {agent: own for agent in agents if (own := [path for path in paths if owners[path] == agent])}


def _everywhere(environ: Mapping[str, str], home: Path, platform: str) -> Iterator[tuple[str, Path]]:
    """Agents, and what lies in their places."""
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
    """Logs in places of their own: a folder of pi's sessions, and OpenCode's database."""
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
    """What lies in a folder, links followed but no folder twice. Stores are whole: nothing below them is told."""
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
    """In order; of several ways to one file, the first."""
    found: dict[object, Path] = {}
    for path in sorted(paths):
        found.setdefault(_identity(path), path)
    return list(found.values())


def _identity(path: Path) -> object:
    """One question instead of one for each folder on the way; where there is no answer, the way itself."""
    try:
        known = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (known.st_dev, known.st_ino) if known.st_ino else os.path.realpath(path)


def logs_in(path: Path) -> list[Path]:
    """The logs in a folder, hidden folders included: that is where agents keep them. A file stands for itself."""
    if not path.is_dir() or is_store(path):
        return [path]
    return _told_apart(one for one in _below(path, deep=True) if one.is_dir() or _matches(one, LOGS))


def load(path: Path) -> bytes:
    """The bytes of a log, whatever it is kept in: a store becomes one session per line. Raises OSError, LogError."""
    if is_store(path):
        return b"".join(msgspec.json.encode(export) + b"\n" for export in exports(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LogError(f"{path}: not a regular file. Copy its content to a file, and name that.")
    return path.read_bytes()
