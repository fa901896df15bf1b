"""Evaluations and conversations of OpenHands that were made up."""

from __future__ import annotations

import json
from typing import Any

from .examples import Example, lines

Json = dict[str, Any]

TOOL = {"type": "function", "function": {"name": "execute_bash", "parameters": {"type": "object"}}}


def at(second: int) -> str:
    return f"2025-04-30T16:00:{second:02}+00:00"


def action(key: int, kind: str, source: str = "agent", told: Json | None = None, **args: Any) -> Json:
    event = {"id": key, "timestamp": at(key), "source": source, "action": kind, "args": args}
    return {**event, "tool_call_metadata": told} if told else event


def seen(key: int, cause: int, text: str, told: Json | None = None, kind: str = "run", **extras: Any) -> Json:
    event = {"id": key, "timestamp": at(key), "source": "agent", "cause": cause, "observation": kind, "content": text}
    return {**event, "extras": extras, **({"tool_call_metadata": told} if told else {})}


def answer(
    key: str, *calls: str, text: str | None = None, usage: Json | None = None, tool: str = "execute_bash"
) -> Any:
    """What the events of the answer carry, for every call."""
    function = {"name": tool, "arguments": json.dumps({"command": "ls"})}
    made = [{"index": 0, "id": call, "type": "function", "function": function} for call in calls]
    message = {"role": "assistant", "content": text, "tool_calls": made}
    response = {"id": key, "model": "loom-1", "choices": [{"message": message}], "usage": usage}
    return [{"function_name": tool, "tool_call_id": call, "model_response": response} for call in calls]


SYSTEM = action(0, "system", content="You weave.", tools=[TOOL])
TASK = action(1, "message", "user", content="The thread is torn. 🧵")
RECALL = [
    action(2, "recall", "user", query="thread"),
    seen(3, 2, "Added workspace context", kind="recall", microagent_knowledge=[]),
]
STATE = seen(4, 0, "", kind="agent_state_changed", agent_state="running")


def row(*history: Any, **more: Any) -> Json:
    metadata = {"llm_config": {"model": "loom/loom"}}
    return {"instance_id": "mill__loom-1", "instance": {"repo": "mill/loom"}, "metadata": metadata} | {
        "history": list(history),
        **more,
    }


FIRST = answer("r1", "a", "b", text="Look.", usage={"prompt_tokens": 60, "completion_tokens": 5})
SECOND = answer("r2", "c")
LAST = answer("r3", "d", tool="finish")
ENDED = {"exit_code": 0, "working_dir": "/mill", "py_interpreter_path": "/py", "prefix": "", "suffix": "\n[Done.]"}

TALK = [
    SYSTEM,
    TASK,
    *RECALL,
    STATE,
    action(5, "run", told=FIRST[0], command="ls"),
    action(6, "run", told=FIRST[1], command="ls"),
    seen(7, 5, "loom.py", FIRST[0], metadata=ENDED),
    seen(8, 6, "", FIRST[1], metadata={"exit_code": 1}),
    action(9, "run", told=SECOND[0], command="ls"),
    seen(10, 9, "thread.py", SECOND[0], metadata={"exit_code": -1}),
    seen(11, -1, "Unknown command.", kind="error"),
    action(12, "finish", told=LAST[0], final_thought="Mended.", thought=""),
    action(13, "message", "user", content="Thanks. And the other?"),
    action(14, "message", content="Whole."),
]


def sdk(key: int, kind: str, source: str = "agent", **more: Any) -> Json:
    return {"id": f"e{key}", "kind": kind, "timestamp": at(key), "source": source, **more}


def text(words: str) -> Json:
    return {"type": "text", "text": words, "cache_prompt": False}


def acts(key: int, answer: str, call: str, thought: str = "") -> Json:
    tool_call = {"id": call, "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"}
    thoughts = [text(thought)] if thought else []
    return sdk(key, "ActionEvent", tool_call=tool_call, tool_call_id=call, thought=thoughts, llm_response_id=answer)


def observes(key: int, call: str, words: str, **more: Any) -> Json:
    return sdk(
        key, "ObservationEvent", "environment", tool_call_id=call, observation={"content": [text(words)], **more}
    )


def message(key: int, role: str, words: str, **more: Any) -> Json:
    content = {"role": role, "content": [text(words)]}
    return sdk(key, "MessageEvent", "user" if role == "user" else "agent", llm_message=content, **more)


SDK = [
    sdk(0, "SystemPromptEvent", system_prompt=text("You weave."), tools=[TOOL], dynamic_context=text("In a mill.")),
    message(1, "user", "The thread is torn.", extended_content=[text("It is red.")]),
    sdk(2, "ConversationStateUpdateEvent", "environment", value={}),
    acts(3, "r1", "a", "Look."),
    acts(4, "r1", "b"),
    observes(5, "a", "loom.py", metadata=ENDED),
    sdk(6, "AgentErrorEvent", tool_call_id="b", error="No such tool."),
    acts(7, "r2", "c"),
    sdk(8, "UserRejectObservation", "environment", tool_call_id="c", rejection_reason="Not that one."),
]

USAGES = [
    {"response_id": "r1", "prompt_tokens": 90, "cache_read_tokens": 80, "cache_write_tokens": 4},
    {"response_id": "r3", "prompt_tokens": 50},
    {"prompt_tokens": 1},
]

EXAMPLES = [
    Example(
        name="an evaluation: parallel calls, an error without a call, and text after the finish",
        ids=["mill__loom-1"],
        titles=["The thread is torn. 🧵"],
        data=lines(row(*TALK)),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 5, 8, 10]]],
        models=[["loom-1", "loom/loom"]],
        projects=["mill/loom"],
        inputs=[[60, None, None, None]],
        times=[[1_746_028_801.0, 1_746_028_808.0, 1_746_028_811.0, 1_746_028_813.0]],
    ),
    Example(
        name="several tasks, and a broken line between them",
        data=lines(
            row(*TALK[:8], metrics={"token_usages": USAGES}),
            b'{"instance_id": "mill__lo',
            row(SYSTEM, TASK, error="the model was not there"),
            row(TASK, action(5, "message", content="Done."), instance_id="mill__loom-2", instance=None),
        ),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2]], [[1]]],
        projects=["mill/loom", "mill__loom-2"],
        inputs=[[60], [None]],
        skipped=[2],
    ),
    Example(
        name="actions without ids, in pairs with their observations",
        data=lines(
            row(
                [TASK, seen(2, 1, "", kind="null")],
                [
                    action(5, "run", command="ls", thought="Look.", blocking=True, cwd=None),
                    seen(6, 5, "loom.py", metadata=ENDED),
                ],
                [action(7, "browse", url="http://mill", thought={"text": "Ask."}), seen(8, 7, "no", kind="error")],
                [action(9, "finish", thought="Mended."), seen(10, 9, "", kind="null")],
            )
        ),
        agent="openhands",
        format="openai-chat",
        lengths=[[[1, 3, 5]]],
        models=[["loom/loom"]],
    ),
    Example(
        name="a conversation of events of the older server",
        data=json.dumps(TALK[:11]).encode(),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 5]]],
        models=[["loom-1"]],
        projects=[""],
    ),
    Example(
        name="a conversation of events of the SDK, one per line",
        ids=[""],
        titles=["The thread is torn. It is red."],
        data=lines(*SDK, message(9, "assistant", "Then not.", llm_response_id="r3"), message(10, "user", "So be it.")),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 5, 7]]],
        models=[[]],
        times=[[1_746_028_801.0, 1_746_028_806.0, 1_746_028_808.0]],
    ),
    Example(
        name="an evaluation of the SDK, with usage told apart from the events",
        data=lines(
            row(
                *SDK,
                message(9, "assistant", "Then not.", llm_response_id="r3"),
                metadata={"llm": {"model": "loom-9"}},
                metrics={"token_usages": USAGES},
            )
        ),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 5, 7]]],
        models=[["loom-9"]],
        inputs=[[90, None, 50]],
    ),
    Example(
        name="condensations: the second summary replaces the first",
        data=lines(
            row(
                *TALK[:11],
                action(15, "condensation", forgotten_events_start_id=5, forgotten_events_end_id=8, summary="Looked."),
                action(16, "run", command="make"),
                seen(17, 16, "woven"),
                action(18, "condensation", forgotten_event_ids=[9, 10], summary="Looked twice."),
                action(19, "condensation", forgotten_event_ids=[]),
                action(20, "message", content="Done."),
            )
        ),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 5], [5], [5]]],
        causes=[["start", "compaction", "compaction"]],
    ),
    Example(
        name="a condensation of the SDK, without a summary",
        data=lines(
            *SDK,
            sdk(9, "Condensation", "environment", forgotten_event_ids=["e3", "e4", "e5", "e6"], summary=None),
            message(10, "assistant", "Done."),
        ),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 5], [4]]],
        causes=[["start", "compaction"]],
    ),
    Example(
        name="broken events in the middle",
        data=lines(
            row(
                SYSTEM,
                TASK,
                "torn",
                action(5, "run", told={**FIRST[0], "model_response": {"id": "r0", "choices": [{}]}}),
                action(6, "message", "user"),
                action(7, "message", content="Yes?"),
                action(8, "message", "user", content="No."),
                action(9, "message", content="Hm."),
                metadata="torn",
            )
        ),
        agent="openhands",
        format="openai-chat",
        lengths=[[[2, 4]]],
        models=[[]],
        skipped=[1, 1, 1, 1],
    ),
    Example(
        name="a call that is never answered",
        data=lines(row(TASK, action(5, "run", told=SECOND[0]), TASK, action(7, "message", content="Hm."))),
        agent="openhands",
        format="openai-chat",
        lengths=[[[1, 3]]],
        invalid=True,
    ),
]
