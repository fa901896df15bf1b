"""What the reader makes of pi's sessions is what pi sent, through each of the interfaces it has.

    python -m pytest tests_slow/test_logs_pi.py

Left out of the comparison: cache marks (they move); whether one text is a string or a list of one part, and neighbours
of one role in Anthropic's format (both are the same to the provider); `is_error: false`; what the Responses API says of
its own items (`id`, `status`, `phase`, `annotations`), and that pi puts these ids behind those of calls when another
model made them; the system prompt, which stands in the history of OpenAI's formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ibidem.testing import Answer, Calls, Fails, Says, Seen, Thinks, Upstream, by_turn

from .logs import NOTHING, PICTURE, Place, installed, plain, same, turns

APIS = {"anthropic-messages": "", "openai-responses": "/v1", "openai-completions": "/v1"}
"""And what their addresses end with."""
ANSWERS = (
    Thinks("First the file.", then=Calls(("read", {"path": "a.py"}), says="Let me look.")),
    Calls(("bash", {"command": "head -n 3 a.py"}), ("read", {"path": "none.py"})),
    Calls(("no_such_tool", {"x": 1}), ("bash", {"command": "false"})),
    Says("All done."),
    Calls(("bash", {"command": "true"})),
    Says("Done again."),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("@earendil-works/pi-coding-agent", "pi", tmp_path_factory.mktemp("npm"))


def prepared(place: Place, upstream: Upstream, api: str, **more: Any) -> None:
    """A provider with two models."""
    told = {"reasoning": True, "input": ["text", "image"], **more}
    models = [{"id": name, "name": name, **told} for name in ("one", "two")]
    provider = {"baseUrl": upstream.url + APIS[api], "api": api, "apiKey": "opens-nothing", "models": models}
    providers = {f"by-{api}": provider}
    (place.project / "p.png").write_bytes(PICTURE)
    settings = place.home / ".pi" / "agent" / "models.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"providers": providers}))


def ask(
    place: Place, api: str, *words: str, model: str = "one", fails: bool = False, variables: Mapping[str, str] = NOTHING
) -> None:
    chosen = ("--provider", f"by-{api}", "--model", model)
    quiet = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    place.run("pi", *chosen, *words, fails=fails, **quiet, **variables)


@pytest.mark.parametrize("api", APIS)
def test_tools_that_fail_and_a_session_that_goes_on(tmp_path: Path, programs: Path, api: str) -> None:
    place = Place(tmp_path, programs)
    with Upstream(by_turn(ANSWERS)) as upstream:
        prepared(place, upstream, api)
        ask(place, api, "-p", "Look at a.py.")
        ask(place, api, "--continue", "-p", "And again.")
    (session,) = place.recorded()
    assert (session.agent, session.project) == ("pi", str(place.project))
    assert len(turns(upstream)) == 6
    same(session, turns(upstream), plain)


@pytest.mark.parametrize("api", APIS)
def test_another_model_a_refusal_and_a_session_that_was_killed(tmp_path: Path, programs: Path, api: str) -> None:
    """What was cut off the log was sent as well; its requests are not compared."""
    place = Place(tmp_path, programs)

    refused: list[Seen] = []

    def script(seen: Seen) -> Answer:
        if "Refuse this." in str(seen.json) and not refused:
            refused.append(seen)
            return Fails(400)
        return by_turn(ANSWERS)(seen)

    with Upstream(script) as upstream:
        prepared(place, upstream, api)
        ask(place, api, "-p", "Look at a.py.")
        (log,) = (place.home / ".pi" / "agent" / "sessions").rglob("*.jsonl")
        lines = log.read_text().splitlines(keepends=True)
        second = [number for number, line in enumerate(lines) if '"role":"assistant"' in line][1]
        log.write_text("".join(lines[: second + 2]))
        ask(place, api, "--continue", "-p", "Go on.")
        ask(place, api, "--continue", "-p", "Refuse this.", fails=True)
        ask(place, api, "--continue", "-p", "The other one.", model="two")
    (session,) = place.recorded()
    sent = [each for each in turns(upstream) if each not in refused]
    same(session, [*sent[:2], *sent[4:]], plain)


def test_a_compaction(tmp_path: Path, programs: Path) -> None:
    """It happens by itself once the context is large enough; the summary is asked for without tools."""
    api, place = "anthropic-messages", Place(tmp_path, programs)
    talk = by_turn([Calls(("read", {"path": "a.py"})), Says("Read."), *[Says("Go on.")] * 5])

    def script(seen: Seen) -> Answer:
        return talk(seen) if seen.json.get("tools") else Says("All was read.")

    with Upstream(script) as upstream:
        prepared(place, upstream, api, contextWindow=2500, maxTokens=500)
        limits = {"enabled": True, "reserveTokens": 1000, "keepRecentTokens": 100}
        (place.home / ".pi" / "agent" / "settings.json").write_text(json.dumps({"compaction": limits}))
        for number in range(3):
            ask(place, api, *["--continue"][:number], "-p", f"Look at a.py, part {number}. " + "And then? " * 60)
    (session,) = place.recorded()
    assert "compaction" in [segment.cause for segment in session.segments]
    same(session, turns(upstream), plain)
