"""Sessions of OpenCode as `opencode export` writes them: `{info, messages: [{info, parts}]}`.

An answer is a run of steps, each of them one request; its calls and their results are the same parts. Results that
were pruned stay in the log with the time from which on a note was sent for them. A compaction is a question of the user
whose answer is marked as a summary; only a finished one counts, and the context begins anew with both of them. The
messages it keeps from before (`tail_start_id`) come after them.

Not in the log: the system prompt, the tools, the prompt that asks for a summary (so that request is left out), and
messages that were taken back, which are removed. A sub-agent has a session, and so an export, of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..billing.usage import Usage
from .builders import ANTHROPIC, BUILDERS, CHAT, image, text
from .log import Log, seconds
from .reader import Reader
from .recording import Json, RecordedRequest, Recording

CLEARED_RESULT = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
PART_SENTENCES = {"compaction": "What did we do so far?", "subtask": "The following tool was executed by the user"}
"""Parts that stand for a sentence."""


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
    return Recording("opencode", reading.format, reading.turns.segments.done(), name=name, project=project)


class _OpenCodeReading:
    def __init__(self, messages: list[Any]) -> None:
        self.format = _format(messages)
        self.turns = BUILDERS[self.format]()
        self.summarised = set(_summarised(messages))
        self.earlier: list[Json] = []
        self.pruned: dict[str, float] = {}
        """When the results of calls were cleared, as far as they still are to be."""
        self.at: float | None = None
        self.folder = ""

    def take(self, message: Json, *, told: bool = True) -> None:
        info, parts = message["info"], message["parts"]
        if info["role"] == "user":
            self._user(info, parts)
        elif info["role"] == "assistant":
            self._assistant(info, parts, told=told)
        if told:
            self.earlier.append(message)

    def _user(self, info: Json, parts: list[Json]) -> None:
        question = next((part for part in parts if part["type"] == "compaction"), None)
        if question and info["id"] in self.summarised:
            self.turns.restart([], "compaction")
        if blocks := [block for part in parts for block in _said(part)]:
            self.turns.say(blocks)
        self.at = seconds(info["time"]["created"])

    def _assistant(self, info: Json, parts: list[Json], *, told: bool) -> None:
        self.folder = self.folder or (info.get("path") or {}).get("cwd") or ""
        steps = list(_steps(parts))
        for step in steps:
            alone = info.get("tokens") if len(steps) == 1 else None
            self._step(info, step, alone, told=told and not info.get("summary"))
        if told and info.get("summary") and info.get("parentID") in self.summarised:
            self._keep_tail(info["parentID"])

    def _step(self, info: Json, parts: list[Json], tokens: Json | None, *, told: bool) -> None:
        self._prune(seconds(info["time"]["created"]))
        blocks = [block for part in parts for block in _answered(part)]
        usage = next((_usage(part.get("tokens")) for part in parts if part["type"] == "step-finish"), _usage(tokens))
        if not blocks and not usage:
            return
        calls = [part for part in parts if part["type"] == "tool"]
        sent = (
            RecordedRequest(0, info.get("modelID") or "", self.at, _answered_at(info, parts), usage) if told else None
        )
        dropped = _dropped(info, parts)
        self.turns.answer([] if dropped else blocks, sent)
        for part in [] if dropped else calls:
            self._result(part)

    def _result(self, part: Json) -> None:
        state, call = part["state"], part["callID"]
        match state["status"]:
            case "completed":
                pictures = [one for file in state.get("attachments") or () for one in _picture(file)]
                self.turns.result(call, [text(state["output"]), *pictures])
            case "error":
                self.turns.result(call, [text(_failure(state))], failed=True)
            case _:
                self.turns.result(call, [text(INTERRUPTED)], failed=True)
        time = state.get("time") or {}
        self.at = seconds(time.get("end")) or self.at
        if (when := seconds(time.get("compacted"))) is not None:
            self.pruned[call] = when

    def _prune(self, now: float | None) -> None:
        """Clear what was pruned by now."""
        due = [call for call, when in self.pruned.items() if now is not None and when <= now]
        for call in due:
            del self.pruned[call]
        if due:
            self.turns.clear(due, CLEARED_RESULT)

    def _keep_tail(self, question: str) -> None:
        names = [message["info"]["id"] for message in self.earlier]
        asked = self.earlier[names.index(question)]
        first = next((part.get("tail_start_id") for part in asked["parts"] if part["type"] == "compaction"), None)
        if first in names[: names.index(question)]:
            at = self.at
            for message in self.earlier[names.index(first) : names.index(question)]:
                self.take(message, told=False)
            self.at = at


def _format(messages: list[Any]) -> str:
    providers: Counter[bool] = Counter()
    for message in messages:
        match message:
            case {"info": {"role": "assistant", "providerID": str(provider)}}:
                providers["anthropic" in provider] += 1
    return ANTHROPIC if providers[True] > providers[False] else CHAT


def _summarised(messages: list[Any]) -> Iterator[str]:
    """Questions that a summary was given for."""
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
    """Text files and folders are told in texts of their own."""
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


def _answered(part: Json) -> list[Json]:
    """Blank texts and thoughts that nobody signed are not sent back."""
    signed = ((part.get("metadata") or {}).get("anthropic") or {}) if part["type"] == "reasoning" else {}
    match part["type"]:
        case "text" if part["text"].strip():
            return [text(part["text"])]
        case "tool":
            return [{"type": "tool_use", "id": part["callID"], "name": part["tool"], "input": part["state"]["input"]}]
        case "reasoning" if signature := signed.get("signature"):
            return [{"type": "thinking", "thinking": part["text"], "signature": signature}]
        case "reasoning" if data := signed.get("redactedData"):
            return [{"type": "redacted_thinking", "data": data}]
    return []


def _failure(state: Json) -> str:
    """What a call that was interrupted had put out by then is sent in place of the error."""
    match state.get("metadata"):
        case {"interrupted": True, "output": str(output)}:
            return output
    return str(state["error"])


def _dropped(info: Json, parts: list[Json]) -> bool:
    """A failed answer is not sent back, unless the user stopped it and there is something in it."""
    if not info.get("error"):
        return False
    something = any(part["type"] not in ("step-start", "reasoning") for part in parts)
    return not (info["error"].get("name") == "MessageAbortedError" and something)


def _answered_at(info: Json, parts: list[Json]) -> float | None:
    """The end of its texts, or the start of its calls; the message is complete only after these have run."""
    times = [
        seconds(time.get("start" if part["type"] == "tool" else "end"))
        for part in parts
        if isinstance(time := part.get("time") or (part.get("state") or {}).get("time"), dict)
    ]
    known = [time for time in times if time is not None]
    return max(known) if known else seconds(info["time"].get("completed"))


def _usage(tokens: Any) -> Usage | None:
    """Whether the output includes the reasoning changed; a total tells."""
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache") or {}
    found = Usage(tokens.get("input") or 0, cache.get("read") or 0, cache.get("write") or 0)
    if not found.input:
        return None
    output = max(tokens.get("output") or 0, (tokens.get("total") or 0) - found.input)
    return Usage(found.fresh, found.read, found.written, output=output, reasoning=tokens.get("reasoning") or 0)


READER = Reader("opencode", knows, read)
