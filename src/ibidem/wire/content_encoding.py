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

MAX_UNPACKED = 64 * 2**20
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
    def done(self) -> bool:
        """True if the input so far is a complete body."""
        ...


class TooLarge(ValueError):
    """The decompressed output exceeds `MAX_DECOMPRESSED_BYTES`."""


class _Identity:
    done = True

    def decompress(self, data: bytes) -> bytes:
        return data


class _Zlib:
    """Decoder of gzip, with any number of members, and of deflate, with or without its zlib header.

    RFC 9110 requires the zlib header, but some servers send raw deflate data.
    """

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(47)  # detects gzip and zlib headers
        self._first = b""
        """The first two bytes, which show whether there is a header."""
        self._told = False

    @property
    def done(self) -> bool:
        return self._inner.eof or not (self._told or self._first)

    def decompress(self, data: bytes) -> bytes:
        if not self._told:
            data = self._first = self._first + data
            if len(data) < 2:
                return b""
            self._tell(data[:2])
        found = bytearray()
        while data:
            if self._inner.eof:
                self._inner = zlib.decompressobj(47)
            found += self._inner.decompress(data, MAX_UNPACKED)
            data = self._inner.unconsumed_tail or self._inner.unused_data
            if len(found) > MAX_UNPACKED:
                raise TooLarge
        return bytes(found)

    def _tell(self, start: bytes) -> None:
        self._told = True
        try:
            zlib.decompressobj(47).decompress(start)
        except zlib.error:
            self._inner = zlib.decompressobj(-15)  # raw deflate data without a header


class _Zstd:
    def __init__(self) -> None:
        from .zstd import Unpacker

        self._inner = Unpacker()

    @property
    def done(self) -> bool:
        return self._inner.done

    def decompress(self, data: bytes) -> bytes:
        found = bytearray()
        for piece in self._inner.pieces(data, STEP_BYTES):
            found += piece
            if len(found) > MAX_UNPACKED:
                raise TooLarge
        return bytes(found)


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._inner: Any = brotli.Decompressor()
        self._inner.can_accept_more_data()  # AttributeError in old versions, which cannot limit their output
        self._begun = False

    @property
    def done(self) -> bool:
        return not self._begun or bool(self._inner.is_finished())

    def decompress(self, data: bytes) -> bytes:
        if data and self._begun and self._inner.is_finished():
            raise ValueError("data after the end of the brotli stream")
        self._begun = self._begun or bool(data)
        found = bytearray(self._inner.process(data, output_buffer_limit=MAX_UNPACKED))
        while not self._inner.can_accept_more_data():
            if len(found) > MAX_UNPACKED:
                raise TooLarge
            found += self._inner.process(b"", output_buffer_limit=MAX_UNPACKED)
        return bytes(found)


DECODERS: dict[str, Callable[[], Decoder]] = {
    "": _Identity,
    "identity": _Identity,
    "gzip": _Zlib,
    "x-gzip": _Zlib,
    "deflate": _Zlib,
    "zstd": _Zstd,
    "br": _Brotli,
}


def decoder(encoding: str) -> Decoder | None:
    """Return a new decoder for a content encoding, or None if it is unknown or its package is not installed."""
    made = DECODERS.get(encoding.strip().lower())
    try:
        return made() if made else None
    except (ImportError, AttributeError):
        return None


def decode_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a request body without its content encoding. Raises UndecodableRequest and BrokenEncoding."""
    if not encoding or encoding == "identity":
        return body
    found = decoder(encoding)
    if found is None:
        raise UndecodableRequest("its encoding is not known here")
    whole = bytearray()
    for start in range(0, len(body), CHUNK_BYTES):
        try:
            whole += found.decompress(body[start : start + CHUNK_BYTES])
        except Exception as error:  # each package has its own exception type
            raise BrokenEncoding("it is not in the encoding that its header names") from error
        if len(whole) > max_bytes:
            raise UndecodableRequest(f"it is larger than {max_bytes:,} bytes when it is unpacked")
    if not found.done:
        raise BrokenEncoding("it is not in the encoding that its header names")
    return bytes(whole)


def _zstd(data: bytes) -> bytes:
    from .zstd import Packer

    return Packer().pack(data)


def _brotli(data: bytes) -> bytes:
    import brotli

    packed: bytes = brotli.compress(data, quality=4)
    return packed


# A retried request must have the same bytes, so gzip gets no time stamp.
ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "zstd": _zstd,
    "br": _brotli,
}


def encode_body(body: bytes, encoding: str) -> bytes:
    """Return the encoded body; the same bytes if the encoding is unknown."""
    return ENCODERS[encoding](body) if encoding in ENCODERS else body
