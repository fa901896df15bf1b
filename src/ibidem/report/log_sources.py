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
from ..recordings.discovery import LOG_ENDINGS, load_log
from ..recordings.log_streams import CHUNK_BYTES, STREAMED_BYTES
from ..recordings.opencode_store import is_store

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
    def from_path(cls, path: str) -> LogFile:
        """Look up a local log. For a SQLite database, new rows may be in its `-wal` file, so that counts too."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return cls(path)
        if os.path.isdir(path):
            return cls(path)
        times, sizes = [status.st_mtime_ns], [status.st_size]
        if path.endswith(".db") and os.path.exists(wal_path := f"{path}-wal"):
            wal_status = os.stat(wal_path)
            times.append(wal_status.st_mtime_ns)
            sizes.append(wal_status.st_size)
        # Cached results contain the path as given here, so the same file under another path is another state.
        state = " ".join([path, os.path.abspath(path), *map(str, (*sizes, *times))])
        return cls(path, status.st_size, max(times) / 1e9, state)


# --- opening logs -------------------------------------------------------------------------------


def is_url(path: str) -> bool:
    return "://" in path


def fetch(path: str, base: str = "") -> LogBytes:
    """Open a log, with relative paths resolved against `base`. A large log is streamed from disk."""
    if is_url(path):
        return _fetch_stream(path)
    file = Path(base, path)
    if file.is_file() and not is_store(file) and (size := file.stat().st_size) >= STREAMED_BYTES:
        return LogFileStream(file, size)
    return load_log(file)


def fetch_url(url: str) -> bytes:
    """Read a URL with fsspec. Raises OSError."""
    with _translate_errors(url), _import_fsspec().open(url, "rb") as stream:
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


def _fetch_stream(url: str) -> LogBytes:
    with _translate_errors(url), _import_fsspec().open(url, "rb") as stream:
        if (getattr(stream, "size", None) or 0) >= STREAMED_BYTES:
            return FetchedStream(stream)
        data: bytes = stream.read()
        return data


def _import_fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise IbidemError(f"logs at a URL need fsspec. Install it: {install_command('dask')}") from None
    return fsspec


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    """Turn errors of a file system into OSError: each has its own types, such as for a missing key or a lost host."""
    try:
        yield
    except (OSError, IbidemError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from None


# --- finding logs -------------------------------------------------------------------------------


def list_logs(url: str) -> list[LogFile]:
    """List the logs at a URL: one object, or the logs in a folder. Raises OSError if it cannot be reached."""
    try:
        system, path = _import_fsspec().core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise IbidemError(f"{url}: {error}") from None
    with _translate_errors(url):
        if not system.isdir(path):
            return [_log_from_metadata(url, _object_metadata(system, path))]
        objects: Mapping[str, Mapping[str, Any]] = system.find(path, detail=True)
    logs = (each for each in sorted(objects) if each.endswith(LOG_ENDINGS))
    return [_log_from_metadata(system.unstrip_protocol(each), objects[each]) for each in logs]


def _object_metadata(system: Any, path: str) -> Mapping[str, Any]:
    """Look up an object's metadata; empty on errors, because opening the object reports them."""
    try:
        metadata: Mapping[str, Any] = system.info(path)
    except Exception:
        return {}
    return metadata


def _log_from_metadata(url: str, about: Mapping[str, Any]) -> LogFile:
    """Make a `LogFile` from an object's metadata. It counts as unchanged if size and digest, or size and time, are
    equal."""
    size = about.get("size")
    mtime = next((about[name] for name in TIMES if about.get(name)), None)
    digest = next((about[name] for name in EDITIONS if about.get(name)), None)
    written_at = mtime.timestamp() if isinstance(mtime, datetime) else mtime if isinstance(mtime, int | float) else None
    is_known = isinstance(size, int) and (digest or mtime) is not None
    return LogFile(
        url, size if isinstance(size, int) else 0, written_at, f"{url} {size} {digest} {mtime}" if is_known else ""
    )
