"""`ibidem.devboy` against the original's examples and the plain implementation."""

from __future__ import annotations

import pytest

from ibidem.devboy import (
    DedupCache,
    Fresh,
    Hint,
    HintVerbosity,
    NearRefConfig,
    ToolKind,
    content_hash,
    extract_delta,
    render_near_ref_hint,
    render_reference_hint,
    render_reference_hint_with,
)
from tests.seeds.compare import (
    KINDS,
    check_json_pair,
    check_operations,
    check_outputs,
    emit,
    fields_of,
    pipeline_with,
    run_operations,
)
from tests.seeds.notation import (
    CACHE_EXAMPLES,
    NEAR_REF_EXAMPLES,
    PIPELINE_EXAMPLES,
    CacheExample,
    NearRefExample,
    PipelineExample,
)
from tests.seeds.plain_devboy import tool_kind

SEQUENCES = 500
PAIRS = 3000


@pytest.mark.parametrize("example", CACHE_EXAMPLES)
def test_cache_operations_give_the_results_of_the_example(example: CacheExample) -> None:
    assert run_operations(example.operations) == example.results


@pytest.mark.parametrize("example", NEAR_REF_EXAMPLES)
def test_near_reference_has_the_fields_of_the_example(example: NearRefExample) -> None:
    fields = fields_of(extract_delta(example.old, example.new, NearRefConfig(50, 0)))
    assert fields == (None if example.fields is None else [tuple(field) for field in example.fields])


@pytest.mark.parametrize("example", PIPELINE_EXAMPLES)
def test_pipeline_sends_the_texts_of_the_example(example: PipelineExample) -> None:
    pipeline = pipeline_with(example.options)
    assert [emit(pipeline, output) for output in example.outputs] == example.sent


def test_generated_cache_sequences_agree_with_the_plain_implementation() -> None:
    assert sum(check_operations(number) for number in range(SEQUENCES)) > SEQUENCES


def test_generated_outputs_agree_with_the_plain_implementation() -> None:
    assert sum(check_outputs(number) for number in range(SEQUENCES)) > SEQUENCES


def test_generated_json_pairs_agree_with_the_plain_implementation() -> None:
    eligible = sum(check_json_pair(number) for number in range(PAIRS))
    assert 0 < eligible < PAIRS


# Examples in the original documents.


def test_usage_example() -> None:
    cache, body = DedupCache.with_capacity(5), "pipeline 12345 status=success duration=120s"
    fingerprint = content_hash(body.encode())
    assert fingerprint.hex() == "cd37682c96027da74ab58d66d2427492"
    lines = []
    for _ in range(2):
        match cache.check(fingerprint):
            case Hint(reference_tool_call_id):
                lines.append(render_reference_hint(reference_tool_call_id))
            case Fresh():
                cache.insert(fingerprint, "tc_42", ToolKind.OTHER, None, "Bash")
    assert lines == ["> [ref: tc_42, byte-identical]"]


def test_hash_of_nothing() -> None:
    assert content_hash(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb924"


def test_hints_at_each_verbosity() -> None:
    assert render_reference_hint_with("tc_1", HintVerbosity.TERSE, None) == "> [ref: tc_1]"
    standard = render_reference_hint_with("tc_1", HintVerbosity.STANDARD, ToolKind.FILE_READ)
    assert standard == render_reference_hint("tc_1") == "> [ref: tc_1, byte-identical]"
    verbose = render_reference_hint_with("tc_1", HintVerbosity.VERBOSE, ToolKind.FILE_READ)
    assert verbose == "> [ref: tc_1, byte-identical, from: file-read]"
    assert render_reference_hint_with("tc_1", HintVerbosity.VERBOSE, None) == standard


def test_near_reference_hint() -> None:
    deltas = extract_delta('{"a": 1, "b": "x"}', '{"a": 2, "b": null}', NearRefConfig(50, 0))
    assert deltas is not None
    assert render_near_ref_hint("7", deltas) == "> [near-ref: 7, a: 1→2, b: x→]"


@pytest.mark.parametrize(
    "name", ["Read", "Grep", "Glob", "NotebookRead", "Edit", "Write", "MultiEdit", "NotebookEdit", "Bash", "read", ""]
)
def test_kind_of_a_tool(name: str) -> None:
    assert ToolKind.from_tool_name(name) is KINDS[tool_kind(name)]
