"""Comparisons of `ibidem.codetether` and `ibidem.devboy` with the plain implementations, one generated input each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import ibidem
from ibidem import codetether, devboy
from tests.seeds import generate, plain_codetether, plain_devboy
from tests.seeds.notation import Counts, Message, fresh
from tests.seeds.provider_forms import from_anthropic, from_chat, to_alternating, to_anthropic, to_chat

PASSES = (
    "prune_thinking",
    "dedup_tool_outputs",
    "prune_low_entropy",
    "snippet_stale_tool_outputs",
    "collapse_duplicate_calls",
    "trim_middle",
    "repair_orphans",
)
PROFILES = {"codetether": "seed", "codetether-all": "4.6.0"}
KINDS = {
    "FileRead": devboy.ToolKind.FILE_READ,
    "FileMutate": devboy.ToolKind.FILE_MUTATE,
    "Other": devboy.ToolKind.OTHER,
}
WIRES: dict[str, tuple[str, Callable[[list[Message]], list[Message]], Callable[[list[Message]], list[Message]]]] = {
    "chat": ("openai-chat", to_chat, from_chat),
    "anthropic": ("anthropic", to_anthropic, from_anthropic),
    "anthropic, turns alternate": ("anthropic", to_alternating, from_anthropic),
}
"""Format, and the way into it and back."""


def counts_of(stats: codetether.ExperimentalStats | ibidem.Stats) -> Counts:
    return stats.dedup_hits, stats.snippet_hits, stats.total_bytes_saved


def run_ours(name: str, messages: list[Message]) -> Counts:
    """Run a pass, or `apply_all` in an order, in place."""
    if name in PASSES:
        return counts_of(getattr(codetether, name)(messages))
    return counts_of(codetether.apply_all(messages, order=name))  # type: ignore[arg-type]


def run_plain(name: str, messages: list[Message]) -> Counts:
    if name in PASSES:
        counts: Counts = getattr(plain_codetether, name)(messages)
        return counts
    return plain_codetether.apply_all(messages, order=name)


def check_history(number: int) -> int:
    """Compare text and counts of every pass and order on one history; return the number of runs."""
    history = generate.history(random.Random(number))
    names = (*PASSES, *codetether.ORDERS)
    for name in names:
        ours, plain = fresh(history), fresh(history)
        counts = run_ours(name, ours), run_plain(name, plain)
        assert counts[0] == counts[1], f"history {number}: counts of {name}"
        assert ours == plain, f"history {number}: messages of {name}"
    for profile, order in PROFILES.items():
        plain = fresh(history)
        expected = run_plain(order, plain)
        result = ibidem.compact(history, profile=profile, format="codetether")
        assert (result.request, counts_of(result.stats)) == (plain, expected), f"history {number}: profile {profile}"
    return len(names) + len(PROFILES)


def check_provider_form(number: int, wire: str) -> Literal["exact", "deviates"]:
    """Compare both profiles on one history in a provider's format. A deviation must make the request acceptable."""
    format, write, read = WIRES[wire]
    history = write(generate.history(random.Random(number)))
    outcome: Literal["exact", "deviates"] = "exact"
    for profile, order in PROFILES.items():
        plain = read(fresh(history))
        expected = run_plain(order, plain)
        result = ibidem.compact(history, profile=profile, format=format)
        assert not result.reason, f"history {number} as {wire}: {result.reason}"
        if (read(result.request), counts_of(result.stats)) != (plain, expected):
            outcome = "deviates"
            assert not ibidem.validate(result.request, format=format), f"history {number} as {wire}, {profile}"
    return outcome


def check_operations(number: int) -> int:
    """Compare every result of one sequence of cache operations; return their number."""
    operations = generate.operations(random.Random(number))
    expected = plain_devboy.run_operations(operations)
    for operation, ours, plain in zip(operations, run_operations(operations), expected, strict=True):
        assert ours == plain, f"sequence {number}: {operation}"
    return len(operations)


def run_operations(operations: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run operations of `generate.operations` on a `DedupCache`."""
    cache = devboy.DedupCache()
    results: list[Any] = []
    for name, *given in operations:
        result: Any = None
        match name:
            case "with_capacity":
                cache = devboy.DedupCache.with_capacity(*given)
            case "len":
                result = len(cache)
                assert cache.is_empty() == (result == 0)
            case "partition":
                result = cache.partition
            case "check":
                decision = cache.check(*given)
                result = decision.reference_tool_call_id if isinstance(decision, devboy.Hint) else None
            case "insert" | "insert_with_body":
                hash, id, kind, *rest = given
                getattr(cache, name)(hash, id, KINDS[kind], *rest)
            case "find_near_ref":
                body, *limits = given
                near = cache.find_near_ref(body, devboy.NearRefConfig(*limits))
                result = None if near is None else (near[0], fields_of(near[1]))
            case _:
                result = getattr(cache, name)(*given)
        results.append(result)
    return results


def fields_of(deltas: Sequence[devboy.DeltaField] | None) -> list[tuple[str, str, str]] | None:
    return None if deltas is None else [(field.key, field.old, field.new) for field in deltas]


def pipeline_with(options: dict[str, Any]) -> devboy.ResponsePipeline:
    """Return a pipeline with the settings of a `PlainPipeline`."""
    return devboy.ResponsePipeline(
        devboy.DedupCache(options.get("capacity", 5)),
        options.get("min_bytes", 200),
        devboy.NearRefConfig() if options.get("near_references") else None,
        devboy.HintVerbosity(options.get("verbosity", "standard")),
        dedup=options.get("dedup", True),
        hash_ids=options.get("hash_ids", False),
    )


def emit(pipeline: devboy.ResponsePipeline, output: dict[str, Any]) -> str:
    options = {key: value for key, value in output.items() if key not in ("call_id", "tool", "body")}
    return pipeline.emit(output["call_id"], output["tool"], output["body"], **options).text


def check_outputs(number: int) -> int:
    """Compare the texts sent for one sequence of tool outputs; return their number."""
    options, outputs = generate.outputs(random.Random(number))
    plain, ours = plain_devboy.PlainPipeline(**options), pipeline_with(options)
    for output in outputs:
        if "boundary" in output:
            plain.on_compaction_boundary()
            ours.on_compaction_boundary()
        else:
            assert emit(ours, output) == plain.emit(**output), f"sequence {number}: {output}"
    return len(outputs)


def check_json_pair(number: int) -> bool:
    """Compare the fields of one pair of bodies; return whether a near-reference is eligible."""
    old, new = generate.json_pair(random.Random(number))
    ours = fields_of(devboy.extract_delta(old, new, devboy.NearRefConfig(50, 0)))
    assert ours == plain_devboy.extract_delta(old, new, 50, 0), f"pair {number}: {old!r}, {new!r}"
    return ours is not None
