"""`ibidem store` and `ibidem recall`: what they print and how they end."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ibidem import environment
from ibidem.cli import main as whole
from ibidem.cli.recall import recall
from ibidem.cli.store import store
from ibidem.store import SqliteStore, reference
from ibidem.store.database import BUSY_SECONDS
from tests.support.locked import EXCLUSIVE, held
from tests.support.modes import mortal

DAY = 86_400
TEXT = "Größe\r\nno newline at the end, a lone \ud800 surrogate, \x1b[0m"

main = click.Group(commands=[store, recall])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store that is used where no other is named, with two sessions in it, one of them ten days old."""
    for name in ("IBIDEM_STORE", "IBIDEM_STORE_DAYS", "IBIDEM_STORE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = tmp_path / "ibidem" / "store.sqlite3"
    with SqliteStore(path, clock=lambda: time.time() - 10 * DAY) as old:
        old.put("old", {reference("old"): "old"})
    with SqliteStore(path) as new:
        new.put("new", {reference(TEXT): TEXT})
    return path


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], standalone_mode=True)


def the_error(result: Result) -> str:
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def left(path: Path) -> list[str]:
    with SqliteStore(path) as found:
        return list(found.get([reference("old"), reference(TEXT)]).values())


def test_recall_prints_the_original_byte_for_byte(path: Path) -> None:
    result = run("recall", reference(TEXT))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == TEXT.encode("utf-8", "surrogatepass")


def test_recall_takes_a_reference_as_it_is_copied(path: Path) -> None:
    assert run("recall", f" {reference('old').upper()} ").stdout == "old"


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        pytest.param(
            "0123456789ab", "0123456789ab: not in the store {path}: pass another store with --store", id="unknown"
        ),
        pytest.param("abc", "abc: not a reference. Pass the 12 hex digits in the marker", id="too short"),
        pytest.param(
            "\x1b[0m", "\\x1b[0m: not a reference. Pass the 12 hex digits in the marker", id="an escape sequence"
        ),
    ],
)
def test_a_reference_that_is_not_there(path: Path, ref: str, words: str) -> None:
    assert the_error(run("recall", ref)) == words.format(path=path)


@pytest.mark.slow
def test_recall_says_soon_that_another_process_keeps_the_store_locked(path: Path) -> None:
    with held(path, *EXCLUSIVE):
        start = time.monotonic()
        said = the_error(run("recall", reference(TEXT)))
        assert time.monotonic() - start < BUSY_SECONDS / 2
    assert said == f"{path}: another process keeps it locked: try again, or end that process"
    with held(path, "BEGIN IMMEDIATE"):
        assert run("recall", reference("old")).stdout == "old", "who writes keeps no reader out"


def test_without_a_command_the_help_is_shown() -> None:
    result = run("store")
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(word in result.stdout for word in ("Usage:", "forget", "stats"))


def test_stats(path: Path) -> None:
    result = run("store", "stats")
    with SqliteStore(path) as found:
        figures = found.stats()
    name, empty, *lines = result.stdout.splitlines()
    assert (result.exit_code, name, empty) == (0, str(path), "")
    assert lines[:3] == [
        "originals  2",
        "sessions   2, with 0 bytes of state",
        f"bytes      {figures.bytes_original}, stored as {figures.bytes_stored}",
    ]
    assert [line.split()[0] for line in lines[3:]] == ["oldest", "newest", "limits"]
    assert lines[5] == (
        "limits     30 days without use, 2,000,000,000 bytes; conversations used in the last 24 hours are never deleted"
    )


@pytest.mark.parametrize(
    ("args", "variables", "shown"),
    [
        pytest.param(["--days", "7"], {}, "7 days without use, 2,000,000,000 bytes", id="days"),
        pytest.param(["--bytes", "1000000"], {}, "30 days without use, 1,000,000 bytes", id="bytes"),
        pytest.param(["--days", "0", "--bytes", "0"], {}, "no age limit, no size limit", id="none"),
        pytest.param([], {"DAYS": "1.5", "BYTES": "99"}, "1.5 days without use, 99 bytes", id="variables"),
        pytest.param(["--days", "3"], {"DAYS": "x2", "BYTES": "0"}, None, id="a variable that is no number"),
        pytest.param(["--bytes", "1"], {"BYTES": "2", "DAYS": "0"}, "no age limit, 1 bytes", id="both"),
    ],
)
def test_limits(
    path: Path, args: list[str], variables: dict[str, str], shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"IBIDEM_STORE_{name}", value)
    result = run("store", "stats", *args)
    if shown is None:
        assert the_error(result) == (
            "IBIDEM_STORE_DAYS: 'x2' cannot be used: use a number of days, 1 or more, or 0 for no limit"
        )
    else:
        assert f"limits     {shown}; conversations used" in result.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["--days", "0.5"], "use a number of days, 1 or more, or 0 for no limit", id="half a day"),
        pytest.param(["--days", "nan"], "use a number of days, 1 or more, or 0 for no limit", id="no number"),
        pytest.param(["--bytes", "-1"], "use a number of bytes, or 0 for no limit", id="less than nothing"),
    ],
)
def test_limits_that_cannot_be(path: Path, args: list[str], words: str) -> None:
    assert words in the_error(run("store", "prune", *args))


def test_more_than_the_limit_is_told(path: Path) -> None:
    with SqliteStore(path) as found:
        kept = found.stats().bytes_kept
    last = run("store", "stats", "--bytes", "1").stdout.splitlines()[-1]
    assert last == (
        f"over       {kept - 1} bytes: `ibidem store prune` deletes old ones, but none used in the last 24 hours"
    )
    assert json.loads(run("store", "stats", "--bytes", "1", "--json").stdout)["bytes_over"] == kept - 1


@pytest.mark.parametrize(
    ("args", "printed", "kept"),
    [
        pytest.param([], "0 originals deleted", ["old", TEXT], id="nothing is over"),
        pytest.param(["--days", "9.5"], "1 original deleted", [TEXT], id="ten days"),
        pytest.param(["--bytes", "1"], "1 original deleted", [TEXT], id="a byte: what is in use stays"),
    ],
)
def test_prune(path: Path, args: list[str], printed: str, kept: list[str]) -> None:
    result = run("store", "prune", *args)
    assert (result.exit_code, result.stdout) == (0, f"{printed}\n")
    assert sorted(left(path)) == sorted(kept)


def test_stats_as_json(path: Path) -> None:
    found = json.loads(run("store", "stats", "--json").stdout)
    sizes = ["bytes_stored", "bytes_original", "oldest", "newest", "bytes_states"]
    assert list(found) == ["store", "originals", "sessions", *sizes, "limits", "bytes_over"]
    assert found["limits"] == {"max_age": 30 * DAY, "max_bytes": 2_000_000_000, "live_for": DAY}
    assert found["bytes_over"] == 0
    assert (found["store"], found["originals"], found["sessions"]) == (str(path), 2, 2)
    assert found["newest"] - found["oldest"] == pytest.approx(10 * DAY, abs=60)


@pytest.mark.parametrize(
    ("args", "printed", "kept"),
    [
        pytest.param(["old"], "1 original deleted", [TEXT], id="a session"),
        pytest.param(["unknown"], "0 originals deleted", ["old", TEXT], id="an unknown session"),
        pytest.param(["--all"], "2 originals deleted", [], id="everything"),
        pytest.param(["--older-than", "9.5"], "1 original deleted", [TEXT], id="what is older"),
        pytest.param(["--older-than", "11"], "0 originals deleted", ["old", TEXT], id="nothing is so old"),
    ],
)
def test_forget(path: Path, args: list[str], printed: str, kept: list[str]) -> None:
    result = run("store", "forget", *args)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{printed}\n", "")
    assert sorted(left(path)) == sorted(kept)


def test_forget_as_json(path: Path) -> None:
    assert json.loads(run("store", "forget", "--all", "--json").stdout) == {"forgotten": 2}


@pytest.mark.parametrize("args", [[], ["old", "--all"], ["--all", "--older-than", "1"]])
def test_forget_wants_one_answer(path: Path, args: list[str]) -> None:
    assert the_error(run("store", "forget", *args)) == "Pass one of SESSION, --all and --older-than DAYS"
    assert len(left(path)) == 2


@pytest.mark.parametrize(
    "command", [["store", "stats"], ["store", "forget", "--all"], ["store", "prune"], ["recall", "0123456789ab"]]
)
def test_looking_makes_no_store(path: Path, tmp_path: Path, command: list[str]) -> None:
    missing = tmp_path / "missing" / "store.db"
    result = run(*command, "--store", missing)
    assert result.exit_code == (2 if command[0] == "recall" else 0)
    assert str(missing) in result.output or command[1] in ("forget", "prune")
    assert not missing.parent.exists()


@pytest.mark.parametrize(
    "command", [["store", "stats"], ["store", "forget", "--all"], ["store", "prune"], ["recall", "0123456789ab"]]
)
def test_a_file_that_is_no_store(path: Path, tmp_path: Path, command: list[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("notes " * 1_000)
    assert the_error(run(*command, "--store", other)).startswith(f"{other}: this is damaged or not a database")
    assert other.read_text() == "notes " * 1_000


COMMANDS = [["store", "stats"], ["store", "forget", "--all"], ["recall", "0123456789ab"]]


@pytest.mark.parametrize("command", [*COMMANDS, ["recall-server"], ["proxy"], ["wrap", "--", "true"]])
@pytest.mark.parametrize(
    "target",
    [
        "redis://:hidden@localhost",
        "rediss://me:hidden@localhost:1/0",
        "redis://localhost?password=hidden",
        "unix://:hidden@/run/redis.sock",
        "redis://:hid@hidden@localhost",
        "redis://:1/hidden@localhost",
        "REDIS://:hidden@localhost",
    ],
)
def test_a_password_is_refused_on_a_command_line(command: list[str], target: str) -> None:
    place = command.index("--") if "--" in command else len(command)
    result = CliRunner().invoke(whole, [*command[:place], "--store", target, *command[place:]])
    assert result.exit_code == 2
    words = "--store: others can see a password on a command line: put the address in IBIDEM_STORE"
    assert result.output == f"ibidem: {words}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_password_in_the_variable_is_used_and_not_shown(
    redis_url: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("", "nobody"):  # whom the server does not know
        monkeypatch.setenv("IBIDEM_STORE", redis_url.replace("://", f"://{user}:hidden@"))
        result = run(*command)
        assert (result.exit_code == 2) >= bool(user)
        assert "127.0.0.1" in result.output or command[1] == "forget"
        assert "hidden" not in result.output


@pytest.mark.parametrize(
    "target",
    ["redis://:hidden/2@localhost", "redis://:12#hidden@localhost", "redis:/:hidden@localhost", "redis::hidden@x"],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_password_in_an_address_that_is_none_is_not_shown(
    target: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IBIDEM_STORE", target)
    said = the_error(run(*command))
    assert "hidden" not in said
    assert "12" not in said
    assert said.startswith("redis: ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_a_path_that_cannot_be_read_is_named(tmp_path: Path, command: list[str], name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name / "store.db"
    result = CliRunner().invoke(whole, [*command, "--store", str(path)])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert result.output.startswith(f"ibidem: {path}: ")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root cannot be bound by modes here")
@pytest.mark.parametrize("command", [*COMMANDS, ["proxy", "--port", "0"]])
def test_a_home_that_cannot_be_searched_is_named(tmp_path: Path, command: list[str]) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0)
    env = {name: text for name, text in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-m", "ibidem.cli", *command],
        env={**env, "HOME": str(home)},
        preexec_fn=mortal,
        capture_output=True,
        text=True,
        check=False,
    )
    home.chmod(0o700)
    name = ".config/ibidem/ibidem.toml" if command[0] == "proxy" else ".local/share/ibidem/store.sqlite3"
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"ibidem: {home / name}: Permission denied: ")


def test_what_standard_output_does_not_take_is_said_of_standard_output(path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ibidem.cli", "store", "stats"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "ibidem: standard output: the disk is full: make room and run again\n"


def test_the_environment_names_the_store(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.db"
    monkeypatch.setenv("IBIDEM_STORE", str(other))
    assert json.loads(run("store", "stats", "--json").stdout)["store"] == str(other)
    assert json.loads(run("store", "stats", "--json", "--store", path).stdout)["store"] == str(path)


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        pytest.param("linux", {}, "home/.local/share/ibidem", id="Linux"),
        pytest.param("linux", {"XDG_DATA_HOME": "/data"}, "/data/ibidem", id="Linux, moved"),
        pytest.param("darwin", {}, "home/Library/Application Support/ibidem", id="macOS"),
        pytest.param("win32", {"LOCALAPPDATA": "/local"}, "/local/ibidem/Data", id="Windows"),
        pytest.param("win32", {}, "home/AppData/Local/ibidem/Data", id="Windows without its variable"),
    ],
)
def test_the_data_folder(
    platform: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    assert environment.data_folder() == Path(folder)
