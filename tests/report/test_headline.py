"""What a report says first, in words."""

from __future__ import annotations

import pytest

from ibidem.report.aggregate import Report, ReportRow
from ibidem.report.headline import logged_line, next_step, paid_line, saving_line, wrap_command
from ibidem.report.session_result import NOTHING_DONE
from tests.report.test_report import TWICE, log, report


def told(*names: str, **fields: object) -> Report:
    """Of these profiles."""
    return Report(names or ("lossless",), total=ReportRow(**fields))  # type: ignore[arg-type]


def keys(number: int) -> set[tuple[str, str]]:
    return {("a", str(n)) for n in range(number)}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            told(sessions=keys(1), requests=1, counted=1, input=1.0, output=0.5),
            "Paid $1.50 ($1.00 for input, $0.50 for output) for 1 session, 1 request.",
            id="one of each",
        ),
        pytest.param(
            told(sessions=keys(2), requests=1234, counted=1234, input=1000.0, output=234.5),
            "Paid $1,234.50 ($1,000.00 for input, $234.50 for output) for 2 sessions, 1,234 requests.",
            id="many",
        ),
        pytest.param(
            told(sessions=keys(2), requests=10, counted=4, input=1.0),
            "Paid $1.00 ($1.00 for input, $0.00 for output) for 2 sessions, 10 requests (4 with recorded usage).",
            id="some of them counted",
        ),
        pytest.param(
            told(sessions=keys(1), requests=3),
            "1 session, 3 requests. Cost unknown: the logs record no usage.",
            id="nothing counted",
        ),
        pytest.param(
            told(sessions=keys(1), requests=3, counted=3),
            "Paid $0.00 ($0.00 for input, $0.00 for output) for 1 session, 3 requests.",
            id="a model that costs nothing",
        ),
        pytest.param(
            told(sessions=keys(1), requests=1, counted=1, input=0.00001),
            "Paid under $0.0001 (under $0.0001 for input, $0.00 for output) for 1 session, 1 request.",
            id="next to nothing",
        ),
    ],
)
def test_what_was_paid(found: Report, expected: str) -> None:
    assert paid_line(found) == expected


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param({}, "", id="nothing was replayed"),
        pytest.param({"one": 7.5}, "one would have saved $2.50 (25.0% of the input).", id="one profile"),
        pytest.param(
            {"one": 7.5, "two": 5.0},
            "one would have saved $2.50 (25.0% of the input); two $5.00 (50.0%).",
            id="two profiles",
        ),
        pytest.param(
            {"one": 12.0}, "one would have cost $2.00 more (20.0% of the input).", id="a profile that costs more"
        ),
        pytest.param(
            {"one": 7.5, "two": 12.0},
            "one would have saved $2.50 (25.0% of the input); two would have cost $2.00 more (20.0%).",
            id="one that saves and one that costs more",
        ),
        pytest.param({"one": 10.0}, "one would have saved $0.00 (0.0% of the input).", id="nothing to save"),
        pytest.param(
            {"one": 12.0, "two": 7.5},
            "one would have cost $2.00 more (20.0% of the input); two would have saved $2.50 (25.0%).",
            id="one that costs more, and one that saves",
        ),
    ],
)
def test_what_would_have_been_saved(costs: dict[str, float], expected: str) -> None:
    found = told(*costs, costs={NOTHING_DONE: 10.0, **costs} if costs else {})
    assert saving_line(found) == expected


def test_savings_are_also_shares_of_everything_paid_if_output_was_recorded() -> None:
    costs = {NOTHING_DONE: 10.0, "one": 7.5, "two": 12.0}
    found = told("one", "two", costs=costs, input=4.0, output=1.0)
    assert saving_line(found) == (
        "one would have saved $2.50 (25.0% of the input, 20.0% of everything paid);"
        " two would have cost $2.00 more (20.0%, 16.0%)."
    )


@pytest.mark.parametrize(
    ("paid", "otherwise", "expected"),
    [
        pytest.param(0.0, 0.0, "", id="nothing went through it"),
        pytest.param(1.0, 4.0, "Through ibidem: input at list prices $1.00 instead of $4.00 (75.0% less).", id="less"),
        pytest.param(5.0, 4.0, "Through ibidem: input at list prices $5.00 instead of $4.00 (25.0% more).", id="more"),
    ],
)
def test_what_was_saved_in_fact(paid: float, otherwise: float, expected: str) -> None:
    assert logged_line(ReportRow(logged=paid, otherwise=otherwise)) == expected


def test_what_to_type_next_is_told_where_it_saves_something() -> None:
    assert next_step(told("one")) == ""
    assert next_step(told("one", costs={NOTHING_DONE: 1.0, "one": 1.0})) == ""
    assert next_step(told("one", costs={NOTHING_DONE: 1.0, "one": 2.0})) == ""
    saved = told("one", costs={NOTHING_DONE: 2.0, "one": 1.0})
    assert next_step(saved) == "To save it from now on: ibidem wrap -- claude"


def test_the_command_is_that_of_the_agent_that_costs_most() -> None:
    found = report(log(*TWICE), log("a.py", id="b"))
    found.sessions[0].agent = "codex"
    assert wrap_command(found) == "ibidem wrap -- codex"
    found.sessions[0].agent = "some other agent"
    assert wrap_command(found) == "ibidem wrap -- claude"
