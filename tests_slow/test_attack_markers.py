"""Markers that a tool prints: generated ones by the thousand, and the worst of them through a proxy with a gigabyte."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing
from ibidem.formats import FORMATS
from ibidem.testing import Says, Upstream
from tests.engine.test_hostile import FORGED, LIMIT, history  # the same texts
from tests.support.proxied import growing, talk

EXAMPLES = 400


@pytest.mark.parametrize("format", FORMATS)
def test_generated_forgeries(format: str, tally: Callable[..., None]) -> None:
    seen = [0, 0]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def attack(data: st.DataObject) -> None:
        request = data.draw(testing.histories(format, 10))
        places = testing.places_of_results(request, format)
        chosen = data.draw(st.lists(st.sampled_from(places), max_size=4, unique=True)) if places else []
        forged = {place: data.draw(testing.forgeries(testing.tag_in(request, format))) for place in chosen}
        run = testing.runner((ibidem.BackReferences(min_gain=0, repeat_guard=0),), format)
        testing.foreign_markers_change_nothing_else(run, request, format, forged)
        testing.foreign_markers_come_back(run, request, format, forged)
        seen[0] += 1
        seen[1] += len(forged)

    attack()
    tally(f"forged markers, {format}", histories=seen[0], forged_texts=seen[1], laws_broken=0)


def test_a_proxy_with_a_gigabyte(tmp_path: Path, tally: Callable[..., None]) -> None:
    """Every forged text, and after each an ordinary request: all are answered, by the same process."""
    with Upstream([Says("done")] * (4 * len(FORGED))) as provider:
        command = [sys.executable, "-m", "ibidem.cli", "proxy", "--port", "0", "--store", "memory:"]
        command += ["--upstream", f"anthropic={provider.url}", "--budget-ms", "60000"]
        limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))  # noqa: E731
        environment = {**os.environ, "HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=limits, env=environment
        ) as process:
            try:
                url = _url(process)
                slowest = max(_sent(url, history(text)) for text in FORGED.values())
                ordinary = _sent(url, history("nothing of the kind"))
                state = json.loads(urllib.request.urlopen(f"{url}/ibidem/api/state", timeout=60).read())
            finally:
                process.terminate()
        assert state["totals"]["failed_open"] == 0, state["failures"]
    tally(
        "a proxy with 1 GB", requests=len(FORGED) + 1, failed_open=0, slowest=f"{slowest:.2f} s, usual {ordinary:.2f} s"
    )


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError("the proxy did not start")


def _sent(url: str, body: dict[str, Any]) -> float:
    start = time.monotonic()
    headers = {"content-type": "application/json", "x-api-key": "k"}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 200
        answer.read()
    return time.monotonic() - start


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_forged_markers_through_a_proxy(profile: str, tally: Callable[..., None]) -> None:
    """Tools print markers with the tag of their conversation. The provider gets each one unchanged."""
    requests = forged_texts = references = 0

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(1, 10**6), st.data())
    def attack(seed: int, data: st.DataObject) -> None:
        nonlocal requests, forged_texts, references
        bodies = list(growing("anthropic", 6, seed=seed, first=f"go {seed}"))
        places = testing.places_of_results(bodies[-1], "anthropic")
        chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True))
        forged = {place: data.draw(testing.forgeries(testing.tag_in(bodies[-1], "anthropic"))) for place in chosen}
        whole = testing.planted(bodies[-1], "anthropic", forged)["messages"]
        first = len(found.upstream.seen)
        for body in bodies:
            sent = {**body, "messages": whole[: len(body["messages"])]}
            assert found.send("anthropic", sent)[0] == 200
            requests += 1
        for body, seen in zip(bodies, found.upstream.seen[first:], strict=True):
            provided = json.loads(seen.text)
            assert ibidem.expand(provided)["messages"] == whole[: len(body["messages"])]
        last = json.dumps(provided["messages"])
        assert all(json.dumps(text)[1:-1] in last for text in forged.values())
        forged_texts += len(forged)
        references += last.count("[ibidem ") - json.dumps(whole).count("[ibidem ")

    with talk(profile=profile) as found:
        attack()
    assert references > 0
    tally(
        f"forged markers through a proxy, {profile}",
        requests=requests,
        forged_texts=forged_texts,
        own_references=references,
    )
