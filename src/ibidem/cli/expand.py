"""`ibidem expand`"""

from __future__ import annotations

from functools import partial

import click

from ..engine import expansion
from .errors import InputError, say
from .options import format_option
from .reading import Input, ask, open_source, refuse, tells_format
from .writing import Write, output


@click.command(short_help="The way back: put in again what references point at.")
@click.argument("file")
@click.option("-o", "--output", "out", metavar="OUT", default="-", help="Write to OUT instead of standard output.")
@format_option
def expand(file: str, out: str, format: str | None) -> int:
    """Replace every reference in the request in FILE by what it points at.

    FILE holds one JSON request, or one on each line (JSONL), as `ibidem compact` writes them with its profile
    lossless; `-` is standard input. Everything else is written exactly as it came.
    """
    # Twice: the source is closed whatever happens, and before OUT, which may be the same file, is replaced.
    with open_source(file) as source, output(out) as write, source:
        unreadable = restore(source, write, format)
    return 2 if unreadable else 0


def restore(source: Input, write: Write, format: str | None) -> int:
    """Pass on every request, expanded. A line that cannot be read is passed on as it came; how many were not."""
    unreadable, begun = 0, False
    call = partial(expansion.expand, format=format)
    for request in source:
        data = request.data
        if not request.blank:
            if not begun and format is None and not tells_format(request):
                refuse(source, request)
            begun = True
            try:
                data = ask(call, request)
            except InputError as error:
                if request.line is None:
                    raise
                say(error.message)
                unreadable += 1
        write(data)
        write(request.ending)
    return unreadable
