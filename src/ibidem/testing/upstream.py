"""A mock provider on loopback that sends scripted responses in a provider's format and records the requests.

>>> with Upstream([Calls(("Read", {"file_path": "a.py"})), Fails(429, retry_after=7)]) as provider:
...     client = anthropic.Anthropic(base_url=provider.url, api_key="any")

The path of a request selects the provider. For an unknown path, the response describes the request. A script is a list
of responses for all requests in order, or a function of the request, which can serve any number of conversations at
once. The server runs in a separate thread and needs no other package.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

from ..billing.cache_rules import cache_rules_for
from ..billing.prices import Prices
from . import wire
from .answers import DEFAULT_ANSWER, Answer, ContextManagement, Fails, Header, TextPart
from .dialects import Reply, UpstreamDialect, UpstreamRoute, route_for
from .prompt_cache import PromptCache
from .requests_seen import PATIENCE_SECONDS, Seen, SeenLog

Script = Iterable[Answer] | Callable[[Seen], Answer]

KEYS = ("x-api-key", "authorization", "x-goog-api-key")


class Upstream:
    """A mock provider. `seen` has its requests. A test may set `clock`, which decides when prompt cache entries
    expire."""

    def __init__(
        self,
        script: Script = (),
        *,
        clock: Callable[[], float] = time.time,
        shared: bool = False,
        strict: bool = False,
        cache: PromptCache | None = None,
    ) -> None:
        """Create a provider. `cache` is a prompt cache that another one used before."""
        self.clock = clock
        self.shared = shared
        """True for one prompt cache for all keys; False for one per key."""
        self.strict = strict
        """True to reject invalid requests, as a real provider does."""
        self.url = ""
        self.messages: list[bytes] = []
        """Messages received over WebSockets."""
        self._script = script if callable(script) else _script_in_order(script)
        self._errors: list[Exception] = []
        self._log = SeenLog()
        self._cache = cache or PromptCache()
        self._numbers = {"answer": 0, "connection": 0}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_server()), name="upstream", daemon=True)

    # ── called from any thread ──────────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Upstream:
        self._thread.start()
        if not self._ready.wait(PATIENCE_SECONDS):
            raise TimeoutError("the upstream did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)
        if self._errors and kind is None:
            raise self._errors[0]

    @property
    def seen(self) -> list[Seen]:
        """Requests so far, in order."""
        return self._log()

    def wait_for(self, requests: int, patience: float = PATIENCE_SECONDS) -> list[Seen]:
        """Wait until at least `requests` requests arrived, and return them."""
        return self.wait_until(lambda seen: len(seen) >= requests, patience, f"request {requests}")

    def wait_until(
        self,
        condition: Callable[[list[Seen]], bool],
        patience: float = PATIENCE_SECONDS,
        what: str = "what the test waits for",
    ) -> list[Seen]:
        """Wait until `condition` holds for the requests, and return them. Raises TimeoutError that names `what`."""
        return self._log.wait_until(condition, patience, what)

    def forget(self) -> None:
        """Start over with an empty `seen` and an empty prompt cache."""
        self._log.clear()
        self._cache = PromptCache()

    # ── called in the server thread ────────────────────────────────────────────────────────────────────────────────

    async def _run_server(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        new_connections: asyncio.Queue[wire.HttpConnection] = asyncio.Queue()
        server = await self._loop.create_server(
            lambda: wire.HttpConnection(new_connections), "127.0.0.1", 0, backlog=1024
        )
        host, port = server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        accepting = asyncio.create_task(self._accept_connections(new_connections))
        await self._stop.wait()
        server.close()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)

    async def _accept_connections(self, new_connections: asyncio.Queue[wire.HttpConnection]) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                pipe = await new_connections.get()
                self._numbers["connection"] += 1
                group.create_task(self._serve_connection(pipe, self._numbers["connection"]))

    async def _serve_connection(self, pipe: wire.HttpConnection, connection: int) -> None:
        """Serve requests until the client disconnects."""
        try:
            while await self._serve_request(pipe, connection):
                pass
        except wire.PeerDisconnected:
            pass
        except asyncio.CancelledError:  # the test has ended
            pipe.transport.abort()
            raise
        except Exception as error:  # an error of the mock provider must fail the test
            self._errors.append(error)
        finally:
            pipe.close()

    async def _serve_request(self, pipe: wire.HttpConnection, connection: int) -> bool:
        method, target, headers = wire.parse_head(await pipe.read_until(b"\r\n\r\n"))
        body, header_values = bytearray(), {name.lower(): value for name, value in headers}
        seen = Seen(method, target, headers, b"", self.clock(), connection)
        try:
            await wire.read_body(pipe, header_values, body)
        except wire.PeerDisconnected:
            seen.body, seen.whole, seen.gone, seen.gone_at = bytes(body), False, True, self.clock()
            self._log.add_request(seen)
            raise
        seen.body = bytes(body)
        self._log.add_request(seen)
        try:
            stays = await self._respond(pipe, seen, header_values)
        except wire.PeerDisconnected:
            self._log.update_request(seen, gone=True, gone_at=self.clock())
            raise
        self._log.update_request(seen, answered=True)
        return stays and header_values.get("connection", "").lower() != "close"

    async def _respond(self, pipe: wire.HttpConnection, seen: Seen, header_values: dict[str, str]) -> bool:
        if header_values.get("upgrade", "").lower() == "websocket":
            return await self._serve_websocket(pipe, seen)
        route = route_for(seen.path) if seen.method == "POST" else None
        if route is None:
            return await self._describe_request(pipe, seen)
        self._numbers["answer"] += 1
        answer, chunks, kind = self._prepare_answer(route, seen, self._numbers["answer"])
        own = (("content-type", kind), *route.dialect.headers(self._numbers["answer"]))
        return await self._send_answer(pipe, seen, answer, own, chunks, streams=kind != JSON)

    async def _serve_websocket(self, pipe: wire.HttpConnection, seen: Seen) -> bool:
        """Echo messages at a path that starts with /ws. At other paths, reject the upgrade so that clients fall back to
        HTTP."""
        if not seen.path.startswith("/ws"):
            await self._send_bytes(pipe, seen, wire.response_head(426, [("content-length", "0")]))
            return True
        await self._send_bytes(pipe, seen, wire.websocket_handshake(seen.header("sec-websocket-key") or ""))
        await wire.echo_frames(pipe, self.messages)
        return False

    async def _describe_request(self, pipe: wire.HttpConnection, seen: Seen) -> bool:
        """Respond with a description of a request to an unknown path."""
        description = {"method": seen.method, "target": seen.target, "headers": seen.headers, "body": len(seen.body)}
        body = json.dumps(description).encode()
        headers = [("content-type", JSON), ("content-length", str(len(body)))]
        await self._send_bytes(pipe, seen, wire.response_head(200, headers) + (b"" if seen.method == "HEAD" else body))
        return True

    def _prepare_answer(self, route: UpstreamRoute, seen: Seen, number: int) -> tuple[Answer, list[bytes], str]:
        """Return the response, its chunks, and their content type."""
        dialect = route.dialect
        try:
            body = seen.json
            if not isinstance(body, dict):
                raise ValueError("the body is not an object")
        except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
            return self._error_answer(dialect, Fails(400, message=f"cannot read the request: {error}"))
        if rejection := dialect.find_rejection(body) or (self.strict and _find_violations(body, dialect)):
            return self._error_answer(dialect, Fails(400, message=rejection))
        query = parse_qs(seen.target.partition("?")[2])
        key = "" if self.shared else _api_key(seen, query)
        model = route.model or str(body.get("model"))
        now, caching = self.clock(), cache_rules_for(dialect.provider, model)
        if route.kind == "count":
            usage = self._cache.bill_request(caching, "", dialect.units(body), now, stores_prefix=False)
            return DEFAULT_ANSWER, [_json_bytes(dialect.count_response(usage))], JSON
        answer = self._next_answer(seen)
        if answer.status >= 400:
            return self._error_answer(dialect, answer)
        name = "\0".join((dialect.provider, key, model, dialect.cache_key(body)))
        management = answer.context_management or ContextManagement(visible=body)
        tells, compaction = _reports_writes(model, dialect), None
        if management.summarized is not None:
            compaction = self._cache.bill_request(
                caching, name, dialect.units(management.summarized), now, reports_writes=tells
            )
            compaction = self._cache.add_output(compaction, (TextPart(management.summary),))
        usage = self._cache.bill_request(caching, name, dialect.units(management.visible), now, reports_writes=tells)
        usage = self._cache.add_output(usage, answer.parts)
        streams = route.kind == "stream" or body.get("stream") is True
        sse = dialect.format != "gemini" or query.get("alt") == ["sse"]
        reply = Reply(number, model, body, answer.parts, usage, sse, answer.context_management, compaction)
        if not streams:
            return answer, [_json_bytes(dialect.whole(reply))], JSON
        ping = dialect.ping if sse else b"\n"
        kind = dialect.stream_type if sse else JSON_ARRAY
        return answer, list(_with_pings(dialect.events(reply), ping, answer.pings)), kind

    def _error_answer(self, dialect: UpstreamDialect, answer: Answer) -> tuple[Answer, list[bytes], str]:
        return answer, [_json_bytes(dialect.error(answer.status, answer.message))], JSON

    def _next_answer(self, seen: Seen) -> Answer:
        try:
            return self._script(seen)
        except Exception as error:
            self._errors.append(error)
            return Fails(500, message=f"the script failed: {error!r}")

    async def _send_answer(
        self,
        pipe: wire.HttpConnection,
        seen: Seen,
        answer: Answer,
        own: tuple[Header, ...],
        chunks: list[bytes],
        streams: bool,
    ) -> bool:
        """Send a response. Return True if the connection stays open."""
        await pipe.wait_seconds(answer.wait)
        if answer.raw is not None:
            await self._send_bytes(pipe, seen, answer.raw)
            return False
        body_chunks = _gzip_chunks(chunks) if answer.gzip else chunks
        headers = [*own, *((("content-encoding", "gzip"),) if answer.gzip else ()), *answer.headers]
        if streams:
            length, body_chunks = (
                ("transfer-encoding", "chunked"),
                [wire.encode_chunk(data) for data in body_chunks if data],
            )
        else:
            length = ("content-length", str(sum(map(len, body_chunks))))
        if answer.reset_after == 0:
            pipe.reset_connection()
            return False
        await self._send_bytes(pipe, seen, wire.response_head(answer.status, [length, *headers]))
        for number, data in enumerate(_first_half(body_chunks) if answer.half else body_chunks):
            if number == answer.reset_after:
                break
            await pipe.wait_seconds(answer.chunk_delay if number else 0)
            await self._send_bytes(pipe, seen, data)
        if answer.reset_after is not None:
            await pipe.wait_until_flushed()
            pipe.reset_connection()
        elif streams and not answer.half:
            await self._send_bytes(pipe, seen, b"0\r\n\r\n")
        return not answer.half and answer.reset_after is None

    async def _send_bytes(self, pipe: wire.HttpConnection, seen: Seen, data: bytes) -> None:
        seen.sent.append(data)
        await pipe.write(data)


JSON, JSON_ARRAY = "application/json", "application/json; charset=UTF-8"


def _script_in_order(answers: Iterable[Answer]) -> Callable[[Seen], Answer]:
    remaining = iter(answers)
    return lambda _: next(remaining, DEFAULT_ANSWER)


def by_turn(answers: Iterable[Answer]) -> Callable[[Seen], Answer]:
    """Return a script for any number of conversations. The number of model turns in a request selects its response."""
    responses = tuple(answers)

    def answer(seen: Seen) -> Answer:
        turn = _count_turns(seen.json)
        return responses[turn] if turn < len(responses) else DEFAULT_ANSWER

    return answer


def _count_turns(body: dict[str, Any]) -> int:
    """Count the model's turns: ranges of consecutive messages of the model."""
    keys = ("messages", "input", "contents")
    history: list[Any] = next((body[key] for key in keys if isinstance(body.get(key), list)), [])
    is_from_model = [item.get("role") in ("assistant", "model") or item.get("type") in _THEIRS for item in history]
    return sum(mine and not before for mine, before in zip(is_from_model, [False, *is_from_model], strict=False))


_THEIRS = ("function_call", "custom_tool_call", "reasoning")


def _api_key(seen: Seen, query: dict[str, list[str]]) -> str:
    return next((value for name in KEYS if (value := seen.header(name))), query.get("key", [""])[0])


def _find_violations(body: Any, dialect: UpstreamDialect) -> str:
    from ..engine.pipeline import validate

    return "; ".join(str(violation) for violation in validate(body, format=dialect.format))


def _reports_writes(model: str, dialect: UpstreamDialect) -> bool:
    """Return True if the provider charges for cache writes, and so reports them."""
    rates = Prices().of(model, dialect.format).tiers[0][1]
    return rates.write > rates.fresh


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _with_pings(events: Iterator[bytes], ping: bytes, times: int) -> Iterator[bytes]:
    """Yield one ping after each event, up to `times`."""
    for data in events:
        yield data
        if times > 0:
            times -= 1
            yield ping
    yield from [ping] * times


def _gzip_chunks(chunks: list[bytes]) -> list[bytes]:
    """Compress chunks so that each can be decompressed on arrival."""
    packer = zlib.compressobj(wbits=31)
    compressed = [packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH) for data in chunks]
    return [*compressed[:-1], compressed[-1] + packer.flush()]


def _first_half(chunks: list[bytes]) -> list[bytes]:
    """Return the first half of the bytes, so that the last chunk is cut."""
    bytes_left = sum(map(len, chunks)) // 2
    first_chunks = []
    for data in chunks:
        first_chunks.append(data[:bytes_left])
        bytes_left -= len(data)
        if bytes_left <= 0:
            break
    return first_chunks
