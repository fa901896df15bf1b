"""Histories that are expensive by design, of any size. Processing time must grow linearly with size, not
quadratically."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

ToolUse = tuple[str, dict[str, Any], Any]
"""Name of a tool, its arguments, and its result."""

STATUS = (
    "Job 4711 on cluster west-2: running\nstep 3 of 9, 12 of 40 tasks finished, 0 failed\n"
    "queue: default, priority: normal, owner: build\n"
)


def history(asked: Iterable[ToolUse]) -> dict[str, Any]:
    """Return an Anthropic request with these calls, one after the other."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (tool, given, result) in enumerate(asked):
        call = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": given}
        answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}


def lines(count: int, seed: int = 1) -> list[str]:
    """Return different lines of thirty characters."""
    chance = random.Random(seed)
    return [f"{chance.getrandbits(120):030x}" for _ in range(count)]


def page(count: int, seed: int = 1) -> str:
    return "\n".join(lines(count, seed))


def _read(path: str, text: Any) -> ToolUse:
    return "Read", {"file_path": path}, text


def polled(n: int) -> dict[str, Any]:
    return history([_read("/tmp/status", 2 * STATUS)] * n)


def polled_with_a_counter(n: int) -> dict[str, Any]:
    return history(_read("/tmp/status", 2 * STATUS + f"asked {number} times") for number in range(n))


def long_polled(n: int) -> dict[str, Any]:
    """A new line is appended now and then."""
    text = page(100)
    return history(_read("/log", text if number % 9 else f"{text}\nline {number}") for number in range(n))


def swapped(n: int) -> dict[str, Any]:
    every = lines(16 * n)
    blocks = [every[at : at + 8] for at in range(0, len(every), 8)]
    other = [line for at in range(0, len(blocks), 2) for block in (blocks[at + 1], blocks[at]) for line in block]
    return history([_read("/a", "\n".join(every)), _read("/b", "\n".join(other))])


def broken_period(n: int) -> dict[str, Any]:
    def text(word: str) -> str:
        whole = [f"line no. {at % 7}" for at in range(50 * n)]
        whole[::50] = [f"broken {word} at {at}" for at in range(n)]
        return "\n".join(whole)

    return history([_read("/a", text("here")), _read("/b", text("there"))])


def sources_in_turn(n: int) -> dict[str, Any]:
    every = [lines(8 * n, seed) for seed in range(6)]
    mixed = [line for at in range(0, 8 * n, 8) for text in every for line in text[at : at + 8]]
    return history(
        [*(_read(f"/{at}", "\n".join(text)) for at, text in enumerate(every)), _read("/x", "\n".join(mixed))]
    )


def searched(n: int) -> dict[str, Any]:
    """Five long texts, and results that each have a few lines of one of them."""
    every = [lines(6 * n, seed) for seed in range(5)]
    found = [[*every[at % 5][6 * at : 6 * at + 6], f"hit {at}"] for at in range(n)]
    reads = (_read(f"/{at}", "\n".join(text)) for at, text in enumerate(every))
    return history([*reads, *(("grep", {"pattern": str(at)}, "\n".join(hit)) for at, hit in enumerate(found))])


def unlike(n: int) -> dict[str, Any]:
    return history(("bash", {"command": f"step {at}"}, page(130, at)) for at in range(n))


def quoted(n: int) -> dict[str, Any]:
    """The next result quotes each long result, and a short result quotes that one, which is as long."""

    def three(at: int) -> Iterable[ToolUse]:
        first, other = lines(130, 2 * at), lines(90, 2 * at + 1)
        for number, text in enumerate((first, first[:60] + other, other[10:20])):
            yield "bash", {"command": f"step {at}.{number}"}, "\n".join(text)

    return history(each for at in range(n) for each in three(at))


def quoted_on(n: int) -> dict[str, Any]:
    """Each long result quotes the previous one."""
    pages = [lines(70, at) for at in range(n + 1)]
    return history(("bash", {"command": f"step {at}"}, "\n".join(pages[at] + pages[at + 1])) for at in range(n))


def edited(n: int) -> dict[str, Any]:
    """One file, read again after every edit."""

    def two(at: int) -> Iterable[ToolUse]:
        yield _read("/a.py", f"{page(40)}\nedit {at}")
        yield "Edit", {"file_path": "/a.py", "old_string": "a", "new_string": "b"}, "ok"

    return history(each for at in range(n) for each in two(at))


def in_pieces(n: int) -> dict[str, Any]:
    """One file, read in pieces."""
    return history(
        ("Read", {"file_path": "/a.txt", "offset": 20 * at + 1, "limit": 20}, page(12, at)) for at in range(n)
    )


def fragments(n: int) -> dict[str, Any]:
    """Long lines of a file are found one by one, under one name. Then the file is written and read."""
    found = [80 * line for line in lines(n)]
    return history(
        [
            *(("grep", {"pattern": "x"}, line) for line in found),
            ("Write", {"file_path": "/a", "content": "\n".join(found)}, "ok"),
            _read("/a", "\n".join([*found, "the end"])),
        ]
    )


def chained(n: int) -> dict[str, Any]:
    """Each single line of items starts with half of the previous one."""
    items = [[f"item {at} {line}" for line in lines(12, at)] for at in range(n + 1)]
    return history(_read("/a", ", ".join(items[at] + items[at + 1])) for at in range(n))


def of_many_tools(n: int) -> dict[str, Any]:
    return history((f"tool_{at}", {"file_path": f"/{at}"}, page(80, at)) for at in range(n))


def in_one_message(n: int) -> dict[str, Any]:
    request = history(_read(f"/{at}", page(8)) for at in range(n))
    asked, answered = request["messages"][1::2], request["messages"][2::2]
    messages = [
        {"role": role, "content": [part for message in each for part in message["content"]]}
        for role, each in (("assistant", asked), ("user", answered))
    ]
    return {**request, "messages": [*request["messages"][:1], *messages]}


def in_one_result(n: int) -> dict[str, Any]:
    return history([_read("/a", [{"type": "text", "text": page(8)}] * n)])


def dashes(n: int) -> dict[str, Any]:
    """A search result with one very long path and no lines below it."""
    return history([("grep", {"pattern": "x"}, f"a.py:1:x\n{'p' * 3 * n}:1:x\n" + "--\n" * n)])


def patched(n: int) -> dict[str, Any]:
    """A patch of many files with a result in many pieces."""
    patch = "\n".join(["*** Begin Patch", *(f"*** Delete File: f{at}" for at in range(n)), "*** End Patch"])
    return history([("apply_patch", {"input": patch}, [{"type": "text", "text": "done"}] * n)])


def thought(n: int) -> dict[str, Any]:
    """The user responds to every edit, and the model thinks before it."""
    found = history(
        ("Edit", {"file_path": f"/{at}", "old_string": page(3, at), "new_string": "x"}, "") for at in range(n)
    )
    messages = found["messages"]
    for at in range(len(messages) - 1, 0, -2):
        block = {"type": "thinking", "thinking": page(2, at), "signature": "c2ln"}
        messages[at - 1]["content"].insert(0, block)
        said = {"role": "assistant", "content": [{**block, "thinking": page(2, -at)}, {"type": "text", "text": "So"}]}
        messages[at + 1 : at + 1] = [said, {"role": "user", "content": "On"}]
    return found


HARD: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "a short result, polled": (polled, 400),
    "the same with a counter": (polled_with_a_counter, 400),
    "a long result, polled": (long_polled, 300),
    "neighbouring blocks swapped": (swapped, 2500),
    "a broken period": (broken_period, 1500),
    "lines of six texts in turn": (sources_in_turn, 600),
    "searches in five texts": (searched, 300),
    "results unlike each other": (unlike, 200),
    "results that quote": (quoted, 80),
    "results that quote each other": (quoted_on, 200),
    "a file between its edits": (edited, 200),
    "a file in pieces": (in_pieces, 400),
    "a file in fragments": (fragments, 2400),
    "items in a chain": (chained, 300),
    "as many tools as calls": (of_many_tools, 200),
    "results in one message": (in_one_message, 1500),
    "texts in one result": (in_one_result, 1500),
    "a long path above nothing": (dashes, 100_000),
    "a patch of many files": (patched, 4000),
    "thinking in every turn": (thought, 300),
}
"""Generators by description, each with a size that takes about a tenth of a second."""
