"""Bodies of requests that came compressed: as they were before, and as they came."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

from .encodings import decoder
from .opening import Unpackable, Unreadable

CHUNK_BYTES = 2**14
"""Bytes that are unpacked at once: what is made to be huge is found out early."""


def decoded(body: bytes, encoding: str, most: int) -> bytes:
    """A request that came compressed, as it was before."""
    if not encoding or encoding == "identity":
        return body
    found = decoder(encoding)
    if found is None:
        raise Unpackable("its encoding is not known here")
    whole = bytearray()
    for start in range(0, len(body), CHUNK_BYTES):
        try:
            whole += found.decompress(body[start : start + CHUNK_BYTES])
        except Exception as error:  # each package has its own
            raise Unreadable("it is not in the encoding that it says") from error
        if len(whole) > most:
            raise Unpackable(f"it is larger than {most:,} bytes when it is unpacked")
    if not found.done:
        raise Unreadable("it is not in the encoding that it says")
    return bytes(whole)


def _zstd(data: bytes) -> bytes:
    from ..wire.zstd import Packer

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


def encoded(body: bytes, encoding: str) -> bytes:
    return ENCODERS[encoding](body) if encoding in ENCODERS else body
