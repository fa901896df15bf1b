"""Haystack with Ibidem. No key is needed: it uses a mock provider on this machine.

pip install haystack-ai
"""

from typing import Annotated

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

import ibidem
from ibidem.adapters.httpx import Transport
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "b.py"})), Calls(("read", {"path": "a.py"}))]


@tool
def read(path: Annotated[str, "where it is"]) -> str:
    """Reads a file."""
    return "\n".join(f"    {path}_{number} = compute({number * 7919 % 1000})" for number in range(60))


def main() -> None:
    with Upstream([*SCRIPT, Says("Both files are fine.")]) as upstream:
        # With a real provider: leave out api_base_url and api_key (OPENAI_API_KEY is read),
        # model = OpenAIChatGenerator(model="gpt-5", http_client_kwargs={"transport": Transport()})
        key, url, through = Secret.from_token("none"), f"{upstream.url}/v1", {"transport": Transport()}
        model = OpenAIChatGenerator(key, "gpt-5", api_base_url=url, http_client_kwargs=through)
        agent = Agent(chat_generator=model, tools=[read])
        print(agent.run([ChatMessage.from_user("Look at the files.")])["last_message"].text)
        for number, seen in enumerate(upstream.seen, 1):
            before = len(ibidem.expand(seen.text, format="openai-chat"))
            print(f"request {number}: {len(seen.text):,} bytes on the wire, {before:,} before us")


main()
