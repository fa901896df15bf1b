"""LlamaIndex with Ibidem. No key is needed: it uses a mock provider on this machine.

pip install llama-index-core llama-index-llms-openai
"""

import asyncio

from llama_index.llms.openai import OpenAI

import ibidem
from ibidem.adapters.llama_index import IbidemAgent
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "b.py"})), Calls(("read", {"path": "a.py"}))]


def read(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"    {path}_{number} = compute({number * 7919 % 1000})" for number in range(60))


async def main() -> None:
    with Upstream([*SCRIPT, Says("Both files are fine.")]) as upstream:
        # With a real provider: leave out api_base and api_key (OPENAI_API_KEY is read),
        # llm = OpenAI("gpt-4.1")
        llm = OpenAI("gpt-4.1", api_base=f"{upstream.url}/v1", api_key="none")
        agent = IbidemAgent(tools=[read], llm=llm, system_prompt="You are careful.")
        print(await agent.run("Look at the files."))
        for number, seen in enumerate(upstream.seen, 1):
            before = len(ibidem.expand(seen.text, format="openai-chat"))
            print(f"request {number}: {len(seen.text):,} bytes on the wire, {before:,} before us")


asyncio.run(main())
