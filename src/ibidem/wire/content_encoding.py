"""Content encodings of HTTP bodies: decode a body piece by piece, and encode a changed one as it came.

A body that is made to be huge is found out before it is.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import IbidemError

STEP_BYTES = 2**20
"""Bytes that one step may make of a zstd frame, a few bytes of which may hold any number."""

MAX_UNPACKED = 64 * 2**20
"""Bytes that one piece may grow to. No text shrinks so far that a real one is stopped here."""

CHUNK_BYTES = 2**14
"""Bytes of a request body that are decoded at once."""


class UndecodableRequest(IbidemError):
    """A body in an encoding that is not known here, or that is too large when it is decoded."""


class BrokenEncoding(IbidemError):
    """A body that is not in the encoding that its header names."""


class Decoder(Protocol):
    def decompress(self, data: bytes) -> bytes:
        """What a piece adds. Raises for what is broken, or unreasonably large."""
        ...

    @property
    def done(self) -> bool:
        """Whether it could end here: nothing is missing."""
        ...


class TooLarge(ValueError):
    """It unpacks to more than any text does."""


class _Identity:
    done = True

    def decompress(self, data: bytes) -> bytes:
        return data


class _Zlib:
    """gzip, also of several members, and deflate, also without the header that it should have."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(47)  # gzip and zlib alike
        self._first = b""
        """Two bytes tell which it is."""
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
            self._inner = zlib.decompressobj(-15)


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
        self._inner.can_accept_more_data()  # older ones cannot be bounded: AttributeError
        self._begun = False

    @property
    def done(self) -> bool:
        return not self._begun or bool(self._inner.is_finished())

    def decompress(self, data: bytes) -> bytes:
        if data and self._begun and self._inner.is_finished():
            raise ValueError("something follows its end")
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
    """For a content encoding; None for one that cannot be read here."""
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
        except Exception as error:  # each package has its own
            raise BrokenEncoding("it is not in the encoding that it says") from error
        if len(whole) > max_bytes:
            raise UndecodableRequest(f"it is larger than {max_bytes:,} bytes when it is unpacked")
    if not found.done:
        raise BrokenEncoding("it is not in the encoding that it says")
    return bytes(whole)


def _zstd(data: bytes) -> bytes:
    from .zstd import Packer

    return Packer().pack(data)


def _brotli(data: bytes) -> bytes:
    import brotli

    packed: bytes = brotli.compress(data, quality=4)
    return packed


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "zstd": _zstd,
    "br": _brotli,
}


def encode_body(body: bytes, encoding: str) -> bytes:
    """Return a body in a content encoding; one that is not known leaves it as it is."""
    return ENCODERS[encoding](body) if encoding in ENCODERS else body
