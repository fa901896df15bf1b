"""What adapters are built on: a seat that finds conversations and never raises, a shadow, and who may be imported."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ibidem
from ibidem.adapters import _offload, _request_rewriter
from ibidem.adapters._offload import LONG_BYTES
from ibidem.adapters._request_rewriter import RequestRewriter, check_tested_version, missing_framework_error
from ibidem.adapters._wire_mirror import WireMirror, _message_content
from ibidem.adapters.httpx import Transport
from ibidem.store import MemoryStore, StoreError
from ibidem.store.store import JournalPage
from ibidem.testing import conv

TEXT = "\n".join(f"def step_{number}(value): return value * {number}" for number in range(150))
SCRIPT = ("s:be brief", "u:look", "a:>1", f"r1:{TEXT}", "a:>2", f"r2:{TEXT}")
KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input", "gemini": "contents"}


@pytest.mark.parametrize("format", KEYS)
def test_a_history_is_rewritten_and_never_written_to(format: str) -> None:
    history = conv(*SCRIPT, format=format)[KEYS[format]]
    before = copy.deepcopy(history)
    turn = RequestRewriter().rewrite(format, history, model="some-model")
    assert history == before
    assert "[ibidem " in json.dumps(turn.history)
    assert ibidem.expand({KEYS[format]: turn.history}, format=format)[KEYS[format]] == history
    same = [mine is theirs for mine, theirs in zip(turn.history, history, strict=True)]
    assert same.count(False) == 1


def test_what_has_nothing_to_rewrite_is_the_very_same_list() -> None:
    history = conv(*SCRIPT[:4], format="openai-chat")["messages"]
    assert RequestRewriter().rewrite("openai-chat", history).history is history


def test_async_does_the_same_for_short_and_long_requests() -> None:
    long = [each for number in range(LONG_BYTES // len(TEXT) + 2) for each in (f"a:>{number}", f"r{number}:{TEXT}")]
    for lines in (SCRIPT, ("u:look", *long)):
        history = conv(*lines, format="anthropic")["messages"]
        found = asyncio.run(RequestRewriter().arewrite("anthropic", history))
        assert found.history == RequestRewriter().rewrite("anthropic", history).history != history


def test_a_long_request_does_not_hold_up_the_event_loop() -> None:
    threads: list[int] = []

    class Told(RequestRewriter):
        def rewrite_body(self, *given: Any) -> Any:
            threads.append(threading.get_ident())
            return super().rewrite_body(*given)

    history = [{"role": "user", "content": "x" * (LONG_BYTES + 1)}]
    asyncio.run(Told().arewrite("anthropic", history))
    asyncio.run(Told().arewrite("anthropic", [{"role": "user", "content": "x"}]))
    assert threads[0] != threading.get_ident() == threads[1]


def test_a_long_request_is_worked_on_where_there_are_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    over = ThreadPoolExecutor(1)
    over.shutdown()
    monkeypatch.setattr(_offload, "_threads", lambda _: over)
    history = [{"role": "user", "content": "x" * (LONG_BYTES + 1)}]
    assert asyncio.run(RequestRewriter().arewrite("anthropic", history)).history


def test_threads_that_wait_for_an_answer_do_not_keep_it_from_being_asked_for() -> None:
    """Tools run in threads of the event loop, and may ask a model by way of that."""
    history = [{"role": "user", "content": "x" * (LONG_BYTES + 1)}]

    async def ask() -> None:
        loop, seat = asyncio.get_running_loop(), RequestRewriter()
        loop.set_default_executor(ThreadPoolExecutor(1))

        def tool() -> Any:
            return asyncio.run_coroutine_threadsafe(seat.arewrite("anthropic", history), loop).result(10)

        await asyncio.to_thread(tool)

    asyncio.run(ask())


ODD: dict[str, Any] = {
    "no messages": [],
    "numbers": [1, 2],
    "an object": [object()],
    "a cycle": None,
    "surrogates": [{"role": "user", "content": "\ud800"}, {"role": "assistant", "content": "x"}],
    "deep": None,
}
cycle: list[Any] = []
cycle.append(cycle)
ODD["a cycle"] = cycle
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]
ODD["deep"] = deep


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_nothing_that_is_given_makes_it_raise(name: str, profile: str) -> None:
    turn = RequestRewriter(profile, store=MemoryStore()).rewrite("openai-chat", ODD[name])
    assert turn.history is ODD[name]
    turn.report_usage(context=1)


def test_a_store_that_fails_sends_the_original() -> None:
    class Failing(MemoryStore):
        def notes(self, *_: Any) -> JournalPage:
            raise StoreError("memory", "the disk is gone")

    history = conv(*SCRIPT, format="anthropic")["messages"]
    turn = RequestRewriter("recoverable", store=Failing()).rewrite("anthropic", history)
    assert turn.history is history
    assert "the disk is gone" in turn.reason


def test_a_store_that_fails_is_told_once_per_request(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryStore):
        def notes(self, *_: Any) -> JournalPage:
            raise StoreError("memory", "the disk is gone")

    RequestRewriter("recoverable", store=Failing()).rewrite("anthropic", conv(*SCRIPT, format="anthropic")["messages"])
    assert len(caplog.records) == 1


def test_what_was_counted_is_known_at_once_and_kept_without_holding_up_the_event_loop() -> None:
    threads: list[int] = []

    class Told(MemoryStore):
        def note(self, *given: Any) -> JournalPage:
            threads.append(threading.get_ident())
            return super().note(*given)

    store = Told()
    seat, history = RequestRewriter("recoverable", store=store), conv(*SCRIPT, format="anthropic")["messages"]

    async def ask() -> Any:
        turn = await seat.arewrite("anthropic", history)
        turn.report_usage(context=4321, cached=100)
        return turn._outcome.conversation

    found = asyncio.run(ask())
    until = time.monotonic() + 10.0
    while not any(b"4321" in row for row in store.notes(found.name).rows):
        assert time.monotonic() < until
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(("model", "may"), [("claude-opus-5-5", False), ("claude-opus-4-1", True), ("gpt-5", True)])
def test_nothing_is_revised_where_signed_thinking_is_not_seen(model: str, may: bool) -> None:
    seat = RequestRewriter("recoverable", store=MemoryStore())
    assert seat._live_for("openai-chat", model).conversations.can_revise is may
    assert seat._live_for("anthropic", model).conversations.can_revise


def test_what_was_refused_stays_as_it_came() -> None:
    longer = (*SCRIPT, "a:fine", "u:more", "a:>3", f"r3:{TEXT}")
    seat, history = RequestRewriter(), conv(*longer, format="anthropic")["messages"]
    first = seat.rewrite("anthropic", history[:5])
    assert first.history != history[:5]
    first.report_rejection()
    later = seat.rewrite("anthropic", history).history
    assert later[:5] == history[:5]
    assert ibidem.expand({"messages": later}, format="anthropic")["messages"] == history != later


def test_copies_of_what_holds_it_share_its_conversations() -> None:
    seat, transport = RequestRewriter(), Transport()
    assert copy.deepcopy({"seat": [seat]}) == {"seat": [seat]}
    assert copy.deepcopy({"transport": transport})["transport"] is transport


def test_conversations_of_one_seat_do_not_mix() -> None:
    seat, turns = RequestRewriter(), []
    for owner in ("one", "two"):
        lines = (f"u:look at {owner}", "a:>1", f"r1:{owner}\n{TEXT}", "a:>2", f"r2:{owner}\n{TEXT}")
        turns.append(seat.rewrite("anthropic", conv(*lines, format="anthropic")["messages"], conversation=owner))
        turns.append(seat.rewrite("anthropic", conv(*lines, format="anthropic")["messages"], conversation="shared"))
    assert all("[ibidem " in json.dumps(turn.history) for turn in turns)
    assert len({turn._outcome.conversation.id for turn in turns if turn._outcome.conversation}) == 4


def test_objects_among_messages_are_read_and_left_as_they_are() -> None:
    class Said:
        def model_dump(self, **_: Any) -> Any:
            return second

    messages = conv(*SCRIPT[1:], format="openai-chat")["messages"]
    second, messages[3] = messages[3], (said := Said())
    turn = RequestRewriter().rewrite("openai-chat", messages)
    assert turn.history[3] is said
    assert "[ibidem " in turn.history[4]["content"]


# ── the shadow ──────────────────────────────────────────────────────────────────────────────────────────────────────


def shadow_of(texts: Any) -> WireMirror:
    found = WireMirror()
    found.add_system("be brief")
    found.add_user("look")
    for number in (1, 2):
        found.add_assistant(None, [(f"call_{number}", "read", {"path": "a.py"})])
        found.add_result(f"call_{number}", texts, ("place", number))
    return found


def test_a_shadow_says_which_results_changed_and_how() -> None:
    turn = RequestRewriter().rewrite_mirror(shadow_of(TEXT))
    assert list(turn.results) == [("place", 2)]
    (new,) = turn.results["place", 2]
    assert "[ibidem " in new
    wire = conv(*SCRIPT, format="anthropic", calls={"1": ("read", {"path": "a.py"}), "2": ("read", {"path": "a.py"})})
    wire["messages"][-1]["content"][0]["content"] = new
    assert TEXT in json.dumps(ibidem.expand(wire, format="anthropic")["messages"][-1]).encode().decode("unicode_escape")


@pytest.mark.parametrize("profile", ibidem.PROFILES)
def test_nothing_but_results_changes_with_any_profile(profile: str) -> None:
    """What a shadow cannot give back is not sent, and the conversation knows that."""
    seat, shadow = RequestRewriter(profile, store=MemoryStore()), WireMirror()
    shadow.add_user("look")
    for number in range(30):
        text = f"{number}\n{TEXT}" if number % 3 else TEXT
        shadow.add_assistant(f"I write this:\n{TEXT}", [(f"call_{number}", "write", {"path": "a.py", "content": text})])
        shadow.add_result(f"call_{number}", text, number)
        turn = seat.rewrite_mirror(shadow, model="gpt-5")
        turn.report_usage(context=1000 * number, cached=0)
        seat.now = lambda number=number: 1e9 + 7200.0 * number  # type: ignore[misc]
        assert set(turn.results) <= set(range(number + 1))
        assert {edit.message for edit in turn.edits} <= {2 * each + 2 for each in range(number + 1)}
    assert turn.results or turn.reason or not turn.edits


def test_what_a_call_was_made_with_can_be_quoted() -> None:
    shadow = WireMirror()
    shadow.add_user("look")
    shadow.add_assistant(None, [("call_1", "write", {"content": TEXT})])
    shadow.add_result("call_1", TEXT, "place")
    assert "[ibidem " in RequestRewriter().rewrite_mirror(shadow).results["place"][0]


def test_texts_beside_pictures_keep_their_places() -> None:
    turn = asyncio.run(RequestRewriter().arewrite_mirror(shadow_of([None, TEXT, "short"])))
    (texts,) = turn.results.values()
    assert len(texts) == 2
    assert texts[1] == "short"


@pytest.mark.parametrize("said", [[None], ["", None], ["look", " "], "\n"])
def test_a_conversation_without_words_of_its_own_is_left_alone(said: Any) -> None:
    shadow = shadow_of(TEXT)
    shadow.history[1]["content"] = _message_content(said)
    assert RequestRewriter().rewrite_mirror(shadow).results == {}
    assert asyncio.run(RequestRewriter().arewrite_mirror(shadow)).results == {}


def test_a_shadow_of_nothing_new_changes_nothing() -> None:
    shadow = WireMirror()
    shadow.add_user(["look", None])
    assert RequestRewriter().rewrite_mirror(shadow).results == {}


# ── who may be imported ─────────────────────────────────────────────────────────────────────────────────────────────

ADAPTERS = sorted(
    path.stem for path in Path(_request_rewriter.__file__).parent.glob("*.py") if not path.stem.startswith("_")
)
FRAMEWORKS = (
    "agents",
    "anthropic",
    "openai",
    "google.genai",
    "pydantic_ai",
    "langchain",
    "litellm",
    "crewai",
    "aiohttp",
)


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_importing_ibidem_or_the_transport_loads_no_framework() -> None:
    for statement in ("import ibidem", "import ibidem.adapters.httpx; ibidem.adapters.httpx.Transport()"):
        assert not loaded_by(statement) & {*FRAMEWORKS, "httpx", "httpx2"}


def test_an_adapter_whose_framework_is_missing_says_what_to_install() -> None:
    names = [each for each in ADAPTERS if each != "httpx"]
    blocked = (
        "import importlib, sys\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in BLOCKED: raise ModuleNotFoundError('none: ' + name, name=name)\n"
        f"BLOCKED = {OUTSIDE!r}\n"
        "sys.meta_path.insert(0, Nothing())\n"
        f"for name in {names!r}:\n"
        "    try: importlib.import_module('ibidem.adapters.' + name)\n"
        "    except ModuleNotFoundError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=True)
    for name, line in zip(names, ran.stdout.splitlines(), strict=True):
        assert line.startswith(f"ibidem.adapters.{name} needs ")
        assert "pip install" in line


OUTSIDE = {
    *("agents", "anthropic", "openai", "google", "pydantic_ai", "langchain", "langchain_core", "litellm", "crewai"),
    *("strands", "inspect_ai", "agent_framework", "llama_index", "minisweagent", "openhands", "langgraph"),
}


def test_a_missing_package_names_its_fix() -> None:
    found = missing_framework_error(ModuleNotFoundError(name="langchain"), "langchain", "'langchain>=1.4'")
    assert str(found) == "ibidem.adapters.langchain needs langchain: pip install 'langchain>=1.4'"
    assert found.name == "langchain"


def test_a_version_that_is_not_known_is_refused_by_name() -> None:
    check_tested_version("some", "pytest", untested="9999")
    with pytest.raises(ImportError, match=r"ibidem.adapters.some is tested with pytest below 8, but this is"):
        check_tested_version("some", "pytest", untested="8")
