"""Conversations of tau-bench and tau2 that were made up."""

from __future__ import annotations

import json
from typing import Any

from ..recordings.examples import Example, lines

Json = dict[str, Any]

POLICY = {"role": "system", "content": "Sell tickets."}
GREETING = {"role": "assistant", "content": "How can I help?", "tool_calls": None, "turn_idx": 0}


def wire(key: str, name: str = "find") -> Json:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps({"to": "Zürich"})}}


def call(key: str, requestor: str = "assistant") -> Json:
    return {"id": key, "name": "find", "arguments": {"to": "Zürich"}, "requestor": requestor}


def said(role: str, text: str | None, **more: Any) -> Json:
    return {"role": role, "content": text, **more}


def result(key: str, text: str, requestor: str = "assistant", **more: Any) -> Json:
    return {"role": "tool", "id": key, "content": text, "requestor": requestor, "error": False, **more}


def simulation(*messages: Any, **more: Any) -> Json:
    return {"id": "s", "task_id": "4", "trial": 0, "messages": list(messages), **more}


def results(*simulations: Any, **info: Any) -> Json:
    known = {"agent_info": {"llm": "clerk-1"}, "environment_info": {"domain_name": "railway"}}
    return {"info": {**known, **info}, "tasks": [], "simulations": list(simulations)}


EXAMPLES = [
    Example(
        name="tau-bench: a list of conversations",
        ids=["0", "1"],
        titles=["To Zürich, please.", "Hello?"],
        data=json.dumps(
            [
                {
                    "task_id": 0,
                    "trial": 1,
                    "reward": 1.0,
                    "traj": [
                        POLICY,
                        said("user", "To Zürich, please."),
                        said("assistant", None, tool_calls=[wire("a"), wire("b", "price")]),
                        {"role": "tool", "tool_call_id": "a", "name": "find", "content": "09:00"},
                        {"role": "tool", "tool_call_id": "b", "name": "price", "content": "12"},
                        said("assistant", "At nine, for 12."),
                        said("user", "###STOP###"),
                    ],
                },
                {"task_id": 1, "trial": 1, "traj": [POLICY, said("user", "Hello?"), said("assistant", "Hello.")]},
                7,
                {"task_id": 2, "trial": 1, "traj": [POLICY, said("user", "Nobody answers.")]},
            ]
        ).encode(),
        agent="tau-bench",
        format="openai-chat",
        lengths=[[[2, 5]], [[2]]],
        models=[[], []],
        projects=["", ""],
        inputs=[[None, None], [None]],
        times=[[None, None], [None]],
        skipped=[3],
    ),
    Example(
        name="tau2: what the user calls is not in the context",
        data=lines(
            results(
                simulation(
                    GREETING,
                    said("user", "It is dark.", timestamp="2025-06-01T10:00:00Z"),
                    said("assistant", "Press the switch.", timestamp="2025-06-01T10:00:02Z"),
                    said("user", None, tool_calls=[call("u", "user")], timestamp="2025-06-01T10:00:03Z"),
                    result("u", "click", "user", timestamp="2025-06-01T10:00:04Z"),
                    said("user", "It is bright.", timestamp="2025-06-01T10:00:05Z"),
                    said("assistant", None, tool_calls=[call("a")], timestamp="2025-06-01T10:00:07Z"),
                    result("a", "closed", timestamp="2025-06-01T10:00:08Z"),
                    said("assistant", "Good bye."),
                ),
                simulation(GREETING, said("user", "Hm."), said("assistant", "Yes?"), trial=1),
            )
        ),
        agent="tau-bench",
        format="openai-chat",
        lengths=[[[2, 4, 6]], [[2]]],
        models=[["clerk-1"], ["clerk-1"]],
        projects=["railway", "railway"],
        times=[[1_748_772_000.0, 1_748_772_005.0, 1_748_772_008.0], [None]],
    ),
    Example(
        name="tau2: usage, of the response where it was kept",
        ids=["s"],
        titles=["One way."],
        data=lines(
            results(
                simulation(
                    said("user", "One way."),
                    said("assistant", "Where to?", usage={"prompt_tokens": 70, "completion_tokens": 3}),
                    said("user", "Bern."),
                    said(
                        "assistant",
                        "Done.",
                        usage={"prompt_tokens": 80, "completion_tokens": 2},
                        raw_data={
                            "model": "clerk-2",
                            "usage": {"prompt_tokens": 80, "prompt_tokens_details": {"cached_tokens": 64}},
                        },
                    ),
                )
            )
        ),
        agent="tau-bench",
        format="openai-chat",
        lengths=[[[1, 3]]],
        models=[["clerk-1", "clerk-2"]],
        inputs=[[70, 80]],
    ),
    Example(
        name="tau2: results that came together, and a broken message and simulation in the middle",
        data=lines(
            results(
                simulation(
                    said("user", "Two tickets."),
                    said("assistant", None, tool_calls=[call("a"), call("b")]),
                    {"role": "tool", "tool_messages": [result("a", "1A"), result("b", "1B"), result("u", "!", "user")]},
                    ["torn"],
                    {"content": "of nobody"},
                    said("assistant", "1A and 1B."),
                ),
                {"id": "broken"},
                None,
                simulation(said("user", "Hello."), said("assistant", "Hello."), trial=None, usage=3),
                agent_info="torn",
            )
        ),
        agent="tau-bench",
        format="openai-chat",
        lengths=[[[1, 4]], [[1]]],
        models=[[], []],
        skipped=[1, 1, 1, 1, 1],
    ),
    Example(
        name="tau2: a file for one simulation, with a call that is never answered",
        data=lines(
            simulation(
                said("user", "Lost property?"),
                said("assistant", None, tool_calls=[call("a")]),
                said("user", "Are you there?"),
                said("assistant", "Yes."),
            )
        ),
        agent="tau-bench",
        format="openai-chat",
        lengths=[[[1, 3]]],
        invalid=True,
    ),
]
