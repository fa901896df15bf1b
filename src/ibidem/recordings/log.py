"""Read a log file as rows: one JSON object per line, a single object, or a list; plain or compressed (zstd, gzip).

A line that is not a JSON object, or that a reader cannot use, is skipped and reported, because agents can be killed
while they write. If no row can be read, LogError explains the reason.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from ..errors import IbidemError
from ..model import type_name
from .packed import Unpacked, packed
from .recording import Json, RecordedSegment, Skipped
from .streams import MAX_LINE_BYTES, LogBytes, LogFileStream, LongLine, StreamedRows

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of a zstd frame."""
GZIP_MAGIC = b"\x1f\x8b"
"""First bytes of a gzip member."""
MAX_UNPACKED = 512 << 20
"""Maximum decompressed size of a log, in bytes."""
CHUNK_BYTES = 1 << 20
"""Maximum size of a decompressed piece, in bytes."""
PROBED_LINES = 64
"""Number of lines that are read to detect whether a file is one JSON value or has one per line."""

UNUSABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""Exceptions from reading a row with an unexpected structure."""


class LogError(IbidemError):
    """The file has no readable session. The message says what the file is and what to do."""


@dataclass(slots=True)
class Log:
    """The rows of one file, in order. Each has its line number, or its index if the file is a single JSON value."""

    path: str
    rows: list[tuple[int, Json]] | StreamedRows
    skipped: list[Skipped] = field(default_factory=list)
    unpacked: Unpacked = field(default_factory=Unpacked)

    def put_away(self, segment: RecordedSegment) -> RecordedSegment:
        """Compress a finished segment of a large log. The segment must not share entries with another one."""
        return packed(segment, self.unpacked) if isinstance(self.rows, StreamedRows) else segment

    def tolerating(self, line: int) -> Tolerating:
        """Return a context manager that skips and reports this line if it has an unexpected structure."""
        return Tolerating(self, line)


class Tolerating:
    """Context manager that turns an error in a line into a skipped line.

    A class instead of a generator, because it is created for every line and must be fast.
    """

    __slots__ = ("_line", "_log")

    def __init__(self, log: Log, line: int) -> None:
        self._log, self._line = log, line

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, UNUSABLE):
            return False
        self._log.skipped.append(Skipped(self._line, f"unexpected shape ({type(error).__name__}: {error})"))
        return True


def read_log(path: str, data: LogBytes, most: int | None = None) -> Log:
    """Read the rows of a log, at most `max_rows` if given. Raises LogError if there is no JSON object in it."""
    log = Log(path, [])
    if isinstance(data, LogFileStream):
        probed = list(islice(data.lines(), PROBED_LINES))
        if not _packing(data.beginning(len(ZSTD_MAGIC)))[0] and not _is_one_value(probed):
            log.rows = StreamedRows(data.lines, decoded, _look_through(log, data.lines()))
            return _filled(log)
        data = data.whole()
    data = _unpacked(path, data)
    if not data.strip():
        raise LogError(f"{path}: empty: a session log is expected")
    rows: list[tuple[int, Json]] = []
    whole = decoded(data) if _is_one_value(list(islice(_lines(data), PROBED_LINES))) else None
    if isinstance(whole, dict | list):
        for number, value in enumerate(whole if isinstance(whole, list) else [whole], 1):
            _take(log, rows, number, value)
    else:
        for number, line in enumerate(_lines(data), 1):
            if line.strip():
                _take(log, rows, number, decoded(line))
            if len(rows) == most:
                break
    log.rows = rows
    return _filled(log)


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines one by one, because a list of all lines would be a second copy of the log."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start:end]
        start = end + 1
    yield data[start:]


def _filled(log: Log) -> Log:
    if not len(log.rows):
        first, why = log.skipped[0] if log.skipped else (1, "an empty list")
        told = f"no JSON objects in it (line {first}: {why})"
        raise LogError(f"{log.path}: {told}: a session log is expected, as JSON or one object per line")
    return log


def _look_through(log: Log, lines: Iterable[bytes]) -> int:
    """Count the rows, and report lines that are not rows."""
    count = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows: list[tuple[int, Json]] = []
            _take(log, rows, number, decoded(line))
            count += len(rows)
    return count


def _take(log: Log, rows: list[tuple[int, Json]], number: int, value: Any) -> None:
    if isinstance(value, dict):
        rows.append((number, value))
    else:
        why = value.why if isinstance(value, _Broken) else f"{type_name(value)} where an object is expected"
        log.skipped.append(Skipped(number, why))


def _is_one_value(lines: list[bytes]) -> bool:
    """Return True if the file is a single JSON value: it has one line, or its first line is not a complete object."""
    filled = [line for line in lines if line.strip()]
    return len(filled) < 2 or (not isinstance(filled[0], LongLine) and not isinstance(decoded(filled[0]), dict))


class _Broken(msgspec.Struct):
    why: str


def decoded(data: bytes) -> Any:
    """Parse JSON; a `_BrokenLine` with the reason if it is invalid."""
    if isinstance(data, LongLine):
        return _Broken(f"longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # more tolerant: lone surrogates, NaN, invalid UTF-8
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError as error:
        return _Broken(f"not valid JSON ({error})")
    except RecursionError:
        return _Broken("nested too deeply")


def beginning(data: LogBytes, size: int) -> bytes:
    """Return the first bytes of a log, decompressed; fewer if the log is damaged or `data` is incomplete."""
    if isinstance(data, LogFileStream):
        data = data.beginning(size)
    _, pieces = _packing(data)
    found = b""
    try:
        for piece in pieces(data) if pieces else [data]:
            found += piece[: size - len(found)]
            if len(found) >= size:
                break
    except _Damaged:
        pass
    return found


def _packing(data: bytes) -> tuple[str, Callable[[bytes], Iterator[bytes]] | None]:
    if data.startswith(ZSTD_MAGIC):
        return "zstd", _zstd
    return ("gzip", _gzip) if data.startswith(GZIP_MAGIC) else ("", None)


def _unpacked(path: str, data: bytes) -> bytes:
    """Decompress a log in pieces, because a few kilobytes can expand to gigabytes. Raises LogError at the limit."""
    kind, pieces = _packing(data)
    if pieces is None:
        return data
    found, size = [], 0
    try:
        for piece in pieces(data):
            size += len(piece)
            if size > MAX_UNPACKED:
                told = f"decompresses to more than {MAX_UNPACKED >> 20:,} MiB"
                raise LogError(f"{path}: {told}: if that is correct, decompress it and pass the resulting file")
            found.append(piece)
    except _Damaged as error:
        raise LogError(f"{path}: starts like a {kind} file but is damaged ({error}): copy it again") from None
    return b"".join(found)


class _Damaged(Exception):
    pass


def _zstd(data: bytes) -> Iterator[bytes]:
    """Yield decompressed pieces of zstd data with any number of frames, with or without their size."""
    from ..wire.zstd import Unpacker, ZstdError

    try:
        yield from Unpacker().pieces(data, CHUNK_BYTES)
    except (ZstdError, MemoryError) as error:  # a frame can require a very large window
        raise _Damaged(error) from None


def _gzip(data: bytes) -> Iterator[bytes]:
    """Yield decompressed pieces of gzip data with any number of members. A log that is still written can be cut off."""
    member = zlib.decompressobj(31)  # gzip format only
    try:
        for start in range(0, len(data), CHUNK_BYTES // 16):
            rest = data[start : start + CHUNK_BYTES // 16]
            while rest:
                if member.eof:
                    member = zlib.decompressobj(31)
                yield member.decompress(rest, CHUNK_BYTES)
                rest = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise _Damaged(error) from None


def seconds(stamp: Any) -> float | None:
    """Convert a timestamp to Unix seconds; None if it is invalid.

    Accepts ISO 8601 text (UTC if it has no zone), seconds and milliseconds.
    """
    if isinstance(stamp, str):
        try:
            found = datetime.fromisoformat(stamp)
        except ValueError:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return (stamp / 1000 if stamp > 1e11 else float(stamp)) if abs(stamp) < 1e14 else None
    return None
