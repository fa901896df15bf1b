"""Error messages of commands: one line with the position, what is wrong and what to do."""

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
    errno.ENOTDIR: "part of this path is a file, not a folder: check the path",
    errno.EACCES: "no permission: change the file's mode or run as its owner",
    errno.ENOSPC: "the disk is full: make room and run again",
    errno.ELOOP: "symbolic links in this path form a loop: check the path",
    errno.ENAMETOOLONG: "the name is too long: check the path",
    errno.EMFILE: "too many files are open: close some, or raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine: close some",
}

PROCESS_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM, errno.ENOENT, errno.EACCES, errno.ENOTDIR}
"""Errors of this process. A stream that is already open cannot raise them."""

WORDING: tuple[tuple[str, str], ...] = (
    (r"format='([\w-]+)'", r"--format \1"),
    (r"not valid JSON: (.*)", r"not valid JSON (\1): correct it there"),
    (r"not valid UTF-8: (.*)", r"not valid UTF-8 (\1): save it as UTF-8"),
)
"""Patterns in messages of the library, which are for programmers, and their wording for command line users."""


class InputError(click.ClickException):
    """The user's input cannot be used. `where` is the file, option or address, `what` the problem and the fix."""

    exit_code = 2

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what


def print_error(message: str) -> None:
    """Print one line on standard error, with the prefix of all messages."""
    click.echo(f"ibidem: {one_line(message)}", err=True)


MAX_WARNINGS = 1000
"""Largest number of different warnings to print. It also bounds the memory of a proxy that runs for months."""


class _WarnOnce(logging.Handler):
    """Log handler that prints each warning once. The proxy's page counts repeats."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.messages and len(self.messages) < MAX_WARNINGS:
            self.messages.add(message)
            with suppress(OSError, ValueError):  # standard error may be closed
                print_error(message)


@contextmanager
def print_warnings_once() -> Iterator[set[str]]:
    """Print the library's warnings on standard error. Without this, they are not printed.

    Yields the set of printed messages. A caller that prints a message itself adds it there to avoid a repeat.
    """
    log, handler = logging.getLogger("ibidem"), _WarnOnce()
    log.addHandler(handler)
    try:
        yield handler.messages
    finally:
        log.removeHandler(handler)


def describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system, and what to do."""
    return REASONS.get(error.errno or 0) or f"{error.strerror or error}: try another file"


def error_location(error: OSError) -> str:
    """Return the file that the error names. An error without a file name happened while writing standard output."""
    if error.filename is not None:
        return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    return "this process" if error.errno in PROCESS_ERRORS else "standard output"


def bug_message(error: Exception) -> str:
    """Return the message for an unexpected exception."""
    return f"this is a bug in ibidem: please report it ({type(error).__name__}: {error})"


def reword_for_cli(message: str) -> str:
    """Reword a message of the library for command line users."""
    for pattern, wording in WORDING:
        message = re.sub(pattern, wording, message)
    return message
