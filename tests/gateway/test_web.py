"""`ibidem mcp --url`: servers on loopback, asked through us and directly."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ibidem.errors import IbidemError
from ibidem.gateway.http_transport import NO_SESSION, HttpGateway
from ibidem.gateway.mcp_session import GatewaySettings, GatewayTotals
from ibidem.gateway.mcp_upstream import McpUpstream, parse_mcp_upstream, rejection_reason, rewrite_location

from .talks import LONG, line, texts

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CALL = line(id=5, method="tools/call", params={"name": "read", "arguments": {}})
MOST = 10_000


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    server = web.Server(handler, handler_cancellation=True, auto_decompress=False)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Through:
    """A server, and a client that asks it through us."""

    def __init__(self, url: str, client: aiohttp.ClientSession, told: list[str], totals: GatewayTotals) -> None:
        self.url, self.client, self.told, self.totals = url, client, told, totals

    async def post(self, data: bytes, path: str = "/mcp", **headers: str) -> tuple[int, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(self.url + path, data=data, headers=named) as answer:
            return answer.status, await answer.read()

    async def begin(self, path: str = "/mcp", **headers: str) -> None:
        asked = line(id=1, method="initialize", params={"clientInfo": {"name": "an-agent"}})
        assert (await self.post(asked, path, **headers))[0] == 200

    async def results(self, number: int, session: str = "s") -> list[bytes]:
        asked = [CALL.replace(b"{}", b'{"n": %d}' % each) for each in range(number)]
        return [(await self.post(each, Mcp_Session_Id=session))[1] for each in asked]


def run(server: Handler, test: Callable[[Through], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        told: list[str] = []
        totals = GatewayTotals()
        async with listening(server) as upstream, aiohttp.ClientSession() as client:
            asked = GatewaySettings(no_subagents=True, **settings)
            gateway = HttpGateway(parse_mcp_upstream(f"{upstream}/mcp"), asked, totals, told.append, MOST)
            async with gateway, listening(gateway.handle) as url:
                await test(Through(url, client, told, totals))

    asyncio.run(main())


def answering(
    body: bytes, kind: str = "application/json", session: bool = True, seen: list[Any] | None = None
) -> Handler:
    """A server whose tools say always the same."""

    async def answer(request: web.BaseRequest) -> web.Response:
        asked = await request.read()
        if seen is not None:
            seen.append((request.method, request.raw_path, dict(request.headers), asked))
        if b'"initialize"' in asked:
            given = {"Mcp-Session-Id": "s"} if session else {}
            found = line(id=1, result={"serverInfo": {"name": "web"}})
            return web.Response(body=found, content_type="application/json", headers=given)
        return web.Response(body=body, content_type=kind)

    return answer


RESULT = line(id=5, result=texts(LONG))
EVENTS = b"id: 1\r\ndata: \r\n\r\n: ping\n\nevent: message\nid: 2\ndata: " + RESULT.strip() + b"\n\n"


@pytest.mark.parametrize(("body", "kind"), [(RESULT, "application/json"), (EVENTS, "text/event-stream")])
def test_a_repeat_is_hinted_at_in_a_session_and_nowhere_else(body: bytes, kind: str) -> None:
    async def test(through: Through) -> None:
        await through.begin()
        first, again = await through.results(2)
        assert first == body
        start, end = body.split(json.dumps(LONG).encode())
        assert again.startswith(start + b'"[ibidem: unchanged, same as the result 1 web call ago, read')
        assert again.endswith(end)
        assert await through.results(1, session="another") == [body]
        assert (await through.client.delete(f"{through.url}/mcp", headers={"Mcp-Session-Id": "s"})).status == 200
        assert await through.results(2) == [body, body], "ended, and nobody said who goes on"
        assert through.totals.hints == 1

    run(answering(body, kind), test)


def test_an_id_that_two_clients_were_given_tells_nobody_apart() -> None:
    async def test(through: Through) -> None:
        await through.begin()
        assert await through.results(1) == [RESULT]
        await through.begin()
        assert await through.results(3) == [RESULT] * 3, "the second client has seen nothing"

    run(answering(RESULT), test)


def test_nobody_is_sent_what_stands_in_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks says who it is, or is nobody: a page in a browser could ask too."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    seen: list[Any] = []

    async def test(through: Through) -> None:
        assert (await through.post(CALL))[0] == 200
        assert (await through.post(CALL, Authorization="Bearer mine"))[0] == 200
        assert [headers.get("Authorization") for _, _, headers, _ in seen] == [None, "Bearer mine"]

    run(answering(RESULT, seen=seen), test)


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        seen: list[Any] = []
        async with listening(answering(RESULT, seen=seen)) as hop:
            monkeypatch.setenv("http_proxy", hop.replace("//", "//me:secret@"))
            monkeypatch.setenv("no_proxy", "")
            upstream = parse_mcp_upstream("http://mcp.invalid/mcp")
            gateway = HttpGateway(upstream, GatewaySettings(), GatewayTotals(), lambda _: None)
            async with gateway, listening(gateway.handle) as url, aiohttp.ClientSession() as client:
                through = Through(url, client, [], GatewayTotals())
                assert await through.post(CALL) == (200, RESULT)
        assert seen[0][2]["Host"] == "mcp.invalid"
        assert seen[0][2]["Proxy-Authorization"] == "Basic bWU6c2VjcmV0"

    asyncio.run(main())


def test_without_a_session_nothing_is_remembered_and_that_is_said_once() -> None:
    async def test(through: Through) -> None:
        await through.begin()
        for _ in range(3):
            assert await through.post(CALL) == (200, RESULT)
        assert through.told == [NO_SESSION]

    run(answering(RESULT, session=False), test)


def test_headers_pass_and_the_servers_name_is_its_own() -> None:
    seen: list[Any] = []
    sent = {
        "mcp-session-id": "s",
        "mcp-protocol-version": "2025-06-18",
        "mcp-method": "tools/call",
        "mcp-name": "read",
        "accept": "application/json, text/event-stream",
        "authorization": "Bearer of-the-client",
        "last-event-id": "7",
        "content-type": "application/json",
        "x-api-key": "also",
    }

    async def test(through: Through) -> None:
        await through.post(CALL, path="/mcp%2Fx/?a=b", **sent)
        ((method, path, headers, body),) = seen
        assert (method, path, body) == ("POST", "/mcp%2Fx/?a=b", CALL)
        got = {name.lower(): value for name, value in headers.items()}
        assert got.items() >= sent.items()
        assert got["accept-encoding"] == "identity"
        assert f"http://{got['host']}" != through.url

    run(answering(RESULT, seen=seen), test)


@pytest.mark.parametrize("absolute", [False, True])
def test_the_older_transport_is_told_apart_by_where_it_posts_to(absolute: bool) -> None:
    streams: dict[str, asyncio.Queue[bytes]] = {}

    async def server(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            streams[request.path_qs].put_nowait(await request.read())
            return web.Response(status=202, text="Accepted")
        name = f"/messages?session_id={len(streams)}"
        streams[name] = asyncio.Queue()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        base = f"http://{request.host}" if absolute else ""
        await response.write(f"event: endpoint\ndata: {base}{name}\n\n".encode())
        while asked := await streams[name].get():
            id = json.loads(asked)["id"]
            result = texts(LONG) if b"tools/call" in asked else {"serverInfo": {"name": "old"}}
            await response.write(b"event: message\ndata: " + line(id=id, result=result) + b"\n")
        return response

    async def test(through: Through) -> None:
        for _ in range(2):
            async with through.client.get(f"{through.url}/sse") as stream:
                (_, path, _) = [await stream.content.readline() for _ in range(3)]
                post = path.decode().removeprefix("data: ").strip()
                assert post.startswith(through.url) is absolute, "never to the server itself"
                post = post.removeprefix(through.url)
                told = []
                for number in range(3):
                    method = "tools/call" if number else "initialize"
                    params = {"name": "read", "clientInfo": {"name": "an-agent"}, "arguments": {"n": number}}
                    assert (await through.post(line(id=number, method=method, params=params), path=post))[0] == 202
                    told.append([await stream.content.readline() for _ in range(3)][1])
                assert [b"[ibidem: " in each for each in told] == [False, False, True]

    run(server, test, offers_forget=True)


@pytest.mark.parametrize("base", [b"http://elsewhere.example", b"http://[", b"//elsewhere.example", b"\xff://"])
def test_an_endpoint_elsewhere_is_none_of_ours(base: bytes) -> None:
    event = b"event: endpoint\ndata: " + base + b"/messages?session_id=1\n\n"

    async def test(through: Through) -> None:
        async with through.client.get(f"{through.url}/sse") as stream:
            assert await stream.read() == event
        await through.begin(path="/messages?session_id=1")
        asked = [await through.post(CALL, path="/messages?session_id=1") for _ in range(2)]
        assert asked == [(200, event)] * 2
        assert through.told == [NO_SESSION]

    run(answering(event, "text/event-stream", session=False), test)


def test_a_request_that_is_packed_passes_and_has_all_forgotten() -> None:
    """Its answer is one more between what was sent and what comes next."""
    seen: list[Any] = []

    async def test(through: Through) -> None:
        await through.begin()
        assert await through.results(1) == [RESULT]
        packed = gzip.compress(CALL)
        kind = {"Content_Encoding": "gzip", "Mcp_Session_Id": "s"}
        assert await through.post(packed, **kind) == (200, RESULT)
        assert seen[-1][3] == packed
        assert await through.results(1) == [RESULT]
        assert through.totals.hints == 0

    run(answering(RESULT, seen=seen), test)


@pytest.mark.parametrize("more", [{"status": 500}, {"status": 202}, {"headers": {"Content-Encoding": "gzip"}}])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_answer_that_may_not_be_taken_for_a_result_passes_and_has_all_forgotten(
    kind: str, more: dict[str, Any]
) -> None:
    body = RESULT if kind == "application/json" else EVENTS
    if "headers" in more:
        body = gzip.compress(body)
    odd = [False, True, False]

    async def server(request: web.BaseRequest) -> web.StreamResponse:
        if b"tools/call" in await request.read() and odd.pop(0):
            return web.Response(body=body, **{**more, "headers": {**more.get("headers", {}), "Content-Type": kind}})
        return await plain(request)

    async def test(through: Through) -> None:
        await through.begin()
        assert await through.results(3) == [RESULT, gzip.decompress(body) if "headers" in more else body, RESULT]
        assert through.totals.hints == 0

    plain = answering(RESULT)
    run(server, test)


def test_an_empty_answer_to_a_notification_has_nothing_forgotten() -> None:
    async def server(request: web.BaseRequest) -> web.StreamResponse:
        if b"notifications/" in await request.read():
            return web.Response(status=202, content_type="application/json")
        return await plain(request)

    async def test(through: Through) -> None:
        await through.begin()
        for hint in (False, True):
            assert (await through.post(line(method="notifications/initialized"), Mcp_Session_Id="s"))[0] == 202
            asked = CALL.replace(b"{}", json.dumps({"hint": hint}).encode())
            assert (b"[ibidem: " in (await through.post(asked, Mcp_Session_Id="s"))[1]) is hint

    plain = answering(RESULT)
    run(server, test)


def test_who_waits_to_be_told_to_go_on_is_told() -> None:
    async def test(through: Through) -> None:
        port = int(through.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: {len(CALL)}\r\n\r\n"
        writer.write(head.encode())
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(CALL)
        assert await asyncio.wait_for(reader.readline(), 60) == b"HTTP/1.1 200 OK\r\n"
        writer.close()

    run(answering(RESULT), test)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_what_is_too_large_streams_through(kind: str) -> None:
    large = line(id=5, result=texts("x" * 3 * MOST))
    body = large if kind == "application/json" else b"data: " + large + b"\n"
    seen: list[Any] = []

    async def test(through: Through) -> None:
        await through.begin()
        assert await through.results(3) == [body] * 3
        asked = CALL.replace(b"{}", b'"' + b"y" * 3 * MOST + b'"')
        assert await through.post(asked, Mcp_Session_Id="s") == (200, body)
        assert seen[-1][3] == asked
        assert through.totals.hints == 0

    run(answering(body, kind, seen=seen), test)


def test_pages_of_other_sites_do_not_reach_the_server() -> None:
    seen: list[Any] = []

    async def test(through: Through) -> None:
        port = through.url.rpartition(":")[2]
        for headers in (
            {"Host": "evil.example"},
            {"Host": f"evil.example:{port}"},
            {"Host": "127.0.0.1.evil.example"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://localhost.evil.example"},
        ):
            assert (await through.post(CALL, **headers))[0] == 403
        assert seen == []
        assert (await through.post(CALL, Origin="http://localhost:6274", Host=f"localhost:{port}"))[0] == 200

    run(answering(RESULT, seen=seen), test)


def test_a_server_that_breaks_off_or_is_not_there() -> None:
    async def server(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: {}\n\ndata: half")
        assert request.transport is not None
        request.transport.abort()
        return response

    async def test(through: Through) -> None:
        async with through.client.get(f"{through.url}/mcp") as answer:
            assert await answer.content.readline() == b"data: {}\n"
            with pytest.raises(aiohttp.ClientError):
                await answer.read()

    run(server, test)

    async def nobody() -> None:
        gateway = HttpGateway(McpUpstream("http://127.0.0.1:1", "/mcp"), GatewaySettings(), GatewayTotals(), print)
        async with gateway, listening(gateway.handle) as url, aiohttp.ClientSession() as client:
            answer = await client.post(f"{url}/mcp", data=CALL)
            assert answer.status == 502
            said = "http://127.0.0.1:1: no response (ClientConnectorError). Check that it runs and that --url is its"
            said += " address"
            assert await answer.text() == f"{said}\n"

    asyncio.run(nobody())


def test_a_redirect_to_the_server_leads_to_us() -> None:
    upstream = McpUpstream("https://host:8", "/mcp")
    assert rewrite_location("https://host:8/mcp/", upstream, "http://127.0.0.1:9") == "http://127.0.0.1:9/mcp/"
    others = ("https://host:80/mcp/", "https://host:8.evil/x", "/mcp/", "https://login.example/", "//host:8/")
    for other in (*others, "https://me@host:8/", "https://host:8\\.evil/", "http://host:8/", "https://[/"):
        assert rewrite_location(other, upstream, "http://127.0.0.1:9") == other
    upstream = McpUpstream("https://host", "/")
    for same in ("https://host:443//a?b#c", "HTTPS://Host//a?b#c"):
        assert rewrite_location(same, upstream, "http://127.0.0.1:9") == "http://127.0.0.1:9//a?b#c"


@pytest.mark.parametrize(
    "url", ["mcp", "ftp://host/", "http://", "http://[::1", "http://h:99999/", "http://a:b@h/", "http://h/?a"]
)
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(IbidemError, match=r"Use one like|as headers"):
        parse_mcp_upstream(url)


def test_addresses() -> None:
    assert parse_mcp_upstream("https://host") == ("https://host", "/")
    assert parse_mcp_upstream("http://[::1]:80/a/b") == ("http://[::1]:80", "/a/b")
    assert not rejection_reason("[::1]:80", None)
    assert rejection_reason("127.0.0.1", None, "cross-site"), "a picture on a page of another site"
    assert rejection_reason("[::1", None)
    assert rejection_reason("", None)
