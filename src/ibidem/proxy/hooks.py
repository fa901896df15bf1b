"""Claude Code's hooks: what a tool gave, and what the client is to show the model in its place. Event in, answer out.

The client tells of each tool's output before the model sees it (`PostToolUse`), and takes another one if that has the
tool's own shape. So an output that this very context was just sent becomes one line that says which call gave it, see
`ibidem.cache`. A context is an agent of a session, for as long as one prompt lasts: a user who goes back to an earlier
point does so between prompts, and then the model no longer sees what was sent. Calls of one turn run at once and are
told of in any order, so lines count turns, whose ends the client tells (`PostToolBatch`); without that there are none.

Only what the model is surely shown in full is looked at. The client replaces long outputs by a preview after it has
asked us, all but those of Read. What is not understood is answered with nothing, and the client goes on as without us.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from ..cache import MemorySettings, OutputMemories
from ..cache.outputs import MAX_SHOWN_CHARS
from ..cache.parts import too_many_parts
from ..model import size

HOOKS_PATH = "/ibidem/hooks/claude-code"
MAX_EVENT_BYTES = 32 * 2**20
"""Bytes of an event; what is larger is not looked at."""
MAX_SESSIONS = 4096
"""Sessions of which it is remembered that their requests come through this proxy."""
MAIN_AGENT = ""
OTHERWISE = "\0"

COMPACTED = frozenset({"PreCompact", "PostCompact", "SessionStart", "SessionEnd"})
FOR_OTHERS = ("served_call", "caller_session_id")
"""Where one of these is said, a tool ran on this machine for a session elsewhere, whose model gets to see it."""
_BASH_FIELDS = {"stdout", "stderr", "interrupted", "isImage", "noOutputExpected"}
"""All there is where its output is text, and is shown as it is."""


class ShownOutput(NamedTuple):
    """What a model is shown of a tool's answer, and how the answer looks with a line in its place."""

    text: str
    """Equal only for outputs that are shown alike: with the number of its first line, where lines get numbers. What is
    not shown as it stands here begins with `OTHERWISE`, and nothing else does."""
    replaced: Callable[[str], Any]


def _read(answer: Any) -> ShownOutput | None:
    file = answer.get("file") if isinstance(answer, dict) and answer.get("type") == "text" else None
    if not isinstance(file, dict) or not isinstance(file.get("content"), str):
        return None
    return ShownOutput(
        f"{OTHERWISE}{file.get('startLine')}\n{file['content']}", lambda line: _with(answer, "file", "content", line)
    )


def _bash(answer: Any) -> ShownOutput | None:
    if not isinstance(answer, dict) or not set(answer) <= _BASH_FIELDS or not isinstance(answer.get("stdout"), str):
        return None
    if answer.get("stderr") or answer.get("interrupted") or answer.get("isImage"):
        return None
    return _plain(answer["stdout"], lambda line: {**answer, "stdout": line})


def _grep(answer: Any) -> ShownOutput | None:
    if not isinstance(answer, dict) or answer.get("mode") != "content" or not isinstance(answer.get("content"), str):
        return None
    # What is told beside the lines, such as where a search was cut off, is part of what is shown.
    about = json.dumps({key: value for key, value in answer.items() if key != "content"}, sort_keys=True)
    return _bounded(f"{OTHERWISE}{about}\n{answer['content']}", lambda line: {**answer, "content": line})


def _mcp(answer: Any) -> ShownOutput | None:
    if isinstance(answer, str):
        return _plain(answer, lambda line: line)
    if not isinstance(answer, list) or not answer or not all(map(_is_text, answer)):
        return None
    texts = [each["text"] for each in answer]
    if len(texts) == 1:
        return _plain(texts[0], lambda line: [{"type": "text", "text": line}])
    return _bounded(OTHERWISE + json.dumps(texts), lambda line: [{"type": "text", "text": line}])


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == {"type", "text"} and isinstance(block["text"], str)


def _plain(text: str, replaced: Callable[[str], Any]) -> ShownOutput | None:
    return None if text.startswith(OTHERWISE) else _bounded(text, replaced)


def _bounded(text: str, replaced: Callable[[str], Any]) -> ShownOutput | None:
    return ShownOutput(text, replaced) if len(text) <= MAX_SHOWN_CHARS else None


def _with(answer: Mapping[str, Any], outer: str, inner: str, line: str) -> dict[str, Any]:
    return {**answer, outer: {**answer[outer], inner: line}}


_SHAPES: dict[str, Callable[[Any], ShownOutput | None]] = {"Read": _read, "Bash": _bash, "Grep": _grep}
MCP_PREFIX = "mcp__"


def shown_output(tool: str, answer: Any) -> ShownOutput | None:
    """None for a tool whose answers are left alone, or an answer of a shape that is not known."""
    shape = _mcp if tool.startswith(MCP_PREFIX) else _SHAPES.get(tool)
    return None if shape is None else shape(answer)


def parse_event(body: bytes) -> Any:
    """None for what is no event, or too much of one."""
    if len(body) > MAX_EVENT_BYTES or too_many_parts(body):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class ToolHooks:
    """Answers the events of all sessions. Not for several threads at once."""

    def __init__(self, settings: MemorySettings | None = None) -> None:
        self._memories = OutputMemories(settings or MemorySettings(by_turn=True))
        self._prompts: OrderedDict[str, str] = OrderedDict()
        """By session: the prompt that its main agent works on."""
        self._proxied: OrderedDict[str, None] = OrderedDict()
        self.outputs = self.repeats = self.bytes_saved = 0
        """Outputs that were looked at; those of them that were replaced by a line; and what that took off."""

    def request_came(self, session: str) -> None:
        """A request of this session came through the proxy, which sees all of it and does better than a hook."""
        if session:
            if session not in self._proxied:  # from here on nothing is heard of it, so what is known gets old
                self._forget_session(session)
            _put(self._proxied, session, None)

    def forget(self) -> None:
        """Events went by unheard: what any context still shows is not known."""
        self._memories.forget_where(lambda _: True)

    def answer(self, event: Any, now: float) -> dict[str, Any]:
        """What the client is told: nothing, or the output that takes the place of a tool's own."""
        if not isinstance(event, dict):
            return {}
        session, agent, name = (event.get(key) for key in ("session_id", "agent_id", "hook_event_name"))
        if not isinstance(session, str) or not isinstance(name, str) or session in self._proxied or not session:
            return {}
        if not isinstance(agent, str | None) or any(event.get(key) is not None for key in FOR_OTHERS):
            return {}
        agent = agent or MAIN_AGENT
        if name in COMPACTED:
            self._forget_session(session)
        elif name == "SubagentStop":
            self._memories.forget((session, agent))
        elif name == "PostToolBatch":
            self._memories.of((session, agent)).next_turn()
        elif name == "PostToolUse":
            self._mind_prompt(session, agent, event.get("prompt_id"))
            return self._tool(event, (session, agent), now)
        return {}

    def _forget_session(self, session: str) -> None:
        self._memories.forget_where(lambda key: _session(key) == session)

    def _mind_prompt(self, session: str, agent: str, prompt: Any) -> None:
        """One that is not told may be any: clients may leave it out."""
        if agent != MAIN_AGENT:
            return
        if not isinstance(prompt, str) or self._prompts.get(session, prompt) != prompt:
            self._memories.forget((session, agent))
        if isinstance(prompt, str):
            _put(self._prompts, session, prompt)

    def _tool(self, event: Mapping[str, Any], key: tuple[str, str], now: float) -> dict[str, Any]:
        memory, tool = self._memories.of(key), event.get("tool_name")
        tool = tool if isinstance(tool, str) else ""
        shown = shown_output(tool, event.get("tool_response"))
        if shown is None:  # a file may have changed all the same
            memory.emit(tool, event.get("tool_input"), "", now=now, failed=True)
            return {}
        emission = memory.emit(tool, event.get("tool_input"), shown.text, now=now)
        self.outputs += 1
        if emission.kind not in ("hint", "near"):
            return {}
        self.repeats += 1
        self.bytes_saved += size(shown.text) - size(emission.text)
        updated = shown.replaced(emission.text)
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": updated}}


def _session(key: Hashable) -> Any:
    return key[0] if isinstance(key, tuple) else None


def _put(known: OrderedDict[str, Any], name: str, value: Any) -> None:
    known[name] = value
    known.move_to_end(name)
    while len(known) > MAX_SESSIONS:
        known.popitem(last=False)
