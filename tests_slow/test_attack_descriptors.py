"""Floods of idle clients take all file descriptors of a real proxy, again and again, while others send requests."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proxy.test_descriptors import (
    LIMIT,
    STARTS,
    USAGE_FILE,
    cpu_seconds,
    idle_clients,
    proxy,
    set_limit,
    status,
    usage_rows,
)
from tests.support.proxied import growing, waited_for

ROUNDS, CONNECTIONS = 10, 6


@pytest.mark.parametrize("loop", STARTS)
def test_statistics_are_complete_after_every_flood(tmp_path: Path, loop: str, tally: Callable[..., None]) -> None:
    statuses: Counter[object] = Counter()
    started = time.monotonic()
    with proxy(tmp_path, loop) as (found, log):
        pid = found.process.pid
        for number in range(ROUNDS):
            opened = [found.connection() for _ in range(CONNECTIONS)]
            talks = [list(growing("anthropic", 6, first=f"{number} {each}")) for each in range(CONNECTIONS)]
            statuses.update(status(each, talk[0]) for each, talk in zip(opened, talks, strict=True))
            set_limit(pid, LIMIT)
            with idle_clients(found.url):
                for step in range(1, 6):
                    set_limit(pid, 3 if step % 2 else LIMIT)
                    for each, talk in zip(opened, talks, strict=True):
                        try:
                            statuses[status(each, talk[step])] += 1
                        except (OSError, http.client.HTTPException) as error:
                            statuses[type(error).__name__] += 1
                set_limit(pid, LIMIT)
            for each in opened:
                each.close()
        cpu, seconds = cpu_seconds(pid), time.monotonic() - started
        waited_for(lambda: sum(row[0] == 200 for row in usage_rows(tmp_path / USAGE_FILE)) >= statuses[200])
        counted = sum(row[0] == 200 for row in usage_rows(tmp_path / USAGE_FILE))
        seen = len(found.provider.seen)
        assert found.process.poll() is None
    counts = {str(name): count for name, count in statuses.items()}
    tally(
        f"descriptors, {loop}",
        provider=seen,
        counted=counted,
        log_lines=len(log),
        cpu_s=round(cpu, 1),
        s=round(seconds, 1),
        **{f"status {name}": count for name, count in counts.items()},
    )
    assert counted == seen == statuses[200]
    assert set(statuses) <= {200, 502}
    assert len(log) < 20 * ROUNDS
