"""The same work as two agents write it down: the lines of Claude Code, and the rollouts of Codex."""

from __future__ import annotations

import random
from typing import Any

from .made_up import BYTES_PER_TOKEN, Json, Log, identifier
from .work import Project, Step

CLAUDE_MODELS = ("claude-sonnet-4-5-20250929", "claude-opus-4-5-20251101", "claude-haiku-4-5-20251001")
"""The last one is that of sub-agents."""
CODEX_MODELS = ("gpt-5-codex", "gpt-5.2-codex")
SIGNATURE = "c2lnbmF0dXJl" * 16
SEALED = "c2VhbGVk" * 60
SUMMARY = "This session continues from one that ran out of context. We read files, changed them and ran tests. " * 12


class ClaudeLog(Log):
    """One content block per line; a result comes with a copy for the screen."""

    def __init__(self, rng: random.Random, project: Project, session: str, size: int, agent: str = "") -> None:
        self.agent = agent
        self._parent: str | None = None
        super().__init__(rng, project, session, size)

    def begin(self) -> None:
        self._model = CLAUDE_MODELS[2] if self.agent else self.rng.choice(CLAUDE_MODELS[:2])

    def _row(self, kind: str, size: int, **fields: Any) -> None:
        uuid = identifier(self.rng)
        found: Json = {"parentUuid": self._parent, "isSidechain": bool(self.agent), "userType": "external"}
        found |= {"agentId": self.agent} if self.agent else {}
        found |= {"cwd": self.project.folder, "sessionId": self.session, "version": "2.1.150", "gitBranch": "main"}
        self.add({**found, "type": kind, "uuid": uuid, **fields})
        self.bytes += 400 + size
        self._parent = uuid

    def say(self, words: str) -> None:
        self.weigh(words)
        self._row("user", len(words), message={"role": "user", "content": words})

    def step(self, step: Step) -> None:
        call = f"toolu_{self.rng.getrandbits(96):024x}"
        name, asked = _claude_call(step)
        use = {"type": "tool_use", "id": call, "name": name, "input": asked}
        self._answer([*self._thoughts(step.file), use])
        self.clock.work()
        self.weigh(step.output, step.old, step.new)
        result = {"type": "tool_result", "tool_use_id": call, "content": step.output}
        screen = self._screen(step)
        size = len(step.output) + sum(len(str(value)) for value in screen.values())
        self._row("user", size, message={"role": "user", "content": [result]}, toolUseResult=screen)

    def _thoughts(self, file: str) -> list[Json]:
        thinking = {"type": "thinking", "thinking": f"The next one is {file}.", "signature": SIGNATURE}
        text = {"type": "text", "text": f"Now I look at {file}."}
        return [block for block, share in ((thinking, 0.3), (text, 0.6)) if self.rng.random() < share]

    def _answer(self, blocks: list[Json]) -> None:
        """Each line repeats the counts; only the last has all of the output."""
        at = self.clock.work()
        read, written = self.context.counted(at)
        key = f"{self.rng.getrandbits(96):024x}"
        output = sum(len(str(block)) for block in blocks) // BYTES_PER_TOKEN
        self.weigh(*map(str, blocks))
        for number, block in enumerate(blocks, 1):
            usage = {
                "input_tokens": 3,
                "cache_creation_input_tokens": written,
                "cache_read_input_tokens": read,
                "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
                "output_tokens": output if number == len(blocks) else 1,
                "service_tier": "standard",
            }
            message: Json = {"id": f"msg_{key}", "type": "message", "role": "assistant", "model": self._model}
            message |= {"content": [block], "stop_reason": None, "usage": usage}
            self._row("assistant", 500 + len(str(block)), message=message, requestId=f"req_{key}")

    def _screen(self, step: Step) -> Json:
        match step.kind:
            case "read":
                return {"type": "text", "file": {"filePath": step.file, "content": step.output, "numLines": step.lines}}
            case "edit":
                original = "\n".join(self.project.files[step.file])
                return {"filePath": step.file, "oldString": step.old, "newString": step.new, "originalFile": original}
        return {"stdout": step.output, "stderr": "", "interrupted": False}

    def close(self) -> None:
        self._answer([{"type": "text", "text": "That is done: the tests pass, and nothing else was touched."}])

    def compact(self) -> None:
        self.clock.work()
        self._row("system", 100, subtype="compact_boundary", content="Conversation compacted")
        self.weigh(SUMMARY)
        self._row("user", len(SUMMARY), message={"role": "user", "content": SUMMARY}, isCompactSummary=True)


def _claude_call(step: Step) -> tuple[str, Json]:
    match step.kind:
        case "read":
            return "Read", {"file_path": step.file, "offset": step.first, "limit": step.lines}
        case "search":
            return "Grep", {"pattern": step.old, "path": step.file, "output_mode": "content", "-n": True}
        case "edit":
            return "Edit", {"file_path": step.file, "old_string": step.old, "new_string": step.new}
    return "Bash", {"command": f"pytest -v {step.file}", "description": "Run the tests"}


class CodexLog(Log):
    """Rows of a type and a payload; a count follows each answer."""

    def begin(self) -> None:
        self._total = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
        self._total["total_tokens"] = 0
        about = {"id": self.session, "cwd": self.project.folder, "originator": "codex_cli_rs", "cli_version": "0.140.0"}
        self._row("session_meta", **about)
        self._row("turn_context", cwd=self.project.folder, model=self.rng.choice(CODEX_MODELS), effort="medium")

    def _row(self, kind: str, **payload: Any) -> None:
        self.add({"type": kind, "payload": payload})
        self.bytes += 100 + sum(len(str(value)) for value in payload.values())

    def say(self, words: str) -> None:
        self.weigh(words)
        self._message("user", words)
        self._row("event_msg", type="user_message", message=words)

    def _message(self, role: str, words: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        self._row("response_item", type="message", role=role, content=[{"type": kind, "text": words}])

    def step(self, step: Step) -> None:
        call, arguments = f"call_{self.rng.getrandbits(96):024x}", f'{{"cmd":"{_command(step)}"}}'
        at = self.clock.work()
        self._row("response_item", type="reasoning", summary=[], encrypted_content=SEALED)
        self._row("response_item", type="function_call", name="exec_command", arguments=arguments, call_id=call)
        self._count(at, len(arguments) + len(SEALED))
        self.clock.work()
        head = f"Chunk ID: {self.rng.getrandbits(24):06x}\nWall time: {self.rng.random():.4f} seconds\n"
        output = (
            f"{head}Process exited with code 0\nOriginal token count: {len(step.output) // 4}\nOutput:\n{step.output}"
        )
        self._row("response_item", type="function_call_output", call_id=call, output=output)
        self.weigh(arguments, SEALED, output)

    def _count(self, at: float, said: int) -> None:
        read, others = self.context.counted(at)
        output = said // BYTES_PER_TOKEN
        last = {"input_tokens": read + others, "cached_input_tokens": read, "output_tokens": output}
        last |= {"reasoning_output_tokens": output // 2, "total_tokens": read + others + output}
        self._total = {name: count + last[name] for name, count in self._total.items()}
        self._tell(last)

    def _tell(self, last: dict[str, int]) -> None:
        info = {"total_token_usage": self._total, "last_token_usage": last, "model_context_window": 272_000}
        self._row("event_msg", type="token_count", info=info)

    def close(self) -> None:
        at = self.clock.work()
        words = "That is done: the tests pass, and nothing else was touched."
        self._message("assistant", words)
        self._count(at, len(words))
        self.weigh(words)

    def compact(self) -> None:
        self.clock.work()
        kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SUMMARY}]}
        self.weigh(SUMMARY)
        self._row("compacted", message="", replacement_history=[kept])
        self._tell(dict.fromkeys(self._total, 0))
        self._row("event_msg", type="context_compacted")


def _command(step: Step) -> str:
    match step.kind:
        case "read":
            return f"nl -ba {step.file} | sed -n '{step.first},{step.first + step.lines - 1}p'"
        case "search":
            return f"rg -n '{step.old}' {step.file}"
        case "edit":
            return f"python edit.py {step.file} {step.first}"
    return f"pytest -v {step.file}"
