"""Recordings of our own proxy, made up."""

from __future__ import annotations

import json
from typing import Any

from ibidem.recordings.body_store import BodyWriter, RequestBodies

from .examples import Example, lines
from .requests import T0, A, C, a, marked

ID = "5b1f6a52-7a0c-4d0a-9f5e-0123456789ab"
USAGE = {"fresh": 3, "read": 10, "written": 100, "written_1h": 0, "output": 5, "reasoning": 0}


class Tape:
    """Rows as the proxy writes them."""

    def __init__(self, format: str = "anthropic", client: str = "some-sdk/1.0", session: str = ID) -> None:
        self._writer = BodyWriter()
        self._about = {"client": client, "session": session, "format": format, "path": "/v1/messages"}

    def row(self, at: int, came: Any, went: Any = None, status: int = 200, **more: Any) -> dict[str, Any]:
        body = came if isinstance(came, bytes) else json.dumps(came).encode()
        sent = body if went is None else json.dumps(went).encode()
        answer = {"text": f"event: message_start\ndata: {json.dumps({'message': {'id': f'msg_{at}'}})}\n\n"}
        row = {"ibidem_recording": 1, "at": T0 + at, "answered": T0 + at + 0.5, **self._about, "model": "named"}
        row |= {"status": status, "usage": USAGE if status == 200 else None, "answer": answer, "conversation": "r-c1"}
        return row | self._writer.encode_bodies(RequestBodies(body, sent)) | more


def growing() -> bytes:
    tape = Tape()
    return lines(
        tape.row(0, a(marked(A[0]))),
        tape.row(1, a(A[0], A[1], marked(A[2])), went=a(A[0], A[1], C[1])),
        tape.row(2, a(*A), status=529),
        tape.row(3, a(*A)),
        tape.row(4, a(*A[:3], system="Be long."), usage={**USAGE, "fresh": 5}),
    )


def of_an_agent() -> bytes:
    tape = Tape("openai-chat", "claude-cli/2.1.325", session="")
    bodies = [{"messages": C[:2]}, {"messages": C}]
    return lines(*(tape.row(at, body) for at, body in enumerate(bodies)))


def alone() -> bytes:
    tape = Tape("openai-responses")
    prompts = [{"model": "m", "input": "Hi"}, {"model": "m", "input": "Hi there"}]
    return lines(*(tape.row(at, body, conversation="") for at, body in enumerate(prompts)))


def broken() -> bytes:
    """The second line is gone, and the third builds on it. What is no JSON is told whole, and so is what follows."""
    tape = Tape()
    rows = [tape.row(0, a(A[0])), tape.row(1, a(*A[:3])), tape.row(2, a(*A)), tape.row(3, b"x" * 99)]
    again = Tape()
    rows += [again.row(4, a(*A)), again.row(5, {"messages": "nonsense"})]
    return lines(rows[0], rows[2], rows[3], rows[4], rows[5])


EXAMPLES = [
    Example(
        name="a conversation with cache marks that move, a rewritten request, an overload and a rewind",
        data=growing(),
        agent="ibidem-recording",
        format="anthropic",
        lengths=[[[1, 3, 5], [3]]],
        causes=[["start", "rewind"]],
        models=[["model-a"]],
        ids=[ID],
        titles=["Was ist hier? 🦊"],
        inputs=[[113, None, 113, 115]],
        times=[[T0, T0 + 1, T0 + 3, T0 + 4]],
    ),
    Example(
        name="a client that is an agent, and says nothing of its session",
        data=of_an_agent(),
        agent="claude-code",
        format="openai-chat",
        lengths=[[[2, 4]]],
        models=[["named"]],
        ids=["r-c1"],
        titles=["Hi"],
    ),
    Example(
        name="prompts that are part of no conversation are sessions of their own",
        data=alone(),
        agent="ibidem-recording",
        format="openai-responses",
        lengths=[[[1]], [[1]]],
        titles=["Hi", "Hi there"],
    ),
    Example(
        name="a line that is missing, and bodies that are none",
        data=broken(),
        agent="ibidem-recording",
        format="anthropic",
        lengths=[[[1, 5]]],
        skipped=[2, 3, 5],
    ),
]
