"""`ibidem proxy`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...billing.lifetimes import CACHE_MODES
from ...proxy.address import OTEL_MODES
from ..options import PROFILE, without_password

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DAYS = click.option(
    "--store-days", type=float, metavar="DAYS", help="How long it remembers what is not used; 30 if not given."
)
_BYTES = click.option("--store-bytes", type=int, metavar="BYTES", help="How much it keeps; 2 GB if not given.")

_RECORD = click.option(
    "--record",
    metavar="FOLDER",
    help="Keep bodies of requests and answers there, for `report` and `show`. They hold all texts: for you alone.",
)
_RECORD_DAYS = click.option(
    "--record-days", type=float, metavar="DAYS", help="How long these are kept; 30 if not given."
)
_RECORD_BYTES = click.option("--record-bytes", type=int, metavar="BYTES", help="How much of them; 1 GB if not given.")

_OPTIONS: dict[str, Decorator] = {
    "host": click.option("--host", help="Where to listen, 127.0.0.1 if not given; all but loopback needs a token."),
    "port": click.option("--port", type=int, help="8123 if not given; 0 is a free one."),
    "reuse port": click.option(
        "--reuse-port/--no-reuse-port",
        default=None,
        help="Let several processes listen on this port, one per core; they share the store.",
    ),
    "workers": click.option("--workers", hidden=True),  # removed: the error names the replacement
    "free port": click.option("--port", type=int, help="A free one if not given."),
    "token": click.option("--token", help="What clients must send as x-ibidem-token; better set IBIDEM_TOKEN."),
    "page token": click.option(
        "--page-token",
        help="What must come besides, as x-ibidem-page-token, to see texts; better set IBIDEM_PAGE_TOKEN.",
    ),
    "texts": click.option(
        "--texts/--no-texts",
        default=None,
        help="Whether texts may be seen at all; off where others can connect and no page token is set.",
    ),
    "profile": click.option("--profile", type=PROFILE, help="Which strategies run, lossless if not given."),
    "cache": click.option(
        "--cache",
        type=click.Choice(CACHE_MODES),
        help="What providers are asked to keep: as the client says (off, if not given), for other lifetimes, or marked "
        "by us where the client marks nothing (auto).",
    ),
    "upstream": click.option(
        "--upstream",
        metavar="NAME=URL",
        multiple=True,
        help="Base URL for requests of a provider: anthropic, openai, gemini, vertex, bedrock, foundry, mantle, "
        "anthropic-aws, anthropic-google, moonshot, openrouter or chatgpt. Repeatable.",
    ),
    "store": click.option(
        "--store",
        metavar="STORE",
        callback=without_password,
        help="Where originals are kept: a file or a redis:// URL; with a password, in IBIDEM_STORE.",
    ),
    "store limits": lambda command: _DAYS(_BYTES(command)),
    "observe": click.option(
        "--observe/--no-observe", default=None, help="Rewrite nothing, only measure what it would have saved."
    ),
    "trial": click.option(
        "--trial",
        type=float,
        metavar="SHARE",
        help="Rewrite this share of conversations and only measure the others, for `ibidem gain --trial`.",
    ),
    "json log": click.option(
        "--json-log", metavar="FILE", help="One JSON object per exchange; `-` is standard output."
    ),
    "json file": click.option("--json-log", metavar="FILE", help="One JSON object per exchange."),
    "ledger": click.option(
        "--ledger/--no-ledger",
        default=None,
        help="Whether figures of each request, no texts, are kept for `ibidem gain`.",
    ),
    "otel": click.option(
        "--otel",
        type=click.Choice(OTEL_MODES),
        help="Tell your OpenTelemetry SDK of rewritten requests (spans), and of the model calls too (genai).",
    ),
    "record": lambda command: _RECORD(_RECORD_DAYS(_RECORD_BYTES(command))),
    "budget": click.option("--budget-ms", type=float, metavar="MS", help="Time for one request, 2000 if not given."),
    "body": click.option(
        "--max-body", type=int, metavar="BYTES", help="Larger requests get 413; 100 MiB if not given."
    ),
    "rewrite": click.option(
        "--max-rewrite",
        type=int,
        metavar="BYTES",
        help="With more that is new, it goes as it came; 16 MiB if not given.",
    ),
    "conversations": click.option("--conversations", type=int, metavar="N", help="Kept in memory, 1000 if not given."),
    "memory": click.option("--memory-mb", type=int, metavar="MB", help="What they may hold there, 256 if not given."),
    "resend": click.option(
        "--resend/--no-resend",
        default=None,
        help="Send again, without new edits, what the provider refuses.",
    ),
    "websockets": click.option(
        "--websockets/--no-websockets", default=None, help="Whether requests may come through WebSockets, as they are."
    ),
    "config": click.option("--config", metavar="FILE", help="Settings, instead of those in your ibidem.toml."),
}


def settings_options(*names: str) -> Decorator:
    """The options of these names. One that is not given is None, so that weaker sources can speak."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return decorate


@click.command(short_help="Rewrite requests on their way, until stopped.")
@settings_options("host", "port", "reuse port", "workers", "token", "page token", "texts", "profile", "cache")
@settings_options("upstream", "store", "store limits", "observe", "trial", "json log", "ledger", "otel", "record")
@settings_options("budget", "body", "rewrite", "conversations", "memory", "resend", "websockets", "config")
def proxy(**flags: Any) -> int:
    """Rewrite requests on their way to the provider, until stopped.

    Listens on this machine; point a client at it with its base URL. What is no conversation goes through as it came.
    A setting may also be given as a variable (IBIDEM_PORT) or in your ibidem.toml; an option is the strongest.
    """
    from .serving import run  # and with it asyncio

    return run(flags)
