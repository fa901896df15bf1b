from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ibidem.replay.views import MessageChange, SentView

CHANGES = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 9)), max_size=8)


def changed(found: list[tuple[int, float]]) -> list[MessageChange]:
    return [MessageChange(2 * place, key, removed) for place, (key, removed) in enumerate(found)]


def told(view: SentView) -> list[float]:
    return [view.before(message) for message in range(20)]


@given(CHANGES, CHANGES, st.integers(0, 8), st.integers(0, 8))
def test_views_that_share_their_lists_are_those_that_were_made_anew(
    one: list[tuple[int, float]], other: list[tuple[int, float]], first: int, second: int
) -> None:
    mine, theirs = changed(one), changed(other)
    steps = [SentView()]
    for change in mine:
        steps.append(steps[-1].extended([change]))
    anew = [SentView(mine[:count]) for count in range(len(mine) + 1)]
    assert list(map(told, steps)) == list(map(told, anew))
    here, there = steps[min(first, len(mine))], SentView(theirs[: min(second, len(theirs))])
    again = SentView(mine[: min(first, len(mine))])
    shared = [steps[min(second, len(mine))], SentView(mine[: min(second, len(mine))])]
    assert here.parts_from(there, 30) == again.parts_from(there, 30) == there.parts_from(here, 30)
    assert here.parts_from(shared[0], 30) == again.parts_from(shared[1], 30)


def test_a_view_from_which_two_go_on_is_not_changed_by_either() -> None:
    start = SentView([MessageChange(1, 1, 5.0)])
    one, other = start.extended([MessageChange(3, 1, 1.0)]), start.extended([MessageChange(3, 2, 2.0)])
    assert (start.before(9), one.before(9), other.before(9)) == (5.0, 6.0, 7.0)
    assert one.parts_from(other, 9) == start.parts_from(one, 9) == 3
    assert start.last == 1
