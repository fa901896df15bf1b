"""Selection of the requests and sessions of a report: by time, model, agent, project and session id.

A session counts with its requests in the time range. Their cost is that in the whole conversation, so days add up to
weeks. A request belongs to the time at which its response was complete, as in other tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from ..recordings import RecordedRequest
from .log_summary import SessionFacts, request_time


class RequestFilter(msgspec.Struct, frozen=True):
    """Requests by time and model: from `since` on and before `until`, in Unix seconds."""

    since: float | None = None
    until: float | None = None
    models: tuple[str, ...] | None = None
    """None for all models."""

    def matches_request(self, at: float | None, model: str) -> bool:
        """Whether a request is selected. A request without a time matches only if there is no time range."""
        if self.models is not None and model not in self.models:
            return False
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def matches_recorded(self, request: RecordedRequest) -> bool:
        return self.matches_request(request_time(request), request.model)


EVERYTHING = RequestFilter()


class SessionFilter(NamedTuple):
    """The user's selection. Comparisons ignore case."""

    since: float | None = None
    until: float | None = None
    agents: tuple[str, ...] = ()
    """Full names; one must match."""
    projects: tuple[str, ...] = ()
    """Parts of the project's path; one must match."""
    models: tuple[str, ...] = ()
    """Parts of the model's name; one must match."""
    session: str = ""
    """Prefix of the session's id."""

    @property
    def has_time_range(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def selects_everything(self) -> bool:
        """The user selected nothing, so everything counts."""
        return self == SessionFilter()

    def matches_session(self, session: SessionFacts) -> bool:
        """Whether a session is selected, regardless of the times and models of its requests."""
        if self.agents and session.agent.lower() not in _lower_words(self.agents):
            return False
        if self.projects and not _contains_any(session.project, self.projects):
            return False
        return not self.session or session.id.lower().startswith(self.session.lower())

    def request_filter(self, session: SessionFacts) -> RequestFilter:
        """Make the filter for the requests of a session."""
        models = tuple(model for model in session.models if _contains_any(model, self.models)) if self.models else None
        return RequestFilter(self.since, self.until, models)

    def may_hold(self, path: str, written_at: float | None, agent: str | None) -> bool:
        """Whether a log can contain selected requests, by its name, modification time and agent, as far as known.

        Other logs are not opened.
        """
        if self.since is not None and written_at is not None and written_at < self.since:
            return False
        if agent is not None and self.agents and agent.lower() not in _lower_words(self.agents):
            return False
        if self.until is not None and (start := _start_from_path(path)) is not None and start > self.until + DAY:
            return False
        return not self.session or _may_have_id(path, self.session.lower())


DAY = 86400.0
"""Seconds. The date in a file name is in local time, so it can differ from UTC by up to a day."""

_DATED = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")
"""File names of Codex: they contain the start of the session."""
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _start_from_path(path: str) -> float | None:
    match = _DATED.search(path)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    try:
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _may_have_id(path: str, prefix: str) -> bool:
    """Whether a log can contain a session with this id prefix. Ids in its file or folder names rule out all others."""
    parts = PurePath(path.replace("\\", "/")).parts[-3:]
    ids = [match for part in parts for match in _ID.findall(part.lower())]
    return not ids or any(each.startswith(prefix) for each in ids)


def _lower_words(words: Iterable[str]) -> list[str]:
    return [word.lower() for word in words]


def _contains_any(text: str, words: Sequence[str]) -> bool:
    return any(word in text.lower() for word in _lower_words(words))
