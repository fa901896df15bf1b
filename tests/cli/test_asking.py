"""What `--since`, `--until`, `--timezone` and the words that select sessions mean, and what is said of wrong ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.cli.report.filters import (
    MachineZone,
    TimeRange,
    check_words,
    find_zone,
    newest_month,
    parse_time,
    parse_time_range,
)
from ibidem.report.log_summary import SessionFacts
from ibidem.report.selection import SessionFilter

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 14, 30, tzinfo=BERLIN)
"""A Wednesday in winter: an hour before UTC."""


def spelt(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


# ── moments ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-11-01", "2026-10-31T23:00", "2026-11-01T23:00"),
        ("20261101", "2026-10-31T23:00", "2026-11-01T23:00"),
        ("2026-11-01T14:30", "2026-11-01T13:30", "2026-11-01T13:30"),
        ("2026-11-01 14:30", "2026-11-01T13:30", "2026-11-01T13:30"),
        ("2026-11-01T14:30Z", "2026-11-01T14:30", "2026-11-01T14:30"),
        ("2026-11-01T14:30-08:00", "2026-11-01T22:30", "2026-11-01T22:30"),
        ("2026-W45-1", "2026-11-01T23:00", "2026-11-02T23:00"),
        ("24h", "2026-11-17T13:30", "2026-11-17T13:30"),
        ("7d", "2026-11-11T13:30", "2026-11-11T13:30"),
        ("2w", "2026-11-04T13:30", "2026-11-04T13:30"),
        ("0d", "2026-11-18T13:30", "2026-11-18T13:30"),
        ("today", "2026-11-17T23:00", "2026-11-18T23:00"),
        ("yesterday", "2026-11-16T23:00", "2026-11-17T23:00"),
        ("this-week", "2026-11-15T23:00", "2026-11-18T13:30"),
        ("this-month", "2026-10-31T23:00", "2026-11-18T13:30"),
    ],
)
def test_moments_that_can_be_named(text: str, start: str, end: str) -> None:
    found = parse_time("--since", text, NOW)
    assert (spelt(found.start), spelt(found.end)) == (start, end)


@pytest.mark.parametrize(
    ("now", "text", "start", "end"),
    [
        pytest.param("2026-10-25T12:00", "today", "2026-10-24T22:00", "2026-10-25T23:00", id="a day of 25 hours"),
        pytest.param("2026-03-29T12:00", "today", "2026-03-28T23:00", "2026-03-29T22:00", id="a day of 23 hours"),
        pytest.param("2026-10-26T12:00", "yesterday", "2026-10-24T22:00", "2026-10-25T23:00", id="the day before"),
        pytest.param("2026-10-25T12:00", "24h", "2026-10-24T11:00", "2026-10-24T11:00", id="hours that passed"),
        pytest.param("2026-10-25T12:00", "1d", "2026-10-24T10:00", "2026-10-24T10:00", id="a day by the calendar"),
        pytest.param("2026-11-02T12:00", "this-month", "2026-10-31T23:00", "2026-11-02T11:00", id="a new month"),
        pytest.param("2026-10-28T12:00", "this-month", "2026-09-30T22:00", "2026-10-28T11:00", id="a month of both"),
        pytest.param("2026-11-02T12:00", "2026-07-01", "2026-06-30T22:00", "2026-07-01T22:00", id="a day in summer"),
    ],
)
def test_clocks_that_are_changed(now: str, text: str, start: str, end: str) -> None:
    found = parse_time("--until", text, datetime.fromisoformat(now).replace(tzinfo=BERLIN))
    assert (spelt(found.start), spelt(found.end)) == (start, end)


WRONG = ["", "soon", "7", "7x", "-7d", "7 d", "1.5d", "2026-13-01", "2026-02-30", "11/01/2026", "9999-12-31"]


@pytest.mark.parametrize("text", [*WRONG, "today\n", "\x1b[31m", "1" * 1000 + "d", "999999d"])
def test_what_is_no_moment_is_one_line_with_what_is_one(text: str) -> None:
    with pytest.raises(click.UsageError) as error:
        parse_time("--until", text, NOW)
    said = error.value.format_message()
    assert said.startswith(f"--until: invalid date {text!r}: use a date (2026-11-01")
    assert said.isprintable()


@given(st.text(max_size=20))
def test_any_text_is_a_moment_or_refused(text: str) -> None:
    try:
        found = parse_time("--since", text, NOW)
    except click.UsageError:
        return
    assert found.start <= found.end
    found.start.timestamp()


# ── zones ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "Europe", "../etc/passwd", "/etc/passwd", "a\0b", "\x1b[31m"])
def test_a_zone_that_is_not_known_is_one_line(name: str) -> None:
    with pytest.raises(click.UsageError) as error:
        find_zone(name)
    assert "use a name such as Europe/Berlin, or UTC" in error.value.format_message()
    assert error.value.format_message().isprintable()


def test_zones_that_are_known() -> None:
    assert find_zone("Europe/Berlin") == BERLIN
    assert find_zone("utc") is UTC
    assert isinstance(find_zone(None), MachineZone)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock is changed twice a year."""
    if not hasattr(time, "tzset"):
        pytest.skip("the clock's zone cannot be set for a process")
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    "at",
    [0, 1774745999, 1774746000, 1792886399, 1792886400, 1792889999, 1792890000, 1792893600, 1767225600, 1782864000],
)
def test_the_machines_clock_goes_as_it_does_in_summer_and_in_winter(at: int) -> None:
    """And in the hour that comes twice."""
    ours, known = datetime.fromtimestamp(at, MachineZone()), datetime.fromtimestamp(at, BERLIN)
    assert (ours.isoformat(), ours.fold, ours.timestamp()) == (known.isoformat(), known.fold, at)
    assert ours.tzname() == known.tzname()


def test_the_machines_clock_has_an_answer_for_every_year() -> None:
    for when in (datetime.min, datetime.max):
        assert when.replace(tzinfo=MachineZone()).utcoffset() is not None
    assert datetime.fromtimestamp(-6e10, MachineZone()).timestamp() == -6e10


# ── periods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_day_counts_whole_up_to_its_end() -> None:
    found = parse_time_range("2026-11-01", "2026-11-01", NOW, False)
    assert (found.until or 0) - (found.since or 0) == 86400
    assert found.description == "Requests since 1 Nov 2026 until 1 Nov 2026."


@pytest.mark.parametrize(
    ("since", "until", "told"),
    [
        pytest.param("2026-11-01T14:30", None, "Requests since 1 Nov 2026, 14:30.", id="a beginning"),
        pytest.param(None, "2026-11-01", "Requests until 1 Nov 2026.", id="an end"),
        pytest.param(None, "2026-05-31", "Requests until 31 May 2026.", id="the last day of a month"),
        pytest.param(None, "yesterday", "Requests until 17 Nov 2026.", id="an end by name"),
        pytest.param(None, "2026-11-01T00:00", "Requests until 1 Nov 2026, 00:00.", id="an end at midnight"),
        pytest.param(None, None, "", id="neither"),
    ],
)
def test_periods_are_told(since: str | None, until: str | None, told: str) -> None:
    assert parse_time_range(since, until, NOW, False).description == told


def test_where_nothing_is_said_it_is_the_last_thirty_days() -> None:
    found = parse_time_range(None, None, NOW, True)
    assert found.since == datetime(2026, 10, 19, tzinfo=BERLIN).timestamp()
    assert (found.until, found.description) == (None, "The last 30 days, since 19 Oct 2026. For all dates: --all")


@pytest.mark.parametrize(
    ("since", "until"),
    [("2026-11-02", "2026-11-01"), ("today", "yesterday"), ("24h", "7d"), ("2026-11-01T10:00", "2026-11-01T10:00")],
)
def test_an_end_before_the_beginning_is_refused(since: str, until: str) -> None:
    with pytest.raises(click.UsageError, match=f"--since {since} is not before --until {until}: swap them"):
        parse_time_range(since, until, NOW, False)


def session(*times: float | None, **fields: object) -> SessionFacts:
    return SessionFacts("a", **{"agent": "pi", "format": "anthropic", "times": list(times), **fields})  # type: ignore[arg-type]


def test_the_newest_month_is_that_of_the_last_request() -> None:
    old, new = datetime(2026, 1, 9, tzinfo=UTC).timestamp(), datetime(2026, 2, 28, 23, 30, tzinfo=UTC).timestamp()
    found = newest_month([session(old, new, None), session(old)], UTC)
    assert (found.since, found.until) == tuple(datetime(2026, month, 1, tzinfo=UTC).timestamp() for month in (2, 3))
    assert found.description == ("No requests in the last 30 days. Showing February 2026. For all dates: --all")
    assert newest_month([session(old, new)], BERLIN).description.count("March 2026") == 1


@pytest.mark.parametrize("times", [(), (None,), (-1e15,)])
def test_without_a_time_there_is_no_newest_month(times: tuple[float | None, ...]) -> None:
    assert newest_month([session(*times)], UTC) == TimeRange()
    assert newest_month([], UTC) == TimeRange()


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SESSIONS = [
    session(agent="pi", project="/home/me/shop", models=["claude-opus-4-6"], id="abc1"),
    session(agent="codex", project="/home/me/bank", models=["gpt-5"], id="abd2"),
    session(agent="codex", project="", models=[], id=""),
]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param(SessionFilter(agents=("gemini",)), "no match for 'gemini': choose from codex, pi", id="agent"),
        pytest.param(SessionFilter(agents=("cod",)), "--agent: no match for 'cod'", id="half of an agent"),
        pytest.param(SessionFilter(projects=("zoo",)), "choose from /home/me/bank, /home/me/shop", id="project"),
        pytest.param(SessionFilter(projects=("shop", "zoo")), "--project: no match for 'zoo'", id="the second of two"),
        pytest.param(SessionFilter(models=("llama",)), "choose from claude-opus-4-6, gpt-5", id="model"),
        pytest.param(SessionFilter(session="ab"), "several ids start with 'ab': abc1, abd2", id="several sessions"),
        pytest.param(SessionFilter(session="x"), "no id starts with 'x': `ibidem report", id="no session"),
        pytest.param(
            SessionFilter(session="x", since=1), "no id starts with 'x' in this time range", id="none in that time"
        ),
        pytest.param(SessionFilter(models=("\x1b[31m\n",)), r"'\x1b[31m\n'", id="a word that could break its line"),
    ],
)
def test_words_that_fit_nothing_are_one_line_with_what_there_is(asked: SessionFilter, words: str) -> None:
    with pytest.raises(click.UsageError) as error:
        check_words(asked, SESSIONS)
    assert words in error.value.format_message()
    assert error.value.format_message().isprintable()


@pytest.mark.parametrize(
    "asked",
    [
        SessionFilter(),
        SessionFilter(agents=("PI", "codex")),
        SessionFilter(projects=("me",), models=("OPUS",)),
        SessionFilter(session="ABC"),
    ],
)
def test_words_that_fit_are_taken(asked: SessionFilter) -> None:
    check_words(asked, SESSIONS)


def test_what_there_is_is_told_in_a_few_words() -> None:
    many = [session(project=f"/p/{n:02}\x1b[31m") for n in range(20)]
    with pytest.raises(click.UsageError, match=r"/p/07\\x1b\[31m and 12 more$") as error:
        check_words(SessionFilter(projects=("x/",)), many)
    assert error.value.format_message().isprintable()


def test_agents_whose_logs_were_not_read_are_known() -> None:
    with pytest.raises(click.UsageError, match="choose from claude-code, codex"):
        check_words(SessionFilter(agents=("gemini",)), [], {"codex", "claude-code"})
    check_words(SessionFilter(agents=("codex",)), [], {"codex", "claude-code"})
