"""Reader for OpenHands.

A log is an evaluation (`output.jsonl`, one conversation per row with its events in `history`) or a single conversation
(a list of events, as JSON or one per line). Events are from the older server (`action`, `observation`) or from the
newer SDK (`kind`).

- An event of the older server contains its whole response, so the first event of a response is enough.
- An event of the SDK contains one call and the id of its response.
- Without either, the action becomes a call with an invented id, and the observation that it caused becomes the result.
- A condensation replaces events by a summary, which starts a new segment.
- The older call `finish` never has a result. It was sent as text.

Not in the log: text added by knowledge recall, images, how long outputs were truncated, and the requests for summaries.
Times without a zone are local to the machine that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from ..billing.usage import Usage
from .chat import Chat, text_of
from .counts import name_of, usage_of
from .log import Log, seconds
from .reader import Reader
from .recording import Json, RecordedSegment, Recording

AGENT = "openhands"

KINDS = (
    *("SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent"),
    *("AgentErrorEvent", "UserRejectObservation", "Condensation"),
)
"""Events of the SDK that are part of the context or change it."""

CALLS = (
    *("run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive"),
    *("delegate", "reject", "think", "call_tool_mcp", "task_tracking"),
)
"""Actions of the older server that are tool calls."""

BOOKKEEPING = ("thought", "confirmation_state", "security_risk", "blocking", "is_static", "hidden", "is_input")
"""Arguments of an older action that are not arguments of its call."""

SUMMARY = frozenset([object()])
"""Placeholder for the event ids of a summary, which is not an event."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Change of the context by one event."""

    does: Literal["say", "answer", "result", "forget"]
    events: frozenset[Any]
    at: float | None
    content: Any = None
    role: str = ""
    calls: tuple[Json, ...] = ()
    call: str = ""
    answer: str = ""
    """Id of the response, which several events can share."""
    model: str = ""
    usage: Usage | None = None
    forgotten: frozenset[Any] = frozenset()
    first: int | None = None
    """First event to remove, if a condensation names a range from `first` to `last`."""
    last: int | None = None


def _is_event(row: Json) -> bool:
    if row.get("kind") in KINDS:
        return "source" in row
    named = isinstance(row.get("action"), str) or isinstance(row.get("observation"), str)
    return named and {"id", "timestamp", "source"} <= row.keys()


def _is_evaluation(row: Json) -> bool:
    return isinstance(row.get("history"), list) and "instance_id" in row and "trajectory" not in row


def _knows(row: Json) -> bool:
    return _is_evaluation(row) or _is_event(row)


class _Events:
    """Steps of a conversation in order. All events of one response are one step."""

    def __init__(self, model: str = "", usages: dict[str, Usage | None] | None = None) -> None:
        self.steps: list[_Step] = []
        self.head: Json = {}
        self._model = model
        self._usages = usages or {}
        self._answers: dict[str, int] = {}
        self._made: set[str] = set()

    def event(self, event: Json) -> None:
        at = seconds(event.get("timestamp"))
        step = self._of_sdk(event) if "kind" in event else self._of_server(event)
        if step is None:
            return
        step = replace(step, events=frozenset([event.get("id")]), at=at)
        known = self._answers.get(step.answer) if step.answer else None
        if known is None:
            if step.answer:
                self._answers[step.answer] = len(self.steps)
            self.steps.append(step)
        else:
            before = self.steps[known]
            told = {call["id"] for call in before.calls}
            calls = (*before.calls, *(call for call in step.calls if call["id"] not in told))
            self.steps[known] = replace(before, calls=calls, events=before.events | step.events)

    def _say(self, role: str, content: Any) -> _Step:
        return _Step("say", frozenset(), None, content, role)

    def _result(self, call: Any, content: Any) -> _Step:
        return _Step("result", frozenset(), None, content, call=_key(call))

    def _answer(self, content: Any, calls: Iterable[Json], answer: str = "", response: Json | None = None) -> _Step:
        response = response or {}
        usage = usage_of(response.get("usage")) or self._usages.get(answer)
        model = name_of(response.get("model"), self._model)
        return _Step("answer", frozenset(), None, content, "", tuple(calls), "", answer, model, usage)

    # The SDK.

    def _of_sdk(self, event: Json) -> _Step | None:
        match event["kind"]:
            case "SystemPromptEvent":
                self._tools(event.get("tools"))
                texts = [event["system_prompt"], event.get("dynamic_context")]
                return self._say("system", text_of([text for text in texts if text]))
            case "MessageEvent":
                message = event["llm_message"]
                text = text_of([*_parts(message["content"]), *(event.get("extended_content") or ())])
                if message.get("role") == "assistant":
                    return self._answer(text, (), event.get("llm_response_id") or "")
                return self._say(message.get("role") or "user", text)
            case "ActionEvent":
                thought = text_of(event.get("thought")) or None
                return self._answer(thought, [_call(event["tool_call"])], event.get("llm_response_id") or "")
            case "ObservationEvent":
                found = event["observation"]
                return self._result(event["tool_call_id"], _framed(text_of(_parts(found["content"])), found))
            case "AgentErrorEvent":
                return self._result(event["tool_call_id"], event["error"])
            case "UserRejectObservation":
                return self._result(event["tool_call_id"], event.get("rejection_reason") or "")
            case "Condensation":
                forgotten = frozenset(event.get("forgotten_event_ids") or ())
                return _Step("forget", frozenset(), None, event.get("summary"), forgotten=forgotten)
        return None

    def _tools(self, tools: Any) -> None:
        """Store tools in wire format. The newest SDK logs its own definitions, which cannot be converted."""
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) and "function" in tool for tool in tools):
            self.head = {"tools": tools}

    # The older server.

    def _of_server(self, event: Json) -> _Step | None:
        if "observation" in event:
            return self._observation(event)
        arguments = event.get("args") or {}
        match event.get("action"), event.get("source"):
            case "system", _:
                self._tools(arguments.get("tools"))
                return self._say("system", arguments["content"])
            case "message", "user":
                return self._say("user", arguments["content"])
            case "message", _:
                return self._answer(arguments["content"], ())
            case "condensation", _:
                forgotten = frozenset(arguments.get("forgotten_event_ids") or ())
                first, last = arguments.get("forgotten_events_start_id"), arguments.get("forgotten_events_end_id")
                content = arguments.get("summary")
                return _Step("forget", frozenset(), None, content, forgotten=forgotten, first=first, last=last)
            case action, "agent" if action in CALLS or action == "finish" or event.get("tool_call_metadata"):
                return self._action(event, arguments)
        return None

    def _action(self, event: Json, arguments: Json) -> _Step:
        told = event.get("tool_call_metadata") or {}
        response = told.get("model_response") or {}
        thought = arguments.get("thought")
        text = (thought.get("text") if isinstance(thought, dict) else thought) or None
        if response.get("choices"):
            message = response["choices"][0]["message"]
            calls = [_call(call) for call in message.get("tool_calls") or ()]
            content = message.get("content")
        else:
            own = {key: value for key, value in arguments.items() if key not in BOOKKEEPING and value is not None}
            call = told.get("tool_call_id") or f"call_{event['id']}"
            calls = [{"id": call, "name": told.get("function_name") or event["action"], "arguments": own}]
            content = text
        calls = [call for call in calls if call["name"] != "finish"]
        self._made.update(call["id"] for call in calls)
        if not calls:
            content = content or text or arguments.get("final_thought") or ""
        return self._answer(content, calls, response.get("id") or "", response)

    def _observation(self, event: Json) -> _Step | None:
        told = event.get("tool_call_metadata") or {}
        call = told.get("tool_call_id") or f"call_{event.get('cause')}"
        if told or call in self._made:
            return self._result(call, _framed(event["content"], event.get("extras")))
        if event["observation"] == "error":
            return self._say("user", event["content"])
        return None


def _framed(text: Any, noted: Any) -> Any:
    """Return the output of a command as it was sent, with the metadata around it."""
    metadata = noted.get("metadata") if isinstance(noted, dict) else None
    if not isinstance(text, str) or not isinstance(metadata, dict) or "exit_code" not in metadata:
        return text
    lines = [f"{metadata.get('prefix') or ''}{text}{metadata.get('suffix') or ''}"]
    if folder := metadata.get("working_dir"):
        lines.append(f"[Current working directory: {folder}]")
    if interpreter := metadata.get("py_interpreter_path"):
        lines.append(f"[Python interpreter: {interpreter}]")
    if metadata["exit_code"] != -1:
        lines.append(f"[Command finished with exit code {metadata['exit_code']}]")
    return "\n".join(lines)


def _parts(content: Any) -> list[Any]:
    return [{"text": content}] if isinstance(content, str) else content or []


def _call(call: Json) -> Json:
    function = call.get("function") or call
    return {"id": _key(call["id"]), "name": function["name"], "arguments": function["arguments"]}


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} as the id of a call")
    return value


def _segments(steps: Iterable[_Step]) -> list[RecordedSegment]:
    chat, kept, latest = Chat(), list[_Step](), None
    segments: list[RecordedSegment] = []
    for step in steps:
        if step.does == "forget":
            after = _condensed(kept, step)
            if after != kept:
                segments.append(chat.done())
                chat, kept = _replayed(after, segments[-1]), after
        else:
            kept.append(step)
            _take(chat, step, latest)
            latest = latest if step.does == "answer" else step.at
    segments.append(chat.done())
    return [segment for segment in segments if segment.requests]


def _take(chat: Chat, step: _Step, latest: float | None = None) -> None:
    match step.does:
        case "say":
            chat.say(step.role, step.content)
        case "result":
            chat.result(step.call, step.content)
        case "answer":
            calls = list(step.calls)
            chat.answer(step.content, calls, model=step.model, at=latest, answered=step.at, usage=step.usage)


def _condensed(kept: list[_Step], condensation: _Step) -> list[_Step]:
    """Return the steps after a condensation. Its summary replaces removed steps and any earlier summary."""
    after: list[_Step] = []
    place = None
    for step in kept:
        replaced = step.events is SUMMARY and condensation.content
        if replaced or all(_forgets(condensation, event) for event in step.events):
            place = len(after) if place is None else place
        else:
            after.append(step)
    if condensation.content and place is not None:
        after.insert(place, _Step("say", SUMMARY, condensation.at, condensation.content, "user"))
    return after


def _forgets(condensation: _Step, event: Any) -> bool:
    first, last = condensation.first, condensation.last
    ranged = isinstance(first, int) and isinstance(last, int) and isinstance(event, int) and first <= event <= last
    return ranged or event in condensation.forgotten


def _replayed(steps: list[_Step], before: RecordedSegment) -> Chat:
    """Build a history from the remaining steps. It shares its unchanged prefix with the segment before."""
    chat = Chat()
    for step in steps:
        _take(chat, step)
    chat.segment.requests.clear()
    pairs = zip(before.history, chat.history, strict=False)
    same = [old for old, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    chat.history[: len(same)] = same
    chat.segment.inherited, chat.segment.cause = len(same), "compaction"
    return chat


def _read(log: Log) -> Iterator[Recording]:
    single = _Events()
    for line, row in log.rows:
        if _is_evaluation(row):
            yield _evaluation(log, line, row)
        elif _is_event(row):
            with log.tolerating(line):
                single.event(row)
    if single.steps:
        yield Recording(AGENT, "openai-chat", _segments(single.steps), head=single.head)


def _evaluation(log: Log, line: int, row: Json) -> Recording:
    model, repository = "", ""
    usages: dict[str, Usage | None] = {}
    with log.tolerating(line):
        repository = str((row.get("instance") or {}).get("repo") or "")
        metadata = row.get("metadata") or {}
        model = str((metadata.get("llm_config") or metadata.get("llm") or {}).get("model") or "")
        counts = (row.get("metrics") or {}).get("token_usages") or ()
        usages = {count["response_id"]: usage_of(count) for count in counts if count.get("response_id")}
    events = _Events(model, usages)
    for found in row["history"]:
        for event in found if isinstance(found, list) else [found]:  # old logs: pairs of action and result
            with log.tolerating(line):
                events.event(event)
    task = str(row["instance_id"])
    segments = _segments(events.steps)
    return Recording(AGENT, "openai-chat", segments, name=task, id=task, project=repository or task, head=events.head)


READER = Reader(AGENT, _knows, _read)
