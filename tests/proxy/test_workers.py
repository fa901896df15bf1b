"""Threads that take turns, and what is looked up in a table instead of being asked for one by one."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import get_args

import pytest

from ibidem.live.pool import LATE_SECONDS, TooLate, Workers
from ibidem.live.types import SYSTEM_CLOCK, RewriteResult
from ibidem.providers.headers import Headers, first_header
from ibidem.proxy import commands, events, exchange
from ibidem.proxy.edge import exchange_driver
from ibidem.proxy.edge.upstream_protocol import _head_end

DONE = RewriteResult(result="unchanged")
PATIENCE = 60.0


class Seen:
    """Which threads worked, and how many at once."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.most = self._now = 0

    def work(self) -> RewriteResult:
        self._now += 1
        self.most = max(self.most, self._now)
        self.threads.add(threading.get_ident())
        self._now -= 1
        return DONE


def test_one_thread_works_as_long_as_it_is_not_late() -> None:
    async def main() -> None:
        workers, seen = Workers(4, "ibidem-test", SYSTEM_CLOCK), Seen()
        some = (workers.run_task(seen.work, PATIENCE, lambda: True) for _ in range(200))
        assert await asyncio.gather(*some) == [DONE] * 200
        workers.pool.shutdown()
        assert seen.most <= len(seen.threads) <= 2  # one may be held up by a busy machine

    asyncio.run(main())


def test_another_helps_out_while_one_is_stuck_and_retires_when_it_is_not() -> None:
    async def main() -> None:
        workers, go, seen = Workers(2, "ibidem-test", SYSTEM_CLOCK), threading.Event(), Seen()

        def stuck() -> RewriteResult:
            assert go.wait(PATIENCE)
            return DONE

        with pytest.raises(TooLate) as error:
            await workers.run_task(stuck, 2 * LATE_SECONDS, lambda: True)
        assert error.value.errand
        assert len(workers.stuck) == 1
        assert await workers.run_task(seen.work, PATIENCE, lambda: True) is DONE
        with pytest.raises(TooLate):
            await workers.run_task(stuck, 2 * LATE_SECONDS, lambda: True)
        assert workers.is_exhausted(0.0)
        assert not workers.is_exhausted(PATIENCE)
        with pytest.raises(TooLate) as error:
            await workers.run_task(seen.work, 2 * LATE_SECONDS, lambda: True)
        assert not error.value.errand, "nobody was there to begin with it"
        go.set()
        until = time.monotonic() + PATIENCE
        while workers.stuck or workers.pool._threads > 1:
            assert time.monotonic() < until
            await workers.run_task(seen.work, PATIENCE, lambda: True)
        workers.pool.shutdown()

    asyncio.run(main())


def test_an_error_is_that_of_who_asked() -> None:
    def wrong() -> RewriteResult:
        raise ValueError("of ours")

    async def main() -> None:
        workers = Workers(1, "ibidem-test", SYSTEM_CLOCK)
        with pytest.raises(ValueError, match="of ours"):
            await workers.run_task(wrong, PATIENCE, lambda: True)
        assert await workers.run_task(partial(RewriteResult, result="unchanged"), PATIENCE, lambda: True) == DONE
        workers.pool.shutdown()

    asyncio.run(main())


def test_whatever_happens_is_handled_and_whatever_is_commanded_is_carried_out() -> None:
    assert set(exchange._HANDLERS) == set(get_args(events.Event))
    assert set(exchange_driver._COMMAND_METHODS) == set(get_args(commands.Command))


def test_of_a_header_that_stands_twice_each_is_known() -> None:
    found = Headers([("Accept", "a"), ("X-One", "1"), ("accept", "b")])
    assert (first_header(found, "accept"), found.lasts["accept"], first_header(found, "x-one")) == ("a", "b", "1")
    assert list(found) == [("Accept", "a"), ("X-One", "1"), ("accept", "b")]
    assert first_header([("Accept", "a"), ("accept", "b")], "accept") == "a"


USUAL = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
HEADS = {
    "a head and a body": (USUAL + b"body\r\n\r\n", len(USUAL)),
    "a head alone": (USUAL, len(USUAL)),
    "a sign of life first": (b"HTTP/1.1 100 Continue\r\n\r\n" + USUAL, 25),
    "half of one": (USUAL[:-2], 0),
    "lines that end in another way": (b"HTTP/1.1 200 OK\nA: b\n\n\r\n\r\n", 0),
    "a last line that ends in another way": (b"HTTP/1.1 200 OK\nA: b\n\r\nbody\r\n\r\n", 0),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_read_at_once_only_where_nobody_could_see_it_end_elsewhere(name: str) -> None:
    data, end = HEADS[name]
    assert _head_end(data) == end
