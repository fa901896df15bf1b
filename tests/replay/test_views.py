from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ibidem.replay.sent_views import MessageChange, SentView

CHANGES = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 9)), max_size=8)


def changed(found: list[tuple[int, float]]) -> list[MessageChange]:
    return [MessageChange(2 * place, key, removed) for place, (key, removed) in enumerate(found)]


def told(view: SentView) -> list[float]:
    return [view.removed_before(message) for message in range(20)]


@given(CHANGES, CHANGES, st.integers(0, 8), st.integers(0, 8))
def test_views_that_share_their_lists_are_those_that_were_made_anew(
    one: list[tuple[int, float]], other: list[tuple[int, float]], first: int, second: int
) -> None:
    mine, theirs = changed(one), changed(other)
    steps = [SentView()]
    for change in mine:
        steps.append(steps[-1].add_changes([change]))
    anew = [SentView(mine[:count]) for count in range(len(mine) + 1)]
    assert list(map(told, steps)) == list(map(told, anew))
    here, there = steps[min(first, len(mine))], SentView(theirs[: min(second, len(theirs))])
    again = SentView(mine[: min(first, len(mine))])
    shared = [steps[min(second, len(mine))], SentView(mine[: min(second, len(mine))])]
    assert here.first_difference(there, 30) == again.first_difference(there, 30) == there.first_difference(here, 30)
    assert here.first_difference(shared[0], 30) == again.first_difference(shared[1], 30)


def test_a_view_from_which_two_go_on_is_not_changed_by_either() -> None:
    start = SentView([MessageChange(1, 1, 5.0)])
    one, other = start.add_changes([MessageChange(3, 1, 1.0)]), start.add_changes([MessageChange(3, 2, 2.0)])
    assert (start.removed_before(9), one.removed_before(9), other.removed_before(9)) == (5.0, 6.0, 7.0)
    assert one.first_difference(other, 9) == start.first_difference(one, 9) == 3
    assert start.last_message == 1
