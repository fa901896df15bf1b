"""Arguments that are no longer needed: what an edit replaced, and what was written before the file changed again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import rules, testing
from ibidem.billing.revision_budget import CachePricing
from ibidem.model import ToolCall
from ibidem.store import MemoryStore
from ibidem.strategies.revision.stale_arguments import StaleArgumentKeys, find_stale_arguments
from ibidem.testing import conv
from ibidem.tool_arguments.file_access import file_accesses
from tests.support.evict import NO_CLOCKS

FREE = CachePricing(read=1.0, write=1.0)
SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


def text(lines: int, seed: int = 0) -> str:
    return "\n".join(f"value_{n} = compute({n * 31 + seed}, 'name {n * 17 % 97}')" for n in range(lines))


def edit(old: str, path: str = "a.py") -> tuple[str, dict[str, Any]]:
    return ("Edit", {"file_path": path, "old_string": old, "new_string": "short", "replace_all": False})


def write(content: str, path: str = "a.py") -> tuple[str, dict[str, Any]]:
    return ("Write", {"file_path": path, "content": content})


READ = ("Read", {"file_path": "a.py"})


def talk(*calls: tuple[str, dict[str, Any]], results: dict[int, str] | None = None, format: str = "anthropic") -> Any:
    lines = [line for n in range(len(calls)) for line in (f"a>{n}", f"r{n}:{(results or {}).get(n, 'done')}")]
    return conv("u:go", *lines, format=format, calls={str(n): call for n, call in enumerate(calls)})


def run(request: Any, store: Any = None, **fields: Any) -> ibidem.Compacted:
    looking = ibidem.Evict(**{"economy": FREE, **NO_CLOCKS, "thinking": False, **fields})
    return ibidem.compact(request, strategies=[looking], store=store or MemoryStore())


def inputs(request: Any) -> list[dict[str, Any]]:
    return [message["content"][-1]["input"] for message in request["messages"] if message["role"] == "assistant"]


def gone(found: ibidem.Compacted) -> list[tuple[int, Any]]:
    assert {edit.strategy for edit in found.plan} <= {"stale_arguments"}
    return [(edit.message, edit.path[-1]) for edit in found.plan]


def test_what_an_edit_replaced_goes_and_every_other_key_stays() -> None:
    request, store = talk(edit(text(12))), MemoryStore()
    found = run(request, store)
    [sent] = inputs(found.request)
    assert sent["old_string"].endswith(": 12 lines left out, replaced]")
    assert {**sent, "old_string": text(12)} == edit(text(12))[1]
    assert list(sent) == list(edit("")[1])
    assert not ibidem.validate(found.request)
    assert ibidem.expand(found.request, store=store) == request
    assert run(found.request, store).request == found.request


def test_what_an_edit_replaced_goes_before_it_is_first_sent_although_no_change_pays() -> None:
    """The provider has never cached it, so nothing is written again."""
    calls = (READ, edit(text(12)), edit(text(12, 5)))
    request, store = talk(*calls, results={0: text(40)}), MemoryStore()
    looking = ibidem.Evict(**NO_CLOCKS, economy=CachePricing(write=100.0), credit=0.0)
    session = ibidem.Session(strategies=[looking], format="anthropic", store=store)
    sent = []
    for length in (3, 5, 7):
        found = session.compact({**request, "messages": request["messages"][:length]}, at=float(length))
        session.answered(at=float(length), context=5000, cached=4000)
        assert found.plan.points == ()
        sent.append(found.request["messages"])
    assert [len(gone(found)), sent[1][:3], sent[2][:5]] == [2, sent[0], sent[1]]
    assert ibidem.expand(found.request, store=store) == request


STAYS = {
    "an edit that failed": (talk(edit(text(12))), True),
    "an edit that was not answered": (conv("u:go", "a>1", calls={"1": edit(text(12))}), False),
    "a text that is too short": (talk(edit(text(1))), False),
    "a file that nobody knows": (talk(edit(text(12), "https://a/b")), False),
    "a write whose file was not touched again": (talk(write(text(30))), False),
    "another file": (talk(write(text(30)), write("x", "b.py")), False),
    "a read of its beginning": (
        talk(write(text(30)), ("Read", {"file_path": "a.py", "limit": 5}), results={1: text(5, 3)}),
        False,
    ),
    "a note instead of a read": (talk(write(text(30)), READ, results={1: "unchanged since last read"}), False),
    "a write in pieces": (
        talk(("Write", {"file_path": "a", "content": text(30), "mode": "a"}), write("x", "a")),
        False,
    ),
    "arguments of a format that marks no failures": (talk(edit(text(12)), format="openai-chat"), False),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_may_still_be_needed_stays(case: str) -> None:
    request, failed = STAYS[case]
    if failed:
        request["messages"][-1]["content"][0]["is_error"] = True
    assert run(request).request is request


def test_what_was_written_stays_when_the_file_is_changed() -> None:
    """The model goes on editing from what it wrote."""
    for later in (write(text(30, 7)), edit("a"), ("Bash", {"command": "rm a.py"})):
        assert gone(run(talk(write(text(30)), later))) == []


def test_a_change_that_failed_is_none() -> None:
    request = talk(write(text(30)), write(text(30, 7)))
    request["messages"][-1]["content"][0]["is_error"] = True
    assert run(request).request is request


@pytest.mark.parametrize("beside", [READ, write(text(30, 5))], ids=["read", "written"])
@pytest.mark.parametrize("first", [0, 1])
def test_calls_that_were_made_together_have_no_order(beside: tuple[str, dict[str, Any]], first: int) -> None:
    """What was read, or written, may have been so before."""
    calls = [write(text(30)), beside]
    told = ["done", text(40, 7) if beside is READ else "done"]
    order = [first, 1 - first]
    request = conv("u:go", "a>0,1", *(f"r{n}:{told[n]}" for n in order), calls={str(n): calls[n] for n in order})
    assert gone(run(request)) == []


def test_a_call_by_the_name_of_one_that_failed_is_another() -> None:
    for failed in (write(text(30)), edit(text(30))):
        request = talk(failed, ("Bash", {"command": "make"}), results={0: "no"})
        request["messages"][2]["content"][0]["is_error"] = True
        for message in request["messages"][1:]:
            for block in message["content"]:
                block["id" if block["type"] == "tool_use" else "tool_use_id"] = "same"
        found = run(request)
        assert (gone(found), found.reason) == ([], "")


def test_what_was_written_goes_when_the_file_is_read_whole_and_says_otherwise() -> None:
    """A formatter was at work, so that nothing of it can be referred to."""
    shown = "\n".join(f"{n:6}\t    {line};" for n, line in enumerate(text(30, 3).split("\n"), 1))
    request = talk(write(text(30)), READ, results={1: shown})
    found = run(request)
    assert [edit.message for edit in found.plan if edit.strategy == "stale_arguments"] == [1]
    assert "the file was read again later" in str(found.request)


def test_what_a_reference_points_at_stays() -> None:
    """Law 5: the file is read back, and the read says that it stands in the call."""
    request = talk(write(text(30)), READ, results={1: text(30)})
    found = run(request)
    assert "call 1.content" in str(found.request)
    assert inputs(found.request)[0]["content"] == text(30)


Row = tuple[str, str, dict[str, Any], StaleArgumentKeys]
TOOLS: list[Row] = [
    ("Claude Code 2.1 Edit", "Edit", edit("x")[1], StaleArgumentKeys(replaced="old_string")),
    ("Claude Code 2.1 Write", "Write", write("x")[1], StaleArgumentKeys(content="content")),
    (
        "Gemini CLI replace",
        "replace",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "instruction": "z"},
        StaleArgumentKeys(replaced="old_string"),
    ),
    ("Gemini CLI write_file", "write_file", {"file_path": "/a", "content": "x"}, StaleArgumentKeys(content="content")),
    (
        "OpenCode edit",
        "edit",
        {"filePath": "/a", "oldString": "x", "newString": "y"},
        StaleArgumentKeys(replaced="oldString"),
    ),
    ("OpenCode write", "write", {"filePath": "/a", "content": "x"}, StaleArgumentKeys(content="content")),
    ("pi edit", "edit", {"path": "/a", "oldText": "x", "newText": "y"}, StaleArgumentKeys(replaced="oldText")),
    ("Copilot CLI edit", "edit", {"path": "/a", "old_str": "x", "new_str": "y"}, StaleArgumentKeys(replaced="old_str")),
    ("Copilot CLI create", "create", {"path": "/a", "file_text": "x"}, StaleArgumentKeys(content="file_text")),
    (
        "the text editor of Anthropic creates",
        "str_replace_based_edit_tool",
        {"command": "create", "path": "/a", "file_text": "x"},
        StaleArgumentKeys(content="file_text"),
    ),
    (
        "and replaces",
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"},
        StaleArgumentKeys(replaced="old_str"),
    ),
    ("and inserts", "str_replace_editor", {"command": "insert", "path": "/a", "new_str": "y"}, StaleArgumentKeys()),
    ("no new text", "Edit", {"file_path": "/a", "old_string": "x"}, StaleArgumentKeys()),
    ("no text", "Edit", {"file_path": "/a", "old_string": 5, "new_string": "y"}, StaleArgumentKeys()),
    ("two old texts", "Edit", {**edit("x")[1], "oldText": "x", "newText": "y"}, StaleArgumentKeys()),
    ("no file", "Write", {"content": "x"}, StaleArgumentKeys()),
    ("a file elsewhere", "write_file", {"path": "/a", "content": "x", "branch": "main"}, StaleArgumentKeys()),
    ("appending", "write_file", {"path": "/a", "content": "x", "append": True}, StaleArgumentKeys()),
    ("a tool that nobody knows", "scribble", {"path": "/a", "content": "x"}, StaleArgumentKeys()),
    ("a patch", "apply_patch", {"input": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}, StaleArgumentKeys()),
]


@pytest.mark.parametrize(("tool", "given", "expected"), [row[1:] for row in TOOLS], ids=[row[0] for row in TOOLS])
def test_arguments_are_known_by_their_names(tool: str, given: dict[str, Any], expected: StaleArgumentKeys) -> None:
    for input in (given, json.dumps(given)):
        call = ToolCall("1", tool, input, (), ())
        assert find_stale_arguments(call, file_accesses(call)) == expected


CALLS = st.one_of(
    st.builds(lambda n, path: edit(text(n, n), path), st.sampled_from([1, 9, 30]), st.sampled_from("ab")),
    st.builds(lambda n, path: write(text(n, n), path), st.sampled_from([1, 9, 30]), st.sampled_from("ab")),
    st.builds(lambda path: ("Read", {"file_path": path}), st.sampled_from("ab")),
)


@pytest.mark.parametrize("format", ["anthropic", "gemini", "openai-chat", "openai-responses"])
@given(st.lists(st.tuples(CALLS, st.sampled_from(["done", text(9, 9), text(30, 30), text(31, 5)])), max_size=9))
@SLOW
def test_every_law_holds(format: str, turns: list[tuple[Any, str]]) -> None:
    """Laws 1, 5, 6 and 10."""
    request = talk(*(call for call, _ in turns), results=dict(enumerate(said for _, said in turns)), format=format)
    store, looking = MemoryStore(), ibidem.Evict(**NO_CLOCKS, economy=FREE)
    found = ibidem.compact(request, strategies=[looking], format=format, store=store)
    assert not found.stats.failures
    assert not rules.violations(testing.read(found.request, format))
    assert ibidem.expand(found.request, format=format, store=store) == request
    assert ibidem.compact(found.request, strategies=[looking], format=format, store=store).request == found.request
    body = json.dumps(request)
    sent = ibidem.compact(body, strategies=[looking], format=format, store=store).request
    assert ibidem.expand(sent, format=format, store=store) == body
