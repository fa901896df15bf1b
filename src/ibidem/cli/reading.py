"""Read requests from a file, standard input or the bundled sample. The input is one JSON request, or one per line.

Requests stay bytes. A file with one request per line is read line by line, so large files need little memory.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import chain
from json import detect_encoding
from typing import IO, Self, TypeVar

import click

from ..engine.pipeline import detect
from ..errors import IbidemError, one_line
from ..wire import parse
from .errors import InputError, at_the_prompt, our_fault, reason

T = TypeVar("T")

SAMPLE_NAME = "sample"
STDIN = "standard input"


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One request as unchanged bytes, or an empty line between two requests."""

    data: bytes
    file: str
    line: int | None = None
    """Line number, from 1; None if the whole file is one request."""
    ending: bytes = b""
    """Line break after the request. It is not part of `data`, so that error positions stay inside the request."""

    @property
    def blank(self) -> bool:
        """The line has no request."""
        return _blank(self.data)

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return self.file if self.line is None else f"{self.file} line {self.line}"

    @property
    def position(self) -> str:
        """Position within the file, for messages."""
        return "request" if self.line is None else f"line {self.line}"


@dataclass(frozen=True, slots=True)
class Input:
    """Requests of a file or stream, in order. Close it before the file is replaced."""

    name: str
    stream: IO[bytes]
    by_line: bool = False
    """The file has one request per line (`.jsonl`). If False, the first lines decide."""
    path: str = ""
    """Path of the file; empty for a stream."""

    @property
    def size(self) -> int:
        """Size in bytes; 0 if it is unknown, as for a pipe."""
        try:
            found = os.fstat(self.stream.fileno())
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.name != STDIN:
            self.stream.close()

    def __iter__(self) -> Iterator[InputRequest]:
        """Yield the requests. Raises InputError if there is none."""
        found = False
        try:
            for request in self._requests():
                found = found or not request.blank
                yield request
        except OSError as error:
            raise InputError(self.name, reason(error)) from None
        if not found:
            raise InputError(self.name, "empty: pass a JSON request, or one request per line")

    def _requests(self) -> Iterator[InputRequest]:
        opening = [] if self.by_line else _opening(self.stream)
        if not self.by_line and not _one_per_line(opening):
            yield InputRequest(b"".join(filter(None, [*opening, self.stream.read()])), self.name)
            return
        for number, line in enumerate(chain(opening, self.stream), 1):
            data = line.rstrip(b"\r\n")
            yield InputRequest(data, self.name, number, line[len(data) :])


def open_source(file: str | None) -> Input:
    """Open a file, standard input for `-`, or the bundled sample for None. Raises InputError."""
    if file is None:
        return Input(SAMPLE_NAME, (resources.files("ibidem") / "samples" / "conversation.json").open("rb"))
    if file == "-":
        if sys.stdin is None:
            raise InputError(STDIN, "closed: pipe a request into it or pass a file")
        return Input(STDIN, sys.stdin.buffer)
    name = one_line(click.format_filename(file))
    try:
        return Input(name, open(file, "rb"), file.lower().endswith(".jsonl"), file)  # the returned object closes it
    except OSError as error:
        raise InputError(name, reason(error)) from None


def _blank(data: bytes) -> bool:
    return not data or data.isspace()  # stops at the first character that is not a space


def _opening(stream: IO[bytes]) -> list[bytes]:
    """Read lines up to the second nonempty one. Two decide how to read the input, and more would delay a stream."""
    lines: list[bytes] = []
    filled = 0
    while filled < 2 and (line := stream.readline()):
        lines.append(line)
        filled += not _blank(line)
    return lines


def _one_per_line(opening: list[bytes]) -> bool:
    """Return whether the input has one request per line.

    JSON allows no text after a complete value. So if the first line is complete and more follows, it is one request.
    """
    filled = [line for line in opening if not _blank(line)]
    if len(filled) < 2:
        return False
    try:
        parse(filled[0])
    except IbidemError:
        return False
    return True


def ask(call: Callable[[bytes], T], request: InputRequest) -> T:
    """Call a library function with a request. Every exception becomes an InputError with the request's position."""
    encoding = detect_encoding(request.data[:4])
    if not encoding.startswith("utf-8"):  # json could parse it, but edits of the bytes need UTF-8
        raise InputError(request.where, f"looks like {encoding.upper()}: save it as UTF-8")
    try:
        return call(request.data)
    except IbidemError as error:
        raise InputError(request.where, _placed(at_the_prompt(str(error)), request)) from None
    except MemoryError:
        raise InputError(request.where, "not enough memory: split the file, or use a larger machine") from None
    except Exception as error:
        raise InputError(request.where, our_fault(error)) from error


def refuse(source: Input, request: InputRequest) -> None:
    """Raise InputError if the input, whose first request cannot be used, is the log of an agent."""
    from .logs import refuse_log  # importing the log readers takes a while, and few calls need them

    refuse_log(source, request)


def tells_format(request: InputRequest) -> bool:
    """Return whether the request's wire format can be detected."""
    try:
        detect(request.data)
    except (IbidemError, MemoryError, RecursionError):
        return False
    return True


def _placed(message: str, request: InputRequest) -> str:
    """Remove "line 1" from an error position if the request is one line of a file, whose number is shown already."""
    return message if request.line is None else re.sub(r"\bline 1, (column \d+)", r"\1", message)
