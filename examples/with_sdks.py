"""Ibidem below the providers' own SDKs, with a mock provider: no key, no network.

With a real provider: `client = anthropic.Anthropic(http_client=anthropic.DefaultHttpxClient(transport=Transport()))`,
and the same with openai.OpenAI; for a client that exists: `ibidem.adapters.httpx.install(client)`.
"""

import anthropic

import ibidem
from ibidem.adapters.httpx import Transport
from ibidem.testing import Calls, Says, Upstream

TEXT = "\n".join(f"def step_{number}(value): return value * {number}" for number in range(60))
TOOL = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object"}}
SCRIPT = [Calls(("read", {"path": "a.py"})), Calls(("read", {"path": "a.py"})), Says("It multiplies.")]


def main() -> None:
    with Upstream(SCRIPT) as provider:
        http = anthropic.DefaultHttpxClient(transport=Transport(on_usage=lambda told: print(told.result, told.usage)))
        client = anthropic.Anthropic(base_url=provider.url, api_key="any", http_client=http)
        messages = [{"role": "user", "content": "What does a.py do?"}]
        while True:
            answer = client.messages.create(model="claude-test", max_tokens=999, tools=[TOOL], messages=messages)
            messages.append({"role": "assistant", "content": answer.content})
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                break
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": TEXT} for call in calls]
            messages.append({"role": "user", "content": results})
        print(answer.content[0].text)
        body = provider.seen[-1].text.decode()
        whole = ibidem.expand(body, format="anthropic")
        print(f"request {len(provider.seen)}: {len(body):,} bytes on the wire, {len(whole):,} before us")


main()
