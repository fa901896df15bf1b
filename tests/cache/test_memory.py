"""The response seat in our own words: a hint can be followed, or it is not made."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem import IbidemError
from ibidem.cache import MemorySettings, NearRefConfig, OutputMemories, OutputMemory

FILE = "line of a file\n" * 40
OTHER = "line of another file\n" * 40
EXPLAINS = ". Ibidem leaves out what stands verbatim above and says where; the same call again brings it in full"


class Step(NamedTuple):
    """A call, and what is sent for its output: the output itself, or this line."""

    tool: str
    arguments: Any
    body: str
    kind: str
    line: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed


def play(memory: OutputMemory, *steps: Step) -> None:
    for number, step in enumerate(steps, 1):
        emission = memory.emit(step.tool, step.arguments, step.body, **step.more)
        assert (emission.kind, emission.text) == (step.kind, step.line or step.body), f"step {number}"


def line(ago: str, call: str, explains: bool = False) -> str:
    return f"[ibidem: unchanged, same as the result {ago} ago, {call}{EXPLAINS * explains}]"


def status(number: int, **more: Any) -> str:
    return json.dumps({"state": "open", "total": number, "log": "x" * 600, **more})


A, B = {"file_path": "a.py"}, {"command": "cat a.py"}
READ_A = Step("Read", A, FILE, "fresh")
ENTRIES = [
    pytest.param(
        [
            READ_A,
            Step("Bash", B, FILE, "hint", line("1 call", "Read(a.py)", True)),
            Step("Bash", {"command": "cat ./a.py"}, FILE, "hint", line("2 calls", "Read(a.py)")),
        ],
        id="a repeat names tool, arguments and distance; the first explains itself",
    ),
    pytest.param(
        [
            READ_A,
            Step("Read", A, FILE, "hint", line("1 call", "Read(a.py)", True)),
            Step("Read", A, FILE, "fresh"),
            Step("Read", A, FILE, "hint", line("1 call", "Read(a.py)")),
        ],
        id="who asks again after a hint gets the text, which is what is named then",
    ),
    pytest.param(
        [
            READ_A,
            Step("Read", A, FILE, "left", more={"failed": True}),
            Step("Read", A, FILE, "hint", line("2 calls", "Read(a.py)", True)),
        ],
        id="a failed result is neither a hint nor remembered, and counts as a call",
    ),
    pytest.param(
        [Step("Read", A, FILE, "left", more={"failed": True}), READ_A], id="what only ever failed is not named"
    ),
    pytest.param(
        [READ_A, Step("Edit", A, "ok", "short"), READ_A], id="an edit makes what was read of the file go stale"
    ),
    pytest.param(
        [
            Step("get", {}, FILE, "fresh"),
            Step("put", {}, "ok", "short", more={"invalidates": ["get"]}),
            Step("get", {}, FILE, "fresh"),
        ],
        id="a declared writer does, whatever it answers",
    ),
    pytest.param(
        [
            READ_A,
            Step("Bash", B, quoted := line("1 call", "Read(a.py)") + FILE, "left"),
            Step("Bash", B, quoted, "left"),
        ],
        id="what quotes a hint is never remembered as a text",
    ),
    pytest.param([Step("t", {}, "x" * 199, "short"), Step("t", {}, "x" * 199, "short")], id="short ones pass"),
    pytest.param(
        [Step("t", {"path": "漢" * 70}, "x" * 200, "fresh"), Step("t", {}, "x" * 200, "fresh")],
        id="a hint that is longer than the text is not made",
    ),
    pytest.param(
        [
            Step("get", {"id": 4}, status(12), "fresh"),
            Step(
                "get", {"id": 5}, status(13), "near", line("1 call", "get(id=4)", True).replace(
                    " ago,", " ago but for total: 12→13,"
                )
            ),
            Step(
                "get", {"id": 6}, status(14), "near", line("2 calls", "get(id=4)").replace(
                    " ago,", " ago but for total: 12→14,"
                )
            ),
            Step("get", {"id": 7}, status(12), "hint", line("3 calls", "get(id=4)")),
        ],
        id="differences are told from the last full text, never from a difference",
    ),
    pytest.param(
        [
            Step("get", {}, status(12), "fresh"),
            Step("get", {}, status(13), "near", line("1 call", "get", True).replace(
                " ago,", " ago but for total: 12→13,"
            )),
            Step("get", {}, status(14), "fresh"),
            Step("get", {}, status(13), "near", line("1 call", "get").replace(" ago,", " ago but for total: 14→13,")),
        ],
        id="asked again after a difference it is the text",
    ),
    pytest.param([Step("get", {}, status(1), "fresh"), Step("put", {}, status(2), "fresh")], id="of the same tool"),
    pytest.param(
        [Step("get", {}, status(1), "fresh"), Step("get", {}, status(1)[:-1] + ', "total": 2}', "fresh")],
        id="an object that says a thing twice is no difference",
    ),
    pytest.param(
        [Step("get", {}, status(1, s="a"), "fresh"), Step("get", {}, status(1, s="\u202eb"), "fresh")],
        id="nor is what would steer a terminal",
    ),
]  # fmt: skip


@pytest.mark.parametrize("steps", ENTRIES)
def test_what_is_sent(steps: list[Step]) -> None:
    play(OutputMemory(), *steps)


@pytest.mark.parametrize(
    ("calls", "seconds", "kind"),
    [
        pytest.param(19, 0.0, "hint", id="twenty calls ago"),
        pytest.param(20, 0.0, "fresh", id="more than twenty"),
        pytest.param(0, 900.0, "hint", id="a quarter of an hour"),
        pytest.param(0, 900.1, "fresh", id="more than that"),
        pytest.param(0, -1.0, "fresh", id="a clock that went back"),
    ],
)
def test_what_was_sent_long_ago_is_forgotten(calls: int, seconds: float, kind: str) -> None:
    memory = OutputMemory()
    memory.emit("Read", A, FILE, now=100.0)
    for _ in range(calls):
        memory.skip()
    assert memory.emit("Bash", B, FILE, now=100.0 + seconds).kind == kind


def test_compaction_empties_the_memory_and_the_next_hint_explains_itself_again() -> None:
    memory = OutputMemory()
    said = Step("Bash", B, FILE, "hint", line("1 call", "Read(a.py)", True))
    play(memory, READ_A, said)
    memory.forget()
    play(memory, READ_A, said)


def test_turns_are_counted_where_calls_may_end_in_any_order() -> None:
    memory = OutputMemory(MemorySettings(by_turn=True))
    play(memory, READ_A, Step("Bash", B, FILE, "fresh"), Step("get", {"id": 1}, status(1), "fresh"))
    play(memory, Step("get", {"id": 2}, status(2), "fresh"))
    memory.next_turn()
    memory.next_turn()
    play(memory, Step("Read", A, FILE, "hint", line("2 turns", "Bash(cat a.py)", True)))
    near = line("2 turns", "get(id=2)").replace(" ago,", " ago but for total: 2→3,")
    play(memory, Step("get", {}, status(3), "near", near))


def test_a_call_that_reads_like_another_of_its_turn_is_not_named() -> None:
    memory = OutputMemory(MemorySettings(by_turn=True))
    first, second = ({"command": "x" * 100 + end} for end in "ab")
    play(memory, Step("Bash", first, FILE, "fresh"), Step("Bash", second, OTHER, "fresh"))
    memory.next_turn()
    play(memory, Step("Bash", first, FILE, "fresh"), READ_A)
    memory.next_turn()
    said = memory.emit("Bash", second, FILE).text
    assert said.startswith("[ibidem: unchanged, same as the result 1 turn ago, Read(a.py)")


def test_contexts_share_nothing_and_the_least_recent_goes() -> None:
    memories = OutputMemories(max_partitions=2)
    sent = [memories.of(key).emit("Read", A, FILE).kind for key in ("main", "sub", "main", "third", "sub")]
    assert sent == ["fresh", "fresh", "hint", "fresh", "fresh"]
    assert ("main" in memories, len(memories)) == (False, 2)
    assert (memories.forget("sub"), memories.forget("sub")) == (True, False)
    assert memories.forget_where(lambda key: key == "third") == 1


def test_what_is_no_text_is_told_at_once() -> None:
    wrong: Any = b"body"
    with pytest.raises(IbidemError, match="bytes is not a str"):
        OutputMemory().emit("Read", A, wrong)
    with pytest.raises(IbidemError, match="pass a list"):
        OutputMemory().emit("Read", A, FILE, invalidates="Read")


HINT = re.compile(r"\[ibidem: unchanged, same as the result ([0-9]+) calls? ago(?: but for v: ([0-9])→([0-9]))?, .*\]")
OBJECTS = [json.dumps({"v": number, "pad": "x" * 40}) for number in range(4)]
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["main", "sub", "third"]),
        st.sampled_from(["Read", "Edit", "get"]),
        st.sampled_from([{"path": "p"}, {"path": "q"}, {"id": 1}]),
        st.sampled_from(["a" * 300, "b" * 300, "short", "漢" * 100, *OBJECTS]),
        st.sampled_from(["", "", "", "failed", "forget"]),
        st.integers(0, 4),
    ),
    max_size=60,
)


@given(happenings=HAPPENINGS, capacity=st.sampled_from([1, 2, 5]))
def test_law_a_hint_names_what_this_context_was_sent_in_full(
    happenings: list[tuple[str, str, dict[str, Any], str, str, int]], capacity: int
) -> None:
    settings = MemorySettings(
        capacity=capacity, max_calls=5, max_age=12.0, min_bytes=60, near=NearRefConfig(min_body_bytes=0)
    )
    memories = OutputMemories(settings, max_partitions=2)
    told: dict[str, list[tuple[str, float] | None]] = {"main": [], "sub": [], "third": []}
    """By context, what each call was sent in full, and when; None where it was not."""
    now = 0.0
    for key, tool, arguments, body, happens, seconds in happenings:
        now += seconds
        if happens == "forget":
            memories.forget(key)
            told[key] = [None] * len(told[key])
        emission = memories.of(key).emit(tool, arguments, body, now=now, failed=happens == "failed")
        assert len(emission.text.encode()) <= len(body.encode())
        if emission.kind in ("hint", "near"):
            found = HINT.fullmatch(emission.text)
            assert found is not None
            ago = int(found[1])
            named = told[key][-ago]
            assert named is not None
            text, at = named
            assert ago <= settings.max_calls
            assert now - at <= settings.max_age
            assert text == (body if found[2] is None else body.replace(f'"v": {found[3]}', f'"v": {found[2]}'))
            assert happens != "failed"
        else:
            assert emission.text == body
        told[key].append((body, now) if emission.kind == "fresh" else None)


def test_a_hint_that_was_not_sent_is_taken_back() -> None:
    memory = OutputMemory()
    assert memory.emit("Read", {"path": "a"}, FILE).text == FILE
    first = memory.emit("Read", {"path": "b"}, FILE).text
    assert EXPLAINS in first
    memory.take_back()
    memory.take_back()
    assert memory.emit("Read", {"path": "b"}, FILE).text == first.replace("1 call ago", "2 calls ago"), (
        "not asked again"
    )
    assert EXPLAINS not in memory.emit("Read", {"path": "c"}, FILE).text
    memory.take_back()
    assert EXPLAINS not in memory.emit("Read", {"path": "d"}, FILE).text, "that was told before"
