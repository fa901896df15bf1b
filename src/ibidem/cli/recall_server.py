"""`ibidem recall-server`"""

from __future__ import annotations

import sys

import click

from .. import __version__
from .store import store_option


@click.command("recall-server", short_help="Run an MCP server that lets a model recall evicted text.")
@store_option
def recall_server(target: str) -> int:
    """Run an MCP server on standard input and output that lets a model recall evicted text.

    It has one tool, `recall`. Clients start the server themselves; docs/proxy.md shows how to register it.
    """
    from ..store.recall_server import bounded_lines, serve_messages

    def write_line(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    serve_messages(target, bounded_lines(sys.stdin.buffer), write_line, __version__)
    return 0
