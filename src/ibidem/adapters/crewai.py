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

from ._connection_pools import aread_response, read_response
from ._request_rewriter import PendingRequest, call_or_default, log_errors, missing_framework_error
from .httpx import Answered, Transport, TransportExchange, is_rewritable

try:
    from crewai.llms.hooks.base import BaseInterceptor
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "crewai", "'crewai>=1.15'") from error

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

_CURRENT_EXCHANGE: ContextVar[TransportExchange | None] = ContextVar("ibidem.adapters.crewai", default=None)
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
        exchange = call_or_default(self._begin_exchange, message, default=None)
        return _outbound_request(message, exchange)

    def on_inbound(self, message: Any) -> Any:
        """Return the response to CrewAI. Record whether the provider accepted or rejected the request, and its usage.

        CrewAI gets a rejection of a rewritten request as it is. The next request is then sent unchanged.
        """
        exchange = _take_exchange()
        if exchange is None:
            return message
        with log_errors():
            if exchange.outcome.body is not None and exchange.is_rejection(message):
                message, raw = read_response(message)
                self._record_rejection(exchange, message, raw)
        return exchange.watch_response(message)

    async def aon_outbound(self, message: Any) -> Any:
        exchange = None
        if call_or_default(is_rewritable, message, default=False):
            content = await message.aread()
            exchange = await self._transport.rewriter.run_in_thread(
                len(content), self._try_begin_exchange, message, content
            )
        return _outbound_request(message, exchange)

    async def aon_inbound(self, message: Any) -> Any:
        exchange = _take_exchange()
        if exchange is None:
            return message
        with log_errors():
            if exchange.outcome.body is not None and exchange.is_rejection(message):
                message, raw = await aread_response(message)
                self._record_rejection(exchange, message, raw)
        return exchange.watch_response(message, is_async=True)

    def _record_rejection(self, exchange: TransportExchange, message: Any, raw: bytes) -> None:
        """Record a rejection. An interceptor cannot send the request again, but the next one is sent unchanged."""
        if exchange.retry_request(message, raw) is not None:
            PendingRequest(self._transport.rewriter, exchange.outcome, [], exchange.job).report_rejection()

    def _begin_exchange(self, message: Any) -> TransportExchange | None:
        return self._transport.begin_exchange(message, message.read()) if is_rewritable(message) else None

    def _try_begin_exchange(self, message: Any, content: bytes) -> TransportExchange | None:
        return call_or_default(self._transport.begin_exchange, message, content, default=None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same object, so that copies of an agent or crew continue the same conversations."""
        return self


def _outbound_request(message: Any, exchange: TransportExchange | None) -> Any:
    _CURRENT_EXCHANGE.set(exchange)
    return message if exchange is None else exchange.next_request()


def _take_exchange() -> TransportExchange | None:
    exchange = _CURRENT_EXCHANGE.get()
    _CURRENT_EXCHANGE.set(None)
    return exchange
