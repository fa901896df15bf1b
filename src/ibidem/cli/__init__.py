"""The command line: one command per file, each parse, one call, render; larger ones are folders.

Exit codes: 0 fine, 1 violations or problems found, 2 the command or its input could not be understood, 130 interrupted.
Every error is one line on standard error that begins with `ibidem: `.

- `launch` is what the console script calls. `commands`: the table of all commands; a new one gets a line.
- `reading`, `writing`: where requests come from and go to. A file gets its new content whole or not at all.
- `errors`, `options`, `waiting`: what is said when something cannot be done, and what commands share.
- `view`: what `show` and `compact` draw.
- `statusline` is run by a client every second or so: nothing that it loads may load more than it needs.

A new command is a file with a `click` command. What it does belongs in a folder of the library: here nothing is
decided. `--json` is a promise to other programs. Tests: tests/cli; help texts in the documents are compared with the
real ones.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, whose import takes half as long as the start of Python

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .commands import main as main


def launch() -> NoReturn:
    """What the console script starts. The status line is printed without loading the other commands."""
    if sys.argv[1:] == ["statusline"]:
        from .status import run

        sys.exit(run())
    from .commands import main

    sys.exit(main())


def __getattr__(name: str) -> Any:
    """`main`, the group of all commands, is loaded when it is first asked for."""
    if name == "main":
        from .commands import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
