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
from .command_errors import InputError, bug_message, describe_os_error, reword_for_cli

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
    def is_blank(self) -> bool:
        """The line has no request."""
        return _is_blank(self.data)

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return self.file if self.line is None else f"{self.file} line {self.line}"

    @property
    def position(self) -> str:
        """Position within the file, for messages."""
        return "request" if self.line is None else f"line {self.line}"


@dataclass(frozen=True, slots=True)
class RequestInput:
    """Requests of a file or stream, in order. Close it before the file is replaced."""

    name: str
    stream: IO[bytes]
    by_line: bool = False
    """The file has one request per line (`.jsonl`). If False, the first lines decide."""
    path: str = ""
    """Path of the file; empty for a stream."""

    @property
    def size_bytes(self) -> int:
        """Size in bytes; 0 if it is unknown, as for a pipe."""
        try:
            status = os.fstat(self.stream.fileno())
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.name != STDIN:
            self.stream.close()

    def __iter__(self) -> Iterator[InputRequest]:
        """Yield the requests. Raises InputError if there is none."""
        has_request = False
        try:
            for request in self._read_requests():
                has_request = has_request or not request.is_blank
                yield request
        except OSError as error:
            raise InputError(self.name, describe_os_error(error)) from None
        if not has_request:
            raise InputError(self.name, "empty: pass a JSON request, or one request per line")

    def _read_requests(self) -> Iterator[InputRequest]:
        first_lines = [] if self.by_line else _read_first_lines(self.stream)
        if not self.by_line and not _has_request_per_line(first_lines):
            yield InputRequest(b"".join(filter(None, [*first_lines, self.stream.read()])), self.name)
            return
        for number, line in enumerate(chain(first_lines, self.stream), 1):
            data = line.rstrip(b"\r\n")
            yield InputRequest(data, self.name, number, line[len(data) :])


def open_source(file: str | None) -> RequestInput:
    """Open a file, standard input for `-`, or the bundled sample for None. Raises InputError."""
    if file is None:
        return RequestInput(SAMPLE_NAME, (resources.files("ibidem") / "samples" / "conversation.json").open("rb"))
    if file == "-":
        if sys.stdin is None:
            raise InputError(STDIN, "closed: pipe a request into it or pass a file")
        return RequestInput(STDIN, sys.stdin.buffer)
    name = one_line(click.format_filename(file))
    try:
        return RequestInput(
            name, open(file, "rb"), file.lower().endswith(".jsonl"), file
        )  # the returned object closes it
    except OSError as error:
        raise InputError(name, describe_os_error(error)) from None


def _is_blank(data: bytes) -> bool:
    return not data or data.isspace()  # stops at the first character that is not a space


def _read_first_lines(stream: IO[bytes]) -> list[bytes]:
    """Read lines up to the second nonempty one. Two decide how to read the input, and more would delay a stream."""
    lines: list[bytes] = []
    nonempty_count = 0
    while nonempty_count < 2 and (line := stream.readline()):
        lines.append(line)
        nonempty_count += not _is_blank(line)
    return lines


def _has_request_per_line(first_lines: list[bytes]) -> bool:
    """Return whether the input has one request per line.

    JSON allows no text after a complete value. So if the first line is complete and more follows, it is one request.
    """
    nonempty = [line for line in first_lines if not _is_blank(line)]
    if len(nonempty) < 2:
        return False
    try:
        parse(nonempty[0])
    except IbidemError:
        return False
    return True


def call_library(call: Callable[[bytes], T], request: InputRequest) -> T:
    """Call a library function with a request. Every exception becomes an InputError with the request's position."""
    encoding = detect_encoding(request.data[:4])
    if not encoding.startswith("utf-8"):  # json could parse it, but edits of the bytes need UTF-8
        raise InputError(request.where, f"looks like {encoding.upper()}: save it as UTF-8")
    try:
        return call(request.data)
    except IbidemError as error:
        raise InputError(request.where, _drop_line_number(reword_for_cli(str(error)), request)) from None
    except MemoryError:
        raise InputError(request.where, "not enough memory: split the file, or use a larger machine") from None
    except Exception as error:
        raise InputError(request.where, bug_message(error)) from error


def raise_input_error(source: RequestInput, request: InputRequest) -> None:
    """Raise InputError if the input, whose first request cannot be used, is the log of an agent."""
    from .log_lookup import refuse_log  # importing the log readers takes a while, and few calls need them

    refuse_log(source, request)


def is_format_detectable(request: InputRequest) -> bool:
    """Return whether the request's wire format can be detected."""
    try:
        detect(request.data)
    except (IbidemError, MemoryError, RecursionError):
        return False
    return True


def _drop_line_number(message: str, request: InputRequest) -> str:
    """Remove "line 1" from an error position if the request is one line of a file, whose number is shown already."""
    return message if request.line is None else re.sub(r"\bline 1, (column \d+)", r"\1", message)
