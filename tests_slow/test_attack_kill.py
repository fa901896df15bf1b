"""SIGKILL at random moments, on a proxy that evicts, records and assigns conversations to variants."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ibidem
from ibidem.store import SqliteStore
from ibidem.testing import Says, Upstream
from tests.store.test_store import assert_consistent
from tests.support.proxied import dumped, growing, requests, stale

from .conftest import Tally
from .proxy_process import ProxyProcess, proxy_process

ROUNDS, WARM_REQUESTS = 16, 24
IDLE_SECONDS = 4200.0
"""After this idle time the prompt cache is cold, so `recoverable` evicts."""
REFERENCE = re.compile(rb"\[ibidem \d{3} ([0-9a-f]{12})")
SESSIONS, TURNS = 24, 6


def run_report(folder: Path, home: Path) -> Any:
    command = [sys.executable, "-m", "ibidem.cli", "report", "--json", "--no-cache", "--all", str(folder)]
    done = subprocess.run(command, capture_output=True, timeout=300, env={"HOME": str(home), "PATH": "/usr/bin"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"Traceback" not in done.stderr
    return json.loads(done.stdout)


def post_until_killed(proxy: ProxyProcess, bodies: list[bytes], accepted: list[int]) -> None:
    for body in bodies:
        status, _ = proxy.post(body)
        if not status:
            return
        accepted.append(status)


def test_every_reference_restores_after_a_kill(tmp_path: Path, tally: Tally) -> None:
    chance, store_file, folder = random.Random(5), tmp_path / "store.sqlite3", tmp_path / "record"
    options = ("--profile", "recoverable", "--store", str(store_file), "--record", str(folder))
    references: set[str] = set()
    originals: dict[bytes, bytes] = {}
    fewest, evicted, accepted = 10**9, 0, list[int]()
    with (
        Upstream(lambda _: Says("ok"), strict=True) as upstream,
        proxy_process(tmp_path, upstream.url, *options) as proxy,
    ):
        for number in range(ROUNDS):
            bodies = [dumped(body) for body in requests("anthropic", *stale(8, 120, seed=number, after=40))]
            proxy.set_clock(2 * number * IDLE_SECONDS)
            post_until_killed(proxy, bodies[:WARM_REQUESTS], accepted)
            proxy.set_clock((2 * number + 1) * IDLE_SECONDS)
            known = len(upstream.seen)
            client = threading.Thread(target=post_until_killed, args=(proxy, bodies[WARM_REQUESTS:], accepted))
            client.start()
            upstream.wait_until(lambda seen, known=known: any(REFERENCE.search(each.text) for each in seen[known:]))  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.15))
            proxy.kill()
            client.join(60)
            sent = [each for each in upstream.seen[known:] if each.whole]
            in_round = {found.decode() for each in sent for found in REFERENCE.findall(each.text)}
            fewest, references = min(fewest, len(in_round)), references | in_round
            originals |= {json.dumps(json.loads(body)["messages"]).encode(): body for body in bodies}
            with SqliteStore(store_file) as store:
                assert store.get(references).keys() == references
                for each in sent:
                    expanded = ibidem.expand(json.loads(each.text), store=store)
                    assert json.dumps(expanded["messages"]).encode() in originals
                    evicted += bool(REFERENCE.search(each.text))
            proxy.start()
            assert proxy.post(bodies[-1])[0] == 200, "the conversation continues after the kill"
        assert proxy.stop() == 0
    assert fewest > 0
    assert set(accepted) == {200}
    assert_consistent(store_file)
    with SqliteStore(store_file) as store:
        restored = len(store.get(references))
    sessions = run_report(folder, tmp_path)["sessions"]
    tally(
        "SIGKILL while evicting",
        kills=ROUNDS,
        responses=len(accepted) + ROUNDS,
        references=len(references),
        fewest_in_a_round=fewest,
        restored=restored,
        requests_with_references_restored=evicted,
        recorded_sessions_in_report=len(sessions),
    )


def test_variants_of_an_experiment_survive_kills(tmp_path: Path, tally: Tally) -> None:
    """`--trial`: a conversation is rewritten in all of its requests, or in none."""
    options = ("--trial", "0.5", "--store", str(tmp_path / "store.sqlite3"))
    talks = [[dumped(body) for body in growing("anthropic", TURNS, seed=seed)] for seed in range(1, 4)]
    sent: dict[str, list[tuple[bytes, bytes]]] = {}
    kills = 0
    with Upstream(lambda _: Says("ok")) as upstream, proxy_process(tmp_path, upstream.url, *options) as proxy:
        for turn in range(TURNS + 1):
            for number in range(SESSIONS):
                name, body = f"session-{number}", talks[number % 3][turn]
                assert proxy.post(body, x_claude_code_session_id=name)[0] == 200
                sent.setdefault(name, []).append((body, upstream.seen[-1].body))
            proxy.kill()
            proxy.start()
            kills += 1
        proxy.stop()
    rewritten = {name for name, pairs in sent.items() if any(came != went for came, went in pairs)}
    # A request without repeats is sent unchanged in both variants; another session with the same text shows which.
    possible = {came for pairs in sent.values() for came, went in pairs if came != went}
    mixed = [name for name in rewritten for came, went in sent[name] if came in possible and came == went]
    restored = sum(
        ibidem.expand(json.loads(went)) == json.loads(came) for pairs in sent.values() for came, went in pairs
    )
    tally(
        "`--trial` with a kill after each turn",
        kills=kills,
        conversations=SESSIONS,
        rewritten=len(rewritten),
        requests=SESSIONS * (TURNS + 1),
        restored=restored,
        mixed_conversations=len(set(mixed)),
    )
    assert not mixed
    assert 0 < len(rewritten) < SESSIONS
    assert restored == SESSIONS * (TURNS + 1)
