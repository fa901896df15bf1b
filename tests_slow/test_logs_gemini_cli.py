"""What the reader makes of Gemini CLI's chats is what Gemini CLI sent.

    python -m pytest tests_slow/test_logs_gemini_cli.py

Left out of the comparison, because the chat does not hold it: `thoughtSignature`. Requests of the old layout (one JSON
object) cannot be compared: no version on npm that still writes it answers to this script.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibidem.testing import Answer, Calls, Fails, Says, Seen, Thinks, Upstream, by_turn

from .logs import Place, installed, same, turns

ANSWERS = (
    Thinks("First the file.", then=Calls(("read_file", {"file_path": "a.py"}), says="Let me look.")),
    Calls(
        ("run_shell_command", {"command": "head -n 3 a.py", "description": "Show"}),
        ("read_file", {"file_path": "none.py"}),
    ),
    Calls(("no_such_tool", {"x": 1})),
    Calls(("read_file", {"file_path": "p.png"}), says="A picture."),
    Says("All done."),
    Calls(("run_shell_command", {"command": "false", "description": "Fail"})),
    Says("Done again."),
)
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001000527"
    "de7f8e0000000049454e44ae426082"
)
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"disableAutoUpdate": True, "retryFetchErrors": False},
    "privacy": {"usageStatisticsEnabled": False},
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("@google/gemini-cli", "gemini", tmp_path_factory.mktemp("npm"))


def unsigned(contents: list[Any]) -> list[Any]:
    return [
        {**each, "parts": [{k: v for k, v in part.items() if k != "thoughtSignature"} for part in each["parts"]]}
        for each in contents
    ]


@pytest.fixture
def place(tmp_path: Path, programs: Path) -> Place:
    found = Place(tmp_path, programs)
    (found.project / "p.png").write_bytes(PICTURE)
    settings = found.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps(SETTINGS))
    return found


def ask(place: Place, upstream: Upstream, *words: str, fails: bool = False) -> None:
    variables = {
        "GEMINI_API_KEY": "opens-nothing",
        "GOOGLE_GEMINI_BASE_URL": upstream.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    place.run("gemini", "--yolo", "-m", "gemini-2.5-flash", *words, fails=fails, **variables)


def test_tools_that_fail_a_picture_and_a_resumed_session(place: Place) -> None:
    with Upstream(by_turn(ANSWERS)) as upstream:
        ask(place, upstream, "-p", "Look at a.py.")
        ask(place, upstream, "--resume", "latest", "-p", "And again.")
    (session,) = place.recorded()
    assert len(turns(upstream)) == 7
    assert (session.agent, session.project) == ("gemini-cli", str(place.project))
    same(session, turns(upstream), unsigned)
    sizes = [sent.usage.input for segment in session.segments for sent in segment.requests if sent.usage]
    assert len(sizes) == 7


def test_a_prompt_that_failed_is_not_sent_again(place: Place) -> None:
    def script(seen: Seen) -> Answer:
        return Fails(400) if "Refuse this." in json.dumps(seen.json["contents"]) else by_turn(ANSWERS[4:])(seen)

    with Upstream(script) as upstream:
        ask(place, upstream, "-p", "First.")
        ask(place, upstream, "--resume", "latest", "-p", "Refuse this.", fails=True)
        ask(place, upstream, "--resume", "latest", "-p", "Second.")
    (session,) = place.recorded()
    taken = [each for each in turns(upstream) if "Refuse this." not in json.dumps(each.json["contents"])]
    same(session, taken, unsigned)
