"""Folders, variables and files of this machine. The only module that reads environment variables."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from .errors import IbidemError, one_line

FOLDER_NAME = "ibidem"
CHUNK_BYTES = 2**16
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""Opening a pipe without a writer, or a kernel file without data, must not block."""


def cache_folder() -> Path:
    """Return the folder for files that may be deleted at any time."""
    return _folder("XDG_CACHE_HOME", ".cache", "Library/Caches", "Cache")


def data_folder() -> Path:
    """Return the folder for files that cannot be recreated."""
    return _folder("XDG_DATA_HOME", ".local/share", "Library/Application Support", "Data")


def config_folder() -> Path:
    """Return the folder of this user's settings."""
    return _folder("XDG_CONFIG_HOME", ".config", "Library/Application Support", "Config")


def environment_variables() -> dict[str, str]:
    """Return a copy of this process's environment variables."""
    return dict(os.environ)


def system_proxies(host: str) -> dict[str, str]:
    """Return the system's proxies for a host by scheme. Empty if the system has no such settings."""
    if sys.platform not in ("darwin", "win32"):
        return {}
    from urllib.request import getproxies, proxy_bypass

    return {} if proxy_bypass(host) else getproxies()


def store_target() -> str:
    """Return the store of originals, if no option names one."""
    return os.environ.get("IBIDEM_STORE") or str(data_folder() / "store.sqlite3")


def has_password(target: str) -> bool:
    """Return True if a store's address contains a password, which the process list would show. A path contains none."""
    _, mark, rest = target.partition("://")
    if not mark:
        return False
    password = rest.rpartition("@")[0].partition(":")[
        2
    ]  # before the last @, because a password may contain one unescaped
    return bool(password) or "password=" in rest.partition("?")[2].lower()


STORE_DAYS, STORE_BYTES = "IBIDEM_STORE_DAYS", "IBIDEM_STORE_BYTES"


def store_limits() -> tuple[str, str]:
    """Return the store's retention in days and its size limit in bytes, as texts; empty without settings."""
    return os.environ.get(STORE_DAYS, ""), os.environ.get(STORE_BYTES, "")


def _folder(variable: str, unix: str, mac: str, windows: str) -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home_folder() / "AppData" / "Local") / FOLDER_NAME / windows
    if base := os.environ.get(variable):
        return Path(base) / FOLDER_NAME
    return home_folder() / (mac if sys.platform == "darwin" else unix) / FOLDER_NAME


def install_command(extra: str, *options: str) -> str:
    """Return the command that installs an optional part. It uses the clone, if Ibidem was installed from one."""
    clone = _clone_folder()
    requirement = f"'{clone or 'ibidem-llm'}[{extra}]'"
    return " ".join(("pip install", *options, requirement))


def _clone_folder() -> str:
    """Return the folder that Ibidem was installed from; "" if it came from a package index."""
    folder = Path(__file__).parents[2]
    if (folder / "pyproject.toml").is_file():
        return str(folder)
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = urlsplit(json.loads(distribution("ibidem-llm").read_text("direct_url.json") or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return ""
    path = url2pathname(origin.path) if origin.scheme == "file" else ""
    return path if path and os.path.isdir(path) else ""


def home_folder() -> Path:
    """Return the user's home folder. Raises IbidemError without one."""
    try:
        return Path.home()
    except RuntimeError:
        from .errors import IbidemError  # the status line does not need it

        raise IbidemError("HOME: not set, and this user has no home folder: set it to a folder of yours") from None


def read_bounded(path: Path, max_bytes: int, advice: str) -> bytes | None:
    """Return the content of a file; None if it is missing. Raises IbidemError with the cause and the advice
    `advice`."""
    where = one_line(str(path))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening, which alone activates some devices
            raise IbidemError(f"{where}: not a regular file: {advice}")
        content = _read_at_most(path, max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IbidemError(f"{where}: {error.strerror or error}: {advice}") from None
    if len(content) > max_bytes:
        raise IbidemError(f"{where}: longer than {max_bytes:,} bytes: {advice}")
    return content


def _read_at_most(path: Path, max_bytes: int) -> bytes:
    """Read without using the file size, because kernel files report 0 bytes."""
    content = bytearray()
    handle = os.open(path, OPEN_FLAGS)
    try:
        while len(content) < max_bytes and (piece := os.read(handle, min(CHUNK_BYTES, max_bytes - len(content)))):
            content += piece
    finally:
        os.close(handle)
    return bytes(content)
