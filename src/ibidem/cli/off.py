"""`ibidem off` and `ibidem on`"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from ..errors import one_line
from .errors import InputError

PATIENCE_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 * 2**20
"""Largest response that is read. The proxy's state may list many conversations."""
MAX_SHOWN = 5
"""Largest number of conversation ids in an error message."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""By wildcard address, on which a proxy listens on all interfaces: the loopback address to connect to."""
TRIES = 50
"""Connections to a port that several processes share. With four processes, one is missed once in a million times."""


class _Answer(NamedTuple):
    status: int
    found: Any


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--token", help="Token of the proxy (x-ibidem-token). Setting IBIDEM_TOKEN is safer."),
        click.option(
            "--url",
            metavar="URL",
            help="Address of the proxy (default: from its settings, else http://127.0.0.1:8123).",
        ),
        click.option("--all", "every", is_flag=True, help="All current and future conversations of the proxy."),
        click.argument("conversation", required=False),
    ):
        command = option(command)
    return command


@click.command(short_help="Pause rewriting in a running proxy.")
@_options
def off(conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    """Pause rewriting in CONVERSATION, until `ibidem on`.

    New messages are forwarded unchanged. Messages that were already sent stay as they were sent, so the provider's
    cache stays valid. CONVERSATION is an id on the proxy's page (c1), or its first characters. With only one
    conversation, you can omit it.
    """
    return _turn("off", conversation, every, url, token)


@click.command(short_help="Resume rewriting in a running proxy.")
@_options
def on(conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    """Resume rewriting in CONVERSATION, after `ibidem off`.

    CONVERSATION is an id on the proxy's page (c1), or its first characters. With only one conversation, you can omit
    it.
    """
    return _turn("on", conversation, every, url, token)


def _turn(way: str, conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    if every and conversation is not None:
        raise click.UsageError("Pass a conversation or --all, not both")
    base, secret = _where(url, token)
    if not every and conversation is None:
        conversation = _only(base, secret)
    asked = {"all": True} if every else {"conversation": conversation}
    body = json.dumps(asked).encode()
    answer = _asked(base, secret, "POST", f"api/{way}", body)
    # An id that starts with p belongs to one of several processes behind the port. A new connection may reach it.
    more_tries = TRIES - 1 if (conversation or "").startswith("p") else 0
    while answer.status == 404 and more_tries:
        answer = _asked(base, secret, "POST", f"api/{way}", body)
        more_tries -= 1
    if answer.status != 200:
        raise InputError(base, one_line(str(answer.found.get("error", f"status {answer.status}"))))
    whose = "all current and future conversations" if every else one_line(str(answer.found.get("conversation", "")))
    does = "rewriting resumed" if way == "on" else "rewriting paused; already sent messages stay as they were sent"
    click.echo(f"{whose}: {way}: {does}")
    return 0


def _where(url: str | None, token: str | None) -> tuple[str, str | None]:
    """Return the proxy's address and token: from the options, else from the settings that `ibidem proxy` reads."""
    from .. import environment
    from .proxy.serving import loaded

    settings = loaded({"token": token}, environment.variables()).settings
    if url is None:
        host = EVERYWHERE.get(settings.host, settings.host)
        url = f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
    return one_line(url).rstrip("/").removesuffix("/ibidem"), settings.token


def _only(base: str, token: str | None) -> str:
    answer = _asked(base, token, "GET", "api/state")
    known = [str(each["id"]) for each in answer.found.get("conversations", ())] if answer.status == 200 else []
    if len(known) == 1 and "process" not in answer.found:
        return known[0]
    if answer.status != 200:
        raise InputError(base, f"the proxy did not list its conversations (status {answer.status}): check its log")
    some = ", ".join(map(one_line, known[:MAX_SHOWN])) + (", …" if len(known) > MAX_SHOWN else "")
    there = f"there are {len(known):,} ({some})" if known else "there is no conversation yet"
    if "process" in answer.found:
        there += " in one of the processes that share this port"
    raise InputError(base, f"pass a conversation, or --all: {there}; {base}/ibidem lists them")


def _asked(base: str, token: str | None, method: str, path: str, body: bytes | None = None) -> _Answer:
    """Send a request to the proxy and parse its response. Ignores HTTP_PROXY: the target is the user's own proxy."""
    import http.client
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[parts.scheme]
        connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    except (ValueError, KeyError, http.client.InvalidURL):
        raise InputError(base, "not the address of a proxy: use one such as http://127.0.0.1:8123") from None
    headers = {"content-type": "application/json", **({"x-ibidem-token": token} if token else {})}
    try:
        connection.request(method, f"{parts.path}/ibidem/{path}", body, headers)
        with connection.getresponse() as answer:
            return _read(base, answer.status, answer.read(MAX_ANSWER_BYTES))
    except (OSError, http.client.HTTPException, UnicodeError):
        raise InputError(
            base, "no proxy is running there: start `ibidem proxy`, or pass its address with --url"
        ) from None
    finally:
        connection.close()


def _read(base: str, status: int, body: bytes) -> _Answer:
    if status == 401:
        raise InputError(base, "this proxy needs its token: set IBIDEM_TOKEN, or use --token")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(base, f"not an ibidem proxy (status {status}): pass the proxy's address with --url")
    return _Answer(status, found)
