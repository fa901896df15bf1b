"""Outputs that each context of a client received, with hints in the style of the rules."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from ..cache import DedupCache, Emission, OutputMemories, ResponsePipeline
from .rules import GatewayRules


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
MAX_KEPT_ARGUMENTS = 2**16
MAX_KEPT_ARGUMENT = 2**10


def kept_arguments(given: Any, size: int) -> Any:
    """Return the arguments to store until the response arrives. In large ones, long values become digests."""
    if size <= MAX_KEPT_ARGUMENTS:
        return given
    if isinstance(given, dict) and len(given) <= MAX_KEPT_ARGUMENT:
        return {key[:MAX_KEPT_ARGUMENT]: _short(value) for key, value in given.items()}
    return _short(given)


def _short(value: Any) -> Any:
    said = json.dumps(value)
    return value if len(said) <= MAX_KEPT_ARGUMENT else f"…{hashlib.sha256(said.encode()).hexdigest()[:12]}"


class Contexts:
    """Output memories by context. `emit` takes a tool result and returns the text to send."""

    def __init__(self, rules: GatewayRules, counted: str) -> None:
        self._rules = rules
        self._memories = OutputMemories(replace(rules.memory, counted=counted), MAX_CONTEXTS)
        self._pipelines: OrderedDict[Hashable, ResponsePipeline] = OrderedDict()

    def emit(self, call: ForwardedCall, body: str | None, now: float) -> Emission:
        """Return the text to send for a result. `body` is None if the result must not be changed.

        Such a result is still counted, and still invalidates what the rules of its tool declare.
        """
        rule = self._rules.of(call.tool)
        left = body is None or rule.never
        body = body or ""
        named = call.arguments.get(rule.path) if rule.path and isinstance(call.arguments, dict) else None
        path = named if isinstance(named, str) else None
        if self._rules.style == "devboy":
            pipeline, known = self._pipeline(call.context), "" if left else body
            done = pipeline.emit(call.id, call.tool, known, path=path, kind=rule.kind, invalidates=rule.invalidates)
            return Emission(body, "left") if left else done
        return self._memories.of(call.context).emit(
            call.tool,
            call.arguments,
            body,
            now=now,
            failed=left,
            path=path,
            kind=rule.kind,
            invalidates=rule.invalidates,
        )

    def take_back(self, call: ForwardedCall) -> None:
        """Undo the hint for this call, which was the last one: its output was sent in full."""
        self._memories.of(call.context).take_back()

    def forget(self) -> None:
        """Clear the memory of all contexts, so that the next results are sent in full."""
        self._memories.forget_where(lambda _: True)
        self._pipelines.clear()

    def _pipeline(self, context: Hashable) -> ResponsePipeline:
        found = self._pipelines.pop(context, None)
        if found is None:
            memory = self._rules.memory
            cache = DedupCache(memory.capacity)
            found = ResponsePipeline(cache, memory.min_bytes, memory.near, self._rules.verbosity)
            while len(self._pipelines) >= MAX_CONTEXTS:
                self._pipelines.popitem(last=False)
        self._pipelines[context] = found
        return found
