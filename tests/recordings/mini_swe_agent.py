"""Trajectories of mini-SWE-agent that were made up."""

from __future__ import annotations

import json
from typing import Any

from .examples import Example, lines

Json = dict[str, Any]

SYSTEM = {"role": "system", "content": "You use a shell."}
TASK = {"role": "user", "content": "Make the kettle whistle."}


def answer(text: str, *calls: str, usage: Json | None = None, at: float | None = None, **response: Any) -> Json:
    extra: Json = {"actions": [], "cost": 0.1, "response": {"model": "kettle-1", "usage": usage, **response}}
    if at is not None:
        extra["timestamp"] = at
    function = {"name": "bash", "arguments": json.dumps({"command": "ls"})}
    made = [{"index": 0, "id": key, "type": "function", "function": function} for key in calls]
    message = {"role": "assistant", "content": text, "function_call": None, "extra": extra}
    return {**message, "tool_calls": made} if made else message


def result(key: str, text: str, at: float | None = None) -> Json:
    return {"role": "tool", "tool_call_id": key, "content": text, "extra": {"returncode": 0, "timestamp": at}}


def output(text: str, at: float | None = None) -> Json:
    return {"role": "user", "content": text, "timestamp": at}


def complaint(**extra: Any) -> Json:
    return {"role": "user", "content": "No call was found.", "extra": {"interrupt_type": "FormatError", **extra}}


def run(*messages: Any, **more: Any) -> Json:
    config = {"model": {"model_name": "hob/kettle"}, "environment": {"cwd": "/kitchen"}}
    info = {"mini_version": "2.0.0", "config": config}
    return {"info": info, "messages": list(messages), "trajectory_format": "mini-swe-agent-1.1", **more}


def item(kind: str, **more: Any) -> Json:
    return {"type": kind, **more, "extra": None}


OPENAI = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
WITH_CACHE = {"prompt_tokens": 130, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
WRITES_APART = {"prompt_tokens": 110, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
ALL_APART = {"prompt_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}

EXAMPLES = [
    Example(
        name="version 1: commands in the text, without times or usage",
        ids=["kitchen__kettle-3"],
        titles=["Make the kettle whistle."],
        data=lines(
            run(
                SYSTEM,
                TASK,
                {"role": "assistant", "content": "Look.\n```bash\nls\n```"},
                {"role": "user", "content": "<output>kettle</output>"},
                {"role": "assistant", "content": "```bash\necho done\n```"},
                {"role": "user", "content": "done"},
                trajectory_format="mini-swe-agent-1",
                instance_id="kitchen__kettle-3",
            )
        ),
        agent="mini-swe-agent",
        format="openai-chat",
        lengths=[[[2, 4]]],
        models=[["hob/kettle"]],
        projects=["kitchen__kettle-3"],
        inputs=[[None, None]],
        times=[[None, None]],
    ),
    Example(
        name="version 2: calls, times, and usage in every form",
        data=lines(
            run(
                SYSTEM,
                TASK,
                answer("Look.", "a", "b", usage=OPENAI, at=1_700_000_005.5, created=1_700_000_001),
                result("a", "kettle", 1_700_000_006.0),
                result("b", "stove ♨", 1_700_000_007.0),
                answer("", "c", usage=WITH_CACHE, at=1_700_000_010.0),
                result("c", "water", 1_700_000_011.0),
                answer("", "d", usage=WRITES_APART, at=1_700_000_012.0),
                result("d", "steam", 1_700_000_013.0),
                answer("", "e", usage=ALL_APART),
                {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
            )
        ),
        agent="mini-swe-agent",
        format="openai-chat",
        lengths=[[[2, 5, 7, 9]]],
        models=[["kettle-1"]],
        projects=["/kitchen"],
        inputs=[[100, 130, 130, 130]],
        times=[[1_700_000_001.0, 1_700_000_007.0, 1_700_000_011.0, 1_700_000_013.0]],
    ),
    Example(
        name="an answer that could not be parsed was a request all the same",
        data=lines(
            run(
                SYSTEM,
                TASK,
                complaint(response={"model": "kettle-2", "usage": OPENAI}),
                complaint(),
                answer("Look.", "a", usage={"prompt_tokens": 0}),
                complaint(n_actions=0),
            )
        ),
        agent="mini-swe-agent",
        format="openai-chat",
        lengths=[[[2, 3, 4]]],
        models=[["kettle-2", "hob/kettle", "kettle-1"]],
        inputs=[[100, None, None]],
    ),
    Example(
        name="broken and unknown messages in the middle, and an unanswered call",
        data=lines(
            run(
                SYSTEM,
                "nonsense",
                TASK,
                {"role": "bystander", "content": "Hello."},
                answer("Look.", "a"),
                {"role": "assistant", "content": "And?", "extra": "torn"},
                output("Well?", 1_700_000_000_000),
                answer("Done."),
                info=None,
            )
        ),
        agent="mini-swe-agent",
        format="openai-chat",
        lengths=[[[2, 4]]],
        models=[["kettle-1"]],
        times=[[None, 1_700_000_000.0]],
        skipped=[1, 1, 1],
        invalid=True,
    ),
    Example(
        name="models of the Responses API",
        data=lines(
            run(
                SYSTEM,
                TASK,
                {
                    "object": "response",
                    "model": "kettle-5",
                    "created_at": 1_700_000_000,
                    "output": [
                        item("reasoning", id="rs_1", summary=[], content=None),
                        item("function_call", id="fc_1", call_id="a", name="bash", arguments='{"command": "ls"}'),
                    ],
                    "usage": {
                        "input_tokens": 90,
                        "output_tokens": 9,
                        "input_tokens_details": {"cached_tokens": 80},
                        "output_tokens_details": {"reasoning_tokens": 4},
                    },
                    "extra": {"timestamp": 1_700_000_003},
                },
                {
                    "type": "function_call_output",
                    "call_id": "a",
                    "output": "kettle",
                    "extra": {"timestamp": 1_700_000_004},
                },
                {"object": "response", "output": [], "extra": {}},
            )
        ),
        agent="mini-swe-agent",
        format="openai-responses",
        lengths=[[[2, 5]]],
        models=[["kettle-5", "hob/kettle"]],
        inputs=[[90, None]],
        times=[[1_700_000_000.0, 1_700_000_004.0]],
    ),
    Example(
        name="runs one per line",
        ids=["one", "two"],
        data=lines(run(TASK, answer("One."), instance_id="one"), run(TASK, answer("Two."), instance_id="two")),
        agent="mini-swe-agent",
        format="openai-chat",
        lengths=[[[1]], [[1]]],
        projects=["one", "two"],
    ),
]
