"""Trajectories of SWE-agent that were made up."""

from __future__ import annotations

import json
from typing import Any

from ..recordings.examples import Example, lines

Json = dict[str, Any]

SYSTEM = {"role": "system", "content": "You fix bugs.", "agent": "main"}
TASK = {"role": "user", "content": "The bell rings twice.", "agent": "main"}


def act(thought: str, action: str) -> Json:
    return {"role": "assistant", "content": f"{thought}\n```\n{action}\n```", "thought": thought, "action": action}


def seen(text: Any) -> Json:
    return {"role": "user", "content": text, "agent": "main"}


def call(key: str, command: str) -> Json:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    calls = [{"id": key, "type": "function", "function": function}]
    return {"role": "assistant", "content": "", "thought": "", "action": command, "tool_calls": calls}


def result(key: str, text: str) -> Json:
    return {"role": "tool", "content": text, "tool_call_ids": [key], "message_type": "observation"}


def traj(*history: Any, **more: Any) -> Json:
    return {"environment": "main", "trajectory": [{"action": "ls"}], "history": list(history), "info": {}, **more}


CONFIG = {
    "agent": {"model": {"name": "gpt-4o"}},
    "problem_statement": {"id": "bells__bell-7", "text": "The bell rings twice."},
}

EXAMPLES = [
    Example(
        name="actions in the text become calls",
        data=lines(traj(SYSTEM, TASK, act("Look.", "ls"), seen("bell.py\n"), act("Done.", "submit"))),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[2, 4]]],
        models=[[]],
        projects=[""],
        inputs=[[None, None]],
        times=[[None, None]],
    ),
    Example(
        name="function calls, and a configuration that names model and task",
        ids=["bells__bell-7"],
        titles=["The bell rings twice."],
        data=lines(
            traj(
                SYSTEM,
                TASK,
                call("a", "ls"),
                result("a", "bell.py"),
                call("b", "cat bell.py"),
                result("b", "ring(); ring()"),
                {"role": "assistant", "content": "Fixed."},
                replay_config=CONFIG,
            )
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[2, 4, 6]]],
        models=[["gpt-4o"]],
        projects=["bells__bell-7"],
    ),
    Example(
        name="a configuration as text, of a replay that no model answered",
        data=lines(
            traj(
                TASK,
                act("Look.", "ls"),
                replay_config=json.dumps({**CONFIG, "agent": {"model": {"name": "replay"}}}),
            )
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[1]]],
        models=[[]],
        projects=["bells__bell-7"],
    ),
    Example(
        name="a demonstration is part of the prompt",
        titles=["The bell rings twice."],
        data=lines(
            traj(
                SYSTEM,
                {"role": "user", "content": "Here is how it is done.", "is_demo": True},
                {**act("Like this.", "ls"), "is_demo": True},
                {**seen("README"), "is_demo": True},
                TASK,
                act("Look.", "ls"),
                seen("bell.py"),
                act("Sûr.", "submit"),
            )
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[5, 7]]],
    ),
    Example(
        name="several attempts in one file",
        data=lines(
            {
                "attempts": [
                    traj(SYSTEM, TASK, act("Look.", "ls"), seen("bell.py")),
                    traj(SYSTEM, TASK, act("Ring.", "make ring"), seen("ding ding"), act("Once.", "make once")),
                    {"info": "never begun"},
                ],
                "replay_config": CONFIG,
            }
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[2]], [[2, 4]]],
        models=[["gpt-4o"], ["gpt-4o"]],
        projects=["bells__bell-7"] * 2,
    ),
    Example(
        name="broken messages in the middle, and content in parts",
        data=lines(
            traj(
                SYSTEM,
                None,
                {"role": "user", "content": [{"type": "text", "text": "鐘が二度鳴る。"}]},
                {"content": "of nobody"},
                call("a", "ls"),
                result("a", "bell.py"),
                {"role": "assistant", "content": "Hm.", "tool_calls": None, "action": ""},
                seen("No action was found."),
                act("Done.", "submit"),
                replay_config="{rubbish",
            )
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[2, 4, 6]]],
        skipped=[1, 1, 1],
    ),
    Example(
        name="a call whose result is broken, and one that is never answered",
        data=lines(
            traj(
                TASK,
                call("a", "ls"),
                {"role": "tool", "content": "bell.py", "tool_call_ids": []},
                call("b", "cat bell.py"),
                call("c", "make"),
            )
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[1, 2, 3]]],
        skipped=[1],
        invalid=True,
    ),
    Example(
        name="trajectories one per line",
        data=lines(
            traj(TASK, act("Look.", "ls")), traj(TASK, act("Look again.", "ls"), seen("bell.py"), act("!", "x"))
        ),
        agent="swe-agent",
        format="openai-chat",
        lengths=[[[1]], [[1, 3]]],
    ),
]
