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
from .compressed_history import DecompressedHistory, compress_segment
from .log_streams import MAX_LINE_BYTES, LogBytes, LogFileStream, LongLine, StreamedRows
from .recording import Json, RecordedSegment, SkippedLine

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
    skipped: list[SkippedLine] = field(default_factory=list)
    history_cache: DecompressedHistory = field(default_factory=DecompressedHistory)

    def compress_finished(self, segment: RecordedSegment) -> RecordedSegment:
        """Compress a finished segment of a large log. The segment must not share entries with another one."""
        return compress_segment(segment, self.history_cache) if isinstance(self.rows, StreamedRows) else segment

    def skip_bad_line(self, line: int) -> SkipBadLines:
        """Return a context manager that skips and reports this line if it has an unexpected structure."""
        return SkipBadLines(self, line)


class SkipBadLines:
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
        self._log.skipped.append(SkippedLine(self._line, f"unexpected shape ({type(error).__name__}: {error})"))
        return True


def read_log(path: str, data: LogBytes, max_rows: int | None = None) -> Log:
    """Read the rows of a log, at most `max_rows` if given. Raises LogError if there is no JSON object in it."""
    log = Log(path, [])
    if isinstance(data, LogFileStream):
        first_lines = list(islice(data.iter_lines(), PROBED_LINES))
        if not _detect_compression(data.read_start(len(ZSTD_MAGIC)))[0] and not _is_one_value(first_lines):
            log.rows = StreamedRows(data.iter_lines, decode_row, _count_rows(log, data.iter_lines()))
            return _check_rows(log)
        data = data.read_all()
    data = _decompress_log(path, data)
    if not data.strip():
        raise LogError(f"{path}: empty: a session log is expected")
    rows: list[tuple[int, Json]] = []
    whole = decode_row(data) if _is_one_value(list(islice(_split_lines(data), PROBED_LINES))) else None
    if isinstance(whole, dict | list):
        for number, value in enumerate(whole if isinstance(whole, list) else [whole], 1):
            _add_value(log, rows, number, value)
    else:
        for number, line in enumerate(_split_lines(data), 1):
            if line.strip():
                _add_value(log, rows, number, decode_row(line))
            if len(rows) == max_rows:
                break
    log.rows = rows
    return _check_rows(log)


def _split_lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines one by one, because a list of all lines would be a second copy of the log."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start:end]
        start = end + 1
    yield data[start:]


def _check_rows(log: Log) -> Log:
    if not len(log.rows):
        first, why = log.skipped[0] if log.skipped else (1, "an empty list")
        problem = f"no JSON objects in it (line {first}: {why})"
        raise LogError(f"{log.path}: {problem}: a session log is expected, as JSON or one object per line")
    return log


def _count_rows(log: Log, lines: Iterable[bytes]) -> int:
    """Count the rows, and report lines that are not rows."""
    count = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows: list[tuple[int, Json]] = []
            _add_value(log, rows, number, decode_row(line))
            count += len(rows)
    return count


def _add_value(log: Log, rows: list[tuple[int, Json]], number: int, value: Any) -> None:
    if isinstance(value, dict):
        rows.append((number, value))
    else:
        why = value.why if isinstance(value, _BrokenLine) else f"{type_name(value)} where an object is expected"
        log.skipped.append(SkippedLine(number, why))


def _is_one_value(lines: list[bytes]) -> bool:
    """Return True if the file is a single JSON value: it has one line, or its first line is not a complete object."""
    non_empty = [line for line in lines if line.strip()]
    return len(non_empty) < 2 or (
        not isinstance(non_empty[0], LongLine) and not isinstance(decode_row(non_empty[0]), dict)
    )


class _BrokenLine(msgspec.Struct):
    why: str


def decode_row(data: bytes) -> Any:
    """Parse JSON; a `_BrokenLine` with the reason if it is invalid."""
    if isinstance(data, LongLine):
        return _BrokenLine(f"longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # more tolerant: lone surrogates, NaN, invalid UTF-8
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError as error:
        return _BrokenLine(f"not valid JSON ({error})")
    except RecursionError:
        return _BrokenLine("nested too deeply")


def read_log_start(data: LogBytes, size: int) -> bytes:
    """Return the first bytes of a log, decompressed; fewer if the log is damaged or `data` is incomplete."""
    if isinstance(data, LogFileStream):
        data = data.read_start(size)
    _, pieces = _detect_compression(data)
    content = b""
    try:
        for piece in pieces(data) if pieces else [data]:
            content += piece[: size - len(content)]
            if len(content) >= size:
                break
    except _DamagedFile:
        pass
    return content


def _detect_compression(data: bytes) -> tuple[str, Callable[[bytes], Iterator[bytes]] | None]:
    if data.startswith(ZSTD_MAGIC):
        return "zstd", _decompress_zstd
    return ("gzip", _decompress_gzip) if data.startswith(GZIP_MAGIC) else ("", None)


def _decompress_log(path: str, data: bytes) -> bytes:
    """Decompress a log in pieces, because a few kilobytes can expand to gigabytes. Raises LogError at the limit."""
    kind, pieces = _detect_compression(data)
    if pieces is None:
        return data
    output, size = [], 0
    try:
        for piece in pieces(data):
            size += len(piece)
            if size > MAX_UNPACKED:
                problem = f"decompresses to more than {MAX_UNPACKED >> 20:,} MiB"
                raise LogError(f"{path}: {problem}: if that is correct, decompress it and pass the resulting file")
            output.append(piece)
    except _DamagedFile as error:
        raise LogError(f"{path}: starts like a {kind} file but is damaged ({error}): copy it again") from None
    return b"".join(output)


class _DamagedFile(Exception):
    pass


def _decompress_zstd(data: bytes) -> Iterator[bytes]:
    """Yield decompressed pieces of zstd data with any number of frames, with or without their size."""
    from ..wire.zstd import FrameDecompressor, ZstdError

    try:
        yield from FrameDecompressor().decompress_pieces(data, CHUNK_BYTES)
    except (ZstdError, MemoryError) as error:  # a frame can require a very large window
        raise _DamagedFile(error) from None


def _decompress_gzip(data: bytes) -> Iterator[bytes]:
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
        raise _DamagedFile(error) from None


def parse_timestamp(stamp: Any) -> float | None:
    """Convert a timestamp to Unix seconds; None if it is invalid.

    Accepts ISO 8601 text (UTC if it has no zone), seconds and milliseconds.
    """
    if isinstance(stamp, str):
        try:
            timestamp = datetime.fromisoformat(stamp)
        except ValueError:
            return None
        return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return (stamp / 1000 if stamp > 1e11 else float(stamp)) if abs(stamp) < 1e14 else None
    return None
