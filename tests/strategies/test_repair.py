"""Calls and results find each other again, in every format, and nothing is said that was not said.

Histories are scripts: `q` and other words are the user's, `>a,b` calls a and b, `<a=out` is the result of a, `<a=out|x`
the same followed by the user's words x, and `:x` is said by the assistant. What comes out is read back as a story in
which every call stands with its answers, so that one row serves all formats.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import RepairPairing
from ibidem.model import Conversation, Kind, Text

GONE = "[tool result unavailable: elided by context management]"
HISTORY = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input", "gemini": "contents"}
VARIANTS = [*HISTORY, "gemini without ids"]
PAIRING = {"calls-answered", "results-answer-calls"}

# --- scripts to wire --------------------------------------------------------------------------------


def _results(line: str) -> tuple[list[tuple[str, str]], str]:
    pairs, _, words = line[1:].partition("|")
    return [(id, text) for id, _, text in (pair.partition("=") for pair in pairs.split(","))], words


def _anthropic(line: str) -> list[Any]:
    if line[0] == ">":
        calls = [{"type": "tool_use", "id": c, "name": "read", "input": {"n": c}} for c in line[1:].split(",")]
        return [{"role": "assistant", "content": calls}]
    if line[0] == "<":
        results, words = _results(line)
        blocks: list[Any] = [{"type": "tool_result", "tool_use_id": c, "content": text} for c, text in results]
        return [{"role": "user", "content": blocks + [{"type": "text", "text": words}] * bool(words)}]
    role, text = ("assistant", line[1:]) if line[0] == ":" else ("user", line)
    return [{"role": role, "content": text}]


def _chat(line: str) -> list[Any]:
    if line[0] == ">":
        functions = [(c, {"name": "read", "arguments": json.dumps({"n": c})}) for c in line[1:].split(",")]
        calls = [{"id": c, "type": "function", "function": function} for c, function in functions]
        return [{"role": "assistant", "content": None, "tool_calls": calls}]
    if line[0] == "<":
        results, words = _results(line)
        tools: list[Any] = [{"role": "tool", "tool_call_id": c, "content": text} for c, text in results]
        return tools + [{"role": "user", "content": words}] * bool(words)
    return _anthropic(line)


def _responses(line: str) -> list[Any]:
    if line[0] == ">":
        names = [(c, {"name": "read", "arguments": json.dumps({"n": c})}) for c in line[1:].split(",")]
        return [{"type": "function_call", "call_id": c, **function} for c, function in names]
    if line[0] == "<":
        results, words = _results(line)
        outputs: list[Any] = [{"type": "function_call_output", "call_id": c, "output": text} for c, text in results]
        return outputs + [{"role": "user", "content": words}] * bool(words)
    return _anthropic(line)


def _gemini(line: str, ids: bool = True) -> list[Any]:
    if line[0] == ">":
        calls = [{"name": "read", "args": {"n": c}} | ({"id": c} if ids else {}) for c in line[1:].split(",")]
        return [{"role": "model", "parts": [{"functionCall": call} for call in calls]}]
    if line[0] == "<":
        results, words = _results(line)
        made = [{"name": "read", "response": {"output": t}} | ({"id": c} if ids else {}) for c, t in results]
        parts: list[Any] = [{"functionResponse": response} for response in made]
        return [{"role": "user", "parts": parts + [{"text": words}] * bool(words)}]
    role, text = ("model", line[1:]) if line[0] == ":" else ("user", line)
    return [{"role": role, "parts": [{"text": text}]}]


WRITERS: dict[str, Callable[[str], list[Any]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "gemini without ids": lambda line: _gemini(line, ids=False),
}


def wire(variant: str, script: list[str]) -> list[Any]:
    return [message for line in script for message in WRITERS[variant](line)]


def named(variant: str) -> str:
    return variant.split()[0]


# --- and back ---------------------------------------------------------------------------------------


class Reads:
    """Changes nothing and remembers what it saw."""

    name: ClassVar[str] = "reads"
    touches: ClassVar[frozenset[Kind]] = frozenset({"messages"})
    conv: Conversation

    def plan(self, conv: Conversation) -> list[ibidem.Edit]:
        self.conv = conv
        return []


def story(request: Any, variant: str) -> list[str]:
    """Words and calls in order; a call stands with the results that have its id, up to its next use."""
    reads = Reads()
    ibidem.compact(request, strategies=[reads], format=named(variant))
    told: list[str] = []
    open_calls: dict[str, int] = {}
    for message in reads.conv.messages:
        for call in message.calls:
            label = (call.input if isinstance(call.input, dict) else json.loads(call.input))["n"]
            open_calls[call.id] = len(told)
            told.append(f"{label}")
        for result in message.results:
            text = "".join(segment.text for segment in result.segments if isinstance(segment, Text))
            if result.call_id in open_calls:
                told[open_calls[result.call_id]] += f"={text}"
            else:
                told.append(f"?={text}")
        told.extend((":" if message.role == "assistant" else "") + p.text for p in message.parts if isinstance(p, Text))
    return told


def read(told: str) -> list[str]:
    """A story in short, where `-` is what stands for a result that is gone."""
    return [part.replace("=-", f"={GONE}") for part in told.split()]


def repair(request: Any, variant: str, **settings: Any) -> ibidem.Compacted:
    return ibidem.compact(request, strategies=[RepairPairing(**settings)], format=named(variant))


def broken_rules(request: Any, variant: str) -> set[str]:
    return {violation.rule for violation in ibidem.validate(request, format=named(variant))}


def pairing_violations(request: Any, variant: str) -> list[str]:
    return [str(v) for v in ibidem.validate(request, format=named(variant)) if v.rule in PAIRING]


# --- by place, in all formats -----------------------------------------------------------------------

MENDED = {
    "an unanswered call followed by words": ("q >a go-on", "q a=- go-on"),
    "an unanswered call followed by an answer": ("q >a :so x", "q a=- :so x"),
    "two calls, the second unanswered": ("q >a,b <a=A :so x", "q a=A b=- :so x"),
    "two calls, both unanswered": ("q >a,b x", "q a=- b=- x"),
    "two rounds of calls in a row": ("q >a >b <b=B :so x", "q a=- b=B :so x"),
    "an orphan after words": ("q <z=Z :so x", "q :so x"),
    "an orphan after an answer": ("q :so <z=Z|and :so x", "q :so and :so x"),
    "an orphan at the end, with words": ("q :so <z=Z|and", "q :so and"),
    "a result twice": ("q >a <a=A,a=B :so x", "q a=A :so x"),
    "a result twice, a turn apart": ("q >a <a=A :so <a=B|and :so x", "q a=A :so and :so x"),
    "a result and an orphan beside words": ("q >a <a=A,z=Z|and :so x", "q a=A and :so x"),
    "half answered beside words": ("q >a,b <a=A|and :so x", "q a=A b=- and :so x"),
    "a call after all was answered": ("q >a <a=A >b x", "q a=A b=- x"),
}

BY_ID = {
    "two calls, the first unanswered": ("q >a,b <b=B :so x", "q a=- b=B :so x"),
    "an orphan at the end of a loop": ("q >a <a=A,z=Z :so x", "q a=A :so x"),
    "an orphan where the result should be": ("q >a <z=Z :so x", "q a=- :so x"),
    "an orphan and words where the result should be": ("q >a <z=Z|and :so x", "q a=- and :so x"),
    "a result of before where the result should be": ("q >a <a=A >b <a=B :so x", "q a=A b=- :so x"),
    "an id used in two rounds": ("q >a <a=A :so y >a <a=B :so x", "q a=A :so y a=B :so x"),
    "an id used in two rounds, unanswered in the first": ("q >a y >a <a=B :so x", "q a=- y a=B :so x"),
    "an id used in two rounds, unanswered in the second": ("q >a <a=A :so y >a x", "q a=A :so y a=- x"),
}
"""Where the script names results that a history without ids cannot name."""

MOVED = {
    "a result before its call": ("q <a=A >a x", "q a=A x"),
    "a result before its call, far away": ("q <a=A :so y >a :so x", "q :so y a=A :so x"),
    "a result after the user's words": ("q >a y <a=A :so x", "q a=A y :so x"),
    "a result after an answer": ("q >a :so <a=A|and :so x", "q a=A :so and :so x"),
    "results in another order, each in its own message": ("q >a,b <b=B <a=A :so x", "q a=A b=B :so x"),
    "results of two rounds behind both": ("q >a >b <a=A,b=B :so x", "q a=A b=B :so x"),
    "a late result where another came in time": ("q >a,b <b=B|y :so <a=A|z :so x", "q a=A b=B y :so z :so x"),
}
"""A result that stands in the wrong place keeps its words."""

WITH_IDS = [variant for variant in VARIANTS if variant != "gemini without ids"]
ROWS = [
    pytest.param(variant, script.split(), read(told), id=f"{variant}: {sentence}")
    for table, variants in ((MENDED, VARIANTS), (BY_ID, WITH_IDS), (MOVED, WITH_IDS))
    for variant in variants
    for sentence, (script, told) in table.items()
]


@pytest.mark.parametrize(("variant", "script", "expected"), ROWS)
def test_a_broken_history_is_mended(variant: str, script: list[str], expected: list[str]) -> None:
    request = wire(variant, script)
    before = deepcopy(request)
    result = repair(request, variant)
    assert request == before
    assert result.reason == ""
    assert story(result.request, variant) == expected
    assert broken_rules(result.request, variant) <= broken_rules(request, variant) - PAIRING
    if pairing_violations(request, variant) == []:
        assert result.request is request


@pytest.mark.parametrize(("variant", "script", "expected"), ROWS)
def test_mending_again_changes_nothing(variant: str, script: list[str], expected: list[str]) -> None:
    mended = repair(wire(variant, script), variant).request
    again = repair(mended, variant)
    assert again.request is mended
    assert not again.plan


@pytest.mark.parametrize(("variant", "script", "expected"), ROWS)
def test_the_outcome_tells_of_the_request_as_it_is_sent(variant: str, script: list[str], expected: list[str]) -> None:
    """`violations` of the outcome and `validate` of what was sent are the same."""
    result = repair(wire(variant, script), variant)
    rules = [violation.rule for violation in result.violations]
    assert rules == [violation.rule for violation in ibidem.validate(result.request, format=named(variant))]


@pytest.mark.parametrize(("variant", "script", "expected"), ROWS)
def test_a_body_as_text_is_mended_like_one_that_was_read(variant: str, script: list[str], expected: list[str]) -> None:
    """Twice, so that what is put in is the same every time."""
    body = {"model": "m", HISTORY[named(variant)]: wire(variant, script)}
    text = json.dumps(body, indent=1)
    mended = repair(text, variant).request
    assert json.loads(mended) == repair(body, variant).request
    assert repair(text, variant).request == mended


@pytest.mark.parametrize(
    ("script", "told"),
    [
        pytest.param("q >a y <a=A :so x", "q a=A y :so x", id="a response after the user's words"),
        pytest.param("q <a=A >a x", "q a=A x", id="a response before its call"),
        pytest.param("q >a,b <a=A <b=B :so x", "q a=A b=B :so x", id="responses in two contents"),
    ],
)
def test_a_response_without_an_id_is_moved_and_not_lost(script: str, told: str) -> None:
    variant = "gemini without ids"
    mended = repair(wire(variant, script.split()), variant).request
    assert pairing_violations(mended, variant) == []
    assert story(mended, variant) == read(told)


@pytest.mark.parametrize(
    ("call_ids", "response_ids"),
    [
        pytest.param(True, False, id="LangChain sends responses without ids"),
        pytest.param(False, True, id="Gemini CLI sends calls without ids"),
    ],
)
@pytest.mark.parametrize("calls", ["a", "a,b"], ids=["one call", "two calls"])
@pytest.mark.parametrize("by_place", [True, False], ids=["by place", "by id"])
def test_calls_and_responses_are_paired_by_name_and_order_if_one_side_has_no_ids(
    by_place: bool, calls: str, call_ids: bool, response_ids: bool
) -> None:
    responses = ",".join(f"{call}=R" for call in calls.split(","))
    request = [*_gemini("q"), *_gemini(f">{calls}", ids=call_ids), *_gemini(f"<{responses}", ids=response_ids)]
    result = repair(request, "gemini", by_place=by_place)
    assert (result.request is request, result.reason) == (True, "")


@pytest.mark.parametrize("variant", WITH_IDS)
@pytest.mark.parametrize(
    ("script", "hits"),
    [
        pytest.param("q >a go-on", 1, id="a result put in"),
        pytest.param("q >a,b go-on", 2, id="two results put in"),
        pytest.param("q <z=Z :so x", 1, id="an orphan taken away"),
        pytest.param("q :so <z=Z|and :so x", 1, id="an orphan taken away beside words"),
        pytest.param("q >a <a=A,a=B :so x", 1, id="a second result taken away"),
        pytest.param("q <a=A >a x", 1, id="a result moved"),
        pytest.param("q <a=A :so y >a :so x", 1, id="a result moved from between two answers"),
        pytest.param("q >a :so <z=Z|and :so x", 2, id="one put in and one taken away"),
    ],
)
def test_a_repair_is_counted_once(variant: str, script: str, hits: int) -> None:
    result = repair(wire(variant, script.split()), variant)
    assert result.stats.strategies["pairing"].hits == hits


def test_what_comes_after_the_repair_cannot_hit_the_wrong_block() -> None:
    """The repair puts a block in front, so every other block of that message has another place than in the history."""
    long = "".join(f"{n}: a line that is read twice\n" for n in range(20))
    other = long.upper()
    request = wire("anthropic", ["q", ">a", f"<a={long}", ">b,c,d", f"<c={long},d={other}", ":so", "x"])
    result = ibidem.compact(request, strategies=[RepairPairing(), ibidem.Dedup()], format="anthropic")
    blocks = {block["tool_use_id"]: block["content"] for block in result.request[4]["content"]}
    assert blocks["b"] == GONE
    assert blocks["d"] == other
    assert (blocks["c"] == long) == (result.stats.dedup_hits == 0)


# --- well-formed and running ------------------------------------------------------------------------

WELL_FORMED = {
    "words only": "q :so x",
    "one call": "q >a <a=A",
    "parallel calls": "q >a,b <a=A,b=B :so x",
    "parallel calls and words": "q >a,b <a=A,b=B|and :so x",
    "rounds": "q >a <a=A >b,c <b=B,c=C >d <d=D :so x",
}


RUNNING = {
    "a call still running": "q >a",
    "calls still running": "q >a <a=A >b,c",
}
"""Left alone by place; by id alone they are answered."""


@pytest.mark.parametrize(
    ("by_place", "script"),
    [
        *(
            pytest.param(True, script, id=f"by place: {sentence}")
            for sentence, script in (WELL_FORMED | RUNNING).items()
        ),
        *(pytest.param(False, script, id=f"by id: {sentence}") for sentence, script in WELL_FORMED.items()),
    ],
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_well_formed_history_comes_back_as_the_same_object(variant: str, script: str, by_place: bool) -> None:
    request = wire(variant, script.split())
    for given_ in (request, json.dumps(request), {HISTORY[named(variant)]: request}):
        result = repair(given_, variant, by_place=by_place)
        assert result.request is given_
        assert not result.plan
        assert result.reason == ""


def test_results_in_another_order_are_well_formed() -> None:
    for variant in WITH_IDS:
        request = wire(variant, ["q", ">a,b", "<b=B,a=A", ":so", "x"])
        assert repair(request, variant).request is request


@pytest.mark.parametrize("variant", WITH_IDS)
def test_only_the_running_calls_are_left_alone(variant: str) -> None:
    mended = repair(wire(variant, ["q", ">a", "y", ">b"]), variant).request
    assert story(mended, variant) == ["q", f"a={GONE}", "y", "b"]


@pytest.mark.parametrize("variant", WITH_IDS)
def test_the_result_of_a_last_call_that_stands_before_it_is_moved(variant: str) -> None:
    """The call only looks as if it were running: its result is here."""
    mended = repair(wire(variant, ["q", "<a=A", ">a"]), variant).request
    assert story(mended, variant) == ["q", "a=A"]


@pytest.mark.parametrize("variant", WITH_IDS)
def test_parallel_calls_that_share_an_id_keep_their_results(variant: str) -> None:
    """Some gateways number calls by tool. No repair can part them, and none may take words away at every pass."""
    request = wire(variant, ["q", ">a,a", "<a=A,a=B", ":so", "x"])
    mended = repair(request, variant).request
    again = repair(mended, variant).request
    assert again == mended
    assert [json.dumps(again).count(f'"{text}"') for text in "AB"] == [1, 1]


def test_a_result_is_not_lost_where_no_message_can_take_it_in() -> None:
    content = {"role": "user", "content": None}
    request = [*_anthropic("q"), *_anthropic(">a"), content, *_anthropic("<a=A"), *_anthropic(":so"), *_anthropic("x")]
    mended = repair(request, "anthropic").request
    assert json.dumps(mended).count('"A"') == 1


# --- what is put in, to the letter ------------------------------------------------------------------

ANSWER = {"name": "read", "response": {"output": GONE}}
PUT_IN: dict[str, Any] = {
    "anthropic": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a", "content": GONE}, {"type": "text", "text": "go-on"}],
    },
    "openai-chat": {"role": "tool", "tool_call_id": "a", "content": GONE},
    "openai-responses": {"type": "function_call_output", "call_id": "a", "output": GONE},
    "gemini": {"role": "user", "parts": [{"functionResponse": ANSWER | {"id": "a"}}]},
    "gemini without ids": {"role": "user", "parts": [{"functionResponse": ANSWER}]},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_put_in_derives_from_the_call_alone(variant: str) -> None:
    request = wire(variant, ["q", ">a", "go-on"])
    mended = repair(request, variant)
    assert mended.request[2] == PUT_IN[variant]
    assert mended.request[:2] == request[:2]
    assert all(new is old for new, old in zip(mended.request[:2], request[:2], strict=True))
    assert mended.stats.strategies["pairing"].hits == 1
    assert mended.stats.total_bytes_saved == 0


@pytest.mark.parametrize(
    "call",
    [
        pytest.param({"type": "custom_tool_call", "name": "x", "input": "y"}, id="a custom call"),
        pytest.param({"type": "shell_call", "action": {"commands": ["ls"]}}, id="a shell call"),
        pytest.param({"type": "apply_patch_call", "operation": {"type": "delete_file"}}, id="an apply_patch call"),
    ],
)
def test_the_answer_to_a_call_is_of_the_call_s_own_kind(call: dict[str, Any]) -> None:
    request = [*_responses("q"), call | {"call_id": "a"}, *_responses("go on")]
    mended = repair(request, "openai-responses").request
    assert [item.get("type") for item in mended] == [None, call["type"], call["type"] + "_output", None]


def test_an_id_of_gemini_s_own_is_answered_with_that_id_whatever_it_looks_like() -> None:
    request = wire("gemini", ["q", ">read@1.0", "go on"])
    request[1]["parts"][0]["functionCall"]["id"] = "call@7"
    mended = repair(request, "gemini").request
    assert pairing_violations(mended, "gemini") == []


def test_a_message_that_must_not_vanish_keeps_its_place() -> None:
    """Without it two assistant messages would meet."""
    mended = repair(wire("anthropic", ["q", ":one", "<z=Z", ":two", "x"]), "anthropic").request
    assert [message["role"] for message in mended] == ["user", "assistant", "user", "assistant", "user"]
    assert ibidem.validate(mended, format="anthropic") == []
    assert "Z" not in json.dumps(mended)


def test_a_history_that_was_cut_off_in_front_still_begins_with_the_user() -> None:
    """Two messages of orphans: if both went, the assistant would speak first."""
    mended = repair(wire("anthropic", ["<y=Y", "<z=Z", ":so", "x"]), "anthropic").request
    assert mended[0]["role"] == "user"
    assert pairing_violations(mended, "anthropic") == []


@pytest.mark.parametrize(
    "head",
    [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}],
    ids=["previous_response_id", "a conversation", "a conversation as an object"],
)
@pytest.mark.parametrize("by_place", [True, False], ids=["by place", "by id"])
def test_an_output_for_a_call_that_the_provider_keeps_stays(head: dict[str, Any], by_place: bool) -> None:
    request = {**head, "input": wire("openai-responses", ["<z=Z", "x"])}
    assert repair(request, "openai-responses", by_place=by_place).request is request


def test_with_history_elsewhere_calls_that_are_here_are_mended_still() -> None:
    request = {"previous_response_id": "resp_1", "input": wire("openai-responses", ["<z=Z", ">a", "x"])}
    mended = repair(request, "openai-responses").request
    assert story(mended, "openai-responses") == ["?=Z", f"a={GONE}", "x"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_untouched_messages_are_the_same_objects(variant: str) -> None:
    request = wire(variant, ["q", ">a", "<a=A", ":so", "y", ">b", "z", ":so", "x"])
    mended = repair(request, variant).request
    kept = [message for message in request if not any(message is new for new in mended)]
    joined = 1 if variant == "anthropic" else 0  # there the result goes into the user's next message
    assert len(kept) == joined


# --- any history ------------------------------------------------------------------------------------


CALLING = ("tool_use", "tool_calls", "function_call", "functionCall")


@st.composite
def shaken(draw: Any, repeated: bool = False) -> tuple[str, list[Any]]:
    """A valid history, some of its messages dropped, perhaps some `repeated`, and the rest in any order."""
    variant = draw(st.sampled_from(VARIANTS))
    script = ["q"]
    idents = iter("abcdefghij")
    for _ in range(draw(st.integers(1, 4))):
        batch = [next(idents) for _ in range(draw(st.integers(1, 2)))]
        script.append(">" + ",".join(batch))
        script.append("<" + ",".join(f"{c}=R{c}" for c in batch) + draw(st.sampled_from(["", "|and"])))
        script.extend([":so", "y"] * draw(st.integers(0, 1)))
    messages = wire(variant, script)
    messages = [message for message in messages if not draw(st.sampled_from([False, False, False, True]))]
    if repeated and messages and draw(st.booleans()):
        messages.extend(deepcopy(draw(st.lists(st.sampled_from(messages), max_size=3))))
    if draw(st.booleans()):
        messages = draw(st.permutations(messages))
    return variant, messages


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shaken(repeated=True))
def test_whatever_was_dropped_repeated_or_shuffled_pairs_again(case: tuple[str, list[Any]]) -> None:
    variant, messages = case
    messages = [*messages, *wire(variant, [":so", "done?"])]
    before = deepcopy(messages)
    mended = repair(messages, variant)
    assert messages == before
    assert mended.reason == ""
    assert broken_rules(mended.request, variant).isdisjoint(PAIRING)
    assert repair(mended.request, variant).request is mended.request
    if pairing_violations(messages, variant) == []:
        assert mended.request is messages


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shaken(repeated=True))
def test_where_the_end_is_a_call_only_that_one_may_be_unanswered(case: tuple[str, list[Any]]) -> None:
    variant, messages = case
    mended = repair(messages, variant).request
    left = [v for v in ibidem.validate(mended, format=named(variant)) if v.rule in PAIRING]
    assert all(violation.rule == "calls-answered" for violation in left)
    calling = 0
    for message in reversed(mended):
        if not any(f'"{word}"' in json.dumps(message) for word in CALLING):
            break
        calling += 1
    running = [f"{HISTORY[named(variant)]}[{n}]" for n in range(len(mended) - calling, len(mended))]
    assert all(violation.position.startswith(tuple(running)) for violation in left)
    assert repair(mended, variant).request is mended


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shaken().filter(lambda case: case[0] != "gemini without ids"))
def test_a_result_whose_call_is_there_is_kept_once(case: tuple[str, list[Any]]) -> None:
    variant, messages = case
    messages = [*messages, *wire(variant, [":so", "done?"])]
    mended = json.dumps(repair(messages, variant).request)
    for c in {part.partition("=")[0] for part in story(messages, variant)} & set("abcdefghij"):
        text = json.dumps(f"R{c}")
        assert mended.count(text) == json.dumps(messages).count(text)


# --- by id alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected", "hits"),
    [
        pytest.param(["q", ">a", "go on"], ["q", ">a", f"<a={GONE}", "go on"], 1, id="an open call is answered"),
        pytest.param(["q", ">a"], ["q", ">a", f"<a={GONE}"], 1, id="an open call at the end is answered"),
        pytest.param(["q", "<x=X", "next"], ["q", "next"], 1, id="a result without a call is removed"),
        pytest.param(
            ["q", ">a", ">b", "<b=B", "mid", "<c=C"],
            ["q", ">a", f"<a={GONE}", ">b", "<b=B", "mid"],
            2,
            id="one result is inserted and one is removed",
        ),
        pytest.param(
            ["q", ">a,b,c", "<b=B", "go on"],
            ["q", ">a,b,c", f"<a={GONE}", f"<c={GONE}", "<b=B", "go on"],
            2,
            id="inserted results come before the real ones",
        ),
        pytest.param(["q", ">a", "mid", "<a=A", "next"], None, 0, id="a result further on is an answer"),
        pytest.param(["q", ">a", "<a=A", "<a=B", "next"], None, 0, id="a second result for a call stays"),
    ],
)
def test_calls_and_results_are_paired_by_id_in_openai_chat(
    script: list[str], expected: list[str] | None, hits: int
) -> None:
    request = wire("openai-chat", script)
    before = deepcopy(request)
    result = repair(request, "openai-chat", by_place=False)
    assert request == before
    assert result.request == (request if expected is None else wire("openai-chat", expected))
    assert result.stats.snippet_hits == hits
    assert (result.request is request) == (expected is None)
    assert repair(result.request, "openai-chat", by_place=False).request is result.request


def test_a_result_before_its_call_is_removed_and_the_call_is_answered_in_a_second_run() -> None:
    once = repair(wire("openai-chat", ["q", "<a=A", ">a", "next"]), "openai-chat", by_place=False)
    assert once.request == wire("openai-chat", ["q", ">a", "next"])
    assert once.stats.snippet_hits == 1
    twice = repair(once.request, "openai-chat", by_place=False)
    assert twice.request == wire("openai-chat", ["q", ">a", f"<a={GONE}", "next"])
    assert repair(twice.request, "openai-chat", by_place=False).request is twice.request


@pytest.mark.parametrize("variant", WITH_IDS)
def test_running_calls_are_answered_if_pairs_are_found_by_id(variant: str) -> None:
    request = wire(variant, ["q", ">a", "<a=A", ">b,c"])
    repaired = repair(request, variant, by_place=False)
    assert story(repaired.request, variant) == ["q", "a=A", f"b={GONE}", f"c={GONE}"]
    assert repaired.stats.snippet_hits == 2
    assert pairing_violations(repaired.request, variant) == []
