"""Where requests go. A file gets its new content whole or not at all."""

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
from .errors import InputError, reason

Write = Callable[[bytes], object]


def check_place(out: str | None) -> None:
    """Raises InputError where there is no such place, before the work that is to be written there."""
    if out in (None, "-"):
        return
    name, folder = one_line(click.format_filename(str(out))), os.path.dirname(str(out)) or "."
    wrong = errno.EISDIR if os.path.isdir(str(out)) else 0 if os.path.isdir(folder) else errno.ENOENT
    if wrong:
        raise InputError(name, reason(OSError(wrong, os.strerror(wrong))))


@contextmanager
def output(out: str | None) -> Iterator[Write]:
    """Nowhere for None, standard output for `-`, else the file of that name, which changes when all went well."""
    if out is None:
        yield len
    elif out == "-":
        yield _to_stdout
        sys.stdout.buffer.flush()
    else:
        name = one_line(click.format_filename(out))
        try:
            with _opened(out) as write:
                yield write
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(name, reason(error)) from None


def write_private(folder: Path, name: str, data: bytes) -> None:
    """A file that only this user can read, in a folder that is made if it is not there. Raises InputError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _replaced(str(folder / name), None, 0o600) as write:
            write(data)
    except OSError as error:
        raise InputError(one_line(click.format_filename(folder / name)), reason(error)) from None


def _to_stdout(data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # unbuffered (PYTHONUNBUFFERED), it may take a part and say so
        rest = rest[sys.stdout.buffer.write(rest) :]


@contextmanager
def _opened(out: str) -> Iterator[Write]:
    target = os.path.realpath(out)  # a link stays a link
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    if mode is not None and not stat.S_ISREG(mode):  # a device or a pipe is written to, never replaced
        with open(target, "wb") as stream:
            yield stream.write
    elif mode is not None and not os.access(target, os.W_OK):  # replacing needs no such permission, but respects it
        raise PermissionError(errno.EACCES, "not writable")
    else:
        with _replaced(target, mode) as write:
            yield write


@contextmanager
def _replaced(target: str, mode: int | None, created: int = 0o666) -> Iterator[Write]:
    """A new file beside the old one takes its place and its mode in one step at the end."""
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(4)}.part")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), created)
    try:
        with open(handle, "wb") as stream:
            yield stream.write
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
