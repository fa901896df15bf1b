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
        found = there.replace(tzinfo=self)
        # In the hour that occurs twice when clocks are set back, `fold` selects the second one.
        return found if found.utcoffset() == there.utcoffset() else found.replace(fold=1)


def zone_named(name: str | None) -> tzinfo:
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


def moment_named(option: str, text: str, now: datetime) -> NamedTime:
    """Parse the date or time of an option. Raises UsageError if it is invalid."""
    if ago := _AGO.fullmatch(text):
        try:
            # Hours are exact. Days follow the calendar: a day with a clock change has 23 or 25 hours.
            start = now.astimezone(UTC) if ago[2] == "h" else now
            then = (start - int(ago[1]) * _UNITS[ago[2]]).astimezone(now.tzinfo)
        except OverflowError:
            raise _wrong(option, text) from None
        return NamedTime(then, then)
    day = _midnight(now)
    match text:
        case "today":
            return NamedTime(day, _later(day, 1))
        case "yesterday":
            return NamedTime(_later(day, -1), day)
        case "this-week":
            return NamedTime(_later(day, -day.weekday()), now)
        case "this-month":
            return NamedTime(day.replace(day=1), now)
    return _dated(option, text, now)


def _dated(option: str, text: str, now: datetime) -> NamedTime:
    try:
        day = datetime.combine(date.fromisoformat(text), time(), now.tzinfo)
        return NamedTime(day, _later(day, 1))
    except OverflowError:
        raise _wrong(option, text) from None
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(option, text) from None
    found = found if found.tzinfo else found.replace(tzinfo=now.tzinfo)
    return NamedTime(found, found)


def _wrong(option: str, text: str) -> click.UsageError:
    return click.UsageError(f"{option}: invalid date {text!r}: use {FORMS}")


def _midnight(when: datetime) -> datetime:
    return when.replace(hour=0, minute=0, second=0, microsecond=0)


def _later(when: datetime, days: int) -> datetime:
    """Add calendar days. A day with a clock change has 23 or 25 hours."""
    moved = when.replace(tzinfo=None) + timedelta(days=days)
    return moved.replace(tzinfo=when.tzinfo)


def spelt_day(when: datetime) -> str:
    """Format a date, such as "1 Nov 2026"."""
    return f"{when.day} {when:%b %Y}"


class Period(NamedTuple):
    """A time range in Unix seconds; None is unlimited. `told` is a sentence that describes it for the user."""

    since: float | None = None
    until: float | None = None
    told: str = ""


def period_asked(since: str | None, until: str | None, now: datetime, usual: bool) -> Period:
    """Return the time range of the options; with `usual`, the default range. Raises UsageError."""
    if usual:
        start = _later(_midnight(now), -DEFAULT_DAYS)
        told = f"The last {DEFAULT_DAYS} days, since {spelt_day(start)}. For all dates: --all"
        return Period(start.timestamp(), None, told)
    start_of = moment_named("--since", since, now).start if since else None
    end_of = moment_named("--until", until, now).end if until else None
    if start_of and end_of and start_of >= end_of:
        raise click.UsageError(f"--since {since} is not before --until {until}: swap them")
    if not start_of and not end_of:
        return Period()
    words = [f"since {_spelt(start_of)}"] if start_of else []
    words += [f"until {_spelt(end_of)}"] if end_of else []
    told = f"Requests {' '.join(words)}."
    return Period(start_of.timestamp() if start_of else None, end_of.timestamp() if end_of else None, told)


def _spelt(when: datetime) -> str:
    return spelt_day(when) if when == _midnight(when) else f"{spelt_day(when)}, {when:%H:%M}"


def newest_month(sessions: Iterable[SessionFacts], zone: tzinfo) -> Period:
    """Return the month of the latest request; an unlimited range if no request has a time."""
    when = local_time(max((session.last for session in sessions), default=0.0) or None, zone)
    if when is None:
        return Period()
    start = _midnight(when).replace(day=1)
    following = _later(start, 32).replace(day=1)
    told = f"No requests in the last {DEFAULT_DAYS} days. Showing {start:%B %Y}. For all dates: --all"
    return Period(start.timestamp(), following.timestamp(), told)


def check_words(asked: SessionFilter, sessions: Sequence[SessionFacts], agents: Iterable[str] = ()) -> None:
    """Raise UsageError, with the existing values, if a word of `--agent`, `--project` or `--model` matches none.

    `agents` are the agents of all logs, also of logs that were not read.
    """
    models = {model for session in sessions for model in session.models}
    for option, words, known, whole in (
        ("--agent", asked.agents, {*agents, *(session.agent for session in sessions)}, True),
        ("--project", asked.projects, {session.project for session in sessions if session.project}, False),
        ("--model", asked.models, models, False),
    ):
        for word in words:
            fits = (word.lower() == each.lower() if whole else word.lower() in each.lower() for each in known)
            if known and not any(fits):
                raise click.UsageError(f"{option}: no match for {word!r}: choose from {_some(known)}")
    if asked.session:
        _check_session(asked, sessions)


def _check_session(asked: SessionFilter, sessions: Sequence[SessionFacts]) -> None:
    beginning = asked.session
    found = {session.id for session in sessions if session.id.lower().startswith(beginning.lower())}
    if len(found) > 1:
        raise click.UsageError(f"--session: several ids start with {beginning!r}: {_some(found)}")
    if not found:
        when = " in this time range" if asked.timed else ""
        told = f"--session: no id starts with {beginning!r}{when}"
        raise click.UsageError(f"{told}: `ibidem report --all --by session` lists them")


NAMED = 8
"""Largest number of existing values in an error message."""


def _some(known: Iterable[str]) -> str:
    names = sorted(known)
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return one_line(", ".join(names[:NAMED])) + more if names else "none"
