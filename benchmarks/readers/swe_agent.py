"""SWE-agent: a `.traj` file, one JSON object of `{trajectory, history, info}` and, later, `replay_config`.

`history` is the conversation. Agents that call functions log the calls and their ids; the others write the action into
the text, so here it becomes a `bash` call with an id that was made up, and the message after it the call's result. A
demonstration is part of the prompt: its answers are no requests. A file of several attempts has a session for each.

What the log does not tell: the tools, times, the usage of single requests (only totals), and what the history
processors made of old observations ("Old environment output: (n lines omitted)") before each request: the history
has them whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ibidem.recordings.chat_builder import ChatBuilder
from ibidem.recordings.log_file import Log
from ibidem.recordings.reader import Reader
from ibidem.recordings.recording import Json, Recording
from ibidem.recordings.titles import prompt_title

AGENT = "swe-agent"


def _knows(row: Json) -> bool:
    attempts = row.get("attempts")
    return _is_trajectory(row) or (isinstance(attempts, list) and any(_is_trajectory(each) for each in attempts))


def _is_trajectory(value: Any) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("trajectory"), list) and isinstance(value.get("history"), list)
    )


class _SweAgentRun:
    """One attempt at a task."""

    def __init__(self, model: str) -> None:
        self.chat = ChatBuilder()
        self._model = model
        self._made = 0

    def message(self, message: Json) -> None:
        role, content = message["role"], message.get("content")
        if role == "assistant" and not message.get("is_demo"):
            self._answer(message, content)
        elif role == "tool":
            self.chat.add_result(message["tool_call_ids"][0], content)
        elif role == "user" and self.chat.due_calls:
            self.chat.add_result(next(iter(self.chat.due_calls)), content)
        else:
            self.chat.add_message(role, message["content"])

    def _answer(self, message: Json, content: Any) -> None:
        calls = message.get("tool_calls")
        if not calls and message.get("action"):
            self._made += 1
            action = {"command": message["action"]}
            calls = [{"id": f"call_{self._made}", "name": "bash", "arguments": action}]
            content = message.get("thought")
        self.chat.add_response(content, calls, model=self._model)


def _config(row: Json) -> Json:
    """What the run was started with: an object, or the text of one."""
    found = row.get("replay_config") or {}
    return json.loads(found) if isinstance(found, str) else found


def _read(log: Log) -> Iterator[Recording]:
    for line, row in log.rows:
        if not _knows(row):
            continue
        model = project = ""
        with log.skip_bad_line(line):
            config = _config(row)
            project = str((config.get("problem_statement") or {}).get("id") or "")
            name = str(((config.get("agent") or {}).get("model") or {}).get("name") or "")
            model = "" if name in ("replay", "human", "human_thought") else name
        attempts = [each for each in row.get("attempts") or () if _is_trajectory(each)]
        for number, attempt in enumerate(attempts or [row], 1):
            run = _SweAgentRun(model)
            for message in attempt["history"]:
                with log.skip_bad_line(line):
                    run.message(message)
            name = f"attempt {number}" if len(attempts) > 1 else ""
            session = Recording(AGENT, "openai-chat", [run.chat.finish()], name=name, id=project, project=project)
            session.title = _title(attempt["history"])
            yield session


def _title(history: list[Any]) -> str:
    """A demonstration begins with a prompt too, of another task."""
    return prompt_title(each for each in history if isinstance(each, dict) and not each.get("is_demo"))


READER = Reader(AGENT, _knows, _read)
