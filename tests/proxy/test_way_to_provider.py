"""The network settings of the client's machine are followed: proxies of several kinds, and certificates."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from ibidem.environment import install_command
from ibidem.providers.egress import CERTIFICATE_VARIABLES
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.store import MemoryStore
from tests.support.hops import NAME, Authority, http_proxy, socks_proxy
from tests.support.raw import Script, Server, answering, asked, connect, to

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n"
SCHEMES = ("http", "https", "socks5", "socks5h")
DEADLINE = 60.0


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set on this machine."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in CERTIFICATE_VARIABLES:
            monkeypatch.delenv(name)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def between(
    scheme: str, upstream: Server, authority: Authority, known: str | None = None, wrong: str | None = None
) -> Iterator[tuple[Server, str]]:
    """A proxy, and its address as it is set."""
    script: Script = (socks_proxy if scheme.startswith("socks") else http_proxy)(upstream, known)
    if scheme == "https":
        script = authority.secured(script, "127.0.0.1")
    credentials = wrong or known
    with Server(script) as server:
        yield server, f"{scheme}://{f'{credentials}@' if credentials else ''}{server.host.decode()}"


def provider(secure: bool) -> str:
    return f"https://{NAME}/base" if secure else f"http://{NAME}:8080/base"


@pytest.mark.parametrize("known", [None, "user:s3cret"], ids=["open", "with a password"])
@pytest.mark.parametrize("secure", [True, False], ids=["to https", "to http"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_requests_leave_through_the_proxy_that_is_set(
    scheme: str, secure: bool, known: str | None, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = answering(OK, OK) if secure or scheme.startswith("socks") else answering(OK)  # there it is asked anew
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with (
        Server(authority.secured(script) if secure else script) as upstream,
        between(scheme, upstream, authority, known) as (hop, address),
    ):
        monkeypatch.setenv("https_proxy" if secure else "HTTP_PROXY", address)
        with BackgroundServer(to(provider(secure)), MemoryStore()) as proxy, connect(proxy.url) as client:
            for _ in range(2):
                client.send(GET)
                assert client.message("GET")[1] == b"ok"
        way = hop.next()
        assert hop.seen.empty(), "the way is used again"
        seen = upstream.next()[0][0]
    assert seen.split(b" ")[1].endswith(b"/base/v1/models")
    assert seen.lower().count(b"\r\nhost:") == 1
    if scheme.startswith("socks"):
        assert way == (f"{NAME}:443" if secure else f"{NAME}:8080")
    elif secure:
        assert [head.split(b"\r\n")[0] for head in way] == [f"CONNECT {NAME}:443 HTTP/1.1".encode()]
        assert b"A: b" not in way[0]
    else:
        assert way[0].startswith(f"GET http://{NAME}:8080/base/v1/models HTTP/1.1\r\nHost: {NAME}:8080\r\n".encode())
    if secure:
        assert b"s3cret" not in seen
        assert b"roxy-Auth" not in seen


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_proxy_that_refuses_us_is_told_of_without_the_password(
    scheme: str, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CURL_CA_BUNDLE", str(authority.file))
    with (
        Server(answering(OK)) as upstream,
        between(scheme, upstream, authority, "user:right", "user:wr0ng") as (_, address),
    ):
        monkeypatch.setenv("ALL_PROXY", address)
        with BackgroundServer(to(provider(True)), MemoryStore()) as proxy:
            head, body = asked(proxy, GET)
            state = asked(proxy, b"GET /ibidem/api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")[1]
        assert upstream.seen.empty()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"wr0ng" not in body + state
    assert "wr0ng" not in caplog.text


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_proxy_that_is_not_there_is_never_gone_around(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(answering(OK)) as upstream:
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://user:s3cret@127.0.0.1:1")
        base = upstream.url.replace("127.0.0.1", "127.0.0.1.nip.test")
        with BackgroundServer(to(base), MemoryStore()) as proxy:
            head, body = asked(proxy, GET)
        assert upstream.seen.empty()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"s3cret" not in body


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_what_is_excluded_goes_around_the_proxy(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(lambda peer: pytest.fail("nobody should come")) as hop:
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://{hop.host.decode()}")
        monkeypatch.setenv("NO_PROXY", f"elsewhere.test,.{NAME}")
        with BackgroundServer(to(f"http://{NAME}"), MemoryStore()) as proxy:
            assert asked(proxy, GET)[0].startswith(b"HTTP/1.1 502 "), "there is no such name here"


# ── certificates ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def secure_upstream(authority: Authority) -> Iterator[str]:
    with Server(authority.secured(answering(OK), "127.0.0.1", "localhost")) as server:
        yield server.url.replace("http://", "https://")


def test_a_certificate_that_nobody_vouches_for_is_refused(authority: Authority) -> None:
    with secure_upstream(authority) as url, BackgroundServer(to(url), MemoryStore()) as proxy:
        head, body = asked(proxy, GET)
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"ertificate" in body


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        *((name, name == "SSL_CERT_DIR") for name in CERTIFICATE_VARIABLES),
        ("REQUESTS_CA_BUNDLE", True),
        ("CURL_CA_BUNDLE", True),
    ],
)
def test_certificates_that_are_named_are_believed(
    variable: str, folder: bool, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    shutil.copy(authority.file, tmp_path / "folder" / "company.pem")
    monkeypatch.setenv(variable, str(tmp_path / "folder" if folder else authority.file))
    with secure_upstream(authority) as url, BackgroundServer(to(url), MemoryStore()) as proxy:
        assert asked(proxy, GET)[1] == b"ok"


def test_a_folder_in_the_way_of_openssl_is_believed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs: apt-get install openssl")
    told = subprocess.check_output(["openssl", "x509", "-hash", "-noout", "-in", authority.file], text=True)
    (tmp_path / "folder").mkdir()
    shutil.copy(authority.file, tmp_path / "folder" / f"{told.strip()}.0")
    monkeypatch.setenv("SSL_CERT_DIR", f"/nowhere{os.pathsep}{tmp_path / 'folder'}")
    with secure_upstream(authority) as url, BackgroundServer(to(url), MemoryStore()) as proxy:
        assert asked(proxy, GET)[1] == b"ok"


def test_certificates_are_added_to_others_and_to_the_systems(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "system").mkdir()
    other, system = Authority(tmp_path / "other"), Authority(tmp_path / "system")
    usual = SimpleNamespace(openssl_cafile=str(system.file), openssl_capath="/nowhere")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: usual)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(other.file))
    for each in (authority, other, system):
        with secure_upstream(each) as url, BackgroundServer(to(url), MemoryStore()) as proxy:
            assert asked(proxy, GET)[1] == b"ok"


# ── what cannot be followed ─────────────────────────────────────────────────────────────────────────────────────────

NO_PROXY = "import os, sys; print(os.environ.get('ANTHROPIC_BASE_URL')); sys.exit(4)"
IMPOSSIBLE = {
    "unknown scheme": (
        {"HTTPS_PROXY": "ftp://user:s3cret@proxy:21"},
        "HTTPS_PROXY: unknown scheme 'ftp'. Use one like http://proxy.example:3128 (http, https, socks5, socks5h)",
    ),
    "bad port": (
        {"all_proxy": "http://user:s3cret@proxy:port"},
        "all_proxy: invalid proxy URL. Use one like http://proxy.example:3128",
    ),
    "missing extra": (
        {"ALL_PROXY": "socks5h://user:s3cret@proxy:1080"},
        f"ALL_PROXY: a SOCKS proxy needs: {install_command('socks')}",
    ),
    "no such file": (
        {"NODE_EXTRA_CA_CERTS": "/nowhere/s.pem"},
        "NODE_EXTRA_CA_CERTS: /nowhere/s.pem: No such file or directory. "
        "Set it to a file with certificates, or unset NODE_EXTRA_CA_CERTS",
    ),
    "no such folder": (
        {"SSL_CERT_DIR": "/nowhere"},
        "SSL_CERT_DIR: /nowhere: No such file or directory. Set it to a file with certificates, or unset SSL_CERT_DIR",
    ),
    "no certificates": (
        {"REQUESTS_CA_BUNDLE": __file__},
        f"REQUESTS_CA_BUNDLE: {__file__}: it contains no certificates. "
        "Set it to a file with certificates, or unset REQUESTS_CA_BUNDLE",
    ),
}


def ran(home: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """`ibidem`, where the package for SOCKS is not installed."""
    code = "import sys; sys.modules['python_socks'] = None; from ibidem.cli import main; main()"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_", "ANTHROPIC_"))}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**kept, "HOME": str(home), "IBIDEM_STORE": "memory:", **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "line"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_followed_stops_the_proxy(environment: dict[str, str], line: str, tmp_path: Path) -> None:
    done = ran(tmp_path, environment, "proxy", "--port", "0")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ibidem: {line}\n")


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "line"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_followed_does_not_stop_a_command(
    environment: dict[str, str], line: str, tmp_path: Path
) -> None:
    done = ran(tmp_path, environment, "wrap", "--", sys.executable, "-c", NO_PROXY)
    assert (done.returncode, done.stdout) == (4, "None\n")
    assert done.stderr == f"ibidem: the proxy could not start, the command runs without it: {line}\n"
