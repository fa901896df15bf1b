"""Users kept apart, hostile texts in a browser and in recordings, slow histories, and interrupted trials."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ibidem
from ibidem import recordings
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.testing import Slow, Upstream
from ibidem.testing.adversarial import HARD
from tests.cli import test_trial
from tests.engine import test_growth
from tests.proxy.test_dashboard import HOSTILE
from tests.proxy.test_record import files, written
from tests.support.browser import launched
from tests.support.proxied import growing, talk
from tests.trial.sessions import as_recorded

from .conftest import Tally
from .test_attack_kill import run_report

logs = test_trial.logs
USERS, CONVERSATIONS, TURNS = 8, 12, 8
INTERRUPTIONS = (2, 5, 9, 14, 22, 31)
"""Requests after which a trial is interrupted."""


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_users_are_kept_apart(profile: str, tally: Tally) -> None:
    """All users start with the same text and read the same files. Each also has a secret."""
    crossed = restored = 0
    originals: set[str] = set()
    with talk(profile=profile) as found, ThreadPoolExecutor(USERS) as pool:

        def converse(user: int) -> None:
            for number in range(CONVERSATIONS):
                for body in growing("anthropic", TURNS, seed=number + 1):
                    text = json.dumps(body).replace("seen again", f"secret-of-{user}-user seen again")
                    originals.add(json.dumps(json.loads(text)["messages"]))
                    assert found.send("anthropic", text.encode(), x_api_key=f"key-{user}")[0] == 200

        list(pool.map(converse, range(USERS)))
        seen = found.upstream.seen
    for each in seen:
        user = (each.header("x-api-key") or "").removeprefix("key-")
        others = (f"secret-of-{other}-user".encode() for other in range(USERS) if str(other) != user)
        crossed += any(other in each.text for other in others)
        restored += json.dumps(ibidem.expand(json.loads(each.text))["messages"]) in originals
    tally(f"users apart, {profile}", users=USERS, requests=len(seen), crossed=crossed, restored=restored)
    assert not crossed
    assert restored == len(seen) == USERS * CONVERSATIONS * (TURNS + 1)


ODD_TEXTS = (HOSTILE, "\ud800\udfff\ud800", "\x00\x1b]0;title\x07", "x" * 3_000_000, "\u2028\n\r\n", "=cmd()", "")


def test_hostile_texts_in_recordings_and_in_chromium(tmp_path: Path, tally: Tally) -> None:
    folder, page_file = tmp_path / "record", tmp_path / "report.html"
    asked = views = scripts = 0
    with talk(record=str(folder), gains=UsageWriter(tmp_path / "gains.sqlite3"), strict=False) as found:
        for number, odd in enumerate(ODD_TEXTS):
            for body in growing("anthropic", 3, seed=number + 1, first=f"{odd[:3000]} {number}"):
                body["messages"].append({"role": "user", "content": f"{odd}"})
                body["model"] = odd[:200] or "m"
                agent = {"user_agent": HOSTILE.encode("ascii", "ignore").decode().replace("\x1b", "")}
                found.send("anthropic", json.dumps(body).encode(), **agent)
                asked += 1
        found.send("anthropic", b'{"messages": [\xff', **agent)
        written(folder, asked - 3)
        state = found.settled(asked + 1)
        with launched() as browser:
            page = browser.new_page()
            page.on("dialog", lambda dialog: dialog.dismiss())
            for place in ("#/", *(f"#/c/{each['id']}" for each in state["conversations"]), "#/e/e1", f"#/c/{HOSTILE}"):
                page.goto(f"{found.proxy.url}/ibidem{place}")
                page.reload()
                page.wait_for_timeout(300)
                scripts += page.evaluate("window.broken") is not None
                scripts += page.locator("main script, main img, header script, header img").count()
                views += 1
            command = [sys.executable, "-m", "ibidem.cli", "report", "--no-cache", "--all", "--html", str(page_file)]
            environment = {"HOME": str(tmp_path), "PATH": "/usr/bin"}
            done = subprocess.run([*command, str(folder)], capture_output=True, timeout=300, env=environment)
            assert done.returncode == 0, done.stderr[-2000:]
            page.goto(page_file.as_uri())
            scripts += page.evaluate("window.broken") is not None
            views += 1
    sessions = run_report(folder, tmp_path)["sessions"]
    chance, cut = random.Random(1), Counter[str]()
    for path in files(folder):
        data = path.read_bytes()
        for end in {*range(0, min(len(data), 40)), *(chance.randrange(len(data)) for _ in range(60))}:
            try:
                recordings.read("some.log", data[:end])
                cut["read"] += 1
            except recordings.LogError:
                cut["refused"] += 1
    tally("hostile texts in Chromium", requests=asked + 1, views=views, scripts_run=scripts)
    tally("`--record` read back", sessions=len(sessions), cut_files=cut.total(), **cut, raised=0)
    assert not scripts


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_processor_time_of_slow_histories(profile: str, tally: Tally) -> None:
    slowest = {}
    for kind, (make, usual) in HARD.items():
        text = json.dumps(make(usual))
        start = time.process_time()
        test_growth.rewritten(text, profile)
        slowest[kind] = (time.process_time() - start, len(text))
        test_growth.test_a_history_four_times_as_long_takes_four_times_as_long(kind, profile)
    worst = max(slowest, key=lambda kind: slowest[kind][0])
    seconds, size = slowest[worst]
    tally(f"slow histories, {profile}", kinds=len(HARD), slowest=f"{worst} {seconds:.2f} s", bytes=size, superlinear=0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_trial_resumes_after_each_interruption(logs: Path, tmp_path: Path, how: signal.Signals, tally: Tally) -> None:
    out, answer = tmp_path / "trial.jsonl", as_recorded(test_trial.TEAM)
    with Upstream(lambda seen: Slow(answer(seen), wait=0.02)) as upstream:
        where = ("--upstream", upstream.url)
        first = (logs, "--budget", 4, "--samples", 2, "--points", 10, "-o", out, *where)
        for number, after in enumerate(INTERRUPTIONS):
            options = first if not number else (logs, "--resume", out, *where)
            command = [sys.executable, "-m", "ibidem.cli", "trial", *map(str, options)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                upstream.wait_for(after)
                process.send_signal(how)
                _, errors = process.communicate(timeout=60)
            assert b"Traceback" not in errors, errors[-2000:]
        result = test_trial.run(logs, "--resume", out, "--json", *where)
        assert result.exit_code == 0, result.output
        times = Counter(seen.text for seen in upstream.seen)
    found = test_trial.known(out)
    lost = sum(sum(each[:2]) for each in found.dropped_samples().values())
    tally(
        f"trial, {how.name}",
        interruptions=len(INTERRUPTIONS),
        calls=times.total(),
        planned=40,
        calls_of_one_sample=max(times.values()) / 2,
        lost=lost,
        points=len(found.point_results()),
    )
    assert max(times.values()) == 2, "a request is sent once for each of its two samples"
    assert times.total() <= 40
    assert found.spent <= 4
