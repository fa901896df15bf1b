"""Thinking of earlier turns: when it goes, that it comes back, and what a provider would refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import rules, testing
from ibidem.billing.revision_budget import CachePricing
from ibidem.formats import FORMATS
from ibidem.markers.thinking_records import (
    HistoryFingerprint,
    RemovedThinking,
    make_record,
    parse_records,
    removed_blocks,
)
from ibidem.store import MemoryStore, StoreError, reference
from ibidem.testing import conv
from tests.support.evict import NO_CLOCKS
from tests.support.lanes import daily

FREE = CachePricing(read=1.0, write=1.0)
"""A provider without a cache: whatever may go, goes at once."""
SLOW = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
CONTENT = "\n".join(f"line {n} of a file, été {n * 7919 % 1000}" for n in range(60))
LONG = "I wonder about all of this, and for quite some time. " * 8


def run(request: Any, store: Any = None, **fields: Any) -> ibidem.Compacted:
    """Thinking alone may go."""
    looking = ibidem.Evict(**{"economy": FREE, **NO_CLOCKS, **fields})
    return ibidem.compact(request, strategies=[looking], store=store or MemoryStore())


def gone(found: ibidem.Compacted) -> list[int]:
    return [edit.message for edit in found.plan if edit.strategy == "thinking"]


def thoughtful(text: str = "é and ") -> dict[str, Any]:
    """Two tool loops that are over, and one that runs."""
    request: dict[str, Any] = conv(
        *("u:go", "a:é>1", f"r1:{CONTENT}"),
        *(f"a?{text * 40}:Well>2", "r2:done", f"a?{text * 30}>3", "r3:done", "a:So", "u:And now? é"),
        *("a?still wondering about all of this, and for quite some time>4", "r4:done", "a>5", "r5:done"),
    )
    middle = request["messages"][3]["content"]
    middle.insert(1, {"type": "redacted_thinking", "data": "x" * 400})
    middle.insert(2, {"type": "thinking", "thinking": text * 50, "signature": "s2", "x": [1.5, None]})
    return request


# ── when it goes ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_goes_as_soon_as_the_user_has_spoken_again() -> None:
    loop = ("u:go", f"a?{LONG}>1", "r1:done", f"a?{LONG}>2", "r2:done")
    assert not gone(run(conv(*loop)))
    assert gone(run(conv(*loop, f"a?{LONG}:Done", "u:And now?"))) == [1, 3, 5]
    assert gone(run(conv(*loop, f"a?{LONG}:Done", "u:And now?", f"a?{LONG}>3", "r3:done"))) == [1, 3, 5]


def test_words_of_the_client_beside_results_end_no_loop() -> None:
    request = conv("u:go", f"a?{LONG}>1", "r1:done", f"a?{LONG}>2", "r2:done")
    words = {"type": "text", "text": "<system-reminder>be brief</system-reminder>"}
    request["messages"].append({"role": "user", "content": [words]})  # a provider joins it with the results
    assert not gone(run(request))
    del request["messages"][-1]
    request["messages"][-1]["content"].append(words)
    assert not gone(run(request))


def test_what_is_sealed_counts_for_what_it_is() -> None:
    request = conv("u:go", "a?>1", "r1:done", "a:Done", "u:And now?")
    block = request["messages"][1]["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "")
    assert not gone(run(request))
    block["signature"] = "c2ln" * 1000
    found = run(request)
    assert gone(found) == [1]
    assert found.plan.points[0].removed > 300


def test_it_goes_whole_or_not_at_all() -> None:
    found = run(thoughtful())
    assert gone(found) == [3, 3, 3, 5]
    assert [block["type"] for block in found.request["messages"][3]["content"]] == ["text", "tool_use"]


def test_a_message_of_nothing_else_keeps_it() -> None:
    request = conv("u:go", f"a?{LONG}", "u:Well?", f"a?{LONG}:So", "u:And now?")
    assert gone(run(request)) == [3]


CLEARS = {
    "older turns are cleared": ({"type": "clear_thinking_20251015"}, []),
    "but for the last": ({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}}, []),
    "all of it is kept": ({"type": "clear_thinking_20251015", "keep": "all"}, [1]),
    "all of it is kept, in other words": ({"type": "clear_thinking_20251015", "keep": {"type": "all"}}, [1]),
    "results are cleared": ({"type": "clear_tool_uses_20250919"}, [1]),
}


@pytest.mark.parametrize("case", CLEARS)
def test_what_the_provider_clears_itself_is_left_to_it(case: str) -> None:
    asked, expected = CLEARS[case]
    request = conv("u:go", f"a?{LONG}>1", "r1:done", "a:Done", "u:And now?")
    request["context_management"] = {"edits": [asked]}
    assert gone(run(request)) == expected


def test_where_a_provider_does_not_count_it_there_is_nothing_to_gain() -> None:
    request = conv("u:go", f"a?{LONG}>1", "r1:done", "a:Done", "u:And now?")
    assert run(request, economy=CachePricing(read=1.0, write=1.0, keeps_thinking=False)).request is request


def test_what_goes_before_it_was_sent_takes_nothing_off_the_price() -> None:
    """The rest that a provider has to write again is what it had, without what goes of that."""
    request = conv("u:go", "a>1", f"r1:{CONTENT}", f"a?{LONG}:Done", "u:And now?")
    growing = ibidem.Session(strategies=[ibidem.Evict(**NO_CLOCKS, economy=FREE)], store=MemoryStore())
    growing.compact({**request, "messages": request["messages"][:3]})
    [point] = growing.compact(request).plan.points
    assert point.rewritten > 500, "all of the first result"


def test_a_session_notices_that_the_provider_now_clears_it() -> None:
    request = conv("u:go", f"a?{LONG}>1", "r1:done", "a:Done", "u:And now?")
    growing = ibidem.Session(strategies=[ibidem.Evict(economy=FREE)], store=MemoryStore())
    assert gone(growing.compact(request)) == [1]
    clearing = {**request, "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}
    assert not gone(growing.compact(clearing))


# ── what a provider would refuse ────────────────────────────────────────────────────────────────────────────────────


def signed_gemini() -> Any:
    request = conv("u:go", f"a?{LONG}:Well>1", "r1:done", "a:Done", "u:And now?", format="gemini")
    for part in request["contents"][1]["parts"]:
        part["thoughtSignature"] = "c2ln"
    return request


def half_signed_gemini() -> Any:
    request = conv("u:go", f"a?{LONG}:Well>1", "r1:done", "a:Done", "u:And now?", format="gemini")
    request["contents"][1]["parts"].insert(1, {"text": LONG, "thought": True, "thoughtSignature": "c2ln"})
    return request


def chat(key: str, value: Any) -> Any:
    request = conv("u:go", "a:Well>1", "r1:done", "a:Done", "u:And now?", format="openai-chat")
    request["messages"][1][key] = value
    return request


ALONE = conv("u:go", f"a?{LONG}", "u:Well?", format="anthropic")
STAYS: dict[str, tuple[str, Any]] = {
    "Anthropic: of the running loop": ("anthropic", conv("u:a", "a:b", "u:go", f"a?{LONG}>1", "r1:done")),
    "Anthropic: nothing else in the message": ("anthropic", ALONE),
    "Responses: reasoning before its call": (
        "openai-responses",
        conv("u:go", f"a?{LONG}>1", "r1:done", "a:Done", "u:And now?", format="openai-responses"),
    ),
    "Responses: reasoning before its message": (
        "openai-responses",
        conv("u:go", f"a?{LONG}:So", "u:And now?", format="openai-responses"),
    ),
    "Gemini: a signature on every part": ("gemini", signed_gemini()),
    "Gemini: one of two thoughts is signed": ("gemini", half_signed_gemini()),
    "DeepSeek: reasoning_content": ("openai-chat", chat("reasoning_content", LONG)),
    "OpenRouter: reasoning_details": ("openai-chat", chat("reasoning_details", [{"type": "t", "text": LONG}])),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_a_provider_demands_stays(case: str) -> None:
    format, request = STAYS[case]
    found = ibidem.compact(request, strategies=[ibidem.Evict(economy=FREE)], format=format, store=MemoryStore())
    assert found.request is request


def test_unsigned_thoughts_of_gemini_may_go() -> None:
    request = conv("u:go", f"a?{LONG}:Well>1", "r1:done", "a:Done", "u:And now?", format="gemini")
    store = MemoryStore()
    found = ibidem.compact(request, strategies=[ibidem.Evict(economy=FREE)], format="gemini", store=store)
    assert gone(found) == [1]
    assert ibidem.expand(found.request, format="gemini", store=store) == request


@pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
@given(data=st.data())
@SLOW
def test_valid_stays_valid_and_all_of_the_running_loop_stays(format: str, data: st.DataObject) -> None:
    """Law 1, law 8, and law 3: what changed stands behind the first place that the plan names."""
    request = data.draw(testing.histories(format))
    found = ibidem.compact(request, strategies=[ibidem.Evict(economy=FREE)], format=format, store=MemoryStore())
    before, after = testing.read(request, format), testing.read(found.request, format)
    assert not rules.violations(after) or rules.violations(before)
    key, loop = FORMATS[format].history_key, before.running_loop()
    for old, new in zip(request[key][loop:], found.request[key][loop:], strict=True):
        assert "thinking" not in str(old) or str(old).count("thinking") == str(new).count("thinking")
    first = min([len(request[key]), *(edit.message for edit in found.plan)])
    assert all(point.first >= first for point in found.plan.points)
    assert not found.stats.failures


# ── that it comes back ──────────────────────────────────────────────────────────────────────────────────────────────

STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":"), "ensure_ascii": False},
    "as Python writes": {},
    "indented by one": {"indent": 1},
    "indented by two": {"indent": 2, "ensure_ascii": False},
    "by tabs": {"indent": "\t"},
}


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("mask", [99, 2], ids=["alone", "with results"])
def test_it_comes_back_to_the_byte(style: dict[str, Any], mask: int) -> None:
    request, store = thoughtful(), MemoryStore()
    for body in (request, json.dumps(request, **style), json.dumps(request, **style).encode()):
        found = run(body, store, mask=mask)
        assert len(gone(found)) == 4
        assert "still wondering" in str(found.request)
        assert not ibidem.validate(found.request, format="anthropic")
        assert ibidem.expand(found.request, store=store) == body
        assert ibidem.expand(found.request) != body


def test_it_comes_back_to_the_byte_from_a_writer_whose_text_may_stand_in_a_page() -> None:
    request, store = thoughtful("é < 1 && "), MemoryStore()
    request["messages"][0]["content"] = "go <on> é"
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    body = re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)
    found = run(body, store)
    assert len(gone(found)) == 4
    assert ibidem.expand(found.request, store=store) == body


def longer(request: dict[str, Any], turns: range) -> dict[str, Any]:
    """More tool loops, each with a question behind it."""
    for n in turns:
        name = f"c{n}"
        call = {"type": "tool_use", "id": name, "name": "Read", "input": {"file_path": name}}
        thought = {"type": "thinking", "thinking": f"{n} " * 60, "signature": "s"}
        output = "\n".join(f"value {line * n} and what else there is to say" for line in range(30))
        request["messages"] += [
            {"role": "assistant", "content": [thought, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": output}]},
            {"role": "assistant", "content": [{"type": "text", "text": "So"}]},
            {"role": "user", "content": "On"},
        ]
    return request


@pytest.mark.parametrize("mask", [99, 3], ids=["alone", "with results"])
def test_it_comes_back_from_a_session_that_went_at_several_points(mask: int) -> None:
    request, store = longer(thoughtful(), range(6, 20)), MemoryStore()
    looking = ibidem.Evict(**NO_CLOCKS, mask=mask, economy=ibidem.CachePricing())
    growing = ibidem.Session(strategies=[looking], format="anthropic", store=store)
    for length in range(9, len(request["messages"]) + 1, 2):
        part = {**request, "messages": request["messages"][:length]}
        found = growing.compact(part, idle=400 if length % 5 == 0 else 3)
        assert ibidem.expand(found.request, store=store) == part
    assert len(found.plan.points) > 2
    assert len(gone(found)) > 9
    assert ibidem.Session(strategies=[looking], store=store).compact(found.request, idle=400).request == found.request


@pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
@given(data=st.data())
@SLOW
def test_everything_comes_back_and_a_second_pass_changes_nothing(format: str, data: st.DataObject) -> None:
    """Laws 6 and 10, from the store and the request alone."""
    request, store = data.draw(testing.histories(format)), MemoryStore()
    more = {"mask": 2, "arguments": 80, "edit_arguments": (0, 0), **NO_CLOCKS}
    fields: dict[str, Any] = data.draw(st.sampled_from([{}, more]))
    looking = ibidem.Evict(economy=FREE, **fields)
    sent = ibidem.compact(request, strategies=[looking], format=format, store=store).request
    assert ibidem.expand(sent, format=format, store=store) == request
    assert ibidem.compact(sent, strategies=[looking], format=format, store=store).request == sent


def test_a_history_that_lost_it_is_not_looked_at_again() -> None:
    """Law 10, where nothing but thinking went: no marker says so."""
    request, store = longer(thoughtful(), range(6, 9)), MemoryStore()
    once = run(request, store).request
    assert "left out" not in str(once)
    again = {"mask": 4}
    assert run(once, store, **again).request == once
    assert run(once, MemoryStore(), **again).request != once, "this store knows nothing of it"


def test_a_replica_that_sees_the_history_as_it_was_decides_again() -> None:
    request, store = longer(thoughtful(), range(6, 9)), MemoryStore()
    once, records = run(request, store), store.stats().originals
    assert run(request, store).request == once.request
    assert store.stats().originals == records


def test_it_is_put_back_only_where_it_stood() -> None:
    request, store = longer(thoughtful(), range(6, 9)), MemoryStore()
    sent = run(request, store).request
    assert ibidem.expand(sent, store=store) == request
    other = json.loads(json.dumps(sent))
    other["messages"][3]["content"][0]["text"] = "Well, well"
    assert ibidem.expand(other, store=store) == other, "this is another conversation"
    other = json.loads(json.dumps(sent))
    other["messages"][16]["content"] = "Never mind"
    found = ibidem.expand(other, store=store)["messages"]
    assert found[:16] == request["messages"][:16]
    assert found[16:] == other["messages"][16:], "and this another branch of it"


def test_a_store_is_asked_only_when_thinking_goes() -> None:
    class Asked(MemoryStore):
        count = 0

        def refs(self, session: str) -> set[str]:
            Asked.count += 1
            return super().refs(session)

    store = Asked()
    request, looking = longer(thoughtful(), range(6, 30)), ibidem.Evict(economy=FREE, mask=3)
    growing = ibidem.Session(strategies=[looking], store=store)
    thought = went = 0
    for length in range(1, len(request["messages"]) + 1, 2):
        found = growing.compact({**request, "messages": request["messages"][:length]})
        thought, before = len(gone(found)), thought
        went += thought > before
        assert Asked.count == went, "once for each time that some goes"
    assert went > 9


def test_a_moved_cache_mark_keeps_it_from_nothing() -> None:
    request, store = thoughtful(), MemoryStore()
    sent = json.loads(json.dumps(run(request, store).request))
    mark = {"type": "ephemeral"}
    for body in (request, sent):
        body["messages"][3]["content"][-1]["cache_control"] = mark
        body["messages"][8]["content"] = [{"type": "text", "text": body["messages"][8]["content"]}]
    assert ibidem.expand(sent, store=store) == request


def test_two_conversations_that_differ_in_nothing_else_keep_what_they_cannot_tell_apart() -> None:
    store = MemoryStore()
    one, other = (conv("u:go", f"a?{n} {LONG}:Well", "u:And now?", "a:So", "u:On") for n in (1, 2))
    sent = run(one, store).request
    assert gone(run(other, store)) == []
    assert ibidem.expand(sent, store=store) == one


@pytest.mark.parametrize("signed", [False, True], ids=["thinking", "redacted"])
def test_a_session_notices_that_another_thinking_stands_beside_the_same_words(signed: bool) -> None:
    """An answer that was made again, or another conversation: what goes is what is recorded."""
    store, sent = MemoryStore(), None
    session = ibidem.Session(strategies=[ibidem.Evict(economy=CachePricing())], format="anthropic", store=store)
    for length, idle in ((3, 1.0), (5, 9999.0)):
        request = conv("u:go", f"a?{length} {LONG}:Well", "u:And now?", "a:So", "u:On")
        if signed:
            request["messages"][1]["content"][0] = {"type": "redacted_thinking", "data": f"{length}" * 900}
        request["messages"] = request["messages"][:length]
        sent = session.compact(request, idle=idle)
    assert sent is not None
    assert gone(sent) == [1]
    assert ibidem.expand(sent.request, store=store) == request


def test_what_another_recorded_meanwhile_is_told_apart_too() -> None:
    """Two sessions that asked the store before either let anything go."""
    store, sent = MemoryStore(), {}
    looking = ibidem.Evict(**NO_CLOCKS, economy=CachePricing(write=99.0))
    sessions = [ibidem.Session(strategies=[looking], format="anthropic", store=store) for _ in range(2)]
    for length in (5, 7):
        for n, session in enumerate(sessions):
            lines = ("u:go", "a:Well", "u:And?", f"a?0 {LONG}:So", "u:And now?", f"a?{n} {LONG}:Well", "u:On")
            request = conv(*lines[:length])
            sent[n] = request, session.compact(request, idle=9999.0)
    assert [gone(found) for _, found in sent.values()] == [[3, 5], [3]]
    assert all(ibidem.expand(found.request, store=store) == request for request, found in sent.values())


def test_a_store_with_too_many_records_of_a_name_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.strategies.revision.removed_thinking.MAX_RECORDS", 3)
    store, seen = MemoryStore(), []
    for n in range(5):
        request = conv("u:go", "a:Well", "u:And now?", f"a?{LONG}:{n}", "u:On")
        seen.append(len(gone(run(request, store))))
    assert seen == [1, 1, 1, 0, 0]


def test_runs_of_a_prompt_that_stands_in_two_messages_have_records_of_their_own() -> None:
    names = set()
    for n in range(3):
        spine = HistoryFingerprint()
        request = conv("u:A reminder", "u:go", f"a?{LONG}:{n}", "u:And now?")
        for message in testing.read(request, "anthropic").messages:
            spine.add_message(message)
        names.add(spine.name)
    assert len(names) == 3


def test_records_that_contradict_each_other_or_are_none_say_nothing() -> None:
    spine, sent = HistoryFingerprint(), run(thoughtful(), MemoryStore()).request
    for message in testing.read(sent, "anthropic").messages:
        spine.add_message(message)
    store, block = MemoryStore(), {"type": "thinking", "thinking": "forged", "signature": "s"}
    texts = [make_record([RemovedThinking(3, spine.digests[3], ("content", 0), {**block, "n": n})]) for n in range(2)]
    elsewhere = (spine.digests[4], ("content", 0)), (spine.digests[5], ("x", 0))
    texts += [make_record(RemovedThinking(5, *where, block) for where in elsewhere)]
    texts += ["", "[]", "{}", '{"dropped": [1]}', '{"dropped": [[5, "a", [[]], 4]]}', '{"dropped": [[5, 2, 3, 4]]}']
    store.put(spine.name, {reference(text): text for text in texts})
    assert ibidem.expand(sent, store=store) == sent


def test_a_record_says_what_it_was_given() -> None:
    dropped = [RemovedThinking(3, "abc", ("content", 0), {"type": "thinking", "thinking": "\ud800 é", "n": 1.5})]
    assert parse_records([make_record(dropped)]) == {3: dropped}
    assert removed_blocks(dropped, "abc") == {("content", 0): dropped[0].block}
    assert removed_blocks(dropped, "abd") == {}


class Broken(MemoryStore):
    def put(self, session: str, originals: Any) -> None:
        if session.startswith("thinking"):
            raise StoreError("here", "the disk is full")
        super().put(session, originals)


def test_what_cannot_be_recorded_stays() -> None:
    request = thoughtful()
    found = run(request, Broken())
    assert found.request is request
    assert not found.plan.points
