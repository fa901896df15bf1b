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
from ..books.gains import GainsWriter
from ..books.records import Records
from ..settings import Settings
from .days import days_kept

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


class Page(NamedTuple):
    """Response of an admin page."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_own_page(target: str) -> bool:
    """Return whether a request is for the proxy itself. Extra leading slashes (from a base URL) are ignored."""
    path = f"/{target.partition('?')[0].lstrip('/')}"
    return path == PAGE_ROOT or path.startswith(f"{PAGE_ROOT}/")


def text(status: int, message: str, kind: str = "text/plain; charset=utf-8") -> Page:
    """Return a response with a text."""
    return Page(status, {**PLAIN_HEADERS, "Content-Type": kind}, message.encode("utf-8", "surrogatepass"))


def document(found: Any, status: int = 200) -> Page:
    """Return a response in JSON."""
    return text(status, json.dumps(found, ensure_ascii=False), "application/json; charset=utf-8")


def is_slow(target: str) -> bool:
    """Return whether a request reads the store or the usage database, which can take time."""
    return target.startswith((f"{PAGE_ROOT}/recall/", f"{PAGE_ROOT}/api/days"))


def front_door(method: str, target: str, headers: Mapping[str, str]) -> Page | None:
    """Redirect a browser that requests `/` to the page, without its query. Clients of providers never request `/`."""
    if method not in ("GET", "HEAD") or target.partition("?")[0] != "/" or "text/html" not in headers.get("accept", ""):
        return None
    return Page(302, {**PLAIN_HEADERS, "Location": PAGE_ROOT, "Referrer-Policy": "no-referrer"}, b"")


def has_token(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether a client may use the proxy. Header names are in lower case."""
    return settings.token is None or _sent("token", settings.token, target, headers)


def may_see_texts(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether a client that may use the proxy may also see texts of clients."""
    if settings.text_access == "token" and settings.page_token is not None:
        return _sent("page_token", settings.page_token, target, headers)
    return settings.text_access == "all"


def _sent(name: str, wanted: str, target: str, headers: Mapping[str, str]) -> bool:
    header = headers.get(TOKEN_HEADERS[name], "").encode("latin-1", "replace")
    return _same(header or _given(name, target), wanted)


def without_token(settings: Settings, target: str) -> str:
    """Return the target without our tokens, which must not be forwarded. The rest is unchanged."""
    path, mark, query = target.partition("?")
    if (settings.token or settings.page_token) is None or "token" not in query:
        return target
    kept = [part for part in query.split("&") if not _is_token(part, settings)]
    return f"{path}{mark if kept else ''}{'&'.join(kept)}" if len(kept) < query.count("&") + 1 else target


def _is_token(part: str, settings: Settings) -> bool:
    name, _, value = part.partition("=")
    token = {"token": settings.token, "page_token": settings.page_token}.get(unquote_plus(name))
    return token is not None and _same(unquote_plus(value).encode("utf-8", "replace"), token)


def _given(wanted: str, target: str) -> bytes:
    found = (value for name, value in parse_qsl(target.partition("?")[2]) if name == wanted)
    return next(found, "").encode("utf-8", "replace")


def is_rebound(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request may be DNS rebinding: a browser that uses a host name of another site, and no token.

    Requests without a host name are not from a browser. Requests for a forward proxy are rejected elsewhere.
    """
    host = headers.get("host")
    if settings.token is not None or host is None or not target.startswith("/"):
        return False
    return not _is_own(settings, _host(host))


def is_foreign_websocket(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Return whether another site opens a WebSocket in a browser, and no token is required.

    Browsers let any site open a WebSocket and read from it. They only send the site's `Origin`.
    """
    upgrades = headers.get("upgrade", "").lower() == "websocket"
    return upgrades and settings.token is None and _is_foreign(target, headers)


def page_refusal(settings: Settings, target: str, headers: Mapping[str, str]) -> Page | None:
    """Return the response that denies access to an admin page, or None if access is allowed."""
    if not _is_own(settings, _host(headers.get("host", ""))):
        return text(403, "unknown host name for this proxy: use the address that it printed\n")
    if _is_foreign(target, headers):
        return text(403, "requests from pages of other sites are rejected\n")
    if not has_token(settings, target, headers):
        # plugins/claude-code/hooks/post.sh recognizes the proxy by the start of this text.
        return text(401, "this needs the token: send it as x-ibidem-token, or as ?token= in a browser\n")
    return None


def _is_own(settings: Settings, host: str) -> bool:
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
    led = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if led and target.partition("?")[0].rstrip("/") == PAGE_ROOT:
        return False
    return site not in ("none", "same-origin")


def _host(value: str) -> str:
    """Return a `Host` header without the port, in lower case."""
    name, colon, port = value.rpartition(":")
    return name.lower() if colon and port.isdecimal() and (":" not in name or name.endswith("]")) else value.lower()


def _same(given: bytes, wanted: str) -> bool:
    return compare_digest(given, wanted.encode("utf-8", "surrogateescape"))


def _untitled(conversation: Mapping[str, Any]) -> dict[str, Any]:
    return {**conversation, "title": ""}


class Pages:
    """Admin pages of one proxy."""

    def __init__(
        self,
        settings: Settings,
        records: Records,
        store: Store,
        clock: Callable[[], float],
        gains: GainsWriter | None = None,
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
        found = self._records.snapshot(self._clock())
        if not texts:
            found["conversations"] = [_untitled(each) for each in found["conversations"]]
        shown = "all" if texts else self._settings.text_access
        process = {"process": os.getpid()} if self._settings.reuse_port else {}
        return {**found, **self._around(), "texts": shown, **process}

    def _around(self) -> dict[str, Any]:
        ledger = {"kept": self._gains is not None, "trouble": self._gains.trouble if self._gains else ""}
        return {**self._off(), "ledger": ledger}

    def answer(self, method: str, target: str, texts: bool = True) -> Page:
        """Return the response to a request. `texts`: whether the client may see texts."""
        path = target.partition("?")[0].rstrip("/")
        if method not in ("GET", "HEAD"):
            return Page(405, {**text(405, "").headers, "Allow": "GET, HEAD"}, b"use GET\n")
        if path == PAGE_ROOT:
            tokens = self._settings.token, self._settings.page_token if texts else None
            from .dashboard import PAGE_HEADERS, page  # imported late: it takes a megabyte, and few users open the page

            try:
                return Page(200, PAGE_HEADERS, page(*tokens).encode())
            except IbidemError as error:  # Jinja2 is missing
                return text(500, f"{error}\n")
        kind, _, name = path.removeprefix(f"{PAGE_ROOT}/").rpartition("/")
        if kind in TEXT_PATHS and not texts:
            return self._withheld()
        found = self._named(kind, name, texts)
        return found if found is not None else text(404, f"not found: see {PAGE_ROOT}\n")

    def _withheld(self) -> Page:
        if self._settings.text_access == "token":
            return text(
                401, "texts need the page token: send it as x-ibidem-page-token, or as page_token= in a browser\n"
            )
        return text(
            403,
            "this proxy shows no texts: to see them, start it with --page-token and without --no-texts\n",
        )

    def _named(self, kind: str, name: str, texts: bool) -> Page | None:
        if (kind, name) == ("api", "state"):
            return document(self.state(texts))
        if (kind, name) == ("api", "days"):
            return document(days_kept(self._gains.file if self._gains else None, self._clock()))
        if (kind, name) == ("", "metrics"):
            from .dashboard import METRICS_TYPE, metrics

            return text(200, metrics(self.state()), METRICS_TYPE)
        if (kind, name) == ("", "health"):
            return document({"status": "ok", "version": __version__})
        if kind == "api/conversation":
            found = self._records.conversation(name)
            if found is not None and not texts:
                found["conversation"] = _untitled(found["conversation"])
            return None if found is None else document(found)
        if kind == "api/exchange":
            found = self._records.exchange(name)
            return None if found is None else document(found)
        return self._recalled(name) if kind == "recall" else None

    def _recalled(self, ref: str) -> Page:
        try:
            return text(200, recall(ref, store=self._store))
        except IbidemError as error:
            return text(404, f"{error}\n")
