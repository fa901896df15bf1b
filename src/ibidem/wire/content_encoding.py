"""Content encodings of HTTP bodies: decode a body piece by piece, and encode a changed body in the same encoding.

Decoders stop at a size limit, so a decompression bomb never fills the memory.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import IbidemError

STEP_BYTES = 2**20
"""Maximum output of one decompression step. A few bytes of a zstd frame can expand to any size."""

MAX_DECOMPRESSED_BYTES = 64 * 2**20
"""Maximum decompressed size of one piece. Real text does not compress well enough to reach this limit."""

CHUNK_BYTES = 2**14
"""Bytes of a request body that are passed to the decoder in one call."""


class UndecodableRequest(IbidemError):
    """The body has an unsupported content encoding, or is too large after decoding."""


class BrokenEncoding(IbidemError):
    """The body cannot be decoded with the encoding in its Content-Encoding header."""


class Decoder(Protocol):
    """Incremental decoder of one content encoding."""

    def decompress(self, data: bytes) -> bytes:
        """Return the output for the next piece of input. Raises if it is invalid or its output is too large."""
        ...

    @property
    def is_complete(self) -> bool:
        """True if the input so far is a complete body."""
        ...


class DecompressedTooLarge(ValueError):
    """The decompressed output exceeds `MAX_DECOMPRESSED_BYTES`."""


class _Identity:
    is_complete = True

    def decompress(self, data: bytes) -> bytes:
        return data


class _Zlib:
    """Decoder of gzip, with any number of members, and of deflate, with or without its zlib header.

    RFC 9110 requires the zlib header, but some servers send raw deflate data.
    """

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(47)  # detects gzip and zlib headers
        self._first_bytes = b""
        """The first two bytes, which show whether there is a header."""
        self._is_detected = False

    @property
    def is_complete(self) -> bool:
        return self._inner.eof or not (self._is_detected or self._first_bytes)

    def decompress(self, data: bytes) -> bytes:
        if not self._is_detected:
            data = self._first_bytes = self._first_bytes + data
            if len(data) < 2:
                return b""
            self._detect_header(data[:2])
        output = bytearray()
        while data:
            if self._inner.eof:
                self._inner = zlib.decompressobj(47)
            output += self._inner.decompress(data, MAX_DECOMPRESSED_BYTES)
            data = self._inner.unconsumed_tail or self._inner.unused_data
            if len(output) > MAX_DECOMPRESSED_BYTES:
                raise DecompressedTooLarge
        return bytes(output)

    def _detect_header(self, start: bytes) -> None:
        self._is_detected = True
        try:
            zlib.decompressobj(47).decompress(start)
        except zlib.error:
            self._inner = zlib.decompressobj(-15)  # raw deflate data without a header


class _Zstd:
    def __init__(self) -> None:
        from .zstd import FrameDecompressor

        self._inner = FrameDecompressor()

    @property
    def is_complete(self) -> bool:
        return self._inner.is_complete

    def decompress(self, data: bytes) -> bytes:
        output = bytearray()
        for piece in self._inner.decompress_pieces(data, STEP_BYTES):
            output += piece
            if len(output) > MAX_DECOMPRESSED_BYTES:
                raise DecompressedTooLarge
        return bytes(output)


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._inner: Any = brotli.Decompressor()
        self._inner.can_accept_more_data()  # AttributeError in old versions, which cannot limit their output
        self._has_input = False

    @property
    def is_complete(self) -> bool:
        return not self._has_input or bool(self._inner.is_finished())

    def decompress(self, data: bytes) -> bytes:
        if data and self._has_input and self._inner.is_finished():
            raise ValueError("data after the end of the brotli stream")
        self._has_input = self._has_input or bool(data)
        output = bytearray(self._inner.process(data, output_buffer_limit=MAX_DECOMPRESSED_BYTES))
        while not self._inner.can_accept_more_data():
            if len(output) > MAX_DECOMPRESSED_BYTES:
                raise DecompressedTooLarge
            output += self._inner.process(b"", output_buffer_limit=MAX_DECOMPRESSED_BYTES)
        return bytes(output)


DECODERS: dict[str, Callable[[], Decoder]] = {
    "": _Identity,
    "identity": _Identity,
    "gzip": _Zlib,
    "x-gzip": _Zlib,
    "deflate": _Zlib,
    "zstd": _Zstd,
    "br": _Brotli,
}


def make_decoder(encoding: str) -> Decoder | None:
    """Return a new decoder for a content encoding, or None if it is unknown or its package is not installed."""
    factory = DECODERS.get(encoding.strip().lower())
    try:
        return factory() if factory else None
    except (ImportError, AttributeError):
        return None


def decode_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a request body without its content encoding. Raises UndecodableRequest and BrokenEncoding."""
    if not encoding or encoding == "identity":
        return body
    body_decoder = make_decoder(encoding)
    if body_decoder is None:
        raise UndecodableRequest("its encoding is not known here")
    content = bytearray()
    for start in range(0, len(body), CHUNK_BYTES):
        try:
            content += body_decoder.decompress(body[start : start + CHUNK_BYTES])
        except Exception as error:  # each package has its own exception type
            raise BrokenEncoding("it is not in the encoding that its header names") from error
        if len(content) > max_bytes:
            raise UndecodableRequest(f"it is larger than {max_bytes:,} bytes when it is unpacked")
    if not body_decoder.is_complete:
        raise BrokenEncoding("it is not in the encoding that its header names")
    return bytes(content)


def _compress_zstd(data: bytes) -> bytes:
    from .zstd import FrameCompressor

    return FrameCompressor().compress_frame(data)


def _compress_brotli(data: bytes) -> bytes:
    import brotli

    result: bytes = brotli.compress(data, quality=4)
    return result


# A retried request must have the same bytes, so gzip gets no time stamp.
ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "zstd": _compress_zstd,
    "br": _compress_brotli,
}


def encode_body(body: bytes, encoding: str) -> bytes:
    """Return the encoded body; the same bytes if the encoding is unknown."""
    return ENCODERS[encoding](body) if encoding in ENCODERS else body
