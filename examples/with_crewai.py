"""A CrewAI agent that reads a file twice: python examples/with_crewai.py"""

from crewai import LLM, Agent
from crewai.tools import tool

import ibidem
from ibidem.adapters.crewai import IbidemInterceptor
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [Calls(("read", {"path": "app.py"})), Calls(("read", {"path": "app.py"})), Says("It has 90 functions.")]


@tool("read")
def read(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"def function_{number}(): return {number * 7919}" for number in range(90))


with Upstream(SCRIPT) as upstream:
    # With a real provider: LLM(model="openai/gpt-5", interceptor=IbidemInterceptor()), and a key in OPENAI_API_KEY.
    # Or "anthropic/claude-sonnet-4-5", with pip install 'crewai[anthropic]' and a key in ANTHROPIC_API_KEY.
    llm = LLM(model="openai/gpt-5", base_url=f"{upstream.url}/v1", api_key="none", interceptor=IbidemInterceptor())
    agent = Agent(role="reader", goal="to read files", backstory="It reads.", llm=llm, tools=[read])
    print(agent.kickoff("How many functions are there?").raw)
    body = upstream.seen[-1].text
    before = ibidem.expand(body, format="openai-chat")
    print(f"request {len(upstream.seen)}: {len(body):,} bytes on the wire, {len(before):,} before us")
