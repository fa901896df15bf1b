"""`ibidem statusline`, for its help and for shells that complete it: `launch` runs `status` without this file."""

from __future__ import annotations

import click

from .status import run


@click.command(short_help="Print figures for the status line of Claude Code.")
def statusline() -> int:
    """Read the status of Claude Code on standard input, and print one line: paid and saved, context, cache.

    The client runs it by itself, once its settings say so: `ibidem setup statusline` prints what to put there.
    """
    return run()
