"""A LangChain agent that reads a file twice: python examples/with_langchain.py"""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

import ibidem
from ibidem.adapters.langchain import IbidemMiddleware
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [Calls(("read", {"path": "app.py"})), Calls(("read", {"path": "app.py"})), Says("It has 90 functions.")]


def read(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"def function_{number}(): return {number * 7919}" for number in range(90))


with Upstream(SCRIPT) as upstream:
    # With a real provider: model = "openai:gpt-5", and a key in OPENAI_API_KEY.
    # Any other works as well: "anthropic:claude-sonnet-4-5", "google_genai:gemini-2.5-pro", …
    model = ChatOpenAI(model="gpt-5", base_url=f"{upstream.url}/v1", api_key="none")
    agent = create_agent(model, [read], middleware=[IbidemMiddleware()], checkpointer=InMemorySaver())
    asked = {"messages": [{"role": "user", "content": "How many functions are there?"}]}
    answer = agent.invoke(asked, {"configurable": {"thread_id": "one"}})
    print(answer["messages"][-1].text)
    body = upstream.seen[-1].text
    before = ibidem.expand(body, format="openai-chat")
    print(f"request {len(upstream.seen)}: {len(body):,} bytes on the wire, {len(before):,} before us")
