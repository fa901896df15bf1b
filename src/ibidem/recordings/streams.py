"""Logs that are too large to be held whole: read from their file a line at a time, as often as somebody goes through.

Texts that were sent are kept by whoever reads; all else of a row, and the bytes of the file, are gone with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, SupportsIndex, overload

from .recording import Json

STREAMED_BYTES = 32 << 20
"""From this size on a file is not held whole."""
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
"""Longest line that is read. No agent writes a row of this size."""


class LongLine(bytes):
    """Placeholder for a line that is longer than `MAX_LINE_BYTES`."""


class LogFileStream:
    """The first so many bytes of a large file, in place of the bytes themselves: an agent may be writing to it, and
    whoever goes through it again has to find what he found before."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._long_lines: dict[int, int] = {}
        """Start and end of lines that are too long, so that they are read once."""

    def __len__(self) -> int:
        return self._size

    def beginning(self, size: int) -> bytes:
        with open(self._path, "rb") as file:
            return file.read(min(size, self._size))

    def whole(self) -> bytes:
        return self.beginning(self._size)

    def chunks(self) -> Iterator[bytes]:
        left = self._size
        with open(self._path, "rb") as file:
            while chunk := file.read(min(CHUNK_BYTES, left)):
                left -= len(chunk)
                yield chunk

    def lines(self) -> Iterator[bytes]:
        start = 0
        with open(self._path, "rb", buffering=CHUNK_BYTES) as file:
            while start < self._size:
                if start not in self._long_lines:
                    line = file.readline(min(self._size - start, MAX_LINE_BYTES))
                    if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                        if not line:
                            return  # the file has become shorter
                        start += len(line)
                        yield line.removesuffix(b"\n")
                        continue
                    del line
                    self._long_lines[start] = _end_of_line(file, self._size)
                start = file.seek(self._long_lines[start])
                yield LongLine(b"too long")


def _end_of_line(file: IO[bytes], size: int) -> int:
    """Offset behind the next line break."""
    while (at := file.tell()) < size:
        chunk = file.read(min(CHUNK_BYTES, size - at))
        if not chunk or (found := chunk.find(b"\n")) >= 0:
            return at + (found + 1 if chunk else 0)
    return size


LogBytes = bytes | LogFileStream
"""What a log is read from."""


class StreamedRows:
    """The rows of a large log, read anew whenever somebody goes through them; each with its line."""

    def __init__(self, lines: Callable[[], Iterator[bytes]], decoded: Callable[[bytes], Any], count: int) -> None:
        """`count` rows are there, as whoever looked at every line knows."""
        self._lines, self._decoded, self._count = lines, decoded, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Json]]:
        for number, line in enumerate(self._lines(), 1):
            if line.strip() and isinstance(value := self._decoded(line), dict):
                yield number, value

    @overload
    def __getitem__(self, at: SupportsIndex) -> tuple[int, Json]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[int, Json]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> tuple[int, Json] | list[tuple[int, Json]]:
        if isinstance(at, slice):
            return list(islice(self, *at.indices(self._count)))
        return next(islice(self, at.__index__(), None))
