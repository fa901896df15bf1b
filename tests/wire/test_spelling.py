"""Whether a string is longer in JSON than another: the quick answer is a sound one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.wire import no_larger, surely_no_larger

TEXTS = st.lists(
    st.sampled_from(["a", "word ", '"', "\\", "\n", "\x00", "\x7f", "<", "&", "é", "→", "\u2028", "😀", "\ud800"]),
    max_size=24,
).map("".join)


@given(TEXTS, TEXTS, TEXTS)
@settings(deadline=None)
def test_what_is_surely_no_larger_is_not_larger_beside_anything_either(new: str, old: str, beside: str) -> None:
    if surely_no_larger(new, old):
        assert no_larger(new, old)
        assert no_larger(beside + new, beside + old)
        assert no_larger(new + beside, old + beside)
