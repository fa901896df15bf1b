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
"""Of what the proxy says: its state may list many conversations."""
MAX_SHOWN = 5
"""Conversations that are named where one has to be chosen."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a proxy listens on all addresses, it is asked on this one."""
TRIES = 50
"""Connections to a port that several processes share. Four processes: one of them is missed once in a million times."""


class _Answer(NamedTuple):
    status: int
    found: Any


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--token", help="What the proxy wants as x-ibidem-token; better set IBIDEM_TOKEN."),
        click.option("--url", metavar="URL", help="Where the proxy is; http://127.0.0.1:8123 if nothing else is set."),
        click.option("--all", "every", is_flag=True, help="All conversations of that proxy, and those to come."),
        click.argument("conversation", required=False),
    ):
        command = option(command)
    return command


@click.command(short_help="Rewrite nothing new in a conversation of a running proxy.")
@_options
def off(conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    """Rewrite nothing new in CONVERSATION, until `ibidem on`.

    What was sent before stays as it was sent, so the provider's cache stays valid; what is new goes as it comes.
    CONVERSATION is the id that the page of the proxy shows (c1), or its beginning. It need not be named where there is
    only one.
    """
    return _turn("off", conversation, every, url, token)


@click.command(short_help="Rewrite what is new again.")
@_options
def on(conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    """Rewrite what is new in CONVERSATION again, after `ibidem off`.

    CONVERSATION is the id that the page of the proxy shows (c1), or its beginning. It need not be named where there is
    only one.
    """
    return _turn("on", conversation, every, url, token)


def _turn(way: str, conversation: str | None, every: bool, url: str | None, token: str | None) -> int:
    if every and conversation is not None:
        raise click.UsageError("Name a conversation or say --all, not both")
    base, secret = _where(url, token)
    if not every and conversation is None:
        conversation = _only(base, secret)
    asked = {"all": True} if every else {"conversation": conversation}
    body = json.dumps(asked).encode()
    answer = _asked(base, secret, "POST", f"api/{way}", body)
    more_tries = TRIES - 1 if (conversation or "").startswith("p") else 0  # the id names the process that has it
    while answer.status == 404 and more_tries:
        answer = _asked(base, secret, "POST", f"api/{way}", body)
        more_tries -= 1
    if answer.status != 200:
        raise InputError(base, one_line(str(answer.found.get("error", f"status {answer.status}"))))
    whose = "all conversations, and those to come" if every else one_line(str(answer.found.get("conversation", "")))
    does = "what is new is rewritten again" if way == "on" else "nothing new is rewritten; what was sent stays as it is"
    click.echo(f"{whose}: {way}: {does}")
    return 0


def _where(url: str | None, token: str | None) -> tuple[str, str | None]:
    """The address of the proxy and its token: as given, and else as `ibidem proxy` would find them."""
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
        raise InputError(base, f"the proxy did not say which conversations there are: status {answer.status}")
    some = ", ".join(map(one_line, known[:MAX_SHOWN])) + (", …" if len(known) > MAX_SHOWN else "")
    there = f"there are {len(known):,} ({some})" if known else "there is none yet"
    if "process" in answer.found:
        there += " in one of the processes that share this port"
    raise InputError(base, f"say which conversation, or --all: {there}; {base}/ibidem shows them")


def _asked(base: str, token: str | None, method: str, path: str, body: bytes | None = None) -> _Answer:
    """What a proxy says there. No other proxy is on the way: this one is ours."""
    import http.client
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[parts.scheme]
        connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    except (ValueError, KeyError, http.client.InvalidURL):
        raise InputError(base, "this is no address of a proxy: use one such as http://127.0.0.1:8123") from None
    headers = {"content-type": "application/json", **({"x-ibidem-token": token} if token else {})}
    try:
        connection.request(method, f"{parts.path}/ibidem/{path}", body, headers)
        with connection.getresponse() as answer:
            return _read(base, answer.status, answer.read(MAX_ANSWER_BYTES))
    except (OSError, http.client.HTTPException, UnicodeError):
        raise InputError(base, "no proxy answers there: start `ibidem proxy`, or name its address with --url") from None
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
        raise InputError(base, f"who answers there is no ibidem proxy (status {status}): name its address with --url")
    return _Answer(status, found)
