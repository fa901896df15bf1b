"""The contract: what must be true of every adapter, looked at on the wire.

    python -m tests.frameworks.contract NAME [--format FORMAT] [--json]

Each run is made twice, without us and with us, against a scripted provider: what came with us expands to exactly what
came without us, begins as the request before did, and the framework keeps the same history.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import ibidem
from ibidem import formats
from ibidem.adapters import _request_rewriter, _wire_mirror
from ibidem.engine.session import Session
from ibidem.testing import Answer, Fails, Seen, by_turn

from . import caching
from .framework import Framework, Ran, Task
from .scenario import ANSWERS, PICTURE, PROMPTS, SCRIPT, Files

Script = Callable[[Seen], Answer]
ROOT = Path(__file__).parent.parent.parent


@dataclass
class Findings:
    """What the contract found out about a framework."""

    name: str
    version: str
    seam: str
    formats: dict[str, list[str]] = field(default_factory=dict)
    """Modes that went well, by format."""
    reduced: dict[str, float] = field(default_factory=dict)
    """By how much all requests of a run together got smaller, as a share, by format."""
    usage: bool = False
    """Whether what the provider counted came to the engine."""
    speed: dict[str, Any] = field(default_factory=dict)
    """Milliseconds that a late turn of a long conversation takes without us, and that we add (`speed`)."""
    checks: dict[str, str] = field(default_factory=dict)
    """`ok`, why it does not apply, or what went wrong."""

    @property
    def failed(self) -> dict[str, str]:
        return {name: told for name, told in self.checks.items() if told != "ok" and not told.startswith("not: ")}


class Contract:
    """The checks, one method each; `run` makes them all."""

    def __init__(self, framework: Framework, chosen: Sequence[str] = ()) -> None:
        self.framework = framework
        self.formats = [each for each in framework.formats if not chosen or each in chosen]
        self.findings = Findings(framework.name, framework.version(), framework.seam)
        self._bare: dict[tuple[str, str, bool], tuple[list[str], Ran]] = {}

    def checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for format in self.formats:
            for mode in self.framework.modes:
                yield f"{format} {mode}", lambda format=format, mode=mode: self.expands(format, mode)  # type: ignore[misc]
            for name, check in (
                ("two at once", self.interleaved),
                ("picture", self.picture),
                ("asked again", self.asked_again),
                ("fault of ours", self.fails_open),
                ("proxy behind", self.second_pass),
                ("recoverable", self.recoverable),
            ):
                yield f"{format} {name}", lambda format=format, check=check: check(format)  # type: ignore[misc]

    def own_checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield from caching.checks(self.framework, self.formats)
        yield from self.framework.own().items()
        if self.framework.example:
            yield "example", self.example

    def run(self) -> Findings:
        for name, check in (*self.checks(), *self.own_checks()):
            reason = next((why for key, why in self.framework.left_out.items() if name.endswith(key)), "")
            if reason:
                self.findings.checks[name] = f"not: {reason}"
                continue
            try:
                check()
                self.findings.checks[name] = "ok"
            except Exception:
                self.findings.checks[name] = traceback.format_exc(limit=-4)
        return self.findings

    # ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def sent(
        self, format: str, script: Callable[[Seen], Answer], tasks: Sequence[Task]
    ) -> tuple[list[Seen], list[Ran]]:
        """What came to the provider, and what came of the tasks, all at the same time."""
        with self.framework.provider(format, script) as upstream:
            ran = together([lambda task=task: self.framework.run(replace(task, url=upstream.url)) for task in tasks])  # type: ignore[misc]
            return upstream.seen, ran

    def task(self, format: str, mode: str = "", adapter: Any = None, owner: str = "one", **more: Any) -> Task:
        prompts = (f"{PROMPTS[0]} They are those of {owner}.", *PROMPTS[1:])
        return Task("", format, mode or self.mode, prompts, Files(owner), adapter, owner, **more)

    @property
    def mode(self) -> str:
        """The usual one."""
        return self.framework.modes[0]

    def bodies(self, seen: Sequence[Seen]) -> list[str]:
        """Requests that carry a conversation, as they came."""
        return [each.text.decode() for each in seen if self.framework.is_request(each)]

    def bare(self, format: str, mode: str, image: bool = False) -> tuple[list[str], Ran]:
        """What is sent without us, and the history."""
        key = format, mode, image
        if key not in self._bare:
            seen, (ran,) = self.sent(
                format, by_turn(SCRIPT), [self.task(format, mode, image=PICTURE if image else None)]
            )
            self._bare[key] = self.bodies(seen), ran
        return self._bare[key]

    def plain(self, body: str) -> str:
        return json.dumps(self.framework.same(json.loads(body)), ensure_ascii=False)

    def expanded(self, body: str, format: str) -> str:
        value, wire = self.framework.read_wire(json.loads(body), format)
        return json.dumps(self.framework.same(ibidem.expand(value, format=wire)), ensure_ascii=False)

    def as_read(self, body: str, format: str) -> str:
        value, _ = self.framework.read_wire(json.loads(body), format)
        return json.dumps(self.framework.same(value), ensure_ascii=False)

    # ── checks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def expands(self, format: str, mode: str) -> None:
        before, expected = self.bare(format, mode)
        adapter = self.framework.adapter(format)
        seen, (ran,) = self.sent(format, by_turn(SCRIPT), [self.task(format, mode, adapter)])
        after = self.bodies(seen)
        self.alike(before, after, format)
        assert ran.texts == expected.texts == ANSWERS, ran.texts
        assert ran.history == expected.history, "the framework keeps something else with us"
        assert "[ibidem " not in json.dumps(ran.history), "a marker got into the framework's history"
        assert len(after[-1]) < 0.7 * len(before[-1]), "next to nothing was saved"
        self.stable(after, format)
        self.findings.formats.setdefault(format, []).append(mode)
        self.findings.reduced[format] = 1 - sum(map(len, after)) / sum(map(len, before))

    def alike(self, before: Sequence[str], after: Sequence[str], format: str) -> None:
        assert len(before) == len(after), f"{len(after)} requests with us, {len(before)} without"
        for number, (theirs, ours) in enumerate(zip(before, after, strict=True), 1):
            assert self.expanded(ours, format) == self.as_read(theirs, format), f"request {number} does not expand"

    def stable(self, bodies: Sequence[str], format: str) -> None:
        """What was sent once is sent the same."""
        histories = []
        for body in bodies:
            value, wire = self.framework.read_wire(json.loads(body), format)
            histories.append(unmarked(self.framework.same(value)[formats.format_named(wire).history_key]))
        for number, (before, after) in enumerate(pairwise(histories), 2):
            assert after[: len(before)] == before, f"request {number} does not begin as the one before"

    def interleaved(self, format: str) -> None:
        """Conversations at the same time, through one adapter, are as they are alone."""
        adapter = self.framework.adapter(format)
        owners = ("one", "two", "three")
        tasks = [self.task(format, adapter=adapter, owner=owner) for owner in owners]
        seen, ran = self.sent(format, by_turn(SCRIPT), tasks)
        alone, _ = self.bare(format, self.mode)
        mine = [body for body in self.bodies(seen) if "those of one." in body]
        expanded = [renumbered(self.expanded(each, format)) for each in mine]
        assert sorted(expanded) == sorted(renumbered(self.as_read(each, format)) for each in alone)
        assert [each.texts for each in ran] == [ANSWERS] * len(owners)

    def picture(self, format: str) -> None:
        if not self.framework.images:
            return
        before, expected = self.bare(format, self.mode, image=True)
        adapter = self.framework.adapter(format)
        seen, (ran,) = self.sent(format, by_turn(SCRIPT), [self.task(format, adapter=adapter, image=PICTURE)])
        assert "iVBORw0KGgo" in before[0], "the picture was not sent"
        self.alike(before, self.bodies(seen), format)
        assert ran.history == expected.history

    def asked_again(self, format: str) -> None:
        """A provider that is overloaded is asked the very same again."""
        if not self.framework.retries:
            return
        failing = FailsOnce(by_turn(SCRIPT), 4)
        seen, (ran,) = self.sent(format, failing, [self.task(format, adapter=self.framework.adapter(format))])
        bodies = self.bodies(seen)
        assert ran.texts == ANSWERS
        again = [number for number, (one, other) in enumerate(pairwise(bodies)) if one == other]
        assert again, "no request was sent twice"
        del bodies[again[0]]
        before = [renumbered(self.as_read(each, format)) for each in self.bare(format, self.mode)[0]]
        assert [renumbered(self.expanded(each, format)) for each in bodies] == before

    def fails_open(self, format: str) -> None:
        before, expected = self.bare(format, self.mode)
        for owner, name in FAULTS:
            with broken(owner, name) as calls:
                adapter = self.framework.adapter(format)
                seen, (ran,) = self.sent(format, by_turn(SCRIPT), [self.task(format, adapter=adapter)])
            assert ran.history == expected.history
            assert calls or owner is not Session, "a session was never asked"
            if calls:
                assert list(map(self.plain, self.bodies(seen))) == list(map(self.plain, before)), f"{name} failed"

    def second_pass(self, format: str) -> None:
        """A proxy behind an adapter changes nothing any more."""
        from ibidem.proxy.edge.server import BackgroundServer
        from ibidem.proxy.settings import Settings

        def run(proxied: bool) -> list[str]:
            with self.framework.provider(format, by_turn(SCRIPT)) as upstream:
                upstreams = dict.fromkeys(Settings().upstreams, upstream.url)
                with BackgroundServer(
                    Settings(port=0, upstreams=upstreams, store="memory:", budget_ms=60_000)
                ) as proxy:
                    url = proxy.url if proxied else upstream.url
                    adapter = self.framework.adapter(format)
                    self.framework.run(replace(self.task(format, adapter=adapter), url=url))
                    return list(map(self.plain, self.bodies(upstream.seen)))

        assert run(True) == run(False)

    def recoverable(self, format: str) -> None:
        """It runs to its end, the history stays, and what the provider counts is heard where the seam tells."""
        _, expected = self.bare(format, self.mode)
        told: list[int] = []
        answered = _request_rewriter.RequestRewriter.record_input_tokens

        def listening(seat: Any, outcome: Any, context: int | None = None, cached: int | None = None) -> None:
            told.append(context or 0)
            answered(seat, outcome, context, cached)

        _request_rewriter.RequestRewriter.record_input_tokens = listening  # type: ignore[method-assign, assignment]
        try:
            adapter = self.framework.adapter(format, "recoverable")
            seen, (ran,) = self.sent(format, by_turn(SCRIPT), [self.task(format, adapter=adapter)])
        finally:
            _request_rewriter.RequestRewriter.record_input_tokens = answered  # type: ignore[method-assign]
        assert ran.texts == ANSWERS
        assert ran.history == expected.history
        for body in self.bodies(seen):
            value, wire = self.framework.read_wire(json.loads(body), format)
            assert not ibidem.validate(value, format=wire)
        heard = len([each for each in told if each]) >= len(SCRIPT) - 1
        self.findings.usage = self.findings.usage or self.framework.usage or heard

    def example(self) -> None:
        path = ROOT / "examples" / self.framework.example
        assert len(path.read_text().splitlines()) <= 40, "an example has at most 40 lines"
        variables = {**os.environ, **self.framework.variables, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable if path.suffix == ".py" else "node", str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, cwd=ROOT)
        assert ran.returncode == 0, ran.stderr[-2000:]
        assert "bytes" in ran.stdout, ran.stdout


FAULTS: tuple[tuple[Any, str], ...] = (
    (Session, "compact"),
    (_request_rewriter, "_encode_request"),
    (_wire_mirror.WireMirror, "add_result"),
)
"""Where something of ours is made to fail."""


@contextmanager
def broken(owner: Any, name: str) -> Iterator[list[str]]:
    before, calls = getattr(owner, name), []

    def fail(*_: Any, **__: Any) -> Any:
        calls.append(name)
        raise RuntimeError("as the contract wants it")

    setattr(owner, name, fail)
    try:
        yield calls
    finally:
        setattr(owner, name, before)


class FailsOnce:
    """A provider that is overloaded when it is asked for the given time."""

    def __init__(self, script: Callable[[Seen], Answer], when: int) -> None:
        self._script, self._when, self._asked = script, when, 0

    def __call__(self, seen: Seen) -> Answer:
        self._asked += 1
        return Fails(503, retry_after=0) if self._asked == self._when else self._script(seen)


IDENT = re.compile(r"\b(?:toolu|call|fc|msg|resp|rs|chatcmpl|tooluse)_\w+")


def renumbered(body: str) -> str:
    """With the provider's ids numbered as they come: these go on from answer to answer, whoever asks."""
    known: dict[str, str] = {}
    return IDENT.sub(lambda found: known.setdefault(found[0], f"id_{len(known)}"), body)


def unmarked(value: Any) -> Any:
    """Without marks for the provider's cache, which move on from request to request."""
    if isinstance(value, dict):
        return {key: unmarked(each) for key, each in value.items() if key not in ("cache_control", "cachePoint")}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


def together(works: Sequence[Callable[[], Ran]]) -> list[Ran]:
    if len(works) == 1:
        return [works[0]()]
    found: dict[int, Ran] = {}
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            found[number] = works[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(works))]


def framework_named(name: str) -> Framework:
    found: Framework = importlib.import_module(f"tests.frameworks.{name}").FRAMEWORK
    return found


def alone() -> None:
    """Nothing of this machine's settings reaches a framework: no key, no address, no proxy on the way to loopback."""
    keys = ("ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "AWS_", "LANGSMITH_", "LANGCHAIN_")
    for name in [*os.environ]:
        if name.startswith(keys) or name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ["NO_PROXY"] = "*"
    os.environ["IBIDEM_STORE"] = "memory:"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.contract", description=__doc__.partition("\n")[0])
    parser.add_argument("name")
    parser.add_argument("--format", action="append", default=[])
    parser.add_argument("--json", action="store_true", help="the findings, for a program")
    parser.add_argument("--speed", action="store_true", help="measure the added time too")
    given = parser.parse_args()
    framework = framework_named(given.name)
    alone()
    os.environ.update(framework.variables)
    contract = Contract(framework, given.format)
    findings = contract.run()
    if given.speed and "speed" not in framework.left_out:
        from .speed import measure

        findings.speed = measure(framework, contract.formats)
    if given.json:
        print(json.dumps(asdict(findings)))
    else:
        for name, result in findings.checks.items():
            print(f"{name:32} {result}")
        print(
            {"reduced": findings.reduced, "usage": findings.usage, "version": findings.version, "speed": findings.speed}
        )
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
