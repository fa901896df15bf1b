"""Inside a peer's environment: sessions come in and what the peer sends instead goes out, one line of JSON each.

Only the standard library and the peer are imported here. A session comes with its histories and the lengths at which
they were sent. For every request in turn the peer gets a body of its own, as a client would make it, cache marks
included, and only the peer's own work is timed. What goes out says how the history that was sent differs from the
recorded one, and how that differs from turn to turn, so that a long session takes no more than what changed.

It is run by the peer's own Python as a module of this package, whose folder is forgotten before the peer is loaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import converted, libraries, proxied

Json = dict[str, Any]

UP = 1
"""IFF_UP."""


def main() -> None:
    settings = json.loads(sys.argv[1])
    limit = int(settings["memory"] * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if settings["isolated"]:
        switch_loopback_on()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a peer prints is no answer of ours
    door = opened(settings["door"], settings["options"])
    print(json.dumps({"ready": True}), file=out, flush=True)

    def ask(turn: Json) -> Json:
        print(json.dumps({"turn": turn}), file=out, flush=True)
        counted: Json = json.loads(sys.stdin.readline())
        return counted

    while line := sys.stdin.readline():
        try:
            answer = carried_through(door, json.loads(line), ask)
        except Exception as error:  # a session that a peer fails on is one that is sent as it came
            answer = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=out, flush=True)
    door.close()


def opened(name: str, options: Json) -> libraries.Door:
    """A door by its name."""
    module = next(each for each in (libraries, converted, proxied) if name in vars(each))
    door: libraries.Door = getattr(module, name)(**options)
    return door


def switch_loopback_on() -> None:
    """In a network of its own, where it is off at first."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some:
        fcntl.ioctl(some, 0x8914, struct.pack("16sh", b"lo", UP))  # SIOCSIFFLAGS


# ── one session ─────────────────────────────────────────────────────────────────────────────────────────────────────


def carried_through(door: libraries.Door, session: Json, ask: Callable[[Json], Json] | None = None) -> Json:
    """Every request of a session through the door of a peer, and what came out. A door that listens is told what the
    provider counts for each, if there is somebody to ask."""
    key, seconds, marks_lost = session["key"], 0.0, 0
    turns: list[Json] = []
    known: dict[int, Any] = {}
    segment = -1
    sent: Json = {}
    history: list[Any] = []
    door.begin(session)
    for request in session["requests"]:
        history = session["segments"][request["segment"]]["history"][: request["length"]]
        if request["segment"] != segment:
            segment, known = request["segment"], {}
        body = body_of(session, request, history)
        marks = count_marks(body)
        before = door.seconds()
        sent = door.send(body, request)
        seconds += door.seconds() - before
        marks_lost += count_marks(sent) < marks
        turn, known = told(history, sent[key], known)
        if head := changed_head(session, sent):
            turn["head"] = head
        turns.append(turn)
        if door.listens and ask is not None:
            door.counted = ask(turn)
    answer = {"seconds": seconds, "turns": turns, "marks_lost": marks_lost}
    changed, restored = restoration(door, history, sent, key)
    return {**answer, "changed_texts": changed, "restored_texts": restored}


def told(history: list[Any], sent: list[Any], known: dict[int, Any]) -> tuple[Json, dict[int, Any]]:
    """How the entries that were sent differ from the recorded ones, beyond what is known of it; and all of that."""
    if len(sent) != len(history):
        return {"whole": [unmarked(entry) for entry in sent]}, {}
    changes = {}
    for place, (ours, theirs) in enumerate(zip(history, sent, strict=True)):
        if ours != theirs and not same(ours, bare := unmarked(theirs)):
            changes[place] = bare
    new = {place: entry for place, entry in changes.items() if place not in known or known[place] != entry}
    return {"set": new, "unset": [place for place in known if place not in changes]}, changes


def changed_head(session: Json, sent: Json) -> Json:
    """What stands beside the history, where that is not as recorded."""
    head = {name: unmarked_deep(value) for name, value in sent.items() if name not in (session["key"], "model")}
    own = session["head"]
    return {} if all(in_blocks(head.get(name)) == in_blocks(own.get(name)) for name in {**head, **own}) else head


# ── bodies and their cache marks ────────────────────────────────────────────────────────────────────────────────────


def body_of(session: Json, request: Json, history: list[Any]) -> Json:
    """A request of its own, as it would come over the wire, with the marks that clients put on it."""
    body: Json = {**session["head"], session["key"]: history}
    if request["model"]:
        body["model"] = request["model"]
    body = json.loads(json.dumps(body))
    if request["marks"]:
        mark(body, request["marks"])
    return body


def mark(body: Json, control: Json) -> None:
    """System prompt, newest message, and the newest of the user before that: where Claude Code has them. Every text is
    a block, marked or not, or a message would be another one when its mark has moved on."""
    if body.get("system"):
        body["system"] = in_blocks(body["system"])
        body["system"][-1]["cache_control"] = control
    messages = body["messages"]
    for message in messages:
        message["content"] = in_blocks(message.get("content"))
    users = [message for message in messages[:-1] if message.get("role") == "user"]
    for message in [*users[-1:], *messages[-1:]]:
        if message["content"] and message["content"][-1].get("type") not in ("thinking", "redacted_thinking"):
            message["content"][-1]["cache_control"] = control


def count_marks(value: Any) -> int:
    """Cache marks anywhere in a request."""
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(count_marks, value.values()))
    return sum(map(count_marks, value)) if isinstance(value, list) else 0


def unmarked_deep(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked_deep(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmarked_deep(inner) for inner in value] if isinstance(value, list) else value


def unmarked(entry: Any) -> Any:
    """An entry of a history without cache marks; the very one that was given where it has none."""
    return unmarked_deep(entry) if count_marks(entry) else entry


def in_blocks(value: Any) -> Any:
    """A text as one block of text, as marks need it; anything else as it is."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def same(ours: Any, theirs: Any) -> bool:
    """Whether two entries say the same: a text is one block of text, as marks need it."""
    if ours == theirs:
        return True
    if not (isinstance(ours, dict) and isinstance(theirs, dict) and isinstance(ours.get("content"), str)):
        return False
    return bool({**ours, "content": [{"type": "text", "text": ours["content"]}]} == theirs)


# ── whether the original comes back ─────────────────────────────────────────────────────────────────────────────────


def restoration(door: libraries.Door, history: list[Any], sent: Json, key: str) -> tuple[int, int | None]:
    """How many texts of the last request are not as recorded, and how many of these the peer gives back; None where it
    has no way to ask for one."""
    if len(sent[key]) != len(history):
        return 1, None if door.recover("") is None else 0
    undone = door.undo(sent)
    changed = restored = 0
    asked = True
    for place, (ours, theirs) in enumerate(zip(history, sent[key], strict=True)):
        if ours == theirs or same(ours, bare := unmarked(theirs)):
            continue
        back = dict(texts(unmarked(undone[key][place]))) if undone is not None else {}
        there = dict(texts(bare))
        for path, text in texts(ours):
            if there.get(path) == text:
                continue
            changed += 1
            found = [back[path]] if path in back else door.recover(there.get(path, ""))
            asked = asked and found is not None
            restored += found is not None and gives_back(text, there.get(path, ""), found)
    return changed, restored if asked else None


def gives_back(text: str, sent: str, found: list[str]) -> bool:
    """Whether a text is there: as it was, as the same JSON, or every line of it."""
    if text in found:
        return True
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        for each in found:
            with contextlib.suppress(ValueError):
                if json.loads(each) == value:
                    return True
    lines = {line.strip() for each in (sent, *found) for line in each.splitlines()}
    return bool(found) and all(line.strip() in lines for line in text.splitlines())


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every string in a value, and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from texts(inner, (*path, place))
