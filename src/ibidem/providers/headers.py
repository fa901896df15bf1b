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

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self.lows = [name.lower() for name, _ in self]
        self.lasts = {low: each[1] for low, each in zip(self.lows, self, strict=True)}
        """Value by lower-case name. For repeated headers, the last value; in `firsts`, the first."""
        self.firsts = self.lasts
        if len(self.lasts) < len(self):
            self.firsts = {low: each[1] for low, each in zip(reversed(self.lows), reversed(self), strict=True)}


def index_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return `headers` with indexes by name; the same object if it has them."""
    return headers if isinstance(headers, Headers) else Headers(headers)


HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers between two neighboring connections (RFC 9110). They are not forwarded."""

NOT_FORWARDED = frozenset({"host", "x-ibidem", "x-ibidem-token", "x-ibidem-page-token"})
"""Other headers that are not forwarded: the upstream has its own host name, and the rest is only for this proxy."""

EMPTY_BODY_STATUSES = frozenset({204, 304})
"""Statuses of responses without a body, even if their headers give a length."""


def first_header(headers: HeaderList, name: str) -> str:
    """Return the first value of a header, or an empty string. `name` is in lower case."""
    # `index_headers` inlined: this is the most frequent call.
    indexed = headers if isinstance(headers, Headers) else Headers(headers)
    return indexed.firsts.get(name, "")


def is_websocket_upgrade(method: str, headers: HeaderList) -> bool:
    """Return whether a request asks for a WebSocket.

    HTTP allows a server to ignore an upgrade. Other upgrades, and upgrades of requests with a body, are ignored.
    """
    if (
        method != "GET"
        or first_header(headers, "transfer-encoding")
        or first_header(headers, "content-length") not in ("", "0")
    ):
        return False
    return first_header(headers, "upgrade").strip().lower() == "websocket" and "upgrade" in hop_by_hop_names(headers)


def hop_by_hop_names(headers: HeaderList) -> set[str]:
    """Return the header names that `Connection` lists as hop-by-hop."""
    indexed = index_headers(headers)
    if "connection" not in indexed.firsts:
        return set()
    values = [value for low, (_, value) in zip(indexed.lows, indexed, strict=True) if low == "connection"]
    return {part.strip().lower() for value in values for part in value.split(",")}


_TO_UPSTREAM = (HOP_BY_HOP | NOT_FORWARDED) - {"transfer-encoding", "content-length"}
_TO_CLIENT = HOP_BY_HOP - {"transfer-encoding", "content-length"}
_LENGTHS = frozenset({"transfer-encoding", "content-length"})


def build_upstream_headers(headers: HeaderList, length: int | None, is_upgrade: bool) -> tuple[HeaderList, bool]:
    """Return the headers to send to the upstream, and whether the body is sent in chunks.

    `length` is the size of the body to send; None if the body is streamed and its size unknown.
    """
    indexed = index_headers(headers)
    if is_upgrade:
        return [each for low, each in zip(indexed.lows, indexed, strict=True) if low not in NOT_FORWARDED], False
    dropped_names = (
        _TO_UPSTREAM | (hop_by_hop_names(indexed) - _LENGTHS) if "connection" in indexed.firsts else _TO_UPSTREAM
    )
    result: list[tuple[str, str]] = []
    chunked = False
    for low, each in zip(indexed.lows, indexed, strict=True):
        if low in dropped_names:
            continue
        if low in _LENGTHS:
            if low == "transfer-encoding" and length is None:
                chunked = True
            elif low == "transfer-encoding":
                each = "Content-Length", str(length)  # the body is in memory, so its length is known
            elif length is not None:
                each = each[0], str(length)
        result.append(each)
    return result, chunked


BETA_HEADER = "anthropic-beta"


def add_beta(headers: HeaderList, beta: str) -> HeaderList:
    """Return the headers with one more feature in `anthropic-beta`."""
    if not any(name.lower() == BETA_HEADER for name, _ in headers):
        return [*headers, (BETA_HEADER, beta)]
    return [(name, f"{value},{beta}" if name.lower() == BETA_HEADER else value) for name, value in headers]


def build_client_headers(
    headers: HeaderList, method: str, status: int, version: tuple[int, int], keep_alive: bool
) -> tuple[HeaderList, bool, bool]:
    """Return the headers to send to the client, whether the body is chunked, and whether the connection closes."""
    indexed = index_headers(headers)
    modern = version >= (1, 1)
    empty = method == "HEAD" or status in EMPTY_BODY_STATUSES
    has_transfer_encoding = "transfer-encoding" in indexed.firsts
    has_length = not has_transfer_encoding and "content-length" in indexed.firsts
    is_chunked = modern and not empty and not has_length
    # HTTP/1.0 has no chunks: without a length, only the end of the connection marks the end of a body.
    closes = not keep_alive or not (modern or empty or has_length)
    dropped_names = (
        _TO_CLIENT | (hop_by_hop_names(indexed) - _LENGTHS) if "connection" in indexed.firsts else _TO_CLIENT
    )
    if has_transfer_encoding:
        dropped_names |= {"content-length"}
    if has_transfer_encoding and not (is_chunked or (modern and method == "HEAD")):
        dropped_names |= {"transfer-encoding"}
    result = [each for low, each in zip(indexed.lows, indexed, strict=True) if low not in dropped_names]
    if is_chunked and not has_transfer_encoding:
        result.append(("Transfer-Encoding", "chunked"))
    if closes and modern:
        result.append(("Connection", "close"))
    elif not closes and not modern:
        result.append(("Connection", "keep-alive"))
    return result, is_chunked, closes


LoginKind = Literal["key", "plan"]
"""How a request is paid for: by use (`key`), or covered by a subscription (`plan`)."""

CLAUDE_TOKEN = "bearer sk-ant-oat"  # start of the OAuth token of a subscription, in lower case
CLAUDE_BETA = "oauth-2025-04-20"
CHATGPT_HEADER = "chatgpt-account-id"


def login_kind(headers: HeaderList) -> LoginKind:
    """Return `plan` for the login of a Claude or ChatGPT subscription. The credential is not stored."""
    headers = index_headers(headers)
    bearer = first_header(headers, "authorization").lower()
    betas = {beta.strip() for beta in first_header(headers, "anthropic-beta").split(",")}
    is_claude = bearer.startswith(CLAUDE_TOKEN) or (bearer.startswith("bearer ") and CLAUDE_BETA in betas)
    return "plan" if is_claude or first_header(headers, CHATGPT_HEADER) else "key"
