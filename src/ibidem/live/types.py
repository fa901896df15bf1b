"""Requests to rewrite, their results, and the errors that prevent a rewrite."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from time import perf_counter
from time import time as time_of_day
from typing import Literal, Protocol

import msgspec

from ..billing.cache_ttl import TtlDecision
from ..billing.input_estimate import NO_INPUT, LazyInputEstimate
from ..engine.journal import Position
from ..errors import IbidemError
from ..formats.cache_control import FieldAddition
from ..plan import Edit
from .conversation import ConversationKey, LiveConversation, SentRequest, UnreportedSend
from .policy import PauseMode


class Clock:
    """The system clock. Tests pass another one."""

    time = staticmethod(time_of_day)
    """Seconds since 1970."""
    monotonic = staticmethod(perf_counter)
    """Seconds since an arbitrary start. Never jumps, so it is used for durations."""


SYSTEM_CLOCK = Clock()


class UnreadableRequest(IbidemError):
    """The client's request is malformed. It is forwarded, and the provider reports the error."""


class SingleMessage(IbidemError):
    """A request with one message and no history. It cannot repeat anything."""


class RewriteFailed(IbidemError):
    """A readable request that was not rewritten."""


class OversizedRequest(IbidemError):
    """A request with more content than is parsed here."""


def error_location(error: BaseException) -> str:
    """Return the type of an error and its position in the code. Its message may quote the client's text, so it is
    omitted."""
    trace, location = error.__traceback__, ""
    while trace is not None:
        location = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {location}"


Result = Literal["rewritten", "unchanged", "observed", "off", "failed open"]


class RewriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The body to send for a request, or why the original is sent, with facts for accounting."""

    result: Result
    body: bytes | None = None
    """Body to send; None for the client's own. After "failed open" or "off", it starts with the sent prefix."""
    reason: str = ""
    """Why the rewrite failed open, or why the request could not be read."""
    is_client_fault: bool = False
    """True if the client's request is the reason. Ibidem did not fail, and the request is forwarded unchanged."""
    is_too_large: bool = False
    """True if the request is too large to be parsed."""
    is_rejected: bool = False
    """True if the provider rejected an earlier body of this request."""
    conversation: LiveConversation | None = None
    messages: int = 0
    first_new: int = 0
    """Index of the first message that was not in an earlier request."""
    new_input: LazyInputEstimate = NO_INPUT
    """Estimate of the input from `first_new` on."""
    message_ends: tuple[float, ...] = ()
    """End of each message as an estimated fraction of the sent request. Only set if no message was sent before."""
    edits: tuple[Edit, ...] = ()
    cache_additions: tuple[FieldAddition, ...] = ()
    """Cache directives that were added to the request, in addition to the edits."""
    ttl_decision: TtlDecision | None = None
    """The TTL that was chosen for the cached prefix; None if none was chosen."""
    edit_tokens: tuple[float, ...] = ()
    """Estimated tokens that each edit removes."""
    revision_reason: str = ""
    """Why this request changes text that was sent before."""
    rewritten_tokens: float = 0.0
    """Tokens that the provider must write to its cache again because of that, at most."""
    seconds: float = 0.0
    """Seconds that the rewrite took."""
    model: str = ""
    position: Position | None = None
    """Identifies this request in its session later."""
    sent_request: SentRequest | None = None
    """How this request is sent. If the provider accepts it, later requests that cannot be rewritten start the same
    way."""
    unreported_send: UnreportedSend | None = None
    """Difference from the plan. The session must learn it if the provider accepts the request."""
    thinking_dropped: int = 0
    """Number of messages that are sent without their thinking, because the provider rejected it."""
    beta: str = ""
    """Feature that the request needs in its `anthropic-beta` header."""
    job: LiveRequest | None = None
    """The request, for `Live.report_rejected` and `Live.report_sent_unchanged`."""

    @property
    def follows_counts(self) -> bool:
        """True if later requests of the conversation depend on the provider's token counts for this one."""
        return self.conversation is not None and self.conversation.session.remembers

    @property
    def is_observed(self) -> bool:
        """True if an experiment sends this conversation unchanged and only measures it."""
        return self.conversation is not None and self.conversation.is_observed


class LateResult(Protocol):
    """A rewrite that may finish after the request was sent in another way."""

    @property
    def outcome(self) -> RewriteResult | Exception | None: ...


@dataclass(eq=False)
class LiveRequest:
    """A request in progress. It is either finished in time or abandoned, never both."""

    format: str
    """Wire format; empty if it must be detected from the body."""
    client_name: str
    """The client's name for the conversation."""
    encoding: str
    body: bytes
    at: float
    """Seconds since 1970."""
    is_count_only: bool = False
    """True for a request that only counts tokens. No model is called."""
    max_decoded_bytes: int = 100 * 2**20
    """Maximum size of the decoded body, in bytes."""
    budget: float = 60.0
    """Seconds until the rewritten request must be ready."""
    patience: float = 60.0
    """Seconds to wait for other requests of the same conversation. It can grow while this request waits."""
    decoded_body: bytes | None = None
    """The body after decoding its content encoding."""
    conversation: LiveConversation | None = None
    """The conversation that the request continues, once it is known."""
    model: str = ""
    """The model, if the body does not contain it."""
    observation: object = None
    """Actions of the agent since its last request, for an experiment."""
    pause_mode: PauseMode | None = None
    """The request's own setting that pauses or resumes its conversation, if it has one."""
    profile: str = ""
    """Profile that the caller selects. Empty for requests that Ibidem sends itself: their profile is in the
    settings."""
    rejected_bodies: list[bytes] = field(default_factory=list)
    """Bodies that the provider rejected."""
    late_result: LateResult | None = None
    """A rewrite that continues after the request was sent in another way."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_ended: bool = False

    @property
    def key(self) -> ConversationKey:
        return (self.format, self.client_name, self.profile) if self.profile else (self.format, self.client_name)

    def late_plan(self) -> RewriteResult | None:
        """Return the planned request if it became ready only after the request was sent in another way."""
        outcome = self.late_result.outcome if self.late_result is not None else None
        return outcome if isinstance(outcome, RewriteResult) and outcome.result == "rewritten" else None

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def try_end(self) -> bool:
        """End the request. Return True for the first caller only."""
        with self._lock:
            first, self._is_ended = not self._is_ended, True
            return first
