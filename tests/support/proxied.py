"""A proxy before a scripted provider, and conversations that go through it."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from ibidem.billing.cache_ttl import CacheMode, IdleTimes
from ibidem.live.types import SYSTEM_CLOCK
from ibidem.live.types import Clock as ProxyClock
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.proxy.edge.app import Proxy
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore, Store
from ibidem.testing.answers import Says
from ibidem.testing.prompt_cache import PromptCache
from ibidem.testing.requests_seen import Seen
from ibidem.testing.scripts import Turn, build
from ibidem.testing.upstream import Script, Upstream

PATIENCE = 60.0
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
MODELS = {"anthropic": "claude-sonnet-4-5", "openai-chat": "gpt-5", "openai-responses": "gpt-5"}
WORDS = ("buffer", "index", "value", "request", "session", "token", "render", "handler", "message", "offset", "cache")
Calls = dict[str, tuple[str, dict[str, Any]]]


def waited_for(condition: Callable[[], Any]) -> Any:
    """What the condition gives, once that is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(0.005)
    return found


@dataclass
class Clock(ProxyClock):
    """Its time of day stands still until it is told to go on."""

    now: float = 1_750_000_000.0

    def time(self) -> float:
        return self.now


@dataclass
class Talk:
    """A proxy and the provider behind it."""

    upstream: Upstream
    proxy: BackgroundServer
    service: Proxy
    """What is behind it, for a test that waits for something no client can see."""

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        parts = urlsplit(self.proxy.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, target, body, {"content-type": "application/json", "x-api-key": "k", **sent})
            with connection.getresponse() as answer:
                return answer.status, answer.read()
        finally:
            connection.close()

    def send(self, format: str, body: Any, **headers: str) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else dumped(body)
        return self.ask("POST", PATHS[format], data, **headers)

    def page(self, path: str) -> Any:
        status, found = self.ask("GET", f"/ibidem/api/{path}")
        assert status == 200, found
        return json.loads(found)

    @property
    def state(self) -> Any:
        return self.page("state")

    def settled(self, requests: int) -> Any:
        """The state, once so many requests are over."""

        def over() -> Any:
            state = self.state
            going = any(each["active"] for each in state["conversations"])
            return state if state["totals"]["requests"] == requests and not going else None

        return waited_for(over)


def dumped(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _read(seen: Seen) -> Any:
    """What cannot be read is the client's mistake, however deep it lies."""
    try:
        return json.loads(seen.text)
    except Exception as error:
        raise ValueError(type(error).__name__) from None


@contextmanager
def talk(
    script: Script = lambda _: Says("ok"),
    *,
    store: Store | None = None,
    clock: ProxyClock = SYSTEM_CLOCK,
    strict: bool = True,
    down: str = "",
    cache: PromptCache | None = None,
    cache_mode: CacheMode = "off",
    pauses: IdleTimes | None = None,
    gains: UsageWriter | None = None,
    **settings: Any,
) -> Iterator[Talk]:
    """`down` is a provider that cannot be reached; `cache` what a provider has in its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seen, "json", property(_read))
        made: list[Proxy] = []
        patch.setattr(
            Proxy, "start_background", lambda proxy: made.append(proxy)
        )  # a test that holds threads up would hold that up
        with Upstream(script, clock=clock.time, strict=strict, cache=cache) as upstream:
            upstreams = dict.fromkeys(("anthropic", "openai", "gemini"), upstream.url)
            if down:
                upstreams[down] = "http://127.0.0.1:1"
            told = {"budget_ms": 1e3 * PATIENCE, "cache": cache_mode, **settings}  # on a busy machine all takes long
            made_of = Settings(port=0, upstreams=upstreams, **told)
            with BackgroundServer(made_of, store or MemoryStore(), clock=clock, pauses=pauses, gains=gains) as proxy:
                yield Talk(upstream, proxy, made[-1])


def text(rng: random.Random, lines: int) -> str:
    return "\n".join(
        f"    {rng.choice(WORDS)}_{rng.randrange(999)} = {' '.join(rng.choices(WORDS, k=4))}" for _ in range(lines)
    )


def turns(count: int, seed: int = 1, lines: int = 60, first: str = "make it work") -> list[Turn]:
    """An agent that reads files, some of them again after a change."""
    rng = random.Random(seed)
    files: list[str] = []
    found = [Turn("user", first)]
    for number in range(count):
        if files and rng.random() < 0.5:
            output = f"{rng.choice(files)}\n# seen again, {number}"
        else:
            output = text(rng, rng.randint(lines // 2, 3 * lines // 2))
            files.append(output)
        found.append(Turn("assistant", f"I look at it, step {number}.", None, [f"call_{seed}_{number}"]))
        found.append(Turn("tool", results=[(f"call_{seed}_{number}", output)]))
    return found


def stale(files: int, lines: int = 200, seed: int = 1, after: int = 30) -> tuple[list[Turn], Calls]:
    """Large files are read, and some others twice. Then the large ones have little in them: what they had can go."""
    rng = random.Random(seed)
    reads = [(f"/src/{number}.py", text(rng, lines)) for number in range(files)]
    reads += 2 * [(f"/src/same_{number}.py", text(rng, lines)) for number in range(files // 2)]
    reads += [(f"/src/{number}.py", text(rng, 8)) for number in range(files)]
    reads += [(f"/src/new_{number}.py", text(rng, 8)) for number in range(after)]
    found, calls = [Turn("user", f"clean it up, {seed}")], {}
    for number, (path, output) in enumerate(reads):
        ident = f"call_{seed}_{number}"
        calls[ident] = ("Read", {"file_path": path})
        found += [Turn("assistant", None, None, [ident]), Turn("tool", results=[(ident, output)])]
    return found, calls


def growing(format: str, count: int, *, marks: bool = False, model: str | None = None, **more: Any) -> Iterator[Any]:
    """The request of each turn. With `marks`, the last messages carry Anthropic's cache marks, which move."""
    return requests(format, turns(count, **more), {}, marks=marks, model=model)


def requests(
    format: str, whole: list[Turn], calls: Calls, *, marks: bool = False, model: str | None = None
) -> Iterator[Any]:
    for length in range(1, len(whole) + 1, 2):
        body = build(whole[:length], format, calls)
        if "model" in body:
            body["model"] = model or MODELS[format]
        if marks:
            mark(body)
        yield body


def mark(body: Any) -> None:
    mine = [message for message in body["messages"] if message["role"] == "user"]
    for message in mine:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    for message in mine[-2:]:
        message["content"][-1]["cache_control"] = {"type": "ephemeral"}
