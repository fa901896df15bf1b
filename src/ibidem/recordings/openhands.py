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
from .chat_builder import ChatBuilder, content_text
from .log_file import Log, parse_timestamp
from .reader import Reader
from .recording import Json, RecordedSegment, Recording
from .usage_fields import first_name, litellm_usage

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
class _ContextStep:
    """Change of the context by one event."""

    action: Literal["say", "answer", "result", "forget"]
    events: frozenset[Any]
    at: float | None
    content: Any = None
    role: str = ""
    calls: tuple[Json, ...] = ()
    call_id: str = ""
    response_id: str = ""
    """Id of the response, which several events can share."""
    model: str = ""
    usage: Usage | None = None
    removed_events: frozenset[Any] = frozenset()
    first: int | None = None
    """First event to remove, if a condensation names a range from `first` to `last`."""
    last: int | None = None


def _is_event(row: Json) -> bool:
    if row.get("kind") in KINDS:
        return "source" in row
    has_type = isinstance(row.get("action"), str) or isinstance(row.get("observation"), str)
    return has_type and {"id", "timestamp", "source"} <= row.keys()


def _is_evaluation(row: Json) -> bool:
    return isinstance(row.get("history"), list) and "instance_id" in row and "trajectory" not in row


def _is_log_row(row: Json) -> bool:
    return _is_evaluation(row) or _is_event(row)


class _OpenHandsEvents:
    """Steps of a conversation in order. All events of one response are one step."""

    def __init__(self, model: str = "", usages: dict[str, Usage | None] | None = None) -> None:
        self.steps: list[_ContextStep] = []
        self.head: Json = {}
        self._model = model
        self._usages = usages or {}
        self._response_indexes: dict[str, int] = {}
        self._call_ids: set[str] = set()

    def add_event(self, event: Json) -> None:
        at = parse_timestamp(event.get("timestamp"))
        step = self._sdk_step(event) if "kind" in event else self._server_step(event)
        if step is None:
            return
        step = replace(step, events=frozenset([event.get("id")]), at=at)
        index = self._response_indexes.get(step.response_id) if step.response_id else None
        if index is None:
            if step.response_id:
                self._response_indexes[step.response_id] = len(self.steps)
            self.steps.append(step)
        else:
            before = self.steps[index]
            known_ids = {call["id"] for call in before.calls}
            calls = (*before.calls, *(call for call in step.calls if call["id"] not in known_ids))
            self.steps[index] = replace(before, calls=calls, events=before.events | step.events)

    def _message_step(self, role: str, content: Any) -> _ContextStep:
        return _ContextStep("say", frozenset(), None, content, role)

    def _result_step(self, call: Any, content: Any) -> _ContextStep:
        return _ContextStep("result", frozenset(), None, content, call_id=_check_id(call))

    def _response_step(
        self, content: Any, calls: Iterable[Json], answer: str = "", response: Json | None = None
    ) -> _ContextStep:
        response = response or {}
        usage = litellm_usage(response.get("usage")) or self._usages.get(answer)
        model = first_name(response.get("model"), self._model)
        return _ContextStep("answer", frozenset(), None, content, "", tuple(calls), "", answer, model, usage)

    # The SDK.

    def _sdk_step(self, event: Json) -> _ContextStep | None:
        match event["kind"]:
            case "SystemPromptEvent":
                self._store_tools(event.get("tools"))
                texts = [event["system_prompt"], event.get("dynamic_context")]
                return self._message_step("system", content_text([text for text in texts if text]))
            case "MessageEvent":
                message = event["llm_message"]
                text = content_text([*_content_parts(message["content"]), *(event.get("extended_content") or ())])
                if message.get("role") == "assistant":
                    return self._response_step(text, (), event.get("llm_response_id") or "")
                return self._message_step(message.get("role") or "user", text)
            case "ActionEvent":
                text_before_call = content_text(event.get("thought")) or None
                return self._response_step(
                    text_before_call, [_parse_call(event["tool_call"])], event.get("llm_response_id") or ""
                )
            case "ObservationEvent":
                observation = event["observation"]
                return self._result_step(
                    event["tool_call_id"],
                    _with_metadata(content_text(_content_parts(observation["content"])), observation),
                )
            case "AgentErrorEvent":
                return self._result_step(event["tool_call_id"], event["error"])
            case "UserRejectObservation":
                return self._result_step(event["tool_call_id"], event.get("rejection_reason") or "")
            case "Condensation":
                forgotten = frozenset(event.get("forgotten_event_ids") or ())
                return _ContextStep("forget", frozenset(), None, event.get("summary"), removed_events=forgotten)
        return None

    def _store_tools(self, tools: Any) -> None:
        """Store tools in wire format. The newest SDK logs its own definitions, which cannot be converted."""
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) and "function" in tool for tool in tools):
            self.head = {"tools": tools}

    # The older server.

    def _server_step(self, event: Json) -> _ContextStep | None:
        if "observation" in event:
            return self._observation_step(event)
        arguments = event.get("args") or {}
        match event.get("action"), event.get("source"):
            case "system", _:
                self._store_tools(arguments.get("tools"))
                return self._message_step("system", arguments["content"])
            case "message", "user":
                return self._message_step("user", arguments["content"])
            case "message", _:
                return self._response_step(arguments["content"], ())
            case "condensation", _:
                forgotten = frozenset(arguments.get("forgotten_event_ids") or ())
                first, last = arguments.get("forgotten_events_start_id"), arguments.get("forgotten_events_end_id")
                content = arguments.get("summary")
                return _ContextStep(
                    "forget", frozenset(), None, content, removed_events=forgotten, first=first, last=last
                )
            case action, "agent" if action in CALLS or action == "finish" or event.get("tool_call_metadata"):
                return self._action_step(event, arguments)
        return None

    def _action_step(self, event: Json, arguments: Json) -> _ContextStep:
        metadata = event.get("tool_call_metadata") or {}
        response = metadata.get("model_response") or {}
        reasoning = arguments.get("thought")
        text = (reasoning.get("text") if isinstance(reasoning, dict) else reasoning) or None
        if response.get("choices"):
            message = response["choices"][0]["message"]
            calls = [_parse_call(call) for call in message.get("tool_calls") or ()]
            content = message.get("content")
        else:
            call_arguments = {
                key: value for key, value in arguments.items() if key not in BOOKKEEPING and value is not None
            }
            call = metadata.get("tool_call_id") or f"call_{event['id']}"
            calls = [
                {"id": call, "name": metadata.get("function_name") or event["action"], "arguments": call_arguments}
            ]
            content = text
        calls = [call for call in calls if call["name"] != "finish"]
        self._call_ids.update(call["id"] for call in calls)
        if not calls:
            content = content or text or arguments.get("final_thought") or ""
        return self._response_step(content, calls, response.get("id") or "", response)

    def _observation_step(self, event: Json) -> _ContextStep | None:
        metadata = event.get("tool_call_metadata") or {}
        call = metadata.get("tool_call_id") or f"call_{event.get('cause')}"
        if metadata or call in self._call_ids:
            return self._result_step(call, _with_metadata(event["content"], event.get("extras")))
        if event["observation"] == "error":
            return self._message_step("user", event["content"])
        return None


def _with_metadata(text: Any, extras: Any) -> Any:
    """Return the output of a command as it was sent, with the metadata around it."""
    metadata = extras.get("metadata") if isinstance(extras, dict) else None
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


def _content_parts(content: Any) -> list[Any]:
    return [{"text": content}] if isinstance(content, str) else content or []


def _parse_call(call: Json) -> Json:
    function = call.get("function") or call
    return {"id": _check_id(call["id"]), "name": function["name"], "arguments": function["arguments"]}


def _check_id(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} as the id of a call")
    return value


def _build_segments(steps: Iterable[_ContextStep]) -> list[RecordedSegment]:
    chat, context_steps, latest = ChatBuilder(), list[_ContextStep](), None
    segments: list[RecordedSegment] = []
    for step in steps:
        if step.action == "forget":
            new_steps = _condense_steps(context_steps, step)
            if new_steps != context_steps:
                segments.append(chat.finish())
                chat, context_steps = _rebuild_history(new_steps, segments[-1]), new_steps
        else:
            context_steps.append(step)
            _apply_step(chat, step, latest)
            latest = latest if step.action == "answer" else step.at
    segments.append(chat.finish())
    return [segment for segment in segments if segment.requests]


def _apply_step(chat: ChatBuilder, step: _ContextStep, latest: float | None = None) -> None:
    match step.action:
        case "say":
            chat.add_message(step.role, step.content)
        case "result":
            chat.add_result(step.call_id, step.content)
        case "answer":
            calls = list(step.calls)
            chat.add_response(step.content, calls, model=step.model, at=latest, answered_at=step.at, usage=step.usage)


def _condense_steps(context_steps: list[_ContextStep], condensation: _ContextStep) -> list[_ContextStep]:
    """Return the steps after a condensation. Its summary replaces removed steps and any earlier summary."""
    new_steps: list[_ContextStep] = []
    place = None
    for step in context_steps:
        is_old_summary = step.events is SUMMARY and condensation.content
        if is_old_summary or all(_removes_event(condensation, event) for event in step.events):
            place = len(new_steps) if place is None else place
        else:
            new_steps.append(step)
    if condensation.content and place is not None:
        new_steps.insert(place, _ContextStep("say", SUMMARY, condensation.at, condensation.content, "user"))
    return new_steps


def _removes_event(condensation: _ContextStep, event: Any) -> bool:
    first, last = condensation.first, condensation.last
    is_in_range = isinstance(first, int) and isinstance(last, int) and isinstance(event, int) and first <= event <= last
    return is_in_range or event in condensation.removed_events


def _rebuild_history(steps: list[_ContextStep], before: RecordedSegment) -> ChatBuilder:
    """Build a history from the remaining steps. It shares its unchanged prefix with the segment before."""
    chat = ChatBuilder()
    for step in steps:
        _apply_step(chat, step)
    chat.segment.requests.clear()
    pairs = zip(before.history, chat.history, strict=False)
    same = [old for old, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    chat.history[: len(same)] = same
    chat.segment.inherited, chat.segment.cause = len(same), "compaction"
    return chat


def _read_sessions(log: Log) -> Iterator[Recording]:
    single = _OpenHandsEvents()
    for line, row in log.rows:
        if _is_evaluation(row):
            yield _read_evaluation(log, line, row)
        elif _is_event(row):
            with log.skip_bad_line(line):
                single.add_event(row)
    if single.steps:
        yield Recording(AGENT, "openai-chat", _build_segments(single.steps), head=single.head)


def _read_evaluation(log: Log, line: int, row: Json) -> Recording:
    model, repository = "", ""
    usages: dict[str, Usage | None] = {}
    with log.skip_bad_line(line):
        repository = str((row.get("instance") or {}).get("repo") or "")
        metadata = row.get("metadata") or {}
        model = str((metadata.get("llm_config") or metadata.get("llm") or {}).get("model") or "")
        counts = (row.get("metrics") or {}).get("token_usages") or ()
        usages = {count["response_id"]: litellm_usage(count) for count in counts if count.get("response_id")}
    events = _OpenHandsEvents(model, usages)
    for entry in row["history"]:
        for event in entry if isinstance(entry, list) else [entry]:  # old logs: pairs of action and result
            with log.skip_bad_line(line):
                events.add_event(event)
    task = str(row["instance_id"])
    segments = _build_segments(events.steps)
    return Recording(AGENT, "openai-chat", segments, name=task, id=task, project=repository or task, head=events.head)


READER = Reader(AGENT, _is_log_row, _read_sessions)
