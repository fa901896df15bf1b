"""Send requests of every format through a real proxy on loopback, to a mock provider."""

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
"""Requests to send: the agent reads a file, then reads it again."""


class TriedFormat(NamedTuple):
    """A wire format and the path of its requests."""

    name: str
    path: str


TRIED_FORMATS = (
    TriedFormat("anthropic", "/anthropic/v1/messages"),
    TriedFormat("openai-chat", "/openai/v1/chat/completions"),
    TriedFormat("openai-responses", "/openai/v1/responses"),
    TriedFormat("gemini", "/gemini/v1beta/models/gemini-2.5-pro:generateContent"),
)


def requests_come_through(machine: Machine) -> Iterator[CheckResult]:
    """Send test requests of every format through a proxy."""
    if find_spec("aiohttp") is None:
        yield CheckResult("note", "not checked: the proxy package is not installed", install_command("proxy"))
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
    """Check that a response arrives, that the repeat is replaced, and that `expand` restores the original."""
    from ...engine.expansion import expand
    from ...testing import conv

    body = conv(*AGAIN, format=tried.name)
    try:
        for lines in (FIRST, AGAIN):
            status = _asked(url, tried.path, conv(*lines, format=tried.name))
            if status != http.client.OK:
                return _failed(tried, f"got status {status}")
    except (OSError, http.client.HTTPException) as error:
        return _failed(tried, f"got no response ({type(error).__name__})")
    sent = provider.seen[-1].json
    if sent == body:
        return _failed(tried, "was not rewritten, although it repeats a text")
    if expand(sent, format=tried.name) != body:
        return _failed(tried, "cannot be restored to the original")
    share = 1 - len(json.dumps(sent)) / len(json.dumps(body))
    return CheckResult("ok", f"{tried.name}: request forwarded, {share:.0%} shorter, and restored to the original")


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
        "problem", f"{tried.name}: a request through the proxy {what}", "this is a bug in ibidem: please report it"
    )
