"""Machines that are set up badly, folders that want to decide, names that lead here: generated, and counted."""

from __future__ import annotations

import http.client
import os
import random
import socket
import string
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from ibidem.proxy.settings import FIELDS, FOLDER_BYTES, FOLDER_PROFILES, Settings, read_settings
from ibidem.store import MemoryStore, reference
from tests.support.modes import mortal
from tests.support.raw import Peer, answering, connect, proxied

from .conftest import Tally

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE = 60.0

# --- a folder wants to decide ---------------------------------------------------------------------

KEYS = (*FIELDS, "upstreams", "upstreams.anthropic", "config", "prot", '"\\u001b[2J"', "a.b.c", "__proto__")
VALUES = (
    *(
        "0",
        "1",
        "7",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e999",
        "9" * 400,
        "0x7f",
        "true",
        "false",
        "''",
        "[]",
        "{}",
        "[[[]]]",
    ),
    *("'recoverable'", "'lossless'", "'aggressive'", "'0.0.0.0'", "'https://evil.example'", "'/etc/passwd'", "'-'"),
    *(
        "{anthropic = 'https://evil.example'}",
        "1979-05-27",
        '"\\u001b]0;x\\u0007"',
        "'''\nx\n'''",
        "'redis://:pw@evil'",
    ),
)

TABLES = ("[proxy]", "[proxy.upstreams]", "[[proxy]]", "[other]", "proxy = 1", "[proxy", "# nothing", "")


def written(rng: random.Random) -> bytes:
    lines = [rng.choice(TABLES)] if rng.random() < 0.2 else ["[proxy]"]
    lines += [f"{rng.choice(KEYS)} = {rng.choice(VALUES)}" for _ in range(rng.randrange(6))]
    data = bytearray("\n".join(lines).encode())
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        data[rng.randrange(len(data) + 1) : 0] = bytes([rng.randrange(256)])
    return bytes(data)


def test_a_folder_never_decides(tmp_path: Path, tally: Tally) -> None:
    """Whatever it says: nothing is raised, and nothing holds but a harmless profile and smaller limits."""
    rng, counts = random.Random(10), Counter[str]()
    own, here = tmp_path / "own", tmp_path / "here"
    for folder in (own, here):
        folder.mkdir()
    before = Settings(memory_mb=100, budget_ms=500.0)
    (own / "ibidem.toml").write_text("[proxy]\nmemory_mb = 100\nbudget_ms = 500\n")
    for _ in range(20_000):
        (here / "ibidem.toml").write_bytes(written(rng))
        found, line = (loaded := read_settings({}, {}, here, own)).settings, loaded.source_line()
        for name in FIELDS:
            value, held = getattr(found, name), getattr(before, name)
            if value != held:
                counts[name] += 1
                assert (
                    value in FOLDER_PROFILES if name == "profile" else FIELDS[name].can_be_lowered and 0 < value < held
                )
                assert f"{name} " in line.replace(",", " ")
        assert found.upstreams == before.upstreams
        assert line.isprintable()
        assert len(line) < 1000
    tally("files of a folder", files=20_000, **counts)
    assert counts


def test_a_folder_does_not_hold_us_up(tmp_path: Path, tally: Tally) -> None:
    """What takes longest to read, at the size that is read, costs what a few ordinary files do."""
    dots = b"a." * (FOLDER_BYTES // 2 - 4) + b"a=1"
    plain = b"\n".join(b"a%d = 1" % number for number in range(FOLDER_BYTES // 10))
    worst = {"dots": dots, "plain": plain, "nested": b"a=" + b"[" * (FOLDER_BYTES - 2), "too long": dots * 1000}
    took = {}
    for name, data in worst.items():
        (tmp_path / "ibidem.toml").write_bytes(data)
        runs = []
        for _ in range(3):
            start = time.perf_counter()
            assert read_settings({}, {}, tmp_path, None).settings == Settings()
            runs.append(time.perf_counter() - start)
        took[name] = min(runs)
    tally("files that are slow to read, in ms", **{name: round(1e3 * each) for name, each in took.items()})
    assert took["dots"] < 200 * took["plain"]
    assert took["too long"] < took["dots"]


# --- a machine that is set up badly -------------------------------------------------------------------

LED = "import sys; print('ran'); sys.exit(7)"


def _file(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _homes(folder: Path) -> dict[str, str]:
    (folder / "shut").mkdir(mode=0)
    (folder / "loop").symlink_to("loop")
    settings = {}
    for name, content in (("broken", b"[proxy"), ("binary", bytes(range(256))), ("wrong", b"[proxy]\nport = 'x'\n")):
        settings[name] = str(_file(folder / name / ".config" / "ibidem" / "ibidem.toml", content).parents[2])
    (pipe := folder / "pipe" / ".config" / "ibidem").mkdir(parents=True)
    os.mkfifo(pipe / "ibidem.toml")
    plain = {"plain": str(folder / "plain"), "file": str(_file(folder / "file")), "relative": "rel", "empty": ""}
    odd = {"shut": str(folder / "shut"), "loop": str(folder / "loop"), "long": str(folder / ("x" * 300))}
    return {**plain, **odd, **settings, "pipe": str(folder / "pipe")}


def test_the_command_always_runs(tmp_path: Path, tally: Tally) -> None:
    """Every home with every way to be in the way that a seed picks: the command ran, and one line was said."""
    rng, counts = random.Random(7), Counter[str]()
    homes = _homes(tmp_path)
    (tmp_path / "repository").mkdir()
    os.mkfifo(tmp_path / "repository" / "ibidem.toml")
    _file(tmp_path / "blocked" / "aiohttp.py", b"raise ImportError('broken', name='aiohttp')\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for home in [*homes, *rng.choices(list(homes), k=48)]:
            options = rng.choice([(), (), ("--port", str(taken.getsockname()[1])), ("--config", "missing")])
            more = rng.choice([{}, {"XDG_CACHE_HOME": str(tmp_path / "file")}, {"IBIDEM_STORE": str(tmp_path)}])
            more |= rng.choice([{}, {}, {"PYTHONPATH": str(tmp_path / "blocked")}, {"IBIDEM_BUDGET_MS": "soon"}])
            kept = {k: v for k, v in os.environ.items() if not k.startswith(("IBIDEM_", "XDG_"))}
            done = subprocess.run(
                [sys.executable, "-m", "ibidem.cli", "wrap", *options, "--", sys.executable, "-c", LED],
                env={**kept, "HOME": homes[home], **more},
                cwd=rng.choice([tmp_path, tmp_path / "repository"]),
                preexec_fn=mortal,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
            assert (done.returncode, done.stdout) == (7, b"ran\n"), (home, options, more, done.stderr)
            first, *rest = done.stderr.decode().splitlines()
            assert first.startswith("ibidem: ")
            without = first.startswith("ibidem: there is no proxy, the command runs without it: ")
            assert "please report it" not in first
            assert len(rest) == (0 if without or not first.startswith("ibidem: settings: ") else 1)
            counts["without us" if without else "with us"] += 1
    (tmp_path / "shut").chmod(0o700)
    tally("machines that are set up badly", runs=counts.total(), not_run=0, **counts)


# --- names that lead here -------------------------------------------------------------------------------

OURS = ("localhost", "127.0.0.1", "[::1]", "::1")


def _host(rng: random.Random) -> str:
    name = rng.choice((*OURS, "evil.example", "192.168.1.7", "10.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]", "127.1", "x"))
    port = rng.choice(("", "", ":8123", ":0", ":99999", ":", ":a", ":8123:8123"))
    bent = rng.choice(
        (str, str, str.upper, lambda it: f"{it}.", lambda it: f"evil-{it}", lambda it: f"{it}.evil", "a@{}".format)
    )
    return bent(name) + port


def _is_ours(host: str) -> bool:
    """Said in another way than by the proxy: the names with nothing, or with a port."""
    low = host.lower()
    return any(low == name or (low.startswith(f"{name}:") and low[len(name) + 1 :].isdecimal()) for name in OURS) and (
        not low.startswith("::1:")
    )


def _status(peer: Peer) -> int:
    return int(peer.message("GET")[0].split(b" ")[1])


def test_no_request_for_another_name_is_passed_on(tally: Tally) -> None:
    rng, counts = random.Random(3), Counter[str]()
    passed = 0

    def script(peer: Peer) -> None:
        nonlocal passed
        while True:
            try:
                peer.message()
            except (EOFError, OSError):
                return
            passed += 1
            peer.send(OK)

    with proxied(script) as (_, proxy):
        for _ in range(5_000):
            host = _host(rng)
            with connect(proxy.url) as client:
                client.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                status = _status(client)
            assert status == (200 if _is_ours(host) else 403), host
            counts["passed on" if status == 200 else "refused"] += 1
        assert passed == counts["passed on"]
    tally("names that lead here", requests=counts.total(), **counts, crossed=passed - counts["passed on"])


# --- tokens -----------------------------------------------------------------------------------------------


def _ask(url: str, target: str, headers: dict[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request("GET", target, headers=headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("settings", [{}, {"page_token": "PAGE-TOKEN"}, {"page_token": "PAGE-TOKEN", "texts": False}])
def test_no_token_but_the_right_one_opens(settings: dict[str, Any], tally: Tally) -> None:
    rng, counts, secret = random.Random(5), Counter[str](), "a text of a client"
    store = MemoryStore()
    store.put("any", {reference(secret): secret})
    wrong = (
        "",
        "T",
        "TOKE",
        "TOKENX",
        "token",
        "PAGE-TOKE",
        "page-token",
        "TOKEN\x00",
        "TOKEN TOKEN",
        " ",
        "*",
        "null",
    )
    from ibidem.proxy.edge.server import BackgroundServer
    from tests.support.raw import Server, to

    with (
        Server(answering()) as server,
        BackgroundServer(to(server.url, host="0.0.0.0", token="TOKEN", **settings), store) as proxy,
    ):
        url = proxy.url.replace("0.0.0.0", "127.0.0.1")
        for _ in range(3_000):
            given = {name: rng.choice((*wrong, "TOKEN", "PAGE-TOKEN")) for name in ("token", "page_token")}
            if rng.random() < 0.1:
                given = {name: "".join(rng.choices(string.printable, k=9)) for name in given}
            sent = {f"x-ibidem-{name.replace('_', '-')}": quote(value) for name, value in given.items()}
            query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
            in_query = rng.random() < 0.5
            target = f"/ibidem/recall/{reference(secret)}" + (f"?{query}" if in_query else "")
            status, body = _ask(url, target, {} if in_query else sent)
            right = given["token"] == "TOKEN"
            both = right and given["page_token"] == "PAGE-TOKEN" and settings == {"page_token": "PAGE-TOKEN"}
            assert (status == 200) is both
            assert (secret.encode() in body) is both
            counts["opened" if both else "refused"] += 1
    tally(f"tokens, {settings or 'no page token'}", requests=counts.total(), **counts)
