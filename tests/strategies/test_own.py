"""A strategy of one's own works at every door, and is loaded only when somebody names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ibidem
from ibidem.billing.revision_budget import RequestContext
from ibidem.model import Conversation, Kind, Message, Text
from ibidem.plan import Edit, Plan
from ibidem.proxy.settings import read_settings
from ibidem.strategies.strategy import ConversationStart, Revision, Strategy, StrategyState
from tests.support.proxied import dumped, talk

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = "own_strategy:PROFILE"
RED = "\x1b[31m"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def body(results: int) -> dict[str, Any]:
    """An agent whose tool colours what it prints."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go on"}]
    for number in range(results):
        call = {"type": "tool_use", "id": f"c{number}", "name": "test", "input": {"n": number}}
        text = "\n".join(f"{RED}FAILED\x1b[0m test number {line} of run {number}" for line in range(30))
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}]},
        ]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}


def coloured(request: Any) -> int:
    return json.dumps(request).count("\\u001b")


def test_compact_takes_it_by_name_and_as_a_value() -> None:
    before = body(3)
    by_name = ibidem.compact(before, profile=OWN)
    assert coloured(before) > 0 == coloured(by_name.request)
    assert by_name.request == ibidem.compact(before, profile="own_strategy:NoColours").request
    assert {edit.strategy for edit in by_name.plan} == {"no-colours"}


def test_a_session_sends_what_compact_would_send() -> None:
    session = ibidem.Session(OWN)
    for results in range(1, 5):
        assert session.compact(body(results)).request == ibidem.compact(body(results), profile=OWN).request


def run(folder: Path, *args: str, path: Path = EXAMPLES, **more: str) -> subprocess.CompletedProcess[str]:
    found = os.pathsep.join(map(str, (path, EXAMPLES)))
    env = {**os.environ, "PYTHONPATH": found, "HOME": str(folder), "USERPROFILE": str(folder), **more}
    return subprocess.run(
        [sys.executable, "-m", "ibidem.cli", *args], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_a_report_counts_it(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_text("".join(json.dumps(body(results)) + "\n" for results in range(1, 5)))
    done = run(tmp_path, "report", "--json", "--profile", OWN, str(log))
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)["totals"]["profiles"][OWN]
    assert profile["strategies"]["no-colours"]["hits"] == 4
    assert not (tmp_path / ".cache").exists(), "figures are not kept: the strategy may change unseen"


def test_the_proxy_runs_it() -> None:
    with talk(profile=OWN) as found:
        for results in (1, 2):
            status, _ = found.send("anthropic", dumped(body(results)))
            assert status == 200
        assert [coloured(seen.json) for seen in found.upstream.seen] == [0, 0]
        assert found.settled(2)["totals"]["rewritten"] == 2


def test_a_package_offers_it_under_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = tmp_path / "colourless-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: colourless\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text(f"[ibidem.profiles]\ncolourless = {OWN}\nbroken = no_such_module:X\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert coloured(ibidem.compact(body(2), profile="colourless").request) == 0
    assert ibidem.compact(body(2)).plan is not None, "what was not named is not loaded"
    with pytest.raises(ibidem.IbidemError, match="profile broken: cannot be loaded"):
        ibidem.compact(body(2), profile="broken")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:X", "cannot be loaded (ModuleNotFoundError"),
        ("own_strategy:Nothing", "cannot be loaded (AttributeError"),
        ("own_strategy:COLOURS", "is not a strategy"),
        ("own_strategy", "unknown profile 'own_strategy': use one of lossless"),
        ("own strategy:X", "unknown profile"),
    ],
)
def test_a_mistake_in_the_name_is_told(name: str, words: str) -> None:
    for door in (lambda: ibidem.compact(body(1), profile=name), lambda: ibidem.Session(name)):
        with pytest.raises(ibidem.IbidemError) as caught:
            door()
        assert words in str(caught.value)


@pytest.mark.slow
def test_a_module_that_ends_the_program_or_prints_does_neither(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text("import sys; sys.exit(7)")
    (tmp_path / "loud.py").write_text("print('loud'); from own_strategy import PROFILE")
    done = run(tmp_path, "compact", "--profile", "ending:X", path=tmp_path)
    assert (done.returncode, done.stderr.count("cannot be loaded (SystemExit: 7): check the name")) == (2, 1)
    done = run(tmp_path, "wrap", "--", sys.executable, "-c", "print('ran')", path=tmp_path, IBIDEM_PROFILE="ending:X")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    done = run(tmp_path, "report", "--json", "--profile", "loud:PROFILE", path=tmp_path)
    assert json.loads(done.stdout)["profiles"] == ["loud:PROFILE"]


def test_the_command_line_tells_it_in_one_line(tmp_path: Path) -> None:
    for command in (["compact"], ["report"], ["show"], ["proxy"]):
        done = run(tmp_path, *command, "--profile", "no_such_module:X")
        assert done.returncode == 2
        assert "no_such_module:X: cannot be loaded" in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_users_own_settings_may_name_it_and_a_folder_may_not(tmp_path: Path) -> None:
    mine, here = tmp_path / "mine", tmp_path / "here"
    for folder in (mine, here):
        folder.mkdir()
    loud = 'import pathlib; pathlib.Path("loaded").touch()\n'
    (here / "loud.py").write_text(loud)
    (here / "ibidem.toml").write_text('[proxy]\nprofile = "loud:X"\n')
    (mine / "ibidem.toml").write_text(f'[proxy]\nprofile = "{OWN}"\n')
    assert read_settings({}, {}, folder=here, own=mine).settings.profile == OWN
    assert read_settings({}, {}, folder=here, own=tmp_path).settings.profile == "lossless"
    done = run(here, "wrap", "--list")
    assert "profile in" in done.stderr, "ignored, and said so"
    assert not (here / "loaded").exists()


# --- one that grows with the conversation --------------------------------------------------------


class Shortened(StrategyState):
    """What it is fed is cut short; at the third request all that was sent is as it came again."""

    def __init__(self) -> None:
        self.requests = 0
        self.fed = 0

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        self.fed += 1
        if self.requests < 3:
            yield from _short(message)

    def request(self, moment: RequestContext) -> Revision | None:
        self.requests += 1
        return Revision(Plan) if self.requests == 3 else None


def _short(message: Message) -> Iterator[Edit]:
    for result in message.results:
        for segment in result.segments:
            if isinstance(segment, Text):
                yield Edit(
                    strategy="short",
                    op="set",
                    message=message.index,
                    path=segment.path,
                    removed=(segment.text,),
                    added=segment.text[:100],
                )


@dataclass(frozen=True)
class Grown(Strategy):
    name: ClassVar[str] = "short"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    revises: ClassVar[bool] = True

    folds: list[Shortened]

    def begin(self, start: ConversationStart) -> StrategyState:
        self.folds.append(Shortened())
        return self.folds[-1]


def test_one_that_grows_is_fed_each_message_once() -> None:
    strategy = Grown([])
    session = ibidem.Session(strategies=[strategy])
    sent = [session.compact(body(results)) for results in (1, 2, 3)]
    assert [len(each.plan) for each in sent] == [1, 0, 0]
    assert [fold.fed for fold in strategy.folds] == [7]
    assert sent[1].request == body(2)


def test_the_simplest_kind_is_no_subclass_of_ours() -> None:
    @dataclass(frozen=True)
    class Plain:
        name: ClassVar[str] = "plain"
        touches: ClassVar[frozenset[Kind]] = frozenset({"result"})

        def plan(self, conv: Conversation) -> Iterator[Edit]:
            for message in conv.messages:
                yield from _short(message)

    found: Any = Plain()
    assert len(ibidem.compact(body(2), strategies=[found]).plan) == 2
    assert len(ibidem.Session(strategies=[found]).compact(body(2)).plan) == 2


# --- ones that are wrong -------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong(Strategy):
    """Its fold does what it should not."""

    name: ClassVar[str] = "wrong"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result", "messages"})

    does: Any

    def begin(self, start: ConversationStart) -> StrategyState:
        does = self.does

        class Broken(StrategyState):
            def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
                return list(does(message))

        return Broken()


def _raises(message: Message) -> Iterable[Edit]:
    raise KeyError("x") if message.index == 3 else SystemExit(1)


def _edits_another(message: Message) -> Iterable[Edit]:
    return [Edit(strategy="wrong", op="drop", message=message.index - 1)] if message.index else []


def _drops(message: Message) -> Iterable[Edit]:
    return [Edit(strategy="wrong", op="drop", message=message.index)] if message.index in (1, 2) else []


@pytest.mark.parametrize("does", [_raises, _edits_another], ids=["raises", "edits another message"])
def test_what_goes_wrong_in_it_leaves_the_request_as_it_came(does: Any) -> None:
    for data in (body(3), json.dumps(body(3)).encode(), json.dumps(body(3))):
        for found in (
            ibidem.compact(data, strategies=[Wrong(does)]),
            ibidem.Session(strategies=[Wrong(does)]).compact(data),
        ):
            assert found.request == data
            assert found.reason


def test_messages_that_go_leave_valid_json() -> None:
    session = ibidem.Session(strategies=[Wrong(_drops)])
    for results in (2, 3, 4):
        data = json.dumps(body(results)).encode()
        sent = session.compact(data).request
        assert json.loads(sent)["messages"] == [
            each for n, each in enumerate(body(results)["messages"]) if n not in (1, 2)
        ]
        assert sent == ibidem.compact(data, strategies=[Wrong(_drops)]).request


@pytest.mark.slow
def test_a_report_goes_on_and_tells_what_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import ibidem\n"
        "class Wrong(ibidem.Strategy):\n"
        "    name, touches, revises = 'wrong', frozenset({'result'}), True\n"
        "    def begin(self, start): raise KeyError('x')\n"
    )
    done = run(tmp_path, "report", "--json", "--profile", "wrong:Wrong", "--profile", OWN, path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sessions"][0]["profiles"]["wrong:Wrong"]["failures"] == ["KeyError: 'x'"]


class Neither(Strategy):
    name: ClassVar[str] = "neither"
    touches: ClassVar[frozenset[Kind]] = frozenset()


class Duck:
    name, touches = "duck", frozenset({"result"})

    def begin(self, start: ConversationStart) -> None: ...


@pytest.mark.parametrize("value", [Neither(), Duck()], ids=["neither plan nor begin", "a begin without the class"])
def test_what_cannot_work_is_refused_at_the_door(value: Any) -> None:
    for door in (lambda: ibidem.compact(body(1), strategies=[value]), lambda: ibidem.Session(strategies=[value])):
        with pytest.raises(ibidem.IbidemError, match="strategies: "):
            door()
