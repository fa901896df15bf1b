"""Small files that others may have written: nobody waits for one, and no more is read of it than a bound."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import IbidemError, one_line

CHUNK_BYTES = 2**16
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""A pipe without a writer, or a file of the kernel that has nothing to say yet, must not hold us up."""


def content(path: Path, most: int, way_out: str) -> bytes | None:
    """What is in the file; None where there is none. IbidemError names it, what is wrong with it, and the way out."""
    where = one_line(str(path))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: that alone sets some devices off
            raise IbidemError(f"{where}: this is no ordinary file: {way_out}")
        found = _bytes(path, most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IbidemError(f"{where}: {error.strerror or error}: {way_out}") from None
    if len(found) > most:
        raise IbidemError(f"{where}: longer than {most:,} bytes: {way_out}")
    return found


def _bytes(path: Path, most: int) -> bytes:
    """Its size is not asked for: files of the kernel say that they are empty."""
    found = bytearray()
    handle = os.open(path, OPEN_FLAGS)
    try:
        while len(found) < most and (piece := os.read(handle, min(CHUNK_BYTES, most - len(found)))):
            found += piece
    finally:
        os.close(handle)
    return bytes(found)
