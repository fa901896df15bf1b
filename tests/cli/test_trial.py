"""`ibidem trial` at a prompt: what it plans, sends, writes and prints, and how it goes on after it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ibidem.cli import main
from ibidem.testing import Fails, Slow, Upstream
from ibidem.testing.prompt_cache import PromptCache
from ibidem.trial.outcomes import DroppedSamples
from ibidem.trial.run_log import RunLog, resume_run
from tests.trial.sessions import TOOLS, Agent, as_recorded, write_logs
from tests.trial.test_probes import Reader, reading

from .test_report import empty_home

SECRET = "a-word-of-my-own"
KEY = "sk-ant-api03-planted"
AT_HOME = ("--upstream", "https://api.anthropic.com")
"""What is said for logs of which nobody knows where their requests went."""
TEAM = [Agent(f"{SECRET}-{number}", 6) for number in range(3)]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    empty_home(tmp_path, monkeypatch)
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return write_logs(tmp_path / "logs", TEAM, tools=TOOLS, system="You tidy up. " * 300)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(as_recorded(TEAM), strict=True) as provider:
        yield provider


def run(*args: Any) -> Result:
    return CliRunner().invoke(main, ["trial", *map(str, args)], catch_exceptions=False)


def known(out: Path) -> RunLog:
    """What is in the file of a trial."""
    found = resume_run(out)
    found.close()
    return found


def test_a_plan_is_printed_and_nothing_is_sent(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    result = run(logs, "--dry-run", "--budget", 4, *AT_HOME)
    assert result.exit_code == 0
    assert "Requests are sent to https://api.anthropic.com." in result.stdout
    assert "Calling claude-sonnet-4-5 for 15 points of 3 sessions, 4 samples of each request" in result.stdout
    assert "120 calls:" in result.stdout
    plan = json.loads(run(logs, "--dry-run", "--budget", 4, "--json", *AT_HOME).stdout)
    assert plan["points"] == {"follows": 7, "touches": 4, "any": 4}
    assert 0 < plan["dollars"]["expected"] < plan["dollars"]["most"] <= 4
    assert SECRET not in result.output


def test_a_trial_is_asked_written_and_told(logs: Path, upstream: Upstream, tmp_path: Path) -> None:
    out, page = tmp_path / "trial.jsonl", tmp_path / "page.html"
    asked = (logs, "--budget", 4, "--samples", 2, "--upstream", upstream.url, "--json")
    result = run(*asked, "-o", out, "--html", page)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    written_down = known(out)
    assert len(written_down.point_results()) == 15
    assert written_down.spent <= 4
    assert len(upstream.seen) == 60
    assert all(seen.header("x-api-key") == KEY for seen in upstream.seen)
    written = out.read_text() + page.read_text() + result.output
    assert KEY not in written
    assert SECRET not in written
    assert os.name == "nt" or out.stat().st_mode & 0o777 == 0o600
    kept = tmp_path / "kept.jsonl"
    assert run(*asked, "-o", kept, "--points", 5, "--keep-answers").exit_code == 0
    assert SECRET in kept.read_text()
    assert KEY not in kept.read_text()


@pytest.mark.slow
def test_probes_are_told_apart_from_the_verdict_and_not_asked_twice(logs: Path, tmp_path: Path) -> None:
    plan = run(logs, "--dry-run", "--budget", 4, "--points", 5, "--probes", *AT_HOME)
    assert "probes after the requests of each variant" in plan.stdout
    out, page = tmp_path / "trial.jsonl", tmp_path / "page.html"
    with Upstream(reading(TEAM, Reader(), "anthropic"), strict=True) as upstream:
        where = ("--upstream", upstream.url)
        asked = (logs, "--budget", 4, "--points", 5, "--samples", 2, "--probes", "-o", out, "--html", page)
        first = run(*asked, *where, "--json")
        assert first.exit_code == 0, first.output
        rows = out.read_bytes().splitlines(keepends=True)
        calls = len(upstream.seen)
        kept = [row for row in rows if b"/altered" not in row]
        out.write_bytes(b"".join(kept))
        again = run(logs, "--resume", out, *where)
        assert again.exit_code == 0, again.output
        assert len(upstream.seen) - calls == (len(rows) - len(kept)) / 2 > 0
        assert len({seen.text for seen in upstream.seen[calls:]} - {seen.text for seen in upstream.seen[:calls]}) == 0
    found = json.loads(first.stdout)["probes"]
    assert found["altered"]["still_right"] == 0 < found["altered"]["followed"]
    assert not found["harm"]
    assert "Probes show ability on request" in again.stdout
    assert "<h2>Probes</h2>" in page.read_text()
    assert SECRET not in first.output + again.output + page.read_text() + out.read_text()
    fixed = run(logs, "--resume", out, "--probes")
    assert "omit --probes" in fixed.output


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_nothing_is_asked_twice(logs: Path, tmp_path: Path, how: signal.Signals) -> None:
    out, answer = tmp_path / "trial.jsonl", as_recorded(TEAM)
    with Upstream(lambda seen: Slow(answer(seen), wait=0.02)) as upstream:
        where = ("--upstream", upstream.url)
        asked = (logs, "--budget", 4, "--samples", 2, "--points", 10, "-o", out, *where)
        begin = [sys.executable, "-m", "ibidem.cli", "trial", *map(str, asked)]
        with subprocess.Popen(begin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            upstream.wait_for(9)
            process.send_signal(how)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == (-9 if how is signal.SIGKILL else 130)
        assert (
            how is signal.SIGKILL or f"ibidem trial {logs} --resume {out} --upstream {upstream.url}".encode() in errors
        )
        assert len(upstream.seen) < 40
        result = run(logs, "--resume", out, "--json", *where)
        assert result.exit_code == 0, result.output
        times = Counter(seen.text for seen in upstream.seen)
    found = known(out)
    lost = sum(found.dropped_samples().get("failed", DroppedSamples(0, 0))[:2])
    assert max(times.values()) == 2
    assert 40 - lost <= sum(times.values()) <= 40
    # A kill loses the samples in flight. If both samples of a variant are among them, that point has no result.
    assert 10 - lost // 2 <= len(found.point_results()) <= 10
    assert (lost > 0) is (how is signal.SIGKILL)
    assert found.spent <= 4


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "without a budget": ((), "this costs money: set a limit with --budget, or see the price with --dry-run"),
    "too small a budget": (
        ("--budget", "0.02", *AT_HOME),
        "trial: $0.0200 is not enough for requests of this size: increase",
    ),
    "a budget that is no number": (("--budget", "nan"), "--budget must be a number of dollars, such as 15"),
    "nothing says where they went": (("--budget", "4"), "as in --upstream https://api.anthropic.com"),
    "a model of another provider": (
        ("--budget", "4", "--model", "gpt-5"),
        "from another provider than that of gpt-5: pass",
    ),
    "a model without a price": (("--budget", "4", "--model", "my-own", *AT_HOME), "no price is known for 'my-own'"),
    "what is no file": (("--budget", "4", "-o", "-"), "--out: not a file: pass a file path"),
    "a port that is none": (("--budget", "4", "--upstream", "http://127.0.0.1:99999"), "not the address of a provider"),
    "settings of a trial that goes on": (
        ("--resume", "x", "--seed", "3"),
        "--resume uses the options of the first run",
    ),
    "a file that is not there": (("--resume", "nowhere.jsonl"), "nowhere.jsonl: no such file or folder"),
    "logs that cannot be read twice": (("--budget", "4", "-"), "standard input does not work"),
}


@pytest.mark.parametrize(("args", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(logs: Path, args: tuple[str, ...], told: str) -> None:
    result = run(logs, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr.splitlines()[-1]


def test_a_subscription_is_refused_before_anything_is_sent(
    logs: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-oat01-planted")
    result = run(logs, "--budget", 4, "--upstream", upstream.url)
    assert result.exit_code == 2
    assert "the provider's terms allow a subscription token only in its own client" in result.stderr
    assert "planted" not in result.stderr
    assert not upstream.seen


@pytest.mark.slow
def test_a_key_that_is_not_accepted_leaves_a_file_to_go_on_with(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "trial.jsonl"
    with Upstream(lambda seen: Fails(401)) as upstream:
        result = run(logs, "--budget", 4, "--upstream", upstream.url, "-o", out)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("ibidem: trial: the provider does not accept the key (401)")
    with Upstream(as_recorded(TEAM)) as upstream:
        assert run(logs, "--resume", out, "--upstream", upstream.url).exit_code == 0
    assert len(known(out).point_results()) == 15
    taken = run(logs, "--budget", 4, "--upstream", upstream.url, "-o", out)
    assert "already exists: continue with --resume" in taken.stderr


def test_a_trial_goes_on_only_with_the_logs_that_it_was_begun_with(
    logs: Path, upstream: Upstream, tmp_path: Path
) -> None:
    """What was planned and asked stays as it is, whatever is named."""
    out, where = tmp_path / "trial.jsonl", ("--upstream", upstream.url)
    with Upstream(lambda seen: Fails(401)) as refusing:
        run(logs, "--budget", 4, "--samples", 2, "--upstream", refusing.url, "-o", out)
    before = out.read_bytes()
    others = write_logs(tmp_path / "others", [Agent("another", 6)], tools=TOOLS, system="You tidy up. " * 300)
    result = run(others, "--resume", out, *where)
    assert (result.exit_code, out.read_bytes()) == (2, before)
    assert "these logs have no unchanged session of this trial: pass the logs of the first run" in result.stderr

    first, second, _ = sorted(logs.glob("*.jsonl"))
    first.write_bytes(first.read_bytes().replace(b"compute(", b"destroy("))
    second.write_bytes(b"\n".join(second.read_bytes().split(b"\n")[:4]) + b"\n")
    result = run(logs, "--resume", out, *where)
    assert result.exit_code == 0, result.output
    assert "2 of 3 sessions are missing or changed in these logs and are skipped" in result.stderr
    assert f"requests are sent to {upstream.url}" in result.stderr
    assert not any(b"destroy(" in seen.text for seen in upstream.seen)
    assert len({each.session for each in known(out).point_results()}) == 1


def test_the_end_of_the_budget_is_said_with_what_to_do(logs: Path, tmp_path: Path) -> None:
    out, ticks = tmp_path / "trial.jsonl", count(0, 400.0)  # so that nothing is found in a cache
    with Upstream(as_recorded(TEAM), strict=True, cache=PromptCache(), clock=lambda: next(ticks)) as upstream:
        where = ("--upstream", upstream.url)
        result = run(logs, "--budget", 0.9, "--samples", 4, *where, "-o", out)
        assert result.exit_code == 0, result.output
        (said,) = [line for line in result.stderr.splitlines() if "used up" in line]
        command = said.partition("To continue with more: ibidem ")[2]
        assert command == f"trial {logs} --resume {out} {' '.join(where)} --budget 2"
        asked = len(upstream.seen)
        assert run(*command.split()[1:]).exit_code == 0
        assert len(upstream.seen) > asked


def test_logs_of_agents_on_this_machine_are_found(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(os.environ["HOME"], ".claude", "projects", "p")
    place.mkdir(parents=True)
    for log in logs.glob("*.jsonl"):
        log.rename(place / log.name)
    assert "for 15 points of 3 sessions" in run("--dry-run", "--budget", 4, *AT_HOME).stdout
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(logs))
    assert "no agent logs on this machine" in run("--dry-run").stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no place that is always full")
def test_a_page_that_cannot_be_written_costs_no_verdict(logs: Path, upstream: Upstream, tmp_path: Path) -> None:
    asked = (logs, "--budget", 4, "--samples", 1, "--points", 2, "--upstream", upstream.url)
    out = tmp_path / "trial.jsonl"
    result = run(*asked, "-o", out, "--html", "/dev/full", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["points"] == 2
    assert "/dev/full" in result.stderr
    result = run(logs, "--resume", out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this trial was started with --upstream: pass the same URL again" in result.stderr
