"""Off, and on again: what the provider has stays as it was sent, what is new goes as it came; then again not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import rules, testing
from ibidem.engine import journal
from ibidem.formats import FORMATS
from ibidem.live.fallback import fall_back, rebuild_sent_prefix
from ibidem.live.live import Rewriter
from ibidem.live.policy import MAX_NAMES, PauseMode, PauseState, parse_pause_header
from ibidem.live.recognition import Conversations
from ibidem.live.types import LiveRequest, RewriteResult
from ibidem.providers.headers import build_upstream_headers
from ibidem.store import MemoryStore, Store
from ibidem.testing import Says, Signing
from ibidem.testing.laws import read
from ibidem.wire.request_scan import scan
from tests.support.evict import EAGER_PROFILE
from tests.support.lanes import daily
from tests.support.proxied import Clock, Talk, dumped, growing, talk
from tests.support.signed import Agent, history, thinks

PROFILES = ["lossless", "recoverable"]
WISHES: dict[bool, PauseMode] = {True: "off", False: "on"}
SLOW = settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))


# ── any growing conversation, switched at any turns ─────────────────────────────────────────────────────────────────


class Line:
    """The way of a conversation through the proxy, without sockets."""

    def __init__(self, format: str, profile: str, most: int = 100, store: Store | None = None) -> None:
        self.format, self.store = format, store or MemoryStore()
        self.conversations = Conversations(profile, self.store, most, 2**30)
        self.rewriter = Rewriter(self.conversations, observe=False, max_body=2**30)
        self.at = 1_750_000_000.0
        self.settles = True
        """Else that is left to the next request, as where there is no time for it."""

    def sent(
        self, body: bytes, wish: PauseMode | None = None, taken: bool = True, pause: float = 5.0
    ) -> tuple[RewriteResult, bytes]:
        """What becomes of a request, and what its provider gets."""
        self.at += pause
        job = LiveRequest(self.format, "", "", body, self.at, pause_mode=wish)
        found = self.rewriter.rewrite_request(job)
        assert found.result != "failed open", found.reason
        if found.result == "off":
            known = fall_back(self.conversations, job, found)
            found = rebuild_sent_prefix(self.conversations, job, known) or known
        if taken and found.conversation is not None:
            found.conversation.record_accepted(found.sent_request, found.unreported_send)
            if self.settles:
                self.conversations.apply_inbox(found.conversation)
                self.conversations.save_journal(found.conversation)
        return found, body if found.body is None else found.body


def spelled(body: bytes) -> bytes:
    """All messages, to the byte; nothing for what only a tolerant parser takes."""
    found = scan(body)
    spans = found.scan_state.spans if found is not None and found.scan_state is not None else ()
    return body[spans[0][0] : spans[-1][1]] if spans else b""


def said(body: bytes, format: str = "anthropic") -> list[Any]:
    """All messages, as they are meant."""
    found: list[Any] = json.loads(body)[FORMATS[format].history_key] if body else []
    return found


def goes_on(sent: bytes, before: bytes, format: str = "anthropic") -> None:
    """It begins as the one before did."""
    last = said(before, format)
    assert said(sent, format)[: len(last)] == last, "what the provider has stays as it was sent"
    if before and spelled(before) and spelled(sent):
        assert spelled(sent).startswith(spelled(before)), "to the byte"


def adds_only_what_came(sent: bytes, before: bytes, came: bytes, format: str = "anthropic") -> None:
    known = len(said(before, format))
    assert said(sent, format)[known:] == said(came, format)[known:], "what is new goes as it came"


def asked_at(request: Any, format: str) -> list[int]:
    """Messages of each request that led to this one: the model was asked wherever it spoke, and at the end."""
    roles = [message.role for message in read(request, format).messages]
    starts = [at for at in range(1, len(roles)) if roles[at] == "assistant" != roles[at - 1]]
    return [*starts, len(roles)]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
@given(data=st.data())
@SLOW
def test_the_laws_hold_whenever_it_is_switched(format: str, profile: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    key = FORMATS[format].history_key
    line, off, last = Line(format, profile), False, b""
    for length in asked_at(request, format):
        line.settles = data.draw(st.booleans())
        body = json.dumps({**request, key: request[key][:length]}).encode()
        asked: PauseMode | None = data.draw(st.sampled_from([None, None, "off", "on"]))
        off = off if asked is None else asked == "off"
        if data.draw(st.booleans()):
            line.sent(body, data.draw(st.sampled_from([None, "off", "on"])), taken=False)  # it got lost
            asked = WISHES[off]
        outcome, sent = line.sent(body, asked, pause=data.draw(st.sampled_from([5.0, 4000.0])))
        assert (outcome.result == "off") is off
        back = ibidem.expand(sent, format=format, store=line.store)
        assert back == body or (profile != "lossless" and json.loads(back) == json.loads(body))
        if not rules.violations(read(body.decode(), format)):
            assert not rules.violations(read(sent.decode(), format))
        if off or profile == "lossless":
            goes_on(sent, last, format)
        if off:
            adds_only_what_came(sent, last, body, format)
        assert line.sent(body, pause=0.0)[1] == sent, "sent again, it is the same"
        last = sent


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_new_is_rewritten_again_once_it_is_on(profile: str) -> None:
    line, bodies = Line("anthropic", profile), [dumped(each) for each in growing("anthropic", 20)]
    saved = []
    for turn, body in enumerate(bodies):
        _, sent = line.sent(body, {6: "off", 12: "on"}.get(turn))  # type: ignore[arg-type]
        saved.append(len(body) - len(sent))
    assert 0 < saved[5] == saved[6] == saved[11] < saved[-1]
    assert Line("anthropic", profile).sent(bodies[-1])[1] != sent, "what went as it came is not rewritten later"


@pytest.mark.parametrize("profile", ["codetether", "devboy"])
def test_a_profile_that_follows_no_conversation_goes_as_it_came(profile: str) -> None:
    line, bodies = Line("anthropic", profile), [dumped(each) for each in growing("anthropic", 8)]
    for turn, body in enumerate(bodies):
        outcome, sent = line.sent(body, "off" if turn == 4 else None)
        assert turn < 4 or (outcome.result, sent) == ("off", body)


def test_a_conversation_that_is_off_costs_what_is_new_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not worked through again with every request."""
    calls: list[int] = []
    replay = Conversations.replay_prefix
    monkeypatch.setattr(Conversations, "replay_prefix", lambda *given: calls.append(1) or replay(*given))  # type: ignore[func-returns-value]
    line = Line("anthropic", "lossless")
    for turn, body in enumerate(dumped(each) for each in growing("anthropic", 30)):
        line.sent(body, "off" if turn == 10 else None)
    assert len(calls) <= 1


# ── which are off ───────────────────────────────────────────────────────────────────────────────────────────────────


def cut(body: Any, messages: int, **more: Any) -> bytes:
    return dumped({**body, "messages": body["messages"][:messages], **more})


def test_a_branch_of_one_that_is_off_is_off_and_another_run_of_its_prompt_is_not() -> None:
    line, bodies = Line("anthropic", "lossless"), list(growing("anthropic", 6))
    for body in bodies:
        line.sent(dumped(body), "off")
    fork = {**bodies[-1], "messages": [*bodies[-1]["messages"][:7], {"role": "user", "content": "another way"}]}
    outcome, _ = line.sent(dumped(fork))
    assert outcome.result == "off"
    assert outcome.conversation is not None
    assert (outcome.conversation.id, outcome.conversation.parent) == ("c2", "c1")
    assert line.sent(cut(bodies[-1], 1))[0].result != "off"


def test_one_that_was_let_go_comes_back_as_it_was() -> None:
    line = Line("anthropic", "lossless", most=1)
    one, other = list(growing("anthropic", 6)), list(growing("anthropic", 6, seed=2, first="something else"))
    sent = [line.sent(dumped(body), "off" if turn == 3 else None)[1] for turn, body in enumerate(one[:5])]
    line.sent(dumped(other[0]))
    outcome, now = line.sent(dumped(one[5]))
    assert outcome.result == "off"
    goes_on(now, sent[-1])  # the store has a note of it


def test_what_is_remembered_is_bounded() -> None:
    switch = PauseState()
    for number in range(MAX_NAMES + 5):
        switch.record_evicted(f"n{number}", off=True)
    switch.record_evicted("on", off=False)
    assert len(switch._paused_names) == MAX_NAMES
    assert switch.starts_off(f"n{MAX_NAMES}", has_history=True, parent_off=False)
    assert not switch.starts_off("n0", has_history=True, parent_off=False)
    assert not switch.starts_off(f"n{MAX_NAMES}", has_history=False, parent_off=True)
    switch.set_all(off=False)
    assert not switch.starts_off(f"n{MAX_NAMES}", has_history=True, parent_off=False)


@pytest.mark.parametrize(("value", "found"), [("off", "off"), (" ON ", "on"), ("", None), ("of", None), ("0", None)])
def test_what_a_header_says(value: str, found: PauseMode | None) -> None:
    assert parse_pause_header(value) == found


# ── through a proxy ─────────────────────────────────────────────────────────────────────────────────────────────────


def turned(found: Talk, way: str, asked: Any, **headers: str) -> tuple[int, Any]:
    status, answer = found.ask("POST", f"/ibidem/api/{way}", dumped(asked), **headers)
    return status, json.loads(answer)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_provider_that_signs_thinking_takes_all_of_it(profile: str) -> None:
    script, agent = Signing(thinks), Agent()
    with talk(script, profile=profile) as found:
        for turn in range(18):
            if turn in (6, 12):
                way = "off" if turn == 6 else "on"
                assert turned(found, way, {"conversation": "c1"})[0] == 200
            assert agent.ask(found) == 200
            if 6 <= turn < 12:
                before, now = (history(seen.body) for seen in found.upstream.seen[-2:])
                assert now == [*before, *history(agent.came[-1])[len(before) :]]
        assert script.refused == 0
        state = found.settled(18)
        assert state["totals"]["failed_open"] == 0
        rows = found.page("conversation/c1")["exchanges"]
        assert [row["outcome"] for row in rows[6:12]] == ["off"] * 6
        assert all(row["conversation"] == "c1" and row["edits"] for row in rows[6:])
        assert rows[-1]["edits"] > rows[11]["edits"] == rows[5]["edits"]
        assert rows[-1]["removed"] > rows[11]["removed"] > 0
        sent = found.upstream.seen[-1].body
        assert ibidem.expand(sent, store=found.service.store) == agent.came[-1]
        texts = [(event["kind"], event["text"], event["conversation"]) for event in state["events"]]
        assert texts == [("switch", "resumed", "c1"), ("switch", "paused", "c1")]


def test_a_revision_does_not_happen_while_it_is_off() -> None:
    clock, agent = Clock(), Agent(outputs=30, lines=90)
    with talk(thinks, profile=EAGER_PROFILE, clock=clock) as found:
        for turn in range(16):
            clock.now += 4000 if turn in (10, 13, 15) else 10
            assert (
                agent.ask(found, **({"x_ibidem": "off"} if turn == 9 else {"x_ibidem": "on"} if turn == 14 else {}))
                == 200
            )
            found.settled(turn + 1)
            if 9 <= turn < 14:
                before, now = (history(seen.body) for seen in found.upstream.seen[-2:])
                assert now[: len(before)] == before
        assert found.state["totals"]["breaks"] == {"cold cache": 1}, "the pause after it is on again"


def test_all_of_them_and_those_to_come() -> None:
    agents = [Agent(f"do it, {number}") for number in range(3)]
    with talk(thinks) as found:
        for agent in agents[:2]:
            for _ in range(6):
                agent.ask(found)
        status, told = turned(found, "off", {"all": True})
        assert (status, told["all_off"], told["off"]) == (200, True, ["c1", "c2"])
        for agent in agents:
            for _ in range(6):
                agent.ask(found)
        state = found.settled(30)
        assert (state["all_off"], sorted(state["off"])) == (True, ["c1", "c2", "c3"])
        assert found.upstream.seen[-1].body == agents[2].came[-1], "it began when all was off"
        assert turned(found, "on", {"conversation": "c3"})[1]["off"] == ["c1", "c2"]
        status, told = turned(found, "on", {"all": True})
        assert (told["all_off"], told["off"]) == (False, [])
        before = [each["removed"] for each in found.page("conversation/c3")["exchanges"]]
        for _ in range(6):
            agents[2].ask(found)
        assert found.settled(36)["totals"]["failed_open"] == 0
        after = [each["removed"] for each in found.page("conversation/c3")["exchanges"]]
        assert (max(before), after[-1] > 0) == (0, True)


def test_a_header_switches_from_its_request_on_and_goes_nowhere_else() -> None:
    agent = Agent()
    with talk(thinks) as found:
        for turn in range(14):
            told = {5: "off", 10: "On "}.get(turn)
            agent.ask(found, **({"X_Ibidem": told} if told else {}))
        found.settled(14)
        outcomes = [row["outcome"] for row in found.page("conversation/c1")["exchanges"]]
        assert [place for place, each in enumerate(outcomes) if each == "off"] == [5, 6, 7, 8, 9]
        assert not any(seen.header("x-ibidem") for seen in found.upstream.seen)
    kept, _ = build_upstream_headers([("X-Ibidem", "off"), ("Upgrade", "websocket"), ("a", "b")], None, is_upgrade=True)
    assert [name for name, _ in kept] == ["Upgrade", "a"]


def test_what_only_asks_for_a_size_is_told_that_of_what_would_be_sent() -> None:
    agent = Agent()
    with talk(thinks, strict=False) as found:
        for _ in range(8):
            agent.ask(found)
        turned(found, "off", {"conversation": "c1"})
        found.ask("POST", "/v1/messages/count_tokens", agent.request)
        counted = history(found.upstream.seen[-1].body)
        agent.ask(found)
        assert counted == history(found.upstream.seen[-1].body)
        assert len(dumped(counted)) < len(dumped(history(agent.came[-1])))


def test_a_request_that_is_refused_is_sent_as_it_came() -> None:
    """Off or not, what was rewritten may be in the way."""
    agent = Agent()

    def script(seen: Any) -> Any:
        if b"[ibidem " in seen.body and b"seen at 7" in seen.body:
            return testing.Fails(400)
        return thinks(seen)

    with talk(script) as found:
        for turn in range(10):
            assert agent.ask(found, **({"x_ibidem": "off"} if turn == 7 else {})) == 200
        state = found.settled(10)
        assert state["totals"]["resent"] >= 1
        assert found.upstream.seen[-1].body == agent.came[-1]


# ── who may, and how it is asked ────────────────────────────────────────────────────────────────────────────────────

ASKED: dict[str, tuple[bytes, str, int]] = {
    "no JSON": (b"off", "application/json", 400),
    "nothing": (b"", "application/json", 400),
    "nested deeply": (b"[" * 2000, "application/json", 400),
    "a list": (b"[1]", "application/json", 400),
    "an empty name, which all begin with": (b'{"conversation": ""}', "application/json", 400),
    "a number": (b'{"conversation": 1}', "application/json", 400),
    "not all": (b'{"all": false}', "application/json", 400),
    "both": (b'{"all": true, "conversation": "c1"}', "application/json", 400),
    "one that is not there": (b'{"conversation": "c7\\u001b[31m"}', "application/json", 404),
    "several": (b'{"conversation": "c"}', "application/json", 409),
    "a number for true": (b'{"all": 1}', "application/json", 400),
    "a form": (b'{"all": true}', "application/x-www-form-urlencoded", 415),
    "plain text, as other sites can send": (b'{"all": true}', "text/plain", 415),
    "too much": (b'{"all": true, "x": "' + b"x" * 5000 + b'"}', "application/json", 413),
}


@pytest.mark.parametrize(("body", "kind", "status"), ASKED.values(), ids=ASKED)
def test_what_is_no_such_request_changes_nothing(body: bytes, kind: str, status: int) -> None:
    with talk() as found:
        for number in range(2):
            found.send("anthropic", next(growing("anthropic", 1, first=f"go {number}")))
        answered, answer = found.ask("POST", "/ibidem/api/off", body, content_type=kind)
        assert answered == status, answer
        told = json.loads(answer)["error"]
        assert told.isprintable()
        assert (found.state["all_off"], found.state["off"]) == (False, [])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"host": "evil.example"},
    ],
    ids=str,
)
def test_another_site_may_not(headers: dict[str, str]) -> None:
    with talk() as found:
        assert found.ask("POST", "/ibidem/api/off", b'{"all": true}', **headers)[0] == 403
        assert found.state["all_off"] is False


def test_nor_who_has_no_token_and_asking_changes_nothing() -> None:
    with talk(token="secret") as found:
        asked: Callable[..., Any] = found.ask
        for way in ("GET", "HEAD", "PUT", "DELETE"):
            status, _ = asked(way, "/ibidem/api/off?all=true", x_ibidem_token="secret")
            assert status in (404, 405), way
        assert asked("POST", "/ibidem/api/off", b'{"all": true}')[0] == 401
        assert asked("POST", "/ibidem/api/off", b'{"all": true}', x_ibidem_token="other")[0] == 401
        told = json.loads(asked("GET", "/ibidem/api/state", x_ibidem_token="secret")[1])
        assert told["all_off"] is False
        assert asked("POST", "/ibidem/api/off?token=secret", b'{"all": true}')[0] == 200


def test_where_nothing_is_rewritten_there_is_nothing_to_switch() -> None:
    agent = Agent()
    with talk(thinks, observe=True) as found:
        for _ in range(6):
            agent.ask(found, x_ibidem="off")
        status, told = turned(found, "off", {"all": True})
        assert (status, "observes" in told["error"]) == (409, True)
        found.settled(6)
        assert {row["outcome"] for row in found.page("conversation/c1")["exchanges"]} == {"observed"}


# ── the front door ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", ["/", "/?token=secret&x=1"])
def test_a_browser_that_asks_for_the_root_is_led_to_the_page(target: str) -> None:
    with talk(lambda _: Says("ok"), strict=False) as found:
        parts = found.proxy.url.removeprefix("http://")
        status, _ = found.ask("GET", target, accept="text/html,application/xhtml+xml", host=parts)
        assert status == 302
        assert not found.upstream.seen
        assert found.ask("GET", target, accept="text/html", host="evil.example")[0] == 403
        found.ask("GET", target, accept="application/json")
        found.ask("GET", "/v1/models", accept="text/html")
        assert len(found.upstream.seen) == 2, "what a client asks for goes to its provider"


def test_it_carries_nothing_there() -> None:
    from ibidem.proxy.page.admin_pages import redirect_browser

    found = redirect_browser("GET", "/?token=secret", {"accept": "text/html"})
    assert found is not None
    assert found.headers["Location"] == "/ibidem"
    assert "secret" not in str(found)
    assert redirect_browser("POST", "/", {"accept": "text/html"}) is None
    assert redirect_browser("GET", "/v1/models", {"accept": "text/html"}) is None


# ── what another edition began ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("profile", PROFILES)
def test_a_conversation_of_another_edition_goes_on_as_it_was_sent(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notes are in the store. What was sent stays, as far as can be told; new things go as they came."""
    store, bodies = MemoryStore(), [dumped(each) for each in growing("anthropic", 20)]

    with monkeypatch.context() as patch:
        patch.setattr(journal, "SENT_EDITION", 7)
        other = Line("anthropic", profile, store=store)
        for turn, body in enumerate(bodies[:10]):
            _, sent = other.sent(body, {3: "off", 4: "on"}.get(turn))  # type: ignore[arg-type]
    ours = Line("anthropic", profile, store=store)
    for body in bodies[10:]:
        before = sent
        outcome, sent = ours.sent(body)
        assert outcome.result == "rewritten"
        goes_on(sent, before)
        adds_only_what_came(sent, before, body)
        assert ibidem.expand(sent, store=store) == body
    again = Line("anthropic", profile, store=store)
    assert again.sent(bodies[-1])[1] == sent, "after a restart too"
