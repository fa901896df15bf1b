"""Keys that come and go, and values that are put into others: in values and in bytes alike, and back to the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.errors import IbidemError
from ibidem.wire import JsonChange, apply_changes, parse, scan, splice
from ibidem.wire.json_tree import KeyedValue

from .test_wire import GAPS, NODES, VALUES, Node, exact

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))
MARK = {"type": "ephemeral"}
WRAPPED = [{"type": "text", "text": ..., "cache_control": MARK}]


@st.composite
def bodies(draw: Any) -> Node:
    """With objects in a history and beside it."""
    gaps = st.sampled_from(GAPS)
    history = Node(open="[", items=draw(st.lists(NODES, min_size=1, max_size=4)), spaces=draw(gaps))
    items = [history, *draw(st.lists(NODES, max_size=2))]
    return Node(
        open="{", keys=['"messages"', '"tools"', '"sys\\u0074em"'][: len(items)], items=items, spaces=draw(gaps)
    )


def found(value: Any, kind: type, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    here = [path] if isinstance(value, kind) else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return here + [each for key, item in inside for each in found(item, kind, (*path, key))]


def order(value: Any) -> str:
    """As it is written, key for key."""
    return json.dumps(value)


def data_of(node: Node) -> bytes:
    return node.text().encode("utf-8", "surrogatepass")


def is_insertion(before: bytes, after: bytes) -> bool:
    """Whether the one is the other with something put in at one place."""
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    rest = len(before) - same
    return len(after) >= len(before) and (not rest or after[-rest:] == before[-rest:])


@given(bodies(), st.data())
@SLOW
def test_a_key_is_added_and_dropped(node: Node, draw: st.DataObject) -> None:
    data = data_of(node)
    value = parse(data)
    places = draw.draw(st.lists(st.sampled_from(found(value, dict)), min_size=1, max_size=3, unique=True))
    added = [JsonChange((*path, "cache_control"), "set", draw.draw(VALUES)) for path in places]
    spliced = splice(data, value, added)
    assert exact(parse(spliced)) == exact(apply_changes(value, added))
    assert len(added) > 1 or is_insertion(data, spliced)
    dropped = [JsonChange(change.path, "drop") for change in added]
    assert splice(spliced, parse(spliced), dropped) == data
    assert exact(apply_changes(apply_changes(value, added), dropped)) == exact(value)


@given(bodies(), st.data())
@SLOW
def test_a_key_is_added_at_a_place_and_dropped(node: Node, draw: st.DataObject) -> None:
    data = data_of(node)
    value = parse(data)
    path = draw.draw(st.sampled_from(found(value, dict)))
    added = [JsonChange((*path, "ttl"), "set", KeyedValue(draw.draw(st.integers(0, 2)), "1h"))]
    spliced, rebuilt = splice(data, value, added), apply_changes(value, added)
    assert exact(parse(spliced)) == exact(rebuilt)
    assert is_insertion(data, spliced)
    assert order(parse(spliced)) == order(rebuilt)
    dropped = [JsonChange((*path, "ttl"), "drop")]
    assert splice(spliced, parse(spliced), dropped) == data
    assert exact(apply_changes(rebuilt, dropped)) == exact(value)


@pytest.mark.parametrize(
    "mark",
    [
        '{"type":"ephemeral","ttl":"5m"}',
        '{ "type" : "ephemeral" ,"ttl" : "5m" }',
        '{\n  "type": "ephemeral",\n  "t\\u0074l": "5m",\n  "scope": {}\n}',
        '{"scope": 1.0,"type": "ephemeral" , "ttl":"5m"}',
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_key_is_moved_and_moved_back(mark: str, place: int) -> None:
    data = f'{{"messages": [{{"cache_control":{mark}}}]}}'.encode()
    value, path = parse(data), ("messages", 0, "cache_control", "ttl")
    stood = list(value["messages"][0]["cache_control"]).index("ttl")
    there, back = [JsonChange(path, "set", KeyedValue(place, "1h"))], [JsonChange(path, "set", KeyedValue(stood, "5m"))]
    spliced = splice(data, value, there)
    moved = parse(spliced)["messages"][0]["cache_control"]
    assert list(moved).index("ttl") == min(place, len(moved) - 1)
    assert order(parse(spliced)) == order(apply_changes(value, there))
    assert splice(spliced, parse(spliced), back) == data
    assert order(apply_changes(apply_changes(value, there), back)) == order(value)


@given(bodies(), st.data())
@SLOW
def test_keys_that_were_there_are_dropped(node: Node, draw: st.DataObject) -> None:
    data = data_of(node)
    value = parse(data)
    keys = [path for path in found(value, object) if path and isinstance(path[-1], str)]
    chosen = draw.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
    outer = [path for path in chosen if not any(path[: len(each)] == each for each in chosen if each != path)]
    changes = [JsonChange(path, "drop") for path in outer]
    assert exact(parse(splice(data, value, changes))) == exact(apply_changes(value, changes))


@given(bodies(), st.data())
@SLOW
def test_a_text_is_put_into_a_list_and_lifted_out_again(node: Node, draw: st.DataObject) -> None:
    data = data_of(node)
    value = parse(data)
    places = found(value, str)
    if not places:
        return
    chosen = draw.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True))
    wrapped = [JsonChange(path, "set", WRAPPED) for path in chosen]
    spliced = splice(data, value, wrapped)
    assert exact(parse(spliced)) == exact(apply_changes(value, wrapped))
    lifted = [JsonChange(path, "lift", (0, "text")) for path in chosen]
    assert splice(spliced, parse(spliced), lifted) == data
    assert exact(apply_changes(apply_changes(value, wrapped), lifted)) == exact(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{"k":{"a":1}}'),
        ("{ }", '{"k":{"a":1} }'),
        ('{"a":1}', '{"a":1,"k":{"a":1}}'),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 2, "k": {"a": 1}}'),
        ('{\n  "a": 1\n}', '{\n  "a": 1,\n  "k": {\n    "a": 1\n  }\n}'),
        ('{"a": 1, "b": 2 }', '{"a": 1, "b": 2, "k": {"a": 1} }'),
    ],
)
def test_what_is_added_is_spelled_as_what_stands_beside_it(text: str, expected: str) -> None:
    assert splice(text.encode(), json.loads(text), [JsonChange(("k",), "set", {"a": 1})]).decode() == expected


def test_a_text_keeps_its_spelling_where_it_is_put() -> None:
    text = '{"n": 1.0, "system": "caf\\u00e9 \\u003c \\/"}'
    mark = '"cache_control": {"type": "ephemeral"}'
    expected = f'{{"n": 1.0, "system": [{{"type": "text", "text": "caf\\u00e9 \\u003c \\/", {mark}}}]}}'
    assert splice(text.encode(), json.loads(text), [JsonChange(("system",), "set", WRAPPED)]).decode() == expected


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param(b'{"messages":[{"k":1,"k":2}]}', ("messages", 0, "k"), id="numbers"),
        pytest.param(
            b'{"messages":[{"k": "a","k": [{"b":1}]}]}', ("messages", 0, "k", 0, "b"), id="a string and a list"
        ),
        pytest.param(
            b'{"messages":[{"k": [],"k": [{"b":1}]}]}', ("messages", 0, "k", 0, "b"), id="lists of two lengths"
        ),
        pytest.param(
            b'{"messages":[{"k": {"c":1},"k": {"b":1}}]}', ("messages", 0, "k", "b"), id="objects of other keys"
        ),
    ],
)
def test_a_key_that_stands_twice_is_not_set(text: bytes, path: Any) -> None:
    with pytest.raises(IbidemError, match="appears twice"):
        splice(text, parse(text), [JsonChange(path, "set", 3)])


@pytest.mark.parametrize("key", ["\\", '"', "\n", "\ud800"], ids=repr)
def test_a_list_below_any_key_is_changed(key: str) -> None:
    text = json.dumps({key: [1, 2]})
    assert splice(text.encode(), json.loads(text), [JsonChange((key, 1), "set", 3)]).decode() == text.replace(
        "2]", "3]"
    )


@pytest.mark.parametrize("first", [b"1.5", b'"messages"', b"[]", b'[{"role":"user","content":"much longer than Hi"}]'])
def test_a_history_that_stands_twice_is_not_scanned(first: bytes) -> None:
    assert scan(b'{"messages":%b, "n, ": 1.5, "messages": [{"role":"user","content":"Hi"}]}' % first) is None


def test_other_keys_that_stand_twice_stay() -> None:
    text = b'{"messages":[{"a":1,"a":2}]}'
    added = splice(text, parse(text), [JsonChange(("messages", 0, "k"), "set", 3)])
    assert added == b'{"messages":[{"a":1,"a":2,"k":3}]}'
    assert splice(added, parse(added), [JsonChange(("messages", 0, "k"), "drop")]) == text


def test_what_is_not_there_cannot_be_dropped() -> None:
    text = b'{"messages":[{"a":1}]}'
    changes = [JsonChange(("messages", 0, "k"), "drop")]
    with pytest.raises(KeyError):
        apply_changes(parse(text), changes)
    with pytest.raises(KeyError):
        splice(text, parse(text), changes)
