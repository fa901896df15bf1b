"""Find arguments that are no longer needed after their call succeeded, or after its file changed again.

After an edit, the replaced text is no longer in the file, and the new text is another argument of the same call. The
content of a written file is like a read of it. Both are identified by argument names, as the tools document them. An
argument with a whole patch cannot be divided.
"""

from __future__ import annotations

from typing import NamedTuple

from ...calls import FILE_KEYS, arguments
from ...calls.file_access import Touch
from ...model import ToolCall

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

_BESIDE = frozenset((*FILE_KEYS, "command", "description", "explanation", "reason", "security_risk"))
"""Arguments that do not affect the written content."""


class Rewrite(NamedTuple):
    """Names of the arguments of a call that may become stale."""

    replaced: str | None = None
    content: str | None = None

    def part(self, key: str) -> str:
        """Return the role of an argument, `replaced` or `content`; empty for any other."""
        return next((name for name in self._fields if getattr(self, name) == key), "")


NO_REWRITE = Rewrite()


def rewrite_of(call: ToolCall, touched: tuple[Touch, ...]) -> Rewrite:
    """Return the arguments that may become stale, if the call surely writes exactly one file."""
    given = arguments(call)
    if given is None or len(touched) != 1 or touched[0].kind != "write":
        return NO_REWRITE
    pairs = [old for old, new in REPLACED_KEYS.items() if old in given and new in given]
    if len(pairs) == 1 and isinstance(given[pairs[0]], str):
        return Rewrite(replaced=pairs[0])
    key = CONTENT_KEYS.get(call.name, "")
    anew = given.get("command", "create") == "create" and given.keys() - _BESIDE == {key}
    return Rewrite(content=key) if anew and isinstance(given[key], str) else NO_REWRITE
