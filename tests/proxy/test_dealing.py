"""Connections that one process takes and others serve."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from ibidem.proxy.edge.dealing import Dealer, Taker
from tests.support.proxied import PATIENCE

pytestmark = pytest.mark.skipif(os.name == "nt", reason="processes cannot share a port there")
MANY = 1500
"""More than the pair of sockets holds words about."""


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


async def told(dealer: socket.socket, words: int) -> int:
    """How many words a parent reads that did not look while it handed over."""
    dealer.setblocking(False)
    loop, found = asyncio.get_running_loop(), 0
    while found < words:
        found += len(await asyncio.wait_for(loop.sock_recv(dealer, 100), PATIENCE))
    return found


def test_a_parent_that_is_busy_hears_of_every_connection() -> None:
    async def run() -> int:
        (hand, taken), (one, other) = socket.socketpair(), socket.socketpair()
        taker = Taker(taken, asyncio.Protocol)
        for _ in range(MANY):
            await asyncio.sleep(0)
            socket.send_fds(hand, [b"\0"], [other.fileno()])
        found = await told(hand, MANY)
        taker.end()
        for each in (hand, one, other):
            each.close()
        return found

    assert asyncio.run(run()) == MANY


def test_who_connects_is_served_and_nothing_stays_open_here() -> None:
    async def run() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        dealer = Dealer([listening])
        takers = []
        for _ in range(2):
            hand, taken = socket.socketpair()
            dealer.add(hand)
            takers.append((hand, Taker(taken, Echo)))
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            # That it ends shows that the parent let go of it as well.
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b"hello"
            writer.close()
        for hand, taker in takers:
            dealer.remove(hand)
            taker.end()
        dealer.close()

    asyncio.run(run())
