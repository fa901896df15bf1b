"""Reminders that Claude Code adds to a conversation: the texts of its log lines of type `attachment`.

The log has the data of an attachment, but not the fixed sentences around it, so these are missing here. The list of
kinds that are sent comes from requests of Claude Code 2.1.218 and 2.1.325 (tests_slow/test_logs_claude_code.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from .recording import Json


def reminders(attachment: Json) -> list[str]:
    """Return the texts that the client sends for an attachment. Empty if the attachment is for the client only."""
    told = _KINDS.get(str(attachment.get("type")))
    return [text for text in told(attachment) if isinstance(text, str) and text.strip()] if told else []


def _said(name: str) -> Callable[[Json], list[str]]:
    return lambda found: [found.get(name) or ""]


def _joined(name: str, between: str = "\n") -> Callable[[Json], list[str]]:
    return lambda found: [between.join(found.get(name) or ())]


def _call(tool: str, arguments: Json, result: str) -> list[str]:
    written = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return [
        f"Called the {tool} tool with the following input: {written}",
        f"Result of calling the {tool} tool:\n{result}",
    ]


def _file(found: Json) -> list[str]:
    """A file that the user mentioned or a compaction restored, in the format of a Read result."""
    inner = found["content"].get("file") or {}
    if not isinstance(text := inner.get("content"), str):
        return []
    start = inner.get("startLine") or 1
    shown = "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), start))
    return _call("Read", {"file_path": inner.get("filePath") or found.get("filename")}, shown)


def _directory(found: Json) -> list[str]:
    path = found["path"]
    return _call("Bash", {"command": f"ls {path}", "description": f"Lists files in {path}"}, found.get("content") or "")


def _memory(found: Json) -> list[str]:
    return [f"Contents of {found['content']['path']}:\n\n{found['content']['content']}"]


def _queued(found: Json) -> list[str]:
    """A prompt that the user typed while the model was working. Images are omitted."""
    prompt = found.get("prompt") or ""
    return [prompt] if isinstance(prompt, str) else [block["text"] for block in prompt if block.get("type") == "text"]


def _edited(found: Json) -> list[str]:
    return [f"{found['filename']}\n{found['snippet']}"] if found.get("snippet") else []


def _hook_context(found: Json) -> list[str]:
    content = found.get("content") or ""
    told = content if isinstance(content, str) else "\n".join(content)
    return [f"{found['hookName']} hook additional context: {told}"]


def _hook_success(found: Json) -> list[str]:
    """Output of a hook. It is sent only for hooks that run before a prompt."""
    begins = found.get("hookEvent") in ("SessionStart", "UserPromptSubmit")
    return [f"{found['hookName']} hook success: {found['content']}"] if begins and found.get("content") else []


def _hook_error(found: Json) -> list[str]:
    return [f"{found['hookName']} hook blocking error: {found['blockingError']['blockingError']}"]


def _tasks(found: Json) -> list[str]:
    rows = [row for row in found.get("content") or () if isinstance(row, dict)]
    named = ((row.get("id"), row.get("status"), row.get("subject") or row.get("content")) for row in rows)
    return ["\n".join(f"#{id}. [{status}] {text}" for id, status, text in named)]


def _tools(found: Json) -> list[str]:
    return ["\n".join(found.get("addedLines") or found.get("addedNames") or ())]


_KINDS: dict[str, Callable[[Json], list[str]]] = {
    "agent_listing_delta": _joined("addedLines"),
    "critical_system_reminder": _said("content"),
    "deferred_tools_delta": _tools,
    "directory": _directory,
    "edited_text_file": _edited,
    "file": _file,
    "hook_additional_context": _hook_context,
    "hook_blocking_error": _hook_error,
    "hook_success": _hook_success,
    "mcp_instructions_delta": _joined("addedBlocks", "\n\n"),
    "model": _said("text"),
    "nested_memory": _memory,
    "plan_file_reference": _said("planContent"),
    "queued_command": _queued,
    "selected_lines_in_ide": _said("content"),
    "silent_turn_reminder": _said("text"),
    "skill_listing": _said("content"),
    "task_reminder": _tasks,
    "todo_reminder": _tasks,
    "total_tokens_reminder": _said("text"),
}
