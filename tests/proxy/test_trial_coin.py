"""`--trial`: a coin per conversation, what each side is sent, and what is noted of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ibidem import formats
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.proxy.experiment import (
    KEY_NAME,
    AgentBehavior,
    BehaviorReader,
    RandomAssigner,
    VariantName,
    load_shared_key,
    session_in_body,
)
from ibidem.store import MemoryStore, open_store
from ibidem.store.store import JOURNAL_START, JournalPage, JournalPosition, StoreError
from ibidem.testing.scripts import Turn, build
from ibidem.usage_db import AssignedConversation, UsageDatabase
from ibidem.wire import ScannedRequest, scan
from tests.support.proxied import PATHS, Calls, Talk, dumped, growing, talk, waited_for

ARMS: tuple[VariantName, VariantName] = ("rewrite", "measure")


# ── the coin ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.5, 0.1, 0.9])
def test_it_falls_as_often_as_it_should_and_always_alike(share: float) -> None:
    names = [f"session {number}" for number in range(20_000)]
    coin = RandomAssigner(b"k" * 32, share)
    tossed = [coin.assign_name(name) for name in names]
    heads = sum(toss.arm == "rewrite" for toss in tossed) / len(names)
    assert abs(heads - share) < 4 * math.sqrt(share * (1 - share) / len(names))
    assert tossed == [RandomAssigner(b"k" * 32, share).assign_name(name) for name in names]
    assert len({toss.unit for toss in tossed}) == len(names)
    other = [RandomAssigner(b"l" * 32, share).assign_name(name).arm for name in names]
    alike = sum(toss.arm == arm for toss, arm in zip(tossed, other, strict=True)) / len(names)
    assert abs(alike - (share**2 + (1 - share) ** 2)) < 0.02, "another key is another coin"


def test_a_larger_share_takes_nobody_off_the_rewritten_side() -> None:
    less, more = RandomAssigner(b"k", 0.3), RandomAssigner(b"k", 0.6)
    assert all(
        more.assign_name(name).arm == "rewrite"
        for name in map(str, range(2000))
        if less.assign_name(name).arm == "rewrite"
    )


def test_all_who_share_a_store_toss_the_same_coin(tmp_path: Path) -> None:
    target = str(tmp_path / "store.sqlite3")
    with open_store(target) as one, open_store(target) as other:
        key = load_shared_key(one)
        assert len(key) == 32
        assert load_shared_key(other) == key
        place = one.notes(KEY_NAME).place
        assert place != JOURNAL_START
        assert not other.note(KEY_NAME, [b"mine"], JOURNAL_START).added, "who comes at the same moment brings no other"
    with open_store(target) as later:
        assert load_shared_key(later, b"mine") == key
    RandomAssigner(b"lost" * 8, 0.5).save_key(forgot := MemoryStore())
    assert load_shared_key(forgot) == b"lost" * 8, "a store that forgot it is told again"


@pytest.mark.parametrize(
    ("body", "session"),
    [
        (b'{"messages":[],"metadata":{"user_id":"user_1f_account__session_0a1b2c3d-4e5f"}}', "0a1b2c3d-4e5f"),
        (
            b'{"metadata": {"user_id": "{\\"device_id\\":\\"\\",\\"session_id\\":\\"0a1b2c3d-4e5f\\"}"}}',
            "0a1b2c3d-4e5f",
        ),
        (b'{"metadata":{"user_id":"a_session_0a1b2c3d"},"tools":[{"properties":{"metadata":{}}}]}', "0a1b2c3d"),
        (b'{"metadata":{"user_id":"somebody"}}', ""),
        (b'{"messages":["{\\"metadata\\":{\\"user_id\\":\\"a_session_0a1b2c3d\\"}}"]}', ""),
        (
            b'{"metadata":{"user_id":"a_session_0a1b2c3d"},"messages":[{"metadata":{"user_id":"b_session_99999999"}}]}',
            "0a1b2c3d",
        ),
        (b"", ""),
    ],
    ids=[
        "at the end",
        "as a field",
        "before a tool's own",
        "no session",
        "printed by a tool",
        "an argument",
        "nothing",
    ],
)
def test_a_session_may_be_told_in_the_request(body: bytes, session: str) -> None:
    assert session_in_body(body) == session


# ── what an agent does ──────────────────────────────────────────────────────────────────────────────────────────────


def history(*steps: tuple[str, dict[str, Any], bool]) -> tuple[list[Turn], Calls]:
    whole, calls = [Turn("user", "do it")], Calls()
    for number, (tool, given, failed) in enumerate(steps):
        ident = f"call_{number}"
        calls[ident] = (tool, given)
        whole += [
            Turn("assistant", None, None, [ident]),
            Turn("tool", results=[(ident, "oh no" if failed else "fine")]),
        ]
    return whole, calls


def bodies(format: str, steps: Sequence[tuple[str, dict[str, Any], bool]]) -> list[Any]:
    whole, calls = history(*steps)
    found = [build(whole[:length], format, calls) for length in range(1, len(whole) + 1, 2)]
    for body in found:
        body["tools"] = [{"name": "Read"}]
        for number, message in enumerate(body.get("messages", ())):
            step = number // 2 - 1
            if format == "anthropic" and step >= 0 and number % 2 == 0 and steps[step][2]:
                message["content"][0]["is_error"] = True
    return found


READ, PART = {"file_path": "/a.py"}, {"file_path": "/a.py", "offset": 1, "limit": 10}
EDIT = {"file_path": "/a.py", "old_string": "x", "new_string": "y"}


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses", "gemini"])
@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        ([("Read", READ, False), ("Read", PART, False)], AgentBehavior(1, 1)),
        ([("Read", PART, False), ("Read", READ, False)], AgentBehavior(1, 0)),
        ([("Read", READ, True), ("Read", READ, False)], AgentBehavior(1, 0)),
        ([("Read", READ, False), ("Edit", EDIT, False), ("Read", READ, False)], AgentBehavior(1, 0, 1)),
        ([("Read", READ, False), ("Edit", EDIT, True), ("Read", READ, False)], AgentBehavior(1, 1, 1, 1)),
    ],
    ids=["again", "the rest of it", "it failed", "after an edit", "after an edit that failed"],
)
def test_what_an_agent_does_is_counted_once(format: str, steps: list[Any], counted: AgentBehavior) -> None:
    reader, told, elsewhere = BehaviorReader(format), AgentBehavior(), AgentBehavior()
    for body in bodies(format, steps):
        scanned = scan(dumped(body))
        assert scanned is not None
        told = told.add_counts(reader.read_request(scanned))
        assert reader.read_request(scanned) == AgentBehavior(), "it is sent again"
        elsewhere = elsewhere.add_counts(
            BehaviorReader(format).read_request(scanned)
        )  # each request in another process
    assert elsewhere == told
    if format == "anthropic":
        assert told == counted
    else:  # these results do not say that something failed
        assert (told.turns, told.edits) == (1, counted.edits if formats.format_named(format).tells_failures else 0)


class Watched(ScannedRequest):
    """A request, and which of its messages were looked at."""

    def __init__(self, scanned: ScannedRequest, looked: list[int]) -> None:
        self._scanned, self._looked = scanned, looked

    def __len__(self) -> int:
        return len(self._scanned)

    @property
    def params(self) -> Mapping[str, Any]:
        return self._scanned.params

    def message_at(self, index: int) -> Any:
        self._looked.append(index)
        return self._scanned.message_at(index)


def test_what_is_known_is_not_looked_at_again() -> None:
    """Work grows with what is new, not with the history."""
    looked: list[int] = []
    reader, (*_, last) = BehaviorReader("anthropic"), bodies("anthropic", [("Read", READ, False)] * 60)
    for length in range(1, len(last["messages"]) + 1, 2):
        scanned = scan(dumped({**last, "messages": last["messages"][:length]}))
        assert scanned is not None
        reader.read_request(Watched(scanned, looked))
    assert len(looked) < 6 * len(last["messages"])


# ── through the proxy ───────────────────────────────────────────────────────────────────────────────────────────────


def named(store: Any, arm: VariantName, share: float = 0.5, but: str = "") -> str:
    """A session that falls on this side."""
    coin = RandomAssigner(load_shared_key(store), share)
    names = (f"session-{number}" for number in range(1000))
    return next(name for name in names if name != but and coin.assign_name(name).arm == arm)


def sent(talk: Talk, bodies: Sequence[Any], session: str, **more: str) -> list[bytes]:
    """What the provider gets of them."""
    known = len(talk.upstream.seen)
    for body in bodies:
        assert talk.send("anthropic", body, x_claude_code_session_id=session, **more)[0] == 200
    return [seen.body for seen in talk.upstream.seen[known:]]


def units(file: Path) -> dict[str, AssignedConversation]:
    with UsageDatabase(file) as found:
        return {each.unit: each for each in found.assigned_conversations()}


def test_one_side_is_rewritten_and_the_other_goes_as_it_came(tmp_path: Path) -> None:
    file, store = tmp_path / "gains.sqlite3", MemoryStore()
    asked = list(growing("anthropic", 6))
    plain = [dumped(body) for body in asked]
    names = {arm: named(store, arm) for arm in ARMS}
    with talk(store=store, gains=UsageWriter(file), trial=0.5) as found:
        bodies = {arm: sent(found, asked, names[arm]) for arm in ARMS}
        state = found.settled(2 * len(asked))
        counts = {arm: count_tokens(found, plain[-1], names[arm]) for arm in ARMS}
    assert bodies["measure"] == plain
    assert bodies["rewrite"] != plain
    assert len(bodies["rewrite"][-1]) < len(plain[-1])
    assert (counts["measure"], counts["rewrite"]) == (plain[-1], bodies["rewrite"][-1])
    rows = {each["arm"]: each for each in state["conversations"]}
    assert rows["measure"]["would_have_paid"] == rows["measure"]["paid"] > rows["rewrite"]["paid"]
    assert rows["rewrite"]["would_have_paid"] > rows["rewrite"]["paid"]
    assert rows["measure"]["removed"] == 0 < rows["rewrite"]["removed"]
    told = {each.arm: each for each in units(file).values()}
    assert {*told} == {*ARMS}
    for each in told.values():
        assert (each.requests, each.priced, each.share, each.profile) == (len(asked), len(asked), 0.5, "lossless")
    assert told["rewrite"].saved > 0 == told["rewrite"].could_save
    assert told["measure"].could_save > 0 == told["measure"].saved
    with UsageDatabase(file) as kept:
        assert kept.total_usage().observed == len(asked)
        assert kept.total_usage().could_save == pytest.approx(told["measure"].could_save)
        assert kept.total_usage().saved_dollars == pytest.approx(told["rewrite"].saved)
    assert not any(name.encode() in file.read_bytes() for name in (*told,) if name in names.values())


def count_tokens(talk: Talk, body: bytes, session: str) -> bytes:
    talk.ask("POST", f"{PATHS['anthropic']}/count_tokens", body, x_claude_code_session_id=session)
    return talk.upstream.seen[-1].body


def test_helpers_and_restarts_stay_on_the_side_of_their_agent(tmp_path: Path) -> None:
    file, target = tmp_path / "gains.sqlite3", str(tmp_path / "store.sqlite3")
    agent, helper = list(growing("anthropic", 6)), list(growing("anthropic", 6, first="look into it", seed=2))
    with open_store(target) as store:
        names = {arm: named(store, arm) for arm in ARMS}
    for half in (slice(0, 3), slice(3, None)):
        with talk(store=open_store(target), gains=UsageWriter(file), trial=0.5) as found:
            for bodies in (agent[half], helper[half]):
                plain = [dumped(body) for body in bodies]
                assert sent(found, bodies, names["measure"]) == plain
                rewritten = sent(found, bodies, names["rewrite"])
                assert half.start == 0 or all(map(bytes.__ne__, rewritten, plain))
            found.settled(4 * len(agent[half]))
    assert {each.arm: each.requests for each in units(file).values()} == dict.fromkeys(ARMS, 2 * len(agent))
    assert len(units(file)) == 2, "an agent and its helpers are one"


@pytest.mark.parametrize("arm", ARMS)
def test_who_does_not_name_a_session_is_known_by_how_it_begins(tmp_path: Path, arm: VariantName) -> None:
    """After a restart too; and what Claude Code names in the request counts like a header."""
    store = MemoryStore()
    coin = RandomAssigner(load_shared_key(store), 0.5)
    first = next(words for number in range(100) if _falls(store, words := f"task {number}") == arm)
    session = next(name for number in range(100) if coin.assign_name(name := f"{number:08}").arm == arm)
    asked = list(growing("anthropic", 4, first=first))
    for _ in range(2):
        with talk(store=store, trial=0.5) as found:
            for body in asked:
                found.send("anthropic", body)
            told = {"metadata": {"user_id": f"user_session_{session}"}}
            for body in growing("anthropic", 4):
                found.send("anthropic", {**body, **told})
            state = found.settled(2 * len(asked))
            assert [each["arm"] for each in state["conversations"]] == [arm, arm]
            assert (found.upstream.seen[len(asked) - 1].body == dumped(asked[-1])) == (arm == "measure")


def _falls(store: MemoryStore, words: str) -> str:
    with talk(store=store, trial=0.5) as found:
        body, *_ = growing("anthropic", 1, first=words)
        found.send("anthropic", body)
        return str(found.settled(1)["conversations"][0]["arm"])


class NoNotes(MemoryStore):
    """A store that has the key, and fails all else."""

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        if session != KEY_NAME:
            raise StoreError("the store", "is on fire")
        return super().notes(session, since)


def test_a_conversation_stays_on_its_side_whatever_becomes_of_it(tmp_path: Path) -> None:
    """What fails open counts where it was to be rewritten."""
    file, store = tmp_path / "gains.sqlite3", NoNotes()
    asked = list(growing("anthropic", 3))
    names = {arm: named(store, arm) for arm in ARMS}
    with talk(store=store, gains=UsageWriter(file), trial=0.5, profile="recoverable") as found:
        for arm in ARMS:
            assert sent(found, asked, names[arm]) == [dumped(body) for body in asked]
        state = found.settled(2 * len(asked))
    assert state["totals"]["failed_open"] == len(asked)
    coin, told = RandomAssigner(load_shared_key(store), 0.5), units(file)
    for arm in ARMS:
        each = told[coin.assign_name(names[arm]).unit]
        assert (each.arm, each.requests, each.off) == (arm, len(asked), False)


@pytest.mark.parametrize("arm", ARMS)
def test_what_is_switched_off_is_out_of_the_trial(tmp_path: Path, arm: VariantName) -> None:
    file, store = tmp_path / "gains.sqlite3", MemoryStore()
    first, *others = growing("anthropic", 4)
    name = named(store, arm)
    with talk(store=store, gains=UsageWriter(file), trial=0.5) as found:
        sent(found, [first], name)
        assert sent(found, others, name, x_ibidem="off") == [dumped(body) for body in others]
        found.settled(1 + len(others))
    [each] = units(file).values()
    assert (each.arm, each.off) == (arm, True)


def test_what_is_noted_is_what_happened(tmp_path: Path) -> None:
    file, store = tmp_path / "gains.sqlite3", MemoryStore()
    steps = [("Read", READ, False), ("Read", READ, False), ("Edit", EDIT, True), ("Edit", EDIT, False)]
    with talk(store=store, gains=UsageWriter(file), trial=0.5, json_log=str(tmp_path / "log")) as found:
        for arm in ARMS:
            sent(found, bodies("anthropic", steps), named(store, arm))
        found.settled(2 * (len(steps) + 1))
        [*lines] = waited_for(lambda: (tmp_path / "log").read_text().splitlines())
    for each in units(file).values():
        assert (each.turns, each.rereads, each.edits, each.failed_edits) == (1, 1, 2, 1)
    assert json.loads(lines[2])["trial"] | {"unit": ""} == {
        "arm": "rewrite",
        "unit": "",
        "share": 0.5,
        "profile": "lossless",
        "turns": 0,
        "rereads": 1,
        "edits": 0,
        "failed_edits": 0,
    }


def test_without_a_trial_nothing_is_tossed_or_noted(tmp_path: Path) -> None:
    file, store = tmp_path / "gains.sqlite3", MemoryStore()
    with talk(store=store, gains=UsageWriter(file)) as found:
        for body in growing("anthropic", 2):
            found.send("anthropic", body)
        state = found.settled(3)
        [conversation] = found.service.conversations._all.values()
        assert conversation.assignment is None
    assert [each["arm"] for each in state["conversations"]] == [""]
    assert not store.notes(KEY_NAME).rows
    assert units(file) == {}


def test_who_sends_its_requests_itself_takes_part_in_no_trial(tmp_path: Path) -> None:
    """What is asked to be rewritten is: nobody here learns what comes of it."""
    file, store = tmp_path / "gains.sqlite3", MemoryStore()
    (*_, body) = growing("anthropic", 6)
    with talk(store=store, gains=UsageWriter(file), trial=0.5) as found:
        for arm in ARMS:
            asked = {"x_ibidem_conversation": named(store, arm), "x_ibidem_format": "anthropic"}
            status, given = found.ask("POST", "/ibidem/v1/compact", dumped(body), **asked)
            assert (status, len(given) < len(dumped(body))) == (200, True)
    assert units(file) == {}
