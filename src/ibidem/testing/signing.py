"""A provider that signs thinking against all that was sent before it, and refuses what differs from that later.

>>> with Upstream(Signing(lambda _: Thinks("hm", Calls(("Read", {"file_path": "a.py"}))))) as provider:
...     client = anthropic.Anthropic(base_url=provider.url, api_key="any")

Newer models of Anthropic do that. Cache marks are no part of the comparison.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .answers import Answer, Fails, Thought
from .seen import Seen

REFUSAL = "thinking blocks were made for another beginning of this conversation"


class Signing:
    """A script around another one. `refused` counts what did not fit."""

    def __init__(self, script: Callable[[Seen], Answer]) -> None:
        self._script = script
        self.refused = 0

    def __call__(self, seen: Seen) -> Answer:
        body = seen.json
        if not _fits(body):
            self.refused += 1
            return Fails(400, message=REFUSAL)
        answer = self._script(seen)
        signature = _signature(body, body["messages"])
        signed = [part._replace(signature=signature) if isinstance(part, Thought) else part for part in answer.parts]
        return replace(answer, parts=tuple(signed))


def _fits(body: Mapping[str, Any]) -> bool:
    messages = body["messages"]
    for place, message in enumerate(messages):
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        for block in blocks:
            if block.get("type") == "thinking" and block.get("signature") != _signature(body, messages[:place]):
                return False
    return True


def _signature(body: Mapping[str, Any], before: list[Any]) -> str:
    whole = _unmarked([body.get("tools"), body.get("system"), before])
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(inside) for key, inside in value.items() if key != "cache_control"}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value
