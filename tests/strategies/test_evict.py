"""Looking back: what goes, when, and that it comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing
from ibidem.billing.revision_budget import CachePricing, RequestContext, RevisionOffer, SavingsBalance
from ibidem.formats import FORMATS
from ibidem.markers.eviction_markers import EvictedMarker, evicted_line_count, merge_ranges, refs_in, remove_lines
from ibidem.store import Limits, MemoryStore, StoreError
from ibidem.testing import conv
from tests.support.evict import NO_CLOCKS
from tests.support.lanes import daily

FREE = CachePricing(read=1.0, write=1.0)
"""A provider without a cache: whatever may go, goes at once."""
EAGER: dict[str, Any] = {"economy": FREE, "mask": 2, "arguments": 80, "edit_arguments": (0, 0), **NO_CLOCKS}
SLOW = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))

PROSE = "\n".join(f"{n}. a line that says something about the number {n * 7919 % 1000}" for n in range(120))


def file_of(lines: int, seed: int = 0) -> str:
    return "\n".join(f"value_{n} = compute({n * 31 + seed}, 'name {n * 17 % 97}')" for n in range(lines))


def session(*turns: Any, **fields: Any) -> dict[str, Any]:
    """Reads of files, one after the other: path and text of each; `Edit` and a path for an edit."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look around"}]
    for number, (tool, path, text) in enumerate(turns, 1):
        call = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": {"file_path": path}}
        messages.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        messages.append({"role": "user", "content": [result]})
    return {"model": "claude-opus-4-6", "messages": messages, **fields}


def read(path: str, text: str) -> tuple[str, str, str]:
    return ("Read", path, text)


def edit(path: str) -> tuple[str, str, str]:
    return ("Edit", path, "The file was updated.")


def run(request: Any, store: Any = None, **fields: Any) -> ibidem.Compacted:
    looking = ibidem.Evict(**{"economy": FREE, **NO_CLOCKS, **fields})
    return ibidem.compact(request, strategies=[looking], store=store or MemoryStore())


def texts(request: Any) -> list[str]:
    return [
        block["content"]
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


# ── what goes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lines_that_something_refers_to_stay_in_their_places() -> None:
    """The second read says that most of it stands in the first, so these lines of the first may not go."""
    text = file_of(80)
    changed = text.replace("value_40 =", "other_40 =")
    part = "\n".join(changed.split("\n")[20:70])
    request = session(read("a.py", text), edit("a.py"), read("a.py", part), edit("b.py"))
    store = MemoryStore()
    only_when_cold = ibidem.Evict(**NO_CLOCKS, phi=0.0, mask=2)
    growing = ibidem.Session(strategies=[only_when_cold], format="anthropic", store=store)
    for length in (1, 3, 5, 7):
        before = growing.compact({**request, "messages": request["messages"][:length]}, idle=2)
    assert "unchanged, lines" in texts(before.request)[2]
    assert texts(before.request)[2].endswith(": lines 42-70]"), "the second marker rests on the first"
    found = growing.compact(request, idle=999)
    assert [point.reason for point in found.plan.points] == ["cold cache"]
    first, _, second, _ = texts(found.request)
    assert second == texts(before.request)[2]
    assert first.count("left out") == 2
    assert text.split("\n")[30] in first
    assert text.split("\n")[60] in first
    assert text.split("\n")[10] not in first
    assert ibidem.expand(found.request, store=store) == request
    assert texts(ibidem.expand(found.request))[2] == part


def test_lines_of_a_patch_that_something_refers_to_without_their_signs_stay() -> None:
    new = file_of(40).split("\n")
    old = [f"-{line}" for line in file_of(60, 3).split("\n")]
    diff = "\n".join(["diff --git a/a.py b/a.py", "@@ -1,60 +1,40 @@", *old, *(f"+{line}" for line in new)])
    request = session(("Bash", "diff", diff), read("a.py", "\n".join(new)), *(read(f"{n}", "short") for n in range(4)))
    store = MemoryStore()
    looking = ibidem.Evict(**NO_CLOCKS, economy=FREE, mask=5)
    growing = ibidem.Session(strategies=[looking], format="anthropic", store=store)
    for length in range(1, len(request["messages"]) + 1, 2):
        found = growing.compact({**request, "messages": request["messages"][:length]})
    first, second, *_ = texts(found.request)
    assert "lines 63-102 of result 1 without +" in second
    assert "62 lines left out, old]\n+value_0 = " in first
    assert ibidem.expand(found.request, store=store) == request
    assert texts(ibidem.expand(found.request))[1] == "\n".join(new)


def test_what_refers_goes_with_what_it_refers_to() -> None:
    text = file_of(80)
    changed = text.replace("value_40 =", "other_40 =")
    request = session(read("a.py", text), read("a.py", changed), *(read(f"{n}", file_of(9, n)) for n in range(4)))
    found = run(request, mask=2)
    first, second, *_ = texts(found.request)
    assert first.endswith(": 71 lines left out, the file was read again later]")
    assert second.endswith(": 80 lines left out, old]")


def test_results_before_the_last_ones_go() -> None:
    request = session(*(read(f"{n}.py", file_of(30, n)) for n in range(6)))
    found = texts(run(request, mask=2).request)
    assert ["left out" in text for text in found] == [True] * 4 + [False] * 2


def test_failed_results_stay() -> None:
    request = session(*(read(f"{n}.py", file_of(30, n)) for n in range(6)))
    request["messages"][2]["content"][0]["is_error"] = True
    assert "left out" not in texts(run(request, mask=2).request)[0]


def test_long_arguments_go_and_the_others_stay() -> None:
    request = session(*(read(f"{n}.py", "done") for n in range(7)))
    call = request["messages"][1]["content"][0]
    call["name"], call["input"] = "Write", {"file_path": "a.py", "content": PROSE, "mode": 1.50}
    store = MemoryStore()
    given = json.dumps(request)
    found = ibidem.compact(given, strategies=[ibidem.Evict(**EAGER)], store=store)
    sent = json.loads(found.request)["messages"][1]["content"][0]["input"]
    assert sent["file_path"] == "a.py"
    assert "120 lines left out" in sent["content"]
    assert '"mode": 1.5' in found.request
    assert ibidem.expand(found.request, store=store) == given


# ── when ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_warm_cache_is_left_alone_and_a_cold_one_is_used() -> None:
    request = session(*(read(f"{n}.py", file_of(60, n)) for n in range(14)))
    warm = ibidem.Session("aggressive", format="anthropic", store=MemoryStore())
    cold = ibidem.Session("aggressive", format="anthropic", store=MemoryStore())
    for length in range(1, len(request["messages"]) + 1, 2):
        part = {**request, "messages": request["messages"][:length]}
        idle = 1000 if length == 27 else 2
        assert not warm.compact(part, idle=2).plan.points
        found = cold.compact(part, idle=idle)
    assert [(point.length, point.reason) for point in found.plan.points] == [(27, "cold cache")]
    assert found.plan.points[0].rewritten == 0
    assert found.plan.points[0].removed > 100


def test_between_two_points_what_was_sent_stays_as_it_was_sent() -> None:
    """Law 3."""
    request = session(*(read(f"{n % 5}.py", file_of(40, n)) for n in range(30)))
    growing = ibidem.Session("aggressive", format="anthropic", store=MemoryStore())
    sent: list[Any] = []
    points = 0
    for length in range(1, len(request["messages"]) + 1, 2):
        part = {**request, "messages": request["messages"][:length]}
        found = growing.compact(part, idle=400 if length % 20 == 1 else 3)
        now = found.request["messages"]
        if len(found.plan.points) == points:
            assert now[: len(sent)] == sent
        else:
            first = found.plan.points[-1].first
            assert now[:first] == sent[:first]
            assert found.plan.points[-1].length == length
        sent, points = now, len(found.plan.points)
    assert points >= 2


@pytest.mark.parametrize("stop", [5, 21, 41])
def test_another_session_goes_on_from_the_state(stop: int) -> None:
    request = session(*(read(f"{n % 5}.py", file_of(40, n)) for n in range(30)))
    one = ibidem.Session("aggressive", format="anthropic", store=MemoryStore())
    other: ibidem.Session | None = None
    for length in range(1, len(request["messages"]) + 1, 2):
        part = {**request, "messages": request["messages"][:length]}
        idle = 400 if length % 20 == 1 else 3
        expected = one.compact(part, idle=idle).request
        if other is not None:
            assert other.compact(part, idle=idle).request == expected
        if length == stop:
            other = ibidem.Session("aggressive", format="anthropic", store=MemoryStore(), state=one.state())


def test_the_same_request_again_is_no_other_request() -> None:
    request = session(*(read(f"{n % 5}.py", file_of(40, n)) for n in range(12)))
    once, twice = (ibidem.Session("aggressive", format="anthropic", store=MemoryStore()) for _ in range(2))
    for length in range(1, len(request["messages"]) + 1, 2):
        part = {**request, "messages": request["messages"][:length]}
        twice.compact(part, idle=3)
        assert once.compact(part, idle=3).request == twice.compact(part, idle=9999).request


def test_a_wrong_state_gets_a_clear_message() -> None:
    for state in (b"", b"[]", b'{"moments": [7]}', b'{"moments": [["x"]]}'):
        with pytest.raises(ibidem.IbidemError, match="state of a session"):
            ibidem.Session("recoverable", state=state)


def test_the_bank_pays_only_from_what_was_saved() -> None:
    bank = SavingsBalance(CachePricing(), phi=0.5)
    assert bank.decide_revision(1000, RevisionOffer(900, 0, 1000), RequestContext()) is None
    assert bank.decide_revision(1000, RevisionOffer(900, 0, 1000), RequestContext(idle=301)) == "cold cache"
    bank.record_request(before=0, new=1000, cold=False)
    assert bank.net_savings == 1250
    assert bank.decide_revision(1000, RevisionOffer(900, 0, 1000), RequestContext()) == "it pays"
    rewritten, requests = bank.record_revision(1000, RevisionOffer(900, 0, 1000), "it pays")
    assert (rewritten, bank.net_savings) == (100, 1250 - 1.15 * 100)
    assert requests == pytest.approx(1.15 * 100 / (0.1 * 900))
    assert bank.decide_revision(1000, RevisionOffer(100, 0, 1000), RequestContext()) is None


def test_where_nothing_is_cached_everything_goes_at_once() -> None:
    assert SavingsBalance(FREE, 0.5).decide_revision(1000, RevisionOffer(50, 0, 1000), RequestContext()) == "it pays"


# ── that it comes back ──────────────────────────────────────────────────────────────────────────────────────────────


class Broken(MemoryStore):
    def put(self, session: str, originals: Any) -> None:
        raise StoreError("here", "the disk is full")


def test_what_cannot_be_kept_stays() -> None:
    request = session(*(read(f"{n}.py", file_of(30, n)) for n in range(6)))
    found = ibidem.compact(request, strategies=[ibidem.Evict(**EAGER)], store=Broken())
    assert found.request == ibidem.compact(request).request
    assert not found.plan.points


def test_a_store_that_fails_once_is_remembered_in_the_state() -> None:
    request = session(*(read(f"{n}.py", file_of(30, n)) for n in range(6)))
    broken = ibidem.Session(strategies=[ibidem.Evict(**EAGER)], store=Broken())
    sent = broken.compact(request).request
    again = ibidem.Session(strategies=[ibidem.Evict(**EAGER)], store=Broken(), state=broken.state())
    assert again.compact(request).request == sent


def test_a_text_comes_back_by_its_reference() -> None:
    store = MemoryStore()
    request = session(*(read(f"{n}.py", file_of(30, n)) for n in range(6)))
    found = run(request, store, mask=2)
    marker = texts(found.request)[0]
    ref = refs_in(marker, marker.removeprefix("[ibidem ")[:3])[0]
    assert ibidem.recall(ref, store=store) == texts(request)[0]
    assert store.places(ref) == ["the result of Read(0.py) (old)"]
    with pytest.raises(ibidem.IbidemError, match="not in the store"):
        ibidem.recall("0" * 12, store=store)


@pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
@given(data=st.data())
@SLOW
def test_everything_comes_back(format: str, data: st.DataObject) -> None:
    """Law 6, with the store; thinking in JSON text only where the text shows how its writer spells."""
    request = data.draw(testing.histories(format))
    store = MemoryStore()
    for body, thinks in ((request, True), (json.dumps(request), False)):
        looking = ibidem.Evict(**{**EAGER, "thinking": thinks})
        sent = ibidem.compact(body, strategies=[looking], format=format, store=store)
        assert sent.stats.failures == ()
        assert ibidem.expand(sent.request, format=format, store=store) == body
    sent = ibidem.compact(body, strategies=[ibidem.Evict(**EAGER)], format=format, store=store)
    assert json.loads(ibidem.expand(sent.request, format=format, store=store)) == json.loads(body)


@pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
@given(data=st.data())
@SLOW
def test_without_the_store_what_is_left_is_as_it_was(format: str, data: st.DataObject) -> None:
    """Law 5: references that stayed are true, whatever went."""
    request = data.draw(testing.histories(format))
    sent = ibidem.compact(request, strategies=[ibidem.Evict(**EAGER)], format=format, store=MemoryStore()).request
    key = FORMATS[format].history_key
    before = testing.read(request, format).messages
    after = testing.read(ibidem.expand(sent, format=format), format).messages
    assert len(before) == len(after) == len(request[key])
    for old, new in zip(before, after, strict=True):
        for was, now in zip(old.results, new.results, strict=True):
            for one, other in zip(was.segments, now.segments, strict=True):
                assert one == other or "left out" in getattr(other, "text", "")


# ── markers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=5), st.integers(1, 40))
def test_lines_that_stay_keep_their_places(stay: list[tuple[int, int]], count: int) -> None:
    lines = [f"line {n}" for n in range(count)]
    kept = [(min(first, count), min(first + length, count)) for first, length in stay]
    text = remove_lines(lines, [pair for pair in kept if pair[0] < pair[1]], EvictedMarker("123", "a" * 12, 0, "why"))
    found: list[str | None] = []
    for line in text.split("\n"):
        gone = evicted_line_count(line, "123")
        found.extend([None] * gone if gone else [line])
    assert len(found) == count
    assert all(line in (None, lines[n]) for n, line in enumerate(found))
    assert all(found[n] == lines[n] for first, last in merge_ranges(kept) for n in range(first, last))


def test_a_marker_of_another_conversation_is_text() -> None:
    marker = str(EvictedMarker("123", "a" * 12, 5, "why"))
    assert evicted_line_count(marker, "123") == 5
    assert evicted_line_count(marker, "124") == 0
    assert evicted_line_count(marker + " ", "123") == 0
    assert refs_in(marker, "123") == ["a" * 12]
    assert refs_in(marker, "124") == []


def test_a_history_that_was_looked_at_before_gets_its_arrival_edits_only() -> None:
    """Law 10."""
    request, store = session(*(read(f"{n % 3}.py", file_of(40, n)) for n in range(9))), MemoryStore()
    once = run(request, store, mask=2).request
    again = run(once, store, mask=1)
    assert again.request == once


def test_what_no_store_confirms_is_a_text_like_any_other() -> None:
    request = session(*(read(f"{n % 3}.py", file_of(40, n)) for n in range(9)))
    once = run(request, mask=2).request
    again = run(once, MemoryStore(), mask=1).request
    assert texts(again)[:7] == texts(once)[:7]
    assert "left out, old]" in texts(again)[7]


def test_a_conversation_reads_like_this() -> None:
    request = conv("u:go", "a>1", f"r1:{PROSE}", "a>2", "r2:short", "a>3", "r3:short", "a>4", "r4:short")
    found = run(request, mask=2)
    assert "120 lines left out, old]" in texts(found.request)[0]


class Named(MemoryStore):
    """Knows under which names something was put, and when one was used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.names: list[str] = []

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        self.names.append(session)
        super().put(session, originals)

    def load(self, session: str) -> bytes | None:
        self.names.append(session)
        return super().load(session)


def test_a_conversation_that_the_model_opens_is_named_after_what_the_user_says() -> None:
    store = Named()
    for name in ("one", "two"):
        turns = [{"role": "assistant", "content": "How can I help?"}, {"role": "user", "content": f"Look at {name}"}]
        request = session(read("a.py", file_of(60)), edit("a.py"))
        opened = {**request, "messages": [{"role": "system", "content": "Be brief"}, *turns, *request["messages"][1:]]}
        growing = ibidem.Session(
            strategies=[ibidem.Evict(**NO_CLOCKS, economy=FREE, mask=1)], store=store, format="anthropic"
        )
        for length in range(1, len(opened["messages"]) + 1):
            growing.compact({**opened, "messages": opened["messages"][:length]})
    assert len(set(store.names)) == 2


def test_the_same_request_again_after_a_pause_is_a_use(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [0.0]
    monkeypatch.setattr("ibidem.store.recall.time.time", lambda: hours[0] * 3600)
    store = Named()
    growing = ibidem.Session(strategies=[ibidem.Evict(**NO_CLOCKS, economy=FREE, mask=1)], store=store)
    request = session(read("a.py", file_of(60)), edit("a.py"))
    growing.compact(request)
    uses = len(store.names)
    hours[0] = 7.0
    growing.compact(request)
    assert len(store.names) == uses + 1


@pytest.mark.parametrize("way", ["a session that grows", "requests that carry the markers already"])
def test_a_conversation_in_use_keeps_what_it_let_go_however_long_ago_that_was(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store forgets what is not used, and nothing more is put into it by this one."""
    monkeypatch.setattr("ibidem.store.recall.NOTED_SECONDS", 0.0)
    days = [0.0]
    store = MemoryStore(clock=lambda: days[0] * 86_400)
    looking = ibidem.Evict(**NO_CLOCKS, economy=FREE, mask=1)
    growing = ibidem.Session(strategies=[looking], store=store)
    request = session(read("a.py", file_of(60)), edit("a.py"))
    sent = growing.compact(request).request
    assert sent != request
    for day in range(1, 40):
        days[0] = float(day)
        more = [{"role": "assistant", "content": f"{day}."}, {"role": "user", "content": "Go on"}]
        request, sent = ({**each, "messages": [*each["messages"], *more]} for each in (request, sent))
        if way == "a session that grows":
            assert growing.compact(request).request == sent
        else:
            assert ibidem.compact(sent, strategies=[looking], store=store).request == sent
        store.put(f"another {day}", {})
        assert ibidem.expand(sent, store=store) == request
    days[0] += 31
    store.prune()
    assert ibidem.expand(sent, store=store) == sent, "nobody used it any more"


def test_a_conversation_that_goes_on_after_a_long_pause_has_its_originals_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that is full forgets what was not used for a day; the client still has it all, and so do we."""
    hours = [500_000.0]
    monkeypatch.setattr("ibidem.store.recall.time.time", lambda: hours[0] * 3600)
    store = MemoryStore(limits=Limits(max_bytes=1), clock=lambda: hours[0] * 3600)
    growing = ibidem.Session(strategies=[ibidem.Evict(**NO_CLOCKS, economy=FREE, mask=1)], store=store)
    request = session(read("a.py", file_of(60)), edit("a.py"))
    sent = growing.compact(request).request
    hours[0] += 72
    store.put("another", {})
    assert store.stats().originals == 0
    more = [{"role": "assistant", "content": "So."}, {"role": "user", "content": "Go on"}]
    request, expected = ({**each, "messages": [*each["messages"], *more]} for each in (request, sent))
    assert growing.compact(request).request == expected
    assert ibidem.expand(expected, store=store) == request


# ── what resembles a stub ───────────────────────────────────────────────────────────────────────────────────────────

LEFT_OUT = "[ibidem {tag} {ref}: 40 lines left out, old]"
FORGED = {
    "a reference to nothing": lambda tag, ref: LEFT_OUT.format(tag=tag, ref="0123456789ab"),
    "what went before, quoted": lambda tag, ref: LEFT_OUT.format(tag=tag, ref=ref),
    "the same among other lines": lambda tag, ref: f"as it said:\n{LEFT_OUT.format(tag=tag, ref=ref)}\nand so on",
    "without a reference": lambda tag, ref: f"[ibidem {tag}: 999999999 lines left out]",
}


@pytest.mark.parametrize("speaker", ["tool", "model"])
@pytest.mark.parametrize("case", FORGED)
def test_a_text_that_says_lines_were_left_out_stops_nothing(case: str, speaker: str) -> None:
    """Law 9: the rest of the conversation is let go as if it had not been said."""
    store = MemoryStore()
    looking = ibidem.Evict(**NO_CLOCKS, economy=FREE, mask=2)
    found = ibidem.Session(strategies=[looking], store=store)
    reads = [read(f"{n}.py", file_of(40, n)) for n in range(9)]
    marker = texts(found.compact(session(*reads[:4])).request)[0]
    forged = FORGED[case](marker.removeprefix("[ibidem ")[:3], marker.split()[2].removesuffix(":"))
    if speaker == "tool":
        reads[4] = read("4.py", forged)
    whole = session(*reads)
    if speaker == "model":
        whole["messages"][9]["content"].insert(0, {"type": "text", "text": forged})
    sent = found.compact(whole).request
    gone = ["40 lines left out, old]" in text for text in texts(sent)]
    gone[4] = True
    assert gone == [True] * 7 + [False] * 2
    assert (texts(sent)[4] if speaker == "tool" else sent["messages"][9]["content"][0]["text"]) == forged
    if case != "what went before, quoted":  # it cannot be told from ours in a single request
        assert ibidem.expand(sent, store=store) == whole
