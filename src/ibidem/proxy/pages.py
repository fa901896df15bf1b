"""What the proxy itself answers, under /ibidem: the page, its API, metrics, health, and texts that were let go.

Only for those who may see it: a browser that was led here by another site sends that site's `Host` or `Origin`, and is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from ..keeping import recall
from ..model import IbidemError
from ..store import Store
from .dashboard import HEADERS, METRICS_TYPE, metrics, page
from .records import Records
from .settings import Settings

ROOT = "/ibidem"
LIVE = f"{ROOT}/api/live"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]"})
PLAIN = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Page(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def ours(target: str) -> bool:
    path = target.partition("?")[0]
    return path == ROOT or path.startswith(f"{ROOT}/")


def text(status: int, message: str, kind: str = "text/plain; charset=utf-8") -> Page:
    return Page(status, {**PLAIN, "Content-Type": kind}, message.encode("utf-8", "surrogatepass"))


def document(found: Any, status: int = 200) -> Page:
    return text(status, json.dumps(found, ensure_ascii=False), "application/json; charset=utf-8")


def is_slow(target: str) -> bool:
    """What is looked up in the store, which may take its time."""
    return target.startswith(f"{ROOT}/recall/")


def admitted(settings: Settings, target: str, headers: Mapping[str, str]) -> bool:
    """Whether a client may use the proxy at all. Names of headers are in lower case."""
    if settings.token is None:
        return True
    header = headers.get("x-ibidem-token", "").encode("latin-1", "replace")
    return _same(header or _given(target), settings.token)


def without_token(settings: Settings, target: str) -> str:
    """What is for the proxy alone goes nowhere else. Nothing else of the target is changed."""
    path, mark, query = target.partition("?")
    if settings.token is None or "token" not in query:
        return target
    kept = [part for part in query.split("&") if not _is_token(part, settings.token)]
    return f"{path}{mark if kept else ''}{'&'.join(kept)}" if len(kept) < query.count("&") + 1 else target


def _is_token(part: str, token: str) -> bool:
    name, _, value = part.partition("=")
    return unquote_plus(name) == "token" and _same(unquote_plus(value).encode("utf-8", "replace"), token)


def _given(target: str) -> bytes:
    found = (value for name, value in parse_qsl(target.partition("?")[2]) if name == "token")
    return next(found, "").encode("utf-8", "replace")


def refused(settings: Settings, target: str, headers: Mapping[str, str]) -> Page | None:
    """Why this is not shown to who asks for it."""
    if not _is_own(settings, _host(headers.get("host", ""))):
        return text(403, "this name is not the proxy's own: use the address that it printed\n")
    if _is_foreign(target, headers):
        return text(403, "another site may not ask for this\n")
    if not admitted(settings, target, headers):
        return text(401, "this needs the token: send it as x-ibidem-token, or as ?token= in a browser\n")
    return None


def _is_own(settings: Settings, host: str) -> bool:
    """A name that leads here can be given to any address by who owns it; an address cannot."""
    if host in LOOPBACK or host.strip("[]") == settings.host.strip("[]").lower():
        return True
    return settings.host in EVERYWHERE and _is_address(host.strip("[]"))


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _is_foreign(target: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another site made it ask. Following a link to the page itself is no harm."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower():
        return True
    led = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if led and target.partition("?")[0].rstrip("/") == ROOT:
        return False
    return site not in ("none", "same-origin")


def _host(value: str) -> str:
    """Without the port."""
    name, colon, port = value.rpartition(":")
    return name.lower() if colon and port.isdecimal() and (":" not in name or name.endswith("]")) else value.lower()


def _same(given: bytes, wanted: str) -> bool:
    return compare_digest(given, wanted.encode("utf-8", "surrogateescape"))


class Pages:
    def __init__(self, settings: Settings, records: Records, store: Store, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._records = records
        self._store = store
        self._clock = clock

    def state(self) -> dict[str, Any]:
        return self._records.snapshot(self._clock())

    def answer(self, method: str, target: str) -> Page:
        path = target.partition("?")[0].rstrip("/")
        if method not in ("GET", "HEAD"):
            return Page(405, {**text(405, "").headers, "Allow": "GET, HEAD"}, b"use GET\n")
        if path == ROOT:
            return Page(200, HEADERS, page(self._settings.token).encode())
        kind, _, name = path.removeprefix(f"{ROOT}/").rpartition("/")
        found = self._named(kind, name)
        return found if found is not None else text(404, f"there is nothing here: see {ROOT}\n")

    def _named(self, kind: str, name: str) -> Page | None:
        if (kind, name) == ("api", "state"):
            return document(self.state())
        if (kind, name) == ("", "metrics"):
            return text(200, metrics(self.state()), METRICS_TYPE)
        if (kind, name) == ("", "health"):
            return document({"status": "ok", "version": self.state()["version"]})
        if kind == "api/conversation":
            found = self._records.conversation(name)
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
