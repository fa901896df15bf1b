"""Which arguments of a call are no longer needed once it has succeeded, or once its file has changed again.

The text that an edit replaces stands nowhere any more; the new one stands beside it. The content of a file that was
written is like a reading of it. Both are known by name, as tools document them; of an argument that is a whole patch
nothing can be told apart.
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
"""Arguments of an edit: what it takes away, and what it puts there."""

CONTENT_KEYS = {
    "Write": "content",  # Claude Code
    "write": "content",  # OpenCode, pi
    "write_file": "content",  # Gemini CLI
    "write_to_file": "content",  # Cline
    "create_file": "content",  # VS Code
    "create": "file_text",  # Copilot CLI
    **dict.fromkeys(("str_replace_editor", "str_replace_based_edit_tool", "file_editor"), "file_text"),
}
"""Tools that write a file anew, and the argument that is all of it."""

_BESIDE = frozenset((*FILE_KEYS, "command", "description", "explanation", "reason", "security_risk"))
"""Arguments that change nothing about what is written."""


class Rewrite(NamedTuple):
    """Names of arguments."""

    replaced: str | None = None
    content: str | None = None

    def part(self, key: str) -> str:
        """What an argument is in it; empty if it is nothing."""
        return next((name for name in self._fields if getattr(self, name) == key), "")


NO_REWRITE = Rewrite()


def rewrite_of(call: ToolCall, touched: tuple[Touch, ...]) -> Rewrite:
    """What a call says of the one file that it is sure to write."""
    given = arguments(call)
    if given is None or len(touched) != 1 or touched[0].kind != "write":
        return NO_REWRITE
    pairs = [old for old, new in REPLACED_KEYS.items() if old in given and new in given]
    if len(pairs) == 1 and isinstance(given[pairs[0]], str):
        return Rewrite(replaced=pairs[0])
    key = CONTENT_KEYS.get(call.name, "")
    anew = given.get("command", "create") == "create" and given.keys() - _BESIDE == {key}
    return Rewrite(content=key) if anew and isinstance(given[key], str) else NO_REWRITE
