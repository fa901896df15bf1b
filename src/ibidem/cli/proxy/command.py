"""`ibidem proxy`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...billing.cache_ttl import CACHE_MODES
from ...proxy.listen_address import OTEL_MODES
from ..options import PROFILE, reject_password

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DAYS = click.option(
    "--store-days", type=float, metavar="DAYS", help="Delete originals not used for this long (default: 30)."
)
_BYTES = click.option("--store-bytes", type=int, metavar="BYTES", help="Largest size of the store (default: 2 GB).")

_RECORD = click.option(
    "--record",
    metavar="FOLDER",
    help="Save request and response bodies in this folder, for `report` and `show`. They contain all texts.",
)
_RECORD_DAYS = click.option(
    "--record-days", type=float, metavar="DAYS", help="Delete recordings older than this (default: 30)."
)
_RECORD_BYTES = click.option(
    "--record-bytes", type=int, metavar="BYTES", help="Largest size of all recordings (default: 1 GB)."
)

_OPTIONS: dict[str, Decorator] = {
    "host": click.option(
        "--host", help="Address to listen on (default: 127.0.0.1). An address other than loopback needs a token."
    ),
    "port": click.option("--port", type=int, help="Port to listen on; 0 selects a free port (default: 8123)."),
    "reuse port": click.option(
        "--reuse-port/--no-reuse-port",
        default=None,
        help="Let several processes listen on this port, one per core. They share the store.",
    ),
    "workers": click.option("--workers", hidden=True),  # removed: the error names the replacement
    "free port": click.option("--port", type=int, help="Port of the proxy (default: a free port)."),
    "token": click.option(
        "--token", help="Token that clients must send as x-ibidem-token. Setting IBIDEM_TOKEN is safer."
    ),
    "page token": click.option(
        "--page-token",
        help="Token that also must be sent, as x-ibidem-page-token, to see texts. Setting IBIDEM_PAGE_TOKEN is safer.",
    ),
    "texts": click.option(
        "--texts/--no-texts",
        default=None,
        help="Show texts of conversations on the page (default: off if other machines can connect and no page token "
        "is set).",
    ),
    "profile": click.option("--profile", type=PROFILE, help="Rewriting profile (default: lossless)."),
    "cache": click.option(
        "--cache",
        type=click.Choice(CACHE_MODES),
        help="Prompt caching. off: leave as is (default). lifetime: choose the TTL. auto: also add cache breakpoints "
        "to requests without them.",
    ),
    "upstream": click.option(
        "--upstream",
        metavar="NAME=URL",
        multiple=True,
        help="Base URL of a provider: anthropic, openai, gemini, vertex, bedrock, foundry, mantle, "
        "anthropic-aws, anthropic-google, moonshot, openrouter or chatgpt. Repeatable.",
    ),
    "store": click.option(
        "--store",
        metavar="STORE",
        callback=reject_password,
        help="Store for originals: a file or a redis:// URL. Put a URL with a password in IBIDEM_STORE.",
    ),
    "store limits": lambda command: _DAYS(_BYTES(command)),
    "observe": click.option(
        "--observe/--no-observe", default=None, help="Forward requests unchanged, and measure possible savings."
    ),
    "trial": click.option(
        "--trial",
        type=float,
        metavar="SHARE",
        help="Rewrite only this share of conversations (0 to 1), for the comparison by `ibidem gain --trial`.",
    ),
    "json log": click.option(
        "--json-log", metavar="FILE", help="Write one JSON object per exchange to FILE; `-` is standard output."
    ),
    "json file": click.option("--json-log", metavar="FILE", help="Write one JSON object per exchange to FILE."),
    "ledger": click.option(
        "--ledger/--no-ledger",
        default=None,
        help="Record the usage of each request for `ibidem gain`, without texts (default: on).",
    ),
    "otel": click.option(
        "--otel",
        type=click.Choice(OTEL_MODES),
        help="Report rewritten requests (spans), or also the model calls (genai), to your OpenTelemetry SDK.",
    ),
    "record": lambda command: _RECORD(_RECORD_DAYS(_RECORD_BYTES(command))),
    "budget": click.option(
        "--budget-ms", type=float, metavar="MS", help="Time limit for rewriting one request (default: 2000)."
    ),
    "body": click.option(
        "--max-body", type=int, metavar="BYTES", help="Reject larger requests with status 413 (default: 100 MiB)."
    ),
    "rewrite": click.option(
        "--max-rewrite",
        type=int,
        metavar="BYTES",
        help="Forward a request unchanged if it has more new bytes than this (default: 16 MiB).",
    ),
    "conversations": click.option(
        "--conversations", type=int, metavar="N", help="Largest number of conversations in memory (default: 1000)."
    ),
    "memory": click.option(
        "--memory-mb", type=int, metavar="MB", help="Memory for all conversations together (default: 256)."
    ),
    "resend": click.option(
        "--resend/--no-resend",
        default=None,
        help="If the provider rejects a rewritten request, send it again without new edits.",
    ),
    "websockets": click.option(
        "--websockets/--no-websockets", default=None, help="Accept WebSockets. Their requests are not rewritten."
    ),
    "config": click.option("--config", metavar="FILE", help="Settings file to use instead of your ibidem.toml."),
}


def settings_options(*names: str) -> Decorator:
    """Return a decorator that adds these options. An option without a value is None, so other sources of it apply."""

    def add_options(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add_options


@click.command(short_help="Run a proxy that rewrites requests.")
@settings_options("host", "port", "reuse port", "workers", "token", "page token", "texts", "profile", "cache")
@settings_options("upstream", "store", "store limits", "observe", "trial", "json log", "ledger", "otel", "record")
@settings_options("budget", "body", "rewrite", "conversations", "memory", "resend", "websockets", "config")
def proxy(**flags: Any) -> int:
    """Run a proxy that rewrites requests on their way to the provider, until stopped.

    It listens on this machine. Set the base URL of a client to its address. Requests that are not conversations are
    forwarded unchanged. Settings can also be variables (IBIDEM_PORT) or in your ibidem.toml; options override both.
    """
    from .serve import run_proxy  # imports asyncio

    return run_proxy(flags)
