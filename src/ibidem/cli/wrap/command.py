"""`ibidem wrap`"""

from __future__ import annotations

from typing import Any

import click

from ..proxy.command import settings_options


@click.command(
    short_help="Run a command and rewrite its requests.",
    context_settings={"allow_interspersed_args": False},  # options after COMMAND belong to the command
)
@click.argument("command", metavar="-- COMMAND [ARG]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--list", "listed", is_flag=True, help="List known clients, and the upstream of each provider.")
@settings_options("free port", "profile", "cache", "upstream", "store", "store limits", "observe", "trial")
@settings_options("json file", "ledger", "otel", "record", "budget", "body", "rewrite", "conversations", "memory")
@settings_options("resend", "websockets", "config")
def wrap(command: tuple[str, ...], listed: bool, **flags: Any) -> int:
    """Run COMMAND with its own proxy that rewrites its requests, and print the savings at exit.

    The proxy runs on this machine until COMMAND ends. COMMAND finds it through environment variables; no file is
    changed. COMMAND uses the terminal as usual, and ibidem returns its exit code. If the proxy cannot start, COMMAND
    runs without it.
    """
    if not command and not listed:
        raise click.UsageError("Pass a command: ibidem wrap -- COMMAND")
    from .run_wrapped import print_clients, run_wrapped  # imports asyncio

    return print_clients(command, flags) if listed else run_wrapped(command, flags)
