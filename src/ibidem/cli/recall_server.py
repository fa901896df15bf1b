"""`ibidem recall-server`"""

from __future__ import annotations

import sys

import click

from .. import __version__
from .store import store_option


@click.command("recall-server", short_help="Offer `recall` to a model, as an MCP server.")
@store_option
def recall_server(target: str) -> int:
    """Offer a model the texts that were removed from its conversation, as an MCP server on standard input and output.

    It has one tool, `recall`. Clients start it themselves: docs/proxy.md says how they are told of it.
    """
    from ..store.recall_server import bounded, serve

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    serve(target, bounded(sys.stdin.buffer), write, __version__)
    return 0
