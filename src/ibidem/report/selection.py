"""Which requests a report is about: from when to when, of which models; and of which sessions.

A session that is only partly in the range counts with its requests that are: what they cost is what they cost in the
whole conversation, so that days add up to weeks. A request is where its answer was complete, as other tools count it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from ..recordings import RecordedRequest
from .log_summary import SessionFacts, moment


class RequestFilter(msgspec.Struct, frozen=True):
    """Requests by time and model: from `since` on and before `until`, in Unix seconds."""

    since: float | None = None
    until: float | None = None
    models: tuple[str, ...] | None = None
    """None for all of them."""

    def counts(self, at: float | None, model: str) -> bool:
        """A request of an unknown time is in no range."""
        if self.models is not None and model not in self.models:
            return False
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def takes(self, sent: RecordedRequest) -> bool:
        return self.counts(moment(sent), sent.model)


EVERYTHING = RequestFilter()


class SessionFilter(NamedTuple):
    """What was asked for. Words are compared without regard to case."""

    since: float | None = None
    until: float | None = None
    agents: tuple[str, ...] = ()
    """Whole names; any of them."""
    projects: tuple[str, ...] = ()
    """Parts of the project's path."""
    models: tuple[str, ...] = ()
    """Parts of the model's name."""
    session: str = ""
    """The beginning of the session's id."""

    @property
    def timed(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def whole(self) -> bool:
        """Nothing was asked for."""
        return self == SessionFilter()

    def wants(self, session: SessionFacts) -> bool:
        """Whether a session is asked for, whatever the times of its requests and their models."""
        if self.agents and session.agent.lower() not in _lower(self.agents):
            return False
        if self.projects and not _contains(session.project, self.projects):
            return False
        return not self.session or session.id.lower().startswith(self.session.lower())

    def chosen(self, session: SessionFacts) -> RequestFilter:
        """Which of its requests are asked for."""
        models = tuple(model for model in session.models if _contains(model, self.models)) if self.models else None
        return RequestFilter(self.since, self.until, models)

    def may_hold(self, path: str, written: float | None, agent: str | None) -> bool:
        """Whether a log can hold what is asked for, by its name, the time it was last written and whose it is, as far
        as that is known. What cannot is not read."""
        if self.since is not None and written is not None and written < self.since:
            return False
        if agent is not None and self.agents and agent.lower() not in _lower(self.agents):
            return False
        if self.until is not None and (begun := _begun(path)) is not None and begun > self.until + DAY:
            return False
        return not self.session or _may_be_called(path, self.session.lower())


DAY = 86400.0
"""Seconds. The day in a name is that of the machine's clock: it may be off by as much."""

_DATED = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")
"""Some agents write into a log's name when it began."""
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _begun(path: str) -> float | None:
    found = _DATED.search(path)
    if found is None:
        return None
    year, month, day = map(int, found.groups())
    try:
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _may_be_called(path: str, beginning: str) -> bool:
    """A log with ids in its name, or in the folder around it, is of one of these sessions; any other may be of any."""
    parts = PurePath(path.replace("\\", "/")).parts[-3:]
    ids = [found for part in parts for found in _ID.findall(part.lower())]
    return not ids or any(each.startswith(beginning) for each in ids)


def _lower(words: Iterable[str]) -> list[str]:
    return [word.lower() for word in words]


def _contains(text: str, words: Sequence[str]) -> bool:
    return any(word in text.lower() for word in _lower(words))
