"""Sessions of a log and their recorded usage, without a replay.

The facts do not depend on prices or profiles, so they stay cached until the log changes. A log of Ibidem's proxy has
usage but no histories, so its sessions are never replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from .. import recordings
from ..billing.prices import Prices
from ..billing.usage import Usage
from ..recordings import LogBytes, RecordedRequest, Recording
from ..recordings.proxy_json_log import LoggedExchange, read_usage_log
from ..replay.caching_replay import count_idle_times
from .session_result import UnreadFile

PROXY_LOG = "ibidem-proxy"
"""Agent name of sessions in logs of Ibidem's proxy."""


class SessionFacts(msgspec.Struct):
    """A session as it was recorded. Lists are by request."""

    path: str
    agent: str
    format: str
    name: str = ""
    id: str = ""
    title: str = ""
    project: str = ""
    models: list[str] = []
    asked: list[int] = []
    """Index in `models` of each request's model; -1 if unknown."""
    times: list[float | None] = []
    """Unix seconds at which the response was complete."""
    counted: list[tuple[int, int, int, int, int] | None] = []
    """Tokens: fresh, read, written, written for an hour, output. None without recorded usage."""
    answers: list[str] = []
    """Ids of the responses; empty if unknown."""
    paid: list[float | None] = []
    """Dollars for input; only in logs of Ibidem's proxy."""
    otherwise: list[float | None] = []
    """Dollars for input without the proxy."""
    spoken: tuple[int, int, int] = (0, 0, 0)
    looped: tuple[int, int, int] = (0, 0, 0)
    """Counts of idle times before requests, as in `billing.cache_ttl.Pauses`."""

    @property
    def key(self) -> tuple[str, str]:
        """Path and name, unique among all sessions."""
        return self.path, self.name

    @property
    def is_replayable(self) -> bool:
        """The session can be replayed. Logs of Ibidem's proxy have no histories."""
        return not self.paid

    @property
    def started(self) -> float | None:
        return next((at for at in self.times if at is not None), None)

    @property
    def last_request_time(self) -> float:
        """Unix time of the last request; 0 if unknown."""
        return max((at for at in self.times if at is not None), default=0.0)

    def model_of(self, number: int) -> str:
        return self.models[self.asked[number]] if self.asked[number] >= 0 else ""


class FileFacts(msgspec.Struct):
    """Sessions of one file, without a replay."""

    sessions: list[SessionFacts] = []
    unread: list[UnreadFile] = []
    size: int = 0
    """Size on disk in bytes."""


class PaidRequest(NamedTuple):
    """One request, and its recorded cost."""

    session: SessionFacts
    number: int
    at: float | None
    model: str
    usage: Usage | None
    input: float | None
    """Dollars; None without recorded usage."""
    output: float | None
    otherwise: float | None = None
    """Dollars for its input without Ibidem's proxy; None if the proxy did not log it."""


def read_facts(path: str, data: LogBytes) -> FileFacts:
    """Read the sessions of a log. A log that cannot be read becomes an `UnreadFile`."""
    try:
        if (exchanges := read_usage_log(path, data)) is not None:
            return FileFacts(list(_proxy_sessions(path, exchanges)), size=len(data))
        sessions = recordings.read(path, data)
    except recordings.LogError as error:
        return FileFacts(unread=[UnreadFile(path, str(error).removeprefix(f"{path}: "))], size=len(data))
    return FileFacts([summarize_session(session) for session in sessions], size=len(data))


def _proxy_sessions(path: str, exchanges: Iterable[LoggedExchange]) -> Iterator[SessionFacts]:
    """Yield the conversations in a log of Ibidem's proxy. Only requests with usage or a cost count."""
    conversations: dict[tuple[float | None, str], list[LoggedExchange]] = {}
    for each in exchanges:
        if each.usage is not None or each.paid is not None:
            conversations.setdefault((each.started, each.conversation), []).append(each)
    for number, ((_, name), group) in enumerate(conversations.items(), 1):
        models = list(dict.fromkeys(each.model for each in group if each.model))
        yield SessionFacts(
            path,
            PROXY_LOG,
            group[0].format,
            name=f"conversation {number}",
            id=name,
            title=group[0].title,
            models=models,
            asked=[models.index(each.model) if each.model else -1 for each in group],
            times=[each.time for each in group],
            counted=[_token_counts(each.usage) for each in group],
            answers=[""] * len(group),
            paid=[each.paid for each in group],
            otherwise=[None if each.observed else each.would_have_paid for each in group],
        )


def summarize_session(session: Recording) -> SessionFacts:
    """Summarize a recorded session."""
    requests = [each for segment in session.segments for each in segment.requests]
    models = session.models
    places = {model: place for place, model in enumerate(models)}
    idle_times = count_idle_times(session)
    return SessionFacts(
        session.path,
        session.agent,
        session.format,
        session.name,
        session.id,
        session.title,
        session.project,
        models,
        [places.get(each.model, -1) for each in requests],
        [request_time(each) for each in requests],
        [_token_counts(each.billed or each.usage) for each in requests],
        [each.answer for each in requests],
        otherwise=[each.otherwise for each in requests] if any(each.otherwise is not None for each in requests) else [],
        spoken=idle_times.spoken,
        looped=idle_times.looped,
    )


def request_time(request: RecordedRequest) -> float | None:
    """Unix time at which the response to a request was complete, or else at which the request was sent."""
    return request.at if request.answered is None else request.answered


def _token_counts(usage: Usage | None) -> tuple[int, int, int, int, int] | None:
    return None if usage is None else (usage.fresh, usage.read, usage.written, usage.written_1h, usage.output)


def paid_requests(session: SessionFacts, prices: Prices) -> Iterator[PaidRequest]:
    """Yield the requests of a session with their recorded cost."""
    for number in range(len(session.times)):
        counts, model, at = session.counted[number], session.model_of(number), session.times[number]
        usage = None if counts is None else Usage(*counts)
        rates = None if usage is None else prices.of(model, session.format, at).rates(usage.input)
        input_cost = rates.input_cost(usage) if rates and usage else None
        output_cost = rates.output * usage.output if rates and usage else None
        cost_without_proxy = session.otherwise[number] if session.otherwise else None
        if session.paid:
            input_cost = session.paid[number]
        yield PaidRequest(session, number, at, model, usage, input_cost, output_cost, cost_without_proxy)
