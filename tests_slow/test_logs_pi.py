"""What the reader makes of pi's sessions is what pi sent, through each of the interfaces it has.

    python -m pytest tests_slow/test_logs_pi.py

Left out of the comparison: cache marks (they move); whether one text is a string or a list of one part, and neighbours of
one role in Anthropic's format (both are the same to the provider); `is_error: false`; what the Responses API says of its
own items (`id`, `status`, `phase`, `annotations`); the system prompt, which stands in the history of OpenAI's formats.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibidem.testing import Answer, Calls, Fails, Says, Seen, Thinks, Upstream, by_turn

from .logs import Place, installed, same, turns

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


def prepared(place: Place, upstream: Upstream, *apis: str) -> None:
    """A provider for each interface, with two models."""
    models = [{"id": name, "name": name, "reasoning": True, "input": ["text", "image"]} for name in ("one", "two")]
    providers = {
        f"by-{api}": {"baseUrl": upstream.url + APIS[api], "api": api, "apiKey": "opens-nothing", "models": models}
        for api in apis
    }
    settings = place.home / ".pi" / "agent" / "models.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"providers": providers}))


def ask(place: Place, api: str, *words: str, model: str = "one", fails: bool = False) -> None:
    chosen = ("--provider", f"by-{api}", "--model", model)
    place.run("pi", *chosen, *words, fails=fails, PI_OFFLINE="1", PI_SKIP_VERSION_CHECK="1", PI_TELEMETRY="0")


OWN = {"status", "phase", "annotations", "cache_control"}


def as_logged(history: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in history:
        if entry.get("role") in ("system", "developer"):
            continue
        entry = {key: value for key, value in entry.items() if key not in OWN | {"id"}}
        if "content" in entry:
            entry["content"] = _parts(entry["content"])
        if found and "type" not in entry and entry["role"] != "tool" and found[-1].get("role") == entry["role"]:
            found[-1]["content"] += entry["content"]
        else:
            found.append(entry)
    return found


def _parts(content: Any) -> list[Any]:
    listed = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [{k: v for k, v in part.items() if k not in OWN and (k, v) != ("is_error", False)} for part in listed]


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
    same(session, turns(upstream), as_logged)
