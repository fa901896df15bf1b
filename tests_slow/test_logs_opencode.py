"""What the reader makes of OpenCode's database is what OpenCode sent, through each of three interfaces.

python -m pytest tests_slow/test_logs_opencode.py
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from ibidem.testing import Answer, Calls, Fails, Says, Seen, Thinks, Upstream, by_turn

from .logs import NOTHING, PICTURE, Place, installed, plain, same, turns

APIS = {"anthropic": "@ai-sdk/anthropic", "openai": "@ai-sdk/openai", "other": "@ai-sdk/openai-compatible"}
"""Providers, and what speaks to them."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("opencode-ai", "opencode", tmp_path_factory.mktemp("npm"))


def answers(place: Place) -> list[Answer]:
    file = {"filePath": str(place.project / "a.py")}
    return [
        Thinks("First the file.", then=Calls(("read", file), says="Let me look.")),
        Calls(
            ("bash", {"command": "head -n 3 a.py", "description": "Show"}),
            ("read", {"filePath": str(place.project / "none.py")}),
        ),
        Calls(("no_such_tool", {"x": 1}), ("bash", {"command": "false", "description": "Fail"})),
        Calls(("read", {"filePath": str(place.project / "p.png")}), says="A picture."),
        Says("All done."),
        Calls(("bash", {"command": "true", "description": "Nothing"})),
        Says("Done again."),
    ]


def prepared(place: Place, upstream: Upstream, provider: str, context: int = 100_000) -> None:
    (place.project / "p.png").write_bytes(PICTURE)
    told = {
        "reasoning": True,
        "tool_call": True,
        "attachment": True,
        "limit": {"context": context, "output": 500},
        "modalities": {"input": ["text", "image"], "output": ["text"]},
    }
    options = {"baseURL": f"{upstream.url}/v1", "apiKey": "opens-nothing"}
    models = {name: {"name": name, **told} for name in ("one", "two")}
    config = {
        "provider": {provider: {"npm": APIS[provider], "name": provider, "options": options, "models": models}},
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    (place.project / "opencode.json").write_text(json.dumps(config))


def ask(
    place: Place,
    provider: str,
    *words: str,
    model: str = "one",
    fails: bool = False,
    variables: Mapping[str, str] = NOTHING,
) -> None:
    quiet = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }
    place.run("opencode", "run", "-m", f"{provider}/{model}", *words, fails=fails, **quiet, **variables)


@pytest.mark.parametrize("provider", APIS)
def test_tools_that_fail_a_picture_and_a_session_that_goes_on(tmp_path: Path, programs: Path, provider: str) -> None:
    place = Place(tmp_path, programs)
    talk = by_turn(answers(place))

    def script(seen: Seen) -> Answer:
        return talk(seen) if seen.json.get("tools") else Says("A title")

    with Upstream(script) as upstream:
        prepared(place, upstream, provider)
        ask(place, provider, "Look at a.py.")
        ask(place, provider, "--continue", "And again.")
    (session,) = place.recorded()
    assert (session.agent, session.project) == ("opencode", str(place.project))
    same(session, turns(upstream), plain)


@pytest.mark.parametrize("provider", APIS)
def test_another_model_a_refusal_and_a_call_that_never_ended(tmp_path: Path, programs: Path, provider: str) -> None:
    """As if it had been killed while the call ran."""
    place = Place(tmp_path, programs)
    talk, refused = by_turn(answers(place)), list[Seen]()

    def script(seen: Seen) -> Answer:
        if "Refuse this." in str(seen.json) and not refused and seen.json.get("tools"):
            refused.append(seen)
            return Fails(400)
        return talk(seen) if seen.json.get("tools") else Says("A title")

    with Upstream(script) as upstream:
        prepared(place, upstream, provider)
        ask(place, provider, "Look at a.py.")
        interrupt(place)
        before = len(turns(upstream))
        ask(place, provider, "--continue", "Refuse this.", fails=True)
        ask(place, provider, "--continue", "The other one.", model="two")
    (session,) = place.recorded()
    sent = [each for each in turns(upstream) if each not in refused]
    assert len(sent) == before + 2
    same(session, sent, plain, after=before)


def interrupt(place: Place) -> None:
    with closing(sqlite3.connect(place.home / ".local/share/opencode/opencode.db")) as database:
        rows = database.execute("SELECT id, data FROM part ORDER BY id").fetchall()
        calls = [(name, json.loads(data)) for name, data in rows if '"type":"tool"' in data]
        name, call = calls[-1]
        call["state"] = {"status": "running", "input": call["state"]["input"], "time": {"start": 1}}
        database.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(call), name))
        database.commit()


def test_a_compaction(tmp_path: Path, programs: Path) -> None:
    """It happens by itself once the context is large enough; the summary is asked for without tools."""
    provider, place = "anthropic", Place(tmp_path, programs)
    talk = by_turn([*answers(place)[:2], *[Says("Go on.")] * 5])

    def script(seen: Seen) -> Answer:
        return talk(seen) if seen.json.get("tools") else Says("All was read.")

    with Upstream(script) as upstream:
        prepared(place, upstream, provider, context=7000)
        for number in range(3):
            ask(place, provider, *["--continue"][:number], f"Look at a.py, part {number}.")
    (session,) = place.recorded()
    assert "compaction" in [segment.cause for segment in session.segments]
    same(session, turns(upstream), plain)
