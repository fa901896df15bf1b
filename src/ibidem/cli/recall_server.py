"""`ibidem recall-server`"""

from __future__ import annotations

import click

from ..model import IbidemError
from .errors import InputError
from .store import store_option


@click.command("recall-server", short_help="Offer `recall` to a model, as an MCP server.")
@store_option
def recall_server(target: str) -> int:
    """Offer a model the texts that were removed from its conversation, as an MCP server on standard input and output.

    It has one tool, `recall`. Clients start it themselves: claude mcp add ibidem -- ibidem recall-server
    """
    from ..store.recall_server import server

    try:
        found = server(target)
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    found.run("stdio")
    return 0
