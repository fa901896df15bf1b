"""Outputs that each context of a client received, with hints in the style of the rules."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from ..cache import DedupCache, Emission, OutputMemories, ResponsePipeline
from .tool_rules import GatewayRules


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """`tools/call` request that waits for its response."""

    id: str
    tool: str
    arguments: Any
    context: Hashable
    """Context that gets the result; None if it gets no hints."""
    at: float
    """Time of the call, in seconds."""
    number: int = 0
    """Position among the calls of this connection, from 1."""


MAX_CONTEXTS = 16
"""Contexts per connection. The least recently used is evicted first."""
MAX_ARGUMENTS_CHARS = 2**16
MAX_ARGUMENT_CHARS = 2**10


def truncate_arguments(arguments: Any, size: int) -> Any:
    """Return the arguments to store until the response arrives. In large ones, long values become digests."""
    if size <= MAX_ARGUMENTS_CHARS:
        return arguments
    if isinstance(arguments, dict) and len(arguments) <= MAX_ARGUMENT_CHARS:
        return {key[:MAX_ARGUMENT_CHARS]: _digest_if_long(value) for key, value in arguments.items()}
    return _digest_if_long(arguments)


def _digest_if_long(value: Any) -> Any:
    value_json = json.dumps(value)
    return (
        value if len(value_json) <= MAX_ARGUMENT_CHARS else f"…{hashlib.sha256(value_json.encode()).hexdigest()[:12]}"
    )


class ContextOutputs:
    """Output memories by context. `emit` takes a tool result and returns the text to send."""

    def __init__(self, rules: GatewayRules, server: str) -> None:
        self._rules = rules
        self._memories = OutputMemories(replace(rules.memory, counted=server), MAX_CONTEXTS)
        self._pipelines: OrderedDict[Hashable, ResponsePipeline] = OrderedDict()

    def emit_output(self, call: ForwardedCall, body: str | None, now: float) -> Emission:
        """Return the text to send for a result. `body` is None if the result must not be changed.

        Such a result is still counted, and still invalidates what the rules of its tool declare.
        """
        rule = self._rules.rule_for(call.tool)
        is_untouchable = body is None or rule.never
        body = body or ""
        path_argument = call.arguments.get(rule.path) if rule.path and isinstance(call.arguments, dict) else None
        path = path_argument if isinstance(path_argument, str) else None
        if self._rules.style == "devboy":
            pipeline, output = self._pipeline_for(call.context), "" if is_untouchable else body
            emission = pipeline.emit(
                call.id, call.tool, output, path=path, kind=rule.kind, invalidates=rule.invalidates
            )
            return Emission(body, "left") if is_untouchable else emission
        return self._memories.of(call.context).emit(
            call.tool,
            call.arguments,
            body,
            now=now,
            failed=is_untouchable,
            path=path,
            kind=rule.kind,
            invalidates=rule.invalidates,
        )

    def undo_hint(self, call: ForwardedCall) -> None:
        """Undo the hint for this call, which was the last one: its output was sent in full."""
        self._memories.of(call.context).take_back()

    def clear_memory(self) -> None:
        """Clear the memory of all contexts, so that the next results are sent in full."""
        self._memories.forget_where(lambda _: True)
        self._pipelines.clear()

    def _pipeline_for(self, context: Hashable) -> ResponsePipeline:
        pipeline = self._pipelines.pop(context, None)
        if pipeline is None:
            memory = self._rules.memory
            cache = DedupCache(memory.capacity)
            pipeline = ResponsePipeline(cache, memory.min_bytes, memory.near, self._rules.verbosity)
            while len(self._pipelines) >= MAX_CONTEXTS:
                self._pipelines.popitem(last=False)
        self._pipelines[context] = pipeline
        return pipeline
