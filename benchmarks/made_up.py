"""A session that grows request by request: time passes, a context fills, and each agent writes it down in its way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from .work import Project, Step, steps

CONTEXT_BYTES = 600_000
"""Where a context is compacted: 150,000 tokens."""
HEAD_TOKENS = 15_000
"""System prompt and tools."""
BYTES_PER_TOKEN = 4
LIFETIME = 300.0
"""Seconds for which a provider remembers."""
PROMPT_SHARE = 0.07
"""Of the steps that are followed by words of the user."""
PROMPTS = ("Make the tests pass.", "And the documentation?", "Rename it everywhere.", "Why is this slow?", "Go on.")

Json = dict[str, Any]


class Clock:
    """Time that passes while an agent works: seconds since the session began."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.now = 0.0

    def work(self) -> float:
        self.now += self._rng.uniform(2, 25)
        return self.now

    def pause(self) -> None:
        """The user reads, thinks, or is away."""
        self.now += self._rng.choice((20, 60, 150, 240, 400, 1500))


class Context:
    """What the model sees, in bytes, and what the provider counts for it."""

    def __init__(self) -> None:
        self.bytes = 0
        self._known, self._at = 0, -LIFETIME

    @property
    def full(self) -> bool:
        return self.bytes > CONTEXT_BYTES

    def restart(self) -> None:
        self.bytes, self._known = 0, 0

    def counted(self, at: float) -> tuple[int, int]:
        """Tokens that were read from the provider's cache, and others, for a request at this time."""
        total = HEAD_TOKENS + self.bytes // BYTES_PER_TOKEN
        read = self._known if at - self._at < LIFETIME else 0
        self._known, self._at = total, at
        return read, total - read


Row = tuple[float, Json]
"""When, in seconds since the beginning, and what."""


class Log:
    """Rows of one session, of about so many bytes; the agents differ in how they write down the same things."""

    def __init__(self, rng: random.Random, project: Project, session: str, size: int) -> None:
        self.rng, self.project, self.session, self.size = rng, project, session, size
        self.clock, self.context = Clock(rng), Context()
        self.rows: list[Row] = []
        self.bytes = 0
        self.begin()
        for step in self._worked():
            self.step(step)
        self.close()

    def _worked(self) -> Iterator[Step]:
        self.say(self.rng.choice(PROMPTS))
        for step in steps(self.project, self.rng):
            yield step
            if self.bytes >= self.size:
                return
            if self.context.full:
                self.context.restart()
                self.compact()
            elif self.rng.random() < PROMPT_SHARE:
                self.close()
                self.clock.pause()
                self.say(self.rng.choice(PROMPTS))

    def add(self, row: Json) -> None:
        self.rows.append((self.clock.now, row))

    def weigh(self, *texts: str) -> None:
        self.context.bytes += sum(map(len, texts))

    def begin(self) -> None:
        """What stands in front."""

    def say(self, words: str) -> None:
        """The user speaks."""
        raise NotImplementedError

    def step(self, step: Step) -> None:
        """The model calls a tool."""
        raise NotImplementedError

    def close(self) -> None:
        """The model says that it is done."""
        raise NotImplementedError

    def compact(self) -> None:
        """A summary takes the place of all that was said."""
        raise NotImplementedError

    def written(self, end: float) -> bytes:
        """The bytes of the file, if its last row is of that time."""
        start = end - self.clock.now
        found = [msgspec.json.encode({"timestamp": stamp(start + at), **row}) for at, row in self.rows]
        return b"\n".join(found) + b"\n"


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def identifier(rng: random.Random) -> str:
    found = f"{rng.getrandbits(128):032x}"
    return f"{found[:8]}-{found[8:12]}-4{found[13:16]}-8{found[17:20]}-{found[20:]}"
