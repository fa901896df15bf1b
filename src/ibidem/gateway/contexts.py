"""What each context of a client was sent, in the style that the rules ask for."""

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
    """A `tools/call` on its way."""

    id: str
    tool: str
    arguments: Any
    context: Hashable
    """None for one that gets no hints."""
    at: float
    number: int = 0
    """How many calls were made before it."""


MAX_CONTEXTS = 16
"""Of one connection; the one least recently used is forgotten first."""
MAX_KEPT_ARGUMENTS = 2**16
MAX_KEPT_ARGUMENT = 2**10


def kept_arguments(given: Any, size: int) -> Any:
    """Arguments as they are kept until the answer comes: of large ones, what is long is kept as a digest."""
    if size <= MAX_KEPT_ARGUMENTS:
        return given
    if isinstance(given, dict) and len(given) <= MAX_KEPT_ARGUMENT:
        return {key[:MAX_KEPT_ARGUMENT]: _short(value) for key, value in given.items()}
    return _short(given)


def _short(value: Any) -> Any:
    said = json.dumps(value)
    return value if len(said) <= MAX_KEPT_ARGUMENT else f"…{hashlib.sha256(said.encode()).hexdigest()[:12]}"


class Contexts:
    """One tool result in, the text to send out: by the rules, and only ever about what this context was sent."""

    def __init__(self, rules: GatewayRules, counted: str) -> None:
        self._rules = rules
        self._memories = OutputMemories(replace(rules.memory, counted=counted), MAX_CONTEXTS)
        self._pipelines: OrderedDict[Hashable, ResponsePipeline] = OrderedDict()

    def emit(self, call: ForwardedCall, body: str | None, now: float) -> Emission:
        """None is for what is not ours to touch: it counts, and makes obsolete what it makes obsolete."""
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
