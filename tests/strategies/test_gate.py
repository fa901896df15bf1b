"""What stays although it is old: text of files that are in use."""

from __future__ import annotations

from typing import Any

import pytest

import ibidem
from ibidem.billing.revision_budget import CachePricing
from ibidem.model import ToolCall
from ibidem.store import MemoryStore
from ibidem.strategies.revision.file_names import MAX_COMMAND, loose_names
from ibidem.strategies.revision.file_protection import NEVER
from ibidem.tool_arguments.file_access import file_accesses

FREE = CachePricing(read=1.0, write=1.0)
CACHED = CachePricing(read=0.1, write=1.25)
TEXT = "\n".join(f"value_{n} = compute({n * 31}, 'name {n * 17 % 97}')" for n in range(60))

NAMES: dict[str, tuple[str, Any, set[str]]] = {
    "a path": ("Read", {"file_path": "/w/src/a.py"}, {"a.py"}),
    "a path of Windows": ("Read", {"file_path": "C:\\w\\a.py"}, {"a.py"}),
    "a file without an extension that is read for certain": ("Read", {"file_path": "/w/Makefile"}, {"Makefile"}),
    "a folder": ("Grep", {"pattern": "x", "path": "/w/src"}, set()),
    "a patch": ("apply_patch", "*** Begin Patch\n*** Update File: b/a.py\n+x\n*** End Patch", {"a.py"}),
    "a patch in a command": ("shell", {"command": "apply_patch <<'E'\n*** Update File: b/a.py\n+x\nE"}, {"a.py"}),
    "a command that prints": ("Bash", {"command": "cd /w && sed -n '1,9p' src/a.py | head -3"}, {"a.py"}),
    "two files": ("Bash", {"command": "cat a.py; nl -ba b.py"}, {"a.py", "b.py"}),
    "a command that writes": ("Bash", {"command": "echo x > out/a.py"}, {"a.py"}),
    "words of a command": ("shell", {"command": ["bash", "-lc", "cat a.py"]}, {"a.py"}),
    "a script that runs commands": ("exec", 'await tools.exec_command({cmd: "sed -n 1,9p a.py"})', {"a.py"}),
    "a test run": ("Bash", {"command": "pytest tests/test_a.py 2>&1 | tail -5"}, set()),
    "a search": ("Bash", {"command": "rg -n name src/a.py"}, set()),
    "numbers and options": ("Bash", {"command": "head -n 1.5 --lines=3"}, set()),
    "something else": ("Bash", {"command": 7}, set()),
}


@pytest.mark.parametrize("case", NAMES)
def test_the_files_that_a_call_may_be_about(case: str) -> None:
    tool, given, expected = NAMES[case]
    call = ToolCall("c", tool, given, (), ("input",))
    assert loose_names(call, file_accesses(call)) == expected


@pytest.mark.parametrize(
    "text", ["cat " + "a." * MAX_COMMAND, "cat " * MAX_COMMAND, ">" * MAX_COMMAND, "{" * MAX_COMMAND]
)
def test_names_are_found_in_time_that_grows_with_the_command(text: str) -> None:
    call = ToolCall("c", "Bash", {"command": text}, (), ("input",))
    assert len(loose_names(call, ())) < 3


class Talk:
    """A conversation of calls with results, each sent as it grows."""

    def __init__(self, economy: CachePricing = FREE, **settings: Any) -> None:
        self.store = MemoryStore()
        strategies = [ibidem.Evict(**{"economy": economy, "mask": 0, "phi": 0.0, "credit": 0.0, **settings})]
        self._session = ibidem.Session(strategies=strategies, store=self.store, format="anthropic")
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Go"}]
        self.sent: Any = None

    def call(self, tool: str, text: str = "done", idle: float = 1.0, failed: bool = False, **given: Any) -> str:
        """Which results and arguments are evicted now, by the number of their call."""
        name = f"c{len(self.messages) // 2}"
        self.messages.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": tool, "input": given}]}
        )
        result = {"type": "tool_result", "tool_use_id": name, "content": text, "is_error": failed}
        self.messages.append({"role": "user", "content": [result]})
        request = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": list(self.messages)}
        self.sent = self._session.compact(request, idle=idle).request
        assert ibidem.expand(self.sent, store=self.store) == request
        return self.gone

    @property
    def gone(self) -> str:
        blocks = [message["content"][0] for message in self.sent["messages"][1:]]
        return "".join(str(n // 2) for n, block in enumerate(blocks) if "left out" in str(block))

    def read(self, path: str, seed: int = 0, **fields: Any) -> str:
        return self.call("Read", TEXT.replace("value", f"value_{seed}_{path[0]}"), file_path=path, **fields)

    def wait(self, requests: int) -> str:
        for _ in range(requests):
            self.call("Bash", "ok", command="make")
        return self.gone


def test_other_results_go_beyond_the_last_ones() -> None:
    talk = Talk(mask=2)
    talk.call("Bash", TEXT, command="make")
    assert talk.wait(1) == ""
    assert talk.wait(1) == "0"


def test_a_read_stays_while_its_file_is_touched() -> None:
    talk = Talk(working_set=(3, 3), pending=(0, 0))
    talk.read("a.py")
    assert talk.wait(2) == ""
    talk.call("Bash", "x", command="tail -3 src/a.py")
    assert talk.wait(2) == ""
    assert talk.wait(1) == "0"


def test_a_read_that_is_still_to_be_edited_stays_for_longer() -> None:
    talk = Talk(working_set=(1, 1), pending=(6, 6))
    talk.read("a.py")
    talk.read("b.py")
    talk.call("Edit", file_path="a.py", old_string="x", new_string="y")
    assert talk.wait(1) == "0", "it was edited"
    assert talk.wait(3) == "0"
    assert talk.wait(1) == "01"


def test_an_edit_that_failed_is_still_to_be_made() -> None:
    talk = Talk(working_set=(1, 1), pending=(6, 6))
    talk.read("a.py")
    talk.call("Edit", "no such text", file_path="a.py", old_string="x", new_string="y", failed=True)
    assert talk.wait(3) == ""


def test_a_touch_protects_again_what_was_about_to_go() -> None:
    """It waits for a moment that pays, which a cache of this price never gives."""
    talk = Talk(CACHED, working_set=(2, 1), pending=(0, 0))
    talk.read("a.py")
    talk.wait(5)
    talk.call("Bash", "x", command="head -3 a.py", idle=999.0)
    assert talk.gone == "", "the cache is cold, but the file is in use"
    talk.wait(2)
    assert talk.call("Bash", "ok", command="make", idle=999.0) == "0"


def test_clocks_are_shorter_where_the_cache_is_cold() -> None:
    talk = Talk(CACHED, working_set=(NEVER, 2), pending=(0, 0))
    talk.read("a.py")
    assert talk.wait(9) == ""
    assert talk.call("Bash", "ok", command="make", idle=999.0) == "0"


def test_what_was_free_only_because_the_cache_was_cold_is_protected_again() -> None:
    """A reference holds it at the cold moment. When that goes, at a warm one, the read stays."""
    talk = Talk(working_set=(NEVER, 0), pending=(0, 0), mask=1)
    talk.read("a.py")
    same = TEXT.replace("value", "value_0_a")
    assert talk.call("Bash", f"{same}\n{TEXT.replace('value', 'other')}", command="make", idle=999.0) == ""
    assert "unchanged, lines 1-60" in str(talk.sent["messages"][-1])
    assert talk.wait(3) == "1"
    assert talk.call("Bash", "ok", command="make", idle=999.0) == "01"


def test_a_read_that_was_read_again_goes_at_once() -> None:
    talk = Talk(working_set=(NEVER, NEVER), pending=(NEVER, NEVER))
    talk.read("a.py")
    talk.read("a.py", seed=7)
    assert talk.wait(1) == "0"


@pytest.mark.parametrize(("edit_arguments", "gone"), [(None, ""), ((2, 2), "0"), ((9, 9), "")])
def test_arguments_of_a_call_that_names_files_have_a_clock_of_their_own(edit_arguments: Any, gone: str) -> None:
    talk = Talk(edit_arguments=edit_arguments, arguments=100, stale_arguments=False)
    talk.call("Write", file_path="a.py", content=TEXT)
    assert talk.wait(4) == gone


@pytest.mark.parametrize(("arguments", "gone"), [(None, ""), (100, "0"), (1 << 20, "")])
def test_arguments_without_a_file_go_like_results(arguments: int | None, gone: str) -> None:
    talk = Talk(arguments=arguments, mask=2)
    talk.call("Task", prompt=TEXT)
    assert talk.wait(2) == gone
