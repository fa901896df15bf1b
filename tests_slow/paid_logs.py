"""Logs of Claude Code and of Codex, made up as they write them: compact JSON, in folders as they lay them out.

What is paid is in them in every way that is easy to count wrongly: an answer over several lines whose count of output
grows, lines that a resumed session copies, a sub-agent's file, words that the client put into the model's mouth, an
error, counts that are told again, a compaction, and requests on both sides of midnight.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from ibidem.billing.usage import Usage

Json = dict[str, Any]
LATER_NAME = "ffffffff-0000-4000-8000-000000000000"
"""A session id behind all others: what two files hold is put down to the first of them."""
PROJECT = "/home/me/shop"
SONNET, OPUS, HAIKU = "claude-sonnet-4-5-20250929", "claude-opus-4-5-20251101", "claude-haiku-4-5-20251001"
GPT, GPT_LATER = "gpt-5-codex", "gpt-5.2-codex"
MONDAY = datetime(2026, 10, 5, 9, tzinfo=UTC)
BEFORE_MIDNIGHT = datetime(2026, 10, 5, 23, 57, tzinfo=UTC)


def named(*parts: object) -> str:
    """An id like those that clients give, the same in every run."""
    return str(uuid5(NAMESPACE_URL, "/".join(map(str, parts))))


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def write(path: Path, rows: list[Json]) -> None:
    """As the clients do: without blanks between keys and values, which other readers look for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows))


class Ask(NamedTuple):
    """One request to Claude, as its answer's lines tell it."""

    usage: Usage
    lines: tuple[int, ...] = ()
    """The output that earlier lines of the answer count, one for each line; the last line counts it all."""


class ClaudeLog:
    """Writes the lines of one file, twenty seconds apart, each below the one before."""

    def __init__(self, session: str, model: str, at: datetime, agent: str = "") -> None:
        self.session, self.model, self.at, self.agent = session, model, at, agent
        self.rows: list[Json] = []
        self.parent: str | None = None

    def row(self, kind: str, **fields: Any) -> None:
        self.at += timedelta(seconds=20)
        uuid = named(self.session, self.agent, len(self.rows), kind)
        found = {"parentUuid": self.parent, "isSidechain": bool(self.agent), "userType": "external", "cwd": PROJECT}
        found |= {"agentId": self.agent} if self.agent else {}
        found |= {"sessionId": self.session, "version": "2.1.150", "gitBranch": "main", "type": kind}
        self.rows.append({**found, "uuid": uuid, "timestamp": stamp(self.at), **fields})
        self.parent = uuid

    def says(self, words: str, **fields: Any) -> None:
        self.row("user", message={"role": "user", "content": words}, **fields)

    def asks(self, *requests: Ask, **fields: Any) -> None:
        """A loop: each answer calls a tool, and its result is in the next request; the last says something."""
        for number, (usage, earlier) in enumerate(requests, 1):
            place = len(self.rows)
            call = f"toolu_{named(self.session, self.agent, place)}"
            last: Json = {"type": "text", "text": "Done."}
            if number < len(requests):
                last = {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": "a.py"}}
            before = [{"type": "text", "text": f"Step {number}, part {part}."} for part, _ in enumerate(earlier)]
            for block, output in zip([*before, last], [*earlier, usage.output], strict=True):
                self.answer(f"{self.agent}{place}", block, usage, output, **fields)
            if number < len(requests):
                result = {"type": "tool_result", "tool_use_id": call, "content": f"     1→line {place}\n"}
                self.row("user", message={"role": "user", "content": [result]})

    def answer(self, key: str, block: Json, usage: Usage, output: int, **fields: Any) -> None:
        ids = {"id": f"msg_{named(self.session, key)}", "type": "message", "role": "assistant", "model": self.model}
        counts = {
            "input_tokens": usage.fresh,
            "cache_creation_input_tokens": usage.written + usage.written_1h,
            "cache_read_input_tokens": usage.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.written,
                "ephemeral_1h_input_tokens": usage.written_1h,
            },
            "output_tokens": output,
            "service_tier": "standard",
        }
        message = {**ids, "content": [block], "stop_reason": None, "stop_sequence": None, "usage": counts, **fields}
        self.row("assistant", message=message, requestId=f"req_{named(self.session, key)}")

    def invents(self, words: str, *, error: bool) -> None:
        """The client speaks in the model's place: nothing was asked for, or nothing came back."""
        counts = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        message = {
            "id": named(self.session, words),
            "model": "<synthetic>",
            "role": "assistant",
            "type": "message",
            "content": [{"type": "text", "text": words}],
            "usage": counts,
        }
        self.row("assistant", message=message, isApiErrorMessage=error)


def claude_logs(folder: Path) -> None:
    """Three sessions with a sub-agent, over two days, below the folder that CLAUDE_CONFIG_DIR names."""
    project = folder / "projects" / "-home-me-shop"
    first = ClaudeLog(named("claude 1"), SONNET, BEFORE_MIDNIGHT)
    first.says("Make the tests pass.")
    first.asks(Ask(Usage(4, 0, 21_817, 0, 312), (1, 1)), Ask(Usage(6, 21_817, 1_402, 0, 95)))
    first.says("And the others?")
    first.asks(*(Ask(Usage(5, 23_219 + 900 * turn, 900, 0, 211 + turn), (3,)) for turn in range(9)))
    write(project / f"{first.session}.jsonl", first.rows)

    helper = ClaudeLog(first.session, HAIKU, BEFORE_MIDNIGHT + timedelta(minutes=1), agent="a1b2c3d")
    helper.says("Look for the letter q.")
    helper.asks(Ask(Usage(3, 0, 8_100, 0, 77)), Ask(Usage(9, 8_100, 455, 0, 1_204), (2, 2, 640)))
    write(project / first.session / "subagents" / "agent-a1b2c3d.jsonl", helper.rows)

    # What was resumed is copied in front, line by line: it was paid once.
    resumed = ClaudeLog(first.session, SONNET, first.at + timedelta(hours=2))
    resumed.rows, resumed.parent = list(first.rows), first.parent
    resumed.session = first.session
    resumed.says("One more thing.")
    resumed.asks(Ask(Usage(5, 0, 32_990, 0, 512)), Ask(Usage(7, 32_990, 801, 0, 60)))
    write(project / f"{LATER_NAME}.jsonl", resumed.rows)

    other = ClaudeLog(named("claude 2"), OPUS, MONDAY)
    other.says("Write the importer.")
    other.asks(Ask(Usage(2, 17_365, 0, 12_962, 618), (618, 618)), Ask(Usage(2, 30_327, 0, 2_204, 1_871)))
    other.invents("API Error: 529 overloaded", error=True)
    other.says("Again.")
    other.asks(Ask(Usage(3, 32_531, 120, 1_500, 402)), Ask(Usage(1, 34_151, 0, 640, 12)))
    other.invents("No response requested.", error=False)
    other.row("system", subtype="compact_boundary", content="Conversation compacted")
    other.says("This session continues from one that ran out of context.", isCompactSummary=True)
    other.asks(Ask(Usage(3, 17_365, 0, 4_020, 233)))
    write(project / f"{other.session}.jsonl", other.rows)


class CodexLog:
    """Writes the rows of one rollout, twenty seconds apart."""

    def __init__(self, session: str, model: str, at: datetime) -> None:
        self.session, self.began, self.at = session, at, at
        self.rows: list[Json] = []
        self.total = Usage()
        self.row(
            "session_meta", id=session, timestamp=stamp(at), cwd=PROJECT, originator="codex_cli", cli_version="0.140.0"
        )
        self.uses(model)

    def row(self, kind: str, **payload: Any) -> None:
        self.at += timedelta(seconds=20)
        self.rows.append({"timestamp": stamp(self.at), "type": kind, "payload": payload})

    def uses(self, model: str) -> None:
        self.row("turn_context", cwd=PROJECT, approval_policy="never", model=model)

    def message(self, role: str, words: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        self.row("response_item", type="message", role=role, content=[{"type": kind, "text": words}])

    def says(self, words: str) -> None:
        self.message("user", words)
        self.row("event_msg", type="user_message", message=words)

    def asks(self, *requests: Usage) -> None:
        """A loop: each answer calls a tool, and its output is in the next request; the last says something."""
        for number, usage in enumerate(requests, 1):
            self.row("response_item", type="reasoning", summary=[], encrypted_content="c2VhbGVk")
            if number == len(requests):
                self.message("assistant", "Done.")
                self.counts(usage)
                continue
            call = f"call_{len(self.rows)}"
            asked = {"name": "exec_command", "arguments": '{"cmd":"ls"}', "call_id": call}
            self.row("response_item", type="function_call", **asked)
            self.counts(usage)
            self.row("response_item", type="function_call_output", call_id=call, output="Output:\na.py\nb.py\n")

    def counts(self, usage: Usage) -> None:
        before = self.total
        self.total = Usage(
            before.fresh + usage.fresh,
            before.read + usage.read,
            output=before.output + usage.output,
            reasoning=before.reasoning + usage.reasoning,
        )
        self.tells(_counts(usage))

    def tells(self, last: Json) -> None:
        """The counts of the last answer and of all so far; Codex also tells them when nothing was answered."""
        info = {"total_token_usage": _counts(self.total), "last_token_usage": last, "model_context_window": 272_000}
        self.row("event_msg", type="token_count", info=info, rate_limits=None)

    def compacts(self) -> None:
        kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary: we listed."}]}
        self.row("compacted", message="", replacement_history=[kept])
        self.tells({**_counts(Usage()), "total_tokens": 9_000})
        self.row("event_msg", type="context_compacted")

    def write(self, folder: Path) -> None:
        day = self.began.strftime("%Y/%m/%d")
        write(folder / "sessions" / day / f"rollout-{self.began:%Y-%m-%dT%H-%M-%S}-{self.session}.jsonl", self.rows)


def _counts(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "cached_input_tokens": usage.read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning,
        "total_tokens": usage.input + usage.output,
    }


def codex_logs(folder: Path) -> None:
    """Two rollouts over two days, below the folder that CODEX_HOME names."""
    first = CodexLog(named("codex 1"), GPT, BEFORE_MIDNIGHT)
    first.says("List the files.")
    first.asks(
        Usage(9_210, 2_048, output=310, reasoning=192),
        Usage(1_533, 11_136, output=88),
        Usage(702, 12_544, output=1_460, reasoning=1_024),
    )
    first.tells(first.rows[-1]["payload"]["info"]["last_token_usage"])
    first.says("And now?")
    first.asks(*(Usage(640 + turn, 13_056 + 640 * turn, output=120 + turn, reasoning=64) for turn in range(6)))
    first.compacts()
    first.says("Go on.")
    first.asks(Usage(9_117, 0, output=77), Usage(480, 8_960, output=54, reasoning=20))
    first.write(folder)
    second = CodexLog(named("codex 2"), GPT_LATER, MONDAY + timedelta(days=1))
    second.says("Review the change.")
    second.asks(Usage(30_411, 0, output=2_210, reasoning=1_600), Usage(2_060, 29_952, output=930, reasoning=128))
    second.uses(GPT)
    second.says("Shorter.")
    second.asks(Usage(33_790, 0, output=301, reasoning=64))
    second.write(folder)
