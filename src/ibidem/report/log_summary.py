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
from ..recordings.json_log import LoggedExchange, read_json_log
from ..replay.caching import pauses_of
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
    def replayed(self) -> bool:
        """The session can be replayed. Logs of Ibidem's proxy have no histories."""
        return not self.paid

    @property
    def started(self) -> float | None:
        return next((at for at in self.times if at is not None), None)

    @property
    def last(self) -> float:
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
        if (logged := read_json_log(path, data)) is not None:
            return FileFacts(list(_logged(path, logged)), size=len(data))
        found = recordings.read(path, data)
    except recordings.LogError as error:
        return FileFacts(unread=[UnreadFile(path, str(error).removeprefix(f"{path}: "))], size=len(data))
    return FileFacts([facts_of(session) for session in found], size=len(data))


def _logged(path: str, exchanges: Iterable[LoggedExchange]) -> Iterator[SessionFacts]:
    """Yield the conversations in a log of Ibidem's proxy. Only requests with usage or a cost count."""
    conversations: dict[tuple[float | None, str], list[LoggedExchange]] = {}
    for each in exchanges:
        if each.usage is not None or each.paid is not None:
            conversations.setdefault((each.started, each.conversation), []).append(each)
    for number, ((_, name), some) in enumerate(conversations.items(), 1):
        models = list(dict.fromkeys(each.model for each in some if each.model))
        yield SessionFacts(
            path,
            PROXY_LOG,
            some[0].format,
            name=f"conversation {number}",
            id=name,
            title=some[0].title,
            models=models,
            asked=[models.index(each.model) if each.model else -1 for each in some],
            times=[each.time for each in some],
            counted=[_tokens(each.usage) for each in some],
            answers=[""] * len(some),
            paid=[each.paid for each in some],
            otherwise=[None if each.observed else each.would_have_paid for each in some],
        )


def facts_of(session: Recording) -> SessionFacts:
    """Summarize a recorded session."""
    sent = [each for segment in session.segments for each in segment.requests]
    models = session.models
    places = {model: place for place, model in enumerate(models)}
    pauses = pauses_of(session)
    return SessionFacts(
        session.path,
        session.agent,
        session.format,
        session.name,
        session.id,
        session.title,
        session.project,
        models,
        [places.get(each.model, -1) for each in sent],
        [moment(each) for each in sent],
        [_tokens(each.billed or each.usage) for each in sent],
        [each.answer for each in sent],
        otherwise=[each.otherwise for each in sent] if any(each.otherwise is not None for each in sent) else [],
        spoken=pauses.spoken,
        looped=pauses.looped,
    )


def moment(sent: RecordedRequest) -> float | None:
    """Unix time at which the response to a request was complete, or else at which the request was sent."""
    return sent.at if sent.answered is None else sent.answered


def _tokens(usage: Usage | None) -> tuple[int, int, int, int, int] | None:
    return None if usage is None else (usage.fresh, usage.read, usage.written, usage.written_1h, usage.output)


def paid_requests(session: SessionFacts, prices: Prices) -> Iterator[PaidRequest]:
    """Yield the requests of a session with their recorded cost."""
    for number in range(len(session.times)):
        counted, model, at = session.counted[number], session.model_of(number), session.times[number]
        usage = None if counted is None else Usage(*counted)
        rates = None if usage is None else prices.of(model, session.format, at).rates(usage.input)
        paid = rates.input_cost(usage) if rates and usage else None
        output = rates.output * usage.output if rates and usage else None
        otherwise = session.otherwise[number] if session.otherwise else None
        if session.paid:
            paid = session.paid[number]
        yield PaidRequest(session, number, at, model, usage, paid, output, otherwise)
