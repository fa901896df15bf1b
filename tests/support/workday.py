"""A day of work with an agent: conversations, loops of tools, and pauses that a clock of its own plays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal, NamedTuple

from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.proxy.accounting.bill import input_cost
from tests.support.proxied import Clock, Talk, dumped, text, waited_for

MODEL = "claude-sonnet-4-5"
Client = Literal["none", "5m", "1h"]
CLIENTS: tuple[Client, ...] = ("none", "5m", "1h")
MINUTE = 60.0


class Event(NamedTuple):
    """After so many seconds, one conversation goes on: the user speaks, a tool has answered, or many have."""

    after: float
    who: str
    what: Literal["speaks", "answers", "answers at once"]


def loop(who: str, count: int, seconds: float = 20.0) -> list[Event]:
    return [Event(seconds, who, "answers")] * count


def turn(after: float, who: str, count: int) -> list[Event]:
    """The user speaks, and the agent works."""
    return [Event(after, who, "speaks"), *loop(who, count)]


def day() -> list[Event]:
    """Two tasks at a time, pauses of 2, 20 and 90 minutes, an answer with thirty blocks, a lunch, a look in the evening
    at what was begun in the morning."""
    return [
        *turn(0, "importer", 8),
        *turn(2 * MINUTE, "importer", 5),
        *turn(20 * MINUTE, "importer", 4),
        *turn(30, "release notes", 3),
        Event(40, "importer", "answers at once"),
        *loop("importer", 4),
        *turn(8 * MINUTE, "release notes", 2),
        *turn(25 * MINUTE, "importer", 6),
        *turn(50 * MINUTE, "importer", 3),  # lunch
        *turn(2 * MINUTE, "flaky test", 9),
        *turn(20 * MINUTE, "flaky test", 7),
        *turn(90 * MINUTE, "flaky test", 4),
        Event(20, "flaky test", "answers at once"),
        *turn(12 * MINUTE, "flaky test", 3),
        *turn(5, "importer", 2),
        *turn(20 * MINUTE, "importer", 2),
    ]


TOOLS = [
    {"name": name, "description": f"{name}: {text(random.Random(name), 40)}", "input_schema": {"type": "object"}}
    for name in ("Read", "Edit", "Bash")
]
SYSTEM = text(random.Random("system"), 120)


@dataclass
class Task:
    """One conversation, as its client sends it."""

    name: str
    client: Client
    model: str = MODEL
    repeats: bool = False
    """Files are read again; else no text stands in it twice."""
    system: str = SYSTEM
    tools: list[Any] = field(default_factory=lambda: TOOLS)
    messages: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.name)
        self._files: list[str] = []

    def _read(self) -> str:
        if self.repeats and len(self._files) > 2 and self._rng.random() < 0.5:
            return self._rng.choice(self._files)
        self._files.append(text(self._rng, 30))
        return self._files[-1]

    def go_on(self, what: str) -> None:
        if what == "speaks":
            if self.messages:
                self.messages.append(_said("assistant", text(self._rng, 4)))
            self.messages.append(_said("user", f"{self.name}: {text(self._rng, 3)}"))
            return
        count = 15 if what == "answers at once" else 1
        calls = [f"call_{len(self.messages)}_{number}" for number in range(count)]
        uses = [{"type": "tool_use", "id": each, "name": "Read", "input": {"file_path": each}} for each in calls]
        results = [{"type": "tool_result", "tool_use_id": each, "content": self._read()} for each in calls]
        self.messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]

    @property
    def body(self) -> bytes:
        """With marks as agents set them: on the system text, and on the last two messages of the user."""
        system: dict[str, Any] = {"type": "text", "text": self.system}
        messages = json.loads(json.dumps(self.messages))
        if self.client != "none":
            mine = [message for message in messages if message["role"] == "user"]
            for block in (system, *(message["content"][-1] for message in mine[-2:])):
                block["cache_control"] = {"type": "ephemeral", **({"ttl": "1h"} if self.client == "1h" else {})}
        head = {"model": self.model, "max_tokens": 1000, "tools": self.tools, "system": [system]}
        return dumped({**head, "messages": messages})


def _said(role: str, said: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": said}]}


class SentTurn(NamedTuple):
    """One request of the day."""

    who: str
    at: float
    length: int
    came: bytes
    went: bytes
    usage: Usage

    @property
    def cost(self) -> float:
        return input_cost(self.usage, Prices().of(MODEL, "anthropic"))


def played(
    events: Sequence[Event], client: Client, proxies: Sequence[Talk], clock: Clock, tasks: dict[str, Task] | None = None
) -> list[SentTurn]:
    """The day goes through these proxies in turn. `tasks` are those of an earlier part of it."""
    tasks = {} if tasks is None else tasks
    found = []
    for event, proxy in zip(events, cycle(proxies)):
        clock.now += event.after
        task = tasks.setdefault(event.who, Task(event.who, client))
        task.go_on(event.what)
        body = task.body
        status, answer = proxy.send("anthropic", body)
        assert status == 200, answer
        waited_for(lambda: settled(proxies))
        went = proxy.upstream.seen[-1].body
        found.append(SentTurn(event.who, clock.now, len(task.messages), body, went, told(answer)))
    return found


def settled(proxies: Sequence[Talk]) -> bool:
    """What was learnt of an answer is noted, and all is written into the books."""
    over = (not any(row["active"] for row in each.state["conversations"]) for each in proxies)
    return all(over) and not any(each.service._background for each in proxies)  # which begins when it is over


def told(answer: bytes) -> Usage:
    """What the provider counted, by its own words."""
    usage = json.loads(answer)["usage"]
    return Usage(
        fresh=usage["input_tokens"],
        read=usage["cache_read_input_tokens"],
        written=usage["cache_creation"]["ephemeral_5m_input_tokens"],
        written_1h=usage["cache_creation"]["ephemeral_1h_input_tokens"],
    )


def costs(turns: Sequence[SentTurn], who: str | None = None) -> Iterator[float]:
    return (each.cost for each in turns if who in (None, each.who))
