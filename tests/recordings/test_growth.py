"""A log takes the time of the histories it tells, however often its client went back or changed the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ibidem import recordings
from ibidem.recordings.shared_prefixes import PrefixTree, common_prefix_length
from tests.support.timed import best

from . import codex, copilot_cli, gemini_cli, opencode, pi
from .examples import lines

TURNS, TIMES = 150, 4


def pi_turns(turns: int, *thoughts: Any, models: str = "a", stem: int | None = None) -> bytes:
    """Behind the stem every turn hangs below its last answer, if there is one."""
    rows = [pi.HEADER]
    for turn in range(turns):
        parent = 2 * min(turn, turns if stem is None else stem) or None
        asked = {**pi.entry(2 * turn + 1, parent), "message": pi.user("One")}
        answer = pi.answer(*thoughts, "1", model=models[turn % len(models)], usage=pi.usage(3, 0, 0))
        rows += [asked, {**pi.entry(2 * turn + 2, 2 * turn + 1), "message": answer}]
    return lines(*({**row, "timestamp": pi.stamp(1)} for row in rows))


def gemini_rewinds(turns: int) -> bytes:
    def rows() -> Iterator[Any]:
        for turn in range(turns):
            yield {**gemini_cli.user(0, "One"), "id": f"u{turn}"}
            yield {**gemini_cli.answer(1, "1"), "id": f"g{turn}"}
            if turn > turns // 2:
                yield {"$rewindTo": f"u{turn}"}

    return lines(gemini_cli.HEAD, *rows())


def opencode_models(turns: int, *thoughts: Any) -> bytes:
    told = [
        message
        for turn in range(turns)
        for message in (
            opencode.user(turn, "One"),
            opencode.answer(turn, *thoughts, "1", opencode.finish(3, 0, 0), modelID="ab"[turn % 2]),
        )
    ]
    return lines(opencode.export(*told))


def codex_roll_backs(turns: int) -> bytes:
    s = codex.Script()
    back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    rows = [s.meta()]
    for turn in range(turns):
        rows += [s.message("user", "One"), s.message("assistant", "1")]
        rows += [{**rows[-1], **back}] if turn > turns // 2 else []
    return lines(*rows)


def copilot_prompts(turns: int) -> bytes:
    def rows() -> Iterator[Any]:
        for turn in range(turns):
            yield copilot_cli.event(1, "system.message", content=f"You are {turn % 2}.")
            yield copilot_cli.event(1, "user.message", content="One")
            yield copilot_cli.answer(2, "1")

    return lines(copilot_cli.START, *rows())


LOGS: dict[str, Callable[[int], bytes]] = {
    "branches of pi": lambda turns: pi_turns(turns, stem=turns // 2),
    "two models in pi": lambda turns: pi_turns(turns, models="ab"),
    "two models in pi that think": lambda turns: pi_turns(turns, pi.THOUGHT, models="ab"),
    "rewinds of Gemini CLI": gemini_rewinds,
    "two models in OpenCode": opencode_models,
    "two models in OpenCode that think": lambda turns: opencode_models(turns, opencode.STEP, opencode.THOUGHT),
    "turns that Codex took back": codex_roll_backs,
    "two system prompts of Copilot CLI": copilot_prompts,
}


def told(data: bytes) -> int:
    """How much there is to tell: lines, and what every segment's list holds."""
    [session] = recordings.read("some.log", data)
    assert session.length
    assert not session.skipped
    return data.count(b'"1"') + sum(len(segment.history) for segment in session.segments)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOGS)
def test_time_grows_no_faster_than_what_is_told(name: str) -> None:
    """Comparing each history with all before, or telling it again from its start, grows twice as fast and more."""
    small, large = LOGS[name](TURNS), LOGS[name](TURNS * TIMES)
    least, most = best([lambda: told(small), lambda: told(large)], rounds=3)
    assert most / least < 2 * told(large) / told(small)


def test_a_history_begins_like_the_one_it_has_most_in_common_with() -> None:
    one, two, three = ({"role": "user", "content": [{"text": word, "n": 1}]} for word in ("one", "two", "three"))
    known = PrefixTree()
    assert known.longest_prefix([one]) == []
    for history in ([one, two, three], [two], [one, three]):
        known.add_history(history)
    alike = {"content": [{"n": 1, "text": "one"}], "role": "user"}
    found = known.longest_prefix([alike, two, one])
    assert found == [one, two]
    assert found[0] is one, "segments share their entries"
    assert known.longest_prefix([three]) == []
    assert known.longest_prefix([alike, {**two, "content": [{"text": "two", "n": "1"}]}]) == [one]
    assert common_prefix_length([one, two], [alike, two, three]) == 2


def test_what_is_too_deep_to_look_at_is_equal_to_itself() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"in": deep}
    known = PrefixTree()
    known.add_history([deep, {"in": [deep]}])
    assert [len(known.longest_prefix(history)) for history in ([{**deep}, {"in": [deep]}], [{"in": deep}])] == [2, 0]
