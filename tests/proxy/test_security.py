"""Who may see what: pages, tokens, credentials, cookies."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.page.admin_pages import is_rebound, remove_tokens
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore, reference
from ibidem.testing import Says, Upstream, conv
from tests.support.proxied import waited_for
from tests.support.raw import PATIENCE, answering, asked, connect, proxied, to

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PAGES = [
    "/ibidem",
    "/ibidem/",
    "/ibidem/health",
    "/ibidem/metrics",
    "/ibidem/api/state",
    "/ibidem/api/live",
    "/ibidem/api/conversation/c1",
    "/ibidem/recall/0123456789abcdef",
    "/ibidem/nothing",
]


def get(target: str, *headers: str, method: str = "GET", host: str = "localhost") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


def status(answer: tuple[bytes, bytes]) -> int:
    return int(answer[0].split(b" ")[1])


FOREIGN: dict[str, tuple[str, tuple[str, ...]]] = {
    "a name that leads here": ("evil.example", ()),
    "such a name, with the port": ("evil.example:8123", ()),
    "a name that begins like ours": ("localhost.evil.example", ()),
    "a name that ends like ours": ("evil-localhost", ()),
    "an address of someone else": ("192.168.1.7", ()),
    "a user before the name": ("localhost@evil.example", ()),
    "no name": ("", ()),
    "another origin": ("localhost:8123", ("Origin: https://evil.example",)),
    "another port": ("localhost:8123", ("Origin: http://localhost:3000",)),
    "an origin that hides": ("localhost:8123", ("Origin: null",)),
    "an origin that is none": ("localhost:8123", ("Origin: http://[",)),
    "another site's script": ("localhost:8123", ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")),
    "another port's script": ("localhost:8123", ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors")),
    "another site's frame": (
        "localhost:8123",
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
    ),
}


@pytest.mark.parametrize(("host", "headers"), FOREIGN.values(), ids=FOREIGN)
def test_other_sites_see_nothing_of_ours(host: str, headers: tuple[str, ...]) -> None:
    with proxied(answering()) as (_, proxy):
        for page in PAGES:
            answer = asked(proxy, get(page, *headers, host=host))
            assert status(answer) == 403, page
            assert b"c1" not in answer[1]


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("localhost", ()),
        ("LOCALHOST:1", ()),
        ("127.0.0.1:8123", ()),
        ("[::1]:8123", ()),
        ("[::1]", ()),
        ("localhost:8123", ("Origin: http://localhost:8123", "Sec-Fetch-Site: same-origin")),
        ("localhost", ("Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate")),
    ],
)
def test_our_own_names_do(host: str, headers: tuple[str, ...]) -> None:
    with proxied(answering()) as (_, proxy):
        assert status(asked(proxy, get("/ibidem/api/state", *headers, host=host))) == 200


UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA")


@pytest.mark.parametrize("origin", ["Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"])
def test_page_of_another_site_opens_no_websocket(origin: str) -> None:
    with proxied(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as (upstream, proxy):
        answer = asked(proxy, get("/v1/realtime", *UPGRADE, origin, host="localhost:8123"))
        assert status(answer) == 403
        assert upstream.seen.empty()
        assert status(asked(proxy, get("/v1/realtime", *UPGRADE, host="localhost:8123"))) == 200
        assert upstream.seen.get(timeout=PATIENCE)


def test_a_link_to_the_page_may_be_followed_and_to_nothing_else() -> None:
    led = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    with proxied(answering()) as (_, proxy):
        assert status(asked(proxy, get("/ibidem", *led))) == 200
        assert status(asked(proxy, get("/ibidem/api/state", *led))) == 403


def test_an_address_is_our_own_name_where_we_listen_everywhere() -> None:
    with proxied(answering(), host="0.0.0.0", token="s3cret") as (_, proxy):
        url = proxy.url.replace("0.0.0.0", "127.0.0.1")
        for host, expected in (("192.168.1.7:8123", 200), ("[fe80::1]", 200), ("evil.example", 403)):
            with connect(url) as client:
                client.send(get("/ibidem/health", "x-ibidem-token: s3cret", host=host))
                assert status(client.message("GET")) == expected


# ── names that lead here (DNS rebinding), on the paths that are passed on ───────────────────────────────────────────

MISLED = {name: host for name, (host, headers) in FOREIGN.items() if not headers}


@pytest.mark.parametrize("host", MISLED.values(), ids=MISLED)
def test_nothing_is_passed_on_for_a_name_that_is_not_ours(host: str) -> None:
    upgrade = ("Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    with proxied(answering(OK)) as (server, proxy):
        for request in (
            get("/v1/models", host=host),
            get("/v1/messages", "Content-Length: 2", method="POST", host=host) + b"{}",
            get("/v1/files", "Transfer-Encoding: chunked", method="PUT", host=host) + b"0\r\n\r\n",
            get("/openai/v1/responses", *upgrade, host=host),
            get("/v1/models?token=x", "x-ibidem-token: x", "Origin: http://" + host, host=host),
        ):
            with connect(proxy.url) as client:
                client.send(request)
                head, body = client.message("POST")
                assert head.startswith(b"HTTP/1.1 403 ")
                assert b"unknown host name for this proxy: use the address that it printed, or set a token" in body
                assert client.rest() == b""
        assert server.seen.empty()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8123", "[::1]:8123", "[::1]"])
def test_our_own_names_are_passed_on(host: str) -> None:
    with proxied(answering(OK)) as (_, proxy):
        assert asked(proxy, get("/v1/models", host=host))[1] == b"ok"


def test_who_says_no_name_is_no_browser() -> None:
    with proxied(answering(OK)) as (_, proxy):
        assert asked(proxy, b"GET /v1/models HTTP/1.0\r\n\r\n")[1] == b"ok"


def test_with_a_token_any_name_will_do() -> None:
    with proxied(answering(OK), token="s3cret") as (_, proxy):
        assert asked(proxy, get("/v1/models", "x-ibidem-token: s3cret", host="evil.example"))[1] == b"ok"


def test_a_name_that_the_user_chose_is_ours() -> None:
    for host, target, expected in (
        ("box:8123", "/v1/models", False),
        ("BOX", "/v1/models", False),
        ("other", "/v1/models", True),
        ("other", "http://other/v1/models", False),  # told elsewhere that this is no such proxy
    ):
        assert is_rebound(Settings(host="box"), target, {"host": host}) is expected


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("page", PAGES)
def test_pages_are_only_read(method: str, page: str) -> None:
    with proxied(answering()) as (_, proxy):
        head, body = asked(proxy, get(page, method=method))
        assert head.startswith(b"HTTP/1.1 405 ")
        assert b"\r\nAllow: GET, HEAD\r\n" in head
        assert body == b"use GET\n"


# ── the token ───────────────────────────────────────────────────────────────────────────────────────────────────────

TOKEN = "s3cret+/=ü"
QUOTED = "s3cret%2B%2F%3D%C3%BC"


@pytest.mark.parametrize("given", ["", "wrong", "s3cret", "S3CRET+/="])
def test_without_the_token_nothing_is_answered(given: str) -> None:
    with proxied(answering(OK), token=TOKEN) as (server, proxy):
        header = f"X-Ibidem-Token: {given}"
        for target in [*PAGES, "/v1/models", "/v1/messages", f"/v1/models?token={given}"]:
            for headers in ((), (header,)):
                answer = asked(proxy, get(target, *headers))
                assert status(answer) == 401, target
                assert b"token" in answer[1]
        assert server.seen.empty()


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models?a=%20b&&c", "/v1/models?a=%20b&&c"),
        (f"/v1/models?token={QUOTED}", "/v1/models"),
        (f"/v1/models?a=1&token={QUOTED}&b=2", "/v1/models?a=1&b=2"),
        (f"/v1/models?%74oken={QUOTED}&token=other", "/v1/models?token=other"),
    ],
)
def test_the_token_opens_the_door_and_stays_outside(target: str, sent: str) -> None:
    with proxied(answering(OK), token=TOKEN) as (server, proxy):
        latin = TOKEN.encode().decode("latin-1")
        headers = () if QUOTED in target else (f"X-IBIDEM-Token: {latin}",)
        request = "\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *headers, "A: b", "", ""]).encode("latin-1")
        assert asked(proxy, request)[1] == b"ok"
        seen = server.next()[0][0]
        assert seen == f"GET {sent} HTTP/1.1\r\nHost: ".encode() + server.host + b"\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("page", [page for page in PAGES if "live" not in page])
def test_pages_take_the_token_from_a_header_or_the_query(page: str) -> None:
    with proxied(answering(), token="s3cret") as (_, proxy):
        for request in (get(f"{page}?token=s3cret"), get(page, "x-ibidem-token: s3cret")):
            assert status(asked(proxy, request)) in (200, 404)


def test_no_target_is_changed_where_there_is_no_token() -> None:
    target = "/v1/x?token=theirs&&%zz"
    assert remove_tokens(Settings(), target) == target
    assert remove_tokens(Settings(token="ours"), target) == target


# ── texts on a shared proxy ─────────────────────────────────────────────────────────────────────────────────────────

TEXT = "what-only-the-client-should-see"
BOTH = ("x-ibidem-token: s3cret", "x-ibidem-page-token: s3cond")
ONE = BOTH[:1]


@contextmanager
def shared(**more: Any) -> Iterator[tuple[BackgroundServer, list[str]]]:
    """A proxy that rewrote a request whose every text says `TEXT`, and the pages that show texts of it."""
    store = MemoryStore()
    store.put("any", {reference(TEXT): TEXT})
    body = conv(f"u:{TEXT}", "a>1", f"r1:{f'{TEXT} and more' * 40}", "a>2", f"r2:{f'{TEXT} and more' * 40}")
    data = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": body["messages"]}).encode()
    settings = {"host": "0.0.0.0", "token": "s3cret", **more}
    with Upstream(lambda _: Says("ok")) as upstream, BackgroundServer(to(upstream.url, **settings), store) as proxy:
        answer = asked(proxy, get("/v1/messages", *ONE, f"Content-Length: {len(data)}", method="POST") + data)
        assert status(answer) == 200
        waited_for(lambda: b'"active": false' in asked(proxy, get("/ibidem/api/state", *BOTH))[1])
        yield proxy, ["/ibidem/api/exchange/e1", f"/ibidem/recall/{reference(TEXT)}"]


def live(proxy: BackgroundServer, *headers: str, query: str = "") -> bytes:
    """The first state that it tells."""
    with connect(proxy.url) as client:
        client.send(get(f"/ibidem/api/live{query}", *headers))
        return client.until(b"\r\n\r\n") + client.until(b"\n\n")


def conversation_page(proxy: BackgroundServer) -> str:
    (found,) = json.loads(asked(proxy, get("/ibidem/api/state", *BOTH))[1])["conversations"]
    return f"/ibidem/api/conversation/{found['id']}"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        pytest.param({"page_token": "s3cond"}, 401, id="a page token"),
        pytest.param({"page_token": "s3cond", "host": "127.0.0.1"}, 401, id="a page token on loopback"),
        pytest.param({"page_token": "s3cond", "host": "127.0.0.1", "token": None}, 401, id="only a page token"),
        pytest.param({}, 403, id="none, where others can connect"),
        pytest.param({"texts": False}, 403, id="texts are off"),
        pytest.param({"texts": False, "page_token": "s3cond"}, 403, id="off, whatever token there is"),
        pytest.param({"texts": False, "host": "127.0.0.1"}, 403, id="off on loopback"),
    ],
)
def test_the_token_gives_figures_and_no_texts(settings: dict[str, Any], code: int) -> None:
    with shared(**settings) as (proxy, texts):
        figures = [*(page for page in PAGES if "live" not in page), conversation_page(proxy)]
        for sent in (ONE, (*ONE, "x-ibidem-page-token: wrong"), (*ONE, "x-ibidem-page-token: s3cret")):
            for page in texts:
                assert status(answer := asked(proxy, get(page, *sent))) == code
                assert TEXT.encode() not in answer[1]
                for query in ("?page_token=", "?page_token=wrong", "?page_token=s3cret", "?token=s3cond"):
                    assert status(asked(proxy, get(page + query, *sent))) == code
            shown = b"".join(asked(proxy, get(page, *sent))[1] for page in figures) + live(proxy, *sent)
            assert TEXT.encode() not in shown
            assert b"s3cond" not in shown
            state = json.loads(asked(proxy, get("/ibidem/api/state", *sent))[1])
            assert (state["totals"]["requests"], state["conversations"][0]["title"]) == (1, "")
            assert state["texts"] == ("token" if code == 401 else "none")


@pytest.mark.parametrize("by", ["header", "query"])
def test_with_the_page_token_texts_are_shown(by: str) -> None:
    with shared(page_token="s3cond") as (proxy, texts):
        sent = BOTH if by == "header" else ()
        query = "" if by == "header" else "?token=s3cret&page_token=s3cond"
        for page in (*texts, "/ibidem/api/state", conversation_page(proxy)):
            answer = asked(proxy, get(page + query, *sent))
            assert status(answer) == 200
            assert TEXT.encode() in answer[1]
        assert TEXT.encode() in live(proxy, *sent, query=query)
        assert b'name="ibidem-page-token" content="s3cond"' in asked(proxy, get(f"/ibidem{query}", *sent))[1]


def test_the_page_token_alone_opens_nothing() -> None:
    with shared(page_token="s3cond") as (proxy, texts):
        for page in (*texts, "/ibidem", "/ibidem/api/state", "/ibidem/metrics", "/v1/models"):
            for request in (get(page, BOTH[1]), get(f"{page}?page_token=s3cond"), get(f"{page}?token=s3cond")):
                assert status(asked(proxy, request)) == 401


def test_on_loopback_all_who_may_use_the_proxy_see_texts() -> None:
    for token in (None, "s3cret"):
        with shared(host="127.0.0.1", token=token) as (proxy, texts):
            for page in texts:
                answer = asked(proxy, get(page, *ONE))
                assert (status(answer), TEXT.encode() in answer[1]) == (200, True)


@pytest.mark.parametrize("token", [None, "s3cret"])
def test_the_page_token_stays_outside(token: str | None) -> None:
    with proxied(answering(OK), token=token, page_token="s3cond") as (server, proxy):
        target = "/v1/models?a=1&page_token=s3cond&b=2&page_token=theirs"
        assert asked(proxy, get(target, *BOTH))[1] == b"ok"
        seen = server.next()[0][0]
        assert seen.startswith(b"GET /v1/models?a=1&b=2&page_token=theirs HTTP/1.1\r\n")
        assert b"s3c" not in seen


# ── credentials ─────────────────────────────────────────────────────────────────────────────────────────────────────

SECRETS = {
    "x-api-key": "sk-ant-SECRET1",
    "authorization": "Bearer SECRET2",
    "cookie": "session=SECRET3",
    "x-goog-api-key": "SECRET4",
    "x-custom": "SECRET5",
    "proxy-authorization": "Basic SECRET6",
}


def test_credentials_are_seen_by_upstream_and_by_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    for name in ("ibidem", "asyncio", "aiohttp", "ibidem.http"):
        logging.getLogger(name).addHandler(caplog.handler)
    journal = tmp_path / "log.jsonl"
    shown = b""
    lines = [f"{name}: {value}" for name, value in SECRETS.items()]
    with Upstream(lambda _: Says("ok")) as upstream:
        with BackgroundServer(to(upstream.url, json_log=str(journal)), MemoryStore()) as proxy:
            for body in (json.dumps(conv("u:hello", "a:hi", "u:more")).encode(), b"no json", b'{"messages": 5}'):
                for path in ("/v1/messages", "/v1/files", "/v1/messages/count_tokens", "/v1/responses?key=SECRET7"):
                    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                    asked(proxy, (head + "\r\n".join([*lines, "", ""])).encode() + body)
            with connect(proxy.url) as client:  # what cannot be parsed is not quoted either
                client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer SECRET8\r\n\r\n")
                client.rest()
            for page in (*PAGES, *(f"/ibidem/api/exchange/e{number}" for number in range(1, 13))):
                if "live" not in page:
                    shown += asked(proxy, get(page))[1]
            summary = proxy.stop()
        assert upstream.seen[0].header("authorization") == "Bearer SECRET2"
    for name in ("ibidem", "asyncio", "aiohttp", "ibidem.http"):
        logging.getLogger(name).removeHandler(caplog.handler)
    assert journal.read_text().count("\n") == 12
    assert journal.stat().st_mode & 0o077 == 0
    captured = capfd.readouterr()
    for text in (journal.read_text(), caplog.text, captured.out, captured.err, str(summary), shown.decode()):
        assert "SECRET" not in text


def test_cookies_are_the_clients_own() -> None:
    set_cookie = OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: id=of-a; Path=/\r\n\r\n")
    with proxied(answering(set_cookie, OK)) as (server, proxy):
        head, _ = asked(proxy, get("/v1/models"))
        assert b"Set-Cookie: id=of-a; Path=/\r\n" in head
        head, _ = asked(proxy, get("/v1/models"))
        assert b"ookie" not in head
        assert all(b"ookie" not in head for head, _ in server.next())


def test_a_key_in_netrc_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password SECRET\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with proxied(answering(OK)) as (server, proxy):
        asked(proxy, get("/v1/models"))
        assert b"uthorization" not in server.next()[0][0]


def test_no_page_is_kept_or_guessed_at_by_a_browser() -> None:
    with proxied(answering()) as (_, proxy):
        for page in PAGES:
            if "live" not in page:
                head, _ = asked(proxy, get(page))
                assert b"\r\nX-Content-Type-Options: nosniff\r\n" in head
                assert b"\r\nCache-Control: no-store\r\n" in head
                assert b"Access-Control" not in head


def test_the_name_of_a_page_is_looked_up_and_not_opened() -> None:
    with proxied(answering()) as (_, proxy):
        for target in (
            "/ibidem/../etc/passwd",
            "/ibidem/recall/../../x",
            "/ibidem/api/exchange/%2e%2e",
            "/ibidem/api/",
        ):
            assert status(asked(proxy, get(target))) == 404
