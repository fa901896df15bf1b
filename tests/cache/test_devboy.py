"""Tests of devboy's cache and pipeline beyond what tests/seeds compares: settings, limits, cost and bad arguments."""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibidem
from ibidem.cache import (
    DedupCache,
    DeltaField,
    Emission,
    Fresh,
    Hint,
    HintVerbosity,
    NearRefConfig,
    ResponsePipeline,
    ToolKind,
    ToolSettings,
    content_hash,
    extract_delta,
    path_hash,
    render_near_ref,
    render_near_ref_hint,
)
from ibidem.cache.dedup import MAX_PARTITION

A, B, C = (content_hash(name) for name in "ABC")
ANY_SIZE = NearRefConfig(max_delta_bytes=10_000, min_body_bytes=0)
LONG = "line of a file\n" * 40
OTHER_LONG = "line of another file\n" * 40


# --- hashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "raw"),
    [
        pytest.param("Größe\r\n", b"Gr\xc3\xb6\xc3\x9fe\r\n", id="text is hashed as UTF-8"),
        pytest.param("a ", b"a ", id="trailing white space counts"),
        pytest.param("\ud800", b"\xed\xa0\x80", id="a lone surrogate is hashed"),
    ],
)
def test_content_hash_is_the_first_half_of_sha256(data: str, raw: bytes) -> None:
    assert content_hash(data) == content_hash(raw) == hashlib.sha256(raw).digest()[:16]


def test_path_hash_is_eight_hex_digits() -> None:
    assert path_hash("/src/main.rs") == hashlib.sha256(b"/src/main.rs").hexdigest()[:8]


# --- the cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [-3, 0, 1])
def test_capacity_is_at_least_one(capacity: int) -> None:
    cache = DedupCache.with_capacity(capacity)
    assert cache.capacity == DedupCache(capacity).capacity == 1
    assert cache.is_empty()
    cache.insert(A, "1")
    cache.insert(B, "2")
    assert (len(cache), cache.is_empty(), cache.check(A), cache.check(B)) == (1, False, Fresh(), Hint("2"))


def test_default_capacity_is_five() -> None:
    assert DedupCache().capacity == 5


def test_compaction_drops_every_kind_of_entry() -> None:
    cache = DedupCache()
    cache.insert_with_body(A, "1", ToolKind.FILE_READ, "p", '{"v": 1}', "Read")
    cache.on_compaction_boundary()
    assert (cache.partition, cache.is_empty(), cache.capacity) == (1, True, 5)
    assert cache.check(A) == Fresh()
    assert (cache.invalidate_file("p"), cache.invalidate_by_tool(["Read"])) == (0, 0)
    assert cache.find_near_ref('{"v": 2}', ANY_SIZE) is None


def test_partition_number_saturates_at_64_bits() -> None:
    cache = DedupCache()
    cache._partition = MAX_PARTITION - 1  # nobody waits for that many boundaries
    for _ in range(2):
        cache.on_compaction_boundary()
    assert cache.partition == 2**64 - 1


class Counted(str):
    """A string that counts its comparisons. A scan over the entries would need one per entry."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


class CountedHash(bytes):
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return bytes.__eq__(self, other)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda cache: cache.check(CountedHash(b"hash 500")), id="check a known hash"),
        pytest.param(lambda cache: cache.check(CountedHash(b"hash none")), id="check an unknown hash"),
        pytest.param(lambda cache: cache.insert(CountedHash(b"h"), Counted("i")), id="insert into a full cache"),
        pytest.param(lambda cache: cache.invalidate_file(Counted("path 500")), id="invalidate a path"),
        pytest.param(lambda cache: cache.invalidate_by_tool([Counted("tool 5")]), id="invalidate a tool"),
    ],
)
def test_operations_do_not_scan_the_entries(operation: Callable[[DedupCache], object]) -> None:
    cache: Any = DedupCache(1000)
    for number in range(1000):
        id, path, tool = (Counted(f"{word} {number}") for word in ("id", "path", "tool"))
        cache.insert(CountedHash(b"hash %d" % number), id, ToolKind.FILE_READ, path, tool)
    Counted.comparisons = 0
    operation(cache)
    assert Counted.comparisons < 20


# --- near-references ----------------------------------------------------------------------------


def body(**fields: object) -> str:
    """Return a JSON object of more than 500 bytes with these fields and one that never changes."""
    return json.dumps({**fields, "pad": "x" * 500})


def nested(levels: int) -> str:
    """Return a JSON object with this many levels, itself included."""
    return '{"s": 1, "deep": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(nested(128), nested(128).replace("1", "2"), id="more than 127 levels"),
        pytest.param('{"s": 1}', nested(100_000), id="far too many levels in the new body"),
        pytest.param(nested(100_000), '{"s": 1}', id="far too many levels in the old body"),
        pytest.param(
            '{"s": 1, "n": %s}' % ("9" * (sys.get_int_max_str_digits() + 1)),
            '{"s": 2, "n": %s}' % ("9" * (sys.get_int_max_str_digits() + 1)),
            id="more digits than Python converts",
        ),
        pytest.param("", "", id="no text"),
        pytest.param("[1]", "[2]", id="lists"),
    ],
)
def test_bodies_that_cannot_be_parsed_are_not_eligible(old: str, new: str) -> None:
    assert extract_delta(old, new, ANY_SIZE) is None


def test_127_levels_are_eligible() -> None:
    assert extract_delta(nested(127), nested(127).replace("1", "2"), ANY_SIZE) == (DeltaField("s", "1", "2"),)


def test_brackets_in_strings_are_not_levels() -> None:
    old = json.dumps({"s": 1, "text": '\\"' + "[{" * 200})
    assert extract_delta(old, old.replace("1", "2"), ANY_SIZE) == (DeltaField("s", "1", "2"),)


@pytest.mark.parametrize(
    ("config", "eligible"),
    [
        pytest.param(NearRefConfig(max_delta_bytes=10, min_body_bytes=7), True, id="both limits are met exactly"),
        pytest.param(NearRefConfig(max_delta_bytes=9, min_body_bytes=7), False, id="the delta is one byte too long"),
        pytest.param(NearRefConfig(max_delta_bytes=10, min_body_bytes=8), False, id="the body is one byte too short"),
    ],
)
def test_limits_of_a_near_reference_are_settings(config: NearRefConfig, eligible: bool) -> None:
    # The delta is `, s: 1→2`: ten bytes with the leading comma and space.
    expected = (DeltaField("s", "1", "2"),) if eligible else None
    assert extract_delta('{"s":1}', '{"s":2}', config) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({"key": "a" * 20}, {"key": "b" * 20}, id="one field"),
        pytest.param({"key": "a" * 11, "two": "1"}, {"key": "b" * 17, "two": "2"}, id="two fields"),
        pytest.param({"key": "ö" * 10}, {"key": "b" * 20}, id="characters of two bytes"),
        pytest.param({"k→": "a" * 20}, {"k→": "b" * 19}, id="an arrow in the key"),
    ],
)
def test_the_delta_has_50_bytes_at_most(old: dict[str, str], new: dict[str, str]) -> None:
    rendered = "".join(f", {key}: {old[key]}→{new[key]}" for key in new)
    assert len(rendered.encode()) == 50
    assert extract_delta(body(**old), body(**new)) is not None
    first = next(iter(new))
    assert extract_delta(body(**old), body(**{**new, first: new[first] + "x"})) is None


def test_render_near_ref_is_the_earlier_name_of_render_near_ref_hint() -> None:
    assert render_near_ref is render_near_ref_hint


# Hypothesis leaves surrogates out of plain text; JSON escapes and broken streams do not.
ANY_TEXT = st.text(st.characters(codec=None))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner))
JSON_BODIES = st.dictionaries(st.sampled_from(["a", "b", "ü"]), VALUES).map(json.dumps)


@given(old=ANY_TEXT | JSON_BODIES, new=ANY_TEXT | JSON_BODIES)
def test_a_delta_never_raises_and_can_be_encoded(old: str, new: str) -> None:
    deltas = extract_delta(old, new, ANY_SIZE)
    if deltas is not None:
        assert render_near_ref_hint("tc", deltas).encode().startswith(b"> [near-ref: tc, ")
        assert {field.key for field in deltas} <= json.loads(new).keys() & json.loads(old).keys()


# --- the pipeline -------------------------------------------------------------------------------


class Output(NamedTuple):
    """One tool output, the kind of its emission, and the text that is sent if it is not the body."""

    id: str
    tool: str
    body: str
    kind: str
    text: str | None = None
    path: str | None = None
    invalidates: Iterable[str] | None = None


def play(pipeline: ResponsePipeline, outputs: list[Output]) -> None:
    for output in outputs:
        emission = pipeline.emit(output.id, output.tool, output.body, path=output.path, invalidates=output.invalidates)
        expected = output.body if output.text is None else output.text
        assert (emission.text, emission.kind) == (expected, output.kind), output.id


def hint(id: str) -> str:
    return f"> [ref: {id}, byte-identical]"


def test_emission_names_the_reason_for_its_text() -> None:
    pipeline = ResponsePipeline(near=NearRefConfig())
    bodies = ["ok", body(s=1), body(s=2), body(s=2)]
    assert [pipeline.emit(str(number), "get", text) for number, text in enumerate(bodies)] == [
        Emission("ok", "short"),
        Emission(body(s=1), "fresh"),
        Emission("> [near-ref: 1, s: 1→2]", "near"),
        Emission(hint("2"), "hint"),
    ]


def test_a_cache_passed_in_is_used_even_if_empty() -> None:
    cache = DedupCache(1)
    ResponsePipeline(cache).emit("1", "T", LONG)
    assert cache.check(content_hash(LONG)) == Hint("1")


def test_a_hint_may_be_longer_than_the_body() -> None:
    id = "i" * 500
    play(ResponsePipeline(), [Output(id, "T", "y" * 200, "fresh"), Output("2", "T", "y" * 200, "hint", hint(id))])


def test_a_near_reference_may_be_longer_than_the_body() -> None:
    play(
        ResponsePipeline(min_bytes=0, near=ANY_SIZE),
        [Output("1", "T", '{"s":1}', "fresh"), Output("2", "T", '{"s":2}', "near", "> [near-ref: 1, s: 1→2]")],
    )


def test_an_empty_body_is_never_remembered() -> None:
    pipeline = ResponsePipeline(min_bytes=0)
    play(pipeline, [Output("1", "T", "", "short"), Output("2", "T", "", "short")])
    assert pipeline.cache.is_empty()


@pytest.mark.parametrize("min_bytes", [0, 10, 200])
def test_text_with_lone_surrogates_is_measured_and_replaced(min_bytes: int) -> None:
    text = "\ud800" * 67  # 201 bytes
    play(
        ResponsePipeline(min_bytes=min_bytes, near=NearRefConfig()),
        [
            Output("1", "Read", text, "fresh", path="\udcff"),
            Output("2", "Read", text, "hint", hint("1"), path="\udcff"),
            Output("3", "Edit", "", "short", path="\udcff"),
            Output("4", "Read", text, "fresh", path="\udcff"),
        ],
    )


def test_the_kind_of_a_tool_can_be_given() -> None:
    pipeline = ResponsePipeline(verbosity=HintVerbosity.VERBOSE)
    pipeline.emit("1", "cat", LONG, path="a", kind=ToolKind.FILE_READ)
    again = pipeline.emit("2", "cat", LONG, path="a", kind=ToolKind.FILE_READ)
    assert again.text == "> [ref: 1, byte-identical, from: file-read]"
    pipeline.emit("3", "put", "ok", path="a", kind=ToolKind.FILE_MUTATE)
    assert pipeline.emit("4", "cat", LONG, path="a", kind=ToolKind.FILE_READ).kind == "fresh"


def test_a_file_is_invalidated_by_its_path() -> None:
    pipeline = ResponsePipeline()
    play(pipeline, [Output("1", "Read", LONG, "fresh", path="a"), Output("2", "Grep", OTHER_LONG, "fresh", path="b")])
    assert [pipeline.invalidate_file(path) for path in ("./a", "a", "a")] == [0, 1, 0]
    play(pipeline, [Output("3", "Read", LONG, "fresh", path="a"), Output("4", "Grep", OTHER_LONG, "hint", hint("2"))])


def test_a_compaction_boundary_drops_everything() -> None:
    pipeline = ResponsePipeline()
    play(pipeline, [Output("1", "Read", LONG, "fresh")])
    pipeline.on_compaction_boundary()
    play(pipeline, [Output("2", "Read", LONG, "fresh"), Output("3", "Read", LONG, "hint", hint("2"))])


WRITES = [
    pytest.param([Output("w", "update", "ok", "short", invalidates=("get",))], id="a short output"),
    pytest.param(
        [
            Output("v", "update", OTHER_LONG, "fresh"),
            Output("w", "update", OTHER_LONG, "hint", hint("v"), invalidates=("get",)),
        ],
        id="a repeated output",
    ),
    pytest.param(
        [
            Output("v", "update", body(s=1), "fresh"),
            Output("w", "update", body(s=2), "near", "> [near-ref: v, s: 1→2]", invalidates=("get",)),
        ],
        id="a similar output",
    ),
]


@pytest.mark.parametrize("writes", WRITES)
def test_a_writer_invalidates_tools_only_if_its_output_is_sent_in_full(writes: list[Output]) -> None:
    play(
        ResponsePipeline(near=NearRefConfig()),
        [
            Output("1", "get", LONG, "fresh"),
            *writes,
            Output("2", "get", LONG, "hint", hint("1")),
            Output("3", "update", LONG[1:], "fresh", invalidates=("get",)),
            Output("4", "get", LONG, "fresh"),
        ],
    )


@pytest.mark.parametrize("writes", WRITES)
def test_a_switch_lets_every_output_of_a_writer_invalidate(writes: list[Output]) -> None:
    pipeline = ResponsePipeline(near=NearRefConfig(), short_bodies_invalidate=True)
    play(pipeline, [Output("1", "get", LONG, "fresh"), *writes, Output("2", "get", LONG, "fresh")])


# --- settings of the pipeline -------------------------------------------------------------------


def test_hashed_ids_are_printed_in_both_kinds_of_hints() -> None:
    hashed = hashlib.sha256(b"tc_1").hexdigest()[:8]
    assert hashed == "474aed5c"
    play(
        ResponsePipeline(near=NearRefConfig(), hash_ids=True),
        [
            Output("tc_1", "get", body(s=1), "fresh"),
            Output("tc_2", "get", body(s=1), "hint", hint(hashed)),
            Output("tc_3", "get", body(s=2), "near", f"> [near-ref: {hashed}, s: 1→2]"),
        ],
    )


def test_without_dedup_outputs_are_sent_in_full_and_remembered() -> None:
    pipeline = ResponsePipeline(near=NearRefConfig(), dedup=False)
    play(pipeline, [Output("1", "T", body(s=1), "fresh"), Output("2", "T", body(s=1), "fresh")])
    play(pipeline, [Output("3", "T", body(s=2), "fresh")])
    assert len(pipeline.cache) == 3


def test_a_tool_without_dedup_is_remembered_for_other_tools() -> None:
    play(
        ResponsePipeline(tools={"status": ToolSettings(dedup=False)}),
        [
            Output("1", "status", LONG, "fresh"),
            Output("2", "status", LONG, "fresh"),
            Output("3", "other", LONG, "hint", hint("1")),
        ],
    )


def test_a_tool_can_be_deduplicated_though_others_are_not() -> None:
    play(
        ResponsePipeline(dedup=False, tools={"status": ToolSettings(dedup=True)}),
        [
            Output("1", "other", LONG, "fresh"),
            Output("2", "other", LONG, "fresh"),
            Output("3", "status", LONG, "hint", hint("1")),
        ],
    )


def test_a_tool_can_have_its_own_minimum() -> None:
    play(
        ResponsePipeline(tools={"status": ToolSettings(min_bytes=5), "log": ToolSettings(min_bytes=1000)}),
        [
            Output("1", "status", "x" * 4, "short"),
            Output("2", "status", "x" * 5, "fresh"),
            Output("3", "status", "x" * 5, "hint", hint("2")),
            Output("4", "other", "x" * 5, "short"),
            Output("5", "log", "y" * 999, "short"),
            Output("6", "other", "y" * 999, "fresh"),
        ],
    )


@pytest.mark.parametrize(
    ("tools", "capacity"),
    [
        pytest.param({}, 5, id="no settings"),
        pytest.param({"a": ToolSettings(capacity=2)}, 5, id="a smaller capacity of one tool"),
        pytest.param({"a": ToolSettings(capacity=7), "b": ToolSettings(capacity=9)}, 9, id="larger capacities"),
        pytest.param({"*": ToolSettings(capacity=6)}, 6, id="a larger capacity of all tools"),
    ],
)
def test_the_largest_capacity_is_that_of_the_one_cache(tools: dict[str, ToolSettings], capacity: int) -> None:
    assert ResponsePipeline(tools=tools).cache.capacity == capacity


def test_a_tool_declares_what_it_invalidates() -> None:
    play(
        ResponsePipeline(tools={"update": ToolSettings(invalidates=("get", "update"))}),
        [
            Output("1", "get", LONG, "fresh"),
            Output("2", "update", OTHER_LONG, "fresh"),
            Output("3", "get", LONG, "fresh"),
            Output("4", "update", OTHER_LONG, "fresh"),
            Output("5", "other", OTHER_LONG, "fresh"),
        ],
    )


def test_a_list_given_with_the_output_replaces_the_declared_list() -> None:
    play(
        ResponsePipeline(tools={"update": ToolSettings(invalidates=("get",))}),
        [
            Output("1", "get", LONG, "fresh"),
            Output("2", "update", OTHER_LONG, "fresh", invalidates=()),
            Output("3", "get", LONG, "hint", hint("1")),
        ],
    )


def test_settings_for_all_tools_count_for_tools_without_their_own() -> None:
    pipeline = ResponsePipeline(
        tools={"*": ToolSettings(min_bytes=5, invalidates=("get",)), "get": ToolSettings(), "log": ToolSettings()}
    )
    play(
        pipeline,
        [
            Output("1", "get", "x" * 5, "short"),
            Output("2", "get", LONG, "fresh"),
            Output("3", "log", OTHER_LONG, "fresh"),
            Output("4", "get", LONG, "hint", hint("2")),
            Output("5", "any", "x" * 5, "fresh"),
            Output("6", "get", LONG, "fresh"),
        ],
    )


def test_settings_do_not_apply_to_names_that_only_look_alike() -> None:
    play(
        ResponsePipeline(tools={"Status": ToolSettings(dedup=False)}),
        [Output("1", "status", LONG, "fresh"), Output("2", "status", LONG, "hint", hint("1"))],
    )


# --- bad arguments ------------------------------------------------------------------------------

cache: Any = ibidem.cache
"""Called with arguments that its types do not allow."""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(lambda: cache.DedupCache().check("text"), "pass content_hash(text)", id="check a text"),
        pytest.param(lambda: cache.DedupCache().insert("text", "id"), "pass content_hash(text)", id="insert a text"),
        pytest.param(
            lambda: cache.DedupCache().insert(A, "id", "file-read"), "ToolKind.from_tool_name", id="a kind as text"
        ),
        pytest.param(
            lambda: cache.DedupCache().invalidate_by_tool("Read"), "pass a list, ['Read']", id="one name of a tool"
        ),
        pytest.param(lambda: cache.ResponsePipeline().emit("id", "Read", b"body"), "bytes is not a str", id="bytes"),
        pytest.param(
            lambda: cache.ResponsePipeline().emit("id", "Write", "", invalidates="Read"),
            "pass a list",
            id="one name of an obsolete tool",
        ),
    ],
)
def test_bad_arguments_get_a_clear_message(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ibidem.IbidemError, match=re.escape(words)) as error:
        call()
    assert isinstance(error.value, TypeError)
