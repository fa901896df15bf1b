"""Reader for GitHub Copilot CLI: one event per line, `{type, data, id, parentId, timestamp}`.

- Events of a subagent have its id, in older files the id of the call that started it. If the log does not have the
  subagent's first prompt, the prompt argument of that call is used.
- The system prompt is logged at every user prompt. It starts a new segment only if it changed.
- A compaction replaces the entries that existed when it started. Later entries stay.

Not in the log: tools, thinking as it was sent, the wording of errors, text removed by truncation, and in older releases
input tokens. A rewind deletes its events from the file, so it is not visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..billing.usage import Usage
from ..model import string
from .builders import Segments
from .chat import Chat
from .counts import count
from .log import Log, seconds
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedSegment, Recording


def knows(row: Json) -> bool:
    match row:
        case {"type": str(kind), "data": dict(), "timestamp": str()}:
            return "." in kind and "parentId" in row
    return False


def read(log: Log) -> Iterable[Recording]:
    reading = _CopilotReading()
    for line, row in log.rows:
        with log.tolerating(line):
            reading.take(row)
    for name, thread in reading.threads.items():
        session = Recording("copilot-cli", "openai-chat", thread.done(), name=name, project=reading.project)
        session.id, session.title = reading.id, reading.title if not name else ""
        yield session


class _CopilotThread:
    """One conversation. If the log has a system prompt, it is the first entry of the history."""

    def __init__(self, prompt: str | None) -> None:
        self.segments = Segments()
        self.prompt = prompt
        self.prompts: dict[str, Json] = {}
        """Each distinct system prompt, as one object."""
        self.at: float | None = None
        self.compacting: int | None = None
        """Length of the history when the running compaction started."""
        self.results: dict[str, str] = {}
        """Results of the last response's calls. They are sent in the order of the calls."""
        self.order: list[str] = []
        self.chat = Chat()
        self.chat.segment = self.segments.current

    @property
    def system(self) -> list[Json]:
        return [entry for entry in self.chat.history[:1] if entry["role"] == "system"]

    def instruct(self, content: str) -> None:
        prompt = self.prompts.setdefault(repr(content), {"role": "system", "content": content})
        if self.system != [prompt]:
            self._begin([prompt, *self.chat.history[len(self.system) :]], "rewind")

    def answer(self, data: Json, model: str, answered: float | None, usage: Usage | None) -> None:
        if self.prompt is not None and all(entry["role"] != "user" for entry in self.chat.history):
            self.chat.say("user", self.prompt)
        calls = [_call(call) for call in data.get("toolRequests") or ()]
        self._return()
        self.chat.answer(data["content"] or None, calls, model=model, at=self.at, answered=answered, usage=usage)
        self.order = [call["id"] for call in calls]

    def result(self, call: str, content: str) -> None:
        self.results[call] = content
        if self.chat.due <= self.results.keys():
            self._return()

    def _return(self) -> None:
        """Pass the available results to the builder, in the order of their calls."""
        for call in [*(call for call in self.order if call in self.results), *self.results]:
            if call in self.results:
                self.chat.result(call, self.results.pop(call))

    def compacted(self, summary: str | None) -> None:
        """Replace the history by a summary. Drop later results whose calls were summarized."""
        kept = [] if self.compacting is None else self.chat.history[max(self.compacting, len(self.system)) :]
        self.compacting = None
        while kept and kept[0]["role"] == "tool":
            kept.pop(0)
        told = [{"role": "user", "content": summary}] if summary else []
        self._begin([*self.system, *told, *kept], "compaction")

    def cleared(self, message: str | None) -> None:
        self.chat.done()
        self._begin(self.system, "rewind")
        if message:
            self.chat.say("user", message)

    def _begin(self, history: list[Json], cause: Cause) -> None:
        """Start a segment. Messages that wait for results keep waiting."""
        self.chat.segment = self.segments.begin(history, cause)

    def done(self) -> list[RecordedSegment]:
        self._return()
        self.chat.done()
        return self.segments.done()


class _CopilotReading:
    def __init__(self) -> None:
        self.threads = {"": _CopilotThread(None)}
        self.prompts: dict[str, str] = {}
        """Id of a call that starts a subagent → its prompt argument."""
        self.usages: dict[str, Usage] = {}
        """Usage by the provider's id of the response."""
        self.project = self.id = self.title = ""
        self.model = ""

    def take(self, row: Json) -> None:
        data, at = row.get("data"), seconds(row.get("timestamp"))
        if not isinstance(data, dict):
            if str(row.get("type")).startswith(("user.", "assistant.", "tool.")):
                raise ValueError("an event without data")
            return
        key = row.get("agentId") or data.get("parentToolCallId") or ""
        if key not in self.threads:
            self.threads[key] = _CopilotThread(self.prompts.get(key))
        self._event(self.threads[key], row["type"], data, at)

    def _event(self, thread: _CopilotThread, kind: str, data: Json, at: float | None) -> None:
        match kind:
            case "session.start" | "session.resume":
                self.project = self.project or project_of(string((data.get("context") or {}).get("cwd")))
                self.id = self.id or string(data.get("sessionId"))
                self.model = data.get("selectedModel") or self.model
            case "session.title_changed":
                self.title = string(data["title"])
            case "session.model_change":
                self.model = data["newModel"]
            case "system.message":
                thread.instruct(data["content"])
            case "user.message" | "system.notification":
                thread.chat.say("user", data.get("transformedContent") or data["content"])
                thread.at = at
            case "assistant.message":
                usage = self.usages.get(str(data.get("apiCallId")))
                thread.answer(data, data.get("model") or self.model, at, usage)
                self._remember(data)
            case "session.usage_record":
                self.usages[str(data["usage"].get("apiCallId"))] = _usage(data["usage"])
            case "tool.execution_complete":
                outcome = data.get("result") or data.get("error") or {}
                thread.result(data["toolCallId"], outcome.get("content", outcome.get("message", "")))
                thread.at = at
            case "session.compaction_start":
                thread.compacting = len(thread.chat.history)
            case "session.compaction_complete" if data.get("success"):
                thread.compacted(data.get("summaryContent"))
                thread.at = at
            case "session.context_cleared":
                thread.cleared(data.get("initialMessage"))
                thread.at = at

    def _remember(self, data: Json) -> None:
        for call in data.get("toolRequests") or ():
            match call:
                case {"toolCallId": str(name), "arguments": {"prompt": str(prompt)}}:
                    self.prompts[name] = prompt


def _call(told: Json) -> Json:
    """Return a call in wire format: arguments as compact JSON, or as text for a custom tool."""
    name, arguments = told["name"], told.get("arguments") or {}
    if told.get("type") == "custom" and isinstance(arguments, str):
        return {"id": told["toolCallId"], "type": "custom", "custom": {"name": name, "input": arguments}}
    written = arguments
    if not isinstance(arguments, str):
        written = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return {"id": told["toolCallId"], "name": name, "arguments": written}


def _usage(found: Json) -> Usage:
    """Convert usage. For every provider, `inputTokens` includes cache reads and writes."""
    total, read, written = (count(found.get(key)) for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
    output, reasoning = count(found.get("outputTokens")), count(found.get("reasoningTokens"))
    return Usage(max(0, total - read - written), read, written, output=output, reasoning=reasoning)


READER = Reader("copilot-cli", knows, read)
