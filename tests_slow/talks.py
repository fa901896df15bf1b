"""Conversations of agents that are made up, each with its name in it, so that whatever comes of one can be told."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ibidem.testing.scripts import Turn, build
from tests.support.proxied import mark

WORDS = ("buffer", "index", "value", "request", "session", "token", "render", "handler", "message", "offset", "cache")
LABEL = re.compile(r"conversation (\d+), turn (\d+)\.")
Calls = dict[str, tuple[str, dict[str, Any]]]


def label(number: int, turn: int) -> str:
    return f"conversation {number}, turn {turn}."


@dataclass(frozen=True)
class Way:
    """How an agent speaks to its provider."""

    format: str
    model: str
    path: str


WAYS = (
    Way("openai-chat", "gpt-4o", "/v1/chat/completions"),
    Way("anthropic", "claude-sonnet-4-5", "/v1/messages"),
)
"""The first is read from the cache at half the price, so that it pays early to change what was sent; the second at a
tenth, and thinks."""


@dataclass(frozen=True)
class AgentTalk:
    """An agent that reads large files, reads some of them again, changed or not, and is spoken to now and then."""

    number: int
    turns: int

    @property
    def way(self) -> Way:
        return WAYS[self.number % len(WAYS)]

    @property
    def hurries(self) -> bool:
        """Whether it goes on as soon as it is answered."""
        return self.number % 4 < 2

    def request(self, turn: int) -> bytes:
        """The first is 1."""
        turns, calls = self._whole
        body = build(turns[: 2 * turn - 1], self.way.format, calls)
        body["model"] = self.way.model
        body["stream"] = True
        if self.way.format == "anthropic":
            mark(body)
        else:
            body["stream_options"] = {"include_usage": True}
        return json.dumps(body, separators=(",", ":")).encode()

    @cached_property
    def _whole(self) -> tuple[list[Turn], Calls]:
        rng = random.Random(self.number)
        files: dict[str, str] = {}
        calls: Calls = {}
        found = [Turn("user", f"This is conversation {self.number}: clean it up.")]
        for turn in range(1, self.turns):
            said = label(self.number, turn)
            thought = f"I wonder about {' '.join(rng.choices(WORDS, k=60))}" if self.way.format == "anthropic" else None
            if turn % 9 == 0:
                found += [Turn("assistant", said, thought), Turn("user", f"Go on, {turn}.")]
                continue
            ident = f"call_{self.number}_{turn}"
            path, output = _read(rng, files, early=turn < self.turns // 2)
            calls[ident] = ("Read", {"file_path": path})
            found += [Turn("assistant", said, thought, [ident]), Turn("tool", results=[(ident, output)])]
        return found, calls


def _read(rng: random.Random, files: dict[str, str], early: bool) -> tuple[str, str]:
    """A file that is new, and large while it is early; one that is read again, or one that was changed since."""
    choice = rng.random()
    if not files or choice < 0.5:
        path, output = f"/src/{len(files)}.py", _text(rng, rng.randint(60, 110) if early else rng.randint(3, 9))
    elif choice < 0.75:
        path = rng.choice(list(files))
        output = files[path]
    else:
        path = rng.choice(list(files))
        lines = files[path].split("\n")
        lines[rng.randrange(len(lines))] = _text(rng, 1)
        output = "\n".join(lines)
    files[path] = output
    return path, output


def _text(rng: random.Random, lines: int) -> str:
    return "\n".join(
        f"    {rng.choice(WORDS)}_{rng.randrange(999)} = {' '.join(rng.choices(WORDS, k=4))}" for _ in range(lines)
    )
