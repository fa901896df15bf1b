"""A generated conversation of an agent at work: reads, greps and test logs of a made-up project, some of them again."""

from __future__ import annotations

import random
from typing import Any

WORDS = [
    "self",
    "value",
    "result",
    "index",
    "buffer",
    "request",
    "response",
    "session",
    "token",
    "parse",
    "render",
    "return",
    "yield",
    "async",
    "await",
    "config",
    "handler",
    "message",
    "content",
    "length",
    "offset",
    "cache",
    "prefix",
    "suffix",
    "segment",
    "marker",
    "digest",
    "encode",
    "decode",
    "stream",
    "chunk",
]


def line(rng: random.Random) -> str:
    """About 45 characters, indented like code, with the quotes and punctuation that JSON has to escape."""
    words = rng.choices(WORDS, k=rng.randint(2, 7))
    indent = "    " * rng.randint(0, 4)
    form = rng.choice(
        ('{0} = {1}("{2}")', "{0}.{1}({2})", "if {0} == {1}:  # {2}", "def {0}_{1}({2}):", "{0}: {1}, {2}")
    )
    return indent + form.format(words[0], words[1], " ".join(words[2:]) or "x")


def text(rng: random.Random, size: int) -> str:
    """Lines of `size` characters in all."""
    lines, length = [], 0
    while length < size:
        lines.append(line(rng))
        length += len(lines[-1]) + 1
    return "\n".join(lines)


def history(messages: int = 2000, size: int = 20_000_000, repeats: float = 0.2, seed: int = 7) -> dict[str, Any]:
    """An Anthropic request of that many messages and about that many bytes; a share of its results are repeats."""
    rng = random.Random(seed)
    exchanges = messages // 2
    each = size // exchanges
    seen: list[str] = []
    body: list[dict[str, Any]] = [{"role": "user", "content": "Make the tests pass."}]
    for number in range(exchanges):
        call = f"toolu_{number:024d}"
        if seen and rng.random() < repeats:
            output = rng.choice(seen)
        else:
            output = text(rng, rng.randint(each // 2, each * 3 // 2))
            seen.append(output)
        thought = {"type": "thinking", "thinking": text(rng, 200), "signature": "c2lnbmF0dXJl"}
        say = {"type": "text", "text": f"Next I look  at part {number}.\n\n\nIt may matter."}
        use = {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": f"/src/part_{number}.py"}}
        body.append({"role": "assistant", "content": [thought, say, use]})
        body.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": output}]})
    body.append({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
    body.append({"role": "user", "content": "And the documentation?"})
    return {"model": "claude-sonnet-4-5", "max_tokens": 4096, "system": "You are an agent.", "messages": body}
