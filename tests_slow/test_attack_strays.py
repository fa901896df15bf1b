"""Many clients, an upstream that sends what nobody asked for, and answers that name the request they were made for."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.proxy.test_answers import DELAYS, STRAYS, at_random, storm
from tests.support.raw import proxied

CLIENTS, REQUESTS = 25, 200


def load_balancer(rng: random.Random) -> tuple[bytes, float]:
    return STRAYS[rng.choice(["a 408", "a 408 and the end", "a 503"])], rng.choice(list(DELAYS.values()))


def broken(rng: random.Random) -> tuple[bytes, float]:
    names = ["a 408", "a 503", "a sign of life", "no HTTP", "half a head"]
    return STRAYS[rng.choice(names)], rng.choice(list(DELAYS.values())[:3])


def doubled(rng: random.Random) -> tuple[bytes, float]:
    return STRAYS["an answer"], 0.0


@pytest.mark.parametrize("kind", [load_balancer, broken, doubled])
def test_no_answer_crosses(kind: Callable[[random.Random], tuple[bytes, float]], tally: Callable[..., None]) -> None:
    with proxied(at_random(7, 0.1, kind)) as (server, proxy):
        counts = storm(proxy.url, CLIENTS, REQUESTS)
    sent = [server.seen.get() for _ in range(server.seen.qsize())]
    tally(
        f"strays, {kind.__name__.replace('_', ' ')}",
        requests=CLIENTS * REQUESTS,
        strays=sum(sent),
        connections=len(sent),
        own=counts["own"],
        errors=counts["error"],
        crossed=counts["crossed"],
    )
    assert counts["crossed"] == 0
    assert counts["own"] + counts["error"] == CLIENTS * REQUESTS
    assert counts["own"] > 0.9 * CLIENTS * REQUESTS
    if kind is load_balancer:  # the others give what looks like answers, and are asked once on each connection then
        assert len(sent) < CLIENTS * REQUESTS / 2, "connections are still used again"
