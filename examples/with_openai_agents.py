"""OpenAI Agents SDK: the same file is read twice and sent once. Needs: pip install openai-agents"""

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

import ibidem
from ibidem.adapters.openai_agents import input_filter
from ibidem.testing import Calls, Says, Upstream

READS = Calls(("read", {"path": "app.py"}))


@function_tool
def read(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"def function_{number}(): ...  # {path}" for number in range(60))


with Upstream([READS, READS, Says("It has sixty functions.")]) as provider:
    model = OpenAIResponsesModel("gpt-5.4", AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="any"))
    # With a real provider, and OPENAI_API_KEY set:
    # model = "gpt-5.4"
    agent = Agent("reader", instructions="You read files.", model=model, tools=[read])
    config = RunConfig(call_model_input_filter=input_filter, tracing_disabled=True)
    print(Runner.run_sync(agent, "What is in app.py?", run_config=config).final_output)

    sent = provider.seen[-1].text
    before = ibidem.expand(sent, format="openai-responses")
    print(f"request {len(provider.seen)}: {len(sent):,} bytes on the wire, {len(before):,} before us")
