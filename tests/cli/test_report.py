"""`ibidem report` at a prompt: what it finds, prints and writes in homes that are made up here, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ibidem.billing.cache_ttl import IdleTimes
from ibidem.billing.idle_times import load_idle_times
from ibidem.cli import main
from ibidem.cli.report.command import CACHING
from ibidem.environment import cache_folder
from ibidem.replay.caching_replay import CACHING_NAMES
from ibidem.strategies.profiles import PROFILES
from tests.recordings.claude_code import OPUS
from tests.recordings.codex import EXAMPLES as CODEX
from tests.report.test_report import TWICE, log

SAMPLE = "No agent logs found on this machine. This is the bundled sample."
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|9\d)m")
PLACES = (
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "OPENCODE_DB", "NO_COLOR", "FORCE_COLOR", "COLUMNS"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_home(tmp_path, monkeypatch)


def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """And nothing that leads elsewhere."""
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("LOCALAPPDATA", str(folder / "AppData" / "Local"))
    monkeypatch.setenv("COLUMNS", "100")
    return folder


def run(*args: str | Path) -> Result:
    command = ["report", *map(str, args)]
    return CliRunner().invoke(main, command, catch_exceptions=False)


def process(*args: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> Any:
    command = [sys.executable, "-m", "ibidem.cli", "report", *map(str, args)]
    usual: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, "check": False}
    return subprocess.run(command, env={**os.environ, "TERM": "xterm", **(env or {})}, **(usual | options))


def the_error(result: Result) -> str:
    """The one line that was said, after its beginning."""
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("ibidem: "), line
    return line.removeprefix("ibidem: ")


def figures(*args: str | Path) -> dict[str, Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0
    assert result.stderr == (wrote(args[args.index("--html") + 1]) if "--html" in args else "")
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def wrote(page: str | Path) -> str:
    return f"ibidem: wrote {page}\n"


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def tree(folder: Path) -> dict[str, tuple[bytes, int] | None]:
    """All that is in a folder, with content and time."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def a_log(tmp_path: Path) -> Path:
    return put(tmp_path / "logs" / "a.jsonl", log(*TWICE))


# --- which logs ---------------------------------------------------------------------------------


def test_in_a_home_without_logs_the_sample_is_shown(home: Path) -> None:
    result = run()
    assert (result.exit_code, result.stderr) == (0, "")
    assert SAMPLE in result.stdout
    assert "1 session" in result.stdout
    value = figures()
    assert (value["sample"], value["totals"]["sessions"]) == (True, 1)
    assert value["totals"]["profiles"]["lossless"]["saved"] > 0
    assert tree(home) == {}


def test_the_logs_of_the_agents_on_this_machine_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claude = put(home / ".claude/projects/x/y.jsonl", log(*TWICE))
    codex = put(home / "elsewhere/sessions/2026/rollout-1.jsonl", CODEX[0].data)
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))
    value = figures("--all", "--jobs", "1")
    assert value["sample"] is False
    assert {each["path"]: each["agent"] for each in value["sessions"]} == {
        str(claude): "claude-code",
        str(codex): "codex",
    }
    assert set(value["agents"]) == {"claude-code", "codex"}
    assert SAMPLE not in run("--all", "--jobs", "1").stdout


def test_logs_that_are_named_are_the_only_ones(home: Path, a_log: Path) -> None:
    put(home / ".claude/projects/x/y.jsonl", log(*TWICE, id="b"))
    assert [each["path"] for each in figures(a_log)["sessions"]] == [str(a_log)]
    assert [each["path"] for each in figures(a_log.parent)["sessions"]] == [str(a_log)]


def test_a_log_that_is_named_twice_counts_once(a_log: Path) -> None:
    assert figures(a_log, a_log.parent, a_log, "--jobs", "1")["totals"]["files"] == 1


def test_a_log_that_is_named_in_two_ways_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "logs" / "rollout-1.jsonl", CODEX[0].data)
    monkeypatch.chdir(path.parent)
    assert figures(path, path.name, "--jobs", "1")["totals"]["sessions"] == 1


def test_logs_and_files_that_are_none_may_be_mixed(a_log: Path) -> None:
    notes = put(a_log.parent / "notes.json", b'{"a": 1}')
    result = run(a_log.parent, "--jobs", "1")
    assert result.exit_code == 0
    assert f"Not read: {notes.name}" in result.stdout.replace(f"{notes.parent}{os.sep}", "").replace("\n", " ")
    assert [each["path"] for each in figures(a_log.parent, "--jobs", "1")["unread"]] == [str(notes)]


def test_what_gave_nothing_is_named_beside_the_table_too(tmp_path: Path) -> None:
    notes = put(tmp_path / "notes.json", b'{"a": 1}')
    result = run(tmp_path, "--csv", "--jobs", "1")
    assert f"Not read: {notes}: not a log of an agent that is known here" in result.stderr
    assert "Not read" not in result.stdout
    assert "No session was found (1 file" in run(tmp_path, "--jobs", "1").stdout


WRONG = {"empty.jsonl": b"", "notes.json": b'{"a": 1}', "picture.jsonl": b"\x89PNG\x00\xff", "broken.json": b'{"a": '}


@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["as text", "as JSON"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_of_wrong_files_ends_with_2_and_names_them_all(tmp_path: Path, extra: list[str], jobs: str) -> None:
    for name, data in WRONG.items():
        put(tmp_path / "logs" / name, data)
    result = run(tmp_path / "logs", "--jobs", jobs, *extra)
    assert result.exit_code == 2
    assert all(name in result.output for name in WRONG)
    assert "Traceback" not in result.output
    if extra:
        assert {Path(each["path"]).name for each in json.loads(result.stdout)["unread"]} == set(WRONG)


@pytest.mark.parametrize(
    ("make", "args", "words"),
    [
        pytest.param(None, ["gone"], "gone: no such file or folder: check the path", id="a path that leads nowhere"),
        pytest.param(None, ["a\nb\x1b[31m"], "a\\nb\\x1b[31m: no such file", id="a name that could break its line"),
        pytest.param("logs/", ["logs"], "logs: no logs in this folder: pass another", id="an empty folder"),
        pytest.param("logs/readme.md", ["logs"], "logs: no logs in this folder", id="a folder without a log"),
        pytest.param("logs/a.jsonl", ["logs", "gone"], "gone: no such file or folder", id="one good and one missing"),
        pytest.param("a.jsonl", ["a.jsonl/b.jsonl"], "no such file or folder", id="a path through a file"),
    ],
)
def test_paths_without_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str | None, args: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if make and make.endswith("/"):
        Path(make).mkdir()
    elif make:
        put(Path(make), log(*TWICE))
    assert words in the_error(run(*args))


def test_an_empty_folder_at_a_url(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    (tmp_path / "logs").mkdir()
    assert "no logs in this folder" in the_error(run((tmp_path / "logs").as_uri()))


def test_a_url_of_an_unknown_kind() -> None:
    pytest.importorskip("fsspec")
    assert "please report it" not in the_error(run("nosuch://a/b.jsonl"))


# --- what is asked for --------------------------------------------------------------------------


def test_several_profiles_are_compared_in_the_order_they_are_named(a_log: Path) -> None:
    named = ["--profile", "devboy", "--profile", "lossless", "--profile", "devboy"]
    value = figures(a_log, *named)
    assert value["profiles"] == ["devboy", "lossless"]
    assert list(value["totals"]["profiles"]) == ["devboy", "lossless"]
    page = run(a_log, *named).stdout
    assert page.index("devboy") < page.index("lossless")
    assert figures(a_log)["profiles"] == ["lossless", "recoverable"]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_can_be_asked_for(a_log: Path, profile: str) -> None:
    assert list(figures(a_log, "--profile", profile)["totals"]["profiles"]) == [profile]


def test_csv_has_a_line_per_session(a_log: Path) -> None:
    result = run(a_log, "--csv")
    [row] = csv.DictReader(io.StringIO(result.stdout))
    assert (result.exit_code, row["path"], row["model"]) == (0, str(a_log), OPUS)
    assert float(row["lossless_cost"]) == figures(a_log)["totals"]["profiles"]["lossless"]["cost"]


def test_the_optimum_is_told_when_it_is_asked_for(a_log: Path, tmp_path: Path) -> None:
    looking: tuple[str | Path, ...] = (a_log, "--profile", "recoverable")
    assert "optimum" not in figures(*looking)["totals"]["profiles"]["recoverable"]["worlds"]["hit"]
    worlds = figures(*looking, "--optimum")["totals"]["profiles"]["recoverable"]["worlds"]
    assert all(world["optimum"]["cost"] <= world["cost"] for world in worlds.values())
    assert "recoverable_optimum_cost" in run(*looking, "--optimum", "--csv").stdout.splitlines()[0]
    assert "optimum" not in run(*looking).stdout
    assert "optimum" in run(*looking, "--optimum", "--html", tmp_path / "page.html").stdout
    assert "Optimum" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_everything_can_be_priced_as_another_model(a_log: Path) -> None:
    usual, other = figures(a_log), figures(a_log, "--price-as", "claude-haiku-4-5")
    assert other["totals"]["baseline"]["cost"] == pytest.approx(usual["totals"]["baseline"]["cost"] / 5)
    assert other["sessions"][0]["model"] == OPUS


def test_prices_of_ones_own(a_log: Path, tmp_path: Path) -> None:
    prices = put(tmp_path / "prices.json", json.dumps({OPUS: {"input": 1}, "mine": {"input": 2}}).encode())
    one, two = figures(a_log, "--prices", prices), figures(a_log, "--prices", prices, "--price-as", "mine")
    assert two["totals"]["baseline"]["cost"] == pytest.approx(2 * one["totals"]["baseline"]["cost"])


BAD = {
    "an unknown model": (["--price-as", "house-model-7"], ["'house-model-7' is not in the price list"]),
    "an unknown profile": (["--profile", "gzip"], ["'gzip'", "'lossless'"]),
    "no number of jobs": (["--jobs", "0"], ["--jobs", "0"]),
    "jobs that are no number": (["--jobs", "all"], ["--jobs", "all"]),
    "JSON and CSV at once": (["--json", "--csv"], ["--json and --csv exclude each other (see ibidem report --help)"]),
    "an optimum of no moments": (
        ["--optimum", "--profile", "lossless"],
        ["--optimum needs a profile that evicts text: add --profile recoverable"],
    ),
    "a cluster without an address": (
        ["--engine", "dask"],
        ["--engine dask and --scheduler ADDRESS need each other: pass both"],
    ),
    "an address without a cluster": (["--scheduler", "tcp://127.0.0.1:1"], ["--engine dask and --scheduler"]),
    "an unknown engine": (["--engine", "spark"], ["'spark'", "'dask'"]),
    "an unknown option": (["--frobnicate"], ["--frobnicate", "see ibidem report --help"]),
    "a price file that is not there": (["--prices", "gone.json"], ["gone.json: no such file or folder"]),
    "a price file that is a folder": (["--prices", "."], [".: this is a folder: name a file"]),
    "a price file that is no JSON": (["--prices", "broken.json"], ["broken.json: not valid JSON", "correct it there"]),
    "a price file with a wrong field": (["--prices", "field.json"], ["field.json: mine: unknown field 'colour'"]),
    "a price file with a wrong price": (["--prices", "price.json"], ["price.json: mine: 'input' must be a number"]),
    "a page in no folder": (["--html", "gone/page.html"], ["gone/page.html: no such file or folder"]),
    "a page that is a folder": (["--html", "."], [".: this is a folder"]),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_done_is_one_line(a_log: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    args, words = BAD[case]
    monkeypatch.chdir(a_log.parent.parent)
    put(Path("broken.json"), b'{"mine": ')
    put(Path("field.json"), b'{"mine": {"input": 1, "colour": 5}}')
    put(Path("price.json"), b'{"mine": {"input": "1"}}')
    before = tree(a_log.parent)
    said = the_error(run(a_log, *args))
    assert all(word in said for word in words), said
    assert "please report it" not in said
    assert tree(a_log.parent) == before


def test_a_model_without_a_name_is_not_known(a_log: Path) -> None:
    assert "not in the price list" in the_error(run(a_log, "--price-as", ""))


def test_a_price_file_that_is_nested_too_deeply(a_log: Path, tmp_path: Path) -> None:
    prices = put(tmp_path / "prices.json", b"[" * 100_000)
    assert "please report it" not in the_error(run(a_log, "--prices", prices))


# --- where things go ----------------------------------------------------------------------------


def test_a_page_is_written_whole_and_the_text_as_well(a_log: Path, tmp_path: Path) -> None:
    page = put(tmp_path / "page.html", b"old" * 1_000_000)
    result = run(a_log, "--html", page)
    assert (result.exit_code, result.stderr) == (0, wrote(page))
    assert "what it costs" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert text.rstrip().lower().endswith("</html>")
    assert "old" * 9 not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "logs", "page.html"]


def test_a_page_on_standard_output_stands_alone(a_log: Path) -> None:
    result = run(a_log, "--html", "-", "--json")
    assert result.stdout.rstrip().lower().endswith("</html>")
    assert json.loads(result.stderr)["totals"]["sessions"] == 1


def test_json_stays_on_standard_output_beside_a_page(a_log: Path, tmp_path: Path) -> None:
    assert figures(a_log, "--html", tmp_path / "page.html")["totals"]["sessions"] == 1
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_nothing_is_written_but_the_cache_and_counts_of_pauses(home: Path, a_log: Path) -> None:
    put(home / ".claude/projects/x/y.jsonl", log(*TWICE, id="b"))
    before = tree(home.parent)
    given: list[list[str | Path]] = [[], [a_log, "--json"], [a_log, "--csv"]]
    for args in given:
        assert run(*args).exit_code == 0
    cache, pauses = "home/.cache/ibidem/report.sqlite", "home/.local/share/ibidem/pauses.json"
    folders = {"home/.cache", "home/.cache/ibidem", "home/.local", "home/.local/share", "home/.local/share/ibidem"}
    after = tree(home.parent)
    assert after.keys() - before.keys() == {*folders, cache, pauses} or sys.platform != "linux"
    assert {name: after[name] for name in before} == before
    assert os.name == "nt" or stat.S_IMODE((home.parent / cache).stat().st_mode) == 0o600


def test_pauses_are_kept_of_the_logs_of_this_machine_only(home: Path, a_log: Path) -> None:
    """Counts, so that `wrap` and `proxy` know the user; a log that is named may be anybody's."""
    assert run(a_log).exit_code == 0
    assert load_idle_times() == IdleTimes()
    assert run().exit_code == 0  # the sample
    assert load_idle_times() == IdleTimes()
    rows = [json.loads(line) for line in log(*TWICE, id="b", prompts=4).splitlines()]
    begun = datetime.now(UTC) - timedelta(days=3)
    for number, row in enumerate(rows):
        row["timestamp"] = (begun + timedelta(minutes=6 * number)).isoformat()
    mine = put(home / ".claude/projects/x/y.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    assert run("--no-cache").exit_code == 0
    assert load_idle_times() == IdleTimes()
    for _ in range(2):  # from the cache of the report as well
        assert run().exit_code == 0
        assert load_idle_times() == IdleTimes((0, 4, 0), (0, len(TWICE), 0), 1)
    mine.unlink()
    put(home / ".claude/projects/x/y.jsonl", log(*TWICE, id="b", prompts=4))
    assert run().exit_code == 0
    assert load_idle_times() == IdleTimes()  # it is years old


def test_caching_that_was_asked_for_in_other_ways(a_log: Path, tmp_path: Path) -> None:
    assert CACHING == CACHING_NAMES
    value = figures(a_log, "--caching", "auto", "--caching", "none", "--caching", "none")
    assert [*value["totals"]["caching"]] == ["none", "auto"]
    assert figures(a_log)["totals"]["caching"] == {}
    said = run(a_log, "--caching", "1h", "--html", tmp_path / "page.html").stdout
    assert re.search(r"^1 hour +\$", said, re.MULTILINE)
    assert "Other caching modes" in (tmp_path / "page.html").read_text()
    assert "'2h' is not one of 'recorded', 'none', '5m', '1h', 'auto'" in the_error(run(a_log, "--caching", "2h"))


def test_without_a_cache_nothing_is_written_at_all(home: Path, a_log: Path) -> None:
    put(home / ".claude/projects/x/y.jsonl", log(*TWICE, id="b"))
    before = tree(home.parent)
    assert run("--no-cache").exit_code == 0
    assert run(a_log, "--no-cache", "--json").exit_code == 0
    assert tree(home.parent) == before


def test_the_second_run_says_the_same(a_log: Path) -> None:
    first = run(a_log, "--json").stdout
    assert run(a_log, "--json").stdout == run(a_log, "--json", "--no-cache").stdout == first


def test_a_cache_that_cannot_be_used_does_not_matter(
    a_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(put(tmp_path / "file", b"")))
    assert figures(a_log)["totals"]["sessions"] == 1
    assert (tmp_path / "file").read_bytes() == b""


FOLDERS = {
    "Linux": ("linux", {}, ".cache/ibidem"),
    "Linux, moved": ("linux", {"XDG_CACHE_HOME": "moved"}, "moved/ibidem"),
    "a Mac": ("darwin", {}, "Library/Caches/ibidem"),
    "Windows": ("win32", {"LOCALAPPDATA": "AppData/Local"}, "AppData/Local/ibidem/Cache"),
    "Windows without the variable": ("win32", {"LOCALAPPDATA": ""}, "AppData/Local/ibidem/Cache"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_the_cache_is_where_this_machine_keeps_such_things(
    home: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    platform, variables, expected = FOLDERS[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, str(home / value) if value else "")
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == home / expected


# --- as a process -------------------------------------------------------------------------------


@pytest.mark.slow
def test_colour_is_for_those_who_want_it(a_log: Path) -> None:
    def coloured(*args: str, **env: str) -> bool:
        done = process(a_log, "--jobs", "1", *args, env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        return bool(COLOUR.search(done.stdout.decode()))

    assert coloured(FORCE_COLOR="1")
    assert not coloured(FORCE_COLOR="1", NO_COLOR="1")
    assert not coloured("--no-color", FORCE_COLOR="1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code"),
    [
        pytest.param([], 0, id="the sample"),
        pytest.param(["gone"], 2, id="a missing path"),
        pytest.param(["--json", "--csv"], 2, id="flags that exclude each other"),
    ],
)
def test_exit_codes(args: list[str], code: int) -> None:
    done = process(*args)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == (code == 2)
    assert done.stderr.startswith(b"ibidem: ") == (code == 2)
    assert (done.stdout == b"") == (code == 2)


@pytest.mark.slow
def test_a_log_with_anything_in_it_gives_no_traceback(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    for name, data in WRONG.items():
        put(folder / name, data)
    put(folder / "a\nb\x1b[31m.jsonl", log(*TWICE, project="/\x1b[31m\n[bold]"))
    put(folder / "long.jsonl", log(*TWICE, id="b", project="/" + "long" * 100))
    done = process(folder, "--jobs", "1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert b"Traceback" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="terminals of another kind")
def test_who_watches_sees_progress_and_nothing_of_it_in_the_figures(tmp_path: Path) -> None:
    import pty

    for n in range(3):
        put(tmp_path / "logs" / f"{n}.jsonl", log(*TWICE, id=f"x{n}"))
    ours, theirs = pty.openpty()
    try:
        done = process(tmp_path / "logs", "--json", "--jobs", "1", stderr=theirs)
        assert b"reading logs" in os.read(ours, 100_000)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 0
    assert json.loads(done.stdout)["totals"]["sessions"] == 3


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize("args", [[], ["--html", "-"]], ids=["text", "a page"])
def test_a_full_disk_is_an_error_like_any_other(args: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = process(*args, stdout=full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(b"ibidem: standard output: the disk is full")
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="pipes of another kind")
def test_a_reader_that_goes_ends_it_quietly(tmp_path: Path) -> None:
    for n in range(100):  # more than a pipe takes in before somebody reads
        put(tmp_path / "logs" / f"{n}.jsonl", log("a.py", id=f"x{n}"))
    command = [sys.executable, "-m", "ibidem.cli", "report", str(tmp_path / "logs"), "--json", "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stderr
        assert running.stdout.read(1) == b"{"
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 141
