"""Sessions of an agent that reads files, edits them and reads them again: made up, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ibidem import formats
from ibidem.testing import Answer, Calls, Says, Seen, Turn, build

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
ENDINGS = {
    "anthropic": "",
    "openai-chat": "/v1",
    "openai-responses": "/v1",
    "gemini": "",
}
"""What the base of an API has behind its host."""
LINES = 36
OUTPUT = 40
"""Tokens of an answer, about."""


class Agent:
    """Two files in turn: read one, edit it, look around. All that it does is known beforehand."""

    def __init__(self, name: str, rounds: int = 6) -> None:
        self.name = name
        self.turns: list[Turn] = [Turn("user", f"Please tidy up the project {name}.")]
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}
        self.answers: list[Answer] = []
        files = {file: _content(f"{name}/{file}") for file in ("one.py", "two.py")}
        for number in range(rounds):
            file = ("one.py", "two.py")[number % 2]
            path = f"/home/me/{name}/{file}"
            self._do("Read", {"file_path": path}, _numbered(files[file]))
            old = files[file][number * 7 % LINES]
            files[file][number * 7 % LINES] = new = f"{old}  # {number}"
            given = {"file_path": path, "old_string": old, "new_string": new}
            self._do("Edit", given, "The file was changed.")
            self._do("Bash", {"command": f"cd /home/me && pytest tests/test_{number}.py -q"}, f"{number} passed")
        self.turns.append(Turn("assistant", "All is tidy."))
        self.answers.append(Says("All is tidy."))

    def _do(self, tool: str, given: dict[str, Any], result: str) -> None:
        ident = f"c{len(self.calls)}"
        self.calls[ident] = (tool, given)
        self.turns += [Turn("assistant", calls=[ident]), Turn("tool", results=[(ident, result)])]
        self.answers.append(Calls((tool, given)))

    def request(self, format: str) -> dict[str, Any]:
        body: dict[str, Any] = build(self.turns, format, self.calls)
        return body

    def bodies(self, format: str, **fields: Any) -> list[dict[str, Any]]:
        """The requests that it sent, and one more, which tells what was answered to the last."""
        whole = {**self.request(format), "model": MODELS[format], **fields}
        key = formats.format_named(format).history_key
        history = whole[key]
        read = formats.format_named(format).read_message
        made = [read(at, entry).role == "assistant" for at, entry in enumerate(history)]
        lengths = [at for at in range(1, len(history)) if made[at] and not made[at - 1]]
        return [{**whole, key: history[:length]} for length in [*lengths, len(history)]]

    def log(self, format: str, **fields: Any) -> bytes:
        """Each request with the size of its answer; that of its own is told too small to go by."""
        usage = {"input_tokens": 1, "output_tokens": OUTPUT}
        rows = [{"request": body, "usage": usage} for body in self.bodies(format, **fields)]
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _content(name: str) -> list[str]:
    return [f"value_{n} = compute({n * 7 % 13}, offset={n * n % 97})  # of {name}" for n in range(LINES)]


def _numbered(lines: list[str]) -> str:
    return "\n".join(f"{number:6}→{line}" for number, line in enumerate(lines, 1))


def write_logs(folder: Path, agents: list[Agent], format: str = "anthropic", **fields: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for agent in agents:
        (folder / f"{agent.name}.jsonl").write_bytes(agent.log(format, **fields))
    return folder


def model_turns(body: Any) -> int:
    """How often the model was heard before."""
    key = next(name for name in ("messages", "input", "contents") if name in body)
    format_ = {"input": "openai-responses", "contents": "gemini"}.get(key) or (
        "anthropic" if "max_tokens" in body else "openai-chat"
    )
    read = formats.format_named(format_).read_message
    made = [read(at, entry).role == "assistant" for at, entry in enumerate(body[key])]
    return sum(now and not before for before, now in zip([False, *made], made, strict=False))


def as_recorded(agents: list[Agent]) -> Callable[[Seen], Answer]:
    """A model that does again what was done then."""

    def answer(seen: Seen) -> Answer:
        agent = next(each for each in agents if f"project {each.name}." in seen.text.decode())
        return agent.answers[model_turns(seen.json)]

    return answer


TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": f"{name} something. " * 40, "input_schema": {"type": "object"}}
    for name in ("Read", "Edit", "Bash", "Grep")
]
"""Enough of them to fill what stands before the history."""
