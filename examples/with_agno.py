"""Agno with Ibidem. No key is needed: it uses a mock provider on this machine.

pip install agno anthropic
"""

from agno.agent import Agent
from agno.models.anthropic import Claude
from anthropic import Anthropic, DefaultHttpxClient

import ibidem
from ibidem.adapters.httpx import Transport
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "b.py"})), Calls(("read", {"path": "a.py"}))]


def read(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"    {path}_{number} = compute({number * 7919 % 1000})" for number in range(60))


def main() -> None:
    with Upstream([*SCRIPT, Says("Both files are fine.")]) as upstream:
        # With a real provider: leave out base_url and api_key (ANTHROPIC_API_KEY is read),
        # client = Anthropic(http_client=DefaultHttpxClient(transport=Transport()))
        http = DefaultHttpxClient(transport=Transport())
        client = Anthropic(base_url=upstream.url, api_key="none", http_client=http)
        agent = Agent(model=Claude("claude-opus-4-5", client=client), tools=[read], telemetry=False)
        print(agent.run("Look at the files.").content)
        for number, seen in enumerate(upstream.seen, 1):
            before = len(ibidem.expand(seen.text, format="anthropic"))
            print(f"request {number}: {len(seen.text):,} bytes on the wire, {before:,} before us")


main()
