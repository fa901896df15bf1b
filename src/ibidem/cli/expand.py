"""`ibidem expand`"""

from __future__ import annotations

from functools import partial

import click

from ..engine import expansion
from .errors import InputError, say
from .options import format_option
from .reading import Input, ask, open_source, refuse, tells_format
from .writing import Write, output


@click.command(short_help="Restore the original request.")
@click.argument("file")
@click.option("-o", "--output", "out", metavar="OUT", default="-", help="Write to OUT instead of standard output.")
@format_option
def expand(file: str, out: str, format: str | None) -> int:
    """Restore the original request: replace every back-reference in FILE with the text it points at.

    FILE is one JSON request, or one per line (JSONL), as `ibidem compact` writes it with the profile lossless. `-` is
    standard input. All other text is unchanged, byte for byte.
    """
    # `source` twice: it must be closed before OUT, maybe the same file, is replaced, and also if opening OUT fails.
    with open_source(file) as source, output(out) as write, source:
        unreadable = restore(source, write, format)
    return 2 if unreadable else 0


def restore(source: Input, write: Write, format: str | None) -> int:
    """Write every request with its references expanded, and invalid lines unchanged. Return the number of these."""
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
