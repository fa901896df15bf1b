"""An MCP server with one tool, `recall`: the text that a marker stands for, byte for byte.

It only reads, and it opens the store anew for every call, so that a store which is made later is found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..model import IbidemError
from .naming import REFERENCE_DIGITS

if TYPE_CHECKING:
    from mcp.server import MCPServer

DESCRIPTION = (
    "Get back a text that was left out of this conversation. Where it stood there is a line like "
    "[ibidem 123 3f9a1c0b77de: 340 lines left out, …]; ref is the 12 digits in it."
)

_REFERENCE = re.compile(rf"(?<![0-9a-f+])[0-9a-f]{{{REFERENCE_DIGITS}}}(?![0-9a-f])")
"""What stands behind a plus is the reference of a record, which is not for reading."""


def original(ref: str, target: str) -> str:
    """The text under a reference in this store. The whole marker is understood too. IbidemError says what to do."""
    refs = set(_REFERENCE.findall(ref.lower()))
    if len(refs) != 1:
        raise IbidemError(f"this is no reference: give the {REFERENCE_DIGITS} digits that stand in the marker")
    (wanted,) = refs
    text = _stored(wanted, target)
    if text is None:
        raise IbidemError(f"{wanted} is not in the store: use the tool that gave the text again")
    return text


def _stored(ref: str, target: str) -> str | None:
    from . import is_missing, open_store  # SQLite takes longer to import than the rest of us

    if is_missing(target):
        return None  # a store is not made by looking
    with open_store(target) as store:
        return store.get([ref]).get(ref)


def server(target: str) -> MCPServer:
    """The server, not yet running. IbidemError if its package is missing."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ModuleNotFoundError as error:
        raise IbidemError(f"{error.name}: needs: pip install 'ibidem-llm[mcp]'") from None
    found = MCPServer("ibidem", instructions=DESCRIPTION, log_level="WARNING")

    @found.tool(
        description=DESCRIPTION,
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        structured_output=False,  # else the text would be sent twice
    )
    def recall(ref: str) -> str:
        try:
            text = original(ref, target)
            text.encode()
        except UnicodeEncodeError:
            raise ToolError(f"it has characters that cannot be sent this way: run `ibidem recall {ref}`") from None
        except IbidemError as error:
            raise ToolError(str(error)) from None
        return text

    return found
