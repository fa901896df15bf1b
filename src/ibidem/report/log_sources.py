"""Find and open logs: local files, or objects at a URL that fsspec supports."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..environment import install_command
from ..errors import IbidemError
from ..recordings import LogBytes, LogFileStream
from ..recordings.discovery import LOG_ENDINGS, load
from ..recordings.opencode_store import is_store
from ..recordings.streams import CHUNK_BYTES, STREAMED_BYTES

EDITIONS = ("ETag", "etag", "content_md5", "md5Hash")
"""Names of an object's digest in fsspec's file systems."""
TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified")
"""Names of an object's modification time in fsspec's file systems."""


class LogFile(NamedTuple):
    """A log that has not been opened: path, size and modification time."""

    path: str
    size: int = 0
    written: float | None = None
    """Modification time in Unix seconds; None if unknown."""
    state: str = ""
    """Changes whenever the file changes; empty if size or time are unknown."""

    @classmethod
    def at(cls, path: str) -> LogFile:
        """Look up a local log. For a SQLite database, new rows may be in its `-wal` file, so that counts too."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return cls(path)
        if os.path.isdir(path):
            return cls(path)
        times, sizes = [found.st_mtime_ns], [found.st_size]
        if path.endswith(".db") and os.path.exists(beside := f"{path}-wal"):
            more = os.stat(beside)
            times.append(more.st_mtime_ns)
            sizes.append(more.st_size)
        # Cached results contain the path as given here, so the same file under another path is another state.
        state = " ".join([path, os.path.abspath(path), *map(str, (*sizes, *times))])
        return cls(path, found.st_size, max(times) / 1e9, state)


# --- opening logs -------------------------------------------------------------------------------


def is_url(path: str) -> bool:
    return "://" in path


def fetch(path: str, base: str = "") -> LogBytes:
    """Open a log, with relative paths resolved against `base`. A large log is streamed from disk."""
    if is_url(path):
        return _fetched(path)
    file = Path(base, path)
    if file.is_file() and not is_store(file) and (size := file.stat().st_size) >= STREAMED_BYTES:
        return LogFileStream(file, size)
    return load(file)


def fetch_url(url: str) -> bytes:
    """Read a URL with fsspec. Raises OSError."""
    with _reaching(url), _fsspec().open(url, "rb") as stream:
        data: bytes = stream.read()
        return data


class FetchedStream(LogFileStream):
    """A large log from a URL, in a temporary file that is deleted with this object."""

    def __init__(self, stream: IO[bytes]) -> None:
        handle, name = tempfile.mkstemp(prefix="ibidem-", suffix=".log")
        weakref.finalize(self, os.unlink, name)
        with open(handle, "wb") as file:
            shutil.copyfileobj(stream, file, CHUNK_BYTES)
            super().__init__(Path(name), file.tell())


def _fetched(url: str) -> LogBytes:
    with _reaching(url), _fsspec().open(url, "rb") as stream:
        if (getattr(stream, "size", None) or 0) >= STREAMED_BYTES:
            return FetchedStream(stream)
        data: bytes = stream.read()
        return data


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise IbidemError(f"logs at a URL need fsspec. Install it: {install_command('dask')}") from None
    return fsspec


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn errors of a file system into OSError: each has its own types, such as for a missing key or a lost host."""
    try:
        yield
    except (OSError, IbidemError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from None


# --- finding logs -------------------------------------------------------------------------------


def below(url: str) -> list[LogFile]:
    """List the logs at a URL: one object, or the logs in a folder. Raises OSError if it cannot be reached."""
    try:
        system, path = _fsspec().core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise IbidemError(f"{url}: {error}") from None
    with _reaching(url):
        if not system.isdir(path):
            return [_told(url, _about(system, path))]
        found: Mapping[str, Mapping[str, Any]] = system.find(path, detail=True)
    logs = (each for each in sorted(found) if each.endswith(LOG_ENDINGS))
    return [_told(system.unstrip_protocol(each), found[each]) for each in logs]


def _about(system: Any, path: str) -> Mapping[str, Any]:
    """Look up an object's metadata; empty on errors, because opening the object reports them."""
    try:
        found: Mapping[str, Any] = system.info(path)
    except Exception:
        return {}
    return found


def _told(url: str, about: Mapping[str, Any]) -> LogFile:
    """Make a `LogFile` from an object's metadata. It counts as unchanged if size and digest, or size and time, are
    equal."""
    size = about.get("size")
    when = next((about[name] for name in TIMES if about.get(name)), None)
    edition = next((about[name] for name in EDITIONS if about.get(name)), None)
    written = when.timestamp() if isinstance(when, datetime) else when if isinstance(when, int | float) else None
    known = isinstance(size, int) and (edition or when) is not None
    return LogFile(
        url, size if isinstance(size, int) else 0, written, f"{url} {size} {edition} {when}" if known else ""
    )
