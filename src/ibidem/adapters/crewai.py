"""Adapter for CrewAI: an interceptor for the native models of OpenAI and Anthropic.

>>> from ibidem.adapters.crewai import IbidemInterceptor
>>> llm = LLM(model="openai/gpt-5", interceptor=IbidemInterceptor())

It sees the requests of the provider's SDK and the responses. Data of agents and crews does not change. CrewAI does not
support interceptors for other models, and raises an error for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from ._pools import aheld, held
from ._seat import Turn, failing_open, missing, safely
from .httpx import Answered, Exchange, Transport, carries

try:
    from crewai.llms.hooks.base import BaseInterceptor
except ModuleNotFoundError as error:
    raise missing(error, "crewai", "'crewai>=1.15'") from error

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

_UNDER_WAY: ContextVar[Exchange | None] = ContextVar("ibidem.adapters.crewai", default=None)
"""Request of this thread or task. A response arrives in the same one and does not identify its request."""


class IbidemInterceptor(BaseInterceptor[Any, Any]):
    """Interceptor for any number of models, agents and crews. Conversations are recognized by their first messages.

    `session`, `on_usage` and `cache` have the same meaning as in `ibidem.adapters.httpx.Transport`.
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        on_usage: Callable[[Answered], None] | None = None,
        cache: CacheMode = "off",
    ) -> None:
        self._transport = Transport(profile, session=session, store=store, on_usage=on_usage, cache=cache)

    def on_outbound(self, message: Any) -> Any:
        begun = safely(self._begun, message, otherwise=None)
        return _sent(message, begun)

    def on_inbound(self, message: Any) -> Any:
        begun = _answered()
        if begun is None:
            return message
        with failing_open():
            if begun.outcome.body is not None and begun.is_rejection(message):
                message, raw = held(message)
                self._refused(begun, message, raw)
        return begun.watched(message)

    async def aon_outbound(self, message: Any) -> Any:
        begun = None
        if safely(carries, message, otherwise=False):
            content = await message.aread()
            begun = await self._transport.seat.aside(len(content), self._safely_begun, message, content)
        return _sent(message, begun)

    async def aon_inbound(self, message: Any) -> Any:
        begun = _answered()
        if begun is None:
            return message
        with failing_open():
            if begun.outcome.body is not None and begun.is_rejection(message):
                message, raw = await aheld(message)
                self._refused(begun, message, raw)
        return begun.watched(message, asynchronous=True)

    def _refused(self, begun: Exchange, message: Any, raw: bytes) -> None:
        """Record a rejection. An interceptor cannot send the request again, but the next one is sent unchanged."""
        if begun.instead(message, raw) is not None:
            Turn(self._transport.seat, begun.outcome, [], begun.job).refused()

    def _begun(self, message: Any) -> Exchange | None:
        return self._transport.begin(message, message.read()) if carries(message) else None

    def _safely_begun(self, message: Any, content: bytes) -> Exchange | None:
        return safely(self._transport.begin, message, content, otherwise=None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same object, so that copies of an agent or crew continue the same conversations."""
        return self


def _sent(message: Any, begun: Exchange | None) -> Any:
    _UNDER_WAY.set(begun)
    return message if begun is None else begun.request()


def _answered() -> Exchange | None:
    begun = _UNDER_WAY.get()
    _UNDER_WAY.set(None)
    return begun
