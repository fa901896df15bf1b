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
    from ..store.recall_server import bounded, serve

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    serve(target, bounded(sys.stdin.buffer), write, __version__)
    return 0
