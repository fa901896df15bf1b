"""What is said when something cannot be done: one line that names the place, the fault and the way out."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from ..errors import one_line

REASONS = {
    errno.ENOENT: "no such file or folder: check the path",
    errno.EISDIR: "this is a folder: name a file",
    errno.ENOTDIR: "a folder on the way there is a file: check the path",
    errno.EACCES: "no permission: change the file's mode or run as its owner",
    errno.ENOSPC: "the disk is full: make room and run again",
    errno.ELOOP: "links on the way there lead to each other: check the path",
    errno.ENAMETOOLONG: "too long for a name: check the path",
    errno.EMFILE: "too many files are open: close some, or raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine: close some",
}

ERRORS_OF_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM, errno.ENOENT, errno.EACCES, errno.ENOTDIR}
"""What cannot happen to a stream that is open."""

WORDING: tuple[tuple[str, str], ...] = (
    (r"format='([\w-]+)'", r"--format \1"),
    (r"not valid JSON: (.*)", r"not valid JSON (\1): correct it there"),
    (r"not valid UTF-8: (.*)", r"not valid UTF-8 (\1): save it as UTF-8"),
)
"""The library speaks to programmers; these are its words for someone at a prompt."""


class InputError(click.ClickException):
    """Something that was handed in cannot be worked on."""

    exit_code = 2

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what


def say(message: str) -> None:
    click.echo(f"ibidem: {one_line(message)}", err=True)


MAX_SAID = 1000
"""Different warnings that are said. Who has more of them has read enough."""


class _Said(logging.Handler):
    """Says each warning once: how often something happens, the page tells."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.said and len(self.said) < MAX_SAID:
            self.said.add(message)
            with suppress(OSError, ValueError):  # nobody reads it any more
                say(message)


@contextmanager
def warnings_said() -> Iterator[set[str]]:
    """In here, what the library warns of stands on standard error; else nobody hears it. What was said, to be added to
    by who says it elsewhere."""
    log, handler = logging.getLogger("ibidem"), _Said()
    log.addHandler(handler)
    try:
        yield handler.said
    finally:
        log.removeHandler(handler)


def reason(error: OSError) -> str:
    """What the operating system has against it, and what to do."""
    return REASONS.get(error.errno or 0) or f"{error.strerror or error}: try another file"


def place(error: OSError) -> str:
    """Where it happened: the file that the system names. Only what is written to standard output has no name."""
    if error.filename is not None:
        return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    return "this process" if error.errno in ERRORS_OF_OURS else "standard output"


def our_fault(error: Exception) -> str:
    return f"this is a fault of ibidem, not yours: please report it ({type(error).__name__}: {error})"


def at_the_prompt(message: str) -> str:
    for pattern, wording in WORDING:
        message = re.sub(pattern, wording, message)
    return message
