"""Large logs: read the rows from the file line by line at each iteration, instead of storing them in memory.

Readers store only the texts that were sent. The rest of a row is freed when the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, SupportsIndex, overload

from .recording import Json

STREAMED_BYTES = 32 << 20
"""Minimum size of a file that is read as a stream."""
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
"""Longest line that is read. No agent writes a row of this size."""


class LongLine(bytes):
    """Placeholder for a line that is longer than `MAX_LINE_BYTES`."""


class LogFileStream:
    """A large log file, limited to its size at the start.

    The limit makes every iteration return the same lines, also if an agent is writing to the file.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._long_lines: dict[int, int] = {}
        """Start and end offsets of lines that are too long, so that later iterations skip them."""

    def __len__(self) -> int:
        return self._size

    def read_start(self, size: int) -> bytes:
        with open(self._path, "rb") as file:
            return file.read(min(size, self._size))

    def read_all(self) -> bytes:
        return self.read_start(self._size)

    def iter_chunks(self) -> Iterator[bytes]:
        remaining = self._size
        with open(self._path, "rb") as file:
            while chunk := file.read(min(CHUNK_BYTES, remaining)):
                remaining -= len(chunk)
                yield chunk

    def iter_lines(self) -> Iterator[bytes]:
        start = 0
        with open(self._path, "rb", buffering=CHUNK_BYTES) as file:
            while start < self._size:
                if start not in self._long_lines:
                    line = file.readline(min(self._size - start, MAX_LINE_BYTES))
                    if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                        if not line:
                            return  # the file was truncated
                        start += len(line)
                        yield line.removesuffix(b"\n")
                        continue
                    del line
                    self._long_lines[start] = _end_of_line(file, self._size)
                start = file.seek(self._long_lines[start])
                yield LongLine(b"too long")


def _end_of_line(file: IO[bytes], size: int) -> int:
    """Return the offset after the next line break."""
    while (at := file.tell()) < size:
        chunk = file.read(min(CHUNK_BYTES, size - at))
        if not chunk or (line_break := chunk.find(b"\n")) >= 0:
            return at + (line_break + 1 if chunk else 0)
    return size


LogBytes = bytes | LogFileStream
"""Content of a log: its bytes, or a stream if it is large."""


class StreamedRows:
    """Rows of a large log with their line numbers. Each iteration reads the file again."""

    def __init__(self, lines: Callable[[], Iterator[bytes]], decode: Callable[[bytes], Any], count: int) -> None:
        """`count` is the number of rows, which the caller determined by parsing every line."""
        self._lines, self._decode, self._count = lines, decode, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Json]]:
        for number, line in enumerate(self._lines(), 1):
            if line.strip() and isinstance(value := self._decode(line), dict):
                yield number, value

    @overload
    def __getitem__(self, at: SupportsIndex) -> tuple[int, Json]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[int, Json]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> tuple[int, Json] | list[tuple[int, Json]]:
        if isinstance(at, slice):
            return list(islice(self, *at.indices(self._count)))
        return next(islice(self, at.__index__(), None))
