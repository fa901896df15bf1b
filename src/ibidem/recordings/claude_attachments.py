"""Reminders that Claude Code adds to a conversation: the texts of its log lines of type `attachment`.

The log has the data of an attachment, but not the fixed sentences around it, so these are missing here. The list of
kinds that are sent comes from requests of Claude Code 2.1.218 and 2.1.325 (tests_slow/test_logs_claude_code.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from .recording import Json


def reminder_texts(attachment: Json) -> list[str]:
    """Return the texts that the client sends for an attachment. Empty if the attachment is for the client only."""
    make_texts = _TEXTS_BY_KIND.get(str(attachment.get("type")))
    return [text for text in make_texts(attachment) if isinstance(text, str) and text.strip()] if make_texts else []


def _text_field(name: str) -> Callable[[Json], list[str]]:
    return lambda attachment: [attachment.get(name) or ""]


def _joined_field(name: str, separator: str = "\n") -> Callable[[Json], list[str]]:
    return lambda attachment: [separator.join(attachment.get(name) or ())]


def _call_texts(tool: str, arguments: Json, result: str) -> list[str]:
    arguments_json = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return [
        f"Called the {tool} tool with the following input: {arguments_json}",
        f"Result of calling the {tool} tool:\n{result}",
    ]


def _file_texts(attachment: Json) -> list[str]:
    """A file that the user mentioned or a compaction restored, in the format of a Read result."""
    inner = attachment["content"].get("file") or {}
    if not isinstance(text := inner.get("content"), str):
        return []
    start = inner.get("startLine") or 1
    numbered_text = "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), start))
    return _call_texts("Read", {"file_path": inner.get("filePath") or attachment.get("filename")}, numbered_text)


def _directory_texts(attachment: Json) -> list[str]:
    path = attachment["path"]
    return _call_texts(
        "Bash", {"command": f"ls {path}", "description": f"Lists files in {path}"}, attachment.get("content") or ""
    )


def _memory_texts(attachment: Json) -> list[str]:
    return [f"Contents of {attachment['content']['path']}:\n\n{attachment['content']['content']}"]


def _queued_prompt(attachment: Json) -> list[str]:
    """A prompt that the user typed while the model was working. Images are omitted."""
    prompt = attachment.get("prompt") or ""
    return [prompt] if isinstance(prompt, str) else [block["text"] for block in prompt if block.get("type") == "text"]


def _edited_file(attachment: Json) -> list[str]:
    return [f"{attachment['filename']}\n{attachment['snippet']}"] if attachment.get("snippet") else []


def _hook_context(attachment: Json) -> list[str]:
    content = attachment.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(content)
    return [f"{attachment['hookName']} hook additional context: {text}"]


def _hook_success(attachment: Json) -> list[str]:
    """Output of a hook. It is sent only for hooks that run before a prompt."""
    is_turn_start = attachment.get("hookEvent") in ("SessionStart", "UserPromptSubmit")
    return (
        [f"{attachment['hookName']} hook success: {attachment['content']}"]
        if is_turn_start and attachment.get("content")
        else []
    )


def _hook_error(attachment: Json) -> list[str]:
    return [f"{attachment['hookName']} hook blocking error: {attachment['blockingError']['blockingError']}"]


def _task_list(attachment: Json) -> list[str]:
    rows = [row for row in attachment.get("content") or () if isinstance(row, dict)]
    tasks = ((row.get("id"), row.get("status"), row.get("subject") or row.get("content")) for row in rows)
    return ["\n".join(f"#{id}. [{status}] {text}" for id, status, text in tasks)]


def _tool_names(attachment: Json) -> list[str]:
    return ["\n".join(attachment.get("addedLines") or attachment.get("addedNames") or ())]


_TEXTS_BY_KIND: dict[str, Callable[[Json], list[str]]] = {
    "agent_listing_delta": _joined_field("addedLines"),
    "critical_system_reminder": _text_field("content"),
    "deferred_tools_delta": _tool_names,
    "directory": _directory_texts,
    "edited_text_file": _edited_file,
    "file": _file_texts,
    "hook_additional_context": _hook_context,
    "hook_blocking_error": _hook_error,
    "hook_success": _hook_success,
    "mcp_instructions_delta": _joined_field("addedBlocks", "\n\n"),
    "model": _text_field("text"),
    "nested_memory": _memory_texts,
    "plan_file_reference": _text_field("planContent"),
    "queued_command": _queued_prompt,
    "selected_lines_in_ide": _text_field("content"),
    "silent_turn_reminder": _text_field("text"),
    "skill_listing": _text_field("content"),
    "task_reminder": _task_list,
    "todo_reminder": _task_list,
    "total_tokens_reminder": _text_field("text"),
}
