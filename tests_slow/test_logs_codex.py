"""What Codex sends, and what our reader finds in its log: the same items, request by request.

    python -m pytest tests_slow/test_logs_codex.py

What is not the same, because the log does not hold it:
- the words that ask for a summary, at the end of a compaction's own request (and, with OpenAI itself, that request);
- the `id` that Codex gives to the result "aborted" of a call that nothing answers.
Beside its items a request carries settings, which are not in the log either.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibidem import rules
from ibidem.formats import format_named, parse_request
from ibidem.testing import Answer, Calls, Raw, Says, Seen, Thinks, Upstream, by_turn

from .wire_logs import Agent, Json, installed, sent, told, version

PATH = "/v1/responses"
FILE = "".join(f"def function_{number}(argument): return argument * {number}\n" for number in range(400))
SUMMARY = "CONTEXT CHECKPOINT COMPACTION"
"""Words of the request for a summary."""
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two\n*** End Patch\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("npm"), "codex", "@openai/codex")


@pytest.fixture
def codex(programs: Path, tmp_path: Path) -> Agent:
    agent = Agent(programs, tmp_path, CODEX_API_KEY="sk-opens-nothing")
    (agent.project / "a.py").write_text(FILE)
    return agent


def shell(command: str, **more: Any) -> tuple[str, Json]:
    return "exec_command", {"cmd": command, **more}


def openai(upstream: Upstream) -> list[str]:
    return ["--skip-git-repo-check", "--json", "-c", f'openai_base_url="{upstream.url}/v1"']


def other(upstream: Upstream) -> list[str]:
    """A provider that is not OpenAI: its compactions are asked for in words."""
    about = f'{{name="other",base_url="{upstream.url}/v1",env_key="CODEX_API_KEY",wire_api="responses"}}'
    return ["--skip-git-repo-check", "--json", "-c", f"model_providers.other={about}", "-c", 'model_provider="other"']


def logs(agent: Agent) -> Iterator[Path]:
    return (agent.home / ".codex").rglob("rollout-*.jsonl")


def broken(body: Json) -> set[str]:
    return {violation.rule for violation in rules.violations(parse_request(body, format_named("openai-responses")))}


def same(agent: Agent, bodies: list[Json]) -> None:
    found = told(logs(agent))
    assert [body["input"] for _, body, _ in found] == [body["input"] for body in bodies]
    assert [body["model"] for _, body, _ in found] == [body["model"] for body in bodies]
    assert [body.get("instructions") for _, body, _ in found] == [body.get("instructions") for body in bodies]


def test_calls_that_run_and_fail_reasoning_and_a_second_turn(codex: Agent, tally: Callable[..., None]) -> None:
    script = [
        Thinks("First the file.", Calls(shell("cat a.py"), says="I look.")),
        Thinks("Two at once.", Calls(shell("head -n 3 a.py"), shell("tail -n 3 a.py"))),
        Calls(shell("ls no-such-file")),
        Calls(shell(f"apply_patch <<'EOF'\n{PATCH}EOF")),
        Calls(shell("seq 100000", max_output_tokens=50000)),
        Calls(("no_such_tool", {"x": 1})),
        Thinks("Done.", Says("So far.")),
        Calls(shell("head -n 1 a.py")),
        Says("Done."),
    ]
    with Upstream(by_turn(script)) as upstream:
        codex.run("codex", "exec", *openai(upstream), "Look at a.py.")
        codex.run("codex", "exec", "resume", "--last", *openai(upstream), "Go on.")
        bodies = sent(upstream, PATH)
    assert len(bodies) == len(script)
    same(codex, bodies)
    assert all(usage for _, _, usage in told(logs(codex)))
    tally("codex", version=version(codex, "codex"), requests=len(bodies))


def test_an_interruption_leaves_reasoning_with_nothing_behind_it_and_it_is_sent(codex: Agent) -> None:
    slow = replace(Thinks("Long thoughts.", Says("word " * 300)), chunk_delay=0.15)
    with Upstream(by_turn([Calls(shell("cat a.py")), slow, Says("Well.")])) as upstream:
        command = ["codex", "exec", *openai(upstream), "Look at a.py."]
        codex.stop(*command, when=lambda: upstream.wait_for(3), after=4, how=signal.SIGINT)
        codex.run("codex", "exec", "resume", "--last", *openai(upstream), "Go on.")
        bodies = sent(upstream, PATH)
    same(codex, bodies)
    kinds = [item["type"] for item in bodies[-1]["input"]]
    assert kinds[kinds.index("reasoning") + 1] == "message"
    assert broken(bodies[-1]) == {"reasoning-before-its-item"}
    assert [usage for _, _, usage in told(logs(codex))] == [True, False, True]


def test_calls_that_nothing_answered_are_answered_by_codex(codex: Agent) -> None:
    hung = Calls(shell("sleep 60"), shell("sleep 61"))
    with Upstream(by_turn([Calls(shell("cat a.py")), hung, Says("Well."), Says("Well.")])) as upstream:
        command = ["codex", "exec", *openai(upstream), "Look at a.py."]
        codex.stop(*command, when=lambda: upstream.wait_for(3), after=3, how=signal.SIGKILL)
        codex.run("codex", "exec", "resume", "--last", *openai(upstream), "Go on.")
        bodies = sent(upstream, PATH)
    made_up = [item for item in bodies[-1]["input"] if item.get("output") == "aborted"]
    assert len(made_up) == 2
    for item in made_up:
        item.pop("id", None)
    same(codex, bodies)


def test_a_compaction_that_is_asked_for_in_words(codex: Agent) -> None:
    work = iter([Thinks("Look.", Calls(shell("cat a.py"))), Calls(shell("tail -n 300 a.py")), Says("One.")])

    def script(seen: Seen) -> Answer:
        asked = SUMMARY in json.dumps(seen.json["input"][-1])
        return Says("We looked at a.py.") if asked else next(work, Says("Two."))

    with Upstream(script) as upstream:
        limit = ["-c", "model_auto_compact_token_limit=16000"]
        codex.run("codex", "exec", *other(upstream), *limit, "Look at a.py.")
        codex.run("codex", "exec", "resume", "--last", *other(upstream), *limit, "Go on.")
        bodies = sent(upstream, PATH)
    summaries = [body for body in bodies if SUMMARY in json.dumps(body["input"][-1])]
    assert summaries
    for body in summaries:
        body["input"].pop()
    found = [[bare(item) for item in body["input"]] for _, body, _ in told(logs(codex))]
    assert found == [body["input"] for body in bodies]


def bare(item: Json) -> Json:
    """What only OpenAI is told."""
    return {key: value for key, value in item.items() if key != "internal_chat_message_metadata_passthrough"}


def test_a_compaction_that_openai_makes(codex: Agent) -> None:
    work = iter([Thinks("Look.", Calls(shell("cat a.py"))), Calls(shell("tail -n 300 a.py")), Says("One.")])

    def script(seen: Seen) -> Answer:
        asked = seen.json["input"][-1]["type"] == "compaction_trigger"
        return sealed_summary(seen.json["model"]) if asked else next(work, Says("Two."))

    with Upstream(script) as upstream:
        limit = ["-c", "model_auto_compact_token_limit=19000"]
        codex.run("codex", "exec", *openai(upstream), *limit, "Look at a.py.")
        codex.run("codex", "exec", "resume", "--last", *openai(upstream), *limit, "Go on.")
        bodies = sent(upstream, PATH)
    others = [body for body in bodies if body["input"][-1]["type"] != "compaction_trigger"]
    assert len(others) < len(bodies)
    assert any(item["type"] == "compaction" for item in others[-1]["input"])
    same(codex, others)


def sealed_summary(model: str) -> Answer:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    response = {"id": "resp_c", "object": "response", "model": model, "output": [item], "usage": usage}
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": {**response, "output": [], "status": "in_progress"}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed"}}),
    ]
    told = "".join(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n" for kind, data in events)
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Raw((head + told).encode())
