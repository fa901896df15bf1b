"""The agent's side of a world: conversations that grow, fork, rewind and are compacted, each with its shadow.

The shadow of a conversation is what the same client would hold if it had talked to the provider directly: the same
messages, with thinking that is signed over the client's own messages instead of the ones that Ibidem sent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from ibidem.testing.clearing import since_compaction
from ibidem.testing.signing import signature_of
from tests.support.proxied import dumped, text

Message = dict[str, Any]

SIGNING_MODEL, DISGUISED_MODEL, PLAIN_MODEL = "claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-4-5"
"""A model known to sign thinking, one that signs it although its name does not say so, and one that does not think."""
CLEARING: dict[str, Any] = {"edits": [{"type": "clear_tool_uses_20250919"}]}
EARLY_CLEARING: dict[str, Any] = {
    "edits": [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 4},
            "keep": {"type": "tool_uses", "value": 2},
        }
    ]
}
COMPACTING: dict[str, Any] = {
    "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 2500}}]
}
NATIVE = (CLEARING, EARLY_CLEARING, COMPACTING)
"""Settings of the provider's own context management: one that clears nothing in a short conversation, one that clears
soon, and one that compacts."""
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Edit", "Bash")]


class Sent:
    """A request that the provider accepted: messages as the client has them, and as they were sent."""

    def __init__(self, came: list[Message], sent: list[Message], model: str, revisions: int) -> None:
        self.came, self.sent, self.model = came, sent, model
        self.revisions = revisions
        """Revisions of the branch up to here."""


@dataclass
class Family:
    """Conversations with a common beginning, which Ibidem may take for one another."""

    dropped: bool = False
    """Thinking of one of them was dropped by the last step."""


@dataclass
class Branch:
    """One history of the client."""

    name: str
    family: Family
    fields: dict[str, Any]
    real: list[Message] = field(default_factory=list)
    shadow: list[Message] = field(default_factory=list)
    session: str = ""
    """Name that the client sends with each request, if any."""
    accepted: list[Sent] = field(default_factory=list)
    """Requests of this branch and its ancestors that were accepted, newest last."""
    older: list[Sent] = field(default_factory=list)
    """Those from before the provider compacted the history. A rewind can go back there."""
    linear: bool = True
    """The next request continues the last accepted one."""
    impure: bool = False
    """Knowledge outside the history decides what is sent: a pause, a time-out, a rejection."""
    excused: bool = False
    """Such knowledge may be lost, so that a changed prefix is no fault."""
    revisions: int = 0
    """How often a change of what was sent was declared, or may have been made."""
    run: str = ""
    """Process that got the last accepted request."""
    conversation: dict[str, str] = field(default_factory=dict)
    """Ids of this conversation, by process."""
    cleared: frozenset[str] = frozenset()
    """Calls whose results the provider cleared when it gave its last response."""
    refused: bool = False
    """Refused for good: no more requests."""

    @property
    def body(self) -> dict[str, Any]:
        return {**self.fields, "messages": self.real}

    @property
    def request(self) -> bytes:
        return dumped(self.body)

    @property
    def shadow_body(self) -> dict[str, Any]:
        return {**self.fields, "messages": self.shadow}

    @property
    def has_answer(self) -> bool:
        """Whether the next request needs a new message first."""
        return bool(self.real) and self.real[-1]["role"] == "assistant"

    def say(self, message: Message) -> None:
        self.real.append(message)
        self.shadow.append(message)

    def hear(self, content: list[Any]) -> None:
        """Continue with a response. Its thinking gets the signature that a direct request would have got."""
        compacted = any(block["type"] == "compaction" for block in content)
        before = [] if compacted else since_compaction(self.shadow)
        signature = signature_of({**self.shadow_body, "messages": before})
        signed = [{**block, "signature": signature} if block["type"] == "thinking" else block for block in content]
        self.real.append({"role": "assistant", "content": content})
        self.shadow.append({"role": "assistant", "content": signed})
        if compacted:
            self.older = self.older + self.accepted
            self._begin_anew()

    def places(self) -> list[int]:
        """Lengths at which the history can be cut: behind a message of the user."""
        return [place for place, message in enumerate(self.real, 1) if message["role"] == "user"]

    def cut(self, length: int, added: str = "") -> None:
        """Keep so many messages, and put a text behind the last one."""
        del self.real[length:], self.shadow[length:]
        self.linear, self.cleared = False, frozenset()
        if added:
            last = self.real[-1]
            content = last["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            self.real[-1] = self.shadow[-1] = {**last, "content": [*blocks, {"type": "text", "text": added}]}

    def fork(self, name: str) -> Branch:
        return replace(
            self,
            name=name,
            fields=dict(self.fields),
            real=list(self.real),
            shadow=list(self.shadow),
            accepted=list(self.accepted),
            conversation={},
        )

    def compact(self, summary: str, kept: int) -> None:
        """Replace the history by a summary and its last turns, without their thinking."""
        start = max(1, len(self.real) - kept)
        start += self.real[start : start + 1] != [] and self.real[start]["role"] != "assistant"
        rest = [without_thinking(message) for message in self.real[start:]]
        self.real = [{"role": "user", "content": summary}, *rest]
        self.shadow = list(self.real)
        self.family, self.older = Family(), []
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing that was sent so far has to be sent the same way again."""
        self.accepted, self.linear, self.cleared = [], True, frozenset()
        self.impure = self.excused = False


def without_thinking(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": [block for block in content if "thinking" not in block["type"]]}


class Client:
    """Makes up what the user and the tools say."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.outputs: list[str] = []
        self.made = 0

    def branch(self, model: str) -> Branch:
        self.made += 1
        rng = self.rng
        fields: dict[str, Any] = {"model": model, "max_tokens": 99}
        if rng.random() < 0.5:
            fields["system"] = "You are careful. " * 3
        if rng.random() < 0.5:
            fields["tools"] = TOOLS
        if rng.random() < 0.5:
            fields["thinking"] = {"type": "adaptive"}
        session = f"session-{self.made}" if rng.random() < 0.3 else ""
        found = Branch(f"b{self.made}", Family(), fields, session=session)
        found.say({"role": "user", "content": f"make it work, {rng.randrange(3)}, {self.made}"})
        return found

    def subagent(self, parent: Branch) -> Branch:
        """A conversation of its own that starts as its parent did."""
        self.made += 1
        found = Branch(f"b{self.made}", parent.family, dict(parent.fields), session=parent.session)
        first = parent.real[0]
        if self.rng.random() < 0.5 and isinstance(first["content"], str):
            first = {**first, "content": [{"type": "text", "text": each} for each in (first["content"], "one part")]}
        found.say(first)
        return found

    def fork(self, parent: Branch) -> Branch:
        self.made += 1
        found = parent.fork(f"b{self.made}")
        found.cut(self.rng.choice(found.places()), f"another way, {self.made}")
        return found

    def go_on(self, branch: Branch) -> None:
        """The next message of a conversation, if it is the client's turn."""
        if not branch.has_answer:
            return
        calls = [block for block in branch.real[-1]["content"] if block["type"] == "tool_use"]
        blocks: list[dict[str, Any]] = [self._result(call) for call in calls]
        if not calls:
            branch.say({"role": "user", "content": f"go on, {len(branch.real)}"})
            return
        if self.rng.random() < 0.1:
            blocks.append({"type": "text", "text": f"and mind the tests, {len(branch.real)}"})
        branch.say({"role": "user", "content": blocks})

    def _result(self, call: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "tool_result", "tool_use_id": call["id"]}
        if call["name"] == "Edit":
            return {**found, "content": "The file was updated."}
        return {**found, "content": self.output()}

    def output(self) -> str:
        rng, drawn = self.rng, self.rng.random()
        if self.outputs and drawn < 0.3:
            return rng.choice(self.outputs)
        if self.outputs and drawn < 0.6:
            lines = rng.choice(self.outputs).splitlines()
            start = rng.randrange(max(1, len(lines) // 2))
            return "\n".join([*lines[start:], text(rng, 2)])
        if drawn < 0.75:
            return text(rng, rng.randint(1, 3))
        made = text(rng, rng.choice((12, 20, 45)))
        self.outputs.append(made)
        return made
