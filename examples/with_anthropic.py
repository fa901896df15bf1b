"""Anthropic's SDK with Ibidem as a middleware, with a mock provider: the same file is read twice, and sent once."""

import anthropic

import ibidem
from ibidem.adapters.anthropic import middleware
from ibidem.testing import Calls, Says, Upstream

READ_APP, READ_TESTS = Calls(("read", {"path": "app.py"})), Calls(("read", {"path": "tests.py"}))
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def read(path):
    return "\n".join(f"{path}: value_{number} = compute({number})" for number in range(60))


with Upstream([READ_APP, READ_TESTS, READ_APP, Says("The file is as it was.")]) as provider:
    client = anthropic.Anthropic(base_url=provider.url, api_key="any", middleware=[middleware])
    # With a real provider, here Bedrock, whose requests are signed after they were rewritten:
    # client = anthropic.AnthropicBedrock(aws_region="us-east-1", middleware=[middleware])
    messages = [{"role": "user", "content": "Look at app.py, then at it again."}]
    while True:
        body = {"model": "claude-sonnet-5-5", "max_tokens": 1000, "messages": messages}
        message = client.messages.create(tools=[{"name": "read", "input_schema": SCHEMA}], **body)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            break
        messages.append({"role": "assistant", "content": message.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": read(**call.input)} for call in calls]
        messages.append({"role": "user", "content": results})
    print(message.content[0].text)

    for number, request in enumerate(provider.seen, 1):
        before = len(ibidem.expand(request.text, format="anthropic"))
        print(f"request {number}: {len(request.text):,} bytes on the wire, {before:,} before us")
