"""zstd: frames in any number, split anywhere, unpacked in pieces of a bounded size."""

from __future__ import annotations

import sys

import pytest

from ibidem.wire.zstd import (
    FEED_BYTES,
    FrameCompressor,
    FrameDecompressor,
    ZstdCompressor,
    ZstdError,
    compress,
    decompress,
)

TEXT = b"".join(b"line %d of a log, which says what it says\n" % number for number in range(20_000))
streamed = ZstdCompressor()
PACKED = {
    "one frame": compress(TEXT),
    "several frames": b"".join(compress(TEXT[at : at + 50_000]) for at in range(0, len(TEXT), 50_000)),
    "a frame that does not say its size": streamed.compress(TEXT) + streamed.flush(),
    "empty frames between": compress(b"") * 3000 + compress(TEXT) + compress(b""),
    "a frame to be skipped": b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(TEXT),
}


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("fed", [101, FEED_BYTES - 1, 10**9])
def test_frames_are_unpacked_to_their_end_in_pieces_of_a_bounded_size(packed: bytes, fed: int) -> None:
    unpacker = FrameDecompressor()
    pieces: list[bytes] = []
    assert unpacker.is_complete
    for start in range(0, len(packed), fed):
        pieces += unpacker.decompress_pieces(packed[start : start + fed], 1000)
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) == 1000
    assert unpacker.is_complete


def test_what_is_cut_short_is_told_as_far_as_it_goes_and_is_not_done() -> None:
    unpacker = FrameDecompressor()
    found = b"".join(unpacker.decompress_pieces(compress(TEXT)[:-100], 1 << 20))
    assert found
    assert TEXT.startswith(found)
    assert not unpacker.is_complete


@pytest.mark.parametrize("packed", [b"\x28\xb5\x2f\xfd rubbish", compress(TEXT) + b"rubbish"])
def test_what_is_broken_is_an_error(packed: bytes) -> None:
    with pytest.raises(ZstdError):
        list(FrameDecompressor().decompress_pieces(packed, 1 << 20))


def test_who_stops_at_the_first_piece_has_paid_for_no_more() -> None:
    """A gibibyte in a small file."""
    import tracemalloc

    packer = ZstdCompressor()
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(8)) + packer.flush()
    tracemalloc.start()
    try:
        assert len(next(FrameDecompressor().decompress_pieces(bomb * 8, 1 << 20))) == 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_packer_makes_one_frame_after_another() -> None:
    packer = FrameCompressor()
    assert [decompress(packer.compress_frame(text)) for text in (TEXT, b"", TEXT[:300])] == [TEXT, b"", TEXT[:300]]
    assert packer.compress_frame(TEXT) == compress(TEXT, 3)


def test_it_is_the_standard_library_where_that_has_it() -> None:
    home = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    assert sys.modules[home].compress is compress
