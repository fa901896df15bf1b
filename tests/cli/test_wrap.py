"""`ibidem wrap`: real commands, most under a real terminal, that must not notice us."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ibidem.cli.clients.catalog import CLIENTS
from ibidem.cli.clients.claude_code import CLOUDS
from ibidem.cli.clients.client_setup import HOOKS_OFF, HOOKS_URL, OWN_ADDRESS, TOOL_SEARCH, VARIABLES
from ibidem.cli.clients.opencode import CONFIG_CONTENT
from ibidem.environment import install_command
from ibidem.testing import Says
from ibidem.testing import Upstream as Provider
from tests.support.modes import mortal

DEADLINE = 60.0
PYTHON = [sys.executable, "-c"]
SUMMARY = re.compile(r"ibidem: (?:[0-9,]+ requests?|no requests seen)[^\r\n]*\r?\n")

pytestmark = pytest.mark.slow  # each starts processes; what `wrap` tells a client is in tests/cli/clients


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


def variables(home: Path, **more: str) -> dict[str, str]:
    names = {each.name for each in VARIABLES} | {cloud.variable for cloud in CLOUDS} | {TOOL_SEARCH, CONFIG_CONTENT}
    kept = {k: v for k, v in os.environ.items() if k not in names and not k.startswith(("IBIDEM_", "XDG_", "PYTEST"))}
    usual = {"HOME": str(home), "IBIDEM_STORE": "memory:", "IBIDEM_BUDGET_MS": "60000"}  # a busy machine takes long
    return {**kept, **usual, **more}


def wrap(*command: str, options: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", "ibidem.cli", "wrap", *options, "--", *command]


def run(home: Path, *command: str, options: tuple[str, ...] = (), **more: Any) -> subprocess.CompletedProcess[bytes]:
    env = variables(home, **more.pop("env", {}))
    return subprocess.run(
        wrap(*command, options=options), env=env, capture_output=True, timeout=DEADLINE, check=False, **more
    )


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on standard error."""
    line = done.stderr.decode()
    assert line.count("\n") == 1, line
    assert line.startswith("ibidem: ")
    return line.removeprefix("ibidem: ").rstrip("\n")


@pytest.mark.parametrize("code", [0, 255])
def test_the_exit_code_is_the_commands_and_only_the_summary_is_added(home: Path, code: int) -> None:
    done = run(home, *PYTHON, f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({code})")
    assert (done.returncode, done.stdout) == (code, b"out\n")
    assert done.stderr.startswith(b"err\n")
    assert SUMMARY.fullmatch(done.stderr.decode().removeprefix("err\n"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGPIPE"])
def test_a_command_that_a_signal_ended_ends_us_by_the_same(home: Path, name: str) -> None:
    number = getattr(signal, name)
    reset = "" if name == "SIGKILL" else f"signal.signal({number:d}, signal.SIG_DFL);"
    done = run(home, *PYTHON, f"import os, signal; {reset} os.kill(os.getpid(), {number:d})")
    assert done.returncode == -number
    assert SUMMARY.fullmatch(done.stderr.decode())


def test_standard_input_passes_to_its_last_byte(home: Path) -> None:
    data = bytes(range(256)) * 4096
    assert run(home, "cat", input=data).stdout == data


def test_the_command_gets_its_arguments_folder_variables_and_open_files_as_they_are(home: Path, tmp_path: Path) -> None:
    code = (
        "import json, os, sys; text = os.read(int(sys.argv[1]), 9).decode();"
        "print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), text]))"
    )
    read, write = os.pipe()
    os.write(write, b"inherited")
    given = [str(read), "--port", "-x", "", "a b", "--"]
    done = run(home, *PYTHON, code, *given, cwd=tmp_path, pass_fds=[read], env={"MINE": "ä"})
    os.close(read)
    os.close(write)
    argv, folder, found, text = json.loads(done.stdout)
    assert (argv, folder, text) == (given, str(tmp_path), "inherited")
    before = {"LC_CTYPE": found.get("LC_CTYPE"), **variables(home, MINE="ä")}  # Python may set that one for itself
    new = {name: value for name, value in found.items() if before.get(name) != value}
    assert (new.pop(TOOL_SEARCH), new.pop(HOOKS_URL)) == ("true", HOOKS_OFF)
    assert set(new) == {each.name for each in VARIABLES} | {OWN_ADDRESS}
    assert all(value.startswith("http://127.0.0.1:") for value in new.values())


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no such file to ask")
@pytest.mark.parametrize("before", ["", "trap '' HUP INT; "], ids=["plainly", "with signals that are ignored"])
def test_the_command_finds_its_signals_as_without_us(home: Path, before: str) -> None:
    show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    found = []
    for command in (show, wrap(*show)):
        shell = ["sh", "-c", f'{before}exec "$@"', "-", *command]
        done = subprocess.run(shell, env=variables(home), capture_output=True, timeout=DEADLINE, check=True)
        masks = [int(line.split()[1], 16) for line in done.stdout.splitlines()]
        found.append([mask & 0x7FFFFFFF for mask in masks])  # those above are the C library's own
    assert found[0] == found[1]
    assert found[0] == [0, 3 if before else 0]


def test_no_file_of_a_client_is_changed(home: Path) -> None:
    for name in (
        ".claude/settings.json",
        ".codex/config.toml",
        ".config/opencode/opencode.json",
        ".config/goose/x.yaml",
    ):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if name.endswith("json") else "")
    before = {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in home.rglob("*")}
    assert run(home, "true").returncode == 0
    assert {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in home.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        pytest.param("no-such-command", 127, "command not found", id="a name that no folder has"),
        pytest.param("./no-such-command", 127, "command not found", id="a path that leads nowhere"),
        pytest.param("./plain", 126, "not executable", id="a file that is no program"),
        pytest.param("./folder", 126, "this is a folder", id="a folder"),
        pytest.param("./broken", 127, "command not found", id="a script whose interpreter is missing"),
    ],
)
def test_what_cannot_be_run_is_one_line(home: Path, tmp_path: Path, name: str, code: int, words: str) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    done = run(home, name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, b"")
    first, *rest = done.stderr.decode().splitlines()
    assert first.startswith(f"ibidem: {name}: {words}")
    assert len(rest) == (name == "./broken")  # it had a proxy when that came out


def test_a_script_without_a_first_line_is_for_the_shell(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1"; exit 5\n')
    script.chmod(0o755)
    done = run(home, str(script), "a b")
    assert (done.returncode, done.stdout) == (5, b"a b\n")


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&-"])
def test_streams_that_are_closed_are_no_matter(home: Path, closed: str) -> None:
    shell = ["sh", "-c", f'"$@" {closed}; echo "code $?"', "-", *wrap("sh", "-c", "exit 6")]
    done = subprocess.run(shell, env=variables(home), capture_output=True, timeout=DEADLINE, check=False)
    assert done.stdout == b"code 6\n"


def test_wrap_without_a_command_says_so(home: Path) -> None:
    done = subprocess.run(wrap()[:-1], env=variables(home), capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode == 2
    assert said(done) == "Pass a command: ibidem wrap -- COMMAND (see ibidem wrap --help)"


def test_a_mistake_on_the_command_line_stops_it_before_the_command(home: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for options in (
        ("--upstream", "openai=x"),
        ("--port", "99999"),
        ("--json-log", "-"),
        ("--store", "redis://:hidden@localhost"),
    ):
        done = run(home, "touch", str(ran), options=options)
        assert done.returncode == 2
        assert options[0] in said(done)
        assert "hidden" not in said(done)
    assert not ran.exists()


def test_the_list_shows_clients_and_where_their_requests_would_go(home: Path) -> None:
    done = subprocess.run(
        [*wrap()[:-1], "--list"],
        env=variables(home, ANTHROPIC_BASE_URL="https://gw.example", ANTHROPIC_HOST="https://other.example"),
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [re.split(r"  +", line) for line in done.stdout.decode().splitlines()]
    assert {row[0] for row in rows} >= {client.name for client in CLIENTS} | {each.name for each in VARIABLES}
    assert ["ANTHROPIC_BASE_URL", "anthropic", "https://gw.example"] in rows
    assert ["ANTHROPIC_HOST", "anthropic", "left as it is"] in rows
    assert ["OPENAI_HOST", "openai", "https://api.openai.com"] in rows


# --- the proxy ----------------------------------------------------------------------------------


class Upstream(BaseHTTPRequestHandler):
    """Answers every request in Anthropic's way, and remembers where it was sent."""

    seen: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append(self.path)
        answer = {"type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
        body = json.dumps({**answer, "usage": {"input_tokens": 1000, "output_tokens": 10}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def upstream() -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []
    handler = type("Handler", (Upstream,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


ASK = """
import json, os, urllib.request
body = {"model": "claude-sonnet-4-5", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode())
request.add_header("content-type", "application/json")
request.add_header("anthropic-version", "2023-06-01")
print(json.load(urllib.request.urlopen(request))["usage"]["input_tokens"])
"""


def test_requests_go_through_the_proxy_to_where_they_went_before(
    home: Path, upstream: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, seen = upstream
    log = tmp_path / "log.jsonl"
    options = ("--json-log", str(log))
    done = run(home, *PYTHON, ASK, options=options, env={"ANTHROPIC_BASE_URL": f"{url}/base"})
    assert (done.returncode, done.stdout, seen) == (0, b"1000\n", ["/base/v1/messages"])
    assert said(done).startswith("1 request. ")
    assert len(log.read_text().splitlines()) == 1


CONVERSE = """
import json, os, urllib.request
said = [{"role": "user", "content": "word " * 3000}]
for turn in range(4):
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": said, "tools": [
        {"name": "Read", "description": "reads", "input_schema": {"type": "object"}}]}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    urllib.request.urlopen(request).read()
    said += [{"role": "assistant", "content": "go on"}, {"role": "user", "content": f"and then {turn}?"}]
"""


def test_the_last_line_says_what_marks_did_or_would_do(home: Path) -> None:
    """For a client that sets none."""
    with Provider(lambda _: Says("ok")) as provider:
        told = []
        for mode in ("off", "auto"):
            env = {"ANTHROPIC_BASE_URL": provider.url}
            told.append(said(run(home, *PYTHON, CONVERSE, options=("--cache", mode), env=env)))
        marked = [b"cache_control" in seen.body for seen in provider.seen]
    assert marked == [False] * 4 + [True] * 4
    assert re.fullmatch(
        r"4 requests\. Input cost \$[0-9.]+ \(output not included\), "
        r"nothing saved: nothing in them had been sent before; "
        r"1 conversation uses no prompt caching: --cache auto would save about \$[0-9.]+",
        told[0],
    )
    saved = re.fullmatch(
        r"4 requests\. Input cost \$[0-9.]+ instead of \$[0-9.]+ \(([0-9]+)% less; output not included\)", told[1]
    )
    assert saved is not None, told
    assert int(saved[1]) > 40


def test_what_was_paid_is_kept_with_the_folder_it_was_paid_in(home: Path, tmp_path: Path) -> None:
    with Provider(lambda _: Says("ok")) as provider:
        for options in ((), ("--no-ledger",), ("--observe",)):
            run(home, *PYTHON, CONVERSE, options=options, env={"ANTHROPIC_BASE_URL": provider.url}, cwd=tmp_path)
    env = variables(home)
    command = [sys.executable, "-m", "ibidem.cli", "gain", "--json", "--by", "project"]
    done = subprocess.run(command, env=env, capture_output=True, timeout=DEADLINE, check=True)
    found = json.loads(done.stdout)
    assert [(each["name"], each["requests"]) for each in found["groups"]] == [(str(tmp_path), 8)]
    assert (found["total"]["conversations"], found["total"]["observed"]) == (2, 4)
    assert found["total"]["paid"] > 0
    assert Path(found["ledger"]).stat().st_mode & 0o777 == 0o600


def test_a_command_that_asks_nobody_is_told_why_nothing_was_saved(home: Path) -> None:
    assert said(run(home, "true")).startswith(
        "no requests seen: the command made no model calls, or uses its own base URL or login"
    )
    assert not list(home.rglob("gains*"))


def test_a_ledger_that_cannot_be_written_is_told_at_the_end(home: Path) -> None:
    with Provider(lambda _: Says("ok")) as provider:
        folder = home / "data" / "ibidem"
        (folder / "gains.sqlite3").mkdir(parents=True)
        env = {"ANTHROPIC_BASE_URL": provider.url, "XDG_DATA_HOME": str(home / "data")}
        done = run(home, *PYTHON, CONVERSE, env=env)
    assert done.returncode == 0
    assert re.fullmatch(
        r"4 requests\. .*; not saved for `ibidem gain`: .*gains\.sqlite3: not a regular file: .*", said(done)
    )


@pytest.mark.skipif(sys.platform == "darwin", reason="the cache folder is elsewhere")
def test_what_would_be_a_warning_goes_to_a_file(home: Path, upstream: tuple[str, list[str]]) -> None:
    (home / "file").write_text("")
    env = {"ANTHROPIC_BASE_URL": upstream[0], "IBIDEM_STORE": str(home / "file" / "store.sqlite3")}
    done = run(home, *PYTHON, ASK, options=("--profile", "recoverable"), env=env)
    assert (done.returncode, done.stdout) == (0, b"1000\n")
    assert said(done).startswith("1 request, ")
    log = home / ".cache" / "ibidem" / "wrap.log"
    assert "store.sqlite3: Not a directory" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_wrapped_command_may_wrap_another(home: Path, upstream: tuple[str, list[str]]) -> None:
    url, seen = upstream
    done = run(home, *wrap(*PYTHON, ASK), env={"ANTHROPIC_BASE_URL": f"{url}/base"})
    assert (done.returncode, done.stdout, seen) == (0, b"1000\n", ["/base/v1/messages"])
    assert [line.startswith("ibidem: 1 request. ") for line in done.stderr.decode().splitlines()] == [True, True]


def test_a_flag_is_stronger_than_what_was_set_before(home: Path, upstream: tuple[str, list[str]]) -> None:
    url, seen = upstream
    done = run(
        home,
        *PYTHON,
        ASK,
        options=("--upstream", f"anthropic={url}/flag"),
        env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "IBIDEM_UPSTREAM_ANTHROPIC": "http://127.0.0.1:9"},
    )
    assert (done.returncode, seen) == (0, ["/flag/v1/messages"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_address_that_is_the_proxys_own_is_not_its_upstream(home: Path) -> None:
    port = free_port()
    show = "import os; print(os.environ['ANTHROPIC_BASE_URL'])"
    env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
    done = run(home, *PYTHON, show, options=("--port", str(port)), env=env)
    assert done.stdout.decode() == f"http://127.0.0.1:{port}/anthropic\n"
    assert said(done).startswith("no requests seen")


def test_where_there_can_be_no_proxy_the_command_runs_without(home: Path) -> None:
    show = "import os, sys; print(os.environ.get('ANTHROPIC_BASE_URL')); sys.exit(4)"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(home, *PYTHON, show, options=("--port", str(taken.getsockname()[1])))
    assert (done.returncode, done.stdout) == (4, b"None\n")
    assert said(done).startswith("the proxy could not start, the command runs without it: 127.0.0.1 port ")
    assert "this port is in use" in said(done)


def test_without_its_packages_the_command_runs_too(home: Path) -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from ibidem.cli import main; main()"
    command = [*PYTHON, code, "wrap", "--", "sh", "-c", "kill -TERM $$"]
    done = subprocess.run(command, env=variables(home), capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode == -signal.SIGTERM
    assert said(done).endswith(f"not installed. Run: {install_command('proxy')}")


# --- whatever is in the way, the command runs -----------------------------------------------------

ALONE = "the proxy could not start, the command runs without it: "
LED = "import os, sys; print('ANTHROPIC_BASE_URL' in os.environ); sys.exit(7)"


def alone(done: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """It ran without us, ended as it wanted to, and one line says why."""
    assert (done.returncode, done.stdout) == (7, b"False\n"), done.stderr
    assert said(done).startswith(ALONE)
    assert all(word in said(done) for word in words), said(done)


def with_us(done: subprocess.CompletedProcess[bytes]) -> None:
    assert (done.returncode, done.stdout) == (7, b"True\n"), done.stderr
    assert SUMMARY.fullmatch(done.stderr.decode())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root cannot be bound by modes here")
@pytest.mark.parametrize("place", ["", ".config", ".config/ibidem"])
def test_a_home_that_cannot_be_searched(home: Path, place: str) -> None:
    (home / ".config" / "ibidem").mkdir(parents=True)
    (home / place).chmod(0)
    try:
        done = run(home, *PYTHON, LED, preexec_fn=mortal)
    finally:
        (home / place).chmod(0o700)
    alone(done, f"{home}/.config/ibidem/ibidem.toml: Permission denied: ")


def test_a_home_that_leads_to_itself(home: Path) -> None:
    (home / "loop").symlink_to("loop")
    alone(run(home / "loop", *PYTHON, LED), "loop/.config/ibidem/ibidem.toml: Too many levels of symbolic links")


def test_a_home_with_too_long_a_name(home: Path) -> None:
    alone(run(home / ("x" * 300), *PYTHON, LED), "File name too long")


def test_a_home_that_is_no_path_from_the_root_on(home: Path) -> None:
    """It would be in the current folder, which may be somebody else's code."""
    (home / "rel" / ".config" / "ibidem").mkdir(parents=True)
    (home / "rel" / ".config" / "ibidem" / "ibidem.toml").write_text("[proxy]\nobserve = true\n")
    alone(
        run(Path("rel"), *PYTHON, LED, cwd=home), "rel/.config/ibidem: HOME or XDG_CONFIG_HOME is not an absolute path"
    )


@pytest.mark.parametrize("name", ["missing", "file", "file/below"])
def test_a_home_where_nothing_can_be_is_one_without_settings(home: Path, name: str) -> None:
    (home / "file").write_text("")
    with_us(run(home / name, *PYTHON, LED))


def test_no_home_at_all(home: Path) -> None:
    env = {name: value for name, value in variables(home).items() if name != "HOME"}
    code = "import pwd\ndef unknown(_): raise KeyError\npwd.getpwuid = unknown\nfrom ibidem.cli import main; main()"
    command = [*PYTHON, code, "wrap", "--", *PYTHON, LED]
    with_us(subprocess.run(command, env=env, capture_output=True, timeout=DEADLINE, check=False))
    del env["IBIDEM_STORE"]
    alone(
        subprocess.run(command, env=env, capture_output=True, timeout=DEADLINE, check=False),
        "HOME: not set, and this user has no home folder",
    )


def test_a_current_folder_that_was_deleted(home: Path) -> None:
    shell = ["sh", "-c", 'mkdir "$HOME/gone"; cd "$HOME/gone"; rmdir "$HOME/gone"; exec "$@"', "-", *wrap(*PYTHON, LED)]
    with_us(subprocess.run(shell, env=variables(home), capture_output=True, timeout=DEADLINE, check=False))


BROKEN: dict[str, tuple[Any, str]] = {
    "no TOML": (lambda path: path.write_text("[proxy\n"), "not valid TOML"),
    "a wrong value": (lambda path: path.write_text("[proxy]\nport = 'x'\n"), "proxy.port: 'x' is not a whole number"),
    "an unknown key": (lambda path: path.write_text("[proxy]\nprot = 1\n"), "proxy: unknown key 'prot'"),
    "no text": (lambda path: path.write_bytes(bytes(range(256))), "not valid UTF-8"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "without end": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "large": (lambda path: path.write_bytes(b"#" * 2**21), "longer than 65,536 bytes"),
    "nested": (lambda path: path.write_bytes(b"a=" + b"[" * 9999), "nested too deeply"),
}


@pytest.mark.parametrize(("make", "words"), BROKEN.values(), ids=BROKEN)
def test_a_settings_file_that_is_broken(home: Path, make: Any, words: str) -> None:
    path = home / ".config" / "ibidem" / "ibidem.toml"
    path.parent.mkdir(parents=True)
    make(path)
    alone(run(home, *PYTHON, LED), f"{path}: {words}")
    alone(run(home / "other", *PYTHON, LED, options=("--config", str(path))), f"{path}: {words}")


def test_a_settings_file_that_is_not_there(home: Path) -> None:
    alone(run(home, *PYTHON, LED, env={"IBIDEM_CONFIG": "missing"}), "missing: No such file or directory")
    alone(run(home, *PYTHON, LED, options=("--config", "missing")), "missing: No such file or directory")


def test_a_variable_that_is_wrong(home: Path) -> None:
    alone(run(home, *PYTHON, LED, env={"IBIDEM_MEMORY_MB": "much"}), "IBIDEM_MEMORY_MB: 'much' is not a whole number")
    alone(run(home, *PYTHON, LED, env={"IBIDEM_STORE": "x://y"}), "x: no such kind of store")


OF_CLIENTS = {
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "gemini": ".gemini/settings.json",
}


@pytest.mark.parametrize("client", OF_CLIENTS)
@pytest.mark.parametrize("kind", ["a folder", "a pipe", "without end", "large"])
def test_settings_of_a_client_that_cannot_be_read(home: Path, client: str, kind: str) -> None:
    """Nobody knows then where it would have sent its requests, and with them its credentials."""
    path = home / OF_CLIENTS[client]
    path.parent.mkdir(parents=True)
    BROKEN[kind][0](path)
    program = home / client
    program.write_text(f"#!{sys.executable}\n{LED}")
    program.chmod(0o755)
    alone(run(home, str(program), cwd=home), f"{path}: ", "correct it, or start the client without ibidem")


@pytest.mark.parametrize("content", [b"not TOML", b"\xff", b"a=" + b"[" * 9999])
def test_settings_of_codex_that_we_do_not_understand(home: Path, content: bytes) -> None:
    program = home / "codex"
    program.write_text(f"#!{sys.executable}\n{LED}")
    program.chmod(0o755)
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_bytes(content)
    alone(run(home, str(program)), f"{home}/.codex/config.toml: not valid TOML")


@pytest.mark.parametrize("name", ["aiohttp", "multidict"])
def test_a_package_that_is_there_and_broken(home: Path, name: str) -> None:
    (home / "broken").mkdir()
    (home / "broken" / f"{name}.py").write_text(f"raise ImportError('no such symbol', name={name!r})\n")
    done = run(home, *PYTHON, LED, env={"PYTHONPATH": str(home / "broken")})
    alone(done, f"{name}: cannot be loaded (no such symbol): {install_command('proxy', '--force-reinstall')}")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("_load_settings", "KeyError('x')"),
        ("_log_to_file", "MemoryError()"),
        ("_start_proxy", "RecursionError('deep')"),
        ("_start_proxy", "OSError(24, 'Too many')"),
        ("start_command", "OSError(24, 'Too many')"),
    ],
)
def test_whatever_goes_wrong_in_our_own_start(home: Path, where: str, error: str) -> None:
    code = (
        f"def broken(*_): raise {error}\nfrom ibidem.cli.wrap import run_wrapped as it; it.{where} = broken\n"
        "from ibidem.cli import main; main()"
    )
    command = [*PYTHON, code, "wrap", "--", *PYTHON, LED]
    done = subprocess.run(command, env=variables(home), capture_output=True, timeout=DEADLINE, check=False)
    alone(done, "too many files are open" if "OSError" in error else error.partition("(")[0])


def test_no_files_left_to_open(home: Path) -> None:
    for limit in (6, 7, 8):
        shell = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "-", *wrap("sh", "-c", "echo ran; exit 7")]
        done = subprocess.run(shell, env=variables(home), capture_output=True, timeout=DEADLINE, check=False)
        assert (done.returncode, done.stdout) == (7, b"ran\n"), done.stderr
        assert said(done)


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "XDG_DATA_HOME"])
def test_folders_that_cannot_be_written_to_are_no_reason_to_do_without(home: Path, name: str) -> None:
    (home / "file").write_text("")
    with_us(run(home, *PYTHON, LED, env={name: str(home / "file"), "IBIDEM_STORE": ""}))


STORES = {
    "a folder": (lambda path: path.mkdir(), "cannot be opened: check the path"),
    "no database": (lambda path: path.write_bytes(b"no database" * 1000), "this is damaged or not a database"),
}


@pytest.mark.parametrize(("make", "words"), STORES.values(), ids=STORES)
def test_a_store_that_cannot_be_opened(home: Path, upstream: tuple[str, list[str]], make: Any, words: str) -> None:
    path = home / "store.sqlite3"
    make(path)
    env = {"ANTHROPIC_BASE_URL": upstream[0], "IBIDEM_STORE": str(path)}
    done = run(home, *PYTHON, ASK, options=("--profile", "recoverable"), env=env)
    assert (done.returncode, done.stdout) == (0, b"1000\n")
    assert f"1 request forwarded without new edits: {path}: {words}" in said(done)


def test_standard_error_that_is_full(home: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            wrap(*PYTHON, LED, options=("--config", "missing")),
            env=variables(home),
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=DEADLINE,
            check=False,
        )
    assert (done.returncode, done.stdout) == (7, b"False\n")


# --- settings from files --------------------------------------------------------------------------


def test_which_settings_came_from_which_file(home: Path, tmp_path: Path) -> None:
    mine = home / ".config" / "ibidem" / "ibidem.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text('[proxy]\nport = 1\nobserve = true\nhost = "0.0.0.0"\ntoken = "t"\n')
    (tmp_path / "ibidem.toml").write_text(
        '[proxy]\nmemory_mb = 9\n[proxy.upstreams]\nanthropic = "https://elsewhere.example"\n'
    )
    for options in ((), ("--list",)):
        done = run(home, *PYTHON, LED, cwd=tmp_path, options=options)
        first = done.stderr.decode().splitlines()[0]
        assert first == (
            f"ibidem: settings: observe from {mine}; memory_mb from {tmp_path}/ibidem.toml; "
            f"upstreams in {tmp_path}/ibidem.toml ignored: a folder's file may only restrict settings"
        )
        assert b"elsewhere" not in done.stdout
        assert done.returncode == (0 if options else 7)


def test_a_broken_file_in_the_folder_is_told_and_ignored(home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ibidem.toml")
    done = run(home, *PYTHON, LED, cwd=tmp_path)
    first, second = done.stderr.decode().splitlines()
    assert first.startswith(f"ibidem: settings: {tmp_path}/ibidem.toml ignored: not a regular file")
    assert (done.returncode, done.stdout) == (7, b"True\n")
    assert SUMMARY.fullmatch(second + "\n")


# --- under a terminal ---------------------------------------------------------------------------

TAKE = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execvp(sys.argv[1], sys.argv[1:])"
"""A new session that opens a terminal has it as its own."""


class Terminal:
    """A command with a terminal of its own, as in a window."""

    def __init__(self, command: list[str], home: Path, size: tuple[int, int] = (24, 80)) -> None:
        self.screen, inner = pty.openpty()
        self.resize(*size)
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE, *command],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env=variables(home, TERM="xterm"),
        )
        os.close(inner)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + DEADLINE
        while words not in self.shown:
            if not self._read(end):
                pytest.fail(f"{words!r} did not come: {self.shown!r}")

    def _read(self, end: float) -> bool:
        if not select.select([self.screen], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.screen, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            return False
        self.shown += data.decode()
        return bool(data)

    def end(self) -> int:
        """Its exit code, when all that it wrote is read."""
        end = time.monotonic() + DEADLINE
        while self._read(end):
            pass
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE)
        os.close(self.screen)


@pytest.fixture
def terminal(home: Path) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_it(*command: str, **more: Any) -> Terminal:
        opened.append(Terminal([*command], home, **more))
        return opened[-1]

    yield open_it
    for each in opened:
        each.close()


LISTEN = """
import os, signal, sys, time
count = {}
def note(number, frame):
    name = signal.Signals(number).name
    count[name] = count.get(name, 0) + 1
    size = os.get_terminal_size()
    print(f"{name} {count[name]} at {size.lines}x{size.columns}", flush=True)
    if name == "SIGTERM": sys.exit(9)
for each in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGUSR1):
    signal.signal(each, note)
print("ready", flush=True)
while True: time.sleep(0.05)
"""


def test_the_terminal_is_the_commands(terminal: Any) -> None:
    code = (
        "import os; print([os.isatty(n) for n in (0, 1, 2)], os.tcgetpgrp(0) == os.getpgrp());"
        "os.close(os.open('/dev/tty', os.O_RDWR)); print('got', input())"
    )
    window = terminal(*wrap(*PYTHON, code))
    window.wait_for("[True, True, True] True")
    window.type("typed\r")
    assert window.end() == 0
    assert "got typed" in window.shown
    assert SUMMARY.search(window.shown)


def test_an_interrupt_is_the_commands_to_handle(terminal: Any) -> None:
    window = terminal(*wrap(*PYTHON, LISTEN))
    window.wait_for("ready")
    window.type("\x03")
    window.wait_for("SIGINT 1 ")
    window.type("\x1c")
    window.wait_for("SIGQUIT 1 ")
    window.type("\x03")
    window.wait_for("SIGINT 2 ")
    window.process.send_signal(signal.SIGTERM)
    assert window.end() == 9
    assert "SIGINT 3" not in window.shown
    assert "SIGTERM 2" not in window.shown
    assert SUMMARY.search(window.shown)


def test_an_interrupt_that_ends_the_command_ends_us_the_same_way(terminal: Any) -> None:
    window = terminal(*wrap("sh", "-c", "echo ready; exec sleep 1000"))
    window.wait_for("ready")
    window.type("\x03")
    assert window.end() == -signal.SIGINT
    assert SUMMARY.search(window.shown)
    assert "Traceback" not in window.shown


def test_a_signal_to_us_alone_is_handed_on(terminal: Any) -> None:
    told = hasattr(signal, "sigwaitinfo")  # elsewhere nobody says who sent a signal
    names = ["SIGHUP", "SIGUSR1", *(["SIGINT", "SIGQUIT", "SIGWINCH"] if told else [])]
    window = terminal(*wrap(*PYTHON, LISTEN))
    window.wait_for("ready")
    for name in names:
        window.process.send_signal(getattr(signal, name))
        window.wait_for(f"{name} 1 ")
    window.process.send_signal(signal.SIGTERM)
    assert window.end() == 9
    assert not any(f"{name} 2 " in window.shown for name in names)


def test_a_new_size_of_the_window_is_seen_once(terminal: Any) -> None:
    window = terminal(*wrap(*PYTHON, LISTEN), size=(30, 100))
    window.wait_for("ready")
    window.resize(41, 121)
    window.wait_for("SIGWINCH 1 at 41x121")
    window.process.send_signal(signal.SIGTERM)
    assert window.end() == 9
    assert "SIGWINCH 2" not in window.shown


def test_a_window_that_closes_ends_the_command(terminal: Any) -> None:
    window = terminal(*wrap(*PYTHON, "import time; print('ready', flush=True); time.sleep(1000)"))
    window.wait_for("ready\r\n")
    os.close(window.screen)
    window.screen = os.open(os.devnull, os.O_RDONLY)
    assert window.process.wait(DEADLINE) == -signal.SIGHUP


GO_ON = 'print("rea" + "dy", flush=True); input(); sys.exit(5)'
STOPS = {
    "typed": f"import sys; {GO_ON}",
    "by itself": f"import os, signal, sys; os.kill(os.getpid(), signal.SIGSTOP); {GO_ON}",
}


@pytest.mark.skipif(not shutil.which("bash"), reason="no shell with job control")
@pytest.mark.parametrize("how", STOPS)
def test_a_command_that_stops_is_a_stopped_job_and_goes_on(terminal: Any, how: str) -> None:
    command = shlex.join(wrap(*PYTHON, STOPS[how]))
    window = terminal("bash", "--norc", "-c", f"set -m; {command}; echo stopped=$?; fg; echo ended=$?")
    if how == "typed":
        window.wait_for("ready")
        window.type("\x1a")
    window.wait_for("stopped=147")  # a stop that no program can refuse
    window.wait_for("ready")
    window.type("\r")
    window.wait_for("ended=5")
    assert window.end() == 0
    assert len(SUMMARY.findall(window.shown)) == 1
