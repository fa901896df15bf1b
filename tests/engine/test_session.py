"""Conversations that grow: what is known of them is not looked at again, and never mixed up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing, tool_arguments
from ibidem.billing.revision_budget import CachePricing, RequestContext
from ibidem.engine import journal
from ibidem.engine.journal import IndexRanges, Journal
from ibidem.formats import FORMATS
from ibidem.store import MemoryStore
from ibidem.wire.request_scan import scan, scan_continuation
from tests.support.evict import NO_CLOCKS
from tests.support.lanes import daily
from tests.support.timed import seconds

SLOW = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
one_format_daily = pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))


def file_of(lines: int, seed: int = 0) -> str:
    return "\n".join(f"value_{n} = compute({n * 31 + seed}, 'name {n * 17 % 97}')" for n in range(lines))


def reads(*texts: str, first: str = "Look around", **fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for number, text in enumerate(texts, 1):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": f"{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"model": "claude-opus-4-6", "messages": messages, **fields}


def begun(request: dict[str, Any], messages: int) -> dict[str, Any]:
    return {**request, "messages": request["messages"][:messages]}


def lengths(request: dict[str, Any]) -> range:
    """Of the requests that led to this one."""
    return range(1, len(request["messages"]) + 1, 2)


def marked(request: dict[str, Any]) -> dict[str, Any]:
    """With a cache mark on the last message, as clients move it along."""
    *rest, last = request["messages"]
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    last = {**last, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}
    return {**request, "messages": [*rest, last]}


# ── what is known is not looked at again ────────────────────────────────────────────────────────────────────────────


@one_format_daily
@given(data=st.data())
@SLOW
def test_a_request_that_begins_as_another_did_is_scanned_from_there(format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    key = FORMATS[format].history_key
    history = request[key]
    known_length = data.draw(st.integers(1, len(history)))
    indent = data.draw(st.sampled_from([None, 1]))
    ascii_only = data.draw(st.booleans())
    order = data.draw(st.permutations([*request, "metadata"]))
    whole = {name: {**request, "metadata": {"n": 1}}[name] for name in order}
    texts = [
        json.dumps({**whole, key: history[:length]}, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
        for length in (known_length, len(history))
    ]
    before, afresh = (scan(text) for text in texts)
    assume(before is not None and afresh is not None)  # what only a tolerant parser takes
    assert before is not None
    assert before.scan_state is not None
    assert afresh is not None
    for last in (None, before.make_last_request()):
        again = scan_continuation(texts[1], before.scan_state, last)
        if known_length == len(history):
            assert again is None or again.unchanged_count < len(history)
        else:
            assert again is not None
            assert again.unchanged_count == known_length
            assert again.has_same_params is (last is not None)
        if again is None:
            continue
        assert len(again) == len(afresh)
        assert [again.message_at(n) for n in range(len(again))] == [afresh.message_at(n) for n in range(len(afresh))]
        assert dict(again.params) == dict(afresh.params)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"Look around", b"Look abroad"),
        lambda text: text.replace(b'"role": "user"', b'"role":  "user"', 1),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"]}", b",]}"),
        lambda text: b"{}",
        lambda text: b"",
    ],
    ids=["another first message", "another spelling", "cut off", "a comma too many", "nothing in it", "nothing at all"],
)
def test_any_other_request_is_not(change: Any) -> None:
    request = reads(file_of(40), file_of(40, 1))
    before = scan(json.dumps(begun(request, 3)).encode())
    assert before is not None
    assert before.scan_state is not None
    text = change(json.dumps(request).encode())
    assert scan_continuation(text, before.scan_state) is None
    assert scan_continuation(text, before.scan_state, before.make_last_request()) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"max_tokens": 7}', b'"max_tokens": 8}'),
        (b'"max_tokens": 7}', b'"max_tokens": 7 }'),
        (b'"model": "m"', b'"model": "n"'),
    ],
    ids=["another field behind", "another spelling behind", "another field before"],
)
def test_what_stands_beside_the_messages_is_read_where_it_is_another(old: bytes, new: bytes) -> None:
    request = reads(file_of(40), file_of(40, 1))
    whole = {"model": "m", "messages": request["messages"], "tools": [{"name": "n" * 2000}], "max_tokens": 7}
    before = scan(json.dumps({**whole, "messages": request["messages"][:3]}).encode())
    assert before is not None
    assert before.scan_state is not None
    text = json.dumps(whole).encode()
    assert text.count(old) == 1
    for body in (text, text.replace(old, new)):
        again, afresh = scan_continuation(body, before.scan_state, before.make_last_request()), scan(body)
        assert afresh is not None
        assert again is None or (dict(again.params), len(again)) == (dict(afresh.params), len(afresh))
        assert (again is not None and again.has_same_params) is (body is text)


@pytest.mark.parametrize("end", [b'{"role": "user"', b"{} ]", b"{}], [{}", b"", b" ", b"{},", b'{}], "x": [{}'])
def test_messages_that_are_none_are_no_reason_to_believe_the_rest(end: bytes) -> None:
    before = scan(b'{"messages": [{"a": 1}], "b": 2}')
    assert before is not None
    assert before.scan_state is not None
    body = b'{"messages": [{"a": 1},' + end + b'], "b": 2}'
    again, afresh = scan_continuation(body, before.scan_state, before.make_last_request()), scan(body)
    assert again is None or afresh is not None
    assert again is None or not again.has_same_params


def test_what_is_held_of_a_request_has_no_long_value() -> None:
    """As a value, what is offered with every request takes many times its bytes."""
    found = scan(json.dumps({"model": "m", "messages": [{}], "tools": [{"name": "n" * 2000}]}).encode())
    assert found is not None
    last = found.make_last_request()
    assert last is not None
    assert last.params["tools"] is not last.params["tools"]
    assert last.params["model"] is last.params["model"]
    assert dict(last.params) == dict(found.params)
    assert last.size_bytes > len(last.body)


def test_a_mark_that_moves_costs_only_the_messages_around_it() -> None:
    request = reads(*(file_of(30, n) for n in range(12)))
    session = ibidem.Session(format="anthropic")
    for length in lengths(request):
        body = json.dumps(marked(begun(request, length))).encode()
        again = session.rescan(body)
        assert (again is not None and again.unchanged_count >= length - 4) or length <= 3  # the first had one too
        found = scan(body)
        assert found is not None
        shared, seen = session.shares(found)
        assert shared == seen == max(0, length - 2)
        assert session.compact(body).request == ibidem.compact(body, format="anthropic").request


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_system_message_sent_as_block_and_then_as_string_continues_the_conversation(profile: str) -> None:
    """Claude Code 2.1.326 does that with every system message in mid-conversation."""
    history = reads(file_of(40), file_of(40), file_of(40, 1))["messages"]
    history[3:3] = [{"role": "system", "content": "Answer briefly."}]
    whole = {"model": "claude-opus-4-6", "messages": history}
    as_block = json.loads(json.dumps(begun(whole, 4)))
    as_block["messages"][3]["content"] = [
        {"type": "text", "text": "Answer briefly.", "cache_control": {"type": "ephemeral"}}
    ]
    session = ibidem.Session(profile, store=MemoryStore())
    session.compact(json.dumps(begun(whole, 3)).encode())
    session.compact(json.dumps(as_block).encode())
    scanned = scan(json.dumps(whole).encode())
    assert scanned is not None
    assert session.shares(scanned) == (4, 4)
    sent = json.loads(session.compact(json.dumps(whole).encode()).request)
    assert sent == ibidem.compact(whole, profile=profile, store=MemoryStore()).request
    assert sent["messages"][3] == {"role": "system", "content": "Answer briefly."}


@one_format_daily
@given(data=st.data())
@SLOW
def test_requests_that_fork_and_rewind_are_sent_as_compact_would_send_them(format: str, data: st.DataObject) -> None:
    key = FORMATS[format].history_key
    one, other = (data.draw(testing.histories(format, 8)) for _ in range(2))
    session = ibidem.Session(format=format)
    for _ in range(6):
        request = data.draw(st.sampled_from([one, other]))
        body = json.dumps({**request, key: request[key][: data.draw(st.integers(1, len(request[key])))]}).encode()
        assert session.compact(body).request == ibidem.compact(body, format=format).request


def test_what_was_known_when_a_request_was_scanned_may_be_known_no_more() -> None:
    """Another request came between: what is known now is not what the scan went by."""
    one, other = (reads(*(file_of(60, seed + n // 2) for n in range(6))) for seed in (0, 50))
    session = ibidem.Session(format="anthropic")
    session.compact(json.dumps(begun(one, 9)).encode())
    body = json.dumps(one).encode()
    scanned = session.rescan(body)
    assert scanned is not None
    assert scanned.unchanged_count == 9
    session.compact(json.dumps(other).encode())
    assert session.compact(scanned).request == ibidem.compact(body, format="anthropic").request


# ── sent as it came ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_what_went_out_as_it_came_stays_so_and_is_referred_to(profile: str) -> None:
    text = file_of(80)
    request = reads(text, text, text, file_of(80, 1), file_of(80, 1))
    store = MemoryStore()
    session = ibidem.Session(profile, format="anthropic", store=store)
    first = begun(request, 5)
    assert session.compact(first, at=0.0).plan
    session.sent_otherwise(first, 0)
    for length in (7, 9, 11):
        body = begun(request, length)
        sent = session.compact(body, at=10.0 * length)
        assert sent.request["messages"][:5] == first["messages"]
        assert sent.plan
        assert ibidem.expand(sent.request, format="anthropic") == body
        again = ibidem.Session(profile, format="anthropic", store=store, state=session.state())
        assert again.compact(body, at=10.0 * length).request == sent.request


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_only_what_was_new_stays_as_it_came(profile: str) -> None:
    """What was sent before is sent as it was, what is new then goes as it came, what comes later is rewritten again."""
    texts = [file_of(80, n // 2) for n in range(8)]
    request, store = reads(*texts), MemoryStore()
    session = ibidem.Session(profile, format="anthropic", store=store)
    for length in (1, 3, 5, 7):
        way = session.sent_prefix
        sent = session.compact(json.dumps(begun(request, length)).encode(), at=float(length))
    assert way is not None
    late = json.dumps(begun(request, 9)).encode()
    scanned = scan(late)
    assert scanned is not None
    assert way.shared_length(scanned) == 5
    went = json.loads(way.apply_to(scanned, 5))["messages"]
    assert went[:5] == json.loads(sent.request)["messages"][:5] != request["messages"][:5]
    assert went[5:] == request["messages"][5:9]
    planned = json.loads(session.compact(late, at=9.0).request)["messages"]
    assert planned != went
    session.sent_otherwise(late, 5)
    for length in (11, 13, 15, 17):
        body = json.dumps(begun(request, length)).encode()
        found = session.compact(body, at=float(length))
        assert json.loads(found.request)["messages"][:9] == went
        assert ibidem.expand(found.request, format="anthropic", store=store) == body
        again = ibidem.Session(profile, format="anthropic", store=store, state=session.state())
        assert again.compact(body, at=float(length)).request == found.request
    assert len(found.plan.edits) >= 3


def test_a_revision_that_was_not_sent_is_decided_again() -> None:
    request = reads(*(file_of(60, n) for n in range(8)))
    store = MemoryStore()
    session = looking(store)
    for length in (1, 3, 5, 7, 9):
        way = session.sent_prefix
        found = session.compact(begun(request, length), idle=400 if length == 9 else 5)
    assert way is not None
    assert found.plan.points
    session.sent_otherwise(begun(request, 9), 7)
    for each in (session, looking(store, session.state())):
        after = each.compact(begun(request, 11), idle=5)
        assert after.request["messages"][:9] == request["messages"][:9]
        assert not after.plan.points
        again = each.compact(begun(request, 13), idle=400)
        assert [point.length for point in again.plan.points] == [13]


def test_after_two_refusals_nothing_new_is_rewritten() -> None:
    request = reads(*(file_of(60, n // 4) for n in range(12)))
    session = ibidem.Session(format="anthropic")
    session.compact(begun(request, 5))
    session.sent_otherwise(begun(request, 5), 3, refused=True)
    assert session.compact(begun(request, 9)).plan, "once may be an accident"
    session.sent_otherwise(begun(request, 11), 9, refused=True)
    kept = session.compact(begun(request, 9)).request["messages"]
    for each in (session, ibidem.Session(format="anthropic", state=session.state())):
        sent = each.compact(request).request["messages"]
        assert sent[:9] == kept != request["messages"][:9]
        assert sent[9:] == request["messages"][9:]


def test_what_went_otherwise_is_learned_from_another_replica() -> None:
    journal, other = Journal(), Journal()
    for each in (journal, other):
        each.follow_messages([b"one", b"two", b"three"])
    journal.record_entry(at=5.0)
    other.record_entry(as_is=1, refused=True)
    journal.load(other.dump())
    assert journal.current_entry is not None
    assert (journal.current_entry.at, journal.current_entry.as_is, journal.current_entry.refused) == (5.0, 1, True)
    assert [number in journal.unchanged_ranges for number in range(4)] == [False, True, True, False]
    assert journal.is_unusual


# ── what is known beside the history ────────────────────────────────────────────────────────────────────────────────

CACHED = CachePricing(read=0.1, write=1.25, lifetime=300)
LOOKING = ibidem.Evict(**NO_CLOCKS, economy=CACHED, mask=2)


def looking(store: MemoryStore, state: bytes | None = None) -> ibidem.Session:
    return ibidem.Session(strategies=[LOOKING], format="anthropic", store=store, state=state)


def test_the_time_of_an_answer_tells_when_the_cache_is_cold() -> None:
    request = reads(*(file_of(60, n) for n in range(6)))
    told, timed = looking(MemoryStore()), looking(MemoryStore())
    now = 1000.0
    for length in lengths(request):
        pause = 400.0 if length == 9 else 5.0
        now += pause
        by_hand = told.compact(begun(request, length), idle=pause)
        by_time = timed.compact(begun(request, length), at=now)
        assert by_time.request == by_hand.request
        timed.answered(at=now)
    assert by_time.plan.points[0].reason == "cold cache"


@pytest.mark.parametrize("head", [{"model": "claude-sonnet-4-6"}, {"tools": [{"name": "Grep"}]}])
@pytest.mark.parametrize("every", [2, 5, 99])
def test_another_model_or_other_tools_are_no_free_moment(head: dict[str, Any], every: int) -> None:
    """They find nothing in a cache; but those before may be asked again, and find all that they were sent."""
    request = reads(*(file_of(60, n) for n in range(6)), model="claude-opus-4-6", tools=[{"name": "Read"}])
    session = looking(MemoryStore())
    for turn, length in enumerate(lengths(request)):
        changed = head if turn % every == 1 or turn > every else {}
        found = session.compact({**begun(request, length), **changed}, at=float(length))
        session.answered(at=float(length))
    assert found.plan.points == ()


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({}, []),
        ({"output_config": {"effort": "low"}}, ["new settings"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, ["new settings"]),
        ({"model": "claude-opus-4-7"}, ["new settings"]),
        ({"temperature": 0.5}, []),
    ],
)
def test_new_settings_are_a_free_moment_if_a_return_is_affordable(changed: dict[str, Any], reasons: list[str]) -> None:
    request = reads(*(file_of(60, n) for n in range(6)), model="claude-opus-4-6", output_config={"effort": "high"})
    expensive = replace(CACHED, read=0.0001, write=1.25)  # so that nothing pays that is not free
    session = ibidem.Session(
        strategies=[replace(LOOKING, economy=expensive, credit=1.0)], format="anthropic", store=MemoryStore()
    )
    for length in lengths(request):
        found = session.compact({**begun(request, length), **(changed if length > 9 else {})}, at=float(length))
        session.answered(at=float(length), context=20_000 + 500 * length, cached=0)
    assert [point.reason for point in found.plan.points][:1] == reasons


def test_two_branches_know_nothing_of_each_other() -> None:
    """One is idle where the other is not; either goes on from the notes of both as if it were alone."""
    trunk = [file_of(60, n) for n in range(4)]
    requests = {
        name: reads(*trunk, *(file_of(60, seed + n) for n in range(5))) for name, seed in (("a", 10), ("b", 20))
    }
    pauses = {"a": {13: 400.0}, "b": {17: 400.0}}
    alone: dict[str, list[Any]] = {}
    for name, request in requests.items():
        session = looking(MemoryStore())
        alone[name] = [
            session.compact(begun(request, length), idle=pauses[name].get(length, 5.0)).request
            for length in lengths(request)
        ]
    assert alone["a"][6]["messages"][:9] != alone["b"][6]["messages"][:9]
    state: bytes | None = None
    for place, length in enumerate(lengths(requests["a"])):
        for name, request in requests.items():
            session = looking(MemoryStore(), state)
            idle = pauses[name].get(length, 5.0)
            assert session.compact(begun(request, length), idle=idle).request == alone[name][place]
            state = session.state()


def test_what_another_replica_did_is_learned() -> None:
    request = reads(*(file_of(60, n) for n in range(10)))
    expected, replicas = looking(MemoryStore()), [looking(MemoryStore()) for _ in range(2)]
    state: bytes | None = None
    now = 0.0
    for turn, length in enumerate(lengths(request)):
        now += 400.0 if length in (9, 15) else 5.0
        body = json.dumps(begun(request, length)).encode()
        replica = replicas[turn % 3 % 2]
        if state is not None:
            replica.learn(state)
        assert replica.compact(body, at=now).request == expected.compact(body, at=now).request
        for each in (replica, expected):
            each.answered(at=now, context=500 * length)
        state = replica.state()


def test_an_answer_that_is_told_late_is_noted_for_its_own_request() -> None:
    request = reads(*(file_of(60, n) for n in range(6)))
    late, prompt = looking(MemoryStore()), looking(MemoryStore())
    place = None
    for length in (1, 3, 5, 7):
        late.compact(begun(request, length), at=float(length))
        prompt.compact(begun(request, length), at=float(length))
        prompt.answered(at=float(length), context=700)
        if place is not None:
            late.answered(at=float(length) - 2, context=700, position=place)
        place = late.position
    late.answered(at=7.0, context=700, position=place)
    for length in (9, 11):
        pair = [each.compact(begun(request, length), at=500.0 * length).request for each in (late, prompt)]
        assert pair[0] == pair[1]


def test_revisions_stop_when_told_and_stay_stopped_elsewhere() -> None:
    request = reads(*(file_of(60, n) for n in range(8)))
    store = MemoryStore()
    session = looking(store)
    found = None
    for length in lengths(request):
        found = session.compact(begun(request, length), idle=400)
        if length == 9:
            sent = found.request
            assert found.plan.points
            session.stop_revising()
            session = looking(store, session.state())
        if length > 9:
            assert found.request["messages"][:9] == sent["messages"]


def test_a_change_of_what_had_been_sent_costs_what_it_changes() -> None:
    """Not all that is known, as a conversation does that is looked at for the first time."""
    request = reads(*(file_of(40, n) for n in range(80)))
    *_, before, first, second = (json.dumps(begun(request, length)).encode() for length in lengths(request))
    for _ in range(3):
        session = looking(MemoryStore())
        session.compact(before)
        session.compact(first, idle=400)
        found: list[Any] = []
        change = seconds(lambda: found.append(session.compact(second, idle=400)))  # noqa: B023
        assert [point.length for point in found[0].plan.points][-2:] == list(lengths(request))[-2:]
        if 4 * change < seconds(lambda: looking(MemoryStore()).compact(second)):
            return
    pytest.fail("a change takes more than a quarter of what the whole conversation takes")


@pytest.mark.parametrize("state", [b"", b"[]", b'{"version": 1, "moments": []}', b'{"version": 3, "notes": [[1]]}'])
def test_a_state_that_is_none_gets_a_clear_message(state: bytes) -> None:
    with pytest.raises(ibidem.IbidemError, match="this is not a state of a session"):
        looking(MemoryStore(), state)
    session = looking(MemoryStore())
    with pytest.raises(ibidem.IbidemError, match="start without it"):
        session.learn(state)


def test_a_conversation_goes_on_after_an_update() -> None:
    """States of the version before lack what is known about caches; nothing else of them is lost."""
    request = reads(*(file_of(60, n) for n in range(8)))
    store = MemoryStore()
    session = looking(store)
    for length in (1, 3, 5, 7):
        session.compact(begun(request, length), idle=400)
    old = json.loads(session.state())
    old["version"] = 5
    old["notes"] = [[n, digest, moment[:4], *rest[:6]] for n, digest, moment, *rest in old["notes"]]
    ours, theirs = looking(store, json.dumps(old).encode()), looking(store, session.state())
    bodies = [each.compact(begun(request, 9), idle=1.0).request for each in (ours, theirs)]
    assert bodies[0] == bodies[1]
    assert bodies[0] != looking(store).compact(begun(request, 9)).request  # the notes were needed


@pytest.mark.parametrize("looks_back", [True, False])
def test_what_another_edition_began_goes_on_without_new_edits(
    looks_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, store = file_of(60), MemoryStore()
    request = reads(*(f"{same}\n# {n}" for n in range(10)))

    def session(state: bytes | None = None) -> ibidem.Session:
        return looking(store, state) if looks_back else ibidem.Session(format="anthropic", store=store, state=state)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "SENT_EDITION", 7)
        theirs = session()
        for length in (1, 3, 5, 7):
            sent = theirs.compact(begun(request, length), idle=1.0).request["messages"]
        theirs.sent_otherwise(begun(request, 9), 7)  # else one that does not look back has nothing to note
        sent = [*sent, *request["messages"][7:9]]
        state = theirs.state()
        assert json.loads(state)["sent"] == 7
        assert theirs.compact(begun(request, 11), idle=1.0).plan, "for them it is their own"
    ours = session(state)
    for length in (11, 13, 15):
        found = ours.compact(begun(request, length), idle=4000.0).request["messages"]
        assert found == [*sent, *request["messages"][len(sent) : length]]
        sent = found
    assert json.loads(ours.state())["foreign"], "whoever goes on knows it too"
    again = session(ours.state()).compact(begun(request, 17)).request["messages"]
    assert again == [*sent, *request["messages"][15:17]]


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_conversation_with_old_labels_continues_without_new_edits(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edition 1 did not read the scripts of `exec`. Its references get the new label once, and stay so."""
    items: list[Any] = [{"role": "user", "content": "Look around"}]
    for n in range(8):
        call = {"type": "custom_tool_call", "call_id": f"c{n}", "name": "exec"}
        items.append({**call, "input": f'const r = await tools.exec_command({{cmd: "cat {n}.py"}}); text(r)'})
        items.append({"type": "custom_tool_call_output", "call_id": f"c{n}", "output": f"{file_of(60)}\n# {n}"})
    store, model = MemoryStore(), "gpt-5.6"

    def request(length: int) -> dict[str, Any]:
        return {"model": model, "input": items[:length]}

    with monkeypatch.context() as patch:
        patch.setattr(journal, "SENT_EDITION", 1)
        patch.setattr(tool_arguments, "SCRIPT_TOOL", "")
        theirs = ibidem.Session(profile=profile, store=store)
        for length in (1, 3, 5, 7):
            old = theirs.compact(request(length), idle=1.0).request["input"]
        theirs.sent_otherwise(request(9), 7)  # else `lossless` has nothing to note
        state = theirs.state()
    ours = ibidem.Session(profile=profile, store=store, state=state)
    sent: list[list[Any]] = []
    for length in (11, 13, 15):
        found = ours.compact(request(length), idle=1.0).request
        assert ibidem.expand(found, store=store) == request(length)
        sent.append(found["input"])
    assert [item["output"].count("exec(cat 0.py)") for item in sent[-1][4:7:2]] == [1, 1]
    label = "const r = await tools.exec_comma"
    assert json.dumps(sent[-1][:7]).replace("exec(cat 0.py)", f"exec({label})") == json.dumps(old)
    assert sent[-1][7:] == items[7:15], "nothing new is rewritten"
    assert sent[0] == sent[-1][:11]
    assert sent[1] == sent[-1][:13]


def test_notes_come_back_as_they_were() -> None:
    ours = Journal()
    ours.follow_messages([b"one", b"two"])
    ours.record_entry(moment=RequestContext(3.5, 700, True), as_is=1, at=12.5, context=900, stopped=True, cached=800)
    other = Journal()
    other.load(ours.dump())
    assert other.entries == ours.entries
    other.follow_messages([b"one"])
    assert other.current_entry is None
    other.follow_messages([b"two"])
    assert other.current_entry == ours.current_entry
    assert other.unchanged_ranges == IndexRanges(((1, 2),))


@pytest.mark.parametrize("text", ["NaN", '"\\ud800"', "1e999"])
def test_text_that_only_a_tolerant_parser_takes_is_looked_back_on_too(text: str) -> None:
    request = reads(*(file_of(60, n) for n in range(6)))
    plain, odd = looking(MemoryStore()), looking(MemoryStore())
    for length in lengths(request):
        body = json.dumps(begun(request, length))
        found = odd.compact(body.replace('"role": "user"', f'"odd": {text}, "role": "user"').encode(), idle=400)
        expected = plain.compact(body.encode(), idle=400)
        assert found.request.replace(f'"odd": {text}, '.encode(), b"") == expected.request
    assert found.plan.points


# ── a way back ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["mcp__ibidem__recall", "ibidem_recall", "ibidem.recall"])
def test_a_marker_names_the_tool_that_gives_a_text_back_where_the_request_has_it(name: str) -> None:
    request = reads(*(file_of(60, n) for n in range(6)))
    store = MemoryStore()
    session = looking(store)
    for length in lengths(request):
        body = {
            **begun(request, length),
            "tools": [{"name": "Read"}, {"name": name}] if length > 9 else [{"name": "Read"}],
        }
        sent = session.compact(body, idle=400)
        said = f", {name} gives it back]" in json.dumps(sent.request["messages"], ensure_ascii=False)
        assert said is (length > 9)
        assert ibidem.expand(sent.request, format="anthropic", store=store) == body
        assert (
            ibidem.compact(sent.request, strategies=[LOOKING], format="anthropic", store=store).request == sent.request
        )


@pytest.mark.parametrize(
    "tools", [None, "all", 7, [], [None], [{"name": "recall"}], [{"name": "my_ibidem_recaller"}], [{"function": 7}]]
)
def test_without_that_tool_no_way_is_offered(tools: Any) -> None:
    request = {**reads(*(file_of(60, n) for n in range(6))), "tools": tools}
    session = looking(MemoryStore())
    for length in lengths(request):
        sent = session.compact(begun(request, length), idle=400)
    assert sent.plan.points
    assert "gives it back" not in json.dumps(sent.request)
