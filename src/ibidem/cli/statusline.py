"""`ibidem statusline`, for its help and for shell completion. `launch` runs the command without this module."""

from __future__ import annotations

import click

from .statusline_text import print_statusline


@click.command(short_help="Print cost, savings and context for Claude Code's status line.")
def statusline() -> int:
    """Print one line for Claude Code's status line: cost and savings, context, cache use.

    Claude Code runs this command and sends its status on standard input. `ibidem setup statusline` prints the setting
    that enables it.
    """
    return print_statusline()
