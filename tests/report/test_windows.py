"""Five-hour windows of a plan, and how much room a conversation had left."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.report.log_summary import PaidRequest, SessionFacts
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.plan_windows import HOUR, PLAN_WINDOW, plan_windows, requests_left
from ibidem.report.session_result import NOTHING_DONE, SessionResult
from tests.report.logs import NOON, timed
from tests.report.test_report import TWICE, log

HOUR_STEP = timedelta(hours=1)


def request(at: float | None, agent: str = "claude-code") -> PaidRequest:
    return PaidRequest(SessionFacts("a", agent, "anthropic"), 0, at, "", None, 1.0, 0.0)


def starts(*times: float | None) -> list[float]:
    return [window.start / HOUR for window in plan_windows([request(at) for at in times], [])]


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        pytest.param([], [], id="no requests"),
        pytest.param([None], [], id="a request of an unknown time"),
        pytest.param([10.0], [10], id="a request on the hour"),
        pytest.param([10.99], [10], id="begin on the hour of the first request"),
        pytest.param([10.5, 14.99], [10], id="last five hours"),
        pytest.param([10.5, 15.0], [10, 15], id="and no moment more"),
        pytest.param([10.5, 15.7, 16.0], [10, 15], id="the next begins with the first request after the end"),
        pytest.param([16.0, 10.5, 15.7], [10, 15], id="whatever the order in which they are told"),
        pytest.param([10.5, 40.2], [10, 40], id="a night lies between two"),
        pytest.param([-1.5], [-2], id="before 1970"),
    ],
)
def test_windows(hours: list[float | None], expected: list[int]) -> None:
    assert starts(*(None if hour is None else hour * HOUR for hour in hours)) == expected


def test_every_agent_has_its_own_plan() -> None:
    found = plan_windows([request(10 * HOUR), request(12 * HOUR, "codex"), request(13 * HOUR)], [])
    assert [(window.agent, window.start / HOUR, window.row.requests) for window in found] == [
        ("claude-code", 10, 2),
        ("codex", 12, 1),
    ]


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_every_request_is_in_one_window_and_windows_do_not_overlap(times: list[float]) -> None:
    found = plan_windows([request(at) for at in times], [])
    assert sum(window.row.requests for window in found) == len(times)
    assert all(window.end == window.start + PLAN_WINDOW for window in found)
    assert all(one.end <= other.start or one.end <= other.end - 1 for one, other in pairwise(found))
    for at in times:
        assert any(window.start <= at < window.end for window in found)


def figures(data: bytes, path: str = "a") -> SessionResult:
    [found] = measure_log(path, data, ReportSettings()).sessions
    return found


def test_what_would_have_been_is_in_the_window_of_its_request() -> None:
    session = figures(timed(log(*TWICE, prompts=2), NOON, HOUR_STEP))
    paid = [request(at) for at in session.times]
    found = plan_windows(paid, [session])
    assert len(found) == 2
    assert [window.row.requests for window in found] == [window.row.measured for window in found]
    total = sum(window.row.costs["lossless"] for window in found)
    assert total == pytest.approx(session.profiles["lossless"].spent.cost)


def test_room_is_that_of_the_largest_conversation_at_the_end_of_a_window() -> None:
    small, large = figures(timed(log("a.py"), NOON), "a"), figures(timed(log(*TWICE, id="b"), NOON), "b")
    paid = [request(at) for session in (small, large) for at in session.times]
    [window] = plan_windows(paid, [large, small])
    assert window.left.keys() == {NOTHING_DONE, "lossless"}
    room = large.windows["claude-opus-4-6"]
    assert window.left[NOTHING_DONE] == requests_left(large.sizes[NOTHING_DONE], room)
    assert (window.left["lossless"] or 0) > (window.left[NOTHING_DONE] or 0) > 0


def test_where_the_room_of_a_model_is_not_known_it_is_not_told() -> None:
    session = figures(timed(log(*TWICE), NOON))
    session.windows = {}
    [window] = plan_windows([request(at) for at in session.times], [session])
    assert window.left == {}


@pytest.mark.parametrize(
    ("sizes", "room", "left"),
    [
        pytest.param([10.0, 20.0, 30.0], 100, 7.0, id="grows by ten"),
        pytest.param([10.0, 20.0, 30.0], 99, 6.0, id="only whole requests fit"),
        pytest.param([10.0, 30.0, 20.0, 40.0], 100, 3.0, id="what shrank between is not growth"),
        pytest.param([10.0, 20.0], 20, 0.0, id="full"),
        pytest.param([10.0, 200.0], 100, 0.0, id="more than full"),
        pytest.param([10.0], 100, None, id="one request tells nothing"),
        pytest.param([], 100, None, id="nor does none"),
        pytest.param([10.0, 10.0], 100, None, id="does not grow"),
        pytest.param([0.0, *(1000.0 + n for n in range(20))], 2000, 981.0, id="judged by the last twenty"),
    ],
)
def test_requests_left(sizes: list[float], room: int, left: float | None) -> None:
    assert requests_left(sizes, room) == left
