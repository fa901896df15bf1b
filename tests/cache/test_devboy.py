"""The response seat, against the behaviour it reproduces and against a plain list."""

import hashlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibidem
from ibidem.cache import (
    DedupCache,
    DeltaField,
    Fresh,
    Hint,
    HintVerbosity,
    NearRefConfig,
    ResponsePipeline,
    ToolKind,
    content_hash,
    extract_delta,
    path_hash,
    render_near_ref,
    render_reference_hint,
)

A, B, C = (content_hash(name) for name in "ABC")
READ, MUTATE, OTHER = ToolKind.FILE_READ, ToolKind.FILE_MUTATE, ToolKind.OTHER
ANY_SIZE = NearRefConfig(max_delta_bytes=10_000, min_body_bytes=0)


# --- values and texts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "raw"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param("Größe\r\n", b"Gr\xc3\xb6\xc3\x9fe\r\n", id="text is hashed as UTF-8"),
        pytest.param("\ud800", b"\xed\xa0\x80", id="a lone surrogate is hashed, not refused"),
    ],
)
def test_content_hash_is_the_first_half_of_sha256(data: bytes | str, raw: bytes) -> None:
    assert content_hash(data) == hashlib.sha256(raw).digest()[:16]


def test_trailing_whitespace_makes_another_hash() -> None:
    assert content_hash("a") != content_hash("a ")


def test_path_hash_is_eight_hex_digits() -> None:
    assert path_hash("/src/main.rs") == hashlib.sha256(b"/src/main.rs").hexdigest()[:8]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        pytest.param(READ, ["Read", "Grep", "Glob", "NotebookRead"], id="readers"),
        pytest.param(MUTATE, ["Edit", "Write", "MultiEdit", "NotebookEdit"], id="writers"),
        pytest.param(OTHER, ["Bash", "read", "mcp__x__Read", ""], id="everything else"),
    ],
)
def test_kind_of_a_tool(kind: ToolKind, names: list[str]) -> None:
    assert [ToolKind.from_tool_name(name) for name in names] == [kind] * len(names)


@pytest.mark.parametrize(
    ("verbosity", "source", "text"),
    [
        pytest.param("terse", READ, "> [ref: tc_1]", id="terse drops the source"),
        pytest.param("standard", None, "> [ref: tc_1, byte-identical]", id="standard"),
        pytest.param("standard", READ, "> [ref: tc_1, byte-identical]", id="standard drops it too"),
        pytest.param("verbose", None, "> [ref: tc_1, byte-identical]", id="verbose, no source"),
        pytest.param("verbose", READ, "> [ref: tc_1, byte-identical, from: file-read]", id="verbose read"),
        pytest.param("verbose", MUTATE, "> [ref: tc_1, byte-identical, from: file-mutate]", id="verbose edit"),
        pytest.param("verbose", OTHER, "> [ref: tc_1, byte-identical, from: other]", id="verbose other"),
    ],
)
def test_reference_hint(verbosity: str, source: ToolKind | None, text: str) -> None:
    assert render_reference_hint("tc_1", HintVerbosity(verbosity), source) == text


def test_reference_hint_is_standard_by_default() -> None:
    assert render_reference_hint("tc_42") == "> [ref: tc_42, byte-identical]"


# --- the cache ----------------------------------------------------------------------------------


def filled(capacity: int, *hashes: bytes) -> DedupCache:
    """A cache with these inserted in order, as calls tc_1, tc_2, …"""
    cache = DedupCache(capacity)
    for number, each in enumerate(hashes, 1):
        cache.insert(each, f"tc_{number}")
    return cache


def test_fresh_then_duplicate_names_the_first_call_every_time() -> None:
    cache = DedupCache()
    assert cache.check(A) == Fresh()
    assert len(cache) == 0, "a look-up inserts nothing"
    cache.insert(A, "tc_1")
    assert [cache.check(A), cache.check(A), cache.check(B)] == [Hint("tc_1"), Hint("tc_1"), Fresh()]


@pytest.mark.parametrize(
    ("capacity", "hashes", "known", "gone"),
    [
        pytest.param(2, [A, B, C], [B, C], [A], id="two places: the oldest of three goes"),
        pytest.param(1, [A, B], [B], [A], id="one place"),
        pytest.param(0, [A, B], [B], [A], id="no place is one place"),
        pytest.param(-3, [A, B], [B], [A], id="fewer than none is one place"),
        pytest.param(2, [A, B, B], [B], [A], id="an equal hash takes a place of its own"),
    ],
)
def test_eviction(capacity: int, hashes: list[bytes], known: list[bytes], gone: list[bytes]) -> None:
    cache = filled(capacity, *hashes)
    assert len(cache) == cache.capacity == max(1, capacity)
    assert [cache.check(each) for each in gone] == [Fresh()] * len(gone)
    assert Fresh() not in [cache.check(each) for each in known]


def test_default_capacity_is_five() -> None:
    assert DedupCache().capacity == 5


def test_a_hit_protects_from_eviction() -> None:
    cache = filled(2, A, B)
    cache.check(A)
    cache.insert(C, "tc_3")
    assert [cache.check(A), cache.check(B), cache.check(C)] == [Hint("tc_1"), Fresh(), Hint("tc_3")]


def test_of_equal_entries_the_least_recent_is_found_and_promoted() -> None:
    cache = filled(5, A, A, B)
    found = [cache.check(A) for _ in range(4)]
    assert found == [Hint("tc_1"), Hint("tc_2"), Hint("tc_1"), Hint("tc_2")]
    assert len(cache) == 3


def test_looking_up_by_hash_and_by_call_share_one_order() -> None:
    cache = DedupCache(2)
    cache.insert(A, "tc_1")
    cache.insert(B, "tc_1")
    assert cache.check(A) == Hint("tc_1")
    assert cache.touch("tc_1"), "finds B, which is the least recent now"
    cache.insert(C, "tc_2")
    assert [cache.check(A), cache.check(B)] == [Fresh(), Hint("tc_1")]


def test_touching_a_call_counts_among_equal_entries() -> None:
    cache = filled(5, A, A)
    assert cache.touch("tc_1")
    assert cache.check(A) == Hint("tc_2")


def test_touch_protects_the_entry_of_a_call() -> None:
    cache = filled(2, A, B)
    assert cache.touch("tc_1")
    assert not cache.touch("tc_9")
    cache.insert(C, "tc_3")
    assert [cache.check(A), cache.check(B)] == [Hint("tc_1"), Fresh()]


@pytest.mark.parametrize(
    ("kind", "path", "dropped"),
    [
        pytest.param(READ, "p", 1, id="a read of the path goes"),
        pytest.param(READ, "q", 0, id="a read of another path stays"),
        pytest.param(READ, None, 0, id="a read without a path stays"),
        pytest.param(MUTATE, "p", 0, id="what an edit of the path printed stays"),
        pytest.param(OTHER, "p", 0, id="any other output that names the path stays"),
    ],
)
def test_invalidate_file(kind: ToolKind, path: str | None, dropped: int) -> None:
    cache = DedupCache()
    cache.insert(A, "tc_1", kind, path, "T")
    cache.insert(B, "tc_2")
    assert cache.invalidate_file("p") == dropped
    assert cache.check(A) == (Fresh() if dropped else Hint("tc_1"))
    assert (cache.check(B), len(cache)) == (Hint("tc_2"), 2 - dropped)


@pytest.mark.parametrize(
    ("names", "dropped"),
    [
        pytest.param([], 0, id="nothing named, nothing dropped"),
        pytest.param(["get_pipeline"], 0, id="a tool that was never called"),
        pytest.param(["get_issue"], 2, id="every entry of the tool"),
        pytest.param(["get_issue", "get_issues"], 3, id="several tools"),
        pytest.param(["get_issue", "get_issue"], 2, id="a name given twice counts once"),
    ],
)
def test_invalidate_by_tool(names: list[str], dropped: int) -> None:
    cache = DedupCache()
    for id, tool in [("1", "get_issue"), ("2", "get_issues"), ("3", "get_issue"), ("4", "Bash")]:
        cache.insert(content_hash(id), id, tool_name=tool)
    assert cache.invalidate_by_tool(names) == dropped
    assert len(cache) == 4 - dropped
    assert cache.check(content_hash("4")) == Hint("4")


def test_compaction_forgets_everything_and_advances_the_partition() -> None:
    cache = DedupCache()
    cache.insert_with_body(A, "tc_1", READ, "p", '{"v": 1}', "Read")
    assert cache.partition == 0
    cache.on_compaction_boundary()
    assert (cache.partition, len(cache), cache.capacity) == (1, 0, 5)
    assert (cache.check(A), cache.touch("tc_1")) == (Fresh(), False)
    assert (cache.invalidate_file("p"), cache.invalidate_by_tool(["Read"])) == (0, 0)
    assert cache.find_near_ref('{"v": 2}', ANY_SIZE) is None


class Remembered(NamedTuple):
    hash: bytes
    id: str
    kind: ToolKind
    path: str | None
    body: str | None
    tool: str


class PlainList:
    """The same cache as a list from least to most recent, every operation a scan."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self.entries: list[Remembered] = []

    def _promote(self, matches: Callable[[Remembered], bool]) -> Remembered | None:
        for index, entry in enumerate(self.entries):
            if matches(entry):
                self.entries.append(self.entries.pop(index))
                return entry
        return None

    def _drop(self, matches: Callable[[Remembered], bool]) -> int:
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if not matches(entry)]
        return before - len(self.entries)

    def check(self, hash: bytes) -> Fresh | Hint:
        entry = self._promote(lambda each: each.hash == hash)
        return Fresh() if entry is None else Hint(entry.id)

    def touch(self, id: str) -> bool:
        return self._promote(lambda each: each.id == id) is not None

    def insert(self, hash: bytes, id: str, kind: ToolKind, path: str | None, tool: str) -> None:
        self.insert_with_body(hash, id, kind, path, None, tool)

    def insert_with_body(
        self,
        hash: bytes,
        id: str,
        kind: ToolKind,
        path: str | None,
        body: str | None,
        tool: str,
    ) -> None:
        if len(self.entries) >= self.capacity:
            self.entries.pop(0)
        self.entries.append(Remembered(hash, id, kind, path, body, tool))

    def find_near_ref(self, body: str, config: NearRefConfig) -> tuple[str, tuple[DeltaField, ...]] | None:
        for entry in reversed(self.entries):
            if entry.body is not None and (deltas := extract_delta(entry.body, body, config)):
                return entry.id, deltas
        return None

    def invalidate_file(self, path: str) -> int:
        return self._drop(lambda each: each.kind is READ and each.path == path)

    def invalidate_by_tool(self, names: list[str]) -> int:
        return self._drop(lambda each: each.tool in names)

    def on_compaction_boundary(self) -> None:
        self.entries = []


# Few of everything, so that operations meet.
HASHES = st.sampled_from([A, B, C])
IDS = st.sampled_from(["1", "2", "3", "4"])
KINDS = st.sampled_from(ToolKind)
PATHS = st.sampled_from(["p", "q"])
BODIES = st.sampled_from([f'{{"v": {number}}}' for number in range(4)])
TOOLS = st.sampled_from(["", "t", "u"])
MAYBE_PATHS = st.none() | PATHS
NEW = st.one_of(
    st.tuples(st.just("insert"), HASHES, IDS, KINDS, MAYBE_PATHS, TOOLS),
    st.tuples(st.just("insert_with_body"), HASHES, IDS, KINDS, MAYBE_PATHS, BODIES, TOOLS),
)
SEEN = st.one_of(
    st.tuples(st.just("check"), HASHES),
    st.tuples(st.just("touch"), IDS),
    st.tuples(st.just("find_near_ref"), BODIES, st.just(ANY_SIZE)),
)
DROPPED = st.one_of(
    st.tuples(st.just("invalidate_file"), PATHS),
    st.tuples(st.just("invalidate_by_tool"), st.lists(TOOLS, max_size=2)),
    st.tuples(st.just("on_compaction_boundary")),
)
# Inserting is likelier than dropping, or the cache would stay empty.
OPERATIONS = st.lists(NEW | NEW | NEW | SEEN | SEEN | DROPPED, max_size=60)


@pytest.mark.parametrize("capacity", [0, 1, 2, 5])
@given(operations=OPERATIONS)
def test_law_the_cache_is_the_plain_list(capacity: int, operations: list[tuple[str, Any]]) -> None:
    cache, model = DedupCache(capacity), PlainList(capacity)
    for name, *arguments in operations:
        assert getattr(cache, name)(*arguments) == getattr(model, name)(*arguments), name
        assert len(cache) == len(model.entries)
    for each in (A, B, C) * 2:
        assert cache.check(each) == model.check(each)


class Counted(str):
    """A string that counts how often it is compared, as a scan over the entries would."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


class CountedHash(bytes):
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return bytes.__eq__(self, other)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda cache: cache.check(CountedHash(b"hash 500")), id="look up a hit"),
        pytest.param(lambda cache: cache.check(CountedHash(b"hash none")), id="look up a miss"),
        pytest.param(lambda cache: cache.touch(Counted("id 500")), id="touch"),
        pytest.param(lambda cache: cache.insert(CountedHash(b"h"), Counted("i")), id="insert and evict"),
        pytest.param(lambda cache: cache.invalidate_file(Counted("path 500")), id="drop a path"),
        pytest.param(lambda cache: cache.invalidate_by_tool([Counted("tool 5")]), id="drop a tool"),
    ],
)
def test_law_no_operation_scans_the_entries(operation: Callable[[DedupCache], object]) -> None:
    cache: Any = DedupCache(1000)
    for number in range(1000):
        id, path, tool = (Counted(f"{of} {number}") for of in ("id", "path", "tool"))
        cache.insert(CountedHash(b"hash %d" % number), id, READ, path, tool)
    Counted.compared = 0
    operation(cache)
    assert Counted.compared < 20


# --- near-references ----------------------------------------------------------------------------


def body(**fields: object) -> str:
    """A JSON object of more than 500 bytes with these fields and one that never changes."""
    return json.dumps({**fields, "pad": "x" * 500})


def sized(size: int, **fields: object) -> str:
    """A JSON object of exactly so many bytes."""
    bare = len(json.dumps({**fields, "pad": ""}))
    return json.dumps({**fields, "pad": "x" * (size - bare)})


def raw(text: str) -> str:
    """A JSON object of more than 500 bytes, its first fields spelled by hand."""
    return f'{{{text}, "pad": "{"x" * 500}"}}'


DEEP = "[" * 100_000 + "]" * 100_000

NOT_ELIGIBLE = [
    pytest.param(body(s="a"), body(s="a"), id="no difference"),
    pytest.param(body(s="a"), body(s="a").replace(", ", ","), id="a difference in layout only"),
    pytest.param(body(s="a"), body(s="b", t=1), id="a key more"),
    pytest.param(body(s="a", t=1), body(s="b"), id="a key less"),
    pytest.param(body(s="a"), body(t="a"), id="a key renamed"),
    pytest.param(body(m={"k": 1}), body(m={"k": 2}), id="a nested difference"),
    pytest.param(body(m={"k": 1}), body(m=1), id="an object became a scalar"),
    pytest.param(body(m=1), body(m=[1]), id="a scalar became a list"),
    pytest.param(body(s="a", m=[1]), body(s="b", m=[2]), id="a scalar and a nested difference"),
    pytest.param(json.dumps(["a" * 500]), json.dumps(["b" * 500]), id="lists"),
    pytest.param(json.dumps("a" * 500), json.dumps("b" * 500), id="strings"),
    pytest.param("x" * 500, body(s="a"), id="the old body is not JSON"),
    pytest.param(body(s="a"), "x" * 500, id="the new body is not JSON"),
    pytest.param(body(s="a"), body(s="b") + "}", id="something after the object"),
    pytest.param(body(s="a"), "\ufeff" + body(s="b"), id="a byte order mark"),
    pytest.param(raw('"s": 1'), raw('"s": NaN'), id="NaN is not JSON"),
    pytest.param(raw('"s": -Infinity'), raw('"s": 1'), id="nor is infinity"),
    pytest.param(raw('"s": 1, "t": Infinity'), raw('"s": 2, "t": Infinity'), id="changed or not"),
    pytest.param(raw('"s": 1'), raw('"s": "\\ud800"'), id="half a surrogate pair cannot be sent"),
    pytest.param(raw('"s": 1'), raw(f'"s": {DEEP}'), id="the new body is nested too deep"),
    pytest.param(raw(f'"s": {DEEP}'), raw('"s": 1'), id="the old body is nested too deep"),
    pytest.param("", "", id="nothing"),
]


@pytest.mark.parametrize(("old", "new"), NOT_ELIGIBLE)
def test_not_eligible(old: str, new: str) -> None:
    assert extract_delta(old, new, NearRefConfig()) is None


@pytest.mark.parametrize(
    ("old", "new", "deltas"),
    [
        pytest.param(
            body(id=42, status="pending", duration=12),
            body(id=42, status="success", duration=34),
            [("status", "pending", "success"), ("duration", "12", "34")],
            id="a poll",
        ),
        pytest.param(body(a=1, b=2), body(b=3, a=4), [("b", "2", "3"), ("a", "1", "4")], id="new key order"),
        pytest.param(body(s=None), body(s="x"), [("s", "", "x")], id="null renders empty"),
        pytest.param(body(s=None), body(s=""), [("s", "", "")], id="null is not the empty string"),
        pytest.param(body(s=True), body(s=False), [("s", "true", "false")], id="booleans as JSON"),
        pytest.param(body(s=1), body(s=True), [("s", "1", "true")], id="true is not 1"),
        pytest.param(body(s=1), body(s="1"), [("s", "1", "1")], id="1 is not '1'"),
        pytest.param(body(s=1), body(s=1.0), [("s", "1", "1.0")], id="1 is not 1.0"),
        pytest.param(raw('"s": 1E5'), raw('"s": 1.50'), [("s", "1E5", "1.50")], id="numbers as spelled"),
        pytest.param(
            raw('"s": 12345678901234567890.10'),
            raw('"s": -0'),
            [("s", "12345678901234567890.10", "-0")],
            id="no digit is lost",
        ),
        pytest.param(body(s='say "a"'), body(s="b\n→c"), [("s", 'say "a"', "b\n→c")], id="strings raw"),
        pytest.param(body(s="ö"), body(s="ü"), [("s", "ö", "ü")], id="escapes are decoded"),
        pytest.param(body(m=[1, {}], s=1), body(m=[1, {}], s=2), [("s", "1", "2")], id="nested"),
        pytest.param("\n" + body(s=1), " " + body(s=2), [("s", "1", "2")], id="space around"),
    ],
)
def test_eligible(old: str, new: str, deltas: list[tuple[str, str, str]]) -> None:
    assert extract_delta(old, new, NearRefConfig()) == tuple(DeltaField(*each) for each in deltas)


def test_a_number_too_long_for_python_is_still_a_number() -> None:
    digits = "9" * (sys.get_int_max_str_digits() + 1)
    assert extract_delta(raw(f'"s": 1, "n": {digits}'), raw(f'"s": 2, "n": {digits}')) == (DeltaField("s", "1", "2"),)


@pytest.mark.parametrize(
    ("old", "new", "size"),
    [
        pytest.param({"key": "a" * 21}, {"key": "b" * 21}, 50, id="one field of 50 bytes"),
        pytest.param({"key": "a" * 21}, {"key": "b" * 22}, 51, id="one field of 51 bytes"),
        pytest.param({"key": "a" * 11, "two": "1"}, {"key": "b" * 18, "two": "22"}, 50, id="two fields, 50"),
        pytest.param({"key": "a" * 11, "two": "1"}, {"key": "b" * 18, "two": "333"}, 51, id="two fields, 51"),
        pytest.param({"key": "ö" * 10}, {"key": "b" * 22}, 50, id="umlauts, 50 bytes"),
        pytest.param({"key": "ö" * 10}, {"key": "b" * 23}, 51, id="umlauts, 51 bytes"),
        pytest.param({"k→": "a" * 20}, {"k→": "b" * 21}, 50, id="an arrow in the key, 50"),
        pytest.param({"k→": "a" * 20}, {"k→": "b" * 22}, 51, id="an arrow in the key, 51"),
    ],
)
def test_the_rendered_delta_fits_50_bytes(old: dict[str, str], new: dict[str, str], size: int) -> None:
    rendered = ", ".join(f"{key}: {old[key]}→{new[key]}" for key in new)
    assert len(rendered.encode()) == size
    assert (extract_delta(body(**old), body(**new)) is not None) == (size <= 50)


@pytest.mark.parametrize(
    ("old", "new", "eligible"),
    [
        pytest.param(sized(500, s="a"), sized(499, s="b"), False, id="499 bytes are too few"),
        pytest.param(sized(400, s="a"), '{"s": "b"}', False, id="far too few"),
        pytest.param('{"s":"a","pad":"x"}', '{"s":"b","pad":"x"}' + " " * 481, True, id="500"),
        pytest.param('{"s":"a","p":"ö"}', '{"s":"b","p":"ö"}' + " " * 482, True, id="an umlaut is two bytes"),
    ],
)
def test_the_new_body_has_500_bytes(old: str, new: str, eligible: bool) -> None:
    assert (extract_delta(old, new) is not None) == eligible
    assert (len(new.encode()) == 500) == eligible


def test_limits_are_settings() -> None:
    assert extract_delta('{"s":1}', '{"s":2}', NearRefConfig(8, 7)) == (DeltaField("s", "1", "2"),)
    assert extract_delta('{"s":1}', '{"s":2}', NearRefConfig(7, 7)) is None
    assert extract_delta('{"s":1}', '{"s":2}', NearRefConfig(8, 8)) is None


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        pytest.param([("a", "1", "2")], "> [near-ref: tc_42, a: 1→2]", id="one field"),
        pytest.param(
            [("status", "pending", "success"), ("duration", "12", "34")],
            "> [near-ref: tc_42, status: pending→success, duration: 12→34]",
            id="two fields",
        ),
        pytest.param([("a", "", "2")], "> [near-ref: tc_42, a: →2]", id="from null"),
    ],
)
def test_near_ref(deltas: list[tuple[str, str, str]], text: str) -> None:
    assert render_near_ref("tc_42", tuple(DeltaField(*each) for each in deltas)) == text


def test_the_newest_eligible_body_is_referred_to_and_not_refreshed() -> None:
    cache = DedupCache(3)
    cache.insert_with_body(A, "tc_1", OTHER, None, body(s=1), "get")
    cache.insert_with_body(B, "tc_2", OTHER, None, body(s=2), "get")
    cache.insert(C, "tc_3")
    assert cache.find_near_ref(body(s=3)) == ("tc_2", (DeltaField("s", "2", "3"),))
    assert cache.find_near_ref(body(s=2)) == ("tc_1", (DeltaField("s", "1", "2"),))
    assert cache.find_near_ref(body(t=3)) is None
    cache.insert(content_hash("D"), "tc_4")
    assert cache.check(A) == Fresh(), "being referred to did not save the oldest"


# Hypothesis leaves surrogates out of plain text; JSON escapes and broken streams do not.
ANY_TEXT = st.text(st.characters(codec=None))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner))
JSON_BODIES = st.dictionaries(st.sampled_from(["a", "b", "ü"]), VALUES).map(json.dumps)


@given(old=ANY_TEXT | JSON_BODIES, new=ANY_TEXT | JSON_BODIES)
def test_law_a_delta_can_be_sent_or_is_none(old: str, new: str) -> None:
    deltas = extract_delta(old, new, ANY_SIZE)
    if deltas is not None:
        assert render_near_ref("tc", deltas).encode().startswith(b"> [near-ref: tc, ")
        assert {each.key for each in deltas} <= json.loads(new).keys() & json.loads(old).keys()


# --- the pipeline -------------------------------------------------------------------------------

LONG = "line of a file\n" * 40
OTHER_LONG = "line of another file\n" * 40


class Call(NamedTuple):
    """One output in, and the kind and (where it is not the body) the text that comes out."""

    id: str
    tool: str
    body: str
    kind: str
    text: str | None = None
    path: str | None = None
    invalidates: tuple[str, ...] = ()


def play(pipeline: ResponsePipeline, calls: list[Call]) -> None:
    for call in calls:
        emission = pipeline.emit(call.id, call.tool, call.body, path=call.path, invalidates=call.invalidates)
        expected = call.body if call.text is None else call.text
        assert (emission.text, emission.kind) == (expected, call.kind), call.id


def hint(id: str) -> str:
    return f"> [ref: {id}, byte-identical]"


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(
            [
                Call("1", "Read", LONG, "fresh", path="a"),
                Call("2", "Read", LONG, "hint", hint("1"), path="a"),
                *(Call(str(n), "Bash", LONG, "hint", hint("1")) for n in range(3, 10)),
            ],
            id="a repeat names the first call, however often and by whichever tool",
        ),
        pytest.param(
            [
                Call("1", "Bash", "x" * 199, "short"),
                Call("2", "Bash", "x" * 199, "short"),
                Call("3", "Bash", "x" * 200, "fresh"),
                Call("4", "Bash", "x" * 200, "hint", hint("3")),
            ],
            id="199 bytes pass, 200 are remembered",
        ),
        pytest.param(
            [
                Call("1", "Bash", "ö" * 99 + "x", "short"),
                Call("2", "Bash", "ö" * 99 + "x", "short"),
                Call("3", "Bash", "ö" * 100, "fresh"),
                Call("4", "Bash", "ö" * 100, "hint", hint("3")),
            ],
            id="bytes are counted, not characters",
        ),
        pytest.param(
            [
                Call("1", "Read", LONG, "fresh", path="a"),
                Call("2", "Edit", "ok", "short", path="a"),
                Call("3", "Read", LONG, "fresh", path="a"),
                Call("4", "Read", LONG, "hint", hint("3"), path="a"),
            ],
            id="an edit makes the next read fresh though nothing differs",
        ),
        pytest.param(
            [
                Call("1", "Read", LONG, "fresh", path="a"),
                Call("2", "Edit", LONG, "fresh", path="a"),
                Call("3", "Read", LONG, "hint", hint("2"), path="a"),
            ],
            id="an edit drops the read before it is compared with it",
        ),
        pytest.param(
            [
                Call("1", "Read", LONG, "fresh", path="a"),
                Call("2", "Edit", "ok", "short", path="b"),
                Call("3", "Edit", "ok", "short"),
                Call("4", "Bash", "ok", "short", path="a"),
                Call("5", "Read", LONG, "hint", hint("1"), path="a"),
            ],
            id="another path, no path, and a tool that is no writer drop nothing",
        ),
        pytest.param(
            [
                Call("1", "Read", LONG, "fresh", path="a"),
                Call("2", "update", OTHER_LONG, "fresh", invalidates=("Read", "update")),
                Call("3", "Read", LONG, "fresh", path="a"),
                Call("4", "update", OTHER_LONG, "fresh"),
            ],
            id="declared tools are dropped after the insert, also the caller's own",
        ),
        pytest.param(
            [
                Call("1", "get", body(s=1), "fresh"),
                Call("2", "get", body(s=2), "fresh"),
            ],
            id="no near-references unless asked for",
        ),
        pytest.param(
            [
                Call("1", "Bash", LONG, "fresh"),
                *(Call(str(n), "Bash", OTHER_LONG + str(n), "fresh") for n in range(2, 6)),
                Call("6", "Bash", LONG, "hint", hint("1")),
                Call("7", "Bash", "y" * 200, "fresh"),
                Call("8", "Bash", OTHER_LONG + "2", "fresh"),
                Call("9", "Bash", LONG, "hint", hint("1")),
            ],
            id="five outputs are remembered, a repeat stays longest",
        ),
    ],
)
def test_pipeline(calls: list[Call]) -> None:
    play(ResponsePipeline(), calls)


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(
            [
                Call("1", "get", body(s=1), "fresh"),
                Call("2", "get", body(s=2), "near", "> [near-ref: 1, s: 1→2]"),
                Call("3", "get", body(s=3), "near", "> [near-ref: 2, s: 2→3]"),
            ],
            id="each poll refers to the one before",
        ),
        pytest.param(
            [
                Call("1", "get", body(s=1), "fresh"),
                Call("2", "get", body(s=2), "near", "> [near-ref: 1, s: 1→2]"),
                Call("3", "get", body(s=2), "hint", hint("2")),
                Call("4", "get", body(s=1), "hint", hint("1")),
            ],
            id="equal beats similar, also where only a delta was sent",
        ),
        pytest.param(
            [
                Call("1", "Read", body(s=1), "fresh", path="a.json"),
                Call("2", "Write", "ok", "short", path="a.json"),
                Call("3", "Read", body(s=2), "fresh", path="a.json"),
            ],
            id="a dropped body is not referred to",
        ),
        pytest.param(
            [
                Call("1", "get", sized(498, s=1), "fresh"),
                Call("2", "get", sized(498, s=2), "fresh"),
            ],
            id="a body under the near limit is sent",
        ),
    ],
)
def test_pipeline_with_near_references(calls: list[Call]) -> None:
    play(ResponsePipeline(near=NearRefConfig()), calls)


WRITES = [
    pytest.param([Call("w", "update", "ok", "short", invalidates=("get",))], id="a short answer"),
    pytest.param(
        [
            Call("v", "update", OTHER_LONG, "fresh"),
            Call("w", "update", OTHER_LONG, "hint", hint("v"), invalidates=("get",)),
        ],
        id="a repeated answer",
    ),
    pytest.param(
        [
            Call("v", "update", body(s=1), "fresh"),
            Call("w", "update", body(s=2), "near", "> [near-ref: v, s: 1→2]", None, ("get",)),
        ],
        id="a similar answer",
    ),
]


@pytest.mark.parametrize("writes", WRITES)
def test_a_writer_invalidates_whatever_it_answers(writes: list[Call]) -> None:
    pipeline = ResponsePipeline(near=NearRefConfig())
    play(pipeline, [Call("1", "get", LONG, "fresh"), *writes, Call("2", "get", LONG, "fresh")])


@pytest.mark.parametrize("writes", WRITES)
def test_devboy_invalidates_only_after_a_fresh_answer(writes: list[Call]) -> None:
    pipeline = ResponsePipeline(near=NearRefConfig(), short_bodies_invalidate=False)
    play(
        pipeline,
        [
            Call("1", "get", LONG, "fresh"),
            *writes,
            Call("2", "get", LONG, "hint", hint("1")),
            Call("3", "update", LONG[1:], "fresh", invalidates=("get",)),
            Call("4", "get", LONG, "fresh"),
        ],
    )


@pytest.mark.parametrize("short_bodies_invalidate", [True, False])
def test_an_edit_drops_its_path_in_either_setting(short_bodies_invalidate: bool) -> None:
    play(
        ResponsePipeline(short_bodies_invalidate=short_bodies_invalidate),
        [
            Call("1", "Read", LONG, "fresh", path="a"),
            Call("2", "Edit", "", "short", path="a"),
            Call("3", "Read", LONG, "fresh", path="a"),
        ],
    )


def test_a_verbose_hint_names_the_kind_of_the_repeating_call() -> None:
    play(
        ResponsePipeline(verbosity=HintVerbosity.VERBOSE),
        [
            Call("1", "Bash", LONG, "fresh"),
            Call("2", "Read", LONG, "hint", "> [ref: 1, byte-identical, from: file-read]"),
        ],
    )


FRAME = len("> [ref: ]")


@pytest.mark.parametrize(
    ("id_bytes", "kind"),
    [
        pytest.param(200 - FRAME - 1, "hint", id="a hint of 199 bytes for a body of 200"),
        pytest.param(200 - FRAME, "fresh", id="a hint as long as the body"),
        pytest.param(200, "fresh", id="a hint longer than the body"),
    ],
)
def test_a_hint_is_shorter_than_the_body(id_bytes: int, kind: str) -> None:
    id = "ö" * (id_bytes // 2) + "x" * (id_bytes % 2)
    pipeline = ResponsePipeline(verbosity=HintVerbosity.TERSE)
    text = f"> [ref: {id}]" if kind == "hint" else None
    play(pipeline, [Call(id, "T", "y" * 200, "fresh"), Call("2", "T", "y" * 200, kind, text)])


def test_what_is_sent_for_want_of_a_shorter_hint_is_remembered() -> None:
    pipeline = ResponsePipeline()
    play(pipeline, [Call(id, "T", "y" * 200, "fresh") for id in ("i" * 500, "2", "3")])
    # The look-up of 3 found the long id once more and moved it behind 2.
    play(pipeline, [Call("4", "T", "y" * 200, "hint", hint("2"))])


def test_a_near_reference_is_shorter_than_the_body() -> None:
    pipeline = ResponsePipeline(min_bytes=0, near=ANY_SIZE)
    play(pipeline, [Call("1", "T", '{"s":1}', "fresh"), Call("2", "T", '{"s":2}', "fresh")])


def test_an_empty_cache_that_is_passed_in_is_the_one_used() -> None:
    cache = DedupCache(1)
    ResponsePipeline(cache).emit("1", "T", LONG)
    assert cache.check(content_hash(LONG)) == Hint("1")


def test_a_reference_met_again_refreshes_what_it_names() -> None:
    pipeline = ResponsePipeline(DedupCache(2))
    play(pipeline, [Call("1", "T", LONG, "fresh"), Call("2", "T", OTHER_LONG, "fresh")])
    assert (pipeline.note_reference("1"), pipeline.note_reference("9")) == (True, False)
    play(pipeline, [Call("3", "T", "y" * 200, "fresh"), Call("4", "T", LONG, "hint", hint("1"))])


OUTPUTS = st.tuples(
    st.sampled_from(["Read", "Edit", "Bash"]),
    st.sampled_from(["", "a" * 20, "b" * 300, "\ud800" * 100, '{"s": 1}', '{"s": 22}']) | ANY_TEXT,
    st.none() | st.sampled_from(["p", "q", "\udcff"]),
    st.lists(st.sampled_from(["Read", "Bash"]), max_size=1),
)


@pytest.mark.parametrize("near", [None, ANY_SIZE])
@given(outputs=st.lists(OUTPUTS, max_size=30), min_bytes=st.sampled_from([0, 10, 200]))
def test_law_never_larger_and_hints_are_true(
    near: NearRefConfig | None,
    outputs: list[tuple[str, str, str | None, list[str]]],
    min_bytes: int,
) -> None:
    pipeline = ResponsePipeline(DedupCache(3), min_bytes, near, HintVerbosity.TERSE)
    bodies: dict[str, str] = {}
    for number, (tool, text, path, invalidates) in enumerate(outputs):
        bodies[str(number)] = text
        emission = pipeline.emit(str(number), tool, text, path=path, invalidates=invalidates)
        sent, size = (len(each.encode("utf-8", "surrogatepass")) for each in (emission.text, text))
        assert (emission.kind == "short") == (size < min_bytes)
        if emission.kind in ("fresh", "short"):
            assert emission.text == text
        else:
            assert sent < size
        if emission.kind == "hint":
            assert bodies[emission.text.removeprefix("> [ref: ").removesuffix("]")] == text


# --- what is passed by mistake ------------------------------------------------------------------

cache: Any = ibidem.cache
"""Called with what its types do not allow."""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(lambda: cache.DedupCache().check("text"), "pass content_hash(text)", id="a text for a hash"),
        pytest.param(
            lambda: cache.DedupCache().insert("text", "id"), "pass content_hash(text)", id="a text to remember"
        ),
        pytest.param(
            lambda: cache.DedupCache().insert(A, "id", "file-read"), "ToolKind.from_tool_name", id="a kind by name"
        ),
        pytest.param(lambda: cache.DedupCache().invalidate_by_tool("Read"), "pass a list, ['Read']", id="one tool"),
        pytest.param(
            lambda: cache.ResponsePipeline().emit("id", "Read", b"body"), "bytes is no text", id="bytes for a text"
        ),
        pytest.param(
            lambda: cache.ResponsePipeline().emit("id", "Write", "", invalidates="Read"),
            "pass a list",
            id="one stale tool",
        ),
    ],
)
def test_a_mistake_of_the_caller_is_told_at_once(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ibidem.IbidemError, match=re.escape(words)) as caught:
        call()
    assert isinstance(caught.value, TypeError)
