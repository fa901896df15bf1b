"""HTTP client for a provider: one request, one streamed response. Only this module of the package uses the network.

Keys are read from the environment and sent to the provider only. Subscription tokens are rejected, because their terms
allow only the provider's own clients. This client does not imitate them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from .. import __version__
from ..environment import install_command
from ..errors import IbidemError, one_line
from ..recordings.log_file import decode_row
from .providers import ModelReply, TrialProvider
from .providers.provider import parse_events

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

CONNECT_SECONDS, SILENCE_SECONDS, ANSWER_SECONDS = 30.0, 300.0, 900.0
"""Timeouts for the connection, between two bytes, and for the whole response."""
MAX_ANSWER_BYTES = 32 * 2**20
MAX_MESSAGE = 300
"""Maximum characters of a provider's error message."""
LOOPBACK = ("127.", "localhost", "[::1]", "::1")


NO_REPLY = ModelReply()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of one request: the response, or the reason for its failure."""

    status: int
    """HTTP status, or 0 without a complete response."""
    reply: ModelReply = NO_REPLY
    message: str = ""
    retry_after: float | None = None
    has_connected: bool = True
    """The connection was made."""


def find_api_key(provider: TrialProvider, variables: Mapping[str, str]) -> str:
    """Return the API key of the provider. Raises IbidemError without a key, or for a subscription token."""
    names = " or ".join(provider.key_variables)
    key = next((value for name in provider.key_variables if (value := variables.get(name, "").strip())), "")
    if provider.is_subscription(key) or (not key and any(variables.get(name) for name in provider.token_variables)):
        problem = "the provider's terms allow a subscription token only in its own client"
        raise IbidemError(f"{problem}: set {names} to an API key")
    if not key:
        raise IbidemError(f"no API key: set {names}")
    if not key.isprintable() or not key.isascii():
        raise IbidemError(f"{names}: not a valid API key: check the variable")
    return key


def find_base_url(provider: TrialProvider, variables: Mapping[str, str], upstream: str | None) -> str:
    """Return the base URL for requests. Raises IbidemError if it is not valid, or may be a local proxy."""
    configured_base = next(
        (value for name in provider.base_variables if (value := variables.get(name, "").strip())), ""
    )
    base = (upstream or configured_base or provider.base_url).rstrip("/")
    try:
        parts = urlsplit(base)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or not base.isprintable():
        raise IbidemError("not the address of a provider: use one like https://api.example.com")
    # A base URL on this machine may be our own proxy, which would rewrite the original requests, too.
    if upstream is None and configured_base and host.startswith(LOOPBACK):
        problem = f"{provider.base_variables[0]} points to this machine: a proxy there may rewrite both variants"
        raise IbidemError(f"{problem}: unset it, or pass the provider's address with --upstream")
    return base


class ProviderClient:
    """Client for one model of one provider, with persistent connections."""

    def __init__(self, provider: TrialProvider, base: str, key: str, model: str) -> None:
        try:
            import aiohttp
        except ImportError:
            raise IbidemError(f"ibidem trial needs aiohttp. Install it: {install_command('proxy')}") from None
        self._aiohttp = aiohttp
        self._provider = provider
        self._url = base + provider.path_for(model)
        about = {"content-type": "application/json", "user-agent": f"ibidem/{__version__}"}
        self._headers = {**provider.auth_headers(key), **about}
        self._session: aiohttp.ClientSession | None = None
        self._proxy: URL | None = None
        self._proxy_auth: aiohttp.BasicAuth | None = None

    async def __aenter__(self) -> Self:
        timeout = self._aiohttp.ClientTimeout(
            total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        # With `trust_env`, aiohttp would also send the credentials in ~/.netrc. So proxy variables are read here.
        self._session = self._aiohttp.ClientSession(timeout=timeout, trust_env=False)
        with suppress(LookupError):
            from aiohttp.helpers import get_env_proxy_for_url
            from yarl import URL

            self._proxy, self._proxy_auth = get_env_proxy_for_url(URL(self._url))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def send_request(self, body: bytes, first_byte: asyncio.Event) -> CallOutcome:
        """Send a request and return its outcome.

        `first_byte` is set at the first byte of the response. From then on the request is in the provider's cache.
        """
        assert self._session is not None
        try:
            async with self._session.post(
                self._url,
                data=body,
                headers=self._headers,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_auth=self._proxy_auth,
            ) as response:
                if response.status != 200:
                    text = await response.content.read(MAX_ANSWER_BYTES >> 6)
                    wait = _parse_retry_after(response.headers.get("retry-after"))
                    return CallOutcome(response.status, message=_error_message(text), retry_after=wait)
                pieces, size = [], 0
                async for piece in response.content.iter_any():
                    first_byte.set()
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_ANSWER_BYTES:
                        return CallOutcome(0, message="the response is too long")
                return CallOutcome(200, self._provider.parse_reply(parse_events(b"".join(pieces))))
        except (self._aiohttp.ClientConnectorError, self._aiohttp.InvalidURL) as error:
            return CallOutcome(0, message=_error_text(error), has_connected=False)
        except (self._aiohttp.ClientError, TimeoutError, OSError) as error:
            return CallOutcome(0, message=_error_text(error))


def _error_text(error: Exception) -> str:
    return one_line(str(error) or type(error).__name__)[:MAX_MESSAGE]


def _parse_retry_after(text: str | None) -> float | None:
    """Return the seconds of a retry-after header, or None for other values, such as a date."""
    try:
        seconds = float(text) if text is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < 1e6 else None


def _error_message(data: bytes) -> str:
    """Return the provider's error message on one line, or an empty string."""
    response = decode_row(data)
    error = response.get("error") if isinstance(response, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return one_line(text)[:MAX_MESSAGE] if isinstance(text, str) else ""
