"""What the reader makes of Gemini CLI's chats is what Gemini CLI sent.

    python -m pytest tests_slow/test_logs_gemini_cli.py

Left out of the comparison, because the chat does not hold it: `thoughtSignature`; and in chats of the older layout the
opening content about the folder, and everything after a resume.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibidem.testing import Answer, Calls, Fails, Says, Seen, Thinks, Upstream, by_turn

from .logs import PICTURE, Place, installed, same, turns

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
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"disableAutoUpdate": True, "retryFetchErrors": False},
    "privacy": {"usageStatisticsEnabled": False},
}


OLDER = "@google/gemini-cli@0.36.0"
"""Writes one JSON object."""


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
    return prepared(tmp_path, programs)


def prepared(folder: Path, programs: Path) -> Place:
    found = Place(folder, programs)
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


def test_the_older_layout(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = prepared(tmp_path, installed(OLDER, "gemini", tmp_path_factory.mktemp("npm")))
    with Upstream(by_turn(ANSWERS)) as upstream:
        ask(place, upstream, "-p", "Look at a.py.")
    (session,) = place.recorded()
    assert session.path.endswith(".json")

    def told(contents: list[Any]) -> list[Any]:
        opening = contents[:1] and "<session_context>" in str(contents[0])
        return unsigned(contents[1:] if opening else contents)

    assert len(turns(upstream)) == 5
    same(session, turns(upstream), told)


def test_a_compression(place: Place) -> None:
    """It happens by itself once the context is large enough; the summary is asked for without tools."""
    settings = {**SETTINGS, "model": {"compressionThreshold": 0.02}}
    (place.home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    for name in ("b.py", "c.py"):
        (place.project / name).write_text("".join(f"def {name[0]}_{n}(): return {n * n}\n" for n in range(1900)))
    reads = [Calls(("read_file", {"file_path": name})) for name in ("b.py", "c.py", "a.py")]
    talk = iter([*reads, Says("Read."), *reads[2:], Says("Done.")])

    def script(seen: Seen) -> Answer:
        return (
            next(talk, Says("Done.")) if seen.json.get("tools") else Says("<state_snapshot>All read.</state_snapshot>")
        )

    with Upstream(script) as upstream:
        ask(place, upstream, "-p", "Read b.py and c.py.")
        ask(place, upstream, "--resume", "latest", "-p", "And a.py.")
    (session,) = place.recorded()
    assert any("state_snapshot" in str(each.json["contents"][0]) for each in turns(upstream)), "it was compressed"
    same(session, turns(upstream), unsigned)
    assert "compaction" in [segment.cause for segment in session.segments]
