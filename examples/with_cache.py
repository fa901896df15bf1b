"""An agent with Anthropic's SDK without cache breakpoints, and with cache="auto": prints the cache reads of both.

It uses a mock provider whose cache works like Anthropic's: no key, no network. With a real provider:
`client = anthropic.Anthropic(http_client=anthropic.DefaultHttpxClient(transport=Transport(cache="auto")))`.
"""

import anthropic

from ibidem.adapters.httpx import Transport
from ibidem.testing import Calls, Says, Upstream

RULES = " ".join(f"Rule {number}: read a file before you judge it." for number in range(400))
TOOL = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object"}}
SCRIPT = [*(Calls(("read", {"path": f"{name}.py"})) for name in "abcde"), Says("All is well.")]


def run(cache):
    fresh = written = read = 0
    with Upstream(SCRIPT) as provider:
        http = anthropic.DefaultHttpxClient(transport=Transport(cache=cache))
        client = anthropic.Anthropic(base_url=provider.url, api_key="any", http_client=http)
        messages = [{"role": "user", "content": "Look at all files."}]
        while True:
            head = {"model": "claude-opus-5-5", "max_tokens": 999, "system": RULES, "tools": [TOOL]}
            answer = client.messages.create(**head, messages=messages)
            fresh += answer.usage.input_tokens
            written += answer.usage.cache_creation_input_tokens
            read += answer.usage.cache_read_input_tokens
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                break
            text = "\n".join(f"value_{number} = {len(messages)}" for number in range(100))
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls]
            messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    print(f"cache={cache}: {fresh:,} tokens at the full price, {written:,} written, {read:,} read from the cache")


run("off")
run("auto")
