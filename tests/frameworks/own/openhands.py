"""The tool of the contract for OpenHands, and what is true of conversations that are kept.

OpenHands reads its tools back from what it kept, by the names of their classes, so these stand in a module.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from openhands.sdk import Agent, Conversation, Tool
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor, register_tool

from ibidem.adapters.openhands import IbidemLLM
from ibidem.testing import Calls, Says, Upstream, by_turn
from tests.frameworks.framework import DESCRIPTION, KEY

READERS: dict[str, Callable[[str], str]] = {}
"""What the tool of each run does: OpenHands makes tools from their names and plain settings."""


class ReadAction(Action):
    path: str


class ReadObservation(Observation):
    pass


class Reader(ToolExecutor):
    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read

    def __call__(self, action: Any, conversation: Any = None) -> Any:
        return ReadObservation.from_text(self._read(action.path))


class ReadTool(ToolDefinition[ReadAction, ReadObservation]):
    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[Any]:
        made = {"action_type": ReadAction, "observation_type": ReadObservation}
        return [cls(description=DESCRIPTION, executor=Reader(READERS[params["reader"]]), **made)]


register_tool("ReadTool", ReadTool)


def tool(reader: str, read: Callable[[str], str]) -> Tool:
    READERS[reader] = read
    return Tool(name="ReadTool", params={"reader": reader})


def resumed() -> None:
    """A conversation that is kept in files, forked, and taken up again."""
    text = "\n".join(f"def function_{number}(): return {number * number}" for number in range(100))
    script = [Calls(("read", {"path": "a.py"}))] * 2 + [Says("Said.")]
    number = uuid4()

    def begin(url: str, folder: str) -> Any:
        llm = IbidemLLM(model="openai/gpt-4.1", base_url=f"{url}/v1", api_key=KEY, api_mode="chat", usage_id="agent")
        assert llm.model_copy(deep=True)._ibidem_seat is llm._ibidem_rewriter
        agent = Agent(llm=llm, tools=[tool("resumed", lambda path: text)], include_default_tools=[])
        kept = {"persistence_dir": folder, "conversation_id": number, "delete_on_close": False}
        return Conversation(agent=agent, workspace=folder, visualizer=None, stuck_detection=False, **kept)

    with Upstream(by_turn(script)) as provider, tempfile.TemporaryDirectory() as folder:
        first = begin(provider.url, folder)
        first.send_message("Look.")
        first.run()
        fork = first.fork()  # made from what is kept of the agent, in which an LLM is of no special class
        fork.switch_llm(first.agent.llm.model_copy())
        assert isinstance(fork.agent.llm, IbidemLLM)
        fork.close()
        first.close()
        assert not any(b"[ibidem " in path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
        later = begin(provider.url, folder)
        assert isinstance(later.agent.llm, IbidemLLM)
        later.send_message("Look again.")
        later.run()
        later.close()
        before, after = (json.loads(seen.text)["messages"] for seen in provider.seen[-2:])
    assert "[ibidem " in json.dumps(before)
    assert after[: len(before)] == before, "it does not begin as it did before it was taken up again"
