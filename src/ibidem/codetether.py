"""The context strategies of codetether-agent, exact, on its own message format.

>>> from ibidem.codetether import apply_all
>>> stats = apply_all(messages)               # changes the list in place
>>> stats.dedup_hits, stats.snippet_hits, stats.total_bytes_saved

A message is `{"role": ..., "content": [part, ...]}` with parts of type `text`, `image`, `file`, `tool_call`,
`tool_result` and `thinking`. For requests of a provider, use `ibidem.compact(request, profile="codetether")`.
docs/profiles.md has the original names, and the deviations of provider formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from . import formats
from .engine.pipeline import log, plan_all
from .engine.stats import DEDUP_LABELS
from .errors import UsageError
from .plan import Edit, Plan
from .strategies.ported import Dedup, DedupToolCalls, DropMiddle, Lingua, PruneThinking, Snippet
from .strategies.profiles import PROFILES
from .strategies.repair import RepairPairing
from .strategies.strategy import ConversationStart, Strategy

__all__ = [
    "HEAD_BYTES",
    "KEEP_LAST_MESSAGES",
    "MIN_COLLAPSE_BYTES",
    "MIN_DEDUP_BYTES",
    "ORDERS",
    "RECENCY_WINDOW",
    "RECENT_MESSAGES",
    "SINK_MESSAGES",
    "SNIPPET_THRESHOLD_BYTES",
    "STREAM_MIN_MESSAGES",
    "TAIL_BYTES",
    "ExperimentalStats",
    "apply_all",
    "collapse_duplicate_calls",
    "dedup_tool_outputs",
    "prune_low_entropy",
    "prune_thinking",
    "repair_orphans",
    "snippet_stale_tool_outputs",
    "trim_middle",
]

_DEDUP, _SNIPPET, _LINGUA, _THINKING = Dedup(), Snippet(heed_markers=True), Lingua(), PruneThinking()
_CALLS, _MIDDLE, _PAIRING = DedupToolCalls(), DropMiddle(), RepairPairing(by_place=False)

MIN_DEDUP_BYTES: Final = _DEDUP.min_bytes
RECENCY_WINDOW: Final = _SNIPPET.window
SNIPPET_THRESHOLD_BYTES: Final = _SNIPPET.min_bytes
HEAD_BYTES: Final = _SNIPPET.head
TAIL_BYTES: Final = _SNIPPET.tail
KEEP_LAST_MESSAGES: Final = {
    "prune_low_entropy": _LINGUA.window,
    "prune_thinking": _THINKING.window,
    "collapse_duplicate_calls": _CALLS.window,
}
"""The constant of this name in three of the original's modules, by the function that it belongs to."""
MIN_COLLAPSE_BYTES: Final = _CALLS.min_bytes
SINK_MESSAGES: Final = _MIDDLE.sinks
RECENT_MESSAGES: Final = _MIDDLE.window
STREAM_MIN_MESSAGES: Final = _MIDDLE.min_messages

Order = Literal["seed", "4.6.0", "4.6.1"]
ORDERS: Final[dict[Order, tuple[Strategy, ...]]] = {
    "seed": PROFILES["codetether"],
    "4.6.0": PROFILES["codetether-all"],
    "4.6.1": (_THINKING, Dedup(window=RECENCY_WINDOW), _LINGUA, _PAIRING),
}
"""Passes of `apply_all` by release. From 4.6.1 on, results in the last messages are not deduplicated."""


@dataclass(frozen=True, slots=True)
class ExperimentalStats:
    """Counts of one run."""

    dedup_hits: int = 0
    """Results and arguments replaced by a reference."""
    snippet_hits: int = 0
    """Results cut, texts cleaned, messages that lost thinking, trims, and messages added or removed by pairing."""
    total_bytes_saved: int = 0
    """Sum over all edits of the bytes removed. An edit that grows its text counts 0."""


def apply_all(messages: list[Any], *, order: Order = "seed") -> ExperimentalStats:
    """Run the strategies of a release on `messages`, in place. Raises UsageError for an unknown `order`."""
    if order not in ORDERS:
        raise UsageError(f"order: {order!r} is unknown. Use one of {', '.join(map(repr, ORDERS))}.")
    stats = _apply_strategies(messages, ORDERS[order])
    if stats.total_bytes_saved:
        log.info(
            "experimental context strategies applied: dedup_hits=%d snippet_hits=%d bytes_saved=%d",
            stats.dedup_hits,
            stats.snippet_hits,
            stats.total_bytes_saved,
        )
    return stats


def prune_thinking(messages: list[Any]) -> ExperimentalStats:
    """Remove thinking from assistant messages before the last four, and such messages without parts."""
    return _apply_strategies(messages, (_THINKING,))


def dedup_tool_outputs(messages: list[Any]) -> ExperimentalStats:
    """Replace each later copy of a tool result of 256 bytes or more with a marker that names the first call."""
    return _apply_strategies(messages, (_DEDUP,))


def prune_low_entropy(messages: list[Any]) -> ExperimentalStats:
    """Shorten runs of spaces and of noise lines in assistant text before the last six messages."""
    return _apply_strategies(messages, (_LINGUA,))


def snippet_stale_tool_outputs(messages: list[Any]) -> ExperimentalStats:
    """Elide the middle of tool results of 4096 bytes or more before the last eight messages."""
    return _apply_strategies(messages, (_SNIPPET,))


def collapse_duplicate_calls(messages: list[Any]) -> ExperimentalStats:
    """Replace the arguments of each later copy of a call before the last eight messages."""
    return _apply_strategies(messages, (_CALLS,))


def trim_middle(messages: list[Any]) -> ExperimentalStats:
    """Replace all but the first two and the last sixteen messages with a marker, from 22 messages on."""
    return _apply_strategies(messages, (_MIDDLE,))


def repair_orphans(messages: list[Any]) -> ExperimentalStats:
    """Answer calls without a result, and remove results without a call."""
    return _apply_strategies(messages, (_PAIRING,))


def _apply_strategies(messages: list[Any], strategies: Sequence[Strategy]) -> ExperimentalStats:
    conv = formats.parse_request(messages, formats.CODETETHER)
    plan = plan_all(conv, strategies, None, ConversationStart(conv)).plan
    _write_edits(messages, plan)
    dedup_hits = snippet_hits = saved_bytes = 0
    for edit in plan:
        saved_bytes += edit.bytes_saved
        if edit.strategy in DEDUP_LABELS:
            dedup_hits += edit.hits
        else:
            snippet_hits += edit.hits
    return ExperimentalStats(dedup_hits, snippet_hits, saved_bytes)


def _write_edits(messages: list[Any], plan: Plan) -> None:
    """Change the list, and the messages in it, in place."""
    if plan:
        _unshare(messages)
    insertions: dict[int, list[Edit]] = {}
    removed_messages: set[int] = set()
    removed_parts: list[Edit] = []
    for edit in plan:
        if edit.path and edit.op == "drop":
            removed_parts.append(edit)
        elif edit.path:
            _edited_container(messages, edit)[edit.path[-1]] = edit.added
        elif edit.op == "drop":
            removed_messages.add(edit.message)
        else:
            insertions.setdefault(edit.message, []).append(edit)
    # from the end, so that positions before a removed part do not change
    for edit in sorted(removed_parts, key=lambda edit: edit.path, reverse=True):
        del _edited_container(messages, edit)[edit.path[-1]]
    if removed_messages or insertions:
        messages[:] = [
            new
            for index, message in enumerate(messages)
            for new in _with_insertions(() if index in removed_messages else (message,), insertions.get(index, ()))
        ]


def _unshare(messages: list[Any]) -> None:
    """Copy messages and parts if an object occurs twice in the history: an edit of one must not change the other."""
    contents = [message["content"] for message in messages if isinstance(message, dict) and "content" in message]
    lists = [content for content in contents if isinstance(content, list)]
    parts = [part for content in lists for part in content if isinstance(part, dict)]
    objects = [*(message for message in messages if isinstance(message, dict)), *lists, *parts]
    if len({id(each) for each in objects}) < len(objects):
        messages[:] = map(_copy_message, messages)


def _copy_message(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    return {**message, "content": [dict(part) if isinstance(part, dict) else part for part in content]}


def _edited_container(messages: list[Any], edit: Edit) -> Any:
    value = messages[edit.message]
    for step in edit.path[:-1]:
        value = value[step]
    return value


def _with_insertions(unchanged: Sequence[Any], edits: Sequence[Edit]) -> Sequence[Any]:
    """Put the messages that edits insert around one, or around none."""
    if not edits:
        return unchanged
    before = [edit.value for edit in edits if edit.op == "before"]
    return (*before, *unchanged, *(edit.value for edit in edits if edit.op == "after"))
