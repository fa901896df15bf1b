"""`ibidem wrap`"""

from __future__ import annotations

from typing import Any

import click

from ..proxy.command import settings_options


@click.command(
    short_help="Run a command whose requests are rewritten.",
    context_settings={"allow_interspersed_args": False},  # what stands behind COMMAND is its own
)
@click.argument("command", metavar="-- COMMAND [ARG]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--list", "listed", is_flag=True, help="Show which clients are known, and where requests would go.")
@settings_options("free port", "profile", "cache", "upstream", "store", "store limits", "observe", "trial")
@settings_options("json file", "ledger", "otel", "record", "budget", "body", "rewrite", "conversations", "memory")
@settings_options("resend", "websockets", "config")
def wrap(command: tuple[str, ...], listed: bool, **flags: Any) -> int:
    """Run COMMAND with a proxy of its own that rewrites its requests, and say at the end what that saved.

    The proxy listens on this machine for as long as COMMAND runs, which finds it through variables that only it gets.
    No file is changed. COMMAND has the terminal, and its exit code is ours. If there can be no proxy, it runs without.
    """
    if not command and not listed:
        raise click.UsageError("Say what to run: ibidem wrap -- COMMAND")
    from .running import run, show  # and with it asyncio

    return show(command, flags) if listed else run(command, flags)
