"""The command line. Each command is one file that parses options, makes one call and prints; larger ones are folders.

Exit codes: 0 success, 1 violations or problems found, 2 invalid command line or input, 130 interrupted.
Every error is one line on standard error that starts with `ibidem: `.

- `launch`: entry point of the console script. `root_group`: table of all commands. A new command gets a line there.
- `request_input`, `output_file`: read requests and write results. A file is replaced completely or not at all.
- `command_errors`, `options`, `elapsed_time`: error messages, shared options, and progress while the user waits.
- `view`: output of `show` and `compact`.
- `statusline`: a client runs it about once per second, so it imports as little as possible.

A new command is a file with a `click` command. Its logic belongs in a package of the library, not here. Names in
`--json` output are stable. Tests: tests/cli. Some tests compare the help texts in docs/ with the real help.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` is not imported for it: that takes half as long as starting Python

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .root_group import main as main


def launch() -> NoReturn:
    """Run the command line. `ibidem statusline` runs without importing the other commands."""
    if sys.argv[1:] == ["statusline"]:
        from .statusline_text import print_statusline

        sys.exit(print_statusline())
    from .root_group import main

    sys.exit(main())


def __getattr__(name: str) -> Any:
    """Import `main`, the group of all commands, on first access."""
    if name == "main":
        from .root_group import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
