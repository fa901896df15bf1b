"""What every framework is put through: a script for the model, files for its tool, and a picture."""

from __future__ import annotations

import base64
from collections import Counter

from ibidem.testing import Answer, Calls, Says

PROMPTS = ("Look at the files.", "Look once more, please.")

SCRIPT: tuple[Answer, ...] = (
    Calls(("read", {"path": "a.py"}), says="Let me look."),
    Calls(("read", {"path": "b.py"})),
    Calls(("read", {"path": "a.py"}), ("read", {"path": "b.py"})),  # the order of parallel calls is the wire's
    Calls(("read", {"path": "missing"})),
    Calls(("read", {"path": "a.py"})),  # it has changed by then
    Says("The files are as they should be."),
    Calls(("read", {"path": "b.py"}), ("read", {"path": "missing"}), ("read", {"path": "a.py"})),
    Says("So they are."),
)
ANSWERS = ["The files are as they should be.", "So they are."]

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Files:
    """What `read` reads: code of about six thousand characters, of an owner. From the third time on, a.py differs."""

    def __init__(self, owner: str = "one") -> None:
        self._owner = owner
        self._times: Counter[str] = Counter()

    def __call__(self, path: str) -> str:
        if path == "missing":
            raise FileNotFoundError(f"there is no file {path!r} of {self._owner}")
        self._times[path] += 1
        lines = [f"    value_{number} = compute({path!r}, {number})  # of {self._owner}: ü" for number in range(110)]
        if path == "a.py" and self._times[path] > 2:
            lines[50] = "    value_50 = None"
        return "\n".join([f"def {path[0]}():", *lines, ""])


TURNS = 250
"""Of the long conversation: a call and its result each, so twice as many messages."""


def long_script(turns: int) -> list[Answer]:
    return [Calls(("read", {"path": f"{number}.py"})) for number in range(turns)] + [Says(ANSWERS[0])]


def long_text(path: str) -> str:
    """More than four thousand characters that are nearly all new: every fifth file was read before."""
    number = int(path.partition(".")[0])
    number = number - 4 if number % 5 == 4 else number
    lines = (f"    step(record[{number}], {line * 7919 % 1009}) or stop({number})" for line in range(90))
    return "\n".join(f"{number * 90 + line:>6}\t{text}" for line, text in enumerate(lines)) + "\n"
