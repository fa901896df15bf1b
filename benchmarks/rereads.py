"""A generated conversation that reads the same files again and again, as coding agents do.

Files of 50 to 700 lines of a made-up project, read whole or in ranges that overlap what was read before, with their
lines numbered and the numbers padded; now and then one of them is edited in between.
"""

from __future__ import annotations

import random
from typing import Any

from .history import line

FILES = 40
EDITED, WHOLE = 0.15, 0.4
"""Shares of the steps that edit a file, and of the reads that show all of it."""


def numbered(lines: list[str], first: int) -> str:
    """As Claude Code's Read prints them."""
    return "\n".join(f"{number:6}\t{each}" for number, each in enumerate(lines, first))


def _read(rng: random.Random, path: str, lines: list[str]) -> tuple[dict[str, Any], str]:
    if rng.random() < WHOLE:
        return {"file_path": path}, numbered(lines, 1)
    first = rng.randrange(max(1, len(lines) - 40))
    count = rng.randint(40, 300)
    return {"file_path": path, "offset": first + 1, "limit": count}, numbered(lines[first : first + count], first + 1)


def _edit(rng: random.Random, path: str, lines: list[str]) -> tuple[dict[str, Any], str]:
    """Some lines become others, and the tool shows what stands around them."""
    at = rng.randrange(len(lines))
    old, new = lines[at : at + rng.randint(1, 4)], [line(rng) for _ in range(rng.randint(1, 5))]
    lines[at : at + len(old)] = new
    first = max(0, at - 4)
    given = {"file_path": path, "old_string": "\n".join(old), "new_string": "\n".join(new)}
    around = numbered(lines[first : at + len(new) + 4], first + 1)
    return given, f"The file {path} has been updated. Here's the result of running `cat -n` on a snippet:\n{around}"


def rereads(size: int = 3_000_000, files: int = FILES, seed: int = 5) -> dict[str, Any]:
    """An Anthropic request whose results have about that many characters."""
    rng = random.Random(seed)
    project = {
        f"/src/package/part_{number}.py": [line(rng) for _ in range(rng.randint(50, 700))] for number in range(files)
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Make the tests pass."}]
    written = number = 0
    while written < size:
        path = rng.choice([*project])
        step, name = (_edit, "Edit") if rng.random() < EDITED else (_read, "Read")
        given, output = step(rng, path, project[path])
        call = f"toolu_{number:024d}"
        use = {"type": "tool_use", "id": call, "name": name, "input": given}
        say = {"type": "text", "text": f"Next I look at {path}."}
        messages.append({"role": "assistant", "content": [say, use]})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": output}]})
        written += len(output)
        number += 1
    return {"model": "claude-sonnet-4-5", "max_tokens": 4096, "system": "You are an agent.", "messages": messages}
