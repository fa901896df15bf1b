"""Models that sign thinking: whatever is looked back at, no request is sent that such a model would refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem.billing.revision_budget import CachePricing
from ibidem.store import MemoryStore
from ibidem.testing.signing import has_valid_thinking, signature_of
from tests.support.evict import NO_CLOCKS

SLOW = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
ECONOMIES = {
    "without a cache": CachePricing(read=1.0, write=1.0),
    "for five minutes": CachePricing(),
    "cheap to read": CachePricing(read=0.025),
}
HARDER: dict[str, Any] = {"mask": 2, "arguments": 80, "edit_arguments": (0, 0)}


def text(lines: int, seed: int = 0) -> str:
    return "\n".join(f"value_{n} = compute({n * 31 + seed}, 'name {n * 17 % 97}')" for n in range(lines))


class Step(NamedTuple):
    """An answer of the model, what comes of it, and the seconds before the next request."""

    thinks: int = 0
    """Characters of each block; 0 for none."""
    call: str = ""
    """The tool that it calls, and the file; empty if it has nothing more to do, and the user speaks."""
    output: str = "done"
    idle: float = 3.0
    alone: bool = False
    """It thinks and says nothing."""


class Talk:
    """A client that says all again at every request, and a model that signs what it thinks."""

    def __init__(self, economy: CachePricing, **fields: Any) -> None:
        self.store = MemoryStore()
        looking = ibidem.Evict(**{"economy": economy, "mask": 1, **NO_CLOCKS, **fields})
        self.session = ibidem.Session(strategies=[looking], format="anthropic", store=self.store)
        self.body: dict[str, Any] = {"model": "claude-test", "messages": [{"role": "user", "content": "go"}]}
        self.loop: list[Any] = []
        """Thinking since the user spoke."""
        self.result: Any = None

    def send(self, idle: float) -> dict[str, Any]:
        self.result = self.session.compact(self.body, idle=idle)
        assert not self.result.stats.failures
        assert not ibidem.validate(self.result.request)
        sent: dict[str, Any] = self.result.request
        blocks = [block for message in sent["messages"] for block in _thinking(message)]
        assert blocks[len(blocks) - len(self.loop) :] == self.loop, "the running loop lost some"
        assert ibidem.expand(sent, store=self.store) == self.body
        return sent

    def hear(self, sent: dict[str, Any], step: Step) -> None:
        content: list[dict[str, Any]] = []
        messages = self.body["messages"]
        if step.thinks:
            thought = f"{len(messages)}: {'hm ' * step.thinks}"[: step.thinks]
            content.append({"type": "thinking", "thinking": thought, "signature": signature_of(sent)})
            self.loop += content
        if step.call:
            tool, path = step.call.split()
            edit = {"old_string": text(9), "new_string": "x"} if tool == "Edit" else {}
            name = f"c{len(messages)}"
            content.append({"type": "tool_use", "id": name, "name": tool, "input": {"file_path": path, **edit}})
            result = {"type": "tool_result", "tool_use_id": name, "content": step.output}
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
            return
        if not (step.alone and content):
            content.append({"type": "text", "text": "So."})
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "And now?"}]
        self.loop = []


def _thinking(message: dict[str, Any]) -> list[Any]:
    content = message["content"]
    return [block for block in content if block["type"] == "thinking"] if isinstance(content, list) else []


STEPS = st.builds(
    Step,
    thinks=st.sampled_from([0, 5, 400, 2000]),
    call=st.sampled_from(["", "Read a.py", "Read a.py", "Read b.py", "Edit a.py", "Bash x"]),
    output=st.sampled_from(["done", text(12), text(60), text(60).replace("31", "32"), text(200, 5)]),
    idle=st.sampled_from([3.0, 3.0, 400.0, 5000.0]),
    alone=st.sampled_from([False, False, False, True]),
)


@pytest.mark.parametrize("economy", ECONOMIES)
@pytest.mark.parametrize("harder", [False, True], ids=["recoverable", "all that may go"])
@given(steps=st.lists(STEPS, max_size=14))
@SLOW
def test_no_request_is_one_that_would_be_refused(economy: str, harder: bool, steps: list[Step]) -> None:
    talk = Talk(replace(ECONOMIES[economy], preserved_thinking=True), **(HARDER if harder else {"mask": 3}))
    for step in [*steps, Step()]:
        sent = talk.send(step.idle)
        assert has_valid_thinking(sent)
        talk.hear(sent, step)


@pytest.mark.parametrize("economy", ECONOMIES)
@given(steps=st.lists(STEPS, max_size=14))
@SLOW
def test_where_nothing_is_signed_against_the_rest_the_running_loop_keeps_all(economy: str, steps: list[Step]) -> None:
    talk = Talk(ECONOMIES[economy], **HARDER)
    for step in [*steps, Step()]:
        talk.hear(talk.send(step.idle), step)


TWO_LOOPS = [
    *(Step(400, "Read a.py", text(60)), Step(400, "Edit a.py"), Step(400)),
    *(Step(400, "Read b.py", text(60, 7)), Step(400, "Edit b.py", idle=999.0), Step(400, "Bash x", idle=999.0)),
]


def run(steps: list[Step], preserved: bool = True, **fields: Any) -> tuple[Talk, list[list[str]]]:
    """The conversation, and what each revision did. Only what is free is done."""
    talk, done = Talk(CachePricing(write=99.0, preserved_thinking=preserved), **fields), []
    points = 0
    for step in [*steps, Step()]:
        sent = talk.send(step.idle)
        if preserved:
            assert has_valid_thinking(sent)
        if len(talk.result.plan.points) > points:
            points = len(talk.result.plan.points)
            done.append([f"{edit.strategy} {edit.message}" for edit in talk.result.plan if edit.strategy != "spans"])
        talk.hear(sent, step)
    return talk, done


def test_when_the_user_has_spoken_all_thinking_goes_with_what_is_stale() -> None:
    steps = [step._replace(idle=3.0) for step in TWO_LOOPS]
    steps[3] = steps[3]._replace(idle=999.0)  # the first request after the user spoke again
    _, done = run(steps)
    assert done == [["thinking 1", "mask 2", "thinking 3", "stale_arguments 3", "thinking 5"]]


def test_within_a_loop_that_thinks_only_thinking_of_earlier_turns_goes() -> None:
    """What stands before the thinking of the loop must stay; once the user speaks it may go."""
    _, done = run(TWO_LOOPS)
    assert done == [["thinking 1", "thinking 3", "thinking 5"]]
    _, done = run([*TWO_LOOPS, Step(400), Step(400, "Bash y", idle=999.0)])
    assert len(done) == 2
    assert {"mask 2", "mask 8", "stale_arguments 3", "stale_arguments 9", "thinking 13"} <= set(done[1])


def test_in_a_loop_that_does_not_think_everything_may_go() -> None:
    steps = [step._replace(thinks=0) if at > 2 else step for at, step in enumerate(TWO_LOOPS)]
    _, done = run(steps)
    assert {"thinking 1", "mask 2", "mask 8"} <= set(done[-1])


def test_thinking_that_cannot_go_holds_everything_before_it() -> None:
    """A message of nothing else keeps it, and so does every later one: there may be no gap."""
    steps = [*TWO_LOOPS[:2], Step(400, alone=True), *TWO_LOOPS[3:5], Step(400), Step(idle=999.0)]
    _, done = run(steps)
    assert done == [["thinking 1", "thinking 3"]]


def test_a_setting_that_keeps_thinking_holds_everything_before_it() -> None:
    steps = [*TWO_LOOPS[:3], Step(idle=999.0), Step(idle=999.0)]
    assert run(steps, thinking=False)[1] == []


def test_the_model_of_a_provider_notices_what_it_should() -> None:
    """The same conversation, looked at as if nothing were signed against the rest."""
    talk, refused = Talk(CachePricing()), 0
    for step in [*TWO_LOOPS, Step()]:
        sent = talk.send(step.idle)
        refused += not has_valid_thinking(sent)
        talk.hear(sent, step)
    assert refused
    gap = json.loads(json.dumps(talk.body))
    del gap["messages"][3]["content"][0]
    assert not has_valid_thinking(gap)


def test_a_provider_that_drops_what_does_not_fit_need_not_be_waited_for() -> None:
    body = {"model": "claude-fable-5-1", "messages": []}
    asks = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    other = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}}
    talk, _ = run([*TWO_LOOPS[:2], Step(400, "Bash x")])
    body["messages"] = talk.body["messages"][:-2]
    changed = {}
    for name, head in {"asks": asks, "other": other, "silent": {}}.items():
        session = ibidem.Session("recoverable", format="anthropic", store=MemoryStore())
        found = session.compact({**body, **head}, idle=9999.0)
        changed[name] = {edit.strategy for edit in found.plan} - {"thinking", "spans"}
    assert changed == {"asks": {"stale_arguments"}, "other": set(), "silent": set()}


def test_a_session_whose_model_changes_to_one_that_signs_decides_by_that() -> None:
    """What was begun for another model would change what stands before thinking."""
    talk = Talk(CachePricing())
    talk.session = ibidem.Session("recoverable", format="anthropic", store=talk.store)
    steps = [step._replace(idle=999.0) for step in TWO_LOOPS]
    for number, step in enumerate([*(each._replace(thinks=0) for each in steps[:3]), *steps, Step()]):
        talk.body["model"] = "claude-opus-4-6" if number < 3 else "claude-opus-5-1"
        sent = talk.send(step.idle)
        assert has_valid_thinking(sent)
        talk.hear(sent, step)
