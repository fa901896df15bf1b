"""What was paid by day: every day from the first to the last, months where there are many, and times that are none."""

from __future__ import annotations

import pytest

from ibidem.report.session_result import SessionResult
from ibidem.report.timeline import MOST_DAYS, time_slots
from tests.report.test_page import page, report, session

DAY = 86400.0
START = 1_760_000_000.0  # 2025-10-09


def days(*numbers: float) -> list[SessionResult]:
    return [session(f"/logs/{n}.jsonl", recorded=2.0, started=START + DAY * n) for n in numbers]


def test_days_in_between_are_there() -> None:
    found = time_slots(report(*days(0, 3)))
    assert found.unit == "day"
    assert [(row.key[0], round(found.amount(row), 6), round(row.saved("lossless"), 6)) for row in found.shown] == [
        ("2025-10-09", 2.5, 0.5),
        ("2025-10-10", 0.0, 0.0),
        ("2025-10-11", 0.0, 0.0),
        ("2025-10-12", 2.5, 0.5),
    ]


def test_many_days_are_months() -> None:
    found = time_slots(report(*days(0, 1, MOST_DAYS)))
    assert (found.unit, found.shown[0].key, round(found.amount(found.shown[0]), 6)) == ("month", ("2025-10",), 5.0)
    assert [row.key[0] for row in found.shown] == ["2025-10", "2025-11", "2025-12", "2026-01", "2026-02"]


def test_times_that_no_clock_shows_cost_no_more_room() -> None:
    found = time_slots(report(*days(0, -20_000, 2_900_000, float("nan"), 1e300)))
    assert [row.key[0] for row in found.shown] == ["1971-01", "2025-10", "9965-09"]
    assert found.untold == pytest.approx(5.0)
    many = time_slots(report(*days(*range(0, 32 * 200, 32))))
    assert (len(many.shown), many.earlier) == (MOST_DAYS, 200 - MOST_DAYS)


def test_the_chart_says_in_words_what_it_shows() -> None:
    found = page(report(*days(0, 0.1, 3)))
    [chart] = [attrs for tag, attrs in found.tags if tag == "svg" and attrs.get("class") == "timeline"]
    assert chart["aria-label"] == "Paid by day, 2025-10-09 to 2025-10-12. Most: $5.00, 2025-10-09."
    assert "2025-10-09: $5.00; lossless would have saved $1.00" in found.said
    assert (
        "As a table day requests paid saved with lossless 2025-10-12 10 $2.50 $0.50 2025-10-09 20 $5.00" in found.said
    )


def test_bars_stay_inside_whatever_is_saved() -> None:
    """More than was paid, where a log recorded less than there was; or less than nothing."""
    some = [
        session("/logs/a.jsonl", 20.0, (1.0, 30.0), recorded=0.5),
        session("/logs/b.jsonl", 0.0, (0.0, 0.0), recorded=0.0, started=START + DAY),
    ]
    chart = page(report(*some)).source.partition('<svg class="timeline"')[2].partition("</svg>")[0]
    assert "other would have cost more: $10.00" in chart
    assert 'y="0.00%" height="100.00%"' in chart
    assert "-" not in [part[:1] for part in chart.split('height="')[1:]]


def test_without_recorded_usage_it_is_what_the_replay_says() -> None:
    found = page(report(session(), session("/logs/b.jsonl", started=START + DAY)))
    assert "Input, replayed, by day, 2025-10-09 to 2025-10-10. Most: $2.00" in " ".join(found.values("aria-label"))
    assert "No log recorded usage." in found.said


def test_one_day_needs_no_chart() -> None:
    assert "timeline" not in page(report(*days(0))).values("class")
