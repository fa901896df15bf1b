"""Sessions of GitHub Copilot CLI: one event per line, `{type, data, id, parentId, timestamp}`.

Events of a sub-agent carry its id, in older files the call that started it; its first prompt is the argument of that
call where the log has no better one. The system prompt is logged again at every prompt, and is a new context only if it
differs. A compaction replaces what was there when it began; what came while it ran stays.

Not in the log: tools, thoughts as they were sent, input tokens (those of an answer and totals are kept), and what a
truncation removed. A rewind removes its events from the file, so none is seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from .builders import Segments
from .chat import Chat
from .log import Log, seconds
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
        yield Recording("copilot-cli", "openai-chat", thread.done(), name=name, project=reading.project)


class _CopilotThread:
    """One conversation. The system prompt, where it is told, is its first entry."""

    def __init__(self, prompt: str | None) -> None:
        self.segments = Segments()
        self.prompt = prompt
        self.at: float | None = None
        self.compacting: int | None = None
        """Entries that were there when a compaction began."""
        self.chat = Chat()
        self.chat.segment = self.segments.current

    @property
    def system(self) -> list[Json]:
        return [entry for entry in self.chat.history[:1] if entry["role"] == "system"]

    def instruct(self, content: str) -> None:
        prompt = {"role": "system", "content": content}
        if self.system != [prompt]:
            self._begin([prompt, *self.chat.history[len(self.system) :]], "rewind")

    def answer(self, data: Json, model: str, answered: float | None) -> None:
        if self.prompt is not None and all(entry["role"] != "user" for entry in self.chat.history):
            self.chat.say("user", self.prompt)
        calls = [
            {"id": call["toolCallId"], "name": call["name"], "arguments": call.get("arguments") or {}}
            for call in data.get("toolRequests") or ()
        ]
        self.chat.answer(data["content"] or None, calls, model=model, at=self.at, answered=answered)

    def compacted(self, summary: str | None) -> None:
        """Results of calls that were summarised are not sent on."""
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
        """What waits for results goes on waiting."""
        self.chat.segment = self.segments.begin(history, cause)

    def done(self) -> list[RecordedSegment]:
        self.chat.done()
        return self.segments.done()


class _CopilotReading:
    def __init__(self) -> None:
        self.threads = {"": _CopilotThread(None)}
        self.prompts: dict[str, str] = {}
        """What calls that start an agent told it."""
        self.project = ""
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
                self.project = self.project or (data.get("context") or {}).get("cwd") or ""
                self.model = data.get("selectedModel") or self.model
            case "session.model_change":
                self.model = data["newModel"]
            case "system.message":
                thread.instruct(data["content"])
            case "user.message" | "system.notification":
                thread.chat.say("user", data.get("transformedContent") or data["content"])
                thread.at = at
            case "assistant.message":
                thread.answer(data, data.get("model") or self.model, at)
                self._remember(data)
            case "tool.execution_complete":
                outcome = data.get("result") or data.get("error") or {}
                thread.chat.result(data["toolCallId"], outcome.get("content", outcome.get("message", "")))
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


READER = Reader("copilot-cli", knows, read)
