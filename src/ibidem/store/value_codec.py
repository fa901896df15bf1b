"""Encoding of a stored value: one byte for the compression, four for a checksum, then the value."""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..wire.zstd import FrameCompressor, ZstdError, decompress
from .store import StoreError, encode_text

ZSTD_LEVEL = 3
MIN_COMPRESSED_BYTES = 128
"""Minimum size for compression. It saves almost no space for shorter values."""

RAW, ZSTD = b"\x00", b"\x01"
_HEAD = 5

_local = threading.local()
"""One compressor per thread. It is not safe to share, and too slow to create for each value."""


class EncodedValue(NamedTuple):
    """A text with its reference and its encoded form."""

    ref: str
    text: str
    body: bytes
    size: int
    """Size of the text in bytes."""


def encode_originals(where: str, originals: Mapping[str, str]) -> list[EncodedValue]:
    """Encode originals for storage. Raises StoreError if a key is not the reference of its text."""
    values = []
    for ref, text in originals.items():
        data = encode_text(text)
        if _text_digest(data) != ref:
            raise StoreError(where, f"{ref!r} is not the reference of its text: use reference(text)")
        values.append(EncodedValue(ref, text, encode_value(data), len(data)))
    return values


def decode_original(ref: str, body: bytes) -> str | None:
    """Decode the text with this reference, or return None if it is damaged."""
    data = decode_value(body)
    if data is None or _text_digest(data) != ref:
        return None
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # other data whose digest has the same digits
        return None


def encode_value(data: bytes) -> bytes:
    """Encode a value for storage, compressed if that is shorter."""
    how, value = RAW, data
    if len(data) >= MIN_COMPRESSED_BYTES:
        smaller = _thread_compressor().compress_frame(data)
        if len(smaller) < len(data):
            how, value = ZSTD, smaller
    return how + zlib.crc32(value).to_bytes(4, "big") + value


def decode_value(body: bytes) -> bytes | None:
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


def valid_values(bodies: Iterable[bytes]) -> list[bytes]:
    """Decode stored values, without damaged ones."""
    return [data for body in bodies if (data := decode_value(body)) is not None]


def _text_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _thread_compressor() -> FrameCompressor:
    if not hasattr(_local, "packer"):
        _local.packer = FrameCompressor(ZSTD_LEVEL)
    compressor: FrameCompressor = _local.packer
    return compressor
