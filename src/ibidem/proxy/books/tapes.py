"""The files of `--record`: one for each conversation, bounded in size and age, readable whenever we are killed.

Every row is a gzip member of its own, handed to the system in one piece: what was written is whole, and only the last
member can be cut. Files are for their owner alone, and named so that no two runs share one. Only files with such a
name are ever deleted.
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
from ...recordings.bodies import BodyWriter, RequestBodies, as_line
from ...recordings.recording import Json

TAPE_NAME = re.compile(r"ibidem-\d{8}T\d{6}-[0-9a-f]{8}-[a-z0-9]+\.jsonl\.gz")
FILE_BYTES = 64 * 2**20
"""Bytes of a file at which its conversation goes on in a new one."""
TEXT_BYTES = 128 * 2**20
"""Bytes that a file may unpack to, likewise: readers of logs refuse what is much larger."""
FILES_IN_FOLDER = 4
"""Files of full size that must fit into the folder: a small limit makes small files."""
HELD_BYTES = 64 * 2**20
"""Bytes of last requests that are held, so that only what is new in the next ones is written."""
PACKING_LEVEL = 6
DAY_SECONDS = 86_400.0
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class TapeLimits(NamedTuple):
    days: float
    """For how long a file is kept after it was last written; 0 is for ever."""
    size: int
    """Bytes of all files in the folder; 0 is no limit."""

    @property
    def file_bytes(self) -> int:
        return min(FILE_BYTES, self.size // FILES_IN_FOLDER) if self.size else FILE_BYTES

    def __str__(self) -> str:
        told = [f"older than {self.days:g} days"] if self.days else []
        return " or ".join([*told, *([f"above {self.size:,} bytes in all"] if self.size else [])])


@dataclass(slots=True)
class _Tape:
    """The file of one conversation."""

    path: Path
    size: int = 0
    text: int = 0
    """Bytes of it, packed and unpacked."""
    bodies: BodyWriter = field(default_factory=BodyWriter)

    def write(self, bodies: RequestBodies, row: Json) -> int:
        """Returns how many bytes were added."""
        line = as_line({**row, **self.bodies.tell(bodies)})
        packed = gzip.compress(line, PACKING_LEVEL, mtime=0)
        _append(self.path, packed, self.size)
        self.size, self.text = self.size + len(packed), self.text + len(line)
        return len(packed)


class Tapes:
    """For one thread. Raises OSError where something cannot be written; what was written before stays readable."""

    def __init__(self, folder: str, limits: TapeLimits, most: int) -> None:
        """`most`: conversations that are known; one that comes back after that goes on in a new file."""
        self.folder = Path(folder)
        self.limits = limits
        self._most = most
        self._run = secrets.token_hex(4)
        self._tapes: OrderedDict[str, _Tape] = OrderedDict()
        """The one that was written longest ago first."""
        self._made = 0
        self._total = 0
        """Bytes in the folder, as far as we know: others may write there too."""
        self._prepare()

    def _prepare(self) -> None:
        where = one_line(str(self.folder))
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            if not self.folder.is_dir():
                raise IbidemError(f"{where}: this is no folder: name another with --record")
            if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
                raise IbidemError(f"{where}: cannot be written to: name another with --record")
        except OSError as error:
            raise IbidemError(f"{where}: {error.strerror or error}: name another with --record") from None

    def named(self, conversation: str) -> str:
        """What a conversation of this run is called in recordings."""
        return f"{self._run}-{conversation}" if conversation else ""

    def write(self, conversation: str, bodies: RequestBodies, row: Json, at: float) -> None:
        """One exchange, at the end of the file of its conversation."""
        tape = self._tapes.pop(conversation, None)
        if tape is None or tape.size >= self.limits.file_bytes or tape.text >= TEXT_BYTES:
            tape = _Tape(self._new_path(at))
        try:
            written = tape.write(bodies, row)
        except FileNotFoundError:
            if not tape.size:
                raise
            tape = _Tape(self._new_path(at))  # it was deleted, and what it builds on is gone
            written = tape.write(bodies, row)
        self._tapes[conversation] = tape
        self._total += written
        self._forget()

    def _new_path(self, at: float) -> Path:
        self._made += 1
        when = datetime.fromtimestamp(at, UTC)
        return self.folder / f"ibidem-{when:%Y%m%dT%H%M%S}-{self._run}-{self._made}.jsonl.gz"

    def _forget(self) -> None:
        """Requests that are held, those of conversations that were quiet for longest first. Never the last one's."""
        while len(self._tapes) > self._most:
            self._tapes.popitem(last=False)
        held = sum(tape.bodies.held for tape in self._tapes.values())
        for tape in list(self._tapes.values())[:-1]:
            if held <= HELD_BYTES:
                break
            held -= tape.bodies.held
            tape.bodies.forget()

    @property
    def full(self) -> bool:
        return bool(self.limits.size) and self._total > self.limits.size

    def sweep(self, now: float) -> int:
        """Delete what is too old, and the oldest of what is too much. Returns how many files went."""
        files = sorted(_files(self.folder))
        self._total = sum(each.size for each in files)
        gone = 0
        for at, size, path in files:
            old = self.limits.days and now - at > self.limits.days * DAY_SECONDS
            if not old and not self.full:
                break
            with suppress(FileNotFoundError):  # another proxy was faster
                path.unlink()
                gone += 1
            self._total -= size
        return gone


class _File(NamedTuple):
    at: float
    """When it was last written."""
    size: int
    path: Path


def _files(folder: Path) -> list[_File]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if TAPE_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(_File(status.st_mtime, status.st_size, Path(entry.path)))
    return found


def _append(path: Path, data: bytes, size: int) -> None:
    """All of it, or nothing: what a full disk leaves of it is taken back."""
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
