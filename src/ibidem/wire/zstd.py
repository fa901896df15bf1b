"""zstd: the standard library's from Python 3.14 on, before that a package that has its interface and its C code.

What is unpacked comes in pieces: a few bytes may hold gigabytes, and whoever asked for them can stop at any piece.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError, compress, decompress
else:
    from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError, compress, decompress

__all__ = ["Packer", "Unpacker", "ZstdCompressor", "ZstdError", "compress", "decompress"]

FEED_BYTES = 1 << 14
"""Packed bytes that are handed over at a time: what follows a frame is copied, which must not be a whole file."""


class Packer:
    """Makes frames that say how large they are. One at a time, so each thread has its own."""

    def __init__(self, level: int = 3) -> None:
        self._inner = ZstdCompressor(level=level)

    def pack(self, data: bytes) -> bytes:
        return self._inner.compress(data, ZstdCompressor.FLUSH_FRAME)


class Unpacker:
    """Frames that follow each other, split anywhere; they need not say how large they are."""

    def __init__(self) -> None:
        self._frame = ZstdDecompressor()
        self._begun = False

    @property
    def done(self) -> bool:
        """Whether it could end here: no frame is incomplete."""
        return self._frame.eof or not self._begun

    def pieces(self, data: bytes, size: int) -> Iterator[bytes]:
        """What these bytes add, at most `size` bytes at a time. Raises ZstdError for what is broken."""
        for start in range(0, len(data), FEED_BYTES):
            rest = data[start : start + FEED_BYTES]
            while rest or not (self._frame.eof or self._frame.needs_input):
                if self._frame.eof:
                    self._frame = ZstdDecompressor()
                self._begun = True
                if piece := self._frame.decompress(rest, size):
                    yield piece
                rest = self._frame.unused_data if self._frame.eof else b""
