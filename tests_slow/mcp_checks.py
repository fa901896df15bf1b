"""Fifteen questions to the reference server "everything", by the official client: what it answers, as plain values.

Two connections are alike if all of these are equal.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

TIMEOUT = 60


class Heard:
    """What the server asked or told the client by itself."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.logged: set[str] = set()
        self.told: set[str] = set()

    async def sample(self, context: Any, params: Any) -> Any:
        import mcp_types as types

        self.asked.append(("sampling", [each.model_dump(mode="json") for each in params.messages]))
        content = types.TextContent(type="text", text="sampled")
        return types.CreateMessageResult(role="assistant", content=content, model="scripted")

    async def elicit(self, context: Any, params: Any) -> Any:
        import mcp_types as types

        self.asked.append(("elicitation", params.message))
        return types.ElicitResult(action="decline")

    async def roots(self, context: Any) -> Any:
        import mcp_types as types

        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///a/root", "name": "a root"})])

    async def log(self, params: Any) -> None:
        self.logged.add(f"{params.level} {params.logger}")

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method is not None and "list_changed" in method:
            self.told.add(method)


async def fifteen(target: Any, mode: str) -> dict[str, Any]:
    from mcp import Client

    heard = Heard()
    async with Client(
        target,
        mode=mode,
        read_timeout_seconds=TIMEOUT,
        sampling_callback=heard.sample,
        elicitation_callback=heard.elicit,
        list_roots_callback=heard.roots,
        logging_callback=heard.log,
        message_handler=heard.message,
    ) as client:
        await asyncio.sleep(1)  # it asks for roots, and then has more tools
        return {**await _listed(client), **await _called(client), **await _heard(client, heard)}


def _plain(found: Any) -> Any:
    return found.model_dump(mode="json")


async def _listed(client: Any) -> dict[str, Any]:
    resources = await client.list_resources()
    prompts = await client.list_prompts()
    return {
        "version": [client.protocol_version, _plain(client.server_info), _plain(client.server_capabilities)],
        "tools": _plain(await client.list_tools()),
        "resources": [_plain(resources), _plain(await client.list_resource_templates())],
        "prompts": [_plain(prompts), _plain(await client.get_prompt(prompts.prompts[0].name))],
        "read": _plain(await client.read_resource(resources.resources[0].uri)),
    }


async def _called(client: Any) -> dict[str, Any]:
    progress: list[Any] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, total, message))

    async def call(tool: str, **arguments: Any) -> Any:
        return _plain(await client.call_tool(tool, arguments))

    long = await client.call_tool("trigger-long-running-operation", {"duration": 1, "steps": 4}, progress_callback=note)
    given_up = "no"
    try:
        await client.call_tool("trigger-long-running-operation", {"duration": 30}, read_timeout_seconds=0.5)
    except Exception as error:
        given_up = type(error).__name__
    return {
        "structured content": await call("get-structured-content", location="Chicago"),
        "progress": [_plain(long), progress],
        "cancel": [given_up, await call("echo", message="after")],
        "images": await call("get-tiny-image"),
        "annotations": await call("get-annotated-message", messageType="error", includeImage=True),
    }


async def _heard(client: Any, heard: Heard) -> dict[str, Any]:
    with suppress(Exception):
        await client.set_logging_level("debug")
    sampled = await client.call_tool("trigger-sampling-request", {"prompt": "say something", "maxTokens": 10})
    elicited = await client.call_tool("trigger-elicitation-request", {})
    rooted = await client.call_tool("get-roots-list", {})
    await client.send_roots_list_changed()
    await asyncio.sleep(1)
    return {
        "sampling": [_plain(sampled), [each for each in heard.asked if each[0] == "sampling"]],
        "elicitation": [_plain(elicited), [each for each in heard.asked if each[0] == "elicitation"]],
        "roots": _plain(rooted),
        "logging": sorted(heard.logged),
        "list changed": sorted(heard.told),
    }
