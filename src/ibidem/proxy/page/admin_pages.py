"""Admin pages under /ibidem: the page, its API, metrics, health, and originals of evicted texts. They change nothing.

Requests that another site caused in a browser have that site's `Host` or `Origin` and are rejected. Every client of the
proxy can see numbers. Texts of clients (edits, evicted texts, and titles of conversations, which are their first words)
may need a second token, or are not shown at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from ... import __version__
from ...errors import IbidemError
from ...store import Store
from ...store.recall import recall
from ..accounting.live_stats import LiveStats
from ..accounting.usage_writer import UsageWriter
from ..settings import Settings
from .daily_totals import load_daily_totals

OWN_NAME = "ibidem"
"""Part of the path of every request for the proxy itself."""
PAGE_ROOT = f"/{OWN_NAME}"
LIVE_PATH = f"{PAGE_ROOT}/api/live"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]"})
TEXT_PATHS = ("api/exchange", "recall")
"""Paths whose responses contain texts of clients."""
TOKEN_HEADERS = {"token": "x-ibidem-token", "page_token": "x-ibidem-page-token"}
"""Header of a token, by its name in a query."""
PLAIN_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class AdminPage(NamedTuple):
    """Response of an admin page."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_own_page(target: str) -> bool:
    """Return whether a request is for the proxy itself. Extra leading slashes (from a base URL) are ignored."""
    path = f"/{target.partition('?')[0].lstrip('/')}"
    return path == PAGE_ROOT or path.startswith(f"{PAGE_ROOT}/")


def text_page(status: int, message: str, kind: str = "text/plain; charset=utf-8") -> AdminPage:
    """Return a response with a text."""
    return AdminPage(status, {**PLAIN_HEADERS, "Content-Type": kind}, message.encode("utf-8", "surrogatepass"))


def json_page(value: Any, status: int = 200) -> AdminPage:
    """Return a response in JSON."""
    return text_page(status, json.dumps(value, ensure_ascii=False), "application/json; charset=utf-8")


def needs_disk(target: str) -> bool:
    """Return whether a request reads the store or the usage database, which can take time."""
    return target.startswith((f"{PAGE_ROOT}/recall/", f"{PAGE_ROOT}/api/days"))


def redirect_browser(method: str, target: str, headers: Mapping[str, str]) -> AdminPage | None:
    """Redirect a browser that requests `/` to the page, without its query. Clients of providers never request `/`."""
    if method not in ("GET", "HEAD") or target.partition("?")[0] != "/" or "text/html" not in headers.get("accept", ""):
        return None
    return AdminPage(302, {**PLAIN_HEADERS, "Location": PAGE_ROOT, "Referrer-Policy": "no-referrer"}, b"")


def has_token(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether a client may use the proxy. Header names are in lower case."""
    return settings.token is None or _sends_token("token", settings.token, target, headers)


def may_see_texts(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether a client that may use the proxy may also see texts of clients."""
    if settings.text_access == "token" and settings.page_token is not None:
        return _sends_token("page_token", settings.page_token, target, headers)
    return settings.text_access == "all"


def _sends_token(name: str, token: str, target: str, headers: Mapping[str, str]) -> bool:
    header = headers.get(TOKEN_HEADERS[name], "").encode("latin-1", "replace")
    return _equals_token(header or _query_value(name, target), token)


def remove_tokens(settings: Settings, target: str) -> str:
    """Return the target without our tokens, which must not be forwarded. The rest is unchanged."""
    path, separator, query = target.partition("?")
    if (settings.token or settings.page_token) is None or "token" not in query:
        return target
    parts = [part for part in query.split("&") if not _is_token(part, settings)]
    return f"{path}{separator if parts else ''}{'&'.join(parts)}" if len(parts) < query.count("&") + 1 else target


def _is_token(part: str, settings: Settings) -> bool:
    name, _, value = part.partition("=")
    token = {"token": settings.token, "page_token": settings.page_token}.get(unquote_plus(name))
    return token is not None and _equals_token(unquote_plus(value).encode("utf-8", "replace"), token)


def _query_value(parameter: str, target: str) -> bytes:
    values = (value for name, value in parse_qsl(target.partition("?")[2]) if name == parameter)
    return next(values, "").encode("utf-8", "replace")


def is_rebound(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request may be DNS rebinding: a browser that uses a host name of another site, and no token.

    Requests without a host name are not from a browser. Requests for a forward proxy are rejected elsewhere.
    """
    host = headers.get("host")
    if settings.token is not None or host is None or not target.startswith("/"):
        return False
    return not _is_own_host(settings, _host_without_port(host))


def is_foreign_websocket(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether another site opens a WebSocket in a browser, and no token is required.

    Browsers let any site open a WebSocket and read from it. They only send the site's `Origin`.
    """
    upgrades = headers.get("upgrade", "").lower() == "websocket"
    return upgrades and settings.token is None and _is_foreign(target, headers)


def deny_page(settings: Settings, target: str, headers: Mapping[str, str]) -> AdminPage | None:
    """Return the response that denies access to an admin page, or None if access is allowed."""
    if not _is_own_host(settings, _host_without_port(headers.get("host", ""))):
        return text_page(403, "unknown host name for this proxy: use the address that it printed\n")
    if _is_foreign(target, headers):
        return text_page(403, "requests from pages of other sites are rejected\n")
    if not has_token(settings, target, headers):
        # plugins/claude-code/hooks/post.sh recognizes the proxy by the start of this text.
        return text_page(401, "this needs the token: send it as x-ibidem-token, or as ?token= in a browser\n")
    return None


def _is_own_host(settings: Settings, host: str) -> bool:
    """Return whether a host is this proxy's own. A site can point its name at this machine, but not own its address."""
    if host in LOOPBACK or host.strip("[]") == settings.host.strip("[]").lower():
        return True
    return settings.host in EVERYWHERE and _is_address(host.strip("[]"))


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _is_foreign(target: str, headers: Mapping[str, str]) -> bool:
    """Return whether another site caused a browser's request. Following a link to the page itself is allowed."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower():
        return True
    is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if is_navigation and target.partition("?")[0].rstrip("/") == PAGE_ROOT:
        return False
    return site not in ("none", "same-origin")


def _host_without_port(value: str) -> str:
    """Return a `Host` header without the port, in lower case."""
    name, colon, port = value.rpartition(":")
    return name.lower() if colon and port.isdecimal() and (":" not in name or name.endswith("]")) else value.lower()


def _equals_token(received: bytes, token: str) -> bool:
    return compare_digest(received, token.encode("utf-8", "surrogateescape"))


def _without_title(conversation: Mapping[str, Any]) -> dict[str, Any]:
    return {**conversation, "title": ""}


class AdminPages:
    """Admin pages of one proxy."""

    def __init__(
        self,
        settings: Settings,
        records: LiveStats,
        store: Store,
        clock: Callable[[], float],
        gains: UsageWriter | None = None,
        off: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """`off` returns the paused conversations."""
        self._settings = settings
        self._off = off
        self._records = records
        self._store = store
        self._clock = clock
        self._gains = gains

    def state(self, texts: bool = True) -> dict[str, Any]:
        """Return the object of /ibidem/api/state. It has `process` only if other processes may share the port."""
        state = self._records.snapshot(self._clock())
        if not texts:
            state["conversations"] = [_without_title(each) for each in state["conversations"]]
        access = "all" if texts else self._settings.text_access
        process = {"process": os.getpid()} if self._settings.reuse_port else {}
        return {**state, **self._extra_state(), "texts": access, **process}

    def _extra_state(self) -> dict[str, Any]:
        ledger = {"kept": self._gains is not None, "trouble": self._gains.trouble if self._gains else ""}
        return {**self._off(), "ledger": ledger}

    def respond(self, method: str, target: str, texts: bool = True) -> AdminPage:
        """Return the response to a request. `texts`: whether the client may see texts."""
        path = target.partition("?")[0].rstrip("/")
        if method not in ("GET", "HEAD"):
            return AdminPage(405, {**text_page(405, "").headers, "Allow": "GET, HEAD"}, b"use GET\n")
        if path == PAGE_ROOT:
            tokens = self._settings.token, self._settings.page_token if texts else None
            from .dashboard import (
                PAGE_HEADERS,
                render_page,
            )  # imported late: it takes a megabyte, and few users open the page

            try:
                return AdminPage(200, PAGE_HEADERS, render_page(*tokens).encode())
            except IbidemError as error:  # Jinja2 is missing
                return text_page(500, f"{error}\n")
        kind, _, name = path.removeprefix(f"{PAGE_ROOT}/").rpartition("/")
        if kind in TEXT_PATHS and not texts:
            return self._withheld_page()
        response = self._api_page(kind, name, texts)
        return response if response is not None else text_page(404, f"not found: see {PAGE_ROOT}\n")

    def _withheld_page(self) -> AdminPage:
        if self._settings.text_access == "token":
            return text_page(
                401, "texts need the page token: send it as x-ibidem-page-token, or as page_token= in a browser\n"
            )
        return text_page(
            403,
            "this proxy shows no texts: to see them, start it with --page-token and without --no-texts\n",
        )

    def _api_page(self, kind: str, name: str, texts: bool) -> AdminPage | None:
        if (kind, name) == ("api", "state"):
            return json_page(self.state(texts))
        if (kind, name) == ("api", "days"):
            return json_page(load_daily_totals(self._gains.file if self._gains else None, self._clock()))
        if (kind, name) == ("", "metrics"):
            from .dashboard import METRICS_TYPE, format_metrics

            return text_page(200, format_metrics(self.state()), METRICS_TYPE)
        if (kind, name) == ("", "health"):
            return json_page({"status": "ok", "version": __version__})
        if kind == "api/conversation":
            row = self._records.conversation_json(name)
            if row is not None and not texts:
                row["conversation"] = _without_title(row["conversation"])
            return None if row is None else json_page(row)
        if kind == "api/exchange":
            row = self._records.exchange_json(name)
            return None if row is None else json_page(row)
        return self._recall_page(name) if kind == "recall" else None

    def _recall_page(self, ref: str) -> AdminPage:
        try:
            return text_page(200, recall(ref, store=self._store))
        except IbidemError as error:
            return text_page(404, f"{error}\n")
