"""Generators of histories, cache operations, tool outputs and JSON bodies for comparisons of two implementations.

Each generator takes a `random.Random`. The same seed gives the same value. Sizes gather around the limits of the
original systems, because implementations differ there first.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.seeds.plain_codetether import RUST_WHITESPACE
from tests.seeds.plain_devboy import content_hash, tool_kind

Message = dict[str, Any]
Part = dict[str, Any]

MULTIBYTE = ("é", "’", "…", "🦀", "字")
TOOL_NAMES = ("read_file", "grep", "bash", "t", "")
# White space of Rust, and characters that Python or a reader may take for white space.
SPACES = (*RUST_WHITESPACE.replace("\n", ""), *"\x1c\x1d\x1e\x1f\u180e\u200b\u2060\ufeff")
WORDS = ("a", "word", "don’t", "é", "🦀", "字", "x = 1", "1.", "# Title", "  ", "   ", " ", "\t\t", "``", "`")
RULES = (".", "...", "…", "-", "---", "***", "___", "===", "-_-.*…=", "~~~", "+++", "- - -")
FENCES = ("```", "```py", "````", "~~~")


class TextPools(NamedTuple):
    """Strings that the messages of one history share, so that duplicates occur."""

    ids: list[str]
    results: list[str]
    arguments: list[str]


def history(rng: random.Random) -> list[Message]:
    """Return a history in codetether's message form: an agent loop, an unordered mixture, or a special layout."""
    pools = text_pools(rng)
    build = rng.choices((agent_history, mixed_history, special_history), weights=(5, 4, 2))[0]
    messages = build(rng, pools)
    if rng.random() < 0.3:
        disturb(rng, messages)
    if rng.random() < 0.2:
        del messages[rng.choice((4, 5, 6, 7, 8, 9, 21, 22, 23)) :]
    return messages


def text_pools(rng: random.Random) -> TextPools:
    """Return the strings of one history."""
    ids = ["a", "b", "c", "call_1", "call_2", "toolu_é", ""]
    long_ids = ["i" * size for size in (30, 40, 200, 209, 210, 211, 212, 260, 300)] + ["é" * 130]
    return TextPools(
        ids=rng.sample(ids, rng.randint(2, len(ids))) + rng.sample(long_ids, rng.choice((0, 0, 1, 3))),
        results=[result_text(rng) for _ in range(rng.randint(1, 6))],
        arguments=[argument_text(rng) for _ in range(rng.randint(1, 5))],
    )


def text_of_size(rng: random.Random, size: int) -> str:
    """Return a text of exactly `size` UTF-8 bytes, of one or several scripts."""
    if rng.random() < 0.3:
        return rng.choice("xyz w") * size
    unit = rng.choice(MULTIBYTE)
    width = len(unit.encode())
    # ASCII at the start shifts the character boundaries.
    shift = min(size, rng.randint(0, 3))
    count, rest = divmod(size - shift, width)
    return "s" * shift + unit * count + "e" * rest


def result_text(rng: random.Random) -> str:
    """Return the text of a tool result."""
    near = rng.choice((-1, 0, 1))
    choice = rng.randrange(12)
    if choice < 2:
        return rng.choice(("", "ok", "error: no such file", "\n", "é"))
    if choice < 5:
        return text_of_size(rng, 256 + near)
    if choice < 6:
        return text_of_size(rng, rng.randint(257, 3000))
    if choice < 9:
        return text_of_size(rng, rng.choice((4096 + near, 4096 + near, 5000, 10_000)))
    if choice < 10:
        guard = rng.choice(("[...elided", "[...elided 10 bytes...]", "[... elided", "[...Elided"))
        cut = rng.randint(0, 4100)
        return "p" * cut + guard + "q" * (4200 - cut)
    if choice < 11:
        start = rng.choice(("[DEDUP]", "[DEDUP] identical to tool_call_id=", " [DEDUP]", "[dedup]"))
        return start + "d" * rng.choice((10, 300, 4200))
    id = "i" * rng.choice((1, 209, 210, 211, 260))
    return f"[DEDUP] identical to tool_call_id={id} ({rng.choice((256, 300))} bytes)"


def argument_text(rng: random.Random) -> str:
    """Return the arguments of a tool call."""
    choice = rng.randrange(8)
    if choice < 2:
        return rng.choice(("", "{}", '{"path":"a"}', "[REPEAT"))
    if choice < 5:
        return text_of_size(rng, 64 + rng.choice((-1, 0, 1)))
    if choice < 6:
        return '{"path":"' + "p" * rng.randint(40, 300) + '"}'
    if choice < 7:
        start = rng.choice(("[REPEAT", "[REPEAT of call_id=a, 64 bytes]", " [REPEAT", "[repeat"))
        return start + "y" * rng.choice((50, 80))
    return "x\0" + "y" * 64


def assistant_text(rng: random.Random) -> str:
    """Return a text with noise lines, runs of spaces, fences and unusual white space."""
    if rng.random() < 0.1:
        return rng.choice(("", "ok", "...", "\n", " ", "```", "a  b", "Done.\n\n---"))
    lines: list[str] = []
    for _ in range(rng.randint(1, 12)):
        choice = rng.random()
        if choice < 0.35:
            lines.extend(noise_line(rng) for _ in range(rng.choice((1, 1, 2, 3))))
        elif choice < 0.5:
            lines.append(some_spaces(rng) + rng.choice(FENCES))
        else:
            pieces = rng.choices((*WORDS, *WORDS, *RULES, *FENCES, *SPACES), k=rng.randint(0, 6))
            lines.append("".join(pieces))
    line_end = rng.choice(("\n", "\n", "\n", "\r\n"))
    return line_end.join(lines) + rng.choice(("", line_end, "  ", "\n\n"))


def noise_line(rng: random.Random) -> str:
    """Return a line that is noise, or almost."""
    rule = "" if rng.random() < 0.3 else rng.choice(RULES)
    indent = some_spaces(rng) if rng.random() < 0.2 else ""
    return indent + rule + some_spaces(rng)


def some_spaces(rng: random.Random) -> str:
    """Return up to two characters like white space, often none."""
    return "".join(rng.choices(SPACES, k=rng.choice((0, 0, 1, 2))))


def with_optional(rng: random.Random, part: Part, key: str, value: str) -> Part:
    """Add an optional key, add it as null, or leave it out."""
    choice = rng.randrange(3)
    if choice == 0:
        part[key] = value
    elif choice == 1:
        part[key] = None
    return part


def text_part(rng: random.Random, text: str | None = None) -> Part:
    """Return a text part."""
    return {"type": "text", "text": assistant_text(rng) if text is None else text}


def thinking_part(rng: random.Random) -> Part:
    """Return a thinking part, sometimes without text."""
    text = rng.choice(("", "hmm", "é", "t" * 500, "  a  b  "))
    return with_optional(rng, {"type": "thinking", "text": text}, "signature", "c2lnbmF0dXJl")


def attachment_part(rng: random.Random) -> Part:
    """Return an image or a file."""
    part: Part = {"type": "image", "url": "data:image/png;base64,AAAA"}
    if rng.random() < 0.5:
        part = {"type": "file", "path": "/tmp/é.pdf"}
    return with_optional(rng, part, "mime_type", "image/png")


def call_part(rng: random.Random, pools: TextPools, id: str | None = None) -> Part:
    """Return a tool call."""
    part: Part = {"type": "tool_call", "id": rng.choice(pools.ids) if id is None else id}
    part["name"] = rng.choice(TOOL_NAMES)
    part["arguments"] = rng.choice(pools.arguments)
    if part["arguments"] == "x\0" + "y" * 64 and rng.random() < 0.7:
        # Name and arguments are hashed with a NUL between them, so these two calls have the same hash.
        part["name"] = rng.choice(("t", "t\0x"))
        part["arguments"] = "y" * 64 if part["name"] == "t\0x" else part["arguments"]
    return with_optional(rng, part, "thought_signature", "dGhvdWdodA==")


def result_part(rng: random.Random, pools: TextPools, id: str | None = None) -> Part:
    """Return a tool result."""
    id = rng.choice(pools.ids) if id is None else id
    return {"type": "tool_result", "tool_call_id": id, "content": rng.choice(pools.results)}


def any_part(rng: random.Random, pools: TextPools) -> Part:
    """Return a part of any type."""
    make: tuple[Callable[[], Part], ...] = (
        lambda: text_part(rng),
        lambda: thinking_part(rng),
        lambda: attachment_part(rng),
        lambda: call_part(rng, pools),
        lambda: result_part(rng, pools),
    )
    return rng.choices(make, weights=(4, 2, 1, 3, 4))[0]()


def user_message(rng: random.Random) -> Message:
    """Return a user message, usually of one short text."""
    parts = [text_part(rng, rng.choice(("q", "", "Fix  the   bug.\n...\n", "é" * 100)))]
    if rng.random() < 0.15:
        parts.append(attachment_part(rng))
    return {"role": "user", "content": parts}


def agent_history(rng: random.Random, pools: TextPools) -> list[Message]:
    """Return a history like that of an agent: requests, calls, results, and some mistakes."""
    target = rng.choice((rng.randint(1, 12), rng.randint(18, 26), rng.randint(20, 60)))
    messages: list[Message] = []
    if rng.random() < 0.5:
        messages.append(
            {"role": rng.choice(("system", "developer")), "content": [text_part(rng, "You  are an agent.")]}
        )
    messages.append(user_message(rng))
    number = 0
    while len(messages) < target:
        if rng.random() < 0.2:
            messages.append({"role": "assistant", "content": assistant_parts(rng)})
            messages.append(user_message(rng))
            continue
        ids = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            number += 1
            ids.append(rng.choice(pools.ids) if rng.random() < 0.15 else f"call_{number}")
        content = assistant_parts(rng) + [call_part(rng, pools, id) for id in ids]
        messages.append({"role": "assistant", "content": content})
        if rng.random() < 0.1:
            ids.remove(rng.choice(ids))
        if rng.random() < 0.05:
            ids.append(rng.choice(("unknown", *pools.ids)))
        results = [result_part(rng, pools, id) for id in ids]
        if rng.random() < 0.2 and results:
            role = rng.choice(("tool", "tool", "user"))
            messages.append({"role": role, "content": results})
        else:
            messages.extend({"role": "tool", "content": [result]} for result in results)
    if rng.random() < 0.2:
        messages.append({"role": "assistant", "content": [call_part(rng, pools, "open")]})
    return messages


def assistant_parts(rng: random.Random) -> list[Part]:
    """Return optional thinking and text in front of the calls of an assistant message."""
    parts = []
    if rng.random() < 0.4:
        parts.append(thinking_part(rng))
    if rng.random() < 0.6:
        parts.append(text_part(rng))
    return parts


def mixed_history(rng: random.Random, pools: TextPools) -> list[Message]:
    """Return messages of random roles and parts."""
    count = rng.choice((rng.randint(0, 12), rng.choice((21, 22, 23)), rng.randint(16, 60)))
    roles = rng.choices(("user", "assistant", "tool", "system", "developer"), weights=(3, 6, 5, 1, 1), k=count)
    messages: list[Message] = []
    for role in roles:
        if role == "tool" and rng.random() < 0.7:
            parts = [result_part(rng, pools) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        else:
            parts = [any_part(rng, pools) for _ in range(rng.choice((0, 1, 1, 2, 3, 4)))]
        messages.append({"role": role, "content": parts})
    return messages


def special_history(rng: random.Random, pools: TextPools) -> list[Message]:
    """Return a history with a long run of calls, of results or of parallel calls, which moves the edges of a trim."""
    is_short = rng.random() < 0.5
    if is_short:
        # The removed messages may be smaller than the marker.
        pools = TextPools(pools.ids, ["", "ok"], ["{}"])
    count = rng.choice((rng.randint(1, 6), rng.randint(1, 26), rng.randint(20, 26)))
    ids = [f"c{number}" for number in range(count)]
    role = rng.choice(("assistant", "assistant", "assistant", "user"))
    calls: list[Message] = [{"role": role, "content": [call_part(rng, pools, id)]} for id in ids]
    results: list[Message] = [{"role": "tool", "content": [result_part(rng, pools, id)]} for id in ids]
    batch: Message = {"role": role, "content": [call_part(rng, pools, id) for id in ids]}
    middle = rng.choice((calls, results, [batch, *results], [*results, batch], calls + results))
    opening = special_users(rng, is_short, rng.choice((1, 2, 2, rng.randint(0, 6))))
    ending = rng.choice((0, 0, 15, 16, 17, rng.randint(0, 20)))
    if rng.random() < 0.5:
        ending = max(0, rng.choice((21, 22, 22, 23, 24)) - len(opening) - len(middle))
    return opening + middle + special_users(rng, is_short, ending)


def special_users(rng: random.Random, is_short: bool, count: int) -> list[Message]:
    """Return user messages."""
    return [{"role": "user", "content": [text_part(rng, "q")]} if is_short else user_message(rng) for _ in range(count)]


def disturb(rng: random.Random, messages: list[Message]) -> None:
    """Remove, move, repeat or empty some messages."""
    for _ in range(rng.randint(1, 3)):
        if not messages:
            return
        index = rng.randrange(len(messages))
        choice = rng.randrange(5)
        if choice == 0:
            del messages[index]
        elif choice == 1:
            messages.insert(rng.randrange(len(messages)), messages.pop(index))
        elif choice == 2:
            messages.insert(rng.randrange(len(messages) + 1), copy_message(messages[index]))
        elif choice == 3:
            messages[index] = {"role": messages[index]["role"], "content": []}
        else:
            messages[index]["role"] = rng.choice(("user", "assistant", "tool", "system", "developer"))


def copy_message(message: Message) -> Message:
    """Return a copy that shares no part with the message."""
    return {"role": message["role"], "content": [dict(part) for part in message["content"]]}


def operations(rng: random.Random) -> list[tuple[Any, ...]]:
    """Return cache operations as `run_operations` takes them."""
    bodies = ["A", "B", "C", "", *[near_json(rng, number) for number in range(3)]]
    tools = ("Read", "Read", "Edit", "Bash", "get_issue", "")
    paths = ("p", "p", "")
    sequence: list[tuple[Any, ...]] = [("with_capacity", rng.choice((0, 1, 2, 3, 5, 5, 8)))]
    for number in range(rng.randint(1, 60)):
        body = rng.choice(bodies)
        tool = rng.choice(tools)
        kind = tool_kind(tool) if rng.random() < 0.7 else rng.choice(("FileRead", "FileMutate", "Other"))
        path = rng.choice((None, *paths))
        choice = rng.randrange(20)
        if choice < 5:
            sequence.append(("check", content_hash(body.encode())))
        elif choice < 9:
            sequence.append(("insert", content_hash(body.encode()), f"id{number}", kind, path, tool))
        elif choice < 12:
            sequence.append(("insert_with_body", content_hash(body.encode()), f"id{number}", kind, path, body, tool))
        elif choice < 15:
            sequence.append(
                ("find_near_ref", near_json(rng, rng.randrange(3)), *rng.choice(((50, 500), (50, 0), (12, 0))))
            )
        elif choice < 16:
            sequence.append(("invalidate_file", rng.choice(paths)))
        elif choice < 17:
            sequence.append(("invalidate_by_tool", rng.sample(tools, rng.randint(0, 2))))
        elif choice < 18 and rng.random() < 0.3:
            sequence.append(("on_compaction_boundary",))
        else:
            sequence.append((rng.choice(("len", "partition")),))
    return sequence


def near_json(rng: random.Random, number: int) -> str:
    """Return a JSON object of 498 or more bytes. Two such objects differ in few fields."""
    status = rng.choice(("ok", "ok", "failed", "é", "o", "", "s" * rng.randint(30, 45)))
    value = rng.choice(("1", "1.0", "2", "null", "true"))
    return f'{{"id":{number},"status":"{status}","n":{value},"pad":"' + "x" * 464 + '"}'


def outputs(rng: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return options of a pipeline, and tool outputs or compaction boundaries.

    An output has the keys `call_id`, `tool`, `body`, `path` and `invalidates`. A boundary is `{"boundary": True}`.
    """
    options = {
        "min_bytes": rng.choice((200, 200, 200, 0, 1, 500)),
        "near_references": rng.random() < 0.5,
        "dedup": rng.random() < 0.9,
        "verbosity": rng.choice(("terse", "standard", "standard", "verbose")),
        "capacity": rng.choice((0, 1, 2, 5, 5, 8)),
        "hash_ids": rng.random() < 0.2,
    }
    bodies = ["", "x", "ok", *[text_of_size(rng, size) for size in (199, 200, 201, 300, 499, 500)]]
    items: list[dict[str, Any]] = []
    for number in range(1, rng.randint(2, 30)):
        if rng.random() < 0.03:
            items.append({"boundary": True})
            continue
        tool = rng.choice(("Read", "Grep", "Edit", "Write", "Bash", "get_issue", "update_issue", "read"))
        body = rng.choice(bodies)
        if rng.random() < 0.5:
            body = near_json(rng, rng.randrange(2))
        items.append(
            {
                "call_id": f"tc_{number}" if rng.random() < 0.9 else rng.choice(("tc_1", "", "é]")),
                "tool": tool,
                "body": body,
                "path": rng.choice((None, "/a", "/a", "./a", "/b")),
                "invalidates": rng.choice(
                    ((), (), (), ("get_issue",), ("Read", "Bash"), ("update_issue", "get_issue"), (tool,))
                ),
            }
        )
    return options, items


# Spellings of JSON values. The spellings in one row have the same value.
EQUAL_VALUES: tuple[tuple[str, ...], ...] = (
    ("1", " 1", "1 "),
    ("2", "\n2"),
    ("-7", "-7\t"),
    ("1.0", "1.00", "1e0", "10e-1", "0.1E+1"),
    ("0.0", "-0", "-0.0", "0e5", "0e999", "1e-400", "-0.00"),
    ("0", " 0 "),
    ("0.1", "1e-1", "0.10"),
    ("1.5e300", "15E299"),
    ("1e15", "1000000000000000.0"),
    ("1e16", "10000000000000000.0"),
    ("0.00001", "1e-5"),
    ("1e-6", "0.000001"),
    ("123456.789", "1.23456789e5"),
    ("1234567890123456.0", "1.234567890123456e15"),
    ("5e-324", "4.9406564584124654e-324"),
    ("1.7976931348623157e308", "17976931348623157e292"),
    ("18446744073709551615", "18446744073709551615 "),
    ("18446744073709551616", "18446744073709551616.0", "1.8446744073709552e19"),
    ("-9223372036854775808", " -9223372036854775808"),
    ("-9223372036854775809", "-9223372036854775809.0", "-9223372036854775808.0"),
    ("100000000000000000000000", "1e23"),
    ("9007199254740993", "9007199254740993 "),
    ("9007199254740993.0", "9007199254740992.0"),
    ("true", " true"),
    ("false", "false "),
    ("null", "null\r"),
    ('""', ' ""'),
    ('"a"', r'"\u0061"'),
    ('"é"', r'"\u00e9"', r'"\u00E9"'),
    ('"🦀"', r'"\ud83e\udd80"', r'"\uD83E\uDD80"'),
    ('"/"', r'"\/"', r'"\u002f"'),
    (r'"\n"', r'"\u000a"'),
    (r'"\""', r'"\u0022"'),
    (r'"\u0000"', r'"\u0000" '),
    ('"\x7f"', r'"\u007f"'),
    ('"\u2028"', r'"\u2028"'),
    ('"1"', r'"\u0031"'),
    ("[]", "[ ]", "[\n]"),
    ("[1]", "[ 1 ]"),
    ("[1.0]", "[1.00]", "[1e0]"),
    ("{}", "{ }"),
    ('{"x":1,"y":2}', '{"y":2,"x":1}', '{"x":0,"y":2,"x":1}', r'{"\u0078":1,"y":2}'),
    ('[{"x":1,"y":[2]}]', '[{"y":[2],"x":1}]'),
    ("[" * 126 + "]" * 126, "[" * 126 + " " + "]" * 126),
    ('{"d":' * 126 + "1" + "}" * 126, '{"d" :' * 126 + "1" + "}" * 126),
)
SCALARS = tuple(row for row in EQUAL_VALUES if row[0][0] not in "[{")
INVALID_VALUES = (
    *("NaN", "Infinity", "-Infinity", "nan", "True", "None", "undefined", "nul", "tru", ""),
    *("01", "-01", "+1", ".5", "1.", "1e", "1e+", "-", "0x10", "1_000", "1 2", "--1", "١", "1.e5"),
    *("1e400", "-1e400", "1.7976931348623159e308", "9" * 400, "1" + "0" * 5000, "[1e999]", '{"x":[1e400]}'),
    *('"a\nb"', '"\t"', '"\x1f"', '"\x00"', '"unterminated', r'"\x41"', r'"\u12"', r'"\u12g4"', r'"\U0041"', '"\\'),
    *(r'"\ud800"', r'"\udc00"', r'"\ud800\ud800"', r'"\ud800x"', r'"\ud800\u0041"', r'"\udfff\ud800"', r'["\udbff"]'),
    *(r'"\u+041"', r'"\u 041"', r'"\u٠٠٤١"', "'a'"),
    *("[1,]", "[,1]", "[1 2]", "[1", "1]", '{"x":1,}', '{"x"}', '{"x":}', "{x:1}", "{1:1}", '{"x" 1}', '{,"x":1}'),
    *("[\u00a01]", "[1\x0c]", "[1\x0b,2]", "// c\n1", "1/**/", "\ufeff1"),
    *("[" * 127 + "]" * 127, "[" * 128 + "]" * 128, '{"d":' * 127 + "1" + "}" * 127, "[" * 5000),
)
KEYS = (
    *(('"a"', r'"\u0061"'), ('"b"', '"b" '), ('"s"', r'"\u0073"'), ('"ключ"', r'"\u043aлюч"'), ('""', '"" ')),
    *(('"→"', r'"\u2192"'), ('"a b"', r'"a\u0020b"'), (r'"\\"', r'"\u005c"')),
)
SUFFIXES = (" ", "\r\n", "\n\t", "\u00a0", "\x0c", "\x1c", "x", "{}", ",", "\x00", "\ufeff")


def json_pair(rng: random.Random) -> tuple[str, str]:
    """Return two JSON bodies that are equal, similar or different, valid or invalid."""
    keys = rng.sample(KEYS, rng.randint(0, 4))
    has_long_change = rng.random() < 0.35
    old: list[tuple[str, str]] = []
    new: list[tuple[str, str]] = []
    for key in keys:
        row = new_row = rng.choice(EQUAL_VALUES)
        if rng.random() < (0.05 if has_long_change else 0.4):
            row, new_row = changed_value(rng), changed_value(rng)
        old.append((rng.choice(key), rng.choice(row)))
        new.append((rng.choice(key), rng.choice(new_row)))
    if has_long_change:
        old_text, new_text = delta_near_limit(rng)
        old.append(('"d"', old_text))
        new.append(('"d"', new_text))
    if rng.random() < 0.3:
        break_members(rng, old, new)
    if rng.random() < 0.3:
        rng.shuffle(new)
    padding = rng.choice((None, None, 499, 500, 501, 600))
    return json_body(rng, old, padding), json_body(rng, new, padding)


def changed_value(rng: random.Random) -> tuple[str, ...]:
    """Return spellings of a value, usually of a scalar."""
    choice = rng.random()
    if choice < 0.2:
        number = rng.choice((1, -1)) * rng.random() * 10.0 ** rng.randint(-12, 25)
        return (repr(round(number, rng.choice((0, 3, 15)))),)
    return rng.choice(SCALARS if choice < 0.85 else EQUAL_VALUES)


def delta_near_limit(rng: random.Random) -> tuple[str, str]:
    """Return two strings whose difference under the key `d` takes about 50 bytes in a hint."""
    # The hint has ", d: " and the arrow: 8 bytes.
    size = rng.choice((40, 41, 42, 42, 43, 44))
    split = rng.choice((0, size, rng.randint(0, size)))
    return f'"{text_of_size(rng, split)}"', f'"{text_of_size(rng, size - split)}"'


def break_members(rng: random.Random, old: list[tuple[str, str]], new: list[tuple[str, str]]) -> None:
    """Make one or both bodies invalid, change the keys, or repeat a key."""
    # Without the defect, the pair is eligible if nothing else prevents it.
    old.append(('"e"', "1"))
    new.append(('"e"', "2"))
    members = rng.choice((old, new))
    choice = rng.randrange(8)
    if choice < 4:
        value = rng.choice(INVALID_VALUES)
        for side in rng.choice(([old, new], [old, new], [members])):
            side.append(('"z"', value))
    elif choice == 4:
        del members[rng.randrange(len(members))]
    elif choice == 5:
        # An invalid first value of a repeated key is invalid too.
        members.insert(0, (rng.choice(members)[0], rng.choice(INVALID_VALUES)))
    else:
        # The last value of a repeated key counts, at the position of the first.
        position = rng.choice((0, len(members)))
        members.insert(position, (rng.choice(members)[0], rng.choice(rng.choice(SCALARS))))


def json_body(rng: random.Random, members: list[tuple[str, str]], size: int | None) -> str:
    """Return an object with these members, padded to `size` bytes if it is smaller."""
    separator = rng.choice((",", ", ", ",\n  "))
    colon = rng.choice((":", ": ", " :\t"))
    prefix = some_spaces(rng) if rng.random() < 0.2 else ""
    suffix = rng.choice(SUFFIXES) if rng.random() < 0.1 else ""
    texts = [key + colon + value for key, value in members]
    if size is not None:
        texts.append('"pad":""')
    body = prefix + "{" + separator.join(texts) + "}" + suffix
    if rng.random() < 0.02:
        body = rng.choice(("", "null", "[]", "[1]", '"a"', "1", "{", "{}", "}", body[:-1], "[" + body + "]"))
    if size is not None and '"pad":""' in body:
        # White space is no difference. A longer string usually is one, and too large for a hint.
        missing = size - len(body.encode())
        white_space = rng.random() < 0.95
        padding = " " * missing if white_space else "x" * missing
        body = body.replace('"pad":""', f'"pad":""{padding}' if white_space else f'"pad":"{padding}"', 1)
    return body
