"""Tests of the plain implementations with the examples of the original systems, and of the generators' reach."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.seeds import generate, plain_codetether, plain_devboy
from tests.seeds.notation import (
    A8_EXAMPLES,
    CACHE_EXAMPLES,
    LINGUA_EXAMPLES,
    NEAR_REF_EXAMPLES,
    PIPELINE_EXAMPLES,
    C,
    CacheExample,
    Counts,
    H,
    LinguaExample,
    Message,
    NearRefExample,
    PassExample,
    PipelineExample,
    R,
    T,
    U,
    a,
    fresh,
    s,
    t,
    u,
)
from tests.seeds.plain_codetether import (
    apply_all,
    clean_text,
    collapse_duplicate_calls,
    dedup_tool_outputs,
    prune_low_entropy,
    prune_thinking,
    repair_orphans,
    snippet_stale_tool_outputs,
    trim_middle,
    utf8_size,
)
from tests.seeds.plain_devboy import (
    PlainCache,
    PlainPipeline,
    content_hash,
    extract_delta,
    parse_json,
    render_double,
    render_near_ref_hint,
    render_reference_hint,
    run_operations,
    tool_kind,
)

Pass = Callable[[list[Message]], Counts]

PASSES: dict[str, Pass] = {
    "prune_thinking": prune_thinking,
    "dedup_tool_outputs": dedup_tool_outputs,
    "prune_low_entropy": prune_low_entropy,
    "snippet_stale_tool_outputs": snippet_stale_tool_outputs,
    "collapse_duplicate_calls": collapse_duplicate_calls,
    "trim_middle": trim_middle,
    "repair_orphans": repair_orphans,
    "seed": apply_all,
    "4.6.0": lambda messages: apply_all(messages, order="4.6.0"),
    "4.6.1": lambda messages: apply_all(messages, order="4.6.1"),
}


@pytest.mark.parametrize("example", A8_EXAMPLES, ids=lambda example: example.pass_name)
def test_pass_gives_the_output_and_counts_of_the_example(example: PassExample) -> None:
    messages = fresh(example.before)
    counts = PASSES[example.pass_name](messages)
    assert (messages, counts) == (example.after, example.counts)


@pytest.mark.parametrize("example", LINGUA_EXAMPLES)
def test_text_is_cleaned_as_in_the_example(example: LinguaExample) -> None:
    cleaned = clean_text(example.text)
    if example.saved:
        assert cleaned == example.cleaned
    messages = [a(example.text), *U(6)]
    counts = prune_low_entropy(messages)
    assert messages == [a(example.cleaned), *U(6)]
    assert counts == (0, int(example.saved > 0), example.saved)


@pytest.mark.parametrize("example", NEAR_REF_EXAMPLES)
def test_near_reference_has_the_fields_of_the_example(example: NearRefExample) -> None:
    assert extract_delta(example.old, example.new, 50, 0) == example.fields


@pytest.mark.parametrize("example", CACHE_EXAMPLES)
def test_cache_operations_give_the_results_of_the_example(example: CacheExample) -> None:
    assert run_operations(example.operations) == example.results


@pytest.mark.parametrize("example", PIPELINE_EXAMPLES)
def test_pipeline_sends_the_texts_of_the_example(example: PipelineExample) -> None:
    pipeline = PlainPipeline(**example.options)
    assert [pipeline.emit(**output) for output in example.outputs] == example.sent


# Usage examples and unit tests of the original documents.


def test_usage_example_of_dedup() -> None:
    messages = [t(R("a", "x" * 1024)), t(R("b", "x" * 1024))]
    dedup_hits, _, saved = dedup_tool_outputs(messages)
    assert dedup_hits == 1
    assert saved > 512
    assert messages[0]["content"][0]["content"] == "x" * 1024
    assert messages[1]["content"][0]["content"].startswith("[DEDUP]")
    assert "tool_call_id=a" in messages[1]["content"][0]["content"]


def test_short_outputs_are_not_deduplicated() -> None:
    assert dedup_tool_outputs([t(R("a", "ok")), t(R("b", "ok"))]) == (0, 0, 0)


def test_distinct_outputs_are_preserved() -> None:
    assert dedup_tool_outputs([t(R("a", "x" * 1024)), t(R("b", "y" * 1024))]) == (0, 0, 0)


def test_third_copy_references_the_first() -> None:
    messages = [t(R(id, "z" * 2048)) for id in ("first", "second", "third")]
    assert dedup_tool_outputs(messages)[0] == 2
    for message in messages[1:]:
        assert "tool_call_id=first" in message["content"][0]["content"]


def test_dedup_window_leaves_recent_results_unread() -> None:
    old = [t(R("a", "x" * 256)), t(R("b", "x" * 256)), *U(7), t(R("c", "x" * 256))]
    messages = fresh(old)
    assert dedup_tool_outputs(messages, window=8) == (1, 0, 209)
    assert messages[2:] == old[2:]
    recent = [t(R("a", "x" * 256)), *U(7), t(R("b", "x" * 256))]
    assert dedup_tool_outputs(recent, window=8) == (0, 0, 0)
    assert dedup_tool_outputs([t(R("a", "x" * 256)), t(R("b", "x" * 256))], window=8) == (0, 0, 0)


def test_usage_example_of_apply_all() -> None:
    messages = [t(R(id, "file contents: hello world" * 40)) for id in ("call_a", "call_b")]
    dedup_hits, _, saved = apply_all(messages)
    assert saved > 0
    assert dedup_hits >= 1


def test_apply_all_accepts_an_empty_history() -> None:
    for order in ("seed", "4.6.0", "4.6.1"):
        assert apply_all([], order) == (0, 0, 0)


def test_usage_example_of_snippet() -> None:
    messages = [t(R("old", "A" * 10_000)), *[u(f"filler {number}") for number in range(10)]]
    _, snippet_hits, saved = snippet_stale_tool_outputs(messages)
    text = messages[0]["content"][0]["content"]
    assert snippet_hits == 1
    assert saved > 5000
    assert "[...elided" in text
    assert text.startswith("A")
    assert text.endswith("A")


def test_snippet_leaves_short_histories_unchanged() -> None:
    assert snippet_stale_tool_outputs([t(R("x", "x" * 10_000))]) == (0, 0, 0)
    assert snippet_stale_tool_outputs([t(R("x", "x" * 10_000)), *U(7)]) == (0, 0, 0)
    assert snippet_stale_tool_outputs([t(R("x", "x" * 10_000)), *U(8)])[1] == 1


def test_snippet_cuts_at_character_boundaries() -> None:
    messages = [t(R("x", "🦀" * 4000)), *U(10)]
    assert snippet_stale_tool_outputs(messages)[1] == 1
    assert messages[0]["content"][0]["content"] == "🦀" * 256 + "\n[...elided 13952 bytes...]\n" + "🦀" * 256


def test_snippet_skips_its_own_and_dedup_markers() -> None:
    snipped = "H" * 2000 + "\n[...elided 99 bytes...]\n" + "T" * 2072
    assert utf8_size(snipped) >= 4096
    assert snippet_stale_tool_outputs([t(R("x", snipped)), *U(10)]) == (0, 0, 0)
    assert snippet_stale_tool_outputs([t(R("x", "[DEDUP]" + "x" * 5000)), *U(10)]) == (0, 0, 0)


def test_usage_example_of_the_cache() -> None:
    cache, body = PlainCache(5), "pipeline 12345 status=success duration=120s"
    fingerprint = content_hash(body.encode())
    assert fingerprint.hex() == "cd37682c96027da74ab58d66d2427492"
    assert cache.check(fingerprint) is None
    cache.insert(fingerprint, "tc_42", "Other", None, "Bash")
    reference = cache.check(fingerprint)
    assert reference is not None
    assert render_reference_hint(reference) == "> [ref: tc_42, byte-identical]"


def test_content_hash_of_nothing() -> None:
    assert content_hash(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb924"


def test_cache_evicts_the_least_recent_entry() -> None:
    cache = PlainCache(2)
    one, two, three = (content_hash(text.encode()) for text in ("one", "two", "three"))
    for number, hash in enumerate((one, two, three), start=1):
        cache.insert(hash, f"tc_{number}", "Other", None, "")
    assert (cache.check(one), cache.check(two), cache.check(three)) == (None, "tc_2", "tc_3")


def test_cache_invalidates_reads_of_a_changed_file() -> None:
    cache = PlainCache()
    content = content_hash(b"line1\nline2")
    cache.insert(content, "tc_1", "FileRead", "abc12345", "Read")
    assert cache.invalidate_file("other") == 0
    assert cache.check(content) == "tc_1"
    assert cache.invalidate_file("abc12345") == 1
    assert cache.check(content) is None


def test_cache_invalidates_entries_by_tool() -> None:
    cache = PlainCache()
    for name, tool in (("a", "get_issue"), ("b", "get_issues"), ("c", "get_pipeline")):
        cache.insert(content_hash(name.encode()), f"tc_{name}", "Other", None, tool)
    assert cache.invalidate_by_tool(["get_issue", "get_issues"]) == 2
    assert len(cache) == 1
    assert cache.invalidate_by_tool([]) == 0
    assert [cache.check(content_hash(name.encode())) for name in "abc"] == [None, None, "tc_c"]


def test_partition_number_saturates() -> None:
    cache = PlainCache()
    cache.partition = 2**64 - 2
    cache.on_compaction_boundary()
    cache.on_compaction_boundary()
    assert cache.partition == 2**64 - 1


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("FileRead", ("Read", "Grep", "Glob", "NotebookRead")),
        ("FileMutate", ("Edit", "Write", "MultiEdit", "NotebookEdit")),
        ("Other", ("Bash", "mcp__x__get_issues", "mcp__fs__Read", "read", "Read ", "")),
    ],
)
def test_tools_are_classified_by_exact_name(kind: str, names: tuple[str, ...]) -> None:
    assert [tool_kind(name) for name in names] == [kind] * len(names)


@pytest.mark.parametrize(
    ("verbosity", "kind", "hint"),
    [
        ("terse", None, "> [ref: tc_1]"),
        ("terse", "FileRead", "> [ref: tc_1]"),
        ("standard", None, "> [ref: tc_1, byte-identical]"),
        ("standard", "FileRead", "> [ref: tc_1, byte-identical]"),
        ("verbose", None, "> [ref: tc_1, byte-identical]"),
        ("verbose", "FileRead", "> [ref: tc_1, byte-identical, from: file-read]"),
        ("verbose", "FileMutate", "> [ref: tc_1, byte-identical, from: file-mutate]"),
        ("verbose", "Other", "> [ref: tc_1, byte-identical, from: other]"),
    ],
)
def test_hint_depends_on_verbosity(verbosity: str, kind: str | None, hint: str) -> None:
    assert render_reference_hint("tc_1", verbosity, kind) == hint


def test_near_reference_hint_lists_the_fields() -> None:
    fields = [("key", "old", "new"), ("key2", "", "é")]
    assert render_near_ref_hint("ID", fields) == "> [near-ref: ID, key: old→new, key2: →é]"


# Details of JSON values that no example shows.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-12.5, "-12.5"),
        (1e15, "1000000000000000.0"),
        (1234567890123456.0, "1234567890123456.0"),
        (1e16, "1e16"),
        (12345678901234567.0, "1.2345678901234568e16"),
        (0.1, "0.1"),
        (0.00001234, "0.00001234"),
        (0.000001234, "1.234e-6"),
        (1.5e300, "1.5e300"),
        (-1e-7, "-1e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_doubles_are_rendered_with_shortest_digits(value: float, text: str) -> None:
    assert render_double(value) == text


def test_spellings_in_one_row_have_one_value() -> None:
    for row in generate.EQUAL_VALUES:
        first = parse_json(row[0])
        assert all(plain_devboy.are_equal(first, parse_json(spelling)) for spelling in row)
    values = [parse_json(row[0]) for row in generate.EQUAL_VALUES]
    for index, value in enumerate(values):
        assert not any(plain_devboy.are_equal(value, other) for other in values[:index])


def test_invalid_values_are_rejected_in_an_object() -> None:
    for value in generate.INVALID_VALUES:
        with pytest.raises(plain_devboy.InvalidJson):
            parse_json('{"z":' + value + "}")


def test_near_reference_strips_rust_white_space_on_the_left_only() -> None:
    old, new = '{"a":1}', '{"a":2}'
    changed = [("a", "1", "2")]
    assert extract_delta(old, "\u00a0\u3000\x0b" + new, 50, 0) == changed
    assert extract_delta("\u2028" + old, new + " \r\n", 50, 0) == changed
    assert extract_delta(old, "\x1c" + new, 50, 0) is None
    assert extract_delta(old, "\ufeff" + new, 50, 0) is None
    assert extract_delta(old, new + "\u00a0", 50, 0) is None


def test_near_reference_needs_a_large_new_body_only() -> None:
    new = '{"a":2}'.ljust(500)
    assert extract_delta('{"a":1}', new, 50, 500) == [("a", "1", "2")]
    assert extract_delta('{"a":1}', new[:-1], 50, 500) is None
    assert extract_delta('{"a":1}', '{"a":1}'.ljust(500), 50, 500) is None


# Properties of the passes on generated histories.


def test_second_run_changes_nothing() -> None:
    passes: tuple[Pass, ...] = (
        prune_thinking,
        prune_low_entropy,
        snippet_stale_tool_outputs,
        collapse_duplicate_calls,
        trim_middle,
    )
    for seed in range(100):
        original = generate.history(random.Random(seed))
        for run in passes:
            messages = fresh(original)
            run(messages)
            after = fresh(messages)
            assert run(messages) == (0, 0, 0), (seed, run)
            assert messages == after


def test_generated_histories_reach_every_pass() -> None:
    edited: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    for seed in range(200):
        original = generate.history(random.Random(seed))
        roles.update(message["role"] for message in original)
        for name, run in PASSES.items():
            messages = fresh(original)
            counts = run(messages)
            edited[name] += messages != original
            assert all(count >= 0 for count in counts)
    assert min(edited[name] for name in PASSES) >= 40, edited
    assert set(roles) == {"user", "assistant", "tool", "system", "developer"}


def test_generators_repeat_for_the_same_seed() -> None:
    for generator in (generate.history, generate.operations, generate.outputs, generate.json_pair):
        assert generator(random.Random(7)) == generator(random.Random(7))


def test_generated_operations_reach_every_result() -> None:
    results: Counter[tuple[str, bool]] = Counter()
    for seed in range(100):
        operations = generate.operations(random.Random(seed))
        for operation, result in zip(operations, run_operations(operations), strict=True):
            results[operation[0], bool(result)] += 1
    for name in ("check", "find_near_ref", "invalidate_file", "invalidate_by_tool", "partition"):
        assert min(results[name, False], results[name, True]) >= 20, (name, results)


def test_generated_outputs_reach_every_hint() -> None:
    texts: Counter[str] = Counter()
    for seed in range(100):
        options, items = generate.outputs(random.Random(seed))
        pipeline = PlainPipeline(**options)
        for item in items:
            if "boundary" in item:
                pipeline.on_compaction_boundary()
            else:
                text = pipeline.emit(**item)
                texts[text[:7] if text != item["body"] else "body"] += 1
    assert min(texts[start] for start in ("body", "> [ref:", "> [near")) >= 20, texts


def test_generated_json_pairs_are_often_eligible() -> None:
    eligible: Counter[bool] = Counter()
    for seed in range(500):
        old, new = generate.json_pair(random.Random(seed))
        eligible[extract_delta(old, new, 50, 0) is not None] += 1
    assert min(eligible.values()) >= 100, eligible


def test_other_roles_keep_thinking_and_noise() -> None:
    messages = [s(H("x"), "a  b"), u(H("x"), "a  b"), t(H("x"), "a  b", C("a")), *U(8)]
    original = fresh(messages)
    assert prune_thinking(messages) == (0, 0, 0)
    assert prune_low_entropy(messages) == (0, 0, 0)
    assert messages == original
    assert T("a  b") in messages[0]["content"]


def test_unknown_order_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown order"):
        plain_codetether.apply_all([], order="5.0")
