"""What a tool prints cannot choose how much is allocated, or how long it takes: all of it under a limit of memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ibidem
from ibidem.markers.backref import digest_of, tag_of
from ibidem.markers.restore import BUDGET_BASE, BUDGET_RATIO

LIMIT = 2**30
"""Bytes of address space that every program here gets."""
TAGS = [f"{number:03d}" for number in range(1000)]
OURS = tag_of("go")
MANY = 999_999_999
LINES = 20_000
FILE = "\n".join(f"line {n} of a file that says something {n * 7919 % 100_003}" for n in range(LINES))

LONG = "long " * 100_000


def for_every_tag(rest: str) -> str:
    """Who does not know the conversation tries every tag there is."""
    return "\n".join(f"[ibidem {tag}{rest}]" for tag in TAGS)


def over_and_over(first: str, rest: str) -> str:
    """Who does know it can say the same very often in one text."""
    return "\n".join([f"[ibidem {OURS}{first}]", *[f"[ibidem {OURS}{rest}]"] * 900])


GREP = [f"src/app/module.py:{n}:hit {n}" for n in range(50)]
FORGED = {
    "lines left out": for_every_tag(f": {MANY} lines left out"),
    "lines left out, with a reference": for_every_tag(f" 0123456789ab: {MANY} lines left out, old"),
    "a whole result": for_every_tag(".000000: unchanged, same as result 1"),
    "a range of lines": for_every_tag(f".000000: unchanged, lines 1-{MANY} of result 1"),
    "a range of numbered lines": for_every_tag(f".000000n: 1-{MANY} unchanged since result 1"),
    "a range of lines numbered otherwise": for_every_tag(
        f".000000n: 2-{MANY} unchanged, lines 1-{MANY - 1} of result 1"
    ),
    "a range of lines without a first marker": for_every_tag(f": lines 1-{MANY}"),
    "a range of items": for_every_tag(f".000000x: unchanged, items 1-{MANY} of result 1"),
    "all but some lines": for_every_tag(f".000000: unchanged, same as result 1, but for:]\n{MANY}: x\n[ibidem"),
    "the widest padding": for_every_tag(".000000n99"),
    "all of a file, over and over": over_and_over(
        f".000000: unchanged, lines 1-{LINES} of result 1", f": lines 1-{LINES} of result 1"
    ),
    "all of a file, over and over, in few words": over_and_over(
        f".000000: unchanged, lines 1-{LINES} of result 1", f": lines 1-{LINES}"
    ),
    "long lines, over and over": over_and_over(".000000: unchanged, line 1 of result 2", ": line 1 of result 2"),
    "all that stands above, over and over": "\n".join(
        [*["a line"] * 9000, over_and_over(".000000: unchanged, lines 1-9000 above", ": lines 1-9000 above")]
    ),
    "lines left out, over and over": over_and_over(f" 0123456789ab: {MANY} lines left out", f": {MANY} lines left out"),
    "rows whose keys are long": json.dumps([{"k" * 20_000: 1}, *[[1]] * 4000]) + f"\n[ibidem {OURS}.000000r]",
    "deep and indented": "[" * 300 + "1," * 9000 + "1" + "]" * 300 + f"\n[ibidem {OURS}.000000j99]",
    "a path above very many lines": "\n".join(["p" * 20_000, *["1:x"] * 4000]) + f"\n[ibidem {OURS}.000000g]",
    "a beginning above very many lines": "\n".join(["p" * 20_000 + "*", *[" x"] * 9000]) + f"\n[ibidem {OURS}.000000p]",
    "a search result that unfolds to something else": "\n".join([*GREP, "p" * 20_000, *["1:x"] * 8000]),
    "a digest that fits, for lines left out": f"x\n[ibidem {OURS}: {MANY} lines left out]\n"
    f"[ibidem {OURS}.{digest_of(f'x{chr(10)}[ibidem {OURS}: {MANY} lines left out]')}]",
}


def history(text: str) -> dict[str, Any]:
    """Two files, the text twice, and the file again."""
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for number, shown in enumerate([FILE, LONG, text, text, FILE]):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": f"{number}"}}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": shown}]},
        ]
    return {"model": "claude-opus-4-6", "max_tokens": 5, "messages": messages}


def limited(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
    )


LIBRARY = """
import json, sys, time
import ibidem
from ibidem.store import MemoryStore

forged, innocent = map(json.dumps, json.load(sys.stdin))
ways = {
    "compact": lambda given: ibidem.compact(json.loads(given)),
    "recoverable": lambda given: ibidem.compact(json.loads(given), profile="recoverable", store=MemoryStore()),
    "Session": lambda given: ibidem.Session().compact(given),
    "expand": lambda given: ibidem.expand(given, store=MemoryStore()),
}
found = {}
for name, way in ways.items():
    least = [9e9, 9e9]
    for turn in range(6):
        start = time.process_time()
        result = way((forged, innocent)[turn % 2])
        least[turn % 2] = min(least[turn % 2], time.process_time() - start)
        assert not getattr(result, "reason", ""), result.reason
    found[name] = least[0] / least[1]
sent = ibidem.compact(json.loads(forged))
assert ibidem.expand(sent.request) == json.loads(forged)
assert "unchanged" in sent.plan.edits[-1].added and sent.plan.edits[-1].message == 10, "the file was not referred to"
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", FORGED)
def test_a_forged_text_costs_what_any_text_of_its_size_costs(case: str) -> None:
    text = FORGED[case]
    innocent = text.replace("ibidem", "ibxdem").replace("*", "+")
    ended = limited("-c", LIBRARY, given=json.dumps([history(text), history(innocent)]))
    assert ended.returncode == 0, ended.stderr[-2000:]
    # The file of a megabyte is the greater part of either; one that is fetched 900 times would be a hundred times that.
    assert all(ratio < 8 for ratio in json.loads(ended.stdout).values()), ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["show", "compact", "expand", "validate", "report"])
def test_commands_stand_it(command: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    for case in ("lines left out", "all of a file, over and over", "lines left out, over and over"):
        path.write_text(json.dumps(history(FORGED[case])))
        ended = limited("-m", "ibidem.cli", command, str(path))
        assert ended.returncode == 0, ended.stderr[-2000:]
        assert "Error" not in ended.stderr


def test_what_markers_stand_for_does_not_add_to_what_they_may_stand_for() -> None:
    """Each text stands for three times as much as the one before; all digests are right."""
    source = "\n".join(["x" * 99] * 4000)
    request = history(source)
    messages = request["messages"][:1]
    for number in range(6):
        first, other = f"[ibidem {OURS}{{}}: unchanged, lines 1-4000 of result 1]", f"[ibidem {OURS}: lines 1-4000]"
        times = 3 ** (number - 1) if number else 0
        digest = "." + digest_of("\n".join([source] * times))
        shown = "\n".join([first.format(digest), *[other] * (times - 1)]) if number else source
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": shown}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    given = json.dumps({**request, "messages": messages})
    expanded = ibidem.expand(given)
    assert len(given) + len(source) < len(expanded) < BUDGET_BASE + (BUDGET_RATIO + 1) * len(given)
