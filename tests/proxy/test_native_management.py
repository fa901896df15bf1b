"""Clients that let the provider clear or compact the history: what is rewritten, and what a reference may point at.

The mock provider (`ibidem.testing.Clearing`) knows what its model can see of each request. Results are named by the
letters of their texts: in `abca`, the fourth result repeats the first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any, NamedTuple

import pytest

from ibidem import expand
from ibidem.markers.layout import parse_marked
from ibidem.markers.source_numbers import SourceNumbers
from ibidem.store import MemoryStore
from ibidem.testing import Answer, Calls, Clearing, Seen, Signing, Thinks, read
from ibidem.testing.clearing import PLACEHOLDER
from tests.support.proxied import Talk, dumped, talk, text

ANTHROPIC, RESPONSES = "anthropic", "openai-responses"
KEYS = {ANTHROPIC: "messages", RESPONSES: "input"}
MODELS = {ANTHROPIC: "claude-opus-4-6", RESPONSES: "gpt-5"}

KEEP, TRIGGER = 4, 8
CLEAR = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "tool_uses", "value": TRIGGER},
    "keep": {"type": "tool_uses", "value": KEEP},
}
CLEARS = {"edits": [CLEAR]}
CLEARS_LATE = {"edits": [{"type": "clear_tool_uses_20250919"}]}
COMPACTS_LATE = {"edits": [{"type": "compact_20260112"}]}
COMPACT_TOKENS = 8000
COMPACTS = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": COMPACT_TOKENS}}]}
RESPONSES_COMPACT_LATE = [{"type": "compaction", "compact_threshold": 200_000}]
RESPONSES_COMPACT = [{"type": "compaction", "compact_threshold": COMPACT_TOKENS}]
LARGE = "L"
"""The letter of a text that is larger than this by itself."""

both_profiles = pytest.mark.parametrize("profile", ["lossless", "recoverable"])
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
LATE = [(ANTHROPIC, CLEARS_LATE), (ANTHROPIC, COMPACTS_LATE), (RESPONSES, RESPONSES_COMPACT_LATE)]
managed_late = pytest.mark.parametrize(("format", "management"), LATE, ids=["clears", "compacts", "responses compacts"])
COMPACTING = [(ANTHROPIC, COMPACTS), (RESPONSES, RESPONSES_COMPACT)]
compacting = pytest.mark.parametrize(("format", "management"), COMPACTING, ids=["anthropic", "responses"])


# ── the client ──────────────────────────────────────────────────────────────────────────────────────────────────────


def reads(tools: Sequence[str] = ()) -> Callable[[Seen], Answer]:
    """A model that thinks and reads one file after the other. `tools` are the first tools it uses for that."""
    numbers = count()

    def script(_: Seen) -> Answer:
        number = next(numbers)
        tool = tools[number] if number < len(tools) else "Read"
        return Thinks(f"step {number}", Calls((tool, {"file_path": f"/src/{number}.py"}), says=f"I look, {number}."))

    return script


class Agent:
    """A client that continues with the answers it gets."""

    def __init__(self, results: str, format: str = ANTHROPIC, stream: bool = False, **fields: Any) -> None:
        self.format, self.stream, self.results = format, stream, results
        self.body: dict[str, Any] = {"model": MODELS[format], "stream": stream, **fields}
        if format == ANTHROPIC:
            self.body["max_tokens"] = 99
        self.body[KEYS[format]] = [{"role": "user", "content": "make it work"}]
        self.given = 0
        """Tool results so far."""
        self.requests: list[bytes] = []

    @property
    def history(self) -> list[Any]:
        found: list[Any] = self.body[KEYS[self.format]]
        return found

    def ask(self, found: Talk, times: int = 1) -> None:
        """Send so many requests. Each is accepted, and each but the first has one more result."""
        for _ in range(times):
            self.requests.append(dumped(self.body))
            status, answer = found.send(self.format, self.requests[-1])
            assert status == 200, answer
            content = _PARSERS[self.format](answer, self.stream)
            self.history.extend(self._turn(content))

    def _turn(self, content: list[Any]) -> list[Any]:
        """The messages that an answer adds: itself, and the result of its call."""
        number = self.given
        letter = self.results[number] if number < len(self.results) else f"unlike {number}"
        output = f"{text(random.Random(letter), 800 if letter == LARGE else 30)}\n# seen at {number}"
        self.given += 1
        if self.format == RESPONSES:
            items = [{**item, "id": f"{item['id']}_{number}"} for item in content]
            calls = [item["call_id"] for item in items if item["type"] == "function_call"]
            named = [{**item, "call_id": f"call_{number}"} if "call_id" in item else item for item in items]
            outputs = [{"type": "function_call_output", "call_id": f"call_{number}", "output": output} for _ in calls]
            return [*named, *outputs]
        blocks = [{**block, "id": f"toolu_{number}"} if "id" in block else block for block in content]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": output} for block in blocks if "id" in block
        ]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


def _anthropic_content(answer: bytes, stream: bool) -> list[Any]:
    if not stream:
        found: list[Any] = json.loads(answer)["content"]
        return found
    blocks: dict[int, Any] = {}
    inputs: dict[int, str] = {}
    for event in _events(answer):
        if event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
            for key in ("text", "thinking", "signature", "content"):
                if key in delta:
                    block[key] = (block[key] or "") + delta[key]
    for index, written in inputs.items():
        blocks[index]["input"] = json.loads(written)
    return list(blocks.values())


def _responses_output(answer: bytes, stream: bool) -> list[Any]:
    found: list[Any] = _events(answer)[-1]["response"]["output"] if stream else json.loads(answer)["output"]
    return found


def _events(answer: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: ")]


_PARSERS = {ANTHROPIC: _anthropic_content, RESPONSES: _responses_output}


# ── what the provider got ───────────────────────────────────────────────────────────────────────────────────────────


class Reference(NamedTuple):
    message: int
    """Index of the message that a marker of ours is in."""
    call: str
    """Id of the call whose result the marker points at."""
    text: str
    """That result, as it is sent."""


def references(body: bytes, format: str) -> list[Reference]:
    """Each reference in a request. A marker that points at nothing above it fails the test."""
    sources, known, found = SourceNumbers(), dict[Any, tuple[str, str]](), list[Reference]()
    for message in read(json.loads(body), format).messages:
        for place in sources.number_texts(message):
            layout = parse_marked(place.text, sources.tag) if "[ibidem " in place.text else None
            targets = [marker.source for marker in layout.markers.values() if marker.source] if layout else []
            found += [Reference(message.index, *known[target]) for target in targets]
            known[place.source] = (place.call_id, place.text)
    return found


def results(history: list[Any], format: str) -> dict[str, str]:
    """Texts of tool results by the ids of their calls."""
    sources = SourceNumbers()
    places = (
        place for message in read({KEYS[format]: history}, format).messages for place in sources.number_texts(message)
    )
    return {place.call_id: place.text for place in places if place.call_id}


def unseen(body: bytes, visible: list[Any], format: str, first: int) -> list[Reference]:
    """References in messages from `first` on whose target the model cannot see."""
    seen = results(visible, format)
    return [ref for ref in references(body, format) if ref.message >= first and seen.get(ref.call) != ref.text]


def rewritten(body: bytes, format: str = ANTHROPIC) -> str:
    """One character for each tool result: `+` for a reference, `.` for a full text."""
    found = results(json.loads(body)[KEYS[format]], format).values()
    return "".join("+" if "[ibidem " in each else "." for each in found)


def raw_history(body: bytes, format: str) -> bytes:
    """The messages of a request, byte for byte, without the bracket that ends them."""
    start = body.index(f'"{KEYS[format]}":['.encode()) + len(KEYS[format]) + 3
    whole = body.decode()
    offset = len(body[:start].decode())
    _, end = json.JSONDecoder().raw_decode(whole, offset)
    return whole[offset : end - 1].encode()


def bodies(found: Talk) -> list[bytes]:
    return [seen.body for seen in found.upstream.seen]


def check_sent(agent: Agent, sent: list[bytes]) -> None:
    """Each request went once, expands to the client's bytes, and continues the one before byte for byte."""
    assert len(sent) == len(agent.requests)
    assert [expand(body) for body in sent] == agent.requests
    histories = [raw_history(body, agent.format) for body in sent]
    for before, after in pairwise(histories):
        assert after.startswith(before), "a message that was sent before has changed"


def check_visible(agent: Agent, sent: list[bytes], views: list[list[Any]], first: int) -> None:
    """In request `first` and all later ones, the model can see what messages refer to that are new from `first` on."""
    assert len(views) == len(sent)
    start = len(json.loads(sent[first - 1])[KEYS[agent.format]])
    for number in range(first, len(sent)):
        assert unseen(sent[number], views[number], agent.format, start) == [], f"request {number}"


# ── nothing is cleared yet ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled(4)
@both_ways
@both_profiles
@managed_late
def test_repeats_are_references_until_something_is_cleared(
    format: str, management: Any, profile: str, stream: bool
) -> None:
    histories = []
    for fields in ({}, {"context_management": management}):
        agent = Agent("abcabc", format, stream, **fields)
        with talk(_provider(format, Clearing(reads())), profile=profile) as found:
            agent.ask(found, 7)
            sent = bodies(found)
        check_sent(agent, sent)
        assert rewritten(sent[-1], format) == "...+++"
        histories.append(raw_history(sent[-1], format))
    assert histories[0] == histories[1], "the setting changes nothing in what is sent"


@pytest.mark.sampled(4)
@both_ways
@both_profiles
@managed_late
def test_client_may_ask_for_management_in_mid_conversation(
    format: str, management: Any, profile: str, stream: bool
) -> None:
    script = _provider(format, Clearing(reads()))
    agent = Agent("abcabcab", format, stream)
    with talk(script, profile=profile) as found:
        agent.ask(found, 5)
        agent.body["context_management"] = management
        agent.ask(found, 4)
        sent = bodies(found)
    check_sent(agent, sent)
    assert rewritten(sent[4], format) == "...+"
    assert rewritten(sent[-1], format) == "...+++++"
    assert not isinstance(script, Signing) or script.refused == 0


def _provider(format: str, clearing: Clearing) -> Callable[[Seen], Answer]:
    """Anthropic's also checks that thinking is behind what it was signed against."""
    return Signing(clearing) if format == ANTHROPIC else clearing


# ── after clearing ──────────────────────────────────────────────────────────────────────────────────────────────────


@both_ways
@both_profiles
def test_cleared_results_are_sent_again_in_full(profile: str, stream: bool) -> None:
    clearing = Clearing(reads())
    script = Signing(clearing)
    agent = Agent("abacdefg" + "aagbd", stream=stream, context_management=CLEARS)
    with talk(script, profile=profile) as found:
        agent.ask(found, 14)
        sent = bodies(found)
    assert results(clearing.seen_by_model[TRIGGER], ANTHROPIC)["toolu_0"] == PLACEHOLDER
    assert rewritten(sent[-1]) == "..+....." + ".....", "results that are visible now may be cleared later"
    check_sent(agent, sent)
    check_visible(agent, sent, clearing.seen_by_model, first=TRIGGER + 1)
    assert script.refused == 0


@both_ways
@both_profiles
def test_results_that_were_kept_are_sent_in_full_too(profile: str, stream: bool) -> None:
    """The provider keeps the newest results of each request. A target is older than what refers to it, so the provider
    would clear it first."""
    clearing = Clearing(reads())
    agent = Agent("abcdefgh" + "hgh", stream=stream, context_management=CLEARS)
    with talk(Signing(clearing), profile=profile) as found:
        agent.ask(found, 12)
        sent = bodies(found)
    assert rewritten(sent[-1]) == "........" + "..."
    check_sent(agent, sent)
    check_visible(agent, sent, clearing.seen_by_model, first=TRIGGER + 1)


@both_profiles
def test_client_that_asks_for_clearing_late_keeps_the_references_that_were_sent(profile: str) -> None:
    """The history has references when the first results are cleared. They stay as they were sent."""
    clearing = Clearing(reads())
    script = Signing(clearing)
    agent = Agent("abcdabcd" + "efghij" + "ajd")
    with talk(script, profile=profile) as found:
        agent.ask(found, 9)
        agent.body["context_management"] = CLEARS
        agent.ask(found, 9)
        sent = bodies(found)
    assert rewritten(sent[8]) == "....++++"
    assert rewritten(sent[-1]) == "....++++" + "......" + "..."
    check_sent(agent, sent)
    check_visible(agent, sent, clearing.seen_by_model, first=10)
    assert script.refused == 0


# ── after compaction ────────────────────────────────────────────────────────────────────────────────────────────────

BEFORE, AFTER = f"abcab{LARGE}", "xyxabxz"
"""Results around a compaction: the large one goes beyond the threshold, so the next call stands after the block."""


def compaction_at(history: list[Any]) -> int:
    """Index of the message that has the last compaction block, or is one."""
    for place in range(len(history) - 1, -1, -1):
        content = history[place].get("content")
        blocks = [history[place], *(content if isinstance(content, list) else ())]
        if any(block.get("type") == "compaction" for block in blocks):
            return place
    raise AssertionError("nothing was compacted")


@pytest.mark.sampled(4)
@both_ways
@both_profiles
@compacting
@pytest.mark.parametrize("drops", [False, True], ids=["keeps all", "drops what was before"])
def test_compaction_is_a_new_beginning(format: str, management: Any, profile: str, stream: bool, drops: bool) -> None:
    clearing = Clearing(reads())
    script = _provider(format, clearing)
    agent = Agent(BEFORE + AFTER, format, stream, context_management=management)
    with talk(script, profile=profile, strict=not drops) as found:
        agent.ask(found, len(BEFORE) + 1)
        place = compaction_at(agent.history)
        if drops:
            del agent.history[:place]
            place = 0
        block = agent.history[place] if format == RESPONSES else agent.history[place]["content"][0]
        agent.ask(found, len(AFTER))
        sent = bodies(found)
    assert len(sent) == len(agent.requests) == len(clearing.seen_by_model)
    assert [expand(body) for body in sent] == agent.requests
    assert rewritten(sent[len(BEFORE)], format) == "...++."
    assert rewritten(sent[-1], format)[-len(AFTER) :] == "..+..+.", "a and b were before the compaction"
    after = sent[len(BEFORE) + 1 :]
    for body, visible in zip(after, clearing.seen_by_model[len(BEFORE) + 1 :], strict=True):
        assert dumped(block) in body, "the block is sent verbatim"
        assert unseen(body, visible, format, first=place) == []
    histories = [raw_history(body, format) for body in (after if drops else sent)]
    assert all(new.startswith(old) for old, new in pairwise(histories))
    assert not isinstance(script, Signing) or script.refused == 0


@both_profiles
def test_clearing_after_a_compaction(profile: str) -> None:
    clearing = Clearing(reads())
    script = Signing(clearing)
    management = {"edits": [*CLEARS["edits"], *COMPACTS["edits"]]}
    agent = Agent(BEFORE + "pqrstuvw" + "pwp", context_management=management)
    with talk(script, profile=profile) as found:
        agent.ask(found, len(BEFORE) + 12)
        sent = bodies(found)
    assert compaction_at(agent.history) == 2 * len(BEFORE) + 1
    check_sent(agent, sent)
    check_visible(agent, sent, clearing.seen_by_model, first=len(BEFORE) + TRIGGER + 1)
    assert rewritten(sent[-1]) == "...++." + "........" + "..."
    assert script.refused == 0


# ── another proxy on the same store ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled(4)
@both_ways
@both_profiles
@pytest.mark.parametrize("requests", [TRIGGER + 1, TRIGGER + 2, TRIGGER + 3], ids="after {} requests".format)
def test_proxy_that_is_started_again_knows_what_was_cleared(profile: str, stream: bool, requests: int) -> None:
    clearing, store = Clearing(reads()), MemoryStore()
    script = Signing(clearing)
    agent = Agent("abacdefg" + "aagbd", stream=stream, context_management=CLEARS)
    with talk(script, profile=profile, store=store) as found:
        agent.ask(found, requests)
        found.settled(requests)
        sent = bodies(found)
    with talk(script, profile=profile, store=store) as found:
        assert found.send(ANTHROPIC, agent.requests[-1])[0] == 200
        agent.ask(found, 14 - requests)
        again, *rest = bodies(found)
    assert again == sent[-1], "the same request is sent with the same bytes"
    assert rewritten(rest[-1]) == "..+....." + "....."
    check_sent(agent, [*sent, *rest])
    assert script.refused == 0


@pytest.mark.sampled(4)
@both_profiles
@compacting
@pytest.mark.parametrize("requests", [1, 2, 5], ids="{} after the compaction".format)
def test_proxy_that_is_started_again_knows_of_a_compaction(
    format: str, management: Any, profile: str, requests: int
) -> None:
    store, script = MemoryStore(), _provider(format, Clearing(reads()))
    agent = Agent(BEFORE + AFTER, format, context_management=management)
    with talk(script, profile=profile, store=store) as found:
        agent.ask(found, len(BEFORE) + requests)
        found.settled(len(BEFORE) + requests)
        sent = bodies(found)
    with talk(script, profile=profile, store=store) as found:
        assert found.send(format, agent.requests[-1])[0] == 200
        agent.ask(found, len(AFTER) + 1 - requests)
        again, *rest = bodies(found)
    assert again == sent[-1]
    assert rewritten(rest[-1], format) == "...++." + "..+..+."
    check_sent(agent, [*sent, *rest])
