"""Clients on the path that users have: `ibidem wrap -- CLIENT` without `--upstream`, held against CLIENT alone.

    python -m pytest tests_slow/test_default_path.py

Each client runs a scripted session twice, direct and wrapped, with a login that can be played. `KNOWN` and `CHANGED`
list every difference that is allowed. The clients come from npm in their newest versions: set IBIDEM_TEST_CLIENTS to a
folder to keep them. Without it, the installation takes some minutes and 2 GB.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import ibidem

from .conftest import Tally
from .default_clients import AUTO_MODE, CLAUDE_KEY, CLIENTS, CODEX_KEY
from .default_path import END, NEW, Client, Desk, Run
from .first_request import Known, differences, facts, masked, messages, tool_bytes, tools
from .gate import Contact
from .logs import installed

CLAUDE: Mapping[str, Known] = {
    "betas": Known(
        "Claude Code sends these to its own host only. They are not set by a documented variable.",
        gone=frozenset(
            {
                "mid-conversation-system-clear-at-2026-08-21",
                "cache-diagnosis-2026-04-07",
                "prompt-caching-scope-2026-01-05",
                "thinking-binding-controls-2026-08-01",
                "tool-provenance-2026-10-26",
            }
        ),
    ),
    "fields": Known("It goes with the beta `cache-diagnosis`.", gone=frozenset({"diagnostics"})),
    "parameters": Known("The same.", gone=frozenset({'diagnostics={"previous_message_id": null}'})),
    "cache scopes": Known("It goes with the beta `prompt-caching-scope`.", gone=frozenset({"global"})),
    "billing fields": Known(
        "Only the first-party line has a checksum of the body (`cch`), which a rewritten request must not have.",
        gone=frozenset({"cch", "cc_prompt_id", "cc_turn_origin", "cc_prompt_index", "cc_turn_index", "cc_prev_req"}),
    ),
    "headers": Known(
        "Hints to its own host.",
        gone=frozenset(
            {
                "x-claude-1p-request-class",
                "x-claude-code-prompt-id",
                "x-claude-code-request-class",
                "x-claude-code-sandy-plover",
                "x-client-request-id",
            }
        ),
    ),
}
QWEN: Mapping[str, Known] = {
    "fields": Known("Qwen Code sends it to api.openai.com only.", gone=frozenset({"prompt_cache_key"})),
    "parameters": Known("The same.", gone=frozenset({"prompt_cache_key=qwen-code:*"})),
}
THREADS = "pi uses message threads with api.anthropic.com only: the server has the history, which Ibidem cannot see."
PI: Mapping[str, Known] = {
    "betas": Known(THREADS, gone=frozenset({"message-threads-2026-08-12"})),
    "fields": Known(THREADS, gone=frozenset({"thread"})),
    "parameters": Known(THREADS, gone=frozenset({'thread={"type": "create"}'})),
}
KNOWN: Mapping[str, Mapping[str, Known]] = {"claude": CLAUDE, "qwen": QWEN, "pi": PI}
"""By program and fact: differences of the first request."""

CHANGED: Mapping[str, str] = {
    "ENABLE_TOOL_SEARCH": "Claude Code defers tools behind another base URL only if this is set.",
    "IBIDEM_HOOKS_URL": "The plugin for Claude Code does nothing if requests come through the proxy.",
    "OPENCODE_CONFIG_CONTENT": "OpenCode reads no variable for a base URL.",
    "RUST_LOG": "Codex logs the rejected WebSocket as an error.",
    "IBIDEM_PI_BASE_URLS": "pi reads no variable for a base URL; an extension of ours reads this one.",
    "CLINE_PROVIDER_SETTINGS_PATH": "Cline reads no variable for a base URL; this names a copy of its settings.",
    "CLINE_SESSION_BACKEND_MODE": "Cline's hub would outlive the proxy.",
    "NO_PROXY": "Loopback is reached without the user's proxy.",
    "no_proxy": "Loopback is reached without the user's proxy.",
}
"""Variables that `wrap` may change besides those that hold its address, with the reason."""
ARGUMENTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "codex": (("-c", "openai_base_url="), ("-c", "shell_environment_policy.exclude=")),
    "pi": (("--extension", "/"),),
    "cn": (("--config", "/"),),
}
"""By program: options that `wrap` may put first on the command line, and how their values begin."""


OLDER_CLAUDE = "@anthropic-ai/claude-code@2.1.197"


class Pair(NamedTuple):
    client: Client
    direct: Run
    wrapped: Run


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clients: Path) -> Pair:
    """A session of one client, direct and wrapped."""
    client: Client = request.param
    desk = Desk(tmp_path_factory.mktemp(client.program), clients)
    return Pair(client, desk.run(client, wrapped=False), desk.run(client, wrapped=True))


def contacted(run: Run) -> set[tuple[str, str]]:
    return {(each.host, each.credential) for each in run.contacts}


def asked(contacts: Iterable[Contact]) -> set[tuple[str, str, str]]:
    """Where the model was asked: host, path and credential."""
    ends = ("/messages", "/responses", "/chat/completions", ":streamGenerateContent")
    return {
        (each.host, each.path, each.credential)
        for each in contacts
        if each.method == "POST" and each.path.endswith(ends)
    }


def is_routed(run: Run) -> bool:
    return any(row["kind"] == "model" for row in run.log)


def answer(client: Client, run: Run) -> object:
    """The text that the client printed at the end, or what takes its place in a machine-readable output."""
    if client.program == "claude":
        ended = json.loads(run.out)
        return ended["result"], ended["is_error"], ended["num_turns"]
    if client.program == "codex":
        items = [json.loads(line).get("item", {}) for line in run.out.splitlines()]
        return [item["text"] for item in items if item.get("type") == "agent_message"]
    return run.out


def test_the_answer_and_the_files_are_the_same(pair: Pair) -> None:
    for run in pair.direct, pair.wrapped:
        assert run.code == 0, (run.out[-2000:], run.err[-2000:])
        assert END in run.out
        assert NEW in run.files["a.py"].decode()
    assert answer(pair.client, pair.wrapped) == answer(pair.client, pair.direct)
    assert pair.wrapped.files == pair.direct.files


def test_the_first_request_is_the_same(pair: Pair, tally: Tally) -> None:
    direct, wrapped = pair.direct.requests, pair.wrapped.requests
    first, second = direct[0].json, wrapped[0].json
    up = [sum(len(each.body) for each in requests) for requests in (direct, wrapped)]
    tally(
        pair.client.name,
        requests=f"{len(direct)} → {len(wrapped)}",
        bytes_up=f"{up[0]:,} → {up[1]:,} ({up[1] / up[0] - 1:+.0%})",
        tools=f"{len(tools(first))} → {len(tools(second))}",
        tool_bytes=f"{tool_bytes(first):,} → {tool_bytes(second):,}",
    )
    assert len(wrapped) == len(direct)
    assert differences(facts(direct[0]), facts(wrapped[0]), KNOWN.get(pair.client.program, {})) == {}


def test_each_host_gets_the_credentials_that_it_gets_without_us(pair: Pair) -> None:
    assert asked(pair.wrapped.contacts) == asked(pair.direct.contacts)
    assert contacted(pair.wrapped) <= contacted(pair.direct)
    assert not any(each.clear for each in pair.wrapped.contacts)


def test_the_session_goes_through_ibidem_or_a_line_before_it_says_why_not(pair: Pair) -> None:
    if is_routed(pair.wrapped):
        through = [each for each in pair.wrapped.contacts if each.who == "ibidem"]
        assert asked(through) == asked(pair.wrapped.contacts)
    else:
        assert not pair.client.routed
        assert "ibidem: " in pair.wrapped.said_before


def test_a_session_is_one_conversation(pair: Pair) -> None:
    counts = Counter(row["conversation"] for row in pair.wrapped.log if row["kind"] == "model")
    assert not counts or max(counts.values()) == len(pair.wrapped.requests), counts


def test_expand_gives_the_original_back(pair: Pair) -> None:
    sent = pair.wrapped.requests[-1].text.decode()
    assert ("[ibidem " in sent) == is_routed(pair.wrapped)
    back = json.loads(ibidem.expand(sent, format=pair.client.format))
    last = pair.direct.requests[-1].json
    expanded, direct = list(map(masked, messages(back))), list(map(masked, messages(last)))
    # A message thread has only the new messages.
    assert (expanded[-len(direct) :] if "thread" in last else expanded) == direct


def test_wrap_changes_nothing_else(pair: Pair) -> None:
    before, after = pair.direct.variables, pair.wrapped.variables
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)} - {"HTTPS_PROXY", "_"}
    addresses = {name for name in changed if after.get(name, "").startswith("http://127.0.0.1:")}
    assert changed - addresses <= CHANGED.keys()
    given = list(pair.wrapped.arguments)
    for option, value in ARGUMENTS.get(pair.client.program, ()):
        if given[0] == option and given[1].startswith(value):
            del given[:2]
    assert given == pair.direct.arguments


def test_codex_uploads_more_over_http_than_over_its_websocket(tmp_path: Path, clients: Path, tally: Tally) -> None:
    """Over a WebSocket it sends new items only. Through Ibidem each request has the whole history."""
    desk = Desk(tmp_path, clients)
    direct, wrapped = (desk.run(CODEX_KEY, wrapped=each, websockets=True) for each in (False, True))
    assert answer(CODEX_KEY, direct) == answer(CODEX_KEY, wrapped) == ["Let me look.", END]
    assert not any(each.path.endswith("/responses") and not each.upgrade for each in direct.contacts)
    assert not any(each.upgrade for each in wrapped.contacts)
    frames, requests = sum(map(len, direct.frames)), sum(len(each.body) for each in wrapped.requests)
    tally(
        "codex, WebSocket direct → HTTP wrapped",
        frames=len(direct.frames),
        requests=len(wrapped.requests),
        bytes_up=f"{frames:,} → {requests:,} ({requests / frames:.1f} times)",
    )
    assert requests > frames


def test_an_older_claude_code_does_not_get_more_tools(tmp_path: Path, tally: Tally) -> None:
    """Behind another base URL it sends 25 tools, not 9, unless tool search is switched on."""
    desk = Desk(tmp_path, installed(OLDER_CLAUDE, "claude", tmp_path / "npm"))
    direct, wrapped = (desk.run(CLAUDE_KEY, wrapped=each) for each in (False, True))
    first, second = direct.requests[0].json, wrapped.requests[0].json
    tally(
        OLDER_CLAUDE,
        tools=f"{len(tools(first))} → {len(tools(second))}",
        tool_bytes=f"{tool_bytes(first):,} → {tool_bytes(second):,}",
    )
    assert END in wrapped.out
    assert {tool["name"] for tool in tools(second)} == {tool["name"] for tool in tools(first)}
    assert tool_bytes(second) == tool_bytes(first)


@pytest.mark.parametrize("wrapped", [False, True], ids=["direct", "wrapped"])
def test_auto_mode_prints_no_notice(tmp_path: Path, clients: Path, wrapped: bool) -> None:
    """It prints one if a response has no `safeguard_results`, and then asks for verdicts no more."""
    run = Desk(tmp_path, clients).run(AUTO_MODE, wrapped=wrapped)
    printed = [json.loads(line) for line in run.out.splitlines()]
    assert printed[-1]["result"] == END
    assert [each for each in printed if each.get("subtype") == "informational"] == []
    assert all(each.json.get("safeguards") for each in run.requests)


def test_a_proxy_of_the_user_does_not_get_the_key_in_clear(tmp_path: Path, clients: Path) -> None:
    """Without the shim: the client and Ibidem have the user's proxy, which only HTTPS_PROXY names."""
    run = Desk(tmp_path, clients).run(CLAUDE_KEY, wrapped=True, shim=False, HTTPS_PROXY="{gate}")
    assert [each for each in run.contacts if each.clear] == []
    assert run.code == 0, (run.out[-2000:], run.err[-2000:])
    assert is_routed(run)
    assert END in run.out


def test_no_proxy_of_the_user_stays(tmp_path: Path, clients: Path) -> None:
    command, own = replace(CLAUDE_KEY, program="env", arguments=()), "intranet.example,10.0.0.0/8"
    run = Desk(tmp_path, clients).run(command, wrapped=True, shim=False, HTTPS_PROXY="{gate}", NO_PROXY=own)
    printed = dict(line.split("=", 1) for line in run.out.splitlines() if "=" in line)
    for name in ("NO_PROXY", "no_proxy"):
        assert printed[name].split(",")[:2] == own.split(",")
        assert {"127.0.0.1", "localhost"} <= set(printed[name].split(","))
