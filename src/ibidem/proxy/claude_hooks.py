"""Hooks of Claude Code: replace a repeated tool output before the model sees it. Event in, response out.

The client reports each tool output (`PostToolUse`) and accepts another output of the same structure in its place. If
the context already has an equal output, it is replaced by one line that names the earlier call (see `ibidem.cache`).
A context is one agent of a session during one prompt. A user can rewind between prompts, and then the model no longer
sees earlier outputs. Calls of one turn run in parallel and are reported in any order, so hints count turns, whose ends
the client reports (`PostToolBatch`). Without these events, there are no hints.

Only outputs that the model certainly sees in full are replaced. The client shortens long outputs after the hook, except
those of Read. The response to an unknown event is empty, and the client continues as without Ibidem.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from ..cache import MemorySettings, OutputMemories
from ..cache.json_limits import has_too_many_values
from ..cache.outputs import MAX_SHOWN_CHARS
from ..model import utf8_size

HOOKS_PATH = "/ibidem/hooks/claude-code"
MAX_EVENT_BYTES = 32 * 2**20
"""Maximum bytes of an event. Larger ones are not read."""
MAX_SESSIONS = 4096
"""Maximum sessions that are stored as using this proxy."""
MAIN_AGENT = ""
OTHER_FORM = "\0"

CONTEXT_EVENTS = frozenset({"PreCompact", "PostCompact", "SessionStart", "SessionEnd"})
FOR_OTHERS = ("served_call", "caller_session_id")
"""Fields of an event that mean: the tool ran here for a session on another machine, whose model sees the output."""
_BASH_FIELDS = {"stdout", "stderr", "interrupted", "isImage", "noOutputExpected"}
"""Fields of Bash output that the client shows unchanged. Any other field means a different display."""


class ShownOutput(NamedTuple):
    """Tool output as the model sees it, and how to replace it."""

    text: str
    """Text that is equal only for outputs that look equal to the model (with the first line number, if lines are
    numbered). It starts with `OTHER_FORM` if and only if the model sees it in another form."""
    replace_text: Callable[[str], Any]
    """Function that returns the tool's output with a line in place of its text."""


def _read_output(answer: Any) -> ShownOutput | None:
    file = answer.get("file") if isinstance(answer, dict) and answer.get("type") == "text" else None
    if not isinstance(file, dict) or not isinstance(file.get("content"), str):
        return None
    return ShownOutput(
        f"{OTHER_FORM}{file.get('startLine')}\n{file['content']}",
        lambda line: _with_nested_line(answer, "file", "content", line),
    )


def _bash_output(answer: Any) -> ShownOutput | None:
    if not isinstance(answer, dict) or not set(answer) <= _BASH_FIELDS or not isinstance(answer.get("stdout"), str):
        return None
    if answer.get("stderr") or answer.get("interrupted") or answer.get("isImage"):
        return None
    return _plain_output(answer["stdout"], lambda line: {**answer, "stdout": line})


def _grep_output(answer: Any) -> ShownOutput | None:
    if not isinstance(answer, dict) or answer.get("mode") != "content" or not isinstance(answer.get("content"), str):
        return None
    # The model also sees the other fields, such as the limit of a search.
    about = json.dumps({key: value for key, value in answer.items() if key != "content"}, sort_keys=True)
    return _bounded_output(f"{OTHER_FORM}{about}\n{answer['content']}", lambda line: {**answer, "content": line})


def _mcp_output(answer: Any) -> ShownOutput | None:
    if isinstance(answer, str):
        return _plain_output(answer, lambda line: line)
    if not isinstance(answer, list) or not answer or not all(map(_is_text, answer)):
        return None
    texts = [each["text"] for each in answer]
    if len(texts) == 1:
        return _plain_output(texts[0], lambda line: [{"type": "text", "text": line}])
    return _bounded_output(OTHER_FORM + json.dumps(texts), lambda line: [{"type": "text", "text": line}])


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == {"type", "text"} and isinstance(block["text"], str)


def _plain_output(text: str, replaced: Callable[[str], Any]) -> ShownOutput | None:
    return None if text.startswith(OTHER_FORM) else _bounded_output(text, replaced)


def _bounded_output(text: str, replaced: Callable[[str], Any]) -> ShownOutput | None:
    return ShownOutput(text, replaced) if len(text) <= MAX_SHOWN_CHARS else None


def _with_nested_line(answer: Mapping[str, Any], outer: str, inner: str, line: str) -> dict[str, Any]:
    return {**answer, outer: {**answer[outer], inner: line}}


_OUTPUT_PARSERS: dict[str, Callable[[Any], ShownOutput | None]] = {
    "Read": _read_output,
    "Bash": _bash_output,
    "Grep": _grep_output,
}
MCP_PREFIX = "mcp__"


def parse_tool_output(tool: str, answer: Any) -> ShownOutput | None:
    """Return the output as the model sees it. None for other tools, and for unknown structures."""
    parse = _mcp_output if tool.startswith(MCP_PREFIX) else _OUTPUT_PARSERS.get(tool)
    return None if parse is None else parse(answer)


def parse_event(body: bytes) -> Any:
    """Parse an event. None if it is invalid or too large."""
    if len(body) > MAX_EVENT_BYTES or has_too_many_values(body):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class ToolHooks:
    """Handler for the events of all sessions. Not thread-safe."""

    def __init__(self, settings: MemorySettings | None = None) -> None:
        self._memories = OutputMemories(settings or MemorySettings(by_turn=True))
        self._prompts: OrderedDict[str, str] = OrderedDict()
        """Current prompt of the main agent, by session."""
        self._proxied: OrderedDict[str, None] = OrderedDict()
        self.outputs = self.repeats = self.bytes_saved = 0
        """Outputs compared, outputs replaced by a line, and bytes saved by that."""

    def note_proxied_session(self, session: str) -> None:
        """Stop replacing outputs of a session whose requests pass through the proxy, which saves more than a hook."""
        if session:
            if session not in self._proxied:  # its later events are ignored, so the memory would become outdated
                self._forget_session(session)
            _put_bounded(self._proxied, session, None)

    def clear_memory(self) -> None:
        """Clear the memory, because events were missed and the contexts may have changed."""
        self._memories.forget_where(lambda _: True)

    def handle_event(self, event: Any, now: float) -> dict[str, Any]:
        """Return the response to an event: empty, or the output to show in place of the tool's own."""
        if not isinstance(event, dict):
            return {}
        session, agent, name = (event.get(key) for key in ("session_id", "agent_id", "hook_event_name"))
        if not isinstance(session, str) or not isinstance(name, str) or session in self._proxied or not session:
            return {}
        if not isinstance(agent, str | None) or any(event.get(key) is not None for key in FOR_OTHERS):
            return {}
        agent = agent or MAIN_AGENT
        if name in CONTEXT_EVENTS:
            self._forget_session(session)
        elif name == "SubagentStop":
            self._memories.forget((session, agent))
        elif name == "PostToolBatch":
            self._memories.of((session, agent)).next_turn()
        elif name == "PostToolUse":
            self._check_prompt(session, agent, event.get("prompt_id"))
            return self._handle_output(event, (session, agent), now)
        return {}

    def _forget_session(self, session: str) -> None:
        self._memories.forget_where(lambda key: _session_in_key(key) == session)

    def _check_prompt(self, session: str, agent: str, prompt: Any) -> None:
        """Clear the main agent's memory if its prompt has changed, or may have (clients may omit the prompt id)."""
        if agent != MAIN_AGENT:
            return
        if not isinstance(prompt, str) or self._prompts.get(session, prompt) != prompt:
            self._memories.forget((session, agent))
        if isinstance(prompt, str):
            _put_bounded(self._prompts, session, prompt)

    def _handle_output(self, event: Mapping[str, Any], key: tuple[str, str], now: float) -> dict[str, Any]:
        memory, tool = self._memories.of(key), event.get("tool_name")
        tool = tool if isinstance(tool, str) else ""
        output = parse_tool_output(tool, event.get("tool_response"))
        if output is None:  # still record the call, because it may have changed a file
            memory.emit(tool, event.get("tool_input"), "", now=now, failed=True)
            return {}
        emission = memory.emit(tool, event.get("tool_input"), output.text, now=now)
        self.outputs += 1
        if emission.kind not in ("hint", "near"):
            return {}
        self.repeats += 1
        self.bytes_saved += utf8_size(output.text) - utf8_size(emission.text)
        updated = output.replace_text(emission.text)
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": updated}}


def _session_in_key(key: Hashable) -> Any:
    return key[0] if isinstance(key, tuple) else None


def _put_bounded(sessions: OrderedDict[str, Any], name: str, value: Any) -> None:
    sessions[name] = value
    sessions.move_to_end(name)
    while len(sessions) > MAX_SESSIONS:
        sessions.popitem(last=False)
