"""Generated histories, valid and broken. They need hypothesis, which the extra `testing` installs.

Each strategy is cached: hypothesis validates one on its first use, which takes as long as generating a value.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .. import formats
from .scripts import Turn, build

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

MARKER_LIKE = (
    "[DEDUP] identical to tool_call_id=1 (1024 bytes)",
    "before\n[...elided 99 bytes...]\nafter",
    "> [ref: 1, byte-identical]",
    "[tool result unavailable: elided by context management]",
    "[ibidem 7f3a] lines 1-9: unchanged, same as lines 1-9 of result 1, Read(file1), above",
)


@cache
def texts() -> SearchStrategy[str]:
    """Generate tool output: short, long, repeated, in many scripts, with lone surrogates, or like a marker."""
    from hypothesis import strategies as st

    lines = st.sampled_from(["x = 1", "    return self", "", '\t"quoted" \\ back', "é🦀 ünï", "-----", "a  b   c  "])
    block = st.lists(lines, min_size=1, max_size=8).map("\n".join)
    long = st.builds(lambda text, times: (text + "\n") * times, block, st.sampled_from([40, 60, 300]))
    pool = st.sampled_from(["same output\n" * 40, "z" * 300, "🦀" * 80, "pass\n" * 1200, "\ud800 lone" * 60])
    with_markers = st.builds(str.__add__, st.sampled_from(MARKER_LIKE), st.sampled_from(["", "\nx" * 3000]))
    return st.one_of(pool, pool, long, with_markers, block, st.text(min_size=1, max_size=30))


@cache
def turns(max_size: int = 14) -> SearchStrategy[list[Turn]]:
    """Generate the turns of a valid conversation whose last turn is the user's or a tool's."""
    from hypothesis import strategies as st

    says = st.one_of(st.none(), texts().filter(str.strip))
    content = st.one_of(texts(), texts(), st.lists(st.one_of(texts(), st.none()), min_size=1, max_size=3))
    step = st.tuples(says, st.one_of(st.none(), st.just("hm"), texts()), st.lists(content, max_size=3), st.booleans())

    def assemble_turns(steps: list[Any]) -> list[Turn]:
        assembled = [Turn("user", "go")]
        for says, thinks, results, closes in steps:
            idents = [f"c{len(assembled)}.{number}" for number in range(len(results))]
            if not idents:
                assembled += [Turn("assistant", says or "well", thinks), Turn("user", "go on")]
                continue
            answers = list(zip(idents, results, strict=True))
            assembled += [Turn("assistant", says, thinks, idents), Turn("tool", results=answers)]
            if closes:
                assembled += [Turn("assistant", "so", thinks), Turn("user", "and then?")]
        return assembled

    return st.lists(step, max_size=max_size).map(assemble_turns)


@cache
def histories(format: str, max_size: int = 14) -> SearchStrategy[Any]:
    """Generate valid requests of a format, some with unknown keys."""
    from hypothesis import strategies as st

    def add_unknown_keys(request: Any, extra: bool) -> Any:
        if extra:
            for message in request[formats.format_named(format).history_key]:
                message["x_vendor"] = {"number": 1.0, "big": 12345678901234567890123}
        return request

    return st.builds(add_unknown_keys, turns(max_size).map(lambda made: build(made, format)), st.booleans())


@cache
def broken_histories(format: str) -> SearchStrategy[Any]:
    """Generate requests with lost or extra messages, or with values that no provider expects."""
    from hypothesis import strategies as st

    key = formats.format_named(format).history_key
    junk: SearchStrategy[Any] = st.sampled_from(
        [None, 5, "text", [], {}, {"role": "user"}, {"role": 5, "content": 7}, {"parts": "x"}]
    )

    def damage_request(request: Any, order: list[int], drops: list[int], extra: list[Any]) -> Any:
        items = request[key]
        items_left = [item for number, item in enumerate(items) if number not in drops]
        for position, value in zip(order, extra, strict=False):
            items_left.insert(position % (len(items_left) + 1), value)
        request[key] = (
            [items_left[number % len(items_left)] for number in order]
            if items_left and len(order) % 3 == 0
            else items_left
        )
        return request

    numbers = st.lists(st.integers(0, 30), max_size=9)
    return st.builds(damage_request, histories(format, 8), numbers, numbers, st.lists(junk, max_size=3))
