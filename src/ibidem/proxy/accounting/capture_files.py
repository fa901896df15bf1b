"""Capture files of `--record`: one per conversation, bounded in size and age, and readable after a crash.

Every row is its own gzip member and is written at once, so only the last member can be incomplete. Only the owner can
read the files. Their names contain a random run id, so that no two runs share a file. Only files with such a name are
ever deleted.
"""

from __future__ import annotations

import gzip
import os
import re
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ...errors import IbidemError, one_line
from ...recordings.body_store import BodyWriter, RequestBodies, encode_line
from ...recordings.recording import Json

FILE_NAME = re.compile(r"ibidem-\d{8}T\d{6}-[0-9a-f]{8}-[a-z0-9]+\.jsonl\.gz")
FILE_BYTES = 64 * 2**20
"""Compressed size of a file above which its conversation continues in a new one."""
TEXT_BYTES = 128 * 2**20
"""The same for the decompressed size, because readers of logs reject much larger files."""
FILES_IN_FOLDER = 4
"""Files of maximum size that must fit into the folder, so that a small limit makes small files."""
HELD_BYTES = 64 * 2**20
"""Bytes of latest requests in memory, so that only new content of the next ones is written."""
COMPRESSION_LEVEL = 6
DAY_SECONDS = 86_400.0
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class CaptureLimits(NamedTuple):
    """Retention of capture files."""

    days: float
    """Days after its last write when a file is deleted; 0 for never."""
    size: int
    """Maximum bytes of all files in the folder; 0 for no limit."""

    @property
    def file_bytes(self) -> int:
        """Maximum bytes of one file."""
        return min(FILE_BYTES, self.size // FILES_IN_FOLDER) if self.size else FILE_BYTES

    def __str__(self) -> str:
        parts = [f"older than {self.days:g} days"] if self.days else []
        return " or ".join([*parts, *([f"above {self.size:,} bytes in all"] if self.size else [])])


@dataclass(slots=True)
class _CaptureFile:
    """Capture file of one conversation."""

    path: Path
    size: int = 0
    text: int = 0
    """Bytes of the file, compressed (`size`) and decompressed (`text`)."""
    bodies: BodyWriter = field(default_factory=BodyWriter)

    def append_row(self, bodies: RequestBodies, row: Json) -> int:
        """Append an exchange. Return the number of bytes added."""
        line = encode_line({**row, **self.bodies.encode_bodies(bodies)})
        compressed = gzip.compress(line, COMPRESSION_LEVEL, mtime=0)
        _append_or_undo(self.path, compressed, self.size)
        self.size, self.text = self.size + len(compressed), self.text + len(line)
        return len(compressed)


class CaptureFiles:
    """Capture files of one run, for one thread. After a failed write (OSError), earlier rows stay readable."""

    def __init__(self, folder: str, limits: CaptureLimits, most: int) -> None:
        """`most`: conversations with an open file. One that was evicted continues in a new file."""
        self.folder = Path(folder)
        self.limits = limits
        self._most = most
        self._run = secrets.token_hex(4)
        self._files: OrderedDict[str, _CaptureFile] = OrderedDict()
        """Files by conversation, the least recently written first."""
        self._made = 0
        self._total = 0
        """Bytes in the folder. An estimate, because other processes may write there too."""
        self._prepare_folder()

    def _prepare_folder(self) -> None:
        where = one_line(str(self.folder))
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            if not self.folder.is_dir():
                raise IbidemError(f"{where}: not a folder: name another with --record")
            if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
                raise IbidemError(f"{where}: cannot be written to: name another with --record")
        except OSError as error:
            raise IbidemError(f"{where}: {error.strerror or error}: name another with --record") from None

    def recorded_name(self, conversation: str) -> str:
        """Return the name of a conversation of this run in recordings."""
        return f"{self._run}-{conversation}" if conversation else ""

    def write_exchange(self, conversation: str, bodies: RequestBodies, row: Json, at: float) -> None:
        """Append an exchange to the file of its conversation."""
        file = self._files.pop(conversation, None)
        if file is None or file.size >= self.limits.file_bytes or file.text >= TEXT_BYTES:
            file = _CaptureFile(self._new_path(at))
        try:
            written_bytes = file.append_row(bodies, row)
        except FileNotFoundError:
            if not file.size:
                raise
            file = _CaptureFile(self._new_path(at))  # the file was deleted, with the requests that later rows refer to
            written_bytes = file.append_row(bodies, row)
        self._files[conversation] = file
        self._total += written_bytes
        self._release_memory()

    def _new_path(self, at: float) -> Path:
        self._made += 1
        when = datetime.fromtimestamp(at, UTC)
        return self.folder / f"ibidem-{when:%Y%m%dT%H%M%S}-{self._run}-{self._made}.jsonl.gz"

    def _release_memory(self) -> None:
        """Release requests in memory above the limits, the least recently written first, and never the last one's."""
        while len(self._files) > self._most:
            self._files.popitem(last=False)
        held_bytes = sum(file.bodies.held_bytes for file in self._files.values())
        for tape in list(self._files.values())[:-1]:
            if held_bytes <= HELD_BYTES:
                break
            held_bytes -= tape.bodies.held_bytes
            tape.bodies.drop_bases()

    @property
    def is_full(self) -> bool:
        """True if the folder is above its limit."""
        return bool(self.limits.size) and self._total > self.limits.size

    def delete_expired(self, now: float) -> int:
        """Delete files that are too old, and the oldest ones above the limit. Return the number of deleted files."""
        files = sorted(_list_files(self.folder))
        self._total = sum(each.size for each in files)
        deleted = 0
        for at, size, path in files:
            is_old = self.limits.days and now - at > self.limits.days * DAY_SECONDS
            if not is_old and not self.is_full:
                break
            with suppress(FileNotFoundError):  # another proxy has deleted it
                path.unlink()
                deleted += 1
            self._total -= size
        return deleted


class _FileStatus(NamedTuple):
    at: float
    """Time of the last write."""
    size: int
    path: Path


def _list_files(folder: Path) -> list[_FileStatus]:
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if FILE_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    files.append(_FileStatus(status.st_mtime, status.st_size, Path(entry.path)))
    return files


def _append_or_undo(path: Path, data: bytes, size: int) -> None:
    """Append all of `data`, or nothing. After a partial write (full disk), truncate the file to its old size."""
    handle = os.open(path, APPEND_FLAGS if size else CREATE_FLAGS, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(handle, size)
        raise
    finally:
        os.close(handle)
