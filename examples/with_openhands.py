"""OpenHands SDK: `IbidemLLM` in place of `LLM`. Agents, tools and conversations need no change."""

from openhands.sdk import Agent, Conversation, Tool
from openhands.sdk.conversation.response_utils import get_agent_final_response
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor, register_tool

import ibidem
from ibidem.adapters.openhands import IbidemLLM
from ibidem.testing import Calls, Says, Upstream


class ReadAction(Action):
    path: str


class ReadObservation(Observation): ...


class Reader(ToolExecutor):
    def __call__(self, action, conversation=None):
        return ReadObservation.from_text("\n".join(f"def function_{number}(): ..." for number in range(200)))


class ReadTool(ToolDefinition[ReadAction, ReadObservation]):
    @classmethod
    def create(cls, conv_state=None):
        return [cls(description="Reads.", action_type=ReadAction, observation_type=ReadObservation, executor=Reader())]


register_tool("ReadTool", ReadTool)
with Upstream([Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "a.py"})), Says("It counts.")]) as provider:
    # With a real provider:
    # llm = IbidemLLM(model="anthropic/claude-sonnet-4-5", api_key=os.environ["ANTHROPIC_API_KEY"])
    llm = IbidemLLM(model="openai/gpt-4.1", base_url=f"{provider.url}/v1", api_key="any", api_mode="chat")
    conversation = Conversation(Agent(llm=llm, tools=[Tool(name="ReadTool")]), workspace=".", visualizer=None)
    conversation.send_message("What does a.py do?")
    conversation.run()
    body, before = provider.seen[-1].text, len(ibidem.expand(provider.seen[-1].text, format="openai-chat"))
    print(get_agent_final_response(conversation.state.events))
    print(f"request {len(provider.seen)}: {len(body):,} bytes on the wire, {before:,} before us")
