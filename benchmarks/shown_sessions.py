"""Made-up sessions of several agents over two months, for pictures: texts are generated, costs are measured.

They are the same every time. Agents read files, search and run tests; some of it again, as agents do.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.recordings import Recording
from ibidem.recordings.recording import RecordedRequest, RecordedSegment
from ibidem.report.aggregate import Report, ReportRequest, add_up
from ibidem.report.log_summary import paid_requests, summarize_session
from ibidem.report.measure import ReportSettings, measure_session
from ibidem.report.session_result import FileResult

from .history import line, text

PROFILES = ("lossless", "recoverable")
START = datetime(2026, 5, 4, tzinfo=UTC).timestamp()
DAY = 86400.0
CACHED_FOR = 300.0
"""Seconds."""
TOKEN = 3.6
"""Bytes."""


class Agent(NamedTuple):
    name: str
    format: str
    models: tuple[str, ...]
    reads: str
    runs: str
    finds: str


AGENTS = (
    Agent("claude-code", "anthropic", ("claude-sonnet-4-5", "claude-opus-4-6"), "Read", "Bash", "Grep"),
    Agent("claude-code", "anthropic", ("claude-sonnet-4-5", "claude-haiku-4-5"), "Read", "Bash", "Grep"),
    Agent("codex", "openai-responses", ("gpt-5-codex",), "read_file", "shell", "search"),
    Agent("pi", "anthropic", ("claude-haiku-4-5",), "read", "bash", "grep"),
)
PROJECTS = ("/home/sam/larder", "/home/sam/harbour-map", "/home/sam/work/ledger-api", "/home/sam/work/site")
FILES = ("app.py", "store.py", "units.py", "settings.py", "routes.py", "models.py", "tests/test_store.py", "README.md")
TITLES = (
    "Make the shopping list add up amounts in different units",
    "Why does the nightly build fail on the second shard?",
    "Move the settings of the importer into one file",
    "Add retry with back-off to the upload client",
    "The map jumps when a harbour is opened twice",
    "Write release notes for 2.4",
    "Rename Order to Purchase everywhere, also in the migrations, and keep the old routes working for a year",
    "Is there a race between the cache and the writer?",
    "Tests are slow: find the five slowest and say why",
    "Port the CSV export to the new writer",
    "Explain what ledger/closing.py does",
    "Fix the type errors in the adapters",
    "Add a dark theme",
    "Users in Lisbon see tomorrow's tides",
    "Review my branch before I open the pull request",
    "Show amounts in the currency of the order",
    "Upgrade to Python 3.14 and drop what it no longer needs",
    "Why are two requests sent when the form is saved?",
    "Split routes.py: one file for each resource",
    "Make the search forgive typing errors",
    "Draft an answer to the question about exports",
    "The tide table is empty on the first of the month",
    "Cache the harbours, and say when the cache is stale",
    "Move the tests of the store to one table",
)


def made_up_report(sessions: int = 48, profiles: tuple[str, ...] = PROFILES) -> Report:
    """What `ibidem report` would say of them."""
    rng = random.Random(20)
    found = [_recording(rng, number) for number in range(sessions)]
    figures = [measure_session(each, ReportSettings(profiles)) for each in found]
    facts = [summarize_session(each) for each in found]
    paid = [one for each in facts for one in paid_requests(each, Prices())]
    size = sum(len(str(each.segments[0].history)) for each in found)
    report = add_up(profiles, [FileResult(figures, size=size)], lambda _: None, paid)
    report.files_read = sessions
    report.asked = ReportRequest("Requests from 2026-05-04 to 2026-07-03.")
    return report


def _recording(rng: random.Random, number: int) -> Recording:
    agent = rng.choices(AGENTS, (5, 3, 3, 1))[0]
    project, exchanges = rng.choice(PROJECTS), rng.randint(12, 70)
    drawn = f"{rng.getrandbits(128):032x}"
    id_ = "-".join((drawn[:8], drawn[8:12], f"4{drawn[13:16]}", f"9{drawn[17:20]}", drawn[20:]))
    begun = START + DAY * int(60 * rng.random() ** 0.8) + 3600 * rng.uniform(8, 19)
    if datetime.fromtimestamp(begun, UTC).weekday() > 4:
        begun -= 2 * DAY
    title = TITLES[number] if number < len(TITLES) else rng.choice(TITLES)
    history = _history(rng, agent, title, exchanges)
    model = rng.choice(agent.models)
    segment = RecordedSegment(history, list(_requests(rng, agent, history, model, begun)))
    path = f"/home/sam/.logs/{agent.name}/{id_}.jsonl"
    return Recording(agent.name, agent.format, [segment], path=path, id=id_, title=title, project=project)


def _history(rng: random.Random, agent: Agent, title: str, exchanges: int) -> list[dict[str, Any]]:
    """Files grow by an edit now and then, and are read again."""
    files = {name: text(rng, rng.randint(3_000, 16_000)) for name in FILES}
    log = text(rng, 3_000)
    history: list[dict[str, Any]] = [{"role": "user", "content": title}]
    for number in range(exchanges):
        name = rng.choice(FILES)
        if rng.random() < 0.3:
            lines = files[name].split("\n")
            lines[rng.randrange(len(lines))] = line(rng)
            files[name] = "\n".join(lines)
        drawn = rng.random()
        if drawn < 0.2:
            tool, arguments, output = agent.reads, {"file_path": f"src/{name}"}, files[name]
        elif drawn < 0.35:
            tool, arguments = agent.runs, {"command": "pytest -q"}
            output = f"{log}\n{text(rng, 900)}\n{rng.randint(1, 40)} passed"
        else:
            tool, arguments = agent.finds, {"pattern": f"part_{number}"}
            output = text(rng, rng.randint(1_000, 14_000))
        history += _exchange(agent, number, tool, arguments, output)
    return history


def _exchange(agent: Agent, number: int, tool: str, arguments: dict[str, str], output: str) -> list[dict[str, Any]]:
    call, said = f"call_{number:020d}", f"Next I look at part {number}."
    if agent.format == "anthropic":
        use = {"type": "tool_use", "id": call, "name": tool, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        return [
            {"role": "assistant", "content": [{"type": "text", "text": said}, use]},
            {"role": "user", "content": [result]},
        ]
    spelt = "{" + ", ".join(f'"{name}": "{value}"' for name, value in arguments.items()) + "}"
    return [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]},
        {"type": "function_call", "call_id": call, "name": tool, "arguments": spelt},
        {"type": "function_call_output", "call_id": call, "output": output},
    ]


def _requests(rng: random.Random, agent: Agent, history: list[dict[str, Any]], model: str, begun: float) -> Any:
    """One for each result, with what a provider that keeps a cache would have counted."""
    at, before, size, last = begun, 0, 9_000.0, 0.0
    marks = agent.format == "anthropic"
    for length, entry in enumerate(history, 1):
        size += len(str(entry)) / TOKEN
        if entry.get("role") == "assistant" or entry.get("type") in ("message", "function_call"):
            continue
        read = before if at - last < CACHED_FOR else 0
        new = int(size) - read
        output = rng.randint(150, 900)
        usage = Usage(4, read, new, 0, output) if marks else Usage(new, read, 0, 0, output)
        yield RecordedRequest(length, model, at, at + 8, usage)
        before, last = int(size), at
        at += rng.uniform(10, 70) if rng.random() < 0.96 else rng.uniform(400, 4_000)
