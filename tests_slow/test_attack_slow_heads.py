"""Clients that begin a request and never go on, while others ask."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.raw import answering, asked, connect, proxied

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SLOW, REQUESTS = 300, 200


def test_half_heads_are_let_go_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, tally: Callable[..., None]
) -> None:
    monkeypatch.setattr("ibidem.proxy.edge.server_protocol.HEAD_TIME", 2.0)
    with proxied(answering(*[OK] * REQUESTS)) as (_, proxy):
        slow = [connect(proxy.url) for _ in range(SLOW)]
        for each in slow:
            each.send(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        started = time.monotonic()
        bodies = [asked(proxy, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")[1] for _ in range(REQUESTS)]
        took = time.monotonic() - started
        ends = [each.rest()[:12] for each in slow]
        for each in slow:
            each.close()
    tally("half heads", clients=SLOW, let_go=ends.count(b"HTTP/1.1 408"), others=bodies.count(b"ok"), s=round(took, 2))
    assert bodies == [b"ok"] * REQUESTS
    assert ends == [b"HTTP/1.1 408"] * SLOW
