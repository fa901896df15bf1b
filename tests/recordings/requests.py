"""Request bodies, made up."""

from __future__ import annotations

import json
from typing import Any

from .examples import Example, lines

T0 = 1_700_000_000
A: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Was ist hier? 🦊"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
            {"type": "tool_use", "id": "c2", "name": "ls", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "a"},
            {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "ключ"}]},
        ],
    },
    {"role": "assistant", "content": "Two files."},
    {"role": "user", "content": "Thanks"},
]
C: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]


def a(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "model-a", "system": "Be brief.", "messages": list(messages), **more}


def marked(message: dict[str, Any]) -> dict[str, Any]:
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, "cache_control": {"type": "ephemeral"}}]}


EXAMPLES = [
    Example(
        name="a conversation that grows, with cache marks that move, and is rewound",
        data=lines(
            a(marked(A[0])),
            a(A[0], A[1], marked(A[2])),
            a(*A[:3]),
            a(*A, system=[{"type": "text", "text": "Be brief."}]),
            a(*A),
            a(*A[:2], {**A[2], "content": [*A[2]["content"], {"type": "text", "text": "Stop!"}]}),
            a(A[0]),
        ),
        agent="requests",
        format="anthropic",
        lengths=[[[1, 3, 3, 5], [3], [1]], [[5]]],
        causes=[["start", "rewind", "rewind"], ["start"]],
        models=[["model-a"], ["model-a"]],
    ),
    Example(
        name="two conversations mixed, in records with answers and times",
        data=lines(
            {
                "timestamp": T0,
                "request": {"model": "m", "messages": C[:2]},
                "response": {
                    "usage": {
                        "prompt_tokens": 100,
                        "completion_tokens": 5,
                        "prompt_tokens_details": {"cached_tokens": 64},
                    }
                },
            },
            {"timestamp": "2023-11-14T22:13:21Z", "request": {"body": {"model": "m", "messages": [C[0], C[3]]}}},
            {"timestamp": (T0 + 2) * 1000, "body": {"model": "m", "messages": C}, "usage": {"prompt_tokens": 120}},
            {"timestamp": T0 + 3, "event": "something else"},
        ),
        agent="requests",
        format="openai-chat",
        lengths=[[[2, 4]], [[2]]],
        inputs=[[100, 120], [None]],
        times=[[T0, T0 + 2], [T0 + 1]],
    ),
    Example(
        name="a body that stands alone tells of the requests before it",
        data=json.dumps(a(*A)).encode(),
        agent="requests",
        format="anthropic",
        lengths=[[[1, 3, 5]]],
        models=[["model-a"]],
    ),
    Example(
        name="usage in the words of Anthropic",
        data=json.dumps(
            {
                "request": a(A[0]),
                "response": {
                    "body": {
                        "usage": {
                            "input_tokens": 3,
                            "cache_read_input_tokens": 10,
                            "cache_creation_input_tokens": 100,
                            "cache_creation": {"ephemeral_1h_input_tokens": 40},
                            "output_tokens": 5,
                        }
                    }
                },
            }
        ).encode(),
        agent="requests",
        format="anthropic",
        lengths=[[[1]]],
        inputs=[[113]],
    ),
    Example(
        name="Responses: a text alone, then items; usage in its words",
        titles=["Hi"],
        data=lines(
            {"model": "m", "instructions": "x", "input": "Hi"},
            {
                "request": {
                    "model": "m",
                    "instructions": "x",
                    "input": [{"role": "user", "content": "Hi"}, {"type": "reasoning", "id": "r", "summary": []}],
                },
                "response": {
                    "usage": {
                        "input_tokens": 9,
                        "input_tokens_details": {"cached_tokens": 8},
                        "output_tokens": 5,
                        "output_tokens_details": {"reasoning_tokens": 2},
                    }
                },
            },
        ),
        agent="requests",
        format="openai-responses",
        lengths=[[[1, 2]]],
        inputs=[[None, 9]],
        invalid=True,
    ),
    Example(
        name="Gemini in one list of records",
        titles=["Hi"],
        data=json.dumps(
            [
                {
                    "request": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
                    "response": {
                        "usageMetadata": {
                            "promptTokenCount": 7,
                            "cachedContentTokenCount": 4,
                            "candidatesTokenCount": 2,
                            "thoughtsTokenCount": 1,
                        }
                    },
                }
            ]
        ).encode(),
        agent="requests",
        format="gemini",
        lengths=[[[1]]],
        inputs=[[7]],
    ),
    Example(
        name="bodies that cannot be used, one that could be of two formats, a call without an answer",
        data=lines(
            {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
            {"model": "m", "messages": "nonsense"},
            {"model": "m", "messages": [7]},
            {
                "model": "m",
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
                    },
                    {"role": "user", "content": "Go on"},
                ],
            },
        ),
        agent="requests",
        format="openai-chat",
        lengths=[[[1, 3]]],
        skipped=[2, 3],
        invalid=True,
    ),
]
