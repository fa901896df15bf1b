"""Where logs are: files here, or objects at an address that fsspec knows; and what can be told without opening them."""

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
"""What stores call the digest of an object."""
TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified")
"""And the time at which it was written."""


class LogFile(NamedTuple):
    """A log, as far as it can be known without opening it."""

    path: str
    size: int = 0
    written: float | None = None
    """When it was last written to, in Unix seconds."""
    state: str = ""
    """Changes whenever the file does; empty where that cannot be told."""

    @classmethod
    def at(cls, path: str) -> LogFile:
        """A database may keep what is new in a file beside it."""
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
        # What is remembered holds the path as it was named here, so another way to name the file is another state.
        state = " ".join([path, os.path.abspath(path), *map(str, (*sizes, *times))])
        return cls(path, found.st_size, max(times) / 1e9, state)


# --- opening them -------------------------------------------------------------------------------


def is_url(path: str) -> bool:
    return "://" in path


def fetch(path: str, base: str = "") -> LogBytes:
    """The content of a log; a name that is not whole goes on from `base`. What is large is not held whole."""
    if is_url(path):
        return _fetched(path)
    file = Path(base, path)
    if file.is_file() and not is_store(file) and (size := file.stat().st_size) >= STREAMED_BYTES:
        return LogFileStream(file, size)
    return load(file)


def fetch_url(url: str) -> bytes:
    """What is there, opened with fsspec. Raises OSError."""
    with _reaching(url), _fsspec().open(url, "rb") as stream:
        data: bytes = stream.read()
        return data


class FetchedStream(LogFileStream):
    """A large log from elsewhere, in a file that is gone with this value."""

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
        raise IbidemError(f"logs at a URL need fsspec: {install_command('dask')}") from None
    return fsspec


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Every kind of address has errors of its own, for a key that is missing or a host that is gone; none is ours."""
    try:
        yield
    except (OSError, IbidemError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from None


# --- finding them -------------------------------------------------------------------------------


def below(url: str) -> list[LogFile]:
    """The logs at a URL: itself, or those in the folder that it is. Raises OSError where it cannot be reached."""
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
    """What is said of one object; of one that is not there, whoever opens it says so."""
    try:
        found: Mapping[str, Any] = system.info(path)
    except Exception:
        return {}
    return found


def _told(url: str, about: Mapping[str, Any]) -> LogFile:
    """Two objects of a size and a time, or of a digest, are taken to be one, as two files here are."""
    size = about.get("size")
    when = next((about[name] for name in TIMES if about.get(name)), None)
    edition = next((about[name] for name in EDITIONS if about.get(name)), None)
    written = when.timestamp() if isinstance(when, datetime) else when if isinstance(when, int | float) else None
    known = isinstance(size, int) and (edition or when) is not None
    return LogFile(
        url, size if isinstance(size, int) else 0, written, f"{url} {size} {edition} {when}" if known else ""
    )
