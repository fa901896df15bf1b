"""`ibidem gain --trial`: two sides of a coin, with intervals that are as wide as they must be."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.trial_coin import BEGIN, SHOWN_SEED, Truth, made_up, simulated
from ibidem import usage_db
from ibidem.cli import main
from ibidem.cli.gain_experiment import NO_CONVERSATIONS, draw_comparison
from ibidem.proxy.accounting.exchange_rows import TrialData
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.trial.ab_comparison import LEAST_UNITS, compare_variants
from tests.test_usage_db import exchange

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    return usage_db.database_path()


def gain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["gain", "--trial", "--timezone", "UTC", *arguments])


def trial(*arguments: str) -> Any:
    return json.loads(gain("--json", *arguments).stdout)["trial"]


def keep(
    file: Path,
    count: int,
    again: dict[str, float],
    profile: str = "lossless",
    outcome: str = "rewritten",
    share: float = 0.5,
) -> None:
    """So many conversations of each side, of ten requests each; `again` is how often each side reads again."""
    rng, writer = Random(count), UsageWriter(file)
    for number in range(count):
        for arm, chance in again.items():
            often = min(1.0, chance * rng.uniform(0.5, 1.5))
            for request in range(10):
                unit = f"{profile}{arm}{share}{number}"
                note = TrialData(arm, unit, share, profile, int(not request), rng.random() < often, 1, 0)
                kind = outcome if arm == "rewrite" else "observed"
                found = exchange(at=BEGIN + number, outcome=kind, input=1000, trial=note)
                if arm == "measure":
                    found.would_have_paid, found.could_save = found.paid, 0.1
                writer.note(found, "", is_lost=False, observed=False)
    writer.close()


def test_without_a_trial_it_says_how_to_begin_one(file: Path) -> None:
    assert gain().stdout == f"{NO_CONVERSATIONS}\n"
    writer = UsageWriter(file)
    writer.note(exchange(), "", is_lost=False, observed=False)
    writer.close()
    with closing(sqlite3.connect(file)) as known:
        assert not known.execute("SELECT 1 FROM sqlite_master WHERE name = 'trial'").fetchall(), "as it always was"
    assert gain().stdout == f"{NO_CONVERSATIONS}\n"
    assert trial()["arms"]["rewrite"]["conversations"] == 0


def test_too_few_are_not_compared(file: Path) -> None:
    keep(file, LEAST_UNITS - 1, {"rewrite": 0.1, "measure": 0.1})
    said = gain().stdout.splitlines()
    assert said == [
        "Trial of profile lossless since 2026-09-21:",
        "9 conversations rewritten (90 requests), 9 conversations only measured (90 requests).",
        "Too few conversations to compare: each group needs at least 10. Try again later.",
    ]
    assert not trial()["enough"]
    assert trial()["differences"] == {}


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ({"rewrite": 0.4, "measure": 0.05}, "Rewritten conversations re-read files more often, by at least +"),
        ({"rewrite": 0.05, "measure": 0.4}, "Rewritten conversations re-read files less often; "),
        ({"rewrite": 0.1, "measure": 0.1}, "Re-reads rise by at most "),
    ],
    ids=["more", "less", "as often"],
)
def test_a_difference_that_is_there_has_its_sign(file: Path, again: dict[str, float], words: str) -> None:
    keep(file, 40, again)
    told = gain().stdout
    assert words in told
    assert "no difference" not in told.lower()
    found = trial()
    each = found["differences"]["rereads_per_100_requests"]
    true = 100 * (again["rewrite"] - again["measure"])
    assert each["low"] < true < each["high"]
    assert (each["low"] > 0, each["high"] < 0) == (true > 0, true < 0)
    assert found["arms"]["measure"]["saved"] == 0 < found["arms"]["rewrite"]["saved"]
    assert found["margin_per_100_requests"] == pytest.approx(100 * 0.25 / (0.25 + 0.125))


def test_it_says_how_many_more_are_needed(file: Path) -> None:
    keep(file, 12, {"rewrite": 0.2, "measure": 0.2})
    more = trial()["more_conversations"]
    assert f"Excluding +5.0 takes about {more['to_exclude_5']:,} more conversations" in gain().stdout


def test_rare_things_have_no_interval_yet(file: Path) -> None:
    keep(file, 12, {"rewrite": 0.0, "measure": 0.0})
    told = gain().stdout
    assert "only 0 seen so far" in told
    assert "Re-reads: no result yet (only 0 seen so far)." in told


def test_others_are_left_out_and_named(file: Path) -> None:
    keep(file, 11, {"rewrite": 0.1, "measure": 0.1})
    keep(file, 2, {"rewrite": 0.1}, profile="recoverable")
    keep(file, 12, {"rewrite": 0.1, "measure": 0.1})
    keep(file, 1, {"rewrite": 0.1}, outcome="off")
    found = trial()
    assert (found["profile"], found["left_out"], found["other_profiles"]) == ("lossless", 1, 2)
    assert "1 conversation not included: rewriting was paused." in gain().stdout


def test_a_share_that_was_changed_is_told(file: Path) -> None:
    keep(file, 9, {"rewrite": 0.1, "measure": 0.1}, share=0.25)
    keep(file, 9, {"rewrite": 0.1, "measure": 0.1})
    assert "at one share of --trial, each group needs at least 10" in gain().stdout
    keep(file, 11, {"rewrite": 0.1, "measure": 0.1})
    told = gain().stdout
    assert "11 conversations rewritten (200 requests), 11 conversations only measured (200 requests)." in told
    assert "18 conversations with --trial 0.25 not included: a group has fewer than 10" in told
    keep(file, 12, {"rewrite": 0.1, "measure": 0.1}, share=0.75)
    told = " ".join(gain().stdout.split())
    assert (
        "The groups are compared at each share, then averaged: 0.75 (12 rewritten, 12 not), 0.5 (11 rewritten" in told
    )
    assert trial()["shares"] == [
        {"share": 0.75, "measure": 12, "rewrite": 12, "compared": True},
        {"share": 0.5, "measure": 11, "rewrite": 11, "compared": True},
        {"share": 0.25, "measure": 9, "rewrite": 9, "compared": False},
    ]
    assert trial()["arms"]["rewrite"]["conversations"] == 23


def test_what_is_said_allows_for_looking_again(file: Path) -> None:
    """The interval for one look excludes nothing by a little, the one for all looks does not."""
    keep(file, 40, {"rewrite": 0.13, "measure": 0.1})
    each, told = trial()["differences"]["rereads_per_100_requests"], gain().stdout
    assert each["ever_low"] < 0 < each["low"] < each["high"] < each["ever_high"]
    assert f"Re-reads rise by at most {each['ever_high']:.1f} per 100 requests" in told
    assert "stay valid if you check repeatedly. Intervals in the table assume one planned check." in told


def test_what_is_forgotten_is_gone(file: Path) -> None:
    keep(file, 1, {"rewrite": 0.1})
    assert usage_db.delete_usage(file).requests == 10
    assert gain().stdout == f"{NO_CONVERSATIONS}\n"


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    found = simulated(200, 60, Truth(extra=3.0, saving=0.11))
    for key, told in found.told.items():
        assert told > 180
        assert 0.90 <= found.held[key] / told <= 0.99, key


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of made-up conversations: `python -m benchmarks.trial_coin`."""
    draw_comparison(compare_variants(made_up(120, Truth(), SHOWN_SEED)), "", UTC)
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert f"```text\n{printed}\n```" in (ROOT / "docs" / "proxy.md").read_text(encoding="utf-8")
