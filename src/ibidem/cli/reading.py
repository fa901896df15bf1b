"""Where requests come from: a file, standard input or the bundled sample; one JSON value, or one on each line.

Requests stay bytes. Of a file with one request per line there is never more than a line in memory.
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
    """One request as it came, or an empty line between two."""

    data: bytes
    file: str
    line: int | None = None
    """None when the file is one request."""
    ending: bytes = b""
    """The line break, whichever it is. No part of the request, so that errors never point behind it."""

    @property
    def blank(self) -> bool:
        return _blank(self.data)

    @property
    def where(self) -> str:
        return self.file if self.line is None else f"{self.file} line {self.line}"

    @property
    def position(self) -> str:
        return "request" if self.line is None else f"line {self.line}"


@dataclass(frozen=True, slots=True)
class Input:
    """Requests, one after the other; to be closed before what they came from is replaced."""

    name: str
    stream: IO[bytes]
    by_line: bool = False
    """Known to hold one request per line; otherwise the content tells."""
    path: str = ""
    """Of a file."""

    @property
    def size(self) -> int:
        """Bytes, or 0 if that cannot be known beforehand."""
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
        """Raises InputError when there is no request at all."""
        found = False
        try:
            for request in self._requests():
                found = found or not request.blank
                yield request
        except OSError as error:
            raise InputError(self.name, reason(error)) from None
        if not found:
            raise InputError(self.name, "empty: a request in JSON is expected, or one on each line")

    def _requests(self) -> Iterator[InputRequest]:
        opening = [] if self.by_line else _opening(self.stream)
        if not self.by_line and not _one_per_line(opening):
            yield InputRequest(b"".join(filter(None, [*opening, self.stream.read()])), self.name)
            return
        for number, line in enumerate(chain(opening, self.stream), 1):
            data = line.rstrip(b"\r\n")
            yield InputRequest(data, self.name, number, line[len(data) :])


def open_source(file: str | None) -> Input:
    """The sample for None, standard input for `-`, else the file of that name."""
    if file is None:
        return Input(SAMPLE_NAME, (resources.files("ibidem") / "samples" / "conversation.json").open("rb"))
    if file == "-":
        if sys.stdin is None:
            raise InputError(STDIN, "closed: pipe a request into it or name a file")
        return Input(STDIN, sys.stdin.buffer)
    name = one_line(click.format_filename(file))
    try:
        return Input(name, open(file, "rb"), file.lower().endswith(".jsonl"), file)  # Source closes it
    except OSError as error:
        raise InputError(name, reason(error)) from None


def _blank(data: bytes) -> bool:
    return not data or data.isspace()  # looks no further than the first character that is none


def _opening(stream: IO[bytes]) -> list[bytes]:
    """Lines up to the second that is not empty: enough to tell, and little to hold back from a stream."""
    lines: list[bytes] = []
    filled = 0
    while filled < 2 and (line := stream.readline()):
        lines.append(line)
        filled += not _blank(line)
    return lines


def _one_per_line(opening: list[bytes]) -> bool:
    """Nothing may follow a complete value, so a complete first line with more behind it is a request of its own."""
    filled = [line for line in opening if not _blank(line)]
    if len(filled) < 2:
        return False
    try:
        parse(filled[0])
    except IbidemError:
        return False
    return True


def ask(call: Callable[[bytes], T], request: InputRequest) -> T:
    """What the library makes of a request. Whatever it raises becomes one line that says where, and whose fault."""
    encoding = detect_encoding(request.data[:4])
    if not encoding.startswith("utf-8"):  # it could be read, but not be changed in place
        raise InputError(request.where, f"looks like {encoding.upper()}: save it as UTF-8")
    try:
        return call(request.data)
    except IbidemError as error:
        raise InputError(request.where, _placed(at_the_prompt(str(error)), request)) from None
    except MemoryError:
        raise InputError(request.where, "not enough memory for it: split it, or use a larger machine") from None
    except Exception as error:
        raise InputError(request.where, our_fault(error)) from error


def refuse(source: Input, request: InputRequest) -> None:
    """Of a request that cannot be used, the first of its file: raises InputError if that is the log of an agent."""
    from .logs import refuse_log  # readers of logs take a while to import, and nearly nobody needs them

    refuse_log(source, request)


def tells_format(request: InputRequest) -> bool:
    """Whether something in it tells its wire format."""
    try:
        detect(request.data)
    except (IbidemError, MemoryError, RecursionError):
        return False
    return True


def _placed(message: str, request: InputRequest) -> str:
    """In a line of its own a request has no lines: only the column is news."""
    return message if request.line is None else re.sub(r"\bline 1, (column \d+)", r"\1", message)
