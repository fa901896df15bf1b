"""`ibidem doctor`: what is in order, what is not, and that it ends, in homes that are made up."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ibidem.cli.doctor import check_runner
from ibidem.cli.doctor.check_runner import Check, CheckContext, CheckResult, run_checks
from ibidem.cli.doctor.checks_addresses import check_addresses
from ibidem.cli.doctor.checks_data import check_database, check_prices
from ibidem.cli.doctor.checks_logs import check_newest_logs
from ibidem.cli.doctor.checks_machine import OTHER_PARTS, PROXY_PART, check_agents, check_node, check_optional_parts
from ibidem.cli.doctor.checks_network import check_certificates, check_outbound_proxy, check_settings
from ibidem.cli.doctor.checks_proxy import FORMAT_ROUTES, check_requests
from ibidem.cli.doctor.command import all_checks
from ibidem.environment import install_command
from ibidem.errors import IbidemError
from ibidem.formats import FORMATS
from ibidem.store import open_store, reference

POSIX = pytest.mark.skipif(os.name == "nt", reason="modes and scripts of another kind")
Made = Callable[..., CheckContext]


@pytest.fixture
def machine(tmp_path: Path) -> Made:
    """A machine whose home and folder are empty, with these variables."""
    home, folder, bin = (tmp_path / name for name in ("home", "folder", "bin"))
    for each in (home, folder, bin):
        each.mkdir()

    def make(**variables: str) -> CheckContext:
        return CheckContext({"HOME": str(home), "PATH": str(bin), **variables}, home, folder, sys.platform)

    return make


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def put(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def program(machine: CheckContext, name: str, script: str) -> None:
    path = put(Path(machine.variables["PATH"]) / name, f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)


def statuses(found: Iterable[CheckResult]) -> list[str]:
    return [each.status for each in found]


# --- the whole ----------------------------------------------------------------------------------


def doctor(home: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    env = {**kept, "HOME": str(home), **variables}
    command = [sys.executable, "-m", "ibidem.cli", "doctor", *options]
    return subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_home_without_anything_is_in_order(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json")
    rows = json.loads(done.stdout)
    assert {tuple(row) for row in rows} == {("check", "status", "text", "remedy")}
    assert [row for row in rows if row["status"] == "problem"] == []
    assert (done.returncode, done.stderr) == (0, "")
    assert list(dict.fromkeys(row["check"] for row in rows)) == [check.name for check in all_checks()]
    assert not list(tmp_path.iterdir()), "a doctor changes nothing"


@pytest.mark.slow
def test_a_problem_is_told_with_its_remedy_and_an_exit_code(tmp_path: Path) -> None:
    port = free_port()
    put(tmp_path / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}})
    done = doctor(tmp_path)
    assert done.returncode == 1
    (at,) = [number for number, line in enumerate(done.stdout.splitlines()) if line.startswith("problem")]
    below = " ".join(" ".join(done.stdout.splitlines()[at : at + 6]).split())
    assert f"no server is running at http://127.0.0.1:{port}" in below
    assert f"what to do: start ibidem proxy --port {port}" in below
    assert "1 problem" in done.stdout.splitlines()[-1]
    assert max(map(len, done.stdout.splitlines())) <= 160


def test_a_check_that_fails_is_a_problem_of_ours(machine: Made) -> None:
    def breaks(_: CheckContext) -> Iterator[CheckResult]:
        yield CheckResult("ok", "so far")
        raise KeyError("oh\x1b[2J")

    def refuses(_: CheckContext) -> Iterator[CheckResult]:
        raise IbidemError("a file: is wrong: mend it")

    lines = run_checks((Check("one", breaks), Check("two", refuses)), machine())
    assert [(line.check, line.status) for line in lines] == [("one", "ok"), ("one", "problem"), ("two", "problem")]
    assert "bug in ibidem" in lines[1].text
    assert lines[1].text.isprintable()
    assert (lines[2].text, lines[2].remedy) == ("a file: is wrong", "mend it")


def test_a_check_without_end_is_given_up(machine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_runner, "CHECK_SECONDS", 0.2)

    def hangs(_: CheckContext) -> Iterator[CheckResult]:
        time.sleep(30)
        yield CheckResult("ok", "late")

    started = time.monotonic()
    (line,) = run_checks((Check("slow", hangs),), machine())
    assert (line.status, time.monotonic() - started < 10) == ("problem", True)


# --- what is installed --------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        pytest.param("print('2.1.400 (Claude Code)')", "ok", "Claude Code 2.1.400 (tested with", id="as tested"),
        pytest.param("print('3.0.1')", "note", "not tested with ibidem", id="of another major version"),
        pytest.param("print('hello')", "note", "does not print its version", id="one that tells none"),
        pytest.param("raise SystemExit(3)", "note", "does not print its version", id="one that fails"),
        pytest.param("while True: print('x' * 99)", "note", "does not print", id="one that does not end to talk"),
        pytest.param(
            "import os, sys; assert sys.argv[1:] == ['--version'] and os.environ['DISABLE_AUTOUPDATER']; print('2.0')",
            "ok",
            "Claude Code 2.0",
            id="nothing else is asked, and nothing is updated",
        ),
    ],
)
def test_agents_tell_their_versions(script: str, status: str, words: str, machine: Made) -> None:
    here = machine()
    program(here, "claude", script)
    (found,) = check_agents(here)
    assert found.status == status
    assert words in found.text
    assert "ANTHROPIC_BASE_URL" in found.text


@POSIX
def test_an_agent_that_hangs_is_ended_with_its_children(machine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    from ibidem.cli.doctor import checks_machine

    monkeypatch.setattr(checks_machine, "VERSION_SECONDS", 0.5)
    here = machine()
    program(here, "codex", "import os, time; os.fork(); time.sleep(60)")
    started = time.monotonic()
    assert statuses(check_agents(here)) == ["note"]
    assert time.monotonic() - started < 10


def test_no_agent_is_worth_a_note(machine: Made) -> None:
    assert statuses(check_agents(machine())) == ["note"]


@POSIX
@pytest.mark.parametrize(("version", "status"), [("v20.20.2", "note"), ("v22.1.0", "ok"), ("v26.0.0", "ok")])
def test_an_old_node_installs_old_clients(version: str, status: str, machine: Made) -> None:
    here = machine()
    assert statuses(check_node(here)) == ["ok"]
    program(here, "node", f"print('{version}')")
    assert statuses(check_node(here)) == [status]


def test_parts_that_are_missing_say_how_to_install_them(machine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (PROXY_PART, *OTHER_PARTS):
        monkeypatch.setitem(sys.modules, part.module, None)
    found = list(check_optional_parts(machine()))
    assert statuses(found) == ["note", "note"]
    assert found[0].remedy == install_command("proxy")
    assert install_command("proxy,redis,dask,socks,speed") in found[1].remedy


# --- where clients are led ----------------------------------------------------------------------

SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "Claude Code": (".claude/settings.json", lambda url: {"env": {"ANTHROPIC_BASE_URL": url}}),
    "Codex": (".codex/config.toml", lambda url: f'openai_base_url = "{url}/v1"\n'),
    "opencode": (".config/opencode/opencode.jsonc", lambda url: f'{{ // mine\n"baseURL" : "{url}/v1"}}'),
    "aider": (".aider.conf.yml", lambda url: f"openai-api-base: {url}/v1\n"),
    "goose": (".config/goose/config.yaml", lambda url: f"ANTHROPIC_HOST: {url}\n"),
    "Gemini CLI": (".gemini/.env", lambda url: f'GOOGLE_GEMINI_BASE_URL="{url}"\n'),
}
"""By client: a file of its own, and what it says of an address."""


@pytest.mark.parametrize("client", SETTINGS)
def test_an_address_that_nobody_answers_is_a_problem(client: str, machine: Made) -> None:
    here, port = machine(), free_port()
    name, text = SETTINGS[client]
    put(here.home / name, text(f"http://127.0.0.1:{port}"))
    (found,) = check_addresses(here)
    assert found.status == "problem"
    assert found.text.startswith(f"{client}, ")
    assert f"no server is running at http://127.0.0.1:{port}" in found.text
    assert f"start ibidem proxy --port {port}, or remove it" in found.remedy
    assert name.rpartition("/")[2] in found.remedy


class _Health(BaseHTTPRequestHandler):
    body = b'{"status": "ok", "version": "9.9"}'

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param(b'{"status": "ok", "version": "9.9"}', "ok", "ibidem 9.9 is running", id="ibidem"),
        pytest.param(b"<html>", "note", "but it is not ibidem", id="something else"),
        pytest.param(b'{"status": "ok", "version": "\\u001b[2J"}', "ok", "ibidem \\x1b[2J", id="who would steer us"),
    ],
)
def test_who_answers_is_told(body: bytes, status: str, words: str, machine: Made) -> None:
    with HTTPServer(("127.0.0.1", 0), type("_Answering", (_Health,), {"body": body})) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        (found,) = check_addresses(machine(OPENAI_BASE_URL=f"http://localhost:{server.server_port}/v1"))
        server.shutdown()
        thread.join()
    assert found.status == status
    assert words in found.text


def test_addresses_elsewhere_are_told_without_what_may_be_secret(machine: Made) -> None:
    here = machine(
        ANTHROPIC_BASE_URL="https://gateway.example/key/s3cret", OPENAI_BASE_URL="https://me:s3cret@x.example"
    )
    put(here.home / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": "https://other.example/s3cret"}})
    found = list(check_addresses(here))
    assert statuses(found) == ["ok", "problem", "note", "note"]
    assert "overrides the variable that ibidem wrap sets" in found[2].remedy
    assert "Claude Code ignores the variable" in found[3].text
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("name", "content"),
    [(".claude/settings.json", '{"env": '), (".codex/config.toml", "a = = 1"), (".claude/settings.json", "[" * 99_999)],
)
def test_settings_that_cannot_be_read_are_a_problem(name: str, content: str, machine: Made) -> None:
    here = machine()
    path = put(here.home / name, content)
    found = list(check_addresses(here))
    assert statuses(found) == ["problem", "ok"]
    assert str(path) in found[0].text
    assert found[0].remedy


def test_a_provider_of_ones_own_in_codex_goes_past_us(machine: Made) -> None:
    here = machine()
    config = 'model_provider = "mine"\n[model_providers.mine]\nbase_url = "https://llm.example/v1"\n'
    put(here.home / ".codex" / "config.toml", config)
    (found,) = check_addresses(here)
    assert (found.status, "ibidem wrap does not route" in found.remedy) == ("note", True)


# --- the way out --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected", "words"),
    [
        pytest.param({}, ["ok"], "no HTTP proxy", id="none"),
        pytest.param(
            {"HTTPS_PROXY": "http://me:s3cret@p.example:3128", "NO_PROXY": "127.0.0.1"}, ["ok"], "p.example", id="one"
        ),
        pytest.param(
            {"https_proxy": "http://p.example"}, ["ok", "note"], "p.example", id="one that clients go through"
        ),
        pytest.param({"ALL_PROXY": "gopher://p"}, ["problem"], "unknown scheme", id="one that cannot be followed"),
    ],
)
def test_proxies_of_the_network(variables: dict[str, str], expected: list[str], words: str, machine: Made) -> None:
    found = list(check_outbound_proxy(machine(**variables)))
    assert statuses(found) == expected
    assert words in found[0].text
    assert "s3cret" not in repr(found)


def test_certificates_are_files_that_can_be_read(machine: Made, tmp_path: Path) -> None:
    assert statuses(check_certificates(machine())) == ["ok"]
    empty = put(tmp_path / "none.pem", "")
    found = list(check_certificates(machine(SSL_CERT_FILE=str(empty), NODE_EXTRA_CA_CERTS=str(tmp_path / "gone.pem"))))
    assert statuses(found) == ["problem", "problem"]
    assert "unset SSL_CERT_FILE" in found[0].remedy


def test_our_own_settings_are_read(machine: Made, tmp_path: Path) -> None:
    path = put(tmp_path / "mine.toml", "[proxy]\nprofile = 3\n")
    (line,) = run_checks((Check("settings", check_settings),), machine(IBIDEM_CONFIG=str(path)))
    assert (line.status, str(path) in line.text) == ("problem", True)
    found = list(check_settings(machine(IBIDEM_UPSTREAM_OPENAI="https://gateway.example")))
    assert statuses(found) == ["ok", "ok"]


def test_requests_of_every_format_come_through_and_are_rewritten(machine: Made) -> None:
    found = list(check_requests(machine()))
    assert statuses(found) == ["ok"] * len(FORMATS), found
    assert {each.name for each in FORMAT_ROUTES} == set(FORMATS)


# --- what is kept -------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize(
    ("mode", "expected"), [(0o600, ["ok"]), (0o644, ["problem"]), (0o660, ["problem"])], ids=["own", "read", "shared"]
)
def test_a_store_is_its_users_alone(mode: int, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "data" / "store.sqlite3"
    assert statuses(check_database(path)) == ["ok"]
    assert not path.parent.exists()
    with open_store(path) as made:
        made.put("one", {reference("a text"): "a text"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(mode)
    assert statuses(check_database(path)) == expected


def test_a_store_that_is_none_is_a_problem(tmp_path: Path) -> None:
    assert statuses(check_database(tmp_path)) == ["problem"]
    broken = put(tmp_path / "store.sqlite3", "no database, but text that is long enough to be looked at " * 40)
    broken.chmod(0o600)
    (found,) = check_database(broken)
    assert "not a database" in found.text
    blocked = put(tmp_path / "file", "x") / "store.sqlite3"
    assert statuses(check_database(blocked)) == ["problem"]


def test_prices_have_a_version_and_a_date(machine: Made) -> None:
    (found,) = check_prices(machine())
    assert "genai-prices" in found.text
    assert "installed 20" in found.text


# --- what logs tell -----------------------------------------------------------------------------


def logged(home: Path, name: str, model: str, usage: dict[str, int], turns: int = 3) -> Path:
    rows: list[dict[str, Any]] = []
    for turn in range(turns):
        common = {"sessionId": name, "timestamp": f"2026-10-01T10:{turn:02}:00Z", "isSidechain": False}
        parent = f"{name}-a{turn - 1}" if turn else None
        user = {"role": "user", "content": f"question {turn}"}
        rows.append({**common, "type": "user", "uuid": f"{name}-u{turn}", "parentUuid": parent, "message": user})
        content = [{"type": "text", "text": "answer"}]
        answer = {"id": f"msg_{name}{turn}", "role": "assistant", "model": model, "content": content, "usage": usage}
        ids = {"uuid": f"{name}-a{turn}", "parentUuid": f"{name}-u{turn}"}
        rows.append({**common, "type": "assistant", **ids, "message": answer})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return put(home / ".claude" / "projects" / "p" / f"{name}.jsonl", text)


CACHED = {"input_tokens": 10, "cache_creation_input_tokens": 900, "cache_read_input_tokens": 9000, "output_tokens": 5}
FRESH = {"input_tokens": 9000, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5}


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        pytest.param("claude-sonnet-4-5", CACHED, ["ok", "ok"], id="known and cached"),
        pytest.param("claude-sonnet-4-5", FRESH, ["ok", "note"], id="never cached"),
        pytest.param("nobody-\x1b[2Jknows", CACHED, ["note", "ok"], id="a model that nobody knows"),
    ],
)
def test_the_newest_logs(model: str, usage: dict[str, int], expected: list[str], machine: Made) -> None:
    here = machine()
    assert statuses(check_newest_logs(here)) == ["ok"]
    logged(here.home, "one", model, usage)
    found = list(check_newest_logs(here))
    assert statuses(found) == expected, found
    assert all(each.text.isprintable() for each in found)


def test_only_so_many_logs_are_read(machine: Made) -> None:
    here = machine()
    for number in range(30):
        path = logged(here.home, f"s{number}", "claude-sonnet-4-5" if number else "nobody-knows", CACHED, turns=1)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    put(here.home / ".claude" / "projects" / "p" / "long.jsonl", "x" * (5 << 20))
    found = list(check_newest_logs(here))
    assert "newest 19 logs" in found[0].text
    assert statuses(found) == ["ok", "ok"]
