"""`ibidem off` and `ibidem on`"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from ..errors import one_line
from .command_errors import InputError

PATIENCE_SECONDS = 10.0
MAX_RESPONSE_BYTES = 16 * 2**20
"""Largest response that is read. The proxy's state may list many conversations."""
MAX_LISTED = 5
"""Largest number of conversation ids in an error message."""
LOOPBACK_FOR_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""By wildcard address, on which a proxy listens on all interfaces: the loopback address to connect to."""
MAX_TRIES = 50
"""Connections to a port that several processes share. With four processes, one is missed once in a million times."""


class _PauseResponse(NamedTuple):
    status: int
    body: Any


def _add_options(command: Callable[..., Any]) -> Callable[..., Any]:
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
@_add_options
def off(conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    """Pause rewriting in CONVERSATION, until `ibidem on`.

    New messages are forwarded unchanged. Messages that were already sent stay as they were sent, so the provider's
    cache stays valid. CONVERSATION is an id on the proxy's page (c1), or its first characters. With only one
    conversation, you can omit it.
    """
    return _set_paused("off", conversation, every, url, token)


@click.command(short_help="Resume rewriting in a running proxy.")
@_add_options
def on(conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    """Resume rewriting in CONVERSATION, after `ibidem off`.

    CONVERSATION is an id on the proxy's page (c1), or its first characters. With only one conversation, you can omit
    it.
    """
    return _set_paused("on", conversation, every, url, token)


def _set_paused(command: str, conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    if every and conversation is not None:
        raise click.UsageError("Pass a conversation or --all, not both")
    base, secret = _proxy_address(url, token)
    if not every and conversation is None:
        conversation = _only_conversation(base, secret)
    payload = {"all": True} if every else {"conversation": conversation}
    body = json.dumps(payload).encode()
    response = _send_request(base, secret, "POST", f"api/{command}", body)
    # An id that starts with p belongs to one of several processes behind the port. A new connection may reach it.
    more_tries = MAX_TRIES - 1 if (conversation or "").startswith("p") else 0
    while response.status == 404 and more_tries:
        response = _send_request(base, secret, "POST", f"api/{command}", body)
        more_tries -= 1
    if response.status != 200:
        raise InputError(base, one_line(str(response.body.get("error", f"status {response.status}"))))
    scope = "all current and future conversations" if every else one_line(str(response.body.get("conversation", "")))
    effect = (
        "rewriting resumed" if command == "on" else "rewriting paused; already sent messages stay as they were sent"
    )
    click.echo(f"{scope}: {command}: {effect}")
    return 0


def _proxy_address(url: str | None, token: str | None) -> tuple[str, str | None]:
    """Return the proxy's address and token: from the options, else from the settings that `ibidem proxy` reads."""
    from .. import environment
    from .proxy.serve import load_settings

    settings = load_settings({"token": token}, environment.environment_variables()).settings
    if url is None:
        host = LOOPBACK_FOR_WILDCARD.get(settings.host, settings.host)
        url = f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
    return one_line(url).rstrip("/").removesuffix("/ibidem"), settings.token


def _only_conversation(base: str, token: str | None) -> str:
    response = _send_request(base, token, "GET", "api/state")
    ids = [str(each["id"]) for each in response.body.get("conversations", ())] if response.status == 200 else []
    if len(ids) == 1 and "process" not in response.body:
        return ids[0]
    if response.status != 200:
        raise InputError(base, f"the proxy did not list its conversations (status {response.status}): check its log")
    listed_ids = ", ".join(map(one_line, ids[:MAX_LISTED])) + (", …" if len(ids) > MAX_LISTED else "")
    existing = f"there are {len(ids):,} ({listed_ids})" if ids else "there is no conversation yet"
    if "process" in response.body:
        existing += " in one of the processes that share this port"
    raise InputError(base, f"pass a conversation, or --all: {existing}; {base}/ibidem lists them")


def _send_request(base: str, token: str | None, method: str, path: str, body: bytes | None = None) -> _PauseResponse:
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
        with connection.getresponse() as response:
            return _parse_response(base, response.status, response.read(MAX_RESPONSE_BYTES))
    except (OSError, http.client.HTTPException, UnicodeError):
        raise InputError(
            base, "no proxy is running there: start `ibidem proxy`, or pass its address with --url"
        ) from None
    finally:
        connection.close()


def _parse_response(base: str, status: int, body: bytes) -> _PauseResponse:
    if status == 401:
        raise InputError(base, "this proxy needs its token: set IBIDEM_TOKEN, or use --token")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(base, f"not an ibidem proxy (status {status}): pass the proxy's address with --url")
    return _PauseResponse(status, value)
