"""Made-up sessions of which it is known whether evicted text was used later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ibidem.billing.calibration import TokenWeights
from ibidem.billing.revision_budget import CachePricing
from ibidem.formats import FORMATS
from ibidem.model import Message
from ibidem.plan import Edit
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.need import EvictedText, Need, find_needs, read_outputs
from ibidem.replay.replay_bill import parse_histories
from ibidem.replay.simulate import Simulation
from ibidem.strategies import profiles
from ibidem.strategies.revision import Evict
from ibidem.tokens import counter_for

FILE = "\n".join(f"    value_{n} = compute_the_total({n * 31}, name_of_customer={n * 17 % 97})" for n in range(40))
LINES = FILE.split("\n")
PATH = ("content", 0, "content")
GONE = "[ibidem 123 0123456789ab: 40 lines left out, old]"


def talk(*turns: tuple[str, dict[str, Any], str], answer: str = "") -> list[dict[str, Any]]:
    """Calls, each with its result; the last is the output that is judged."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go"}]
    for number, (tool, given, result) in enumerate(turns):
        call = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": given}
        messages.append({"role": "assistant", "content": [call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": result}]}
        )
    if answer:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return messages


def read(text: str = FILE, path: str = "a.py") -> tuple[str, dict[str, Any], str]:
    return "Read", {"file_path": path}, text


def edit(old: str, path: str = "a.py") -> tuple[str, dict[str, Any], str]:
    return "Edit", {"file_path": path, "old_string": old, "new_string": "pass"}, "done"


def bash(command: str) -> tuple[str, dict[str, Any], str]:
    return "Bash", {"command": command}, "done"


def history_of(messages: list[dict[str, Any]], format: str = "anthropic") -> list[Message]:
    return [FORMATS[format].read_message(index, wire) for index, wire in enumerate(messages)]


def needs(messages: list[dict[str, Any]], *evicted: int, left: str = GONE, label: str = "mask") -> list[Need]:
    """With the results in these messages evicted from the first request that could."""
    history = history_of(messages)
    lengths = [number for number, message in enumerate(history) if message.role == "assistant"]
    edits = [Edit(strategy=label, op="set", message=message, path=PATH, added=left) for message in evicted]
    found = [EvictedText(lengths.index(each.message + 1), len(lengths), each, 500.0) for each in edits]
    return find_needs(read_outputs(history, lengths), found)


def numbered(text: str, form: str) -> str:
    return "\n".join(form.format(n, line) for n, line in enumerate(text.split("\n"), 1))


def test_an_edit_whose_old_text_is_gone_is_impossible() -> None:
    [need] = needs(talk(read(), edit("\n".join(LINES[3:6]))), 2)
    assert (need.request, need.impossible, need.label, need.tool, need.purpose) == (1, 1, "mask", "Read", "edit")
    assert (need.age, need.tokens) == (0, 500.0)


@pytest.mark.parametrize("form", ["{:6}→{}", "{:6}\t{}", "{}: {}", "{:05}| {}", "a.py:{}:{}", "{}:+{}"])
def test_numbers_and_signs_of_lines_are_no_difference(form: str) -> None:
    old = "\n".join(LINES[3:6])
    assert needs(talk(read(numbered(FILE, form)), edit(old)), 2)
    assert not needs(talk(read(numbered(FILE, form)), read(), edit(old)), 2), "it is in view as another read shows it"


def test_a_patch_needs_the_lines_that_it_keeps_and_removes() -> None:
    patch = f"*** Begin Patch\n*** Update File: a.py\n@@\n {LINES[3]}\n-{LINES[4]}\n+pass\n*** End Patch"
    [need] = needs(talk(read(), ("apply_patch", {"input": patch}, "done")), 2)
    assert need.impossible == 1


def test_a_part_of_a_line_can_be_all_that_an_edit_names() -> None:
    assert needs(talk(read(), edit("compute_the_total(93, name_of")), 2)[0].impossible == 1


def test_an_edit_of_text_that_was_never_in_view_is_not_counted() -> None:
    assert not needs(talk(read(), edit("something that nobody has shown")), 2)


HARMLESS = {
    "a short line": talk(read("x = 1\ny = 2"), bash("echo x = 1")),
    "one line of fewer than 40 characters": talk(
        read("total = sum(all_the_values)"), bash("total = sum(all_the_values)")
    ),
    "imports": talk(
        read("from collections.abc import Iterable, Iterator, Sequence"),
        bash("from collections.abc import Iterable, Iterator, Sequence"),
    ),
    "a line of signs": talk(read("# " + "-" * 60), bash("# " + "-" * 60)),
    "another text": talk(read(), bash("make test && git commit -m 'something else entirely'")),
    "text that was fetched again": talk(read(), read(), bash(LINES[7])),
    "text of the user": talk(read(), bash("Go")),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_boilerplate_and_text_in_view_are_no_need(case: str) -> None:
    assert not needs(HARMLESS[case], 2)


def test_two_short_lines_or_a_long_one_are_a_need() -> None:
    pair = "total = sum(all_the_values)\ncount = len(all_the_values)"
    assert needs(talk(read(pair), bash(pair)), 2)
    [need] = needs(talk(read(), bash(LINES[7])), 2)
    assert (need.impossible, need.purpose) == (0, "command")
    [need] = needs(talk(read(), answer=LINES[7]), 2)
    assert need.purpose == "answer"


def test_a_line_that_the_model_has_written_twice_is_habit() -> None:
    line = "git add -A && git commit --signoff --message 'work in progress'"
    once = talk(read(line), bash(line))
    assert needs(once, 2)
    thrice = talk(read(line), bash(line), bash(line), bash(line))
    found = needs(thrice, 2)
    assert [need.request for need in found] == [1], "later on its own calls show the line"
    history = history_of(thrice)
    calls = [Edit(strategy="arguments", op="set", message=n, path=("content", 0, "input", "command")) for n in (3, 5)]
    result = Edit(strategy="mask", op="set", message=2, path=PATH)
    everything = [EvictedText(0, 4, each, 1.0) for each in (*calls, result)]
    assert [need.request for need in find_needs(read_outputs(history, [1, 3, 5, 7]), everything)] == [1, 2]


def test_lines_that_are_left_are_in_view() -> None:
    kept = f"{GONE}\n" + "\n".join(LINES[3:6])
    assert not needs(talk(read(), edit("\n".join(LINES[3:6]))), 2, left=kept)
    assert needs(talk(read(), edit("\n".join(LINES[3:7]))), 2, left=kept)


def test_back_references_and_layouts_are_no_eviction() -> None:
    assert not needs(talk(read(), edit(LINES[3])), 2, label="spans")


def test_output_in_json_is_taken_apart() -> None:
    import json

    [need] = needs(talk(("exec_command", {"cmd": "cat a.py"}, json.dumps({"output": FILE})), edit(LINES[3])), 2)
    assert need.impossible == 1


# ── whole sessions ──────────────────────────────────────────────────────────────────────────────────────────────────


def session(messages: list[dict[str, Any]], gap: float = 400.0) -> Recording:
    lengths = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    requests = [RecordedRequest(length, "m", at=gap * n, answered=gap * n + 1) for n, length in enumerate(lengths)]
    return Recording("made up", "anthropic", [RecordedSegment(messages, requests)])


def simulated(recording: Recording, strategies: Any) -> Simulation:
    return Simulation(
        recording, parse_histories(recording), strategies, TokenWeights(), counter_for(), CachePricing(), need=True
    )


def long_session(between: int) -> Recording:
    """A file is read, and edited after some commands."""
    commands = [bash(f"run step {n}") for n in range(between)]
    return session(talk(read(), *commands, edit("\n".join(LINES[3:6])), bash("the end")))


def test_lossless_needs_nothing_and_eviction_without_clocks_does() -> None:
    recording = long_session(15)
    assert simulated(recording, profiles.profile_strategies("lossless")).needs == []
    found = simulated(recording, [Evict(working_set=(0, 0), pending=(0, 0))])
    assert [(need.tool, need.impossible) for need in found.needs] == [("Read", 1)]
    assert (found.edits, found.evictions) == (1, 1)


@pytest.mark.parametrize(("profile", "kept"), [("balanced", 20), ("recoverable", 15), ("aggressive", 5)])
def test_profiles_keep_what_is_about_to_be_edited(profile: str, kept: int) -> None:
    assert simulated(long_session(kept), profiles.profile_strategies(profile)).needs == []
    assert simulated(long_session(70), profiles.profile_strategies(profile)).needs, (
        "it is cold, and nobody touched the file"
    )


def test_a_warm_cache_protects_for_longer() -> None:
    cold, warm = long_session(30), long_session(30)
    warm.segments[0].requests = [
        replace(sent, at=n * 9.0, answered=n * 9.0 + 1) for n, sent in enumerate(warm.segments[0].requests)
    ]
    assert simulated(cold, profiles.profile_strategies("recoverable")).needs
    assert not simulated(warm, profiles.profile_strategies("recoverable")).needs
