"""Logs of GitHub Copilot CLI, made up."""

from __future__ import annotations

from typing import Any

from .examples import Example, lines

T0 = 1_700_000_000


def event(second: int, kind: str, **data: Any) -> dict[str, Any]:
    minute, rest = divmod(20 + second, 60)
    return {
        "type": kind,
        "data": data,
        "id": f"e{second}",
        "parentId": None,
        "timestamp": f"2023-11-14T22:{13 + minute:02}:{rest:02}.000Z",
    }


def of(agent: str, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "agentId": agent}


def call(name: str, tool: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": name, "name": tool, "arguments": arguments, "type": "function"}


def answer(second: int, content: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event(second, "assistant.message", content=content, toolRequests=list(calls), outputTokens=7, **more)


def result(second: int, name: str, content: str = "done") -> dict[str, Any]:
    return event(second, "tool.execution_complete", toolCallId=name, success=True, result={"content": content})


START = event(0, "session.start", sessionId="s", context={"cwd": "/home/me/shop"})
MODEL = event(1, "session.model_change", newModel="model-a")
SYSTEM = event(2, "system.message", role="system", content="You help in a shell.")
USER = event(3, "user.message", content="What is in here?", transformedContent="<now>noon</now> What is in here?")

EXAMPLES = [
    Example(
        name="parallel calls, their results in another order, a notice in between",
        ids=["s"],
        titles=["What is in here?"],
        data=lines(
            START,
            MODEL,
            SYSTEM,
            USER,
            event(4, "assistant.turn_start", turnId="0"),
            answer(5, "", call("c1", command="ls"), call("c2", command="cat größe.txt"), model="model-b"),
            result(6, "c2", "42 µm"),
            event(7, "system.notification", content="A shell has ended."),
            event(
                8,
                "tool.execution_complete",
                toolCallId="c1",
                success=False,
                error={"message": "no such thing", "code": "x"},
            ),
            answer(9, "Two files 📁."),
            {**SYSTEM, "id": "again"},
            event(11, "user.message", content="Thanks"),
            answer(12, ""),
        ),
        agent="copilot-cli",
        format="openai-chat",
        lengths=[[[2, 6, 8]]],
        models=[["model-b", "model-a"]],
        projects=["/home/me/shop"],
        inputs=[[None, None, None]],
        times=[[T0 + 3, T0 + 8, T0 + 11]],
    ),
    Example(
        name="a compaction that ends while the agent goes on",
        data=lines(
            START,
            SYSTEM,
            USER,
            answer(4, "Looking.", call("c1")),
            result(5, "c1"),
            event(6, "session.compaction_start"),
            answer(7, "More.", call("c2")),
            event(8, "session.compaction_complete", success=True, summaryContent="We looked around."),
            result(9, "c2"),
            answer(10, "Done."),
            event(11, "session.compaction_start"),
            event(12, "session.compaction_complete", success=False, error="no"),
            event(13, "user.message", content="And now?"),
            answer(14, "Nothing."),
        ),
        agent="copilot-cli",
        format="openai-chat",
        lengths=[[[2, 4], [4, 6]]],
        causes=[["start", "compaction"]],
        models=[[]],
    ),
    Example(
        name="a context that the user cleared, and a changed system prompt",
        data=lines(
            SYSTEM,
            USER,
            answer(4, "Files."),
            event(5, "session.context_cleared", messagesCleared=2),
            event(6, "user.message", content="Something else"),
            answer(7, "Yes?"),
            event(8, "system.message", content="You help in another shell."),
            event(9, "user.message", content="Hello"),
            answer(10, "Hello."),
        ),
        agent="copilot-cli",
        format="openai-chat",
        lengths=[[[2], [2], [4]]],
        causes=[["start", "rewind", "rewind"]],
    ),
    Example(
        name="sub-agents: one with a prompt of its own, one known by its call only",
        data=lines(
            SYSTEM,
            USER,
            answer(4, "", call("t1", "task", prompt="Look for tests."), call("t2", "task", prompt="Look for docs.")),
            of("t1", event(5, "subagent.started", toolCallId="t1", agentName="explore")),
            of("t1", answer(6, "", call("s1"))),
            of("t1", result(7, "s1")),
            of("t1", answer(8, "No tests.")),
            of("a2", event(9, "user.message", content="Look for docs!")),
            of("a2", answer(10, "No docs.")),
            event(11, "tool.execution_complete", toolCallId="t1", result={"content": "No tests."}),
            event(12, "tool.execution_complete", toolCallId="t2", result={"content": "No docs."}),
            answer(13, "Neither."),
        ),
        agent="copilot-cli",
        format="openai-chat",
        lengths=[[[2, 5]], [[1, 3]], [[1]]],
    ),
    Example(
        name="malformed events, and a call that was never answered",
        data=lines(
            START,
            USER,
            answer(4, "", call("c1")),
            {"type": "assistant.message", "timestamp": "2023-11-14T22:13:25Z", "data": None},
            {"type": "user.message", "timestamp": "2023-11-14T22:13:25Z", "data": {"source": "?"}},
            event(6, "abort", reason="user_initiated"),
            event(7, "user.message", content="Go on"),
            answer(8, "I do."),
        ),
        agent="copilot-cli",
        format="openai-chat",
        lengths=[[[1, 3]]],
        skipped=[4, 5],
        invalid=True,
    ),
]
