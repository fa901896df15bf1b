"""Bytes in, the same bytes out, but for the tokens a change names.

`splice` works on the text and `rebuild` on its value; each is the other's oracle. The texts are built from tokens that
the tests know, so that the exact output can be told beforehand.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem.model import Kind
from ibidem.wire import JsonChange, apply_changes, parse, splice

# --- JSON texts of known tokens -------------------------------------------------------------------


@dataclass
class Node:
    """A JSON value as it is spelled: a scalar token, or a container with the whitespace inside it."""

    token: str = ""
    open: str = ""
    keys: list[str] | None = None
    """Spelled, for an object."""
    items: list["Node"] | None = None
    spaces: list[str] | None = None
    """Taken in turn wherever JSON allows whitespace; none is none."""

    def text(self) -> str:
        if self.items is None:
            return self.token
        spaces = list(self.spaces or [])
        space: Callable[[], str] = lambda: spaces.pop() if spaces else ""  # noqa: E731
        out = self.open + space()
        for number, item in enumerate(self.items):
            out += "," + space() if number else ""
            out += self.keys[number] + space() + ":" + space() if self.keys is not None else ""
            out += item.text() + space()
        return out + {"[": "]", "{": "}"}[self.open]

    def value(self) -> Any:
        return json.loads(self.text())


def spelled(value: str, spelling: list[int]) -> str:
    """A string as JSON text; each number picks one of the ways to write a character."""
    out = ""
    for number, char in enumerate(value):
        code = ord(char)
        units = [code] if code < 0x10000 else [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF)]
        escaped = "".join(f"\\u{unit:04x}" for unit in units)
        ways = [escaped, escaped.upper().replace("\\U", "\\u")]
        short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\r": "\\r"}
        if char in short:
            ways.append(short[char])
        if code >= 0x20 and char not in '"\\' and not 0xD800 <= code < 0xE000:
            ways = [char, char, char, *ways]
        out += ways[(spelling[number % len(spelling)] if spelling else 0) % len(ways)]
    return f'"{out}"'


LETTERS = [*'ab01"\\/ \n\t,:[]{}', "é", "\u2028", "\x7f", "😀", "\U0010ffff", "\x00"]


def some_strings(letters: list[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Values and spellings, the first quarter as we would write it; a few long ones."""
    random = Random(seed)
    found = []
    for number in range(count):
        value = "".join(random.choices(letters, k=random.randrange(6))) * random.choice([1, 1, 1, 1, 150])
        plain = json.dumps(value, ensure_ascii=False)
        found.append((value, plain if number < count / 4 else spelled(value, random.choices(range(8), k=7))))
    return found


NUMBERS = ["0", "-0", "-0.0", "1.0", "1e5", "1E+5", "1.50", "1e-7", "1e22", "1e+22", "0.1", "5e-324", "1e400"]
NUMBERS += [
    "9007199254740993",
    "0.30000000000000004",
    "12345678901234567890",
    "123456789.123456789",
    "9" * 30,
    "-" + "9" * 300,
]
GAPS = [[], [], [], [" "] * 20, ["\n  ", "", "\n  "] * 8, ["", "\t", "\r\n", "", "  \n\t "] * 5]


def nodes(strings: list[tuple[str, str]], names: list[str], numbers: list[str]) -> Any:
    leaf = st.sampled_from([*(token for _, token in strings), *numbers, *names]).map(Node)
    keys = st.lists(st.sampled_from(strings), unique_by=lambda pair: pair[0], max_size=3)
    gaps = st.sampled_from(GAPS)

    def container(inner: Any) -> Any:
        lists = st.builds(lambda items, gap: Node(open="[", items=items, spaces=gap), st.lists(inner, max_size=4), gaps)
        objects = st.builds(
            lambda names, items, gap: Node(
                open="{", keys=[token for _, token in names[: len(items)]], items=items[: len(names)], spaces=gap
            ),
            keys,
            st.lists(inner, max_size=3),
            gaps,
        )
        return lists | objects

    return st.recursive(leaf, container, max_leaves=8)


STRINGS = some_strings(LETTERS, 120, seed=1)
NODES = nodes(STRINGS, ["true", "false", "null"], NUMBERS)
SCALARS = [None, True, 0, -1, 10**30, 1.0, -0.0, 1e22, 5e-324, *(value for value, _ in STRINGS[:60])]
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [*SCALARS, [], {}, [1.0, "é"], {"role": "user", "content": [{"text": 'a"\\'}]}, [[], [{}]]]
)


@dataclass
class Case:
    """A body, where its history stands in it, and the changes to be made."""

    root: Node
    prefix: tuple[Any, ...]
    changes: list[JsonChange]

    @property
    def data(self) -> bytes:
        return self.root.text().encode("utf-8", "surrogatepass")


def places(node: Node, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], bool]]:
    """Every place inside a container, and whether it is in a list."""
    found = []
    for number, item in enumerate(node.items or []):
        key = json.loads(node.keys[number]) if node.keys is not None else number
        found.append(((*path, key), node.keys is None))
        found.extend(places(item, (*path, key)))
    return found


@st.composite
def cases(draw: Any, ops: tuple[str, ...], inner: Any = NODES, values: Any = VALUES) -> Case:
    gaps = st.sampled_from(GAPS)
    history = Node(open="[", items=draw(st.lists(inner, min_size=1, max_size=5)), spaces=draw(gaps))
    root, prefix = history, tuple[str, ...]()
    if draw(st.booleans()):
        before, after = draw(st.lists(inner, max_size=1)), draw(st.lists(inner, max_size=1))
        name = draw(st.sampled_from(['"messages"', '"mess\\u0061ges"']))
        names = ['"before"'] * len(before) + [name] + ['"af\\u0074er"'] * len(after)
        root = Node(open="{", keys=names, items=[*before, history, *after], spaces=draw(gaps))
        prefix = ("messages",)
    found = places(history, prefix)
    chosen = draw(st.lists(st.sampled_from(found), min_size=1, max_size=4, unique_by=lambda place: place[0]))
    changes = []
    for path, in_list in chosen:
        op = draw(st.sampled_from(ops if in_list else ("set",)))
        changes.append(JsonChange(path, op, None if op == "drop" else draw(values)))
    return Case(root, prefix, changes)


def exact(value: Any) -> str:
    """A value as text in which 1 and 1.0, 0.0 and -0.0 differ."""
    return json.dumps(value)


ALL = ("set", "drop", "before", "after")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(ALL))
def test_splice_says_what_rebuild_says(case: Case) -> None:
    value = parse(case.data)
    assert exact(value) == exact(case.root.value())
    spliced = splice(case.data, value, case.changes)
    assert exact(json.loads(spliced)) == exact(apply_changes(value, case.changes))


# --- every byte outside the changed tokens --------------------------------------------------------


def with_marks(case: Case) -> str:
    """The text that must come out, where the n-th change has become the word CHANGEDn: set changes only."""

    def walk(node: Node, path: tuple[Any, ...]) -> Node:
        for number, change in enumerate(case.changes):
            if change.path == path:
                return Node(f"CHANGED{number};")
        if node.items is None:
            return node
        keys = [json.loads(key) for key in node.keys] if node.keys is not None else range(len(node.items))
        items = [walk(item, (*path, key)) for key, item in zip(keys, node.items, strict=True)]
        return Node(open=node.open, keys=node.keys, items=items, spaces=node.spaces)

    return walk(case.root, ()).text()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(("set",)))
def test_setting_values_replaces_their_tokens_and_no_other_byte(case: Case) -> None:
    spliced = splice(case.data, parse(case.data), case.changes).decode()
    kept = re.split(r"CHANGED(\d+);", with_marks(case))
    at = 0
    for number, piece in enumerate(kept):
        if number % 2 == 0:
            assert spliced.startswith(piece, at)
            at += len(piece)
        else:
            value, at = json.JSONDecoder().raw_decode(spliced, at)
            assert exact(value) == exact(case.changes[int(piece)].value)
    assert at == len(spliced)


TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


def tokens_expected(case: Case) -> list[str]:
    """All tokens that must come out, in order; a value that was put in is written as canonical JSON."""
    by_path: dict[tuple[Any, ...], JsonChange] = {change.path: change for change in case.changes}

    def canonical(value: Any) -> list[str]:
        return ["put in: " + exact(value)]

    def walk(node: Node, path: tuple[Any, ...]) -> list[str]:
        if node.items is None:
            return [node.token]
        pieces: list[list[str]] = []
        for number, item in enumerate(node.items):
            key = json.loads(node.keys[number]) if node.keys is not None else number
            change = by_path.get((*path, key), JsonChange((), "after"))
            here = canonical(change.value) if change.op == "set" else walk(item, (*path, key))
            if node.keys is not None:
                here = [node.keys[number], ":", *here]
            has = change.path != ()
            pieces += [canonical(change.value)] if has and change.op == "before" else []
            pieces += [here] if not has or change.op != "drop" else []
            pieces += [canonical(change.value)] if has and change.op == "after" else []
        joined = [token for number, piece in enumerate(pieces) for token in ([","] * bool(number) + piece)]
        return [node.open, *joined, {"[": "]", "{": "}"}[node.open]]

    return walk(case.root, ())


def assert_tokens(text: str, expected: list[str]) -> None:
    at = 0
    for token in expected:
        at = len(text) - len(text[at:].lstrip(" \t\r\n"))
        if token.startswith("put in: "):
            value, at = json.JSONDecoder().raw_decode(text, at)
            assert exact(value) == token.removeprefix("put in: ")
        else:
            found = TOKEN.match(text, at)
            assert found is not None
            assert found[0] == token
            at = found.end()
    assert text[at:].strip() == ""


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(ALL))
def test_whatever_comes_and_goes_untouched_tokens_keep_their_spelling(case: Case) -> None:
    assert_tokens(splice(case.data, parse(case.data), case.changes).decode(), tokens_expected(case))


# Few and mostly as the tolerant writer would write them: only then can one writer's text be taken for the other's.
WILD_STRINGS = [("\ud800", '"\\ud800"'), ("\udfffa", '"\\udfffa"'), ("é", '"é"'), ("é", '"\\u00e9"'), ("a", '"a"')]
WILD_NODES = nodes(WILD_STRINGS, ["NaN", "Infinity", "-Infinity"], ["1e+22", "1e22", "9" * 30])
WILD_VALUES = st.sampled_from([None, float("nan"), 1e22, "é", "\ud800", {"\ud800": "é"}, ["\udfff", 10**40], 10**40])


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(ALL, WILD_NODES, WILD_VALUES))
def test_the_same_holds_with_lone_surrogates_and_not_a_number(case: Case) -> None:
    spliced = splice(case.data, parse(case.data), case.changes).decode()
    assert_tokens(spliced, tokens_expected(case))


# --- through the front door -----------------------------------------------------------------------


class Put:
    """Put a text in the place of every result text that says HERE."""

    name: ClassVar[str] = "put"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})

    def plan(self, conv: Any) -> Any:
        for message in conv.messages:
            for result in message.results:
                for segment in result.segments:
                    if getattr(segment, "text", "").startswith("HERE"):
                        yield ibidem.Edit(
                            strategy=self.name,
                            op="set",
                            message=message.index,
                            path=segment.path,
                            removed=(segment.text,),
                            added="#",
                        )


def put(text: Any, **options: Any) -> ibidem.Compacted:
    return ibidem.compact(text, strategies=[Put()], **options)


CALL = '{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{}"}}]}'
RESULT = '{"role":"tool","tool_call_id":"a","content":"HERE and more"}'
TOOL = '"role":"tool","tool_call_id":"a"'
DEEP = "[" * 600 + "]" * 600


def filled(template: str) -> str:
    return template.replace("CALL", CALL).replace("RESULT", RESULT).replace("TOOL", TOOL)


KEPT = {
    "as compact as can be": '{"messages":[CALL,RESULT]}',
    "a bare list": "[CALL,RESULT]",
    "whitespace everywhere, CRLF, a final newline": ' \t\r\n{ "messages" :\r\n[ CALL ,\tRESULT\n] }\r\n',
    "trailing newlines": '{"messages":[CALL,RESULT]}\n\n',
    "duplicate keys elsewhere": '{"x":1,"x":2,"messages":[CALL,RESULT],"x":{"y":1,"y":2}}',
    "duplicate keys in another message": '{"messages":[{"role":"user","role":"user","content":"q"},CALL,RESULT]}',
    "number spellings": '{"t":[1.0,1e5,1E+05,-0,-0.0,0.10,1e400],"messages":[CALL,RESULT]}',
    "NaN and infinities": '{"n":[NaN,Infinity,-Infinity],"messages":[CALL,RESULT]}',
    "integers of 300 digits": '{"n":' + "9" * 300 + ',"messages":[CALL,RESULT],"m":-' + "9" * 300 + "}",
    "lone surrogate escapes": '{"s":"\\ud800 \\uDFFF","messages":[{"role":"user","content":"\\ud83d"},CALL,RESULT]}',
    "one text in many spellings": '{"s":"\\ud83d\\ude00 😀 \\u00e9 é \\/ / \\u0041","messages":[CALL,RESULT]}',
    "keys with escapes": '{"\\u006d":1,"m\\"\\\\":2,"mess\\u0061ges":[CALL,RESULT],"":0}',
    "keys beyond ASCII": '{"messages":[CALL,RESULT],"é":{"😀":{}}}',
    "empty objects and lists": '{"a":{},"b":[],"c":"","messages":[CALL,RESULT,{},[]],"d":{ },"e":[ ]}',
    "quotes and backslashes": '{"s":"\\\\\\\\\\"","t":"\\\\","messages":[{"content":"\\"\\\\\\"]}"},CALL,RESULT]}',
    "600 lists in each other behind the history": '{"messages":[CALL,RESULT],"deep":' + DEEP + "}",
    "600 lists in each other before the history": '{"deep":' + DEEP + ',"messages":[CALL,RESULT]}',
    "messages that are none": '{"messages":[null,7,"x",CALL,RESULT]}',
    "the history's name used elsewhere": '{"metadata":{"messages":[1,2]},"messages":[CALL,RESULT]}',
    "line separators that JSON allows": '{"s":"\u2028\u2029\x7f","messages":[CALL,RESULT]}',
    "one of several keys": '[CALL,{TOOL,"content":[{"text":"HERE and more","type":"text"}]}]',
    "siblings in the edited message": '[CALL, {"x":1.50 ,TOOL, "y":"\\u0041", "content" :"HERE and more", "z":[ ]}]',
    "the replaced text is full of escapes": '[CALL,{TOOL,"content":"HERE \\u00e9\\ud83d\\ude00\\/\\\\\\""}]',
}


@pytest.mark.parametrize("template", KEPT.values(), ids=KEPT)
def test_only_the_token_of_the_edited_text_changes(template: str) -> None:
    text = filled(template)
    expected = re.sub(r'"HERE(?:[^"\\]|\\.)*"', '"#"', text)
    assert expected != text
    for given_, wanted in ((text, expected), (text.encode(), expected.encode())):
        result = put(given_, format="openai-chat")
        assert result.reason == ""
        assert result.request == wanted


@pytest.mark.parametrize(
    ("kind", "returned"), [(str, str), (str.encode, bytes), (lambda text: bytearray(text.encode()), bytes | bytearray)],
    ids=["str", "bytes", "bytearray"],
)  # fmt: skip
def test_what_comes_as_text_goes_as_text(kind: Any, returned: Any) -> None:
    request = kind(f"[{CALL},{RESULT}]")
    before = bytes(request) if isinstance(request, bytearray) else request
    result = put(request)
    assert isinstance(result.request, returned)
    expected = f"[{CALL},{RESULT}]".replace("HERE and more", "#")
    assert result.request == (expected if isinstance(request, str) else expected.encode())
    assert request == before
    untouched = kind(f"[{CALL}]")
    assert put(untouched).request is untouched


def test_a_lone_surrogate_in_a_python_string_passes_through() -> None:
    text = f'{{"s":"\ud800","messages":[{{"role":"user","content":"\udfff"}},{CALL},{RESULT}]}}'
    assert put(text, format="openai-chat").request == text.replace("HERE and more", "#")


@pytest.mark.parametrize("ascii", [True, False], ids=["in ASCII", "in UTF-8"])
@pytest.mark.parametrize("kind", [str, str.encode], ids=["as str", "as bytes"])
def test_a_file_name_with_a_lone_surrogate_leaves_a_request_that_can_be_sent(kind: Any, ascii: bool) -> None:
    """The name is in the marker, and the text that the marker replaces has no escape that shows how to write it."""
    output = "\n".join(f"line {number} of a file that is read twice, é" for number in range(40))
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    for id_ in "ab":
        call = {"type": "tool_use", "id": id_, "name": "Read", "input": {"file_path": "src/\ud800.py"}}
        messages += [{"role": "assistant", "content": [call]}]
        messages += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id_, "content": output}]}]
    text = json.dumps({"messages": messages}, ensure_ascii=ascii).replace("\ud800", "\\ud800")
    sent = ibidem.compact(kind(text), format="anthropic").request
    written = sent.encode() if isinstance(sent, str) else sent
    assert b"Read(src/\\ud800.py)" in written
    assert written.decode()
    assert ibidem.expand(sent, format="anthropic") == kind(text)


def test_a_byte_order_mark_stays_in_front() -> None:
    text = f'\ufeff{{"messages":[{CALL},{RESULT}]}}'
    result = put(text.encode(), format="openai-chat")
    assert result.request == text.replace("HERE and more", "#").encode()


TOO_DEEP = "nested too deeply to be read: flatten it, or send it as it is"


@pytest.mark.parametrize("depth", [900, 960, 975, 980, 985, 990, 995, 1000, 10_000, 100_000])
def test_a_deep_part_is_rewritten_around_or_kept_or_refused_with_a_sentence(
    depth: int,
) -> None:
    text = f'{{"messages":[{CALL},{RESULT}],"deep":{"[" * depth}{"]" * depth}}}'
    try:
        result = put(text, format="openai-chat")
    except ibidem.IbidemError as error:
        outcome = str(error)
    else:
        outcome = result.request
    assert outcome in (text, text.replace("HERE and more", "#"), TOO_DEEP)


def test_depth_costs_nothing_in_a_request_that_is_a_value_already() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    request = {"metadata": deep, "messages": [json.loads(CALL), json.loads(RESULT)]}
    result = put(request, format="openai-chat")
    assert result.reason == ""
    assert result.request["metadata"] is deep
    assert result.request["messages"][1]["content"] == "#"


TWICE = {
    "two histories": '{"messages":[CALL,RESULT],"messages":[CALL,RESULT]}',
    "an empty history and another": '{"messages":[],"messages":[CALL,RESULT]}',
    "a number and a history": '{"messages":7,"messages":[CALL,RESULT]}',
    "two spellings of one key": '{"messages":[CALL,RESULT],"\\u006dessages":[CALL,RESULT]}',
    "two contents": '[CALL,{TOOL,"content":"x","content":"HERE and more"}]',
    "two texts": '[CALL,{TOOL,"content":[{"type":"text","text":"x","text":"HERE and more"}]}]',
}


@pytest.mark.parametrize("template", TWICE.values(), ids=TWICE)
def test_a_duplicate_key_on_the_way_to_the_edit_leaves_the_request_as_it_came(template: str) -> None:
    text = filled(template)
    for request in (text, text.encode()):
        result = put(request, format="openai-chat")
        assert result.request is request
        assert result.reason
        assert result.stats.failures == (result.reason,)


def test_a_bare_prompt_has_nothing_to_edit() -> None:
    for request in ('{"model":"gpt-5","input":"hello"}', {"model": "gpt-5", "input": "hello"}):
        result = ibidem.compact(request)
        assert result.request is request
        assert (result.format, result.reason, result.violations) == ("openai-responses", "", [])
        assert ibidem.validate(request) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param('{"messages": [}', "line 1, column 15", id="broken JSON is named with its line"),
        pytest.param('{"messages":\n[]\n,}', "line 3, column 2", id="further down as well"),
        pytest.param("", "line 1, column 1", id="nothing"),
        pytest.param(b"", "line 1, column 1", id="no bytes"),
        pytest.param(b'{"messages": "\xff"}', "UTF-8", id="bytes that are no UTF-8"),
        pytest.param(b'{"\xff": 1}', "UTF-8", id="a key that is no UTF-8"),
        pytest.param('{"n": ' + "9" * 5000 + "}", "number", id="a number beyond what Python reads"),
        pytest.param("[" * 100_000, "nested too deeply", id="an abyss"),
        pytest.param('{"messages":[]} x', "line 1", id="something behind the body"),
    ],
)
def test_text_that_cannot_be_read_is_refused_with_a_sentence(text: Any, says: str) -> None:
    for door in (ibidem.compact, ibidem.validate, ibidem.detect):
        with pytest.raises(ibidem.IbidemError, match=says):
            door(text)


# --- untouched texts beside one that a lone surrogate or a huge number goes from, or comes to ------


def _anthropic(*results: str) -> str:
    calls = ",".join(f'{{"type":"tool_use","id":"{n}","name":"read","input":{{}}}}' for n in range(len(results)))
    blocks = ",".join(
        f'{{"type":"tool_result","tool_use_id":"{n}","content":{text}}}' for n, text in enumerate(results)
    )
    return f'[{{"role":"assistant","content":[{calls}]}},{{"role":"user","content":[{blocks}]}}]'


@pytest.mark.parametrize(
    "siblings",
    [
        pytest.param(['"\\u00e9"'], id="an escaped letter stays escaped"),
        pytest.param(['[{"type":"x","n":1e+22}]'], id="a float stays as it was spelled"),
    ],
)
@pytest.mark.parametrize("end", ["\\ud800", "\\udc00 and more"])
def test_an_edit_that_takes_a_lone_surrogate_away_leaves_its_siblings_alone(siblings: list[str], end: str) -> None:
    text = _anthropic(f'"HERE {end}"', *siblings)
    # A lone surrogate is escaped by every writer, so it does not show that other characters are.
    assert put(text, format="anthropic").request == _anthropic('"#"', *siblings)


def test_a_result_that_moves_leaves_raw_letters_of_its_new_neighbours_alone() -> None:
    """The moved result holds a lone surrogate; the message that takes it in was written in raw UTF-8."""
    call = '{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"read","input":{}}]}'
    moved = '{"type":"tool_result","tool_use_id":"a","content":"\\ud800"}'
    said = '{"type":"text","text":"é"}'
    text = f'[{call},{{"role":"user","content":[{said}]}},{{"role":"user","content":[{moved}]}}]'
    result = ibidem.compact(text, strategies=[ibidem.RepairPairing()], format="anthropic")
    assert result.reason == ""
    assert result.request == f'[{call},{{"role":"user","content":[{moved},{said}]}}]'


def test_a_result_that_moves_keeps_its_numbers() -> None:
    """NaN is no JSON, but Python clients write it, and it is not null."""
    call = '{"role":"model","parts":[{"functionCall":{"name":"read","args":{},"id":"a"}}]}'
    said = '{"role":"user","parts":[{"text":"q"}]}'
    moved = (
        '{"functionResponse":{"name":"read","id":"a","response":{"score":NaN,"big":123456789012345678901234567890}}}'
    )
    text = f'[{said},{call},{said},{{"role":"user","parts":[{moved}]}},{said}]'
    result = ibidem.compact(text, strategies=[ibidem.RepairPairing()], format="gemini")
    assert result.reason == ""
    assert result.request == f'[{said},{call},{{"role":"user","parts":[{moved}]}},{said},{said}]'
