"""The official client and a server of the official SDK, with us between them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from .servers import program, through

pytestmark = pytest.mark.slow  # the SDK takes seconds to import, in two processes

SERVER = """
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("things")
TEXT = "a line of a text that is repeated\\n" * 30

@server.tool(structured_output=False)
async def text(n: int, context: Context) -> str:
    await context.report_progress(n, 10)
    return TEXT

@server.tool()
def typed(n: int) -> str:
    return TEXT

@server.tool()
def fails() -> str:
    raise ValueError(TEXT)

server.run("stdio")
"""
TEXT = "a line of a text that is repeated\n" * 30


@pytest.mark.skipif(os.name == "nt", reason="pipes of another kind")
def test_they_notice_hints_alone(tmp_path: Path) -> None:
    """In the newest protocol that both know; tests_slow/test_gateway.py has the others."""
    from mcp import Client, StdioServerParameters  # takes a second, and every run collects these tests
    from mcp_types import Implementation

    command = through(program(tmp_path, SERVER), "--tools", "--strip-schema")
    target = StdioServerParameters(command=command[0], args=command[1:], env={**os.environ})
    agent = Implementation(name="an-agent", version="1")
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async def said(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
        result: Any = await client.call_tool(tool, arguments, progress_callback=note)
        return result.content[0].text, result.structured_content is not None

    async def run() -> None:
        async with Client(target, read_timeout_seconds=60, client_info=agent) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["text", "typed", "fails", "forget"]
            assert not any(tool.output_schema for tool in tools)
            assert await said(client, "text", n=1) == (TEXT, False)
            hint, _ = await said(client, "text", n=2)
            assert hint.startswith("[ibidem: unchanged, same as the result 1 things call ago, text(n=1)")
            assert await said(client, "typed", n=1) == (
                "[ibidem: unchanged, same as the result 2 things calls ago, text(n=1)]",
                False,
            )
            assert [(await client.call_tool("fails", {})).is_error for _ in range(2)] == [True, True]
            assert not (await client.call_tool("forget", {})).is_error
            assert await said(client, "typed", n=2) == (TEXT, True)
            assert steps == [1, 2]

    asyncio.run(run())
