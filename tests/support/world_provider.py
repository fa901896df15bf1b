"""The provider of a world: it signs thinking, speaks by a fixed script, and fails requests when it is told to."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

from ibidem.engine.pipeline import validate
from ibidem.testing import Answer, Calls, Clearing, Fails, Says, Seen, Signing, Slow, Thinks
from ibidem.testing.clearing import PLACEHOLDER, since_compaction
from ibidem.testing.signing import REFUSAL, has_valid_thinking
from tests.support.world_client import PLAIN_MODEL

REQUEST_HEADER, RUN_HEADER = "x-world-request", "x-world-run"
"""Which request of the client, and which process of a proxy: sent by the client and passed on by Ibidem."""
UNRELATED = "max_tokens: not this time"
VANISHING_SECONDS = 20.0


class UpstreamRequest(NamedTuple):
    """One body that the provider got."""

    body: bytes
    status: int
    """0 if it was not answered."""
    message: str

    @property
    def is_rejected(self) -> bool:
        """Whether thinking did not fit."""
        return self.status == 400 and self.message == REFUSAL


class Provider:
    """A script for `Upstream`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._plain, thinking = Clearing(self.speak), Clearing(self._think)
        self._signing = Signing(thinking)
        self._clearings = (self._plain, thinking)
        self.cleared: dict[str, frozenset[str]] = {}
        """Calls whose results were cleared, by number of the request."""
        self.failures: dict[str, Answer] = {}
        """Failures of all bodies of a request, by its number."""
        self.slow: set[str] = set()
        """Requests whose response does not come before the client has gone."""
        self.waiting: set[str] = set()
        """Of these, the ones that wait."""
        self.dead: set[str] = set()
        """Processes that were killed: what they send is not from them."""

    def __call__(self, seen: Seen) -> Answer:
        request, run = (seen.header(name) or "" for name in (REQUEST_HEADER, RUN_HEADER))
        if run in self.dead:
            return Fails(503, message="sent by a process that was killed")
        if request in self.failures:
            return self.failures[request]
        answer = self._plain(seen) if seen.json["model"] == PLAIN_MODEL else self._signing(seen)
        if answer.status == 200:
            self.cleared[request] = self._cleared_now()
        if request not in self.slow or answer.status != 200:
            return answer
        self.waiting.add(request)
        return Slow(answer, wait=VANISHING_SECONDS)

    def _cleared_now(self) -> frozenset[str]:
        """Take note of the request that the model saw last."""
        views = [each.seen_by_model.pop() for each in self._clearings if each.seen_by_model]
        contents = [message["content"] for view in views for message in view if isinstance(message["content"], list)]
        blocks = [block for content in contents for block in content if block.get("content") == PLACEHOLDER]
        return frozenset(block["tool_use_id"] for block in blocks)

    def _rng(self, seen: Seen) -> random.Random:
        messages = seen.json["messages"]
        return random.Random(f"{self._seed} {len(messages)} {str(messages[0])[:60]}")

    def _think(self, seen: Seen) -> Answer:
        answer = self.speak(seen)
        thought = f"step {len(seen.json['messages'])}, which takes some thought"
        return answer if self._rng(seen).random() < 0.1 else Thinks(thought, answer)

    def speak(self, seen: Seen) -> Answer:
        """What the model says after it has thought."""
        rng, turn = self._rng(seen), len(seen.json["messages"])
        rng.random()
        kind, path = rng.random(), f"/src/{rng.randrange(4)}.py"
        if kind < 0.12:
            return Says(f"That is done, {turn}.")
        if kind < 0.25:
            return Calls(("Edit", {"file_path": path, "old_string": f"a_{turn}", "new_string": f"b_{turn}"}))
        first = ("Read", {"file_path": path})
        if kind < 0.4:
            return Calls(first, ("Bash", {"command": f"grep -n {turn} {path}"}), says=f"I look, {turn}.")
        return Calls(first, says=f"I look at it, {turn}." if rng.random() < 0.5 else None)


def accepts(shadow: dict[str, Any]) -> bool:
    """Whether a provider that the client talked to directly would accept a request."""
    signs = shadow["model"] != PLAIN_MODEL
    seen = {**shadow, "messages": since_compaction(shadow["messages"])}
    return not validate(shadow, format="anthropic") and (not signs or has_valid_thinking(seen))


def upstream_request(seen: Seen) -> UpstreamRequest:
    answer = seen.answer
    if not answer:
        return UpstreamRequest(seen.body, 0, "")
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    message = "" if status < 400 else str(json.loads(body)["error"]["message"])
    return UpstreamRequest(seen.body, status, message)
