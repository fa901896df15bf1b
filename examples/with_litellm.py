"""LiteLLM: a callback rewrites what `acompletion`, `aresponses`, a `Router` and its proxy send.

In sync code, `from ibidem.adapters.litellm import completion` takes the place of `litellm.completion`.
"""

import asyncio

import litellm

import ibidem
from ibidem.adapters.litellm import IbidemCallback
from ibidem.testing import Calls, Says, Upstream

CODE = "\n".join(f"def function_{number}(): return {number}" for number in range(100))
READ = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": READ}}]


async def main(url: str) -> None:
    litellm.callbacks.append(IbidemCallback())  # the only line for Ibidem
    messages = [{"role": "user", "content": "What does a.py do?"}]
    while True:
        # With a real provider, and its key in the environment:
        # answer = await litellm.acompletion(model="anthropic/claude-sonnet-4-5", messages=messages, tools=TOOLS)
        answer = await litellm.acompletion(
            model="openai/gpt-4.1", messages=messages, tools=TOOLS, api_base=f"{url}/v1", api_key="any"
        )
        messages.append(answer.choices[0].message)
        if not answer.choices[0].message.tool_calls:
            return print(answer.choices[0].message.content)
        calls = answer.choices[0].message.tool_calls
        messages.extend({"role": "tool", "tool_call_id": call.id, "content": CODE} for call in calls)


with Upstream([Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "a.py"})), Says("It counts.")]) as provider:
    asyncio.run(main(provider.url))
    body = provider.seen[-1].text
before = len(ibidem.expand(body, format="openai-chat"))
print(f"request {len(provider.seen)}: {len(body):,} bytes on the wire, {before:,} before us")
