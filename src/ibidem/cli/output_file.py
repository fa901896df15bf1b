"""Output of commands: a file or standard output. A file is replaced completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from ..errors import one_line
from .command_errors import InputError, describe_os_error

Write = Callable[[bytes], object]


def check_output_path(out: str | None) -> None:
    """Raise InputError if `out` is a folder or its folder does not exist. Called before the work starts."""
    if out in (None, "-"):
        return
    name, folder = one_line(click.format_filename(str(out))), os.path.dirname(str(out)) or "."
    error_number = errno.EISDIR if os.path.isdir(str(out)) else 0 if os.path.isdir(folder) else errno.ENOENT
    if error_number:
        raise InputError(name, describe_os_error(OSError(error_number, os.strerror(error_number))))


@contextmanager
def open_output(out: str | None) -> Iterator[Write]:
    """Yield a function that writes to the file `out`, to standard output for `-`, or nowhere for None.

    The file is replaced only if the block ends without an error.
    """
    if out is None:
        yield len
    elif out == "-":
        yield _write_stdout
        sys.stdout.buffer.flush()
    else:
        name = one_line(click.format_filename(out))
        try:
            with _open_target(out) as write:
                yield write
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(name, describe_os_error(error)) from None


def write_private(folder: Path, name: str, data: bytes) -> None:
    """Write a file that only this user can read. Creates the folder if needed. Raises InputError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _replace_file(str(folder / name), None, 0o600) as write:
            write(data)
    except OSError as error:
        raise InputError(one_line(click.format_filename(folder / name)), describe_os_error(error)) from None


def _write_stdout(data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may write only a part
        rest = rest[sys.stdout.buffer.write(rest) :]


@contextmanager
def _open_target(out: str) -> Iterator[Write]:
    target = os.path.realpath(out)  # replace the target of a symbolic link, not the link
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    if mode is not None and not stat.S_ISREG(mode):  # write to a device or a pipe, never replace it
        with open(target, "wb") as stream:
            yield stream.write
    elif mode is not None and not os.access(target, os.W_OK):  # a rename would ignore that the file is read-only
        raise PermissionError(errno.EACCES, "not writable")
    else:
        with _replace_file(target, mode) as write:
            yield write


@contextmanager
def _replace_file(target: str, mode: int | None, new_mode: int = 0o666) -> Iterator[Write]:
    """Write a temporary file in the same folder, then rename it to `target` with the old file's mode."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(4)}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), new_mode)
    try:
        with open(handle, "wb") as stream:
            yield stream.write
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
