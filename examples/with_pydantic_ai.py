"""Pydantic AI: the same file is read twice and sent once. Needs: pip install 'pydantic-ai-slim[anthropic]'"""

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

import ibidem
from ibidem.adapters.pydantic_ai import IbidemCapability
from ibidem.testing import Calls, Says, Upstream

READS = Calls(("read", {"path": "app.py"}))

with Upstream([READS, READS, Says("It has sixty functions.")]) as provider:
    model = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(api_key="any", base_url=provider.url))
    # With a real provider, and ANTHROPIC_API_KEY set:
    # model = "anthropic:claude-sonnet-4-5"
    agent = Agent(model, capabilities=[IbidemCapability()])

    @agent.tool_plain
    def read(path: str) -> str:
        """Reads a file."""
        return "\n".join(f"def function_{number}(): ...  # {path}" for number in range(60))

    print(agent.run_sync("What is in app.py?").output)

    sent = provider.seen[-1].text
    before = ibidem.expand(sent, format="anthropic")
    print(f"request {len(provider.seen)}: {len(sent):,} bytes on the wire, {len(before):,} before us")
