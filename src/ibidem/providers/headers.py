"""Which headers go on, and how: those of the client to the upstream, those of the answer to the client.

Spelling, order and duplicates stay. Only what HTTP says between two neighbours is said anew, in the place where it
stood: how the end of a body is told, and whether the connection goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

HeaderList = Sequence[tuple[str, str]]


class Headers(list[tuple[str, str]]):
    """Headers as they came, with their names in lower case: each is looked at several times, and read once."""

    __slots__ = ("firsts", "lasts", "lows")

    def __init__(self, given: Iterable[tuple[str, str]]) -> None:
        super().__init__(given)
        self.lows = [name.lower() for name, _ in self]
        self.lasts = {low: each[1] for low, each in zip(self.lows, self, strict=True)}
        """By name; of those that stand twice, the last."""
        self.firsts = self.lasts
        if len(self.lasts) < len(self):
            self.firsts = {low: each[1] for low, each in zip(reversed(self.lows), reversed(self), strict=True)}


def known(headers: Iterable[tuple[str, str]]) -> Headers:
    return headers if isinstance(headers, Headers) else Headers(headers)


HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
"""What is said between two neighbours and not passed on."""

NOT_PASSED = frozenset({"host", "x-ibidem", "x-ibidem-token", "x-ibidem-page-token"})
"""The upstream has a name of its own; tokens and wishes are for this proxy alone."""

BODILESS_STATUSES = frozenset({204, 304})
"""Answers that have no body, whatever their headers say."""


def first(headers: HeaderList, name: str) -> str:
    """Of this name, which is in lower case."""
    found = headers if isinstance(headers, Headers) else Headers(headers)  # `known`: this is asked most of all
    return found.firsts.get(name, "")


def wants_websocket(method: str, headers: HeaderList) -> bool:
    """Other upgrades, and those of a request with a body, are not taken up, as HTTP allows: it is an ordinary one."""
    if method != "GET" or first(headers, "transfer-encoding") or first(headers, "content-length") not in ("", "0"):
        return False
    return first(headers, "upgrade").strip().lower() == "websocket" and "upgrade" in named(headers)


def named(headers: HeaderList) -> set[str]:
    """The headers that `Connection` says are for the neighbour alone."""
    found = known(headers)
    if "connection" not in found.firsts:
        return set()
    said = [value for low, (_, value) in zip(found.lows, found, strict=True) if low == "connection"]
    return {part.strip().lower() for value in said for part in value.split(",")}


_TO_UPSTREAM = (HOP_BY_HOP | NOT_PASSED) - {"transfer-encoding", "content-length"}
_TO_CLIENT = HOP_BY_HOP - {"transfer-encoding", "content-length"}
_LENGTHS = frozenset({"transfer-encoding", "content-length"})


def for_upstream(headers: HeaderList, length: int | None, upgrades: bool) -> tuple[HeaderList, bool]:
    """With the length of what is really sent, if it is known by now; and whether the body goes in chunks."""
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
                each = "Content-Length", str(length)  # it was held, so its length is known
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
    """With how the end is told; whether the body goes in chunks; and whether the connection ends with it."""
    given = known(headers)
    modern = version >= (1, 1)
    empty = method == "HEAD" or status in BODILESS_STATUSES
    coded = "transfer-encoding" in given.firsts
    sized = not coded and "content-length" in given.firsts
    chunked = modern and not empty and not sized
    last = not keep_alive or not (modern or empty or sized)  # only the end of the connection tells an old client
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
"""Whether a request is paid by use or covered by a subscription."""

CLAUDE_TOKEN = "bearer sk-ant-oat"  # how the login of a subscription starts
CLAUDE_BETA = "oauth-2025-04-20"
CHATGPT_HEADER = "chatgpt-account-id"


def login_kind(headers: HeaderList) -> LoginKind:
    """`plan` for the login of a Claude or ChatGPT subscription. The credential is not kept."""
    headers = known(headers)
    bearer = first(headers, "authorization").lower()
    betas = {beta.strip() for beta in first(headers, "anthropic-beta").split(",")}
    is_claude = bearer.startswith(CLAUDE_TOKEN) or (bearer.startswith("bearer ") and CLAUDE_BETA in betas)
    return "plan" if is_claude or first(headers, CHATGPT_HEADER) else "key"
