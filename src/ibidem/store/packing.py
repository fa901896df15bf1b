"""Encoding of a stored value: one byte for the compression, four for a checksum, then the value."""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..wire.zstd import Packer, ZstdError, decompress
from .store import StoreError, encoded

ZSTD_LEVEL = 3
MIN_COMPRESSED_BYTES = 128
"""Minimum size for compression. It saves almost no space for shorter values."""

RAW, ZSTD = b"\x00", b"\x01"
_HEAD = 5

_local = threading.local()
"""One compressor per thread. It is not safe to share, and too slow to create for each value."""


class Packed(NamedTuple):
    """A text with its reference and its encoded form."""

    ref: str
    text: str
    body: bytes
    size: int
    """Size of the text in bytes."""


def packed(where: str, originals: Mapping[str, str]) -> list[Packed]:
    """Encode originals for storage. Raises StoreError if a key is not the reference of its text."""
    found = []
    for ref, text in originals.items():
        data = encoded(text)
        if _digest(data) != ref:
            raise StoreError(where, f"{ref!r} is not the reference of its text: use reference(text)")
        found.append(Packed(ref, text, pack(data), len(data)))
    return found


def original(ref: str, body: bytes) -> str | None:
    """Decode the text with this reference, or return None if it is damaged."""
    data = unpack(body)
    if data is None or _digest(data) != ref:
        return None
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # other data whose digest has the same digits
        return None


def pack(data: bytes) -> bytes:
    """Encode a value for storage, compressed if that is shorter."""
    how, value = RAW, data
    if len(data) >= MIN_COMPRESSED_BYTES:
        smaller = _packer().pack(data)
        if len(smaller) < len(data):
            how, value = ZSTD, smaller
    return how + zlib.crc32(value).to_bytes(4, "big") + value


def unpack(body: bytes) -> bytes | None:
    """Decode a stored value, or return None if it is damaged."""
    how, check, value = body[:1], body[1:_HEAD], body[_HEAD:]
    if len(body) < _HEAD or zlib.crc32(value).to_bytes(4, "big") != check:
        return None
    if how == RAW:
        return value
    try:
        return decompress(value) if how == ZSTD else None
    except ZstdError:
        return None


def whole(bodies: Iterable[bytes]) -> list[bytes]:
    """Decode stored values, without damaged ones."""
    return [data for body in bodies if (data := unpack(body)) is not None]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _packer() -> Packer:
    if not hasattr(_local, "packer"):
        _local.packer = Packer(ZSTD_LEVEL)
    found: Packer = _local.packer
    return found
