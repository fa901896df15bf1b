"""Whatever the provider accepts directly, it accepts through Ibidem: random worlds, and the known cases one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ibidem.live.recognition import BACKGROUND_SECONDS
from ibidem.store.guarded import FIRST_PAUSE
from ibidem.testing import Answer, Calls, Says, Seen
from tests.support.proxied import text
from tests.support.world_client import (
    CLEARING,
    DISGUISED_MODEL,
    EARLY_CLEARING,
    PLAIN_MODEL,
    SIGNING_MODEL,
    Branch,
    Client,
)
from tests.support.world_oracle import FAILURES
from tests.support.world_provider import Provider
from tests.support.world_proxies import PROFILES
from tests.support.world_store import Fault
from tests.support.worlds import HURRIED_MS, LATE_SECONDS, World, run_worlds

CHUNK, CHUNKS, SHORT = 10, 5, 12
"""Worlds of a test, tests of a profile, and steps of a world: 200 worlds in all. `tests_slow` has longer ones."""
BOTH = ["lossless", "recoverable"]
BUSY_SECONDS = 1.0
"""Seconds that a busy machine may add to any time."""
LOOP = 12
"""Requests until the agent of a known case waits for its user."""
PAUSE = 4200.0
"""Seconds after which the provider has nothing in its cache: a revision costs nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("profile", PROFILES)
def test_random_worlds(profile: str, chunk: int) -> None:
    found = run_worlds(profile, 1000 + CHUNK * chunk, CHUNK, SHORT)
    assert found.counts["worlds"] == CHUNK
    assert found.counts["requests"] > CHUNK * SHORT
    told = "\n\n".join(result.told for result in found.failed)
    assert {name: found.counts[name] for name in FAILURES} == dict.fromkeys(FAILURES, 0), told


# ── known cases ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Reader(Client):
    """An agent whose tools give the same outputs again and again, with another last line."""

    def __init__(self, outputs: int, lines: int) -> None:
        super().__init__(random.Random(1))
        self._outputs = [text(self.rng, lines) for _ in range(outputs)]
        self._given = 0

    def output(self) -> str:
        self._given += 1
        return f"{self._outputs[self._given % len(self._outputs)]}\n# seen at {self._given}"


class Reading(Provider):
    """Reads one file after the other, and then waits for the user."""

    def speak(self, seen: Seen) -> Answer:
        turn = len(seen.json["messages"])
        if turn == 2 * LOOP - 1:
            return Says("That is done.")
        return Calls(("Read", {"file_path": f"/src/{turn}.py"}), says=f"I look at it, {turn}.")


@contextmanager
def world(profile: str, *, outputs: int = 3, lines: int = 20, **options: Any) -> Iterator[World]:
    """A world whose steps the test writes. At its end all requests have been accepted, and everything restored."""
    found = World(profile, 1, **options)
    found.client, found.provider = Reader(outputs, lines), Reading(1)
    with found.running():
        yield found
    assert not found.oracle.failures, "\n".join(found.trace)


def grown(found: World, model: str = SIGNING_MODEL, turns: int = 10) -> Branch:
    """A conversation that was rewritten."""
    branch = found.begin(model)
    rows = [each.row for each in found.talk(branch, turns)]
    assert any(row is not None and row["outcome"] == "rewritten" for row in rows), "\n".join(found.trace)
    return branch


def revised(found: World, model: str = DISGUISED_MODEL) -> Branch:
    """A conversation whose earlier messages were changed some requests ago, which the provider took."""
    branch = found.begin(model)
    found.talk(branch, LOOP)
    found.clock.now += PAUSE
    rows = [each.row for each in found.talk(branch, 4)]
    assert any(row is not None and row["revision"] for row in rows), "\n".join(found.trace)
    return branch


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", [SIGNING_MODEL, DISGUISED_MODEL, PLAIN_MODEL])
@pytest.mark.parametrize("profile", BOTH)
def test_native_clearing_that_is_switched_on_later_changes_nothing(profile: str, model: str) -> None:
    with world(profile) as found:
        branch = grown(found, model)
        branch.fields["context_management"] = CLEARING
        found.talk(branch, 4)
        assert found.counts["rejections"] == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", [SIGNING_MODEL, DISGUISED_MODEL])
def test_conversation_continues_after_the_store_was_deleted(model: str) -> None:
    with world("recoverable", outputs=30, lines=90) as found:
        branch = revised(found, model)
        found.oracle.store_lost = True
        found.oracle.lose_notes(found.branches)
        found.store.forget_all()
        found.replicas[0].restart()
        found.talk(branch, 8)


@pytest.mark.parametrize("profile", BOTH)
def test_time_out_after_a_restart_is_waited_for(profile: str) -> None:
    """The request as it came would be rejected, so the rewritten one is worth the wait."""
    with world(profile, hurried=True) as found:
        branch = grown(found)
        found.replicas[0].restart()
        found.slowness.seconds = LATE_SECONDS
        found.talk(branch, 1)
        assert not found.slowness.seconds, "nothing was slow"
        found.talk(branch, 3)
        assert found.counts["without thinking"] == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["off", "failing"])
@pytest.mark.parametrize("profile", ["recoverable", "aggressive"])
def test_rewound_branch_is_sent_as_it_was_before_the_revision(profile: str, way: str) -> None:
    with world(profile, outputs=30, lines=90) as found:
        branch = revised(found)
        replica = found.replicas[0]
        if way == "off":
            assert replica.switch("off", None) == 200
        else:
            replica.link.own.arm(Fault("fail", calls=4))
        branch.cut(branch.places()[6], "no, not so")
        found.talk(branch, 1)
        replica.link.own.arm(None)
        found.talk(branch, 3)
        assert found.counts["without thinking"] == 0
        assert way == "failing" or found.counts["rejections"] == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("profile", BOTH)
def test_store_that_hangs_holds_up_few_requests(profile: str) -> None:
    with world(profile, hurried=True, replicas=2, store_pause=FIRST_PAUSE) as found:
        branch = grown(found)
        found.oracle.lose_notes(found.branches)
        found.calls.arm(Fault("hang", calls=1000, seconds=LATE_SECONDS))
        seconds = [each.seconds for each in found.talk(branch, 16)]
        assert max(seconds) < BUSY_SECONDS + HURRIED_MS / 1e3, "longer than the budget"
        assert profile != "lossless" or sum(each > 0.5 * HURRIED_MS / 1e3 for each in seconds) <= 4
        assert found.calls.hits, "the store was not asked"


@pytest.mark.parametrize("profile", BOTH)
def test_two_proxies_that_differ_in_off_send_the_same_prefix(profile: str) -> None:
    with world(profile, replicas=2) as found:
        branch = grown(found)
        assert found.replicas[0].switch("off", branch.conversation[found.replicas[0].run]) == 200
        found.talk(branch, 8)
        assert found.counts["rejections"] == 0


@pytest.mark.parametrize("profile", BOTH)
def test_clearing_is_known_to_a_proxy_whose_last_request_failed(profile: str) -> None:
    """The request is repeated at the other proxy, whose response reports the clearing."""
    with world(profile, outputs=1, replicas=2) as found:
        branch, (first, second) = found.begin(), found.replicas
        branch.fields["context_management"] = EARLY_CLEARING
        found.talk(branch, 3, [second])
        found.talk(branch, 1, [first])
        found.ask(branch, first, failure=429)
        assert found.ask(branch, second).cleared
        found.talk(branch, 6, [first, second])
        assert found.counts["rejections"] == 0


def test_notes_of_a_response_that_hang_do_not_hold_up_the_next_request() -> None:
    with world("recoverable") as found:
        branch, link = grown(found), found.replicas[0].link
        before = link.own.calls
        found.talk(branch, 1)
        found.oracle.lose_notes(found.branches)
        link.own.arm(Fault("hang", first=link.own.calls - before, seconds=3 * (BACKGROUND_SECONDS + BUSY_SECONDS)))
        found.ask(branch, settles=False)
        assert found.ask(branch, settles=False).seconds < BACKGROUND_SECONDS + BUSY_SECONDS
        assert link.own.hits, "the store was not asked"
