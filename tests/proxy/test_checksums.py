"""A request that carries a checksum of its body (`cch` in the first system block) is sent byte for byte as it came."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

import ibidem
from ibidem.adapters.httpx import Transport
from ibidem.formats import CHECKSUM_REASON
from ibidem.live.conversation import NOTHING_SENT
from ibidem.live.types import LiveRequest, RewriteResult
from ibidem.proxy.compact_endpoint import COMPACT_PATH
from ibidem.proxy.edge.app import Proxy
from ibidem.store import MemoryStore
from ibidem.testing import Answer, Fails, Seen, Signing, Upstream
from tests.support.proxied import Talk, dumped, growing, talk
from tests.support.signed import Agent, thinks

BILLING = "x-anthropic-billing-header: cc_version=2.1.326.bc0; cc_entrypoint=sdk-cli;"
WITH_CHECKSUM = f"{BILLING} cch=34552; cc_turn_origin=sdk; cc_prompt_index=0; cc_turn_index=1;"
CODING = {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}


def system(line: str) -> list[Any]:
    return [{"type": "text", "text": line}, CODING]


def conversation(first: Any = WITH_CHECKSUM, count: int = 8) -> list[bytes]:
    """Requests of one conversation in which much is repeated."""
    given = system(first) if isinstance(first, str) else first
    return [dumped({**body, "system": given}) for body in growing("anthropic", count)]


def send_all(found: Talk, bodies: list[bytes], **headers: str) -> list[bytes]:
    """What the provider got."""
    sent = [gzip.compress(body) if "content_encoding" in headers else body for body in bodies]
    assert [found.send("anthropic", body, **headers)[0] for body in sent] == [200] * len(bodies)
    return [each.body for each in found.upstream.seen]


@pytest.mark.parametrize("profile", ["lossless", "recoverable", "codetether"])
@pytest.mark.parametrize("cache", ["off", "auto", "lifetime"])
def test_it_is_sent_as_it_came(profile: str, cache: Any) -> None:
    bodies = conversation([{"type": "text", "text": WITH_CHECKSUM}])
    with talk(profile=profile, cache_mode=cache) as found:
        assert send_all(found, bodies) == bodies
        assert found.settled(len(bodies))["totals"]["rewritten"] == 0
        (row,) = found.state["conversations"]
        assert row["paid"] == row["would_have_paid"] > 0
        line = found.proxy.stop().line()
    reason = "the client sends a checksum of the body, so they cannot be changed"
    assert line.split("; ")[0].endswith(f", nothing saved: {reason}")


def test_compressed_request_is_sent_as_it_came() -> None:
    bodies = conversation()
    with talk() as found:
        sent = send_all(found, bodies, content_encoding="gzip")
    assert [gzip.decompress(body) for body in sent] == bodies


MENTIONED: dict[str, Any] = {
    "a billing line without a checksum": system(BILLING),
    "in a later block": [CODING, {"type": "text", "text": WITH_CHECKSUM}],
    "in a later line": f"You are a coding agent.\n{WITH_CHECKSUM}",
    "below a billing line without one": f"{BILLING}\nWhat does cch=34552; mean?",
    "in a value of another field": system(f"{BILLING} cc_note=cch=1;"),
    "in a field of another name": system(f"{BILLING} cc_cch=1;"),
    "in another text": system("What does cch=34552; mean?"),
    "in no text": [{"type": "image", "source": WITH_CHECKSUM}],
    "in nothing": [],
}


@pytest.mark.parametrize("case", MENTIONED)
def test_text_that_only_mentions_it_does_not_stop_rewriting(case: str) -> None:
    body = dumped({**json.loads(conversation()[-1]), "system": MENTIONED[case]})
    assert b"[ibidem " in ibidem.compact(body).request
    assert b"[ibidem " in ibidem.Session().compact(body).request


def test_user_who_writes_about_it_does_not_stop_rewriting() -> None:
    """As the first words, through the proxy, with the line of a client that sends none."""
    bodies = [dumped({**body, "system": system(BILLING)}) for body in growing("anthropic", 8, first=WITH_CHECKSUM)]
    with talk() as found:
        assert b"[ibidem " in send_all(found, bodies)[-1]


@pytest.mark.parametrize(
    "given",
    [system(WITH_CHECKSUM), WITH_CHECKSUM, f"{BILLING} cch=00000;\nYou are …"],
    ids=["in a block", "in a string", "in the first line, with the value that Claude Code sends to Vertex"],
)
def test_library_returns_it_with_the_reason(given: Any) -> None:
    body = {**json.loads(conversation()[-1]), "system": given}
    for request in (body, dumped(body), dumped(body).decode()):
        for found in (ibidem.compact(request, cache="auto"), ibidem.Session(cache="auto").compact(request)):
            assert found.request is request
            assert (found.plan.edits, found.reason) == ((), CHECKSUM_REASON)


def test_size_is_asked_of_what_would_be_sent() -> None:
    body = conversation()[-1]
    with talk(strict=False) as found:
        found.ask("POST", "/v1/messages/count_tokens", body)
        assert [each.body for each in found.upstream.seen] == [body]
        assert found.settled(1)["totals"]["failed_open"] == 0


def test_compact_endpoint_returns_it_with_the_reason() -> None:
    """However often its client says that the provider rejected it."""
    agent = Agent(system=system(WITH_CHECKSUM))
    with talk() as found:
        for turn in range(8):
            answer = httpx.post(f"{found.proxy.url}{COMPACT_PATH}", content=agent.request)
            assert (answer.content, answer.headers["x-ibidem-reason"]) == (agent.request, CHECKSUM_REASON)
            for rejections in "12":
                assert found.ask("POST", COMPACT_PATH, agent.request, x_ibidem_rejected=rejections)[1] == agent.request
            block = {"type": "thinking", "thinking": "…", "signature": "s"}
            agent.hear([block, {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {}}])


@pytest.mark.parametrize("session", [None, ibidem.Session()], ids=["conversations", "one session"])
def test_transport_of_a_client_sends_it_as_it_came(session: ibidem.Session | None) -> None:
    bodies = conversation()
    with Upstream() as upstream, httpx.Client(transport=Transport(session=session)) as client:
        for body in bodies:
            client.post(f"{upstream.url}/v1/messages", content=body, headers={"content-type": "application/json"})
    assert [each.body for each in upstream.seen] == bodies


# ── conversations that were rewritten before, or are rewritten later ────────────────────────────────────────────────


def test_conversation_that_was_rewritten_goes_on_unchanged() -> None:
    """If the provider does not mind, later requests without a checksum start as the last one was sent."""
    plain, signed = conversation(BILLING, 14), conversation(count=14)
    with talk() as found:
        send_all(found, [*plain[:6], *signed[6:10], *plain[10:]])
        sent = [each.body for each in found.upstream.seen]
        assert len(found.settled(len(sent))["conversations"]) == 1
    assert b"[ibidem " in sent[5]
    assert sent[6:10] == signed[6:10]
    assert b"[ibidem " in sent[-1]
    last = json.loads(signed[9])["messages"]
    for body in sent[10:]:
        assert json.loads(body)["messages"][: len(last)] == last


def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_: Any) -> RewriteResult:
        return RewriteResult(result="failed open", reason="time-out", seconds=1e9)

    monkeypatch.setattr(Proxy, "_rewrite_in_time", late)


def restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent is worked out from the history."""

    async def failed(proxy: Proxy, job: LiveRequest) -> RewriteResult:
        job.decoded_body = job.body
        found = proxy.conversations.find_conversation(job.key, job.body)
        assert found is not None
        found.conversation.history, found.conversation.is_remote = NOTHING_SENT, True
        return RewriteResult(result="failed open", reason="store", conversation=found.conversation)

    monkeypatch.setattr(Proxy, "_rewrite_in_time", failed)


def switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the header that is sent with it."""


@pytest.mark.parametrize("fault", [busy, restarted, switched_off])
def test_fallback_leaves_it_alone(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier requests sent is known, and would be sent again for a request without a checksum."""
    plain, signed = conversation(BILLING, 9), conversation(count=9)
    with talk() as found:
        send_all(found, plain[:8])
        found.settled(8)
        fault(monkeypatch)
        headers = {"x_ibidem": "off"} if fault is switched_off else {}
        assert b"[ibidem " in send_all(found, [plain[8]], **headers)[-1]
        assert send_all(found, [signed[9]], **headers)[-1] == signed[9]


def rewritten_first(found: Talk, agent: Agent) -> None:
    """A conversation whose thinking is signed against what was rewritten."""
    agent.body["system"] = system(BILLING)
    assert [agent.ask(found) for _ in range(8)] == [200] * 8
    assert b"[ibidem " in found.upstream.seen[-1].body


def test_client_gets_the_rejection_of_its_own_body_and_no_other_body_is_sent() -> None:
    """Its thinking was signed against what was rewritten; without the checksum it goes on as before."""
    agent = Agent(thinking={"type": "adaptive"})
    with talk(Signing(thinks)) as found:
        rewritten_first(found, agent)
        agent.body["system"] = system(WITH_CHECKSUM)
        status, answer = found.send("anthropic", agent.request)
        assert (status, b"another beginning" in answer) == (400, True)
        assert [each.body for each in found.upstream.seen[8:]] == [agent.request]
        agent.body["system"] = system(BILLING)
        assert [agent.ask(found) for _ in range(3)] == [200] * 3
        assert len(found.upstream.seen) == 12


def test_transport_sends_no_other_body_after_a_rejection() -> None:
    agent = Agent(thinking={"type": "adaptive"})
    script = Signing(thinks)
    with Upstream(script) as upstream, httpx.Client(transport=Transport()) as client:

        def ask() -> httpx.Response:
            headers = {"content-type": "application/json"}
            return client.post(f"{upstream.url}/v1/messages", content=agent.request, headers=headers)

        agent.body["system"] = system(BILLING)
        for _ in range(8):
            agent.hear(ask().json()["content"])
        assert b"[ibidem " in upstream.seen[-1].body
        agent.body["system"] = system(WITH_CHECKSUM)
        assert ask().status_code == 400
        assert [each.body for each in upstream.seen[8:]] == [agent.request]


def test_thinking_that_was_dropped_stays_in_it() -> None:
    """The conversation goes on without thinking that its provider rejected, but not in a body with a checksum."""
    agent = Agent(thinking={"type": "adaptive"})

    def script(seen: Seen) -> Answer:
        drops = "block_binding" in seen.json["thinking"]
        if len(seen.json["messages"]) == 13 and not drops:
            return Fails(400, message="thinking: another beginning")
        return thinks(seen)

    with talk(script, store=MemoryStore()) as found:
        assert [agent.ask(found) for _ in range(8)] == [200] * 8
        assert b'"signature"' not in b"".join(json.dumps(each).encode() for each in _first(found, 13))
        agent.body["system"] = system(WITH_CHECKSUM)
        assert agent.ask(found) == 200
        assert found.upstream.seen[-1].body == agent.came[-1]


def _first(found: Talk, count: int) -> list[Any]:
    """Messages of the last request that the provider got."""
    messages: list[Any] = json.loads(found.upstream.seen[-1].body)["messages"]
    return messages[: count - 1]
