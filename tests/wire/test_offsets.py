"""Where values begin and end, in texts of which that is known otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.wire.json_offsets import compact_item_offsets, item_lengths, value_end

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\,[]{} é', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_items_with_nothing_between_them_are_known_by_their_lengths(values: list[Any]) -> None:
    data = b'{"messages":' + json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode() + b', "after":[1]}'
    start = data.index(b"[")
    lengths = item_lengths(data, "messages")
    assert lengths is not None
    starts = compact_item_offsets(data, start, lengths)
    assert starts is not None
    assert [json.loads(data[at : value_end(data, at)]) for at in starts[:-1]] == values
    assert json.loads(data[start : starts[-1]]) == values


@pytest.mark.parametrize(
    "text", ["[1, 2]", "[ 1,2]", "[1,2 ]", "[1 ,2]", "[1,\n2]", '["]", "]"]', "[[] ,[]]", "[[], []]"]
)
def test_a_blank_anywhere_is_seen(text: str) -> None:
    """Also where a bracket of the last item stands at the place where the array would end."""
    data = f'{{"messages":{text},"after":[[],[]]}}'.encode()
    lengths = item_lengths(data, "messages")
    assert lengths is not None
    assert compact_item_offsets(data, data.index(b"["), lengths) is None


def test_a_text_that_ends_too_early_is_seen() -> None:
    assert compact_item_offsets(b"[1,2]", 0, [1, 1, 1]) is None
    assert compact_item_offsets(b"[1,2]", 0, [1, 9]) is None
