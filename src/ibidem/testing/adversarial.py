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


def request_with_calls(tool_uses: Iterable[ToolUse]) -> dict[str, Any]:
    """Return an Anthropic request with these calls, one after the other."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (tool, arguments, result) in enumerate(tool_uses):
        call = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": arguments}
        answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}


def random_lines(count: int, seed: int = 1) -> list[str]:
    """Return different lines of thirty characters."""
    chance = random.Random(seed)
    return [f"{chance.getrandbits(120):030x}" for _ in range(count)]


def random_page(count: int, seed: int = 1) -> str:
    return "\n".join(random_lines(count, seed))


def _read_call(path: str, text: Any) -> ToolUse:
    return "Read", {"file_path": path}, text


def polling_history(n: int) -> dict[str, Any]:
    return request_with_calls([_read_call("/tmp/status", 2 * STATUS)] * n)


def counter_polling_history(n: int) -> dict[str, Any]:
    return request_with_calls(_read_call("/tmp/status", 2 * STATUS + f"asked {number} times") for number in range(n))


def long_polling_history(n: int) -> dict[str, Any]:
    """A new line is appended now and then."""
    text = random_page(100)
    return request_with_calls(
        _read_call("/log", text if number % 9 else f"{text}\nline {number}") for number in range(n)
    )


def swapped_blocks_history(n: int) -> dict[str, Any]:
    every = random_lines(16 * n)
    blocks = [every[at : at + 8] for at in range(0, len(every), 8)]
    other = [line for at in range(0, len(blocks), 2) for block in (blocks[at + 1], blocks[at]) for line in block]
    return request_with_calls([_read_call("/a", "\n".join(every)), _read_call("/b", "\n".join(other))])


def broken_period_history(n: int) -> dict[str, Any]:
    def text(word: str) -> str:
        all_lines = [f"line no. {at % 7}" for at in range(50 * n)]
        all_lines[::50] = [f"broken {word} at {at}" for at in range(n)]
        return "\n".join(all_lines)

    return request_with_calls([_read_call("/a", text("here")), _read_call("/b", text("there"))])


def alternating_sources_history(n: int) -> dict[str, Any]:
    every = [random_lines(8 * n, seed) for seed in range(6)]
    mixed_lines = [line for at in range(0, 8 * n, 8) for text in every for line in text[at : at + 8]]
    return request_with_calls(
        [
            *(_read_call(f"/{at}", "\n".join(text)) for at, text in enumerate(every)),
            _read_call("/x", "\n".join(mixed_lines)),
        ]
    )


def search_history(n: int) -> dict[str, Any]:
    """Five long texts, and results that each have a few lines of one of them."""
    every = [random_lines(6 * n, seed) for seed in range(5)]
    results = [[*every[at % 5][6 * at : 6 * at + 6], f"hit {at}"] for at in range(n)]
    reads = (_read_call(f"/{at}", "\n".join(text)) for at, text in enumerate(every))
    return request_with_calls(
        [*reads, *(("grep", {"pattern": str(at)}, "\n".join(hit)) for at, hit in enumerate(results))]
    )


def unrelated_results_history(n: int) -> dict[str, Any]:
    return request_with_calls(("bash", {"command": f"step {at}"}, random_page(130, at)) for at in range(n))


def quoting_history(n: int) -> dict[str, Any]:
    """The next result quotes each long result, and a short result quotes that one, which is as long."""

    def three(at: int) -> Iterable[ToolUse]:
        first, other = random_lines(130, 2 * at), random_lines(90, 2 * at + 1)
        for number, text in enumerate((first, first[:60] + other, other[10:20])):
            yield "bash", {"command": f"step {at}.{number}"}, "\n".join(text)

    return request_with_calls(each for at in range(n) for each in three(at))


def chained_quotes_history(n: int) -> dict[str, Any]:
    """Each long result quotes the previous one."""
    pages = [random_lines(70, at) for at in range(n + 1)]
    return request_with_calls(
        ("bash", {"command": f"step {at}"}, "\n".join(pages[at] + pages[at + 1])) for at in range(n)
    )


def edited_file_history(n: int) -> dict[str, Any]:
    """One file, read again after every edit."""

    def two(at: int) -> Iterable[ToolUse]:
        yield _read_call("/a.py", f"{random_page(40)}\nedit {at}")
        yield "Edit", {"file_path": "/a.py", "old_string": "a", "new_string": "b"}, "ok"

    return request_with_calls(each for at in range(n) for each in two(at))


def partial_reads_history(n: int) -> dict[str, Any]:
    """One file, read in pieces."""
    return request_with_calls(
        ("Read", {"file_path": "/a.txt", "offset": 20 * at + 1, "limit": 20}, random_page(12, at)) for at in range(n)
    )


def fragments_history(n: int) -> dict[str, Any]:
    """Long lines of a file are found one by one, under one name. Then the file is written and read."""
    found_lines = [80 * line for line in random_lines(n)]
    return request_with_calls(
        [
            *(("grep", {"pattern": "x"}, line) for line in found_lines),
            ("Write", {"file_path": "/a", "content": "\n".join(found_lines)}, "ok"),
            _read_call("/a", "\n".join([*found_lines, "the end"])),
        ]
    )


def chained_items_history(n: int) -> dict[str, Any]:
    """Each single line of items starts with half of the previous one."""
    items = [[f"item {at} {line}" for line in random_lines(12, at)] for at in range(n + 1)]
    return request_with_calls(_read_call("/a", ", ".join(items[at] + items[at + 1])) for at in range(n))


def many_tools_history(n: int) -> dict[str, Any]:
    return request_with_calls((f"tool_{at}", {"file_path": f"/{at}"}, random_page(80, at)) for at in range(n))


def one_message_history(n: int) -> dict[str, Any]:
    request = request_with_calls(_read_call(f"/{at}", random_page(8)) for at in range(n))
    call_messages, result_messages = request["messages"][1::2], request["messages"][2::2]
    messages = [
        {"role": role, "content": [part for message in each for part in message["content"]]}
        for role, each in (("assistant", call_messages), ("user", result_messages))
    ]
    return {**request, "messages": [*request["messages"][:1], *messages]}


def one_result_history(n: int) -> dict[str, Any]:
    return request_with_calls([_read_call("/a", [{"type": "text", "text": random_page(8)}] * n)])


def dashes_history(n: int) -> dict[str, Any]:
    """A search result with one very long path and no lines below it."""
    return request_with_calls([("grep", {"pattern": "x"}, f"a.py:1:x\n{'p' * 3 * n}:1:x\n" + "--\n" * n)])


def patch_history(n: int) -> dict[str, Any]:
    """A patch of many files with a result in many pieces."""
    patch = "\n".join(["*** Begin Patch", *(f"*** Delete File: f{at}" for at in range(n)), "*** End Patch"])
    return request_with_calls([("apply_patch", {"input": patch}, [{"type": "text", "text": "done"}] * n)])


def thinking_history(n: int) -> dict[str, Any]:
    """The user responds to every edit, and the model thinks before it."""
    request = request_with_calls(
        ("Edit", {"file_path": f"/{at}", "old_string": random_page(3, at), "new_string": "x"}, "") for at in range(n)
    )
    messages = request["messages"]
    for at in range(len(messages) - 1, 0, -2):
        block = {"type": "thinking", "thinking": random_page(2, at), "signature": "c2ln"}
        messages[at - 1]["content"].insert(0, block)
        assistant_turn = {
            "role": "assistant",
            "content": [{**block, "thinking": random_page(2, -at)}, {"type": "text", "text": "So"}],
        }
        messages[at + 1 : at + 1] = [assistant_turn, {"role": "user", "content": "On"}]
    return request


HARD: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "a short result, polled": (polling_history, 400),
    "the same with a counter": (counter_polling_history, 400),
    "a long result, polled": (long_polling_history, 300),
    "neighbouring blocks swapped": (swapped_blocks_history, 2500),
    "a broken period": (broken_period_history, 1500),
    "lines of six texts in turn": (alternating_sources_history, 600),
    "searches in five texts": (search_history, 300),
    "results unlike each other": (unrelated_results_history, 200),
    "results that quote": (quoting_history, 80),
    "results that quote each other": (chained_quotes_history, 200),
    "a file between its edits": (edited_file_history, 200),
    "a file in pieces": (partial_reads_history, 400),
    "a file in fragments": (fragments_history, 2400),
    "items in a chain": (chained_items_history, 300),
    "as many tools as calls": (many_tools_history, 200),
    "results in one message": (one_message_history, 1500),
    "texts in one result": (one_result_history, 1500),
    "a long path above nothing": (dashes_history, 100_000),
    "a patch of many files": (patch_history, 4000),
    "thinking in every turn": (thinking_history, 300),
}
"""Generators by description, each with a size that takes about a tenth of a second."""
