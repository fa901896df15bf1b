"""Short notation for codetether messages, and the examples of the original systems as tables.

A pass changes its list in place. Take a copy with `fresh` before each run.
"""

import json
from typing import Any, NamedTuple

from tests.seeds.plain_devboy import content_hash

Message = dict[str, Any]
Part = dict[str, Any]
Counts = tuple[int, int, int]
"""`(dedup_hits, snippet_hits, total_bytes_saved)`"""

GONE = "[tool result unavailable: elided by context management]"
I: Part = {"type": "image", "url": "https://example.com/a.png", "mime_type": None}  # noqa: E741  # name of the notation
F: Part = {"type": "file", "path": "/tmp/a.pdf", "mime_type": None}


def u(*parts: Part | str) -> Message:
    """Return a user message. A string is a text part."""
    return message("user", parts)


def a(*parts: Part | str) -> Message:
    """Return an assistant message."""
    return message("assistant", parts)


def t(*parts: Part | str) -> Message:
    """Return a tool message."""
    return message("tool", parts)


def s(*parts: Part | str) -> Message:
    """Return a system message."""
    return message("system", parts)


def message(role: str, parts: tuple[Part | str, ...]) -> Message:
    """Return a message with copies of these parts."""
    return {"role": role, "content": [T(part) if isinstance(part, str) else dict(part) for part in parts]}


def T(text: str) -> Part:
    """Return a text part."""
    return {"type": "text", "text": text}


def C(id: str, name: str = "t", args: str = "{}") -> Part:
    """Return a tool call."""
    return {"type": "tool_call", "id": id, "name": name, "arguments": args}


def R(id: str, text: str) -> Part:
    """Return a tool result."""
    return {"type": "tool_result", "tool_call_id": id, "content": text}


def H(text: str) -> Part:
    """Return a thinking part."""
    return {"type": "thinking", "text": text, "signature": None}


def U(count: int) -> list[Message]:
    """Return `count` user messages."""
    return [u("q") for _ in range(count)]


def trim(messages: int, size: int) -> str:
    """Return the text that replaces the middle of a long history."""
    return f"[...streaming-llm trim: {messages} messages ({size} bytes) elided between sinks and recent window...]"


def fresh(messages: list[Message]) -> list[Message]:
    """Return a copy in which no two messages share a part."""
    copied: list[Message] = json.loads(json.dumps(messages))
    return copied


class PassExample(NamedTuple):
    """Input, output and counts of one pass."""

    pass_name: str
    """Name of the function, or the order of `apply_all`: "seed" or "4.6.0"."""
    before: list[Message]
    after: list[Message]
    counts: Counts


class LinguaExample(NamedTuple):
    """A text, the cleaned text, and the bytes saved in an old assistant message."""

    text: str
    cleaned: str
    saved: int


class NearRefExample(NamedTuple):
    """Two JSON bodies and the fields of a near reference, for a minimum body size of 0 bytes."""

    old: str
    new: str
    fields: list[tuple[str, str, str]] | None


class PipelineExample(NamedTuple):
    """Tool outputs and the texts that the pipeline sends for them."""

    options: dict[str, Any]
    """Arguments of `PlainPipeline`."""
    outputs: list[dict[str, Any]]
    """Arguments of `emit`."""
    sent: list[str]


class CacheExample(NamedTuple):
    """Operations on a cache and their results. `run_operations` defines the form of an operation."""

    operations: list[tuple[Any, ...]]
    results: list[Any]


LINGUA_EXAMPLES = [
    LinguaExample("a\n...", "a\n\n", 2),
    LinguaExample("a\n-", "a\n-", 0),
    LinguaExample("Done.\n\n---", "Done.\n\n", 3),
    LinguaExample("a\n ", "a\n ", 0),
    LinguaExample("x\n  ---\ny", "x\n ---\ny", 1),
    LinguaExample("a\x1c\x1cb  c\x1c", "a\x1c\x1cb c\x1c", 1),
    LinguaExample("a\x1c", "a\x1c", 0),
    LinguaExample("don’t  do", "don’t do", 1),
    LinguaExample("...", "\n", 2),
    LinguaExample("a\n \n\t\n...\n-_-\nb", "a\n\nb", 11),
    LinguaExample("\u00a0```\nx  y\n```\nz  w", "\u00a0```\nx  y\n```\nz w", 1),
]

PRUNE_THINKING_EXAMPLES = [
    PassExample("prune_thinking", [a(H("xy"), H("z"), "ok"), *U(4)], [a("ok"), *U(4)], (0, 1, 3)),
    PassExample("prune_thinking", [a(H("é")), *U(4)], U(4), (0, 1, 2)),
    PassExample("prune_thinking", [a(), u(), t(), *U(4)], [u(), t(), *U(4)], (0, 0, 0)),
    PassExample("prune_thinking", [a(H("")), a(""), *U(4)], [a(""), *U(4)], (0, 0, 0)),
    PassExample(
        "prune_thinking",
        [u("q"), a(H("xy"), C("a")), t(R("a", "r")), a(C("b")), t(R("b", "r")), a(C("c")), t(R("c", "r"))],
        [u("q"), a(C("a")), t(R("a", "r")), a(C("b")), t(R("b", "r")), a(C("c")), t(R("c", "r"))],
        (0, 1, 2),
    ),
]

DEDUP_EXAMPLES = [
    PassExample(
        "dedup_tool_outputs",
        [t(R("a", "x" * 256)), t(R("b", "x" * 256))],
        [t(R("a", "x" * 256)), t(R("b", "[DEDUP] identical to tool_call_id=a (256 bytes)"))],
        (1, 0, 209),
    ),
    PassExample(
        "dedup_tool_outputs",
        [u(R("a", "é" * 128), R("b", "é" * 128))],
        [u(R("a", "é" * 128), R("b", "[DEDUP] identical to tool_call_id=a (256 bytes)"))],
        (1, 0, 209),
    ),
    PassExample(
        "dedup_tool_outputs",
        [t(R("i" * 260, "x" * 256)), t(R("b", "x" * 256))],
        [
            t(R("i" * 260, "x" * 256)),
            t(R("b", "[DEDUP] identical to tool_call_id=" + "i" * 260 + " (256 bytes)")),
        ],
        (1, 0, 0),
    ),
    PassExample(
        "dedup_tool_outputs",
        [t(R("a", " " * 256)), t(R("b", " " * 256))],
        [t(R("a", " " * 256)), t(R("b", "[DEDUP] identical to tool_call_id=a (256 bytes)"))],
        (1, 0, 209),
    ),
]

SNIPPET_EXAMPLES = [
    PassExample(
        "snippet_stale_tool_outputs",
        [t(R("a", "y" * 4096)), *U(8)],
        [t(R("a", "y" * 1024 + "\n[...elided 2048 bytes...]\n" + "y" * 1024)), *U(8)],
        (0, 1, 2021),
    ),
    PassExample(
        "snippet_stale_tool_outputs",
        [t(R("a", "é" + "🦀" * 1200 + "é")), *U(8)],
        [t(R("a", "é" + "🦀" * 255 + "\n[...elided 2760 bytes...]\n" + "🦀" * 255 + "é")), *U(8)],
        (0, 1, 2733),
    ),
]

COLLAPSE_EXAMPLES = [
    PassExample(
        "collapse_duplicate_calls",
        [a(C("c1", "t", "a" * 64), C("c2", "t", "a" * 64)), *U(8)],
        [a(C("c1", "t", "a" * 64), C("c2", "t", "[REPEAT of call_id=c1, 64 bytes]")), *U(8)],
        (1, 0, 32),
    ),
    PassExample(
        "collapse_duplicate_calls",
        [a(C("i" * 60, "t", "a" * 64), C("b", "t", "a" * 64)), *U(8)],
        [a(C("i" * 60, "t", "a" * 64), C("b", "t", "[REPEAT of call_id=" + "i" * 60 + ", 64 bytes]")), *U(8)],
        (1, 0, 0),
    ),
    PassExample(
        "collapse_duplicate_calls",
        [a(C("a", "t", "[REPEAT" + "y" * 80), C("b", "t", "[REPEAT" + "y" * 80)), *U(8)],
        [a(C("a", "t", "[REPEAT" + "y" * 80), C("b", "t", "[REPEAT" + "y" * 80)), *U(8)],
        (0, 0, 0),
    ),
]

TRIM_EXAMPLES = [
    PassExample("trim_middle", U(22), [*U(2), u(trim(4, 4)), *U(16)], (0, 1, 0)),
    PassExample(
        "trim_middle",
        [*U(2), *[a("x" * 100) for _ in range(6)], *U(16)],
        [*U(2), u(trim(6, 600)), *U(16)],
        (0, 1, 511),
    ),
    PassExample(
        "trim_middle",
        [*U(2), a(H("think"), "hi", C("a", "read_file")), t(R("a", "res")), u(I, F, "é"), *U(17)],
        [*U(2), u(trim(4, 2067)), *U(16)],
        (0, 1, 1977),
    ),
    PassExample(
        "trim_middle",
        [*U(5), a(C("a", "read_file")), t(R("a", "res")), *U(15)],
        [*U(2), u(trim(5, 17)), *U(15)],
        (0, 1, 0),
    ),
    PassExample(
        "trim_middle",
        [u("q"), a(C("p"), C("r")), t(R("p", "x")), t(R("r", "x")), *U(18)],
        [u("q"), a(C("p"), C("r")), t(R("p", "x")), t(R("r", "x")), u(trim(2, 2)), *U(16)],
        (0, 1, 0),
    ),
    PassExample(
        "trim_middle",
        [u("q"), *[a(C(f"c{i}", "f")) for i in range(25)]],
        [u("q"), a(C("c0", "f")), u(trim(24, 72))],
        (0, 1, 0),
    ),
    PassExample(
        "trim_middle",
        [*U(3), a(*[C(f"c{i}") for i in range(18)]), *[t(R(f"c{i}", "r")) for i in range(18)]],
        [*U(2), u(trim(20, 73))],
        (0, 1, 0),
    ),
]

REPAIR_EXAMPLES = [
    PassExample("repair_orphans", [u("q"), t(R("a", "r")), a(C("a"))], [u("q"), a(C("a"))], (0, 1, 0)),
    PassExample(
        "repair_orphans",
        [u("q"), a(C("a"), C("b")), t(R("a", "r")), u("z")],
        [u("q"), a(C("a"), C("b")), t(R("b", GONE)), t(R("a", "r")), u("z")],
        (0, 1, 0),
    ),
    PassExample(
        "repair_orphans",
        [a(C("a"), C("b")), u("z")],
        [a(C("a"), C("b")), t(R("a", GONE)), t(R("b", GONE)), u("z")],
        (0, 2, 0),
    ),
    PassExample(
        "repair_orphans",
        [a(C("a")), t(R("a", "r")), a(C("a")), u("z")],
        [a(C("a")), t(R("a", "r")), a(C("a")), u("z")],
        (0, 0, 0),
    ),
    PassExample(
        "repair_orphans",
        [a(C("a")), t(R("a", "r"), R("n", "r")), t(R("n", "r")), t()],
        [a(C("a")), t(R("a", "r"), R("n", "r")), t()],
        (0, 1, 0),
    ),
    PassExample(
        "repair_orphans",
        [a(C("a")), u(R("a", "r"))],
        [a(C("a")), t(R("a", GONE)), u(R("a", "r"))],
        (0, 1, 0),
    ),
]

APPLY_ALL_EXAMPLES = [
    PassExample(
        "seed",
        [t(R("call_a", "file contents: hello world" * 40)), t(R("call_b", "file contents: hello world" * 40))],
        [],
        (1, 2, 987),
    ),
    PassExample(
        "seed",
        [
            u("q"),
            a(H("hmm"), "a  b", C("a")),
            t(R("a", "w" * 300)),
            a(C("b")),
            t(R("b", "w" * 300)),
            a(C("c")),
            *U(6),
        ],
        [
            u("q"),
            a("a b", C("a")),
            t(R("a", "w" * 300)),
            a(C("b")),
            t(R("b", "[DEDUP] identical to tool_call_id=a (300 bytes)")),
            a(C("c")),
            t(R("c", GONE)),
            *U(6),
        ],
        (1, 3, 257),
    ),
    # Removing a message moves the window of the later passes.
    PassExample("seed", [a("a  b"), a(H("hm")), *U(5)], [a("a  b"), *U(5)], (0, 1, 2)),
    PassExample(
        "4.6.0",
        [a(C("a"), C("b")), t(R("a", "w" * 5000)), t(R("b", "w" * 5000)), *U(8)],
        [
            a(C("a"), C("b")),
            t(R("a", "w" * 1024 + "\n[...elided 2952 bytes...]\n" + "w" * 1024)),
            t(R("b", "[DEDUP] identical to tool_call_id=a (5000 bytes)")),
            *U(8),
        ],
        (1, 1, 7877),
    ),
]

A8_EXAMPLES = [
    *PRUNE_THINKING_EXAMPLES,
    *DEDUP_EXAMPLES,
    *SNIPPET_EXAMPLES,
    *COLLAPSE_EXAMPLES,
    *TRIM_EXAMPLES,
    *REPAIR_EXAMPLES,
    *APPLY_ALL_EXAMPLES,
]

NEAR_REF_EXAMPLES = [
    NearRefExample('{"a":1e2}', '{"a":5}', [("a", "100.0", "5")]),
    NearRefExample('{"a":1.0,"b":1}', '{"a":1.00,"b":2}', [("b", "1", "2")]),
    NearRefExample('{"a":[1],"b":1}', '{"a":[1.0],"b":2}', None),
    NearRefExample('{"a":1e-5}', '{"a":1e16}', [("a", "0.00001", "1e16")]),
    NearRefExample('{"a":18446744073709551616}', '{"a":-0}', [("a", "1.8446744073709552e19", "-0.0")]),
    NearRefExample('{"a":1,"b":1e400}', '{"a":2,"b":1e400}', None),
    NearRefExample(r'{"a":1,"b":"\ud800"}', r'{"a":2,"b":"\ud800"}', None),
    NearRefExample('{"a":1,"b":1}', '{"a":3,"b":2,"a":4}', [("a", "1", "4"), ("b", "1", "2")]),
    NearRefExample('{"s":""}', '{"s":"' + "n" * 42 + '"}', [("s", "", "n" * 42)]),
    NearRefExample('{"s":""}', '{"s":"' + "n" * 43 + '"}', None),
]

A, B, Y, Z = (content_hash(name.encode()) for name in "ABYZ")

CACHE_EXAMPLES = [
    # A hit makes its entry the most recent one.
    CacheExample(
        [
            ("with_capacity", 2),
            ("insert", A, "1", "Other", None, ""),
            ("insert", B, "2", "Other", None, ""),
            ("check", A),
            ("insert", Z, "3", "Other", None, ""),
            ("check", B),
            ("check", A),
            ("check", Z),
        ],
        [None, None, None, "1", None, None, "1", "3"],
    ),
    # Capacity 0 means 1.
    CacheExample(
        [
            ("with_capacity", 0),
            ("insert", A, "1", "Other", None, ""),
            ("insert", B, "2", "Other", None, ""),
            ("len",),
            ("check", A),
            ("check", B),
        ],
        [None, None, None, 1, None, "2"],
    ),
    # Entries with equal hashes are returned in turn.
    CacheExample(
        [
            ("with_capacity", 3),
            ("insert", A, "1", "Other", None, ""),
            ("insert", A, "2", "Other", None, ""),
            ("check", A),
            ("check", A),
            ("check", A),
        ],
        [None, None, None, "1", "2", "1"],
    ),
    # Only a file read with this path is invalidated.
    CacheExample(
        [
            ("with_capacity", 5),
            ("insert", A, "1", "FileRead", "p", "Read"),
            ("insert", B, "2", "FileMutate", "p", "Edit"),
            ("insert", Y, "3", "Other", "p", "Bash"),
            ("insert", Z, "4", "FileRead", None, "Read"),
            ("invalidate_file", "p"),
            ("invalidate_file", "p"),
            ("len",),
        ],
        [None, None, None, None, None, 1, 0, 3],
    ),
    # A near reference leaves the order of entries unchanged.
    CacheExample(
        [
            ("with_capacity", 2),
            ("insert_with_body", A, "1", "Other", None, '{"n":1}', ""),
            ("insert_with_body", B, "2", "Other", None, '{"n":2}', ""),
            ("find_near_ref", '{"n":3}', 50, 0),
            ("insert", Z, "3", "Other", None, ""),
            ("find_near_ref", '{"n":3}', 50, 0),
            ("insert", Y, "4", "Other", None, ""),
            ("find_near_ref", '{"n":3}', 50, 0),
        ],
        [None, None, None, ("2", [("n", "2", "3")]), None, ("2", [("n", "2", "3")]), None, None],
    ),
    # The empty name is a name.
    CacheExample(
        [
            ("with_capacity", 5),
            ("insert", A, "1", "Other", None, ""),
            ("insert", B, "2", "FileRead", None, "Read"),
            ("insert", Z, "3", "Other", None, "Bash"),
            ("invalidate_by_tool", []),
            ("invalidate_by_tool", ["", "Read"]),
            ("len",),
            ("check", Z),
        ],
        [None, None, None, None, 0, 2, 1, "3"],
    ),
    # A compaction boundary drops all entries.
    CacheExample(
        [
            ("with_capacity", 5),
            ("insert", A, "1", "Other", None, ""),
            ("partition",),
            ("on_compaction_boundary",),
            ("partition",),
            ("check", A),
            ("len",),
        ],
        [None, None, 0, None, 1, None, 0],
    ),
]


def output(call_id: str, tool: str, body: str, **options: Any) -> dict[str, Any]:
    """Return the arguments of `emit`."""
    return {"call_id": call_id, "tool": tool, "body": body, **options}


def near_body(status: str) -> str:
    """Return a JSON object of 621 bytes with a short field `s`."""
    return '{"s":"' + status + '","pad":"' + "x" * 603 + '"}'


LONG = "B" * 300
WRITE = "w" * 200

PIPELINE_EXAMPLES = [
    # A short output of a writer invalidates nothing.
    PipelineExample(
        {},
        [output("1", "g", LONG), output("2", "w", "ok", invalidates=["g"]), output("3", "g", LONG)],
        [LONG, "ok", "> [ref: 1, byte-identical]"],
    ),
    PipelineExample(
        {},
        [output("1", "g", LONG), output("2", "w", WRITE, invalidates=["g"]), output("3", "g", LONG)],
        [LONG, WRITE, LONG],
    ),
    # A repeated output of a writer invalidates nothing.
    PipelineExample(
        {},
        [
            output("1", "w", WRITE, invalidates=["g"]),
            output("2", "g", LONG),
            output("3", "w", WRITE, invalidates=["g"]),
            output("4", "g", LONG),
        ],
        [WRITE, LONG, "> [ref: 1, byte-identical]", "> [ref: 2, byte-identical]"],
    ),
    # A short output of an editor invalidates its path, exactly as written.
    PipelineExample(
        {},
        [
            output("1", "Read", LONG, path="/a"),
            output("2", "Edit", "ok", path="/a"),
            output("3", "Read", LONG, path="/a"),
            output("4", "Edit", "ok", path="./a"),
            output("5", "Read", LONG, path="/a"),
        ],
        [LONG, "ok", LONG, "ok", "> [ref: 3, byte-identical]"],
    ),
    PipelineExample(
        {"verbosity": "verbose"},
        [output("1", "Read", LONG), output("2", "Bash", LONG)],
        [LONG, "> [ref: 1, byte-identical, from: other]"],
    ),
    # A hint may be longer than the body.
    PipelineExample(
        {"min_bytes": 0},
        [output("1", "Bash", "x"), output("2", "Bash", "x")],
        ["x", "> [ref: 1, byte-identical]"],
    ),
    PipelineExample(
        {"near_references": True},
        [output(str(number), "g", near_body(status)) for number, status in enumerate("abbca", start=1)],
        [
            near_body("a"),
            "> [near-ref: 1, s: a→b]",
            "> [ref: 2, byte-identical]",
            "> [near-ref: 2, s: b→c]",
            "> [ref: 1, byte-identical]",
        ],
    ),
    PipelineExample(
        {"hash_ids": True},
        [output("tc_1", "g", LONG), output("tc_2", "g", LONG)],
        [LONG, "> [ref: 474aed5c, byte-identical]"],
    ),
]
