"""Which headers go on, and how: those of the client to the upstream, those of the answer to the client.

Spelling, order and duplicates stay. Only what HTTP says between two neighbours is said anew, in the place where it
stood: how the end of a body is told, and whether the connection goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

HeaderList = Sequence[tuple[str, str]]

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
    return next((value for key, value in headers if key.lower() == name), "")


def wants_websocket(method: str, headers: HeaderList) -> bool:
    """Other upgrades, and those of a request with a body, are not taken up, as HTTP allows: it is an ordinary one."""
    if method != "GET" or first(headers, "transfer-encoding") or first(headers, "content-length") not in ("", "0"):
        return False
    return first(headers, "upgrade").strip().lower() == "websocket" and "upgrade" in named(headers)


def named(headers: HeaderList) -> set[str]:
    """The headers that `Connection` says are for the neighbour alone."""
    return {part.strip().lower() for key, value in headers if key.lower() == "connection" for part in value.split(",")}


def for_upstream(headers: HeaderList, length: int | None, upgrades: bool) -> tuple[HeaderList, bool]:
    """With the length of what is really sent, if it is known by now; and whether the body goes in chunks."""
    if upgrades:
        return [each for each in headers if each[0].lower() not in NOT_PASSED], False
    leave = (HOP_BY_HOP | NOT_PASSED | named(headers)) - {"transfer-encoding", "content-length"}
    found: list[tuple[str, str]] = []
    chunked = False
    for name, value in headers:
        low = name.lower()
        if low in leave:
            continue
        if low == "transfer-encoding" and length is None:
            chunked = True
        elif low == "transfer-encoding":
            name, value = "Content-Length", str(length)  # it was held, so its length is known
        elif low == "content-length" and length is not None:
            value = str(length)
        found.append((name, value))
    return found, chunked


def for_client(
    headers: HeaderList, method: str, status: int, version: tuple[int, int], keep_alive: bool
) -> tuple[HeaderList, bool, bool]:
    """With how the end is told; whether the body goes in chunks; and whether the connection ends with it."""
    modern = version >= (1, 1)
    empty = method == "HEAD" or status in BODILESS_STATUSES
    coded = any(name.lower() == "transfer-encoding" for name, _ in headers)
    sized = not coded and any(name.lower() == "content-length" for name, _ in headers)
    chunked = modern and not empty and not sized
    last = not keep_alive or not (modern or empty or sized)  # only the end of the connection tells an old client
    leave = (HOP_BY_HOP | named(headers)) - {"transfer-encoding", "content-length"}
    leave |= {"content-length"} if coded else set()
    leave |= set() if chunked or (modern and method == "HEAD") else {"transfer-encoding"}
    found = [each for each in headers if each[0].lower() not in leave]
    if chunked and not coded:
        found.append(("Transfer-Encoding", "chunked"))
    if last and modern:
        found.append(("Connection", "close"))
    elif not last and not modern:
        found.append(("Connection", "keep-alive"))
    return found, chunked, last
