"""What logs say by themselves: which sessions there are, and what was counted for each request. Needs only reading.

Nothing here depends on prices or profiles, so it is remembered for as long as a log does not change. A log of our own
proxy has figures and no histories: its sessions are told here, and nowhere else.
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
"""In place of an agent's name: what our own proxy logged."""


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
    """Which of the models; -1 where that is not known."""
    times: list[float | None] = []
    """Unix seconds, when the answer was complete."""
    counted: list[tuple[int, int, int, int, int] | None] = []
    """Tokens: fresh, read, written, written for an hour, output. None where the log does not say."""
    answers: list[str] = []
    """Their ids; empty where there is none."""
    paid: list[float | None] = []
    """Dollars for input, where the log has them: of our own proxy."""
    otherwise: list[float | None] = []
    """What would have been paid without it."""
    spoken: tuple[int, int, int] = (0, 0, 0)
    looped: tuple[int, int, int] = (0, 0, 0)
    """How long after the answer before requests came, as in `billing.lifetimes.Pauses`."""

    @property
    def key(self) -> tuple[str, str]:
        """Tells it apart from all others."""
        return self.path, self.name

    @property
    def replayed(self) -> bool:
        """Whether there is more to tell than what was paid."""
        return not self.paid

    @property
    def started(self) -> float | None:
        return next((at for at in self.times if at is not None), None)

    @property
    def last(self) -> float:
        """When its last request was; long ago where that is not known."""
        return max((at for at in self.times if at is not None), default=0.0)

    def model_of(self, number: int) -> str:
        return self.models[self.asked[number]] if self.asked[number] >= 0 else ""


class FileFacts(msgspec.Struct):
    """What was found in one file."""

    sessions: list[SessionFacts] = []
    unread: list[UnreadFile] = []
    size: int = 0
    """Bytes, as it lies on the disk."""


class PaidRequest(NamedTuple):
    """One request, and what was paid for it."""

    session: SessionFacts
    number: int
    at: float | None
    model: str
    usage: Usage | None
    input: float | None
    """Dollars; None where nothing was counted."""
    output: float | None
    otherwise: float | None = None
    """Dollars that its input would have cost without us, where our own proxy logged it."""


def read_facts(path: str, data: LogBytes) -> FileFacts:
    """The sessions in a log, as far as it tells of them."""
    try:
        if (logged := read_json_log(path, data)) is not None:
            return FileFacts(list(_logged(path, logged)), size=len(data))
        found = recordings.read(path, data)
    except recordings.LogError as error:
        return FileFacts(unread=[UnreadFile(path, str(error).removeprefix(f"{path}: "))], size=len(data))
    return FileFacts([facts_of(session) for session in found], size=len(data))


def _logged(path: str, exchanges: Iterable[LoggedExchange]) -> Iterator[SessionFacts]:
    """Conversations that went through our own proxy: figures, and nothing to replay. Only requests that a model was
    asked count."""
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
    """When a request took place, in Unix seconds."""
    return sent.at if sent.answered is None else sent.answered


def _tokens(usage: Usage | None) -> tuple[int, int, int, int, int] | None:
    return None if usage is None else (usage.fresh, usage.read, usage.written, usage.written_1h, usage.output)


def paid_requests(session: SessionFacts, prices: Prices) -> Iterator[PaidRequest]:
    """The requests of a session, and what was paid for each."""
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
