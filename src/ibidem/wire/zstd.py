"""zstd compression, from the standard library since Python 3.14, before that from its backport.

Decompression yields pieces, so that a caller can stop at a size limit. A few bytes can expand to gigabytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError, compress, decompress
else:
    from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError, compress, decompress

__all__ = ["FrameCompressor", "FrameDecompressor", "ZstdCompressor", "ZstdError", "compress", "decompress"]

FEED_BYTES = 1 << 14
"""Compressed bytes per call. The decompressor copies the input after a frame's end, so the input must be small."""


class FrameCompressor:
    """Compressor of single frames that contain their size. Not safe for threads: use one per thread."""

    def __init__(self, level: int = 3) -> None:
        self._inner = ZstdCompressor(level=level)

    def compress_frame(self, data: bytes) -> bytes:
        return self._inner.compress(data, ZstdCompressor.FLUSH_FRAME)


class FrameDecompressor:
    """Decompressor of consecutive frames, with or without their size. The input may be split at any byte."""

    def __init__(self) -> None:
        self._frame = ZstdDecompressor()
        self._has_input = False

    @property
    def is_complete(self) -> bool:
        """True if the last frame is complete."""
        return self._frame.eof or not self._has_input

    def decompress_pieces(self, data: bytes, size: int) -> Iterator[bytes]:
        """Yield the output of these bytes, at most `size` bytes at a time. Raises ZstdError if they are invalid."""
        for start in range(0, len(data), FEED_BYTES):
            rest = data[start : start + FEED_BYTES]
            while rest or not (self._frame.eof or self._frame.needs_input):
                if self._frame.eof:
                    self._frame = ZstdDecompressor()
                self._has_input = True
                if piece := self._frame.decompress(rest, size):
                    yield piece
                rest = self._frame.unused_data if self._frame.eof else b""
