"""Strands Agents with Ibidem, with a mock provider: the same file is read twice, and sent once."""

from strands import Agent, tool
from strands.middleware import InvokeModelStage
from strands.models.openai import OpenAIModel

import ibidem
from ibidem.adapters.strands import middleware
from ibidem.testing import Calls, Says, Upstream

SCRIPT = [
    Calls(("read", {"path": "app.py"})),
    Calls(("read", {"path": "tests.py"})),
    Calls(("read", {"path": "app.py"})),
    Says("The file is as it was."),
]


@tool
def read(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}: value_{number} = compute({number})" for number in range(60))


with Upstream(SCRIPT) as provider:
    model = OpenAIModel(client_args={"base_url": f"{provider.url}/v1", "api_key": "any"}, model_id="gpt-5.1")
    # With a real provider, here Bedrock by boto3, and AWS credentials in the environment:
    # model = BedrockModel(model_id="global.anthropic.claude-sonnet-4-6")
    agent = Agent(model=model, tools=[read], callback_handler=None)
    agent.add_middleware(InvokeModelStage, middleware)
    print(agent("Look at app.py, then at it again."))

    for number, request in enumerate(provider.seen, 1):
        before = len(ibidem.expand(request.text, format="openai-chat"))
        print(f"request {number}: {len(request.text):,} bytes on the wire, {before:,} before us")
