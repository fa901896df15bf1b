"""Parse `--since`, `--until` and `--timezone`, and check the words that select sessions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from ...errors import one_line
from ...report.aggregate import local_time
from ...report.log_summary import SessionFacts
from ...report.selection import SessionFilter

DEFAULT_DAYS = 30
"""Days that a report covers by default."""

FORMS = "a date (2026-11-01, 2026-11-01T14:30), a time ago (7d, 24h, 2w), today, yesterday, this-week or this-month"

_AGO = re.compile(r"(\d{1,5})(h|d|w)")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class NamedTime(NamedTuple):
    """Start and end of a date or time that the user named. A date lasts the whole day."""

    start: datetime
    end: datetime


class MachineZone(tzinfo):
    """Time zone of this machine, with its daylight saving time."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        if when is None:
            return None
        try:
            return when.replace(tzinfo=None).astimezone().utcoffset()
        except (OverflowError, OSError, ValueError):  # years that the system's calendar does not support
            return timedelta()

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, when: datetime) -> datetime:
        try:
            there = when.replace(tzinfo=UTC).astimezone()
        except (OverflowError, OSError, ValueError):
            return when
        local = there.replace(tzinfo=self)
        # In the hour that occurs twice when clocks are set back, `fold` selects the second one.
        return local if local.utcoffset() == there.utcoffset() else local.replace(fold=1)


def find_zone(name: str | None) -> tzinfo:
    """Return the time zone of this name, or of this machine for None. Raises UsageError."""
    if name is None:
        return MachineZone()
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.UsageError(
            f"--timezone: unknown time zone {name!r}: use a name such as Europe/Berlin, or UTC"
        ) from None


def parse_time(option: str, text: str, now: datetime) -> NamedTime:
    """Parse the date or time of an option. Raises UsageError if it is invalid."""
    if match := _AGO.fullmatch(text):
        try:
            # Hours are exact. Days follow the calendar: a day with a clock change has 23 or 25 hours.
            start = now.astimezone(UTC) if match[2] == "h" else now
            time_ago = (start - int(match[1]) * _UNITS[match[2]]).astimezone(now.tzinfo)
        except OverflowError:
            raise _invalid_date(option, text) from None
        return NamedTime(time_ago, time_ago)
    day = _start_of_day(now)
    match text:
        case "today":
            return NamedTime(day, _add_days(day, 1))
        case "yesterday":
            return NamedTime(_add_days(day, -1), day)
        case "this-week":
            return NamedTime(_add_days(day, -day.weekday()), now)
        case "this-month":
            return NamedTime(day.replace(day=1), now)
    return _parse_date(option, text, now)


def _parse_date(option: str, text: str, now: datetime) -> NamedTime:
    try:
        day = datetime.combine(date.fromisoformat(text), time(), now.tzinfo)
        return NamedTime(day, _add_days(day, 1))
    except OverflowError:
        raise _invalid_date(option, text) from None
    except ValueError:
        pass
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise _invalid_date(option, text) from None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=now.tzinfo)
    return NamedTime(parsed, parsed)


def _invalid_date(option: str, text: str) -> click.UsageError:
    return click.UsageError(f"{option}: invalid date {text!r}: use {FORMS}")


def _start_of_day(when: datetime) -> datetime:
    return when.replace(hour=0, minute=0, second=0, microsecond=0)


def _add_days(when: datetime, days: int) -> datetime:
    """Add calendar days. A day with a clock change has 23 or 25 hours."""
    moved = when.replace(tzinfo=None) + timedelta(days=days)
    return moved.replace(tzinfo=when.tzinfo)


def format_day(when: datetime) -> str:
    """Format a date, such as "1 Nov 2026"."""
    return f"{when.day} {when:%b %Y}"


class TimeRange(NamedTuple):
    """A time range in Unix seconds; None is unlimited. `description` is a sentence that describes it for the user."""

    since: float | None = None
    until: float | None = None
    description: str = ""


def parse_time_range(since: str | None, until: str | None, now: datetime, use_default: bool) -> TimeRange:
    """Return the time range of the options; with `use_default`, the default range. Raises UsageError."""
    if use_default:
        start = _add_days(_start_of_day(now), -DEFAULT_DAYS)
        description = f"The last {DEFAULT_DAYS} days, since {format_day(start)}. For all dates: --all"
        return TimeRange(start.timestamp(), None, description)
    start_of = parse_time("--since", since, now).start if since else None
    end = parse_time("--until", until, now) if until else None
    end_of = end.end if end else None
    if start_of and end_of and start_of >= end_of:
        raise click.UsageError(f"--since {since} is not before --until {until}: swap them")
    if not start_of and not end_of:
        return TimeRange()
    words = [f"since {_format_time(start_of)}"] if start_of else []
    words += [f"until {_format_end(end)}"] if end else []
    description = f"Requests {' '.join(words)}."
    return TimeRange(start_of.timestamp() if start_of else None, end_of.timestamp() if end_of else None, description)


def _format_time(when: datetime) -> str:
    return format_day(when) if when == _start_of_day(when) else f"{format_day(when)}, {when:%H:%M}"


def _format_end(when: NamedTime) -> str:
    """Format the end of a time range. A date that the user named is the last whole day in the range."""
    is_whole_day = when.end > when.start and when.end == _start_of_day(when.end)
    if is_whole_day:
        return format_day(_add_days(when.end, -1))
    return f"{format_day(when.end)}, {when.end:%H:%M}"


def newest_month(sessions: Iterable[SessionFacts], zone: tzinfo) -> TimeRange:
    """Return the month of the latest request; an unlimited range if no request has a time."""
    when = local_time(max((session.last_request_time for session in sessions), default=0.0) or None, zone)
    if when is None:
        return TimeRange()
    start = _start_of_day(when).replace(day=1)
    following = _add_days(start, 32).replace(day=1)
    description = f"No requests in the last {DEFAULT_DAYS} days. Showing {start:%B %Y}. For all dates: --all"
    return TimeRange(start.timestamp(), following.timestamp(), description)


def check_words(selection: SessionFilter, sessions: Sequence[SessionFacts], agents: Iterable[str] = ()) -> None:
    """Raise UsageError, with the existing values, if a word of `--agent`, `--project` or `--model` matches none.

    `agents` are the agents of all logs, also of logs that were not read.
    """
    models = {model for session in sessions for model in session.models}
    for option, words, values, is_exact in (
        ("--agent", selection.agents, {*agents, *(session.agent for session in sessions)}, True),
        ("--project", selection.projects, {session.project for session in sessions if session.project}, False),
        ("--model", selection.models, models, False),
    ):
        for word in words:
            fits = (word.lower() == each.lower() if is_exact else word.lower() in each.lower() for each in values)
            if values and not any(fits):
                raise click.UsageError(f"{option}: no match for {word!r}: choose from {_list_values(values)}")
    if selection.session:
        _check_session(selection, sessions)


def _check_session(selection: SessionFilter, sessions: Sequence[SessionFacts]) -> None:
    beginning = selection.session
    ids = {session.id for session in sessions if session.id.lower().startswith(beginning.lower())}
    if len(ids) > 1:
        raise click.UsageError(f"--session: several ids start with {beginning!r}: {_list_values(ids)}")
    if not ids:
        when = " in this time range" if selection.has_time_range else ""
        message = f"--session: no id starts with {beginning!r}{when}"
        raise click.UsageError(f"{message}: `ibidem report --all --by session` lists them")


MAX_LISTED = 8
"""Largest number of existing values in an error message."""


def _list_values(values: Iterable[str]) -> str:
    names = sorted(values)
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return one_line(", ".join(names[:MAX_LISTED])) + more if names else "none"
