"""An agent that thinks, and goes on with what it is answered: for providers that sign what they think."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

from ibidem.testing import Answer, Calls, Seen, Thinks
from tests.support.proxied import Talk, dumped, text

MODEL = "claude-opus-4-6"
"""Its thinking may be revised over, as far as we know: only what its provider says to that counts."""


def thinks(seen: Seen) -> Answer:
    turn = len(seen.json["messages"]) // 2
    return Thinks(f"step {turn}", Calls(("Read", {"file_path": f"/src/{turn}.py"}), says=f"I look, {turn}."))


class Agent:
    """Sends all that was said, and goes on with what it is answered."""

    def __init__(self, first: str = "make it work", outputs: int = 4, lines: int = 30, **fields: Any) -> None:
        """Outputs of so few lines are never let go, only referred to."""
        rng = random.Random(first)
        self.outputs = [text(rng, lines) for _ in range(outputs)]
        self.body: dict[str, Any] = {"model": MODEL, "max_tokens": 99, "messages": [], **fields}
        self.body["messages"].append({"role": "user", "content": first})
        self.came: list[bytes] = []

    @property
    def request(self) -> bytes:
        return dumped(self.body)

    def ask(self, found: Talk, **headers: str) -> int:
        self.came.append(self.request)
        data = gzip.compress(self.request) if headers.get("content_encoding") == "gzip" else self.request
        status, answer = found.send("anthropic", data, **headers)
        if status == 200:
            self.hear(json.loads(answer)["content"])
        return status

    def hear(self, content: list[Any]) -> None:
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        turn = len(self.body["messages"]) // 2
        output = f"{self.outputs[turn % len(self.outputs)]}\n# seen at {turn}"
        results = [{"type": "tool_result", "tool_use_id": call, "content": output} for call in calls]
        self.body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


def history(body: bytes) -> list[Any]:
    found: list[Any] = json.loads(body)["messages"]
    return found
