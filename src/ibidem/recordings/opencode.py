"""Reader for OpenCode, in the format of `opencode export`: `{info, messages: [{info, parts}]}`.

- A response has one or more steps, and each step is one request. A part has both a call and its result.
- A pruned result stays in the log. From the time in the part on, a note was sent instead.
- A compaction is a user message whose response is marked as a summary. If the response is complete, a new context
  starts with both. Older messages that stay (`tail_start_id`) follow them.
- A failed response is not sent in later requests, unless the user stopped it and it has content.
- Thinking is sent as thinking to the model that wrote it, and as text to another model. The provider metadata of parts
  shows the API.

Not in the log: the system prompt, the tools, the prompt for a summary (so that request is omitted), reminders of plan
mode, and messages that the user reverted. Files other than images are omitted. A subagent has its own session and its
own export.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..billing.usage import Usage
from ..model import string
from .builders import ANTHROPIC, BUILDERS, CHAT, RESPONSES, Builder, image, text
from .log import UNUSABLE, Log, seconds
from .projects import project_of
from .reader import Reader
from .recording import Json, RecordedRequest, Recording

CLEARED_RESULT = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
MEDIA = "Attached media from tool result:"
PART_SENTENCES = {"compaction": "What did we do so far?", "subtask": "The following tool was executed by the user"}
"""Types of parts that are sent as a fixed sentence."""
NAMELESS = ("New session - ", "Child session - ")
"""Prefixes of the provisional title of a new session."""


def knows(row: Json) -> bool:
    return _is_export(row) and ("directory" in row["info"] or any("parts" in one for one in row["messages"][:1]))


def _is_export(row: Json) -> bool:
    match row:
        case {"info": {"id": str()}, "messages": list(messages)}:
            return all(isinstance(one, dict) for one in messages[:1])
    return False


def read(log: Log) -> Iterable[Recording]:
    exports = [(line, row) for line, row in log.rows if _is_export(row)]
    for line, row in exports:
        yield _session(log, line, row, len(exports) > 1)


def _session(log: Log, line: int, row: Json, several: bool) -> Recording:
    reading = _OpenCodeReading(row["messages"])
    for number, message in enumerate(row["messages"], 1):
        with log.tolerating(line if several else number):
            reading.take(message)
    reading.turns.done()
    info = row["info"]
    name = info["id"] if several else ""
    project = info.get("directory") or reading.folder
    title = string(info.get("title"))
    session = Recording("opencode", reading.format, reading.turns.segments.done(), name=name, id=info["id"])
    session.title, session.project = "" if title.startswith(NAMELESS) else title, project_of(string(project))
    return session


class _OpenCodeReading:
    def __init__(self, messages: list[Any]) -> None:
        self.format = _format(messages)
        self.turns = BUILDERS[self.format]()
        self.summarised = set(_summarised(messages))
        self.earlier: list[Json] = []
        self.context: list[Json] = []
        """Log messages in the current context, in the order in which they are sent."""
        self._again: dict[str, tuple[Builder, int]] = {}
        """By model: builder with the context for it, and the number of messages in that builder."""
        self.model: tuple[Any, Any] = ("", "")
        self.pruned: dict[str, float] = {}
        """Call id → time at which its result is cleared. Calls that are already cleared are removed."""
        self.now: float | None = None
        self.at: float | None = None
        self.folder = ""

    def take(self, message: Json) -> None:
        info = message["info"]
        asked = (info.get("providerID"), info.get("modelID"))
        if info["role"] == "assistant" and asked != self.model:
            self.model = asked
            self._tell_again()
        self._say(message, told=True)
        self.earlier.append(message)
        if info.get("summary") and info.get("parentID") in self.summarised:
            self._keep_tail(info["parentID"])

    def _tell_again(self) -> None:
        """Rebuild the context for another model, which gets thinking as text. Only new messages are converted."""
        turns, context, at = self.turns, self.context, self.at
        again, number = self._again.get(str(self.model)) or (BUILDERS[self.format](), 0)
        self.turns, self.context = again, []
        for message in context[number:]:
            try:
                self._say(message, told=False)
            except UNUSABLE:
                continue  # already reported when it was read
        self._again[str(self.model)] = again, len(context)
        turns.restart(again.done(), "rewind")
        again.history[:] = turns.history  # equal values, but the objects that segments share
        self.turns, self.context, self.at = turns, context, at

    def _say(self, message: Json, *, told: bool) -> None:
        info, parts = message["info"], message["parts"]
        if info["role"] == "user":
            self._user(info, parts, told=told)
        elif info["role"] == "assistant":
            self._assistant(info, parts, told=told)
        self.context.append(message)

    def _user(self, info: Json, parts: list[Json], *, told: bool) -> None:
        question = any(part["type"] == "compaction" for part in parts)
        if told and question and info["id"] in self.summarised:
            self.turns.restart([], "compaction")
            self.context, self._again = [], {}
        if blocks := [block for part in parts for block in _said(part)]:
            self.turns.say(blocks)
        self.at = seconds(info["time"]["created"])

    def _assistant(self, info: Json, parts: list[Json], *, told: bool) -> None:
        self.folder = self.folder or (info.get("path") or {}).get("cwd") or ""
        steps, dropped = list(_steps(parts)), _dropped(info, parts)
        before = list(self.turns.done()) if dropped else []
        for number, step in enumerate(steps, 1):
            alone = info.get("tokens") if len(steps) == 1 else None
            kept = not dropped or number < len(steps)
            self._step(info, step, alone, told=told and not info.get("summary"), kept=kept)
        if dropped and len(steps) > 1:
            self.turns.restart(before, "rewind")

    def _step(self, info: Json, parts: list[Json], tokens: Json | None, *, told: bool, kept: bool) -> None:
        if told:
            self.now = seconds(info["time"]["created"])
            self._prune()
        own = (info.get("providerID"), info.get("modelID")) == self.model
        blocks = [block for part in parts for block in _answered(part, self.format, own)]
        usage = next((_usage(part.get("tokens")) for part in parts if part["type"] == "step-finish"), _usage(tokens))
        if not blocks and not usage:
            return
        sent = (
            RecordedRequest(0, info.get("modelID") or "", self.at, _answered_at(info, parts), usage) if told else None
        )
        self.turns.answer(_joined(blocks) if kept else [], sent)
        pictures = [one for part in parts if kept and part["type"] == "tool" for one in self._result(part)]
        if pictures:
            self.turns.say([text(MEDIA), *pictures])

    def _result(self, part: Json) -> list[Json]:
        """Add the result of a call. Returns its images if the format does not support images in results."""
        state, call = part["state"], part["callID"]
        time = state.get("time") or {}
        when = seconds(time.get("compacted"))
        pictures: list[Json] = []
        match state["status"]:
            case "completed" if when is not None and self.now is not None and when <= self.now:
                self.turns.result(call, [text(CLEARED_RESULT)])
            case "completed":
                pictures = [one for file in state.get("attachments") or () for one in _picture(file)]
                self.turns.result(call, [text(state["output"]), *pictures])
            case "error":
                said, interrupted = _failure(state)
                self.turns.result(call, [text(said)], failed=not interrupted)
            case _:
                self.turns.result(call, [text(INTERRUPTED)], failed=True)
        self.at = seconds(time.get("end")) or self.at
        if when is not None:
            self.pruned[call] = when
        return pictures if self.format == CHAT else []

    def _prune(self) -> None:
        """Clear the results whose pruning time has passed."""
        due = [call for call, when in self.pruned.items() if self.now is not None and when <= self.now]
        for call in due:
            del self.pruned[call]
        before = self.turns.segments.current
        if due:
            self.turns.clear(due, CLEARED_RESULT)
        if self.turns.segments.current is not before:
            self._again = {}

    def _keep_tail(self, question: str) -> None:
        names = [message["info"]["id"] for message in self.earlier]
        asked = self.earlier[names.index(question)]
        first = next((part.get("tail_start_id") for part in asked["parts"] if part["type"] == "compaction"), None)
        if first in names[: names.index(question)]:
            at = self.at
            for message in self.earlier[names.index(first) : names.index(question)]:
                self._say(message, told=False)
            self.at = at


def _format(messages: list[Any]) -> str:
    used = Counter(_interface(message) for message in messages)
    del used[""]
    return max(used, key=used.__getitem__, default=CHAT)


def _interface(message: Any) -> str:
    """Return the wire format of a response's provider; empty if the message is not a response."""
    match message:
        case {"info": {"role": "assistant", "providerID": str(provider)}, "parts": list(parts)}:
            found = [part["metadata"] for part in parts if isinstance(part, dict) and "metadata" in part]
        case _:
            return ""
    told = [named for named in found if isinstance(named, dict)]
    if "anthropic" in provider or any("anthropic" in named for named in told):
        return ANTHROPIC
    return RESPONSES if provider == "openai" or any(_item(named) for named in told) else CHAT


def _item(metadata: Any) -> Json:
    """Return the metadata of a Responses API item; empty if there is none."""
    found = metadata.values() if isinstance(metadata, dict) else ()
    return next((told for told in found if isinstance(told, dict) and "itemId" in told), {})


def _summarised(messages: list[Any]) -> Iterator[str]:
    """Yield the ids of user messages whose response is a completed summary."""
    for message in messages:
        match message:
            case {"info": {"role": "assistant", "summary": True, "finish": str(), "parentID": str(asked)} as info}:
                if not info.get("error"):
                    yield asked


def _steps(parts: list[Json]) -> Iterator[list[Json]]:
    step: list[Json] = []
    for part in parts:
        if part["type"] == "step-start" and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _said(part: Json) -> list[Json]:
    """Return the blocks of a user part. The content of text files and folders is in separate text parts."""
    match part["type"]:
        case "text" if not part.get("ignored") and part["text"]:
            return [text(part["text"])]
        case "file":
            return _picture(part)
        case "compaction" | "subtask" as kind:
            return [text(PART_SENTENCES[kind])]
    return []


def _picture(file: Json) -> list[Json]:
    head, _, data = file["url"].partition(";base64,")
    return [image(file["mime"], data)] if data and head.startswith("data:image/") else []


def _answered(part: Json, format_: str, own: bool) -> list[Json]:
    """Return the blocks of a response part as they are sent. Blank texts and unsigned thinking are dropped."""
    match part["type"]:
        case "text" if part["text"].strip():
            return [text(part["text"])]
        case "tool":
            return [{"type": "tool_use", "id": part["callID"], "name": part["tool"], "input": part["state"]["input"]}]
        case "reasoning" if not own:
            return [text(part["text"])] if part["text"].strip() else []
        case "reasoning":
            return _thought(part["text"], part.get("metadata") or {}, format_)
    return []


def _thought(thinking: str, metadata: Json, format_: str) -> list[Json]:
    signed = metadata.get("anthropic") or {}
    if format_ == ANTHROPIC and (signature := signed.get("signature")):
        return [{"type": "thinking", "thinking": thinking, "signature": signature}]
    if format_ == ANTHROPIC and (data := signed.get("redactedData")):
        return [{"type": "redacted_thinking", "data": data}]
    if format_ == CHAT and thinking.strip():
        return [{"type": "thinking", "thinking": thinking, "signature": "reasoning_content"}]
    item = _item(metadata) if format_ == RESPONSES else {}
    if sealed := item.get("reasoningEncryptedContent"):
        summary = [{"type": "summary_text", "text": thinking}] if thinking else []
        return [{"type": "reasoning", "id": item["itemId"], "encrypted_content": sealed, "summary": summary}]
    return []


def _joined(blocks: list[Json]) -> list[Json]:
    """Join consecutive reasoning parts of one item into one block."""
    found: list[Json] = []
    for block in blocks:
        last = found[-1] if found else {}
        if block["type"] == "reasoning" and block["id"] == last.get("id"):
            found[-1] = {**block, "summary": [*last["summary"], *block["summary"]]}
        else:
            found.append(block)
    return found


def _failure(state: Json) -> tuple[str, bool]:
    """Return the text of a failed call, and whether it was interrupted. If so, the text is its output so far."""
    match state.get("metadata"):
        case {"interrupted": True, "output": str(output)}:
            return output, True
    return str(state["error"]), False


def _dropped(info: Json, parts: list[Json]) -> bool:
    if not info.get("error"):
        return False
    something = any(part["type"] not in ("step-start", "reasoning") for part in parts)
    return not (info["error"].get("name") == "MessageAbortedError" and something)


def _answered_at(info: Json, parts: list[Json]) -> float | None:
    """Return the time when a response was complete: the latest end of a text or start of a call.

    The completion time of the message is later, because it includes running the calls.
    """
    times = [
        seconds(time.get("start" if part["type"] == "tool" else "end"))
        for part in parts
        if isinstance(time := part.get("time") or (part.get("state") or {}).get("time"), dict)
    ]
    known = [time for time in times if time is not None]
    return max(known) if known else seconds(info["time"].get("completed"))


def _usage(tokens: Any) -> Usage | None:
    """Convert usage. In some releases, `output` excludes reasoning; then `total` shows the difference."""
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache") or {}
    found = Usage(tokens.get("input") or 0, cache.get("read") or 0, cache.get("write") or 0)
    if not found.input:
        return None
    output = max(tokens.get("output") or 0, (tokens.get("total") or 0) - found.input)
    return Usage(found.fresh, found.read, found.written, output=output, reasoning=tokens.get("reasoning") or 0)


READER = Reader("opencode", knows, read)
