"""Random interleavings of everything that happens to a proxy, checked after each request.

    python -m tests.support.worlds --profile lossless --seed 1 --worlds 50

A world is one seed: one or two real proxies over one store, a provider that signs thinking, and some agents. Its steps
are drawn by the seed: turns, forks, rewinds, compactions, restarts, kills, faults of the store and so on. After each
request the oracle compares it with what a direct connection would have given (`world_oracle`). A failure names the
profile and the seed, and `--trace` prints the steps.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore
from ibidem.testing import Answer, Fails, Seen
from ibidem.testing.upstream import Upstream
from tests.support.proxied import waited_for
from tests.support.world_client import DISGUISED_MODEL, NATIVE, PLAIN_MODEL, SIGNING_MODEL, Branch, Client
from tests.support.world_oracle import FAILURES, Exchange, Oracle
from tests.support.world_provider import REQUEST_HEADER, UNRELATED, Provider, upstream_request
from tests.support.world_proxies import PROFILES, Replica, Reply, Setting, Slowness, WorldClock, quick_start
from tests.support.world_store import CallCounter, Fault

STEPS = 30
MAX_BRANCHES = 5
PATIENT_MS, HURRIED_MS = 60_000.0, 400.0
LATE_SECONDS = 0.55
"""Delay beyond the budget of a world in a hurry."""
SHORT_HANG_SECONDS = 0.08
"""Delay beyond the deadline for reading notes that nobody needs."""

STORE_PAUSES = (0.02, 1.0)
"""Seconds for which a store is not asked after a fault: some requests, or the rest of the world."""
BEGINNINGS, FAULTS, SLOW = ("new", "fork", "subagent"), ("kill", "store fault", "wipe"), ("slow",)
"""Steps that begin a conversation, that lose knowledge, and that a hurried world alone has."""

FAILED: dict[int, Answer] = {
    400: Fails(400, message=UNRELATED),
    429: Fails(429, retry_after=1),
    529: Fails(529, message="overloaded"),
}


@dataclass
class Result:
    """One world, after its end."""

    profile: str
    seed: int
    counts: Counter[str]
    failures: list[str]
    notable: list[str]
    trace: list[str]
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """Everything that is needed to repeat a failure."""
        again = f"python -m tests.support.worlds --profile {self.profile} --seed {self.seed} --worlds 1 --trace"
        return "\n".join([again, *self.trace, *self.failures, *self.notable])


class World:
    """The state of one world, and its steps."""

    def __init__(
        self,
        profile: str,
        seed: int,
        steps: int = STEPS,
        *,
        fault: Fault | None = None,
        without: Sequence[str] = (),
        script: Sequence[str] = (),
        replicas: int = 0,
        hurried: bool | None = None,
        store_pause: float | None = None,
    ) -> None:
        """`fault`: the only fault of the store, counted in the calls of all proxies. `without`: steps to omit.
        `script`: names of steps, if they are not to be drawn."""
        self.profile, self.seed, self.steps = profile, seed, script or [""] * steps
        self.rng = rng = random.Random(f"{profile} {seed}")
        self.counts: Counter[str] = Counter(dict.fromkeys(FAILURES, 0))
        self.trace: list[str] = []
        self.clock, self.slowness = WorldClock(), Slowness()
        self.store, self.calls = MemoryStore(clock=self.clock.time), CallCounter(fault)
        self.provider, self.client = Provider(seed), Client(rng)
        self.oracle = Oracle(profile, self.store, self.counts)
        self.oracle.faulty = fault is not None
        self.branches: list[Branch] = []
        self.switched = False
        """Ibidem was switched off at some time."""
        self.number = 0
        self._looked = 0
        """Upstream requests that belong to earlier requests of the client."""
        drawn = rng.random(), rng.random(), rng.choice((1, 1, 2))
        self._pause = rng.choice(STORE_PAUSES) if store_pause is None else store_pause
        self.calm = self.oracle.calm = drawn[0] < 0.4 and fault is None
        self.hurried = (not self.calm and drawn[1] < 0.15) if hurried is None else hurried
        self._replicas = replicas or drawn[2]
        self._without = {*without, *(FAULTS if self.calm or fault is not None else ()), *(() if self.hurried else SLOW)}
        self.models = _models(profile, rng)

    def run(self) -> Result:
        started = time.perf_counter()
        try:
            with self.running():
                self.branches = [self.client.branch(self.models[0]) for _ in range(self.rng.randint(1, 2))]
                for name in self.steps:
                    self._step(name)
        except Exception as error:
            self.oracle.fail("errors", None, f"{type(error).__name__}: {error}")
        took = time.perf_counter() - started
        self.counts["worlds"] += 1
        return Result(self.profile, self.seed, self.counts, self.oracle.failures, self.oracle.notable, self.trace, took)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The provider and the proxies."""
        with ExitStack() as stack:
            made = stack.enter_context(quick_start(self.slowness, self._pause))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.upstream = stack.enter_context(Upstream(self.provider, clock=self.clock.time, strict=True))
            settings = Settings(
                port=0,
                profile=PROFILES[self.profile],
                upstreams={"anthropic": self.upstream.url},
                budget_ms=HURRIED_MS if self.hurried else PATIENT_MS,
            )
            lost, died = self._store_lost, self.provider.dead.add
            shared = Setting(settings, self.store, self.calls, self.clock, folder, made, lost, died)
            self.replicas: list[Replica] = []
            for number in range(self._replicas):
                self.replicas.append(Replica(number, shared))
                stack.callback(self.replicas[-1].stop)
            yield

    def _store_lost(self) -> None:
        self.oracle.store_lost = True
        self.oracle.lose_notes(self.branches)

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self,
        branch: Branch,
        replica: Replica | None = None,
        *,
        failure: int = 0,
        wish: str = "",
        keeps: bool = True,
        settles: bool = True,
    ) -> Exchange:
        """Send the next request of a conversation, and check what becomes of it.

        Without `keeps`, the client does not continue with the response. Without `settles`, nothing is waited for.
        """
        replica = replica or self._replica()
        exchange = self._exchange(branch, failure)
        self._send(exchange, replica, wish, keeps, settles)
        if exchange.status >= 400 and not exchange.expected and not exchange.lost and exchange.accepted_directly:
            self._try_again(branch)
        return exchange

    def _send(
        self, exchange: Exchange, replica: Replica, wish: str = "", keeps: bool = True, settles: bool = True
    ) -> None:
        exchange.run = replica.run
        reply = replica.send(exchange.body, self._headers(exchange, wish))
        exchange.status, exchange.seconds = reply.status, reply.seconds
        if settles and not replica.link.dead:
            self._collect([exchange])
            self._read_rows(replica, [exchange])
        if replica.link.dead:
            keeps = self._bury(exchange, replica) and keeps
        else:
            self._collect([exchange])
        self._conclude(exchange, replica, reply, keeps)

    def _bury(self, exchange: Exchange, replica: Replica) -> bool:
        """The process died with this request, or right after it. Return whether the client has a response."""
        self.counts["kills"] += 1
        replica.kill()
        self._collect([exchange])
        accepted = 200 <= exchange.status < 300 and exchange.accepted is not None
        exchange.lost, exchange.row = not accepted or self.rng.random() < 0.4, None
        self.oracle.kill(exchange, self.switched)
        return not exchange.lost

    def begin(self, model: str = SIGNING_MODEL) -> Branch:
        """A conversation for a test that writes its own steps."""
        self.branches.append(self.client.branch(model))
        return self.branches[-1]

    def talk(self, branch: Branch, turns: int, replicas: Sequence[Replica] = ()) -> list[Exchange]:
        """Some turns of a conversation, at these proxies in turn."""
        return [
            self.ask(branch, (replicas or self.replicas)[turn % len(replicas or self.replicas)])
            for turn in range(turns)
        ]

    def _try_again(self, branch: Branch) -> None:
        """A client repeats what was refused. Refused each time, its conversation has come to an end."""
        for _ in range(2 * len(self.replicas)):
            exchange = self._exchange(branch)
            exchange.repeated = True
            self._send(exchange, self._replica())
            if 200 <= exchange.status < 300:
                return
        branch.refused = True
        self.oracle.fail("refused for good", exchange, f"status {exchange.status}")

    def _replica(self) -> Replica:
        """Any proxy. A process may have died after its last request."""
        found = self.rng.choice(self.replicas)
        if found.link.dead:
            found.kill()
        return found

    def _exchange(self, branch: Branch, failure: int = 0) -> Exchange:
        self.client.go_on(branch)
        self.number += 1
        self.clock.now += 5
        if failure:
            self.provider.failures[str(self.number)] = FAILED[failure]
        shadow = {**branch.shadow_body, "messages": list(branch.shadow)}
        return Exchange(self.number, branch, branch.request, list(branch.real), shadow, expected=failure)

    def _headers(self, exchange: Exchange, wish: str = "") -> dict[str, str]:
        found = {REQUEST_HEADER: str(exchange.number)}
        if wish:
            found["x-ibidem"] = wish
        if exchange.branch.session:
            found["x-claude-code-session-id"] = exchange.branch.session
        return found

    def _collect(self, exchanges: list[Exchange]) -> None:
        """What the provider got for these requests."""
        seen = self.upstream.seen
        new, self._looked = seen[self._looked :], len(seen)
        for exchange in exchanges:
            own = [upstream_request(each) for each in new if _number(each) == exchange.number]
            exchange.upstream += [each for each in own if each.status != 503]
            exchange.cleared = self.provider.cleared.get(str(exchange.number), frozenset())

    def _read_rows(self, replica: Replica, exchanges: list[Exchange]) -> None:
        """The proxy's own log of these requests."""
        rows = replica.settled(sum(bool(each.upstream) for each in exchanges))
        for exchange in exchanges:
            found = next((row for row in rows if row["bytes_in"] == len(exchange.body)), None)
            if found is not None:
                rows.remove(found)
                exchange.row = found
                if found["conversation"]:
                    exchange.branch.conversation[replica.run] = found["conversation"]

    def _conclude(self, exchange: Exchange, replica: Replica, reply: Reply, keeps: bool = True) -> None:
        row, branch = exchange.row or {}, exchange.branch
        told = f"{row.get('outcome', 'no row')}{', ' + row['revision'] if row.get('revision') else ''}"
        sent = " ".join(str(each.status) for each in exchange.upstream)
        self.trace.append(
            f"    {exchange.number}: {branch.name} ({len(exchange.came)} messages, {branch.fields['model']}) "
            f"at {replica.number}: {exchange.status} [{sent}] {told}"
        )
        before, remarked = len(self.oracle.failures), len(self.oracle.notable)
        self.oracle.check(exchange)
        self.trace += [f"      !! {each}" for each in self.oracle.failures[before:]]
        self.trace += [f"      ?? {each}" for each in self.oracle.notable[remarked:]]
        if 200 <= reply.status < 300:
            self.counts["cleared by the provider"] += bool(exchange.cleared)
            self.counts["compacted by the provider"] += reply.content[0]["type"] == "compaction"
        if keeps and 200 <= reply.status < 300:
            branch.hear(reply.content)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self, name: str) -> None:
        alive = [each for each in self.branches if not each.refused]
        if not alive:
            self.branches.append(self.client.branch(self.rng.choice(self.models)))
            alive = self.branches[-1:]
        branch = self.rng.choice(alive)
        names = [each for each in WEIGHTS if self._allowed(each)]
        name = name or self.rng.choices(names, [WEIGHTS[each] for each in names])[0]
        self.trace.append(f"  {name} {branch.name}")
        self.counts[f"step: {name}"] += 1
        STEPS_BY_NAME[name](self, branch)

    def _allowed(self, name: str) -> bool:
        if name in BEGINNINGS and len(self.branches) >= MAX_BRANCHES:
            return False
        return name not in self._without

    def turn(self, branch: Branch) -> None:
        for _ in range(self.rng.randint(1, 3)):
            if not branch.refused:
                self.ask(branch)

    def new(self, branch: Branch) -> None:
        self.branches.append(self.client.branch(self.rng.choice(self.models)))
        self.ask(self.branches[-1])

    def fork(self, branch: Branch) -> None:
        self.branches.append(self.client.fork(branch))
        self.ask(self.branches[-1])

    def subagent(self, branch: Branch) -> None:
        self.branches.append(self.client.subagent(branch))
        self.ask(self.branches[-1])

    def rewind(self, branch: Branch) -> None:
        branch.cut(self.rng.choice(branch.places()[-4:]), self.rng.choice(("", f"no, not so, {self.number}")))
        self.ask(branch)

    def compaction(self, branch: Branch) -> None:
        branch.compact(f"This is what happened so far, {self.number}.", self.rng.choice((0, 0, 2, 4)))
        self.ask(branch)

    def switch_model(self, branch: Branch) -> None:
        branch.fields["model"] = self.rng.choice([each for each in self.models if each != branch.fields["model"]])
        self.ask(branch)

    def pause(self, branch: Branch) -> None:
        self.clock.now += self.rng.choice((360, 4200))
        self.ask(branch)

    def restart(self, branch: Branch) -> None:
        """With a request whose notes may not be written yet: a process that is stopped writes them."""
        replica = self._replica()
        self.counts["restarts"] += 1
        if self.rng.random() < 0.5:
            self.ask(branch, replica, settles=False)
        replica.restart()
        if not branch.refused:
            self.ask(branch)

    def kill(self, branch: Branch) -> None:
        """The process dies with one of the store calls that a request makes, or after all of them."""
        replica = self._replica()
        replica.link.own.arm(Fault("die", self.rng.randint(1, 5)))
        run = replica.run
        self.ask(branch, replica)
        if replica.run == run:
            replica.kill()
            self.counts["kills"] += 1
        if not branch.refused:
            self.ask(branch)

    def duplicate(self, branch: Branch) -> None:
        self.ask(branch, keeps=False)
        if not branch.has_answer:
            self.ask(branch)

    def failure(self, branch: Branch) -> None:
        self.ask(branch, failure=self.rng.choice((400, 429, 529)))
        if self.rng.random() < 0.7:
            self.ask(branch)

    def vanish(self, branch: Branch) -> None:
        """The client closes its connection while the provider works."""
        replica = self._replica()
        exchange = self._exchange(branch)
        exchange.lost, exchange.run = True, replica.run
        self.provider.slow.add(str(exchange.number))
        connection = replica.connect()
        connection.request("POST", "/v1/messages", exchange.body, replica.headers(self._headers(exchange)))
        waited_for(lambda: str(exchange.number) in self.provider.waiting or self._is_refused(exchange))
        connection.close()
        self._collect([exchange])
        self._read_rows(replica, [exchange])
        self._conclude(exchange, replica, Reply(0))
        self.ask(branch)

    def _is_refused(self, exchange: Exchange) -> bool:
        """Whether the provider has refused a request in each way, or too often."""
        own = [each for each in self.upstream.seen if _number(each) == exchange.number]
        return len(own) >= 4 and all(each.answered for each in own)

    def off(self, branch: Branch) -> None:
        """Off, some turns, and perhaps on again."""
        self.switched = True
        replica = self._replica()
        way = self.rng.choice(("header", "one", "all"))
        self._switch(branch, replica, way, "off")
        for _ in range(self.rng.randint(1, 2)):
            if not branch.refused:
                self.ask(branch)
        if not branch.refused and self.rng.random() < 0.7:
            self._switch(branch, replica, way, "on")
            self.ask(branch)

    def _switch(self, branch: Branch, replica: Replica, way: str, wish: str) -> None:
        self.trace.append(f"    {way} {wish}")
        known = branch.conversation.get(replica.run)
        if way == "header" or (way == "one" and known is None):
            self.ask(branch, replica, wish=wish)
        else:
            replica.switch(wish, known if way == "one" else None)

    def native(self, branch: Branch) -> None:
        """The client switches the provider's own context management on."""
        branch.fields["context_management"] = self.rng.choice(NATIVE)
        self.ask(branch)

    def concurrency(self, branch: Branch) -> None:
        """Two requests at once: of two conversations, of two branches, or the same one twice."""
        others = [each for each in self.branches if each is not branch and not each.refused]
        kind = self.rng.choice(("twice", "fork", "other" if others else "twice"))
        self.client.go_on(branch)
        other = branch
        if kind == "fork" and len(self.branches) < MAX_BRANCHES:
            other = self.client.fork(branch)
            self.branches.append(other)
        elif kind == "other":
            other = self.rng.choice(others)
        self.trace.append(f"    at once: {branch.name} and {other.name}")
        exchanges = [self._exchange(each) for each in (branch, other)]
        replicas = [self._replica() for _ in exchanges]

        def send(place: int) -> Reply:
            return replicas[place].send(exchanges[place].body, self._headers(exchanges[place]), own=True)

        with ThreadPoolExecutor(2) as pool:
            replies = list(pool.map(send, range(2)))
        self._collect(exchanges)
        for replica in dict.fromkeys(replicas):
            self._read_rows(replica, [each for each, at in zip(exchanges, replicas, strict=True) if at is replica])
        branch.revisions += 1  # one of them may have been planned before the other
        other.revisions += 1
        for exchange, replica, reply in zip(exchanges, replicas, replies, strict=True):
            exchange.status, exchange.run = reply.status, replica.run
            self._conclude(exchange, replica, reply, not exchange.branch.has_answer)
            exchange.branch.revisions += 1

    def store_fault(self, branch: Branch) -> None:
        kind = self.rng.choice(("fail", "hang", "forget", "wipe"))
        first, calls = self.rng.randint(1, 6), self.rng.choice((1, 1, 2, 8))
        seconds = LATE_SECONDS if self.hurried else SHORT_HANG_SECONDS
        fault = Fault(kind, first, 1 if kind != "fail" else calls, seconds)  # type: ignore[arg-type]
        self.trace.append(f"    {fault}")
        self.counts["store faults"] += 1
        self.oracle.lose_notes(self.branches)
        self._replica().link.own.arm(fault)
        self.ask(branch)

    def wipe(self, branch: Branch) -> None:
        self.counts["store faults"] += 1
        self._store_lost()
        self.store.forget_all()
        if self.rng.random() < 0.7:
            for replica in self.replicas:
                replica.restart()
        self.ask(branch)

    def slow(self, branch: Branch) -> None:
        """Rewriting takes longer than the budget, often after a restart."""
        replica = self._replica()
        if self.rng.random() < 0.6:
            replica.restart()
        self.slowness.seconds = LATE_SECONDS
        self.ask(branch, replica)
        self.slowness.seconds = 0.0


STEPS_BY_NAME: dict[str, Callable[[World, Branch], None]] = {
    "turn": World.turn,
    "new": World.new,
    "fork": World.fork,
    "subagent": World.subagent,
    "rewind": World.rewind,
    "compaction": World.compaction,
    "model": World.switch_model,
    "pause": World.pause,
    "restart": World.restart,
    "kill": World.kill,
    "duplicate": World.duplicate,
    "failure": World.failure,
    "vanish": World.vanish,
    "off": World.off,
    "native": World.native,
    "concurrency": World.concurrency,
    "store fault": World.store_fault,
    "wipe": World.wipe,
    "slow": World.slow,
}

WEIGHTS = {
    **{"turn": 40, "new": 2, "fork": 4, "subagent": 3, "rewind": 6, "compaction": 2, "model": 3, "pause": 7},
    **{"restart": 5, "kill": 6, "duplicate": 3, "failure": 5, "vanish": 2, "off": 6, "native": 3},
    **{"concurrency": 4, "store fault": 6, "wipe": 2, "slow": 8},
}


def _models(profile: str, rng: random.Random) -> list[str]:
    """Models of a world, the usual one first."""
    first = DISGUISED_MODEL if profile == "eager" else rng.choice((SIGNING_MODEL, SIGNING_MODEL, DISGUISED_MODEL))
    return [first, PLAIN_MODEL]


def _number(seen: Seen) -> int:
    return int(seen.header(REQUEST_HEADER) or 0)


@dataclass
class Summary:
    """Several worlds."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[Result] = field(default_factory=list)
    notable: list[Result] = field(default_factory=list)
    """Worlds in which all requests were accepted, but not in the best way."""

    def add(self, result: Result) -> None:
        self.counts.update(result.counts)
        for name in FAILURES:
            self.counts[name] += 0
        if result.failures:
            self.failed.append(result)
        elif result.notable:
            self.notable.append(result)


def run_worlds(profile: str, first: int, worlds: int, steps: int = STEPS, without: Sequence[str] = ()) -> Summary:
    found = Summary()
    for seed in range(first, first + worlds):
        found.add(World(profile, seed, steps, without=without).run())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Run worlds and print the counts.")
    parser.add_argument("--profile", choices=[*PROFILES, "all"], default="all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--without", action="append", default=[], choices=[*WEIGHTS], help="step to omit")
    parser.add_argument("--trace", action="store_true", help="print the steps of each world to look at")
    asked = parser.parse_args()
    failed = 0
    for profile in PROFILES if asked.profile == "all" else [asked.profile]:
        started = time.perf_counter()
        found = run_worlds(profile, asked.seed, asked.worlds, asked.steps, asked.without)
        failed += len(found.failed)
        print(f"{profile}: {time.perf_counter() - started:.1f} s, {time.process_time():.1f} s of processor time so far")
        for name, value in sorted(found.counts.items()):
            print(f"  {name}: {value}")
        for result in [*found.failed, *found.notable]:
            told = [*result.failures, *result.notable]
            print(result.told if asked.trace else f"  seed {result.seed}: {told[0]}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
