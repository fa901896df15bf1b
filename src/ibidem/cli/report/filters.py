"""What `--since`, `--until`, `--timezone` and the words that select sessions mean."""

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
"""Days that a report is about where nothing is said."""

FORMS = "a date (2026-11-01, 2026-11-01T14:30), a time ago (7d, 24h, 2w), today, yesterday, this-week or this-month"

_AGO = re.compile(r"(\d{1,5})(h|d|w)")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class NamedTime(NamedTuple):
    """From when on, and up to when what was named lasts: a day is all of it."""

    start: datetime
    end: datetime


class MachineZone(tzinfo):
    """As the clock of this machine goes, in summer and in winter."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        if when is None:
            return None
        try:
            return when.replace(tzinfo=None).astimezone().utcoffset()
        except (OverflowError, OSError, ValueError):  # years that its calendar does not have
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
        return found if found.utcoffset() == there.utcoffset() else found.replace(fold=1)  # the hour that comes twice


def zone_named(name: str | None) -> tzinfo:
    """The named one, or that of this machine's clock."""
    if name is None:
        return MachineZone()
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.UsageError(
            f"--timezone: {name!r} is not known here: use a name such as Europe/Berlin, or UTC"
        ) from None


def moment_named(option: str, text: str, now: datetime) -> NamedTime:
    """Raises UsageError for anything that is no moment."""
    if ago := _AGO.fullmatch(text):
        try:
            # Hours pass as they do; days go by the calendar, on which one may have 23 or 25 of them.
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
    return click.UsageError(f"{option}: {text!r} is no moment: use {FORMS}")


def _midnight(when: datetime) -> datetime:
    return when.replace(hour=0, minute=0, second=0, microsecond=0)


def _later(when: datetime, days: int) -> datetime:
    """By the calendar: days on which clocks are changed are as long as they are."""
    moved = when.replace(tzinfo=None) + timedelta(days=days)
    return moved.replace(tzinfo=when.tzinfo)


def spelt_day(when: datetime) -> str:
    return f"{when.day} {when:%b %Y}"


class Period(NamedTuple):
    """From when to when, in Unix seconds, and what is said about it."""

    since: float | None = None
    until: float | None = None
    told: str = ""


def period_asked(since: str | None, until: str | None, now: datetime, usual: bool) -> Period:
    """The one that was named; the last days where nothing was, and nothing was selected (`usual`)."""
    if usual:
        start = _later(_midnight(now), -DEFAULT_DAYS)
        told = f"The last {DEFAULT_DAYS} days, from {spelt_day(start)} on. All there is: --all"
        return Period(start.timestamp(), None, told)
    start_of = moment_named("--since", since, now).start if since else None
    end_of = moment_named("--until", until, now).end if until else None
    if start_of and end_of and start_of >= end_of:
        raise click.UsageError(f"--since {since} is not before --until {until}: exchange them")
    if not start_of and not end_of:
        return Period()
    words = [f"from {_spelt(start_of)} on"] if start_of else []
    words += [f"until {_spelt(end_of)}"] if end_of else []
    told = f"Requests {' '.join(words)}."
    return Period(start_of.timestamp() if start_of else None, end_of.timestamp() if end_of else None, told)


def _spelt(when: datetime) -> str:
    return spelt_day(when) if when == _midnight(when) else f"{spelt_day(when)}, {when:%H:%M}"


def newest_month(sessions: Iterable[SessionFacts], zone: tzinfo) -> Period:
    """The month of the last request there is; everything if none has a time."""
    when = local_time(max((session.last for session in sessions), default=0.0) or None, zone)
    if when is None:
        return Period()
    start = _midnight(when).replace(day=1)
    following = _later(start, 32).replace(day=1)
    told = f"Nothing in the last {DEFAULT_DAYS} days: these are figures of {start:%B %Y}. All there is: --all"
    return Period(start.timestamp(), following.timestamp(), told)


def check_words(asked: SessionFilter, sessions: Sequence[SessionFacts], agents: Iterable[str] = ()) -> None:
    """Raises UsageError for a word that fits nothing, with those that there are. `agents` are those that logs are known
    to be of, whether these were read or not."""
    models = {model for session in sessions for model in session.models}
    for option, words, known, whole in (
        ("--agent", asked.agents, {*agents, *(session.agent for session in sessions)}, True),
        ("--project", asked.projects, {session.project for session in sessions if session.project}, False),
        ("--model", asked.models, models, False),
    ):
        for word in words:
            fits = (word.lower() == each.lower() if whole else word.lower() in each.lower() for each in known)
            if known and not any(fits):
                raise click.UsageError(f"{option}: {word!r} fits nothing here: there is {_some(known)}")
    if asked.session:
        _check_session(asked, sessions)


def _check_session(asked: SessionFilter, sessions: Sequence[SessionFacts]) -> None:
    beginning = asked.session
    found = {session.id for session in sessions if session.id.lower().startswith(beginning.lower())}
    if len(found) > 1:
        raise click.UsageError(f"--session: {beginning!r} is the beginning of several: {_some(found)}")
    if not found:
        when = " in that time" if asked.timed else ""
        told = f"--session: no id begins with {beginning!r}{when}"
        raise click.UsageError(f"{told}: `ibidem report --all --by session` lists them")


NAMED = 8
"""Of what there is, how many are named."""


def _some(known: Iterable[str]) -> str:
    names = sorted(known)
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return one_line(", ".join(names[:NAMED])) + more if names else "none that is told"
