"""A log file as rows: one JSON value per line, one value in all, or a list of them; plain or packed (zstd, gzip).

A line that is no JSON object, or that a reader cannot use, is counted, named and skipped: agents are killed while they
write. What cannot be read at all is a LogError that says why.
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
"""What a zstd frame begins with."""
GZIP_MAGIC = b"\x1f\x8b"
"""What a gzip member begins with."""
MAX_UNPACKED = 512 << 20
"""Bytes that a compressed log may unpack to."""
CHUNK_BYTES = 1 << 20
"""Bytes that are unpacked at once."""
PROBED_LINES = 64
"""Lines that tell whether a file is one value or a row per line."""

UNUSABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What reading a row of an unexpected shape raises."""


class LogError(IbidemError):
    """A file that holds no session; the message says what it holds and what to do."""


@dataclass(slots=True)
class Log:
    """The rows of one file, in order, each with its line (or its number, in a file that is one JSON value)."""

    path: str
    rows: list[tuple[int, Json]] | StreamedRows
    skipped: list[Skipped] = field(default_factory=list)
    unpacked: Unpacked = field(default_factory=Unpacked)

    def put_away(self, segment: RecordedSegment) -> RecordedSegment:
        """A segment that is complete, and shares no entry with another. Those of a large log are packed."""
        return packed(segment, self.unpacked) if isinstance(self.rows, StreamedRows) else segment

    def tolerating(self, line: int) -> Tolerating:
        """Whatever this line has wrong with it, the next ones are read."""
        return Tolerating(self, line)


class Tolerating:
    """There is one for every line, so it is no generator."""

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
    """Raises LogError when there is not one JSON object in it. `most`: rows after which the rest does not matter."""
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
    """One at a time: all of them would be the log once more."""
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
    """How many rows there are; lines that are none are noted."""
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
    """Nothing may follow a complete value, so a complete first line with more behind it is a row."""
    filled = [line for line in lines if line.strip()]
    return len(filled) < 2 or (not isinstance(filled[0], LongLine) and not isinstance(decoded(filled[0]), dict))


class _Broken(msgspec.Struct):
    why: str


def decoded(data: bytes) -> Any:
    """The JSON value that is written there; something that is no JSON value where there is none."""
    if isinstance(data, LongLine):
        return _Broken(f"longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # more forgiving: lone surrogates, NaN, bytes that are no UTF-8
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError as error:
        return _Broken(f"not valid JSON ({error})")
    except RecursionError:
        return _Broken("nested too deeply")


def beginning(data: LogBytes, size: int) -> bytes:
    """The first bytes of a log, unpacked; fewer where it is damaged, or `data` is only the beginning of a file."""
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
    """A few kilobytes may unpack to gigabytes, so that is not found out by trying."""
    kind, pieces = _packing(data)
    if pieces is None:
        return data
    found, size = [], 0
    try:
        for piece in pieces(data):
            size += len(piece)
            if size > MAX_UNPACKED:
                told = f"unpacks to more than {MAX_UNPACKED >> 20:,} MiB"
                raise LogError(f"{path}: {told}: if that is right, unpack it and name the file that comes out")
            found.append(piece)
    except _Damaged as error:
        raise LogError(f"{path}: not a {kind} file, though it begins like one ({error}): copy it again") from None
    return b"".join(found)


class _Damaged(Exception):
    pass


def _zstd(data: bytes) -> Iterator[bytes]:
    """Frames may follow each other, and need not say how large they are."""
    from ..wire.zstd import Unpacker, ZstdError

    try:
        yield from Unpacker().pieces(data, CHUNK_BYTES)
    except (ZstdError, MemoryError) as error:  # a frame may ask for a large window
        raise _Damaged(error) from None


def _gzip(data: bytes) -> Iterator[bytes]:
    """Members may follow each other; a log that is still being written ends anywhere."""
    member = zlib.decompressobj(31)
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
    """Unix seconds of a timestamp: ISO 8601 text (UTC if it names no zone), seconds or milliseconds; else None."""
    if isinstance(stamp, str):
        try:
            found = datetime.fromisoformat(stamp)
        except ValueError:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return (stamp / 1000 if stamp > 1e11 else float(stamp)) if abs(stamp) < 1e14 else None
    return None
