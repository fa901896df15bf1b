"""Requests of every format through a real proxy on loopback, to a provider that answers by a script."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from ...environment import install_command
from ...errors import IbidemError
from ...proxy.settings import PROVIDERS, Settings
from .checking import CheckResult, Machine, problem_of

REQUEST_SECONDS = 4.0
LONG_TEXT = "".join(f"{number:03} a line of a file that is read twice\n" for number in range(60))
FIRST = ("u:Read the file.", "a:I will.>1", f"r1:{LONG_TEXT}")
AGAIN = (*FIRST, "a:Once more.>2", f"r2:{LONG_TEXT}")
"""What is sent: a file that is read, and read again."""


class TriedFormat(NamedTuple):
    name: str
    path: str


TRIED_FORMATS = (
    TriedFormat("anthropic", "/anthropic/v1/messages"),
    TriedFormat("openai-chat", "/openai/v1/chat/completions"),
    TriedFormat("openai-responses", "/openai/v1/responses"),
    TriedFormat("gemini", "/gemini/v1beta/models/gemini-2.5-pro:generateContent"),
)


def requests_come_through(machine: Machine) -> Iterator[CheckResult]:
    if find_spec("aiohttp") is None:
        yield CheckResult("note", "not tried: the proxy is not installed", install_command("proxy"))
        return
    from ...testing import Says, Upstream
    from ..wrap.running import Background

    with Upstream(lambda seen: Says("Done.")) as provider:
        settings = Settings(port=0, store="memory:", ledger=False, upstreams=dict.fromkeys(PROVIDERS, provider.url))
        proxy = Background(settings)
        try:
            url = proxy.start()
        except (IbidemError, click.ClickException) as error:
            yield problem_of(error)
            return
        try:
            for each in TRIED_FORMATS:
                yield _tried(each, url, provider)
        finally:
            proxy.stop()


def _tried(tried: TriedFormat, url: str, provider: Any) -> CheckResult:
    """Whether the answer came, the repeat was replaced, and the original can be had back."""
    from ...engine.expansion import expand
    from ...testing import conv

    body = conv(*AGAIN, format=tried.name)
    try:
        for lines in (FIRST, AGAIN):
            status = _asked(url, tried.path, conv(*lines, format=tried.name))
            if status != http.client.OK:
                return _failed(tried, f"was answered with {status}")
    except (OSError, http.client.HTTPException) as error:
        return _failed(tried, f"got no answer ({type(error).__name__})")
    sent = provider.seen[-1].json
    if sent == body:
        return _failed(tried, "went out as it came, though it repeats itself")
    if expand(sent, format=tried.name) != body:
        return _failed(tried, "cannot be expanded to what it was")
    share = 1 - len(json.dumps(sent)) / len(json.dumps(body))
    return CheckResult("ok", f"{tried.name}: came through, {share:.0%} shorter, and expands to the original")


def _asked(url: str, path: str, body: Any) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", "x-api-key": "none"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _failed(tried: TriedFormat, what: str) -> CheckResult:
    return CheckResult(
        "problem", f"{tried.name}: a request through the proxy {what}", "this is a fault of ibidem: report it"
    )
