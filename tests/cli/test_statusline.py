"""`ibidem statusline`: one line whatever comes in, and nothing loaded that it does not need."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ibidem import usage_db
from ibidem.cli.statusline_text import (
    DATABASE_VERSION,
    MAX_COLUMNS,
    NO_DATA,
    StatuslineTotals,
    format_line,
    usage_db_path,
)
from tests.test_usage_db import exchange, write, write_first_build

STATUS: dict[str, Any] = {
    "session_id": "3f0c9a4e",
    "model": {"id": "claude-opus-5", "display_name": "Opus\x1b[31m"},
    "cost": {"total_cost_usd": 0.4213},
    "context_window": {
        "context_window_size": 200_000,
        "current_usage": {
            "input_tokens": 12,
            "output_tokens": 900,
            "cache_creation_input_tokens": 1988,
            "cache_read_input_tokens": 43_000,
        },
    },
    "prompt_cache": {"requests": 20, "misses": 2, "hit_ratio": 0.93, "last_miss_cause": "\x1b]0;title\x07"},
}
CONTEXT = "context 45k of 200k (22%)"


def process(data: bytes, home: Path) -> subprocess.CompletedProcess[bytes]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
    command = [sys.executable, "-m", "ibidem.cli", "statusline"]
    env = {**kept, "HOME": str(home)}
    return subprocess.run(command, input=data, env=env, capture_output=True, timeout=60, check=False)


def with_(**changes: Any) -> dict[str, Any]:
    return {**STATUS, **changes}


@pytest.mark.parametrize(
    ("status", "session", "shown"),
    [
        pytest.param(STATUS, None, f"cost $0.42 | {CONTEXT} | cache 93% hit, 2 misses", id="the client's own figures"),
        pytest.param(
            STATUS,
            StatuslineTotals(0.3, 0.1),
            f"paid $0.30, saved $0.10 (25%) | {CONTEXT} | cache 93% hit, 2 misses",
            id="with a ledger: paid and saved",
        ),
        pytest.param(
            with_(prompt_cache=None, context_window={}),
            StatuslineTotals(2.0, -0.05),
            "paid $2.00, saved -$0.0500",
            id="a loss",
        ),
        pytest.param(
            with_(prompt_cache=None, context_window={}),
            StatuslineTotals(2.0, 1.0, True, 0.31),
            "worth $2.00 at list prices, 31% of input tokens saved",
            id="on a subscription",
        ),
        pytest.param(
            with_(prompt_cache=None, context_window={}, rate_limits={"five_hour": {"used_percentage": 12}}),
            None,
            "worth $0.42 at list prices",
            id="on a subscription, as the status says",
        ),
        pytest.param(
            with_(prompt_cache={"misses": 1}, context_window=[]), None, "cost $0.42 | cache 1 miss", id="one miss"
        ),
        pytest.param({"prompt_cache": {"hit_ratio": 1}}, None, "cache 100% hit", id="a ratio alone"),
        pytest.param(
            {"context_window": {"current_usage": {"input_tokens": 1_200_000}}},
            None,
            "context 1.2M",
            id="a size unknown",
        ),
        pytest.param({"context_window": {"used_percentage": 8}}, None, "context 8%", id="a percentage alone"),
        pytest.param(
            {"context_window": {"context_window_size": 0, "current_usage": None}}, None, NO_DATA, id="no usage"
        ),
        pytest.param({}, None, NO_DATA, id="nothing"),
        pytest.param({"cost": {"total_cost_usd": True}}, None, NO_DATA, id="a cost that is no number"),
        pytest.param({"cost": {"total_cost_usd": float("nan")}}, None, NO_DATA, id="a cost that is not a number"),
        pytest.param({"cost": {"total_cost_usd": -1}}, None, NO_DATA, id="a cost below nothing"),
        pytest.param({"cost": {"total_cost_usd": 10**400}}, None, NO_DATA, id="a cost beyond numbers"),
        pytest.param({"prompt_cache": {"hit_ratio": 93}}, None, NO_DATA, id="a ratio that is none"),
    ],
)
def test_the_line(status: dict[str, Any], session: StatuslineTotals | None, shown: str) -> None:
    assert format_line(status, session) == shown


def test_the_line_is_never_long() -> None:
    most = 1e12
    status = {
        "context_window": {"context_window_size": most, "current_usage": {"input_tokens": most}},
        "prompt_cache": {"hit_ratio": 1.0, "misses": most},
    }
    assert len(format_line(status, StatuslineTotals(most, most))) <= MAX_COLUMNS


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        pytest.param(json.dumps(STATUS).encode(), f"cost $0.42 | {CONTEXT} | cache 93% hit, 2 misses", id="a status"),
        pytest.param(b"", NO_DATA, id="nothing"),
        pytest.param(b"{", NO_DATA, id="JSON that breaks off"),
        pytest.param(b"\xff\xfe\x00garbage\x1b[2J\n\n", NO_DATA, id="garbage"),
        pytest.param(b"[1, 2]", NO_DATA, id="JSON of another kind"),
        pytest.param(b"[" * 100_000, NO_DATA, id="JSON without an end to its depth"),
        pytest.param(b'{"cost": {"total_cost_usd": 1' + b"0" * 5000 + b"}}", NO_DATA, id="a number without end"),
        pytest.param(b'{"session_id": "' + b"x" * (2 << 20) + b'"}', NO_DATA, id="more than is read"),
        pytest.param(b'{"session_id": "../../etc\\u0000"}', NO_DATA, id="an id of no session"),
    ],
)
def test_whatever_comes_in_one_line_goes_out(data: bytes, shown: str, tmp_path: Path) -> None:
    done = process(data, tmp_path)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{shown}\n", b"")
    assert not list(tmp_path.iterdir()), "a status line writes nothing"


def test_the_ledger_is_read_as_its_own_reader_does(tmp_path: Path) -> None:
    """Paid is input and output there; what was only observed saved nothing."""
    file = tmp_path / ".local/share/ibidem/gains.sqlite3"
    write(file, exchange(1), exchange(2), session="3f0c9a4e")
    write(file, exchange(3), session="3f0c9a4e", observed=True)
    write(file, exchange(4, paid=100.0, would_have_paid=200.0), session="another")
    with usage_db.UsageDatabase(file) as found:
        session = found.session_totals("3f0c9a4e")
    assert session is not None
    paid = session.paid + session.output_paid
    assert (paid, session.saved_dollars) == (0.25 * 3 + 0.125 * 3, 0.5)
    shown = process(json.dumps({"session_id": "3f0c9a4e"}).encode(), tmp_path).stdout.decode()
    assert shown == f"paid ${paid:.2f}, saved $0.50 ({0.5 / (paid + 0.5):.0%})\n"
    for other in ("3f0c9a4", "", "' OR 1=1 --"):
        assert process(json.dumps({"session_id": other}).encode(), tmp_path).stdout.decode() == f"{NO_DATA}\n"


def test_session_on_a_subscription_shows_its_value(tmp_path: Path) -> None:
    file = tmp_path / ".local/share/ibidem/gains.sqlite3"
    write(file, exchange(1, plan=True, removed=130), exchange(2, plan=True, removed=0), session="3f0c9a4e")
    write(file, exchange(3), session="another")
    shown = process(json.dumps({"session_id": "3f0c9a4e"}).encode(), tmp_path).stdout.decode()
    assert shown == "worth $0.75 at list prices, 33% of input tokens saved\n"


def test_ledger_without_later_columns_is_read(tmp_path: Path) -> None:
    file = tmp_path / ".local/share/ibidem/gains.sqlite3"
    file.parent.parent.mkdir(parents=True)
    write_first_build(file)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE exchanges SET session = '3f0c9a4e', observed = 0")
    shown = process(json.dumps({"session_id": "3f0c9a4e"}).encode(), tmp_path).stdout.decode()
    assert shown == "paid $4.00, saved $0.00\n"


@pytest.mark.parametrize("variables", [{}, {"XDG_DATA_HOME": "/else/where"}, {"XDG_DATA_HOME": ""}])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_ledger_is_where_others_find_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], platform: str
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert usage_db_path() == str(usage_db.database_path())
    assert DATABASE_VERSION == usage_db.GAINS_VERSION


@pytest.mark.skipif(os.name == "nt", reason="a shell of another kind")
def test_nobody_has_to_read_or_to_send(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ibidem.cli", "statusline"]
    closed = "exec <&- ; exec " + " ".join(command)
    for shell in (closed, f"{closed} >&-", " ".join(command) + " </dev/null | true"):
        done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b""), shell


HEAVY = {
    "aiohttp",
    "asyncio",
    "click",
    "genai_prices",
    "ibidem.cli.root_group",
    "ibidem.engine",
    "msgspec",
    "rich",
    "splintr",
    "ssl",
    "urllib.request",
    "backports",
    "compression.zstd",
}


def test_nothing_is_loaded_that_is_not_needed(tmp_path: Path) -> None:
    code = (
        "import sys, atexit; sys.argv[1:] = ['statusline']\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from ibidem.cli import launch; launch()"
    )
    env = {**os.environ, "HOME": str(tmp_path)}
    data = json.dumps(STATUS).encode()
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, env=env, capture_output=True, timeout=60, check=True
    )
    loaded = set(done.stderr.decode().split())
    assert "ibidem.cli.statusline_text" in loaded
    assert not HEAVY & loaded


def test_the_command_line_is_as_light_until_it_is_asked_for_a_command() -> None:
    code = "import sys; before = set(sys.modules); import ibidem.cli; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typing", "importlib", "dataclasses", "re", *HEAVY} & set(loaded)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param("ibidem st", {"statusline", "store"}, id="commands"),
        pytest.param("ibidem setup c", {"claude", "codex"}, id="clients"),
    ],
)
def test_shells_complete_what_is_typed(words: str, shown: set[str]) -> None:
    place = str(len(words.split()) - 1)
    env = {**os.environ, "_IBIDEM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run([sys.executable, "-m", "ibidem.cli"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {row.partition(",")[2] for row in done.stdout.split()} == shown


def test_completion_for_a_shell_is_a_script() -> None:
    env = {**os.environ, "_IBIDEM_COMPLETE": "zsh_source"}
    done = subprocess.run([sys.executable, "-m", "ibidem.cli"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "#compdef ibidem" in done.stdout


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_told_by_both_names(option: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ibidem.cli", option], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ibidem ")


def test_its_help_is_that_of_a_command() -> None:
    command = [sys.executable, "-m", "ibidem.cli", "statusline", "--help"]
    assert "Usage: ibidem statusline" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
