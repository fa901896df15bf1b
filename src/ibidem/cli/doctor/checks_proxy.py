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
from .check_runner import CheckContext, CheckResult, problem_from_error

REQUEST_SECONDS = 4.0
LONG_TEXT = "".join(f"{number:03} a line of a file that is read twice\n" for number in range(60))
FIRST_REQUEST = ("u:Read the file.", "a:I will.>1", f"r1:{LONG_TEXT}")
REPEATED_REQUEST = (*FIRST_REQUEST, "a:Once more.>2", f"r2:{LONG_TEXT}")
"""Requests to send: the agent reads a file, then reads it again."""


class FormatRoute(NamedTuple):
    """A wire format and the path of its requests."""

    name: str
    path: str


FORMAT_ROUTES = (
    FormatRoute("anthropic", "/anthropic/v1/messages"),
    FormatRoute("openai-chat", "/openai/v1/chat/completions"),
    FormatRoute("openai-responses", "/openai/v1/responses"),
    FormatRoute("gemini", "/gemini/v1beta/models/gemini-2.5-pro:generateContent"),
)


def check_requests(machine: CheckContext) -> Iterator[CheckResult]:
    """Send test requests of every format through a proxy."""
    if find_spec("aiohttp") is None:
        yield CheckResult("note", "not checked: the proxy package is not installed", install_command("proxy"))
        return
    from ...testing import Says, Upstream
    from ..wrap.run_wrapped import BackgroundProxy

    with Upstream(lambda seen: Says("Done.")) as provider:
        settings = Settings(port=0, store="memory:", ledger=False, upstreams=dict.fromkeys(PROVIDERS, provider.url))
        proxy = BackgroundProxy(settings)
        try:
            url = proxy.start()
        except (IbidemError, click.ClickException) as error:
            yield problem_from_error(error)
            return
        try:
            for route in FORMAT_ROUTES:
                yield _check_format(route, url, provider)
        finally:
            proxy.stop()


def _check_format(route: FormatRoute, url: str, provider: Any) -> CheckResult:
    """Check that a response arrives, that the repeat is replaced, and that `expand` restores the original."""
    from ...engine.expansion import expand
    from ...testing import conv

    body = conv(*REPEATED_REQUEST, format=route.name)
    try:
        for lines in (FIRST_REQUEST, REPEATED_REQUEST):
            status = _send_request(url, route.path, conv(*lines, format=route.name))
            if status != http.client.OK:
                return _failure(route, f"got status {status}")
    except (OSError, http.client.HTTPException) as error:
        return _failure(route, f"got no response ({type(error).__name__})")
    forwarded = provider.seen[-1].json
    if forwarded == body:
        return _failure(route, "was not rewritten, although it repeats a text")
    if expand(forwarded, format=route.name) != body:
        return _failure(route, "cannot be restored to the original")
    share = 1 - len(json.dumps(forwarded)) / len(json.dumps(body))
    return CheckResult("ok", f"{route.name}: request forwarded, {share:.0%} shorter, and restored to the original")


def _send_request(url: str, path: str, body: Any) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", "x-api-key": "none"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def _failure(route: FormatRoute, what: str) -> CheckResult:
    return CheckResult(
        "problem", f"{route.name}: a request through the proxy {what}", "this is a bug in ibidem: please report it"
    )
