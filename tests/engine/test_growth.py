"""Law 11: work grows with the history, and not with its square, also where a history is made to be hard."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibidem
from ibidem.markers import line_offsets
from ibidem.store import MemoryStore
from ibidem.testing.adversarial import HARD
from tests.support.timed import best

FOUR = 7.0
"""More than four times the work takes four times as long; its square would take sixteen times as long."""


def rewritten(text: str, profile: str) -> str:
    """The request that is sent, as cold as can be."""
    return str(ibidem.compact(text, profile=profile, store=MemoryStore()).request)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
@pytest.mark.parametrize("kind", HARD)
def test_a_history_four_times_as_long_takes_four_times_as_long(kind: str, profile: str) -> None:
    make, usual = HARD[kind]
    small, large = (json.dumps(make(size)) for size in (usual // 4, usual))
    rewritten(small, profile)  # what is loaded once is not counted
    for rounds in (1, 3, 6):  # quadratic work fails all of them
        first, second = best([lambda: rewritten(small, profile), lambda: rewritten(large, profile)], rounds)
        if second < FOUR * first:
            return
    pytest.fail(f"{first:.4f} s, then {second:.4f} s for four times as much")


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
@pytest.mark.parametrize("kind", HARD)
def test_what_is_hard_comes_back_and_is_sent_alike_by_a_session(kind: str, profile: str) -> None:
    make, usual = HARD[kind]
    request, store = make(max(4, usual // 40)), MemoryStore()
    found = ibidem.compact(request, profile=profile, store=store)
    assert not found.reason
    assert ibidem.expand(found.request, store=store) == request
    assert ibidem.Session(profile, store=store).compact(request).request == found.request


@given(st.text("ab\n", max_size=60), st.sampled_from([1, 2, 3, 7, 16]))
def test_lines_are_found_where_they_stand(text: str, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_offsets, "INDEX_CHARACTERS", chunk)
        found, parts = line_offsets.LineOffsets(text), text.split("\n")
        for offset in range(len(text) + 1):
            assert found.line_at(offset) == text.count("\n", 0, offset)
        for first in range(len(parts)):
            for last in range(first + 1, len(parts) + 1):
                assert found.text_between(first, last) == "\n".join(parts[first:last])
