"""Find arguments that are no longer needed after their call succeeded, or after its file changed again.

After an edit, the replaced text is no longer in the file, and the new text is another argument of the same call. The
content of a written file is like a read of it. Both are identified by argument names, as the tools document them. An
argument with a whole patch cannot be divided.
"""

from __future__ import annotations

from typing import NamedTuple

from ...model import ToolCall
from ...tool_arguments import FILE_KEYS, arguments_by_name
from ...tool_arguments.file_access import FileAccess

REPLACED_KEYS = {
    "old_string": "new_string",  # Claude Code, Gemini CLI
    "oldString": "newString",  # OpenCode, VS Code
    "old_str": "new_str",  # Anthropic's text editor, Copilot CLI
    "oldText": "newText",  # pi
    "old_text": "new_text",
}
"""Arguments of an edit: the replaced text → the new text."""

CONTENT_KEYS = {
    "Write": "content",  # Claude Code
    "write": "content",  # OpenCode, pi
    "write_file": "content",  # Gemini CLI
    "write_to_file": "content",  # Cline
    "create_file": "content",  # VS Code
    "create": "file_text",  # Copilot CLI
    **dict.fromkeys(("str_replace_editor", "str_replace_based_edit_tool", "file_editor"), "file_text"),
}
"""Tools that write a whole file → the argument with its content."""

_UNRELATED_KEYS = frozenset((*FILE_KEYS, "command", "description", "explanation", "reason", "security_risk"))
"""Arguments that do not affect the written content."""


class StaleArgumentKeys(NamedTuple):
    """Names of the arguments of a call that may become stale."""

    replaced: str | None = None
    content: str | None = None

    def argument_role(self, key: str) -> str:
        """Return the role of an argument, `replaced` or `content`; empty for any other."""
        return next((name for name in self._fields if getattr(self, name) == key), "")


NO_STALE_ARGUMENTS = StaleArgumentKeys()


def find_stale_arguments(call: ToolCall, accesses: tuple[FileAccess, ...]) -> StaleArgumentKeys:
    """Return the arguments that may become stale, if the call surely writes exactly one file."""
    call_arguments = arguments_by_name(call)
    if call_arguments is None or len(accesses) != 1 or accesses[0].kind != "write":
        return NO_STALE_ARGUMENTS
    pairs = [old for old, new in REPLACED_KEYS.items() if old in call_arguments and new in call_arguments]
    if len(pairs) == 1 and isinstance(call_arguments[pairs[0]], str):
        return StaleArgumentKeys(replaced=pairs[0])
    key = CONTENT_KEYS.get(call.name, "")
    is_full_write = call_arguments.get("command", "create") == "create" and call_arguments.keys() - _UNRELATED_KEYS == {
        key
    }
    return (
        StaleArgumentKeys(content=key) if is_full_write and isinstance(call_arguments[key], str) else NO_STALE_ARGUMENTS
    )
