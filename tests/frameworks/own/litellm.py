"""What is true of LiteLLM beside the contract: its proxy as a process, and what `completion` promises."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ibidem
from ibidem.testing import Fails, Says, Upstream, conv
from tests.frameworks.framework import KEY

PATIENCE_SECONDS = 120.0
SOURCE = str(Path(ibidem.__file__).parents[1])
MASTER_KEY = f"sk-{secrets.token_hex(32)}"
"""The proxy does not start without one, nor with a weak one."""
TEXT = "\n".join(f"def function_{number}(): return {number * number}" for number in range(100))
WIRE = "openai-chat"
WIRES = {"openai-chat": "messages", "anthropic": "messages", "openai-responses": "input", "gemini": "contents"}
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini:generateContent",
}
MODELS = {
    "openai-chat": ("openai/gpt-4.1", "/v1"),
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "openai-responses": ("openai/gpt-4.1", "/v1"),
    "gemini": ("gemini/gemini-2.5-flash", "/v1beta"),
}


def history(format: str) -> list[Any]:
    """A file that was read twice."""
    calls = {number: ("read", {"path": "a.py"}) for number in ("1", "2")}
    script = ("u:Look.", "a>1", f"r1:{TEXT}", "a>2", f"r2:{TEXT}")
    found: list[Any] = conv(*script, format=format, calls=calls)[WIRES[format]]
    return found


@contextmanager
def proxy(url: str, callbacks: list[str]) -> Iterator[str]:
    """A process of LiteLLM's proxy before the provider at a URL, with a model for each format."""
    models = [
        {"model_name": name, "litellm_params": {"model": model, "api_base": f"{url}{path}", "api_key": KEY}}
        for name, (model, path) in MODELS.items()
    ]
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        config = Path(folder, "config.yaml")  # JSON is YAML
        config.write_text(
            json.dumps(
                {
                    "model_list": models,
                    "litellm_settings": {"callbacks": callbacks},
                    "general_settings": {"master_key": MASTER_KEY},
                }
            )
        )
        free.close()
        start = "from litellm import run_server; run_server()"
        options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
        command, env = [sys.executable, "-c", start, *options], {**os.environ, "PYTHONPATH": SOURCE}
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=env)
            try:
                _await(f"http://127.0.0.1:{port}/health/liveliness", process, Path(folder, "log"))
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the proxy did not start: {log.read_text()[-3000:]}") from None
            time.sleep(0.5)


def _post(url: str, format: str, stream: bool) -> None:
    path = PATHS[format].replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else PATHS[format]
    body: dict[str, Any] = {WIRES[format]: history(format)}
    if format != "gemini":
        body |= {"model": format, "stream": stream, **({"max_tokens": 100} if format == "anthropic" else {})}
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {MASTER_KEY}",
        "x-litellm-session-id": "one",
    }
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"Said." in answer.read()


def proxy_rewrites() -> None:
    with Upstream(lambda _: Says("Said.")) as provider, ExitStack() as stack:
        bare, ours = (
            stack.enter_context(proxy(provider.url, callbacks))
            for callbacks in ([], ["ibidem.adapters.litellm.callback"])
        )
        for format in WIRES:
            for stream in (False, True):
                provider.forget()
                _post(bare, format, stream)
                _post(ours, format, stream)
                seen = [each for each in provider.seen if each.method == "POST"]
                assert len(seen) == 2, [(each.target, each.text[-300:], each.headers) for each in seen]
                before, after = (each.text for each in seen)
                assert len(after) < 0.8 * len(before), f"{format}, stream={stream}: nothing was saved"
                assert json.loads(ibidem.expand(after, format=format)) == json.loads(before), f"{format} {stream}"


def completion_is_theirs() -> None:
    """Its signature, arguments by place, sync streams, and what a provider counted."""
    import litellm

    from ibidem.adapters.litellm import IbidemCallback, completion

    assert inspect.signature(completion) == inspect.signature(litellm.completion)
    callback, told = IbidemCallback("recoverable"), []
    callback._rewriter.record_input_tokens = lambda *given: told.append(given[1:])  # type: ignore[method-assign]
    messages = history("openai-chat")
    kept = json.dumps(messages)
    with Upstream(lambda _: Says("Said.")) as provider:
        settings: dict[str, Any] = {"api_base": f"{provider.url}/v1", "api_key": KEY}
        assert callback.completion("openai/gpt-4.1", messages, **settings).choices[0].message.content == "Said."
        options = {"include_usage": True}
        stream = callback.completion(
            model="openai/gpt-4.1", messages=messages, stream=True, stream_options=options, **settings
        )
        assert isinstance(stream, litellm.CustomStreamWrapper)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Said."
        deadline = time.monotonic() + 10
        while len(told) < 2 and time.monotonic() < deadline:  # told in a thread of LiteLLM's
            time.sleep(0.05)
        assert [context > 0 and cached is not None for context, cached in told] == [True, True], told
        assert not callback._calls
        assert all(b"[ibidem " in seen.text for seen in provider.seen)
    assert json.dumps(messages) == kept


def translated_once() -> None:
    """A call of one kind that LiteLLM translates into another kind goes through one conversation of ours."""
    import litellm

    from ibidem.adapters.litellm import IbidemCallback

    callback, sent = IbidemCallback(), []
    arewrite = callback._rewriter.arewrite

    async def counted(*args: Any, **kwargs: Any) -> Any:
        sent.append(args[0])
        return await arewrite(*args, **kwargs)

    callback._rewriter.arewrite = counted  # type: ignore[method-assign]
    with Upstream(lambda _: Says("Said.")) as provider:
        for callbacks in ([], [callback]):
            litellm.logging_callback_manager._reset_all_callbacks()
            litellm.callbacks = callbacks
            asyncio.run(
                litellm.anthropic.messages.acreate(
                    model="openai/gpt-4.1",
                    api_base=f"{provider.url}/v1",
                    api_key=KEY,
                    messages=history("anthropic"),
                    max_tokens=100,
                )
            )
        before, after = (seen.text for seen in provider.seen)
        assert provider.seen[0].path.endswith("/responses")
    assert sent == ["anthropic"], sent
    assert b"[ibidem " in after
    assert json.loads(ibidem.expand(after, format="openai-responses")) == json.loads(before)


def _bodies(model: str, path: str, messages: list[Any]) -> list[Any]:
    """What is sent of a history, without us and with us."""
    import litellm

    from ibidem.adapters.litellm import IbidemCallback

    with Upstream(lambda _: Says("Said.")) as provider:
        for callbacks in ([], [IbidemCallback()]):
            litellm.logging_callback_manager._reset_all_callbacks()
            litellm.callbacks = callbacks
            given: dict[str, Any] = {"model": model, "api_base": f"{provider.url}{path}", "api_key": KEY}
            asyncio.run(litellm.acompletion(messages=messages, **given))
        return [seen.json for seen in provider.seen]


def written_otherwise() -> None:
    """Results that a provider gets as something else, and beginnings that it gets in other words."""
    parts = [{"type": "text", "text": TEXT}, {"type": "text", "text": TEXT.upper()}]
    results: list[Any] = [json.dumps({"stdout": TEXT}), parts, TEXT]
    for format in ("openai-chat", "anthropic", "gemini"):
        for result in results:
            messages = [{**each, "content": result} if each["role"] == "tool" else each for each in history(WIRE)]
            before, after = _bodies(*MODELS[format], messages)
            assert ibidem.expand(after, format=format) == before, format
            assert (after != before) == (format != "gemini" or result is TEXT), format
        for said in (" ", [{"type": "text", "text": " "}, {"type": "text", "text": "Look."}]):
            before, after = _bodies(*MODELS[format], [{"role": "user", "content": said}, *history(WIRE)[1:]])
            assert ibidem.expand(after, format=format) == before, format


def nothing_is_left() -> None:
    """Of a call that fails nothing is kept, and of a stream that nobody reads on none of its text."""
    import litellm
    import openai

    from ibidem.adapters.litellm import IbidemCallback

    callback = IbidemCallback()
    litellm.logging_callback_manager._reset_all_callbacks()
    litellm.callbacks = [callback]

    async def run(url: str) -> None:
        given = {"model": MODELS[WIRE][0], "api_base": f"{url}/v1", "api_key": KEY, "messages": history(WIRE)}
        try:
            await litellm.acompletion(**given, max_retries=0)
        except openai.APIError:
            deadline = time.monotonic() + 10
            while callback._calls and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        assert not callback._calls
        stream = await litellm.acompletion(**given, stream=True)
        await anext(aiter(stream))

    with Upstream([Fails(400), Says("Said."), Says("Said.")]) as provider:
        asyncio.run(run(provider.url))
    assert all(call.pending._job is None and not call.pending._original for call in callback._calls.values())


OWN: dict[str, Callable[[], None]] = {
    "its proxy rewrites four formats, whole and streamed": proxy_rewrites,
    "completion is litellm.completion": completion_is_theirs,
    "what is translated is rewritten once": translated_once,
    "what a provider gets otherwise stays": written_otherwise,
    "calls that end otherwise leave nothing": nothing_is_left,
}
