"""deepagents: LangChain agents with files, plans and sub-agents of their own, and so with the same middleware."""

from __future__ import annotations

from typing import Any, ClassVar

from .framework import OwnCaching, Task
from .langchain import LangChain, model, tool


class DeepAgents(LangChain):
    name = "deepagents"
    package = "deepagents"
    requires = ("deepagents>=0.7", "langchain-openai", "langchain-anthropic", "langchain-google-genai")
    example = ""
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("tools 5m, system 5m, request 5m", "tools 5m, system 5m, request 5m"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    left_out: ClassVar[dict[str, str]] = {"speed": "deepagents sums up a conversation of that length"}

    def agent(self, task: Task) -> Any:
        from deepagents import create_deep_agent
        from langchain.agents.middleware import ToolRetryMiddleware
        from langgraph.checkpoint.memory import InMemorySaver

        told = ToolRetryMiddleware(max_retries=0, on_failure="continue")
        ours = [] if task.adapter is None else [task.adapter]
        return create_deep_agent(
            model(task),
            [tool(task)],
            system_prompt=f"Be brief.{task.system}",
            middleware=[told, *ours],
            checkpointer=InMemorySaver(),
        )


FRAMEWORK = DeepAgents()
