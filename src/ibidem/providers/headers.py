"""Headers to forward: from the client to the upstream, and from the response to the client.

Spelling, order and duplicates stay. Only hop-by-hop information is written again, in its old position: how the length
of a body is given, and whether the connection stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

HeaderList = Sequence[tuple[str, str]]


class Headers(list[tuple[str, str]]):
    """Headers in their original form, with indexes by lower-case name, built once for several lookups."""

    __slots__ = ("firsts", "lasts", "lows")

    def __init__(self, given: Iterable[tuple[str, str]]) -> None:
        super().__init__(given)
        self.lows = [name.lower() for name, _ in self]
        self.lasts = {low: each[1] for low, each in zip(self.lows, self, strict=True)}
        """Value by lower-case name. For repeated headers, the last value; in `firsts`, the first."""
        self.firsts = self.lasts
        if len(self.lasts) < len(self):
            self.firsts = {low: each[1] for low, each in zip(reversed(self.lows), reversed(self), strict=True)}


def known(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return `headers` with indexes by name; the same object if it has them."""
    return headers if isinstance(headers, Headers) else Headers(headers)


HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers between two neighboring connections (RFC 9110). They are not forwarded."""

NOT_PASSED = frozenset({"host", "x-ibidem", "x-ibidem-token", "x-ibidem-page-token"})
"""Other headers that are not forwarded: the upstream has its own host name, and the rest is only for this proxy."""

BODILESS_STATUSES = frozenset({204, 304})
"""Statuses of responses without a body, even if their headers give a length."""


def first(headers: HeaderList, name: str) -> str:
    """Return the first value of a header, or an empty string. `name` is in lower case."""
    # `index_headers` inlined: this is the most frequent call.
    found = headers if isinstance(headers, Headers) else Headers(headers)
    return found.firsts.get(name, "")


def wants_websocket(method: str, headers: HeaderList) -> bool:
    """Return whether a request asks for a WebSocket.

    HTTP allows a server to ignore an upgrade. Other upgrades, and upgrades of requests with a body, are ignored.
    """
    if method != "GET" or first(headers, "transfer-encoding") or first(headers, "content-length") not in ("", "0"):
        return False
    return first(headers, "upgrade").strip().lower() == "websocket" and "upgrade" in named(headers)


def named(headers: HeaderList) -> set[str]:
    """Return the header names that `Connection` lists as hop-by-hop."""
    found = known(headers)
    if "connection" not in found.firsts:
        return set()
    said = [value for low, (_, value) in zip(found.lows, found, strict=True) if low == "connection"]
    return {part.strip().lower() for value in said for part in value.split(",")}


_TO_UPSTREAM = (HOP_BY_HOP | NOT_PASSED) - {"transfer-encoding", "content-length"}
_TO_CLIENT = HOP_BY_HOP - {"transfer-encoding", "content-length"}
_LENGTHS = frozenset({"transfer-encoding", "content-length"})


def for_upstream(headers: HeaderList, length: int | None, upgrades: bool) -> tuple[HeaderList, bool]:
    """Return the headers to send to the upstream, and whether the body is sent in chunks.

    `length` is the size of the body to send; None if the body is streamed and its size unknown.
    """
    given = known(headers)
    if upgrades:
        return [each for low, each in zip(given.lows, given, strict=True) if low not in NOT_PASSED], False
    leave = _TO_UPSTREAM | (named(given) - _LENGTHS) if "connection" in given.firsts else _TO_UPSTREAM
    found: list[tuple[str, str]] = []
    chunked = False
    for low, each in zip(given.lows, given, strict=True):
        if low in leave:
            continue
        if low in _LENGTHS:
            if low == "transfer-encoding" and length is None:
                chunked = True
            elif low == "transfer-encoding":
                each = "Content-Length", str(length)  # the body is in memory, so its length is known
            elif length is not None:
                each = each[0], str(length)
        found.append(each)
    return found, chunked


BETA_HEADER = "anthropic-beta"


def with_beta(headers: HeaderList, beta: str) -> HeaderList:
    """Return the headers with one more feature in `anthropic-beta`."""
    if not any(name.lower() == BETA_HEADER for name, _ in headers):
        return [*headers, (BETA_HEADER, beta)]
    return [(name, f"{value},{beta}" if name.lower() == BETA_HEADER else value) for name, value in headers]


def for_client(
    headers: HeaderList, method: str, status: int, version: tuple[int, int], keep_alive: bool
) -> tuple[HeaderList, bool, bool]:
    """Return the headers to send to the client, whether the body is chunked, and whether the connection closes."""
    given = known(headers)
    modern = version >= (1, 1)
    empty = method == "HEAD" or status in BODILESS_STATUSES
    coded = "transfer-encoding" in given.firsts
    sized = not coded and "content-length" in given.firsts
    chunked = modern and not empty and not sized
    # HTTP/1.0 has no chunks: without a length, only the end of the connection marks the end of a body.
    last = not keep_alive or not (modern or empty or sized)
    leave = _TO_CLIENT | (named(given) - _LENGTHS) if "connection" in given.firsts else _TO_CLIENT
    if coded:
        leave |= {"content-length"}
    if coded and not (chunked or (modern and method == "HEAD")):
        leave |= {"transfer-encoding"}
    found = [each for low, each in zip(given.lows, given, strict=True) if low not in leave]
    if chunked and not coded:
        found.append(("Transfer-Encoding", "chunked"))
    if last and modern:
        found.append(("Connection", "close"))
    elif not last and not modern:
        found.append(("Connection", "keep-alive"))
    return found, chunked, last


LoginKind = Literal["key", "plan"]
"""How a request is paid for: by use (`key`), or covered by a subscription (`plan`)."""

CLAUDE_TOKEN = "bearer sk-ant-oat"  # start of the OAuth token of a subscription, in lower case
CLAUDE_BETA = "oauth-2025-04-20"
CHATGPT_HEADER = "chatgpt-account-id"


def login_kind(headers: HeaderList) -> LoginKind:
    """Return `plan` for the login of a Claude or ChatGPT subscription. The credential is not stored."""
    headers = known(headers)
    bearer = first(headers, "authorization").lower()
    betas = {beta.strip() for beta in first(headers, "anthropic-beta").split(",")}
    is_claude = bearer.startswith(CLAUDE_TOKEN) or (bearer.startswith("bearer ") and CLAUDE_BETA in betas)
    return "plan" if is_claude or first(headers, CHATGPT_HEADER) else "key"
