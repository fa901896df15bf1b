"""Microsoft Agent Framework with Ibidem. No key is needed: it uses a mock provider on this machine.

pip install agent-framework-core agent-framework-openai
"""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

import ibidem
from ibidem.adapters.agent_framework import IbidemChatMiddleware
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "b.py"})), Calls(("read", {"path": "a.py"}))]


def read(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"    {path}_{number} = compute({number * 7919 % 1000})" for number in range(60))


async def main() -> None:
    with Upstream([*SCRIPT, Says("Both files are fine.")]) as upstream:
        # With a real provider: leave out base_url and api_key (OPENAI_API_KEY is read),
        # client = OpenAIChatCompletionClient("gpt-5")
        client = OpenAIChatCompletionClient("gpt-5", base_url=f"{upstream.url}/v1", api_key="none")
        agent = Agent(client, "You are careful.", tools=[read], middleware=[IbidemChatMiddleware()])
        print((await agent.run("Look at the files.")).text)
        for number, seen in enumerate(upstream.seen, 1):
            before = len(ibidem.expand(seen.text, format="openai-chat"))
            print(f"request {number}: {len(seen.text):,} bytes on the wire, {before:,} before us")


asyncio.run(main())
