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

from ..billing.caching import caching_of
from ..billing.prices import Prices
from . import wire
from .answers import DEFAULT_ANSWER, Answer, ContextManagement, Fails, Header, Spoken
from .dialects import Reply, UpstreamDialect, UpstreamRoute, asked
from .prompt_cache import PromptCache
from .seen import PATIENCE_SECONDS, Seen, SeenLog

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
        self._script = script if callable(script) else _in_turn(script)
        self._errors: list[Exception] = []
        self._log = SeenLog()
        self._cache = cache or PromptCache()
        self._numbers = {"answer": 0, "connection": 0}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="upstream", daemon=True)

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
        return self._log.wait(condition, patience, what)

    def forget(self) -> None:
        """Start over with an empty `seen` and an empty prompt cache."""
        self._log.clear()
        self._cache = PromptCache()

    # ── called in the server thread ────────────────────────────────────────────────────────────────────────────────

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        opened: asyncio.Queue[wire.Pipe] = asyncio.Queue()
        server = await self._loop.create_server(lambda: wire.Pipe(opened), "127.0.0.1", 0, backlog=1024)
        host, port = server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        accepting = asyncio.create_task(self._accept(opened))
        await self._stop.wait()
        server.close()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)

    async def _accept(self, opened: asyncio.Queue[wire.Pipe]) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                pipe = await opened.get()
                self._numbers["connection"] += 1
                group.create_task(self._converse(pipe, self._numbers["connection"]))

    async def _converse(self, pipe: wire.Pipe, connection: int) -> None:
        """Serve requests until the client disconnects."""
        try:
            while await self._exchange(pipe, connection):
                pass
        except wire.PeerGone:
            pass
        except asyncio.CancelledError:  # the test has ended
            pipe.transport.abort()
            raise
        except Exception as error:  # an error of the mock provider must fail the test
            self._errors.append(error)
        finally:
            pipe.close()

    async def _exchange(self, pipe: wire.Pipe, connection: int) -> bool:
        method, target, headers = wire.parse_head(await pipe.until(b"\r\n\r\n"))
        body, known = bytearray(), {name.lower(): value for name, value in headers}
        seen = Seen(method, target, headers, b"", self.clock(), connection)
        try:
            await wire.read_body(pipe, known, body)
        except wire.PeerGone:
            seen.body, seen.whole, seen.gone, seen.gone_at = bytes(body), False, True, self.clock()
            self._log.add(seen)
            raise
        seen.body = bytes(body)
        self._log.add(seen)
        try:
            stays = await self._answer(pipe, seen, known)
        except wire.PeerGone:
            self._log.change(seen, gone=True, gone_at=self.clock())
            raise
        self._log.change(seen, answered=True)
        return stays and known.get("connection", "").lower() != "close"

    async def _answer(self, pipe: wire.Pipe, seen: Seen, known: dict[str, str]) -> bool:
        if known.get("upgrade", "").lower() == "websocket":
            return await self._websocket(pipe, seen)
        found = asked(seen.path) if seen.method == "POST" else None
        if found is None:
            return await self._echo(pipe, seen)
        self._numbers["answer"] += 1
        answer, chunks, kind = self._speech(found, seen, self._numbers["answer"])
        own = (("content-type", kind), *found.dialect.headers(self._numbers["answer"]))
        return await self._deliver(pipe, seen, answer, own, chunks, streams=kind != JSON)

    async def _websocket(self, pipe: wire.Pipe, seen: Seen) -> bool:
        """Echo messages at a path that starts with /ws. At other paths, reject the upgrade so that clients fall back to
        HTTP."""
        if not seen.path.startswith("/ws"):
            await self._send(pipe, seen, wire.head(426, [("content-length", "0")]))
            return True
        await self._send(pipe, seen, wire.handshake(seen.header("sec-websocket-key") or ""))
        await wire.echo(pipe, self.messages)
        return False

    async def _echo(self, pipe: wire.Pipe, seen: Seen) -> bool:
        """Respond with a description of a request to an unknown path."""
        said = {"method": seen.method, "target": seen.target, "headers": seen.headers, "body": len(seen.body)}
        body = json.dumps(said).encode()
        headers = [("content-type", JSON), ("content-length", str(len(body)))]
        await self._send(pipe, seen, wire.head(200, headers) + (b"" if seen.method == "HEAD" else body))
        return True

    def _speech(self, found: UpstreamRoute, seen: Seen, number: int) -> tuple[Answer, list[bytes], str]:
        """Return the response, its chunks, and their content type."""
        dialect = found.dialect
        try:
            body = seen.json
            if not isinstance(body, dict):
                raise ValueError("the body is not an object")
        except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
            return self._failure(dialect, Fails(400, message=f"cannot read the request: {error}"))
        if refused := dialect.refusal(body) or (self.strict and _refused(body, dialect)):
            return self._failure(dialect, Fails(400, message=refused))
        query = parse_qs(seen.target.partition("?")[2])
        key = "" if self.shared else _key(seen, query)
        model = found.model or str(body.get("model"))
        now, caching = self.clock(), caching_of(dialect.provider, model)
        if found.kind == "count":
            usage = self._cache.ask(caching, "", dialect.units(body), now, keeps=False)
            return DEFAULT_ANSWER, [_json(dialect.counted(usage))], JSON
        answer = self._next(seen)
        if answer.status >= 400:
            return self._failure(dialect, answer)
        name = "\0".join((dialect.provider, key, model, dialect.cache_key(body)))
        managed = answer.context_management or ContextManagement(visible=body)
        tells, compaction = _writes_cost(model, dialect), None
        if managed.summarized is not None:
            compaction = self._cache.ask(caching, name, dialect.units(managed.summarized), now, tells=tells)
            compaction = self._cache.spoken(compaction, (Spoken(managed.summary),))
        usage = self._cache.ask(caching, name, dialect.units(managed.visible), now, tells=tells)
        usage = self._cache.spoken(usage, answer.parts)
        streams = found.kind == "stream" or body.get("stream") is True
        sse = dialect.format != "gemini" or query.get("alt") == ["sse"]
        reply = Reply(number, model, body, answer.parts, usage, sse, answer.context_management, compaction)
        if not streams:
            return answer, [_json(dialect.whole(reply))], JSON
        ping = dialect.ping if sse else b"\n"
        kind = dialect.stream_type if sse else JSON_ARRAY
        return answer, list(_with_pings(dialect.events(reply), ping, answer.pings)), kind

    def _failure(self, dialect: UpstreamDialect, answer: Answer) -> tuple[Answer, list[bytes], str]:
        return answer, [_json(dialect.error(answer.status, answer.message))], JSON

    def _next(self, seen: Seen) -> Answer:
        try:
            return self._script(seen)
        except Exception as error:
            self._errors.append(error)
            return Fails(500, message=f"the script failed: {error!r}")

    async def _deliver(
        self, pipe: wire.Pipe, seen: Seen, answer: Answer, own: tuple[Header, ...], chunks: list[bytes], streams: bool
    ) -> bool:
        """Send a response. Return True if the connection stays open."""
        await pipe.pause(answer.wait)
        if answer.raw is not None:
            await self._send(pipe, seen, answer.raw)
            return False
        packed = _packed(chunks) if answer.gzip else chunks
        headers = [*own, *((("content-encoding", "gzip"),) if answer.gzip else ()), *answer.headers]
        if streams:
            length, packed = ("transfer-encoding", "chunked"), [wire.chunk(data) for data in packed if data]
        else:
            length = ("content-length", str(sum(map(len, packed))))
        if answer.reset_after == 0:
            pipe.reset()
            return False
        await self._send(pipe, seen, wire.head(answer.status, [length, *headers]))
        for number, data in enumerate(_half(packed) if answer.half else packed):
            if number == answer.reset_after:
                break
            await pipe.pause(answer.chunk_delay if number else 0)
            await self._send(pipe, seen, data)
        if answer.reset_after is not None:
            await pipe.flushed()
            pipe.reset()
        elif streams and not answer.half:
            await self._send(pipe, seen, b"0\r\n\r\n")
        return not answer.half and answer.reset_after is None

    async def _send(self, pipe: wire.Pipe, seen: Seen, data: bytes) -> None:
        seen.sent.append(data)
        await pipe.write(data)


JSON, JSON_ARRAY = "application/json", "application/json; charset=UTF-8"


def _in_turn(answers: Iterable[Answer]) -> Callable[[Seen], Answer]:
    left = iter(answers)
    return lambda _: next(left, DEFAULT_ANSWER)


def by_turn(answers: Iterable[Answer]) -> Callable[[Seen], Answer]:
    """Return a script for any number of conversations. The number of model turns in a request selects its response."""
    known = tuple(answers)

    def answer(seen: Seen) -> Answer:
        turn = _turns(seen.json)
        return known[turn] if turn < len(known) else DEFAULT_ANSWER

    return answer


def _turns(body: dict[str, Any]) -> int:
    """Count the model's turns: ranges of consecutive messages of the model."""
    keys = ("messages", "input", "contents")
    history: list[Any] = next((body[key] for key in keys if isinstance(body.get(key), list)), [])
    theirs = [item.get("role") in ("assistant", "model") or item.get("type") in _THEIRS for item in history]
    return sum(mine and not before for mine, before in zip(theirs, [False, *theirs], strict=False))


_THEIRS = ("function_call", "custom_tool_call", "reasoning")


def _key(seen: Seen, query: dict[str, list[str]]) -> str:
    return next((found for name in KEYS if (found := seen.header(name))), query.get("key", [""])[0])


def _refused(body: Any, dialect: UpstreamDialect) -> str:
    from ..engine.pipeline import validate

    return "; ".join(str(violation) for violation in validate(body, format=dialect.format))


def _writes_cost(model: str, dialect: UpstreamDialect) -> bool:
    """Return True if the provider charges for cache writes, and so reports them."""
    rates = Prices().of(model, dialect.format).tiers[0][1]
    return rates.write > rates.fresh


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _with_pings(events: Iterator[bytes], ping: bytes, times: int) -> Iterator[bytes]:
    """Yield one ping after each event, up to `times`."""
    for data in events:
        yield data
        if times > 0:
            times -= 1
            yield ping
    yield from [ping] * times


def _packed(chunks: list[bytes]) -> list[bytes]:
    """Compress chunks so that each can be decompressed on arrival."""
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH) for data in chunks]
    return [*packed[:-1], packed[-1] + packer.flush()]


def _half(chunks: list[bytes]) -> list[bytes]:
    """Return the first half of the bytes, so that the last chunk is cut."""
    left = sum(map(len, chunks)) // 2
    kept = []
    for data in chunks:
        kept.append(data[:left])
        left -= len(data)
        if left <= 0:
            break
    return kept
