"""`ibidem expand`"""

from __future__ import annotations

from functools import partial

import click

from ..engine import expansion
from .command_errors import InputError, print_error
from .options import format_option
from .output_file import Write, open_output
from .request_input import RequestInput, call_library, is_format_detectable, open_source, raise_input_error


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
    with open_source(file) as source, open_output(out) as write, source:
        unreadable = expand_requests(source, write, format)
    return 2 if unreadable else 0


def expand_requests(source: RequestInput, write: Write, format: str | None) -> int:
    """Write every request with its references expanded, and invalid lines unchanged. Return the number of these."""
    unreadable, has_started = 0, False
    call = partial(expansion.expand, format=format)
    for request in source:
        data = request.data
        if not request.is_blank:
            if not has_started and format is None and not is_format_detectable(request):
                raise_input_error(source, request)
            has_started = True
            try:
                data = call_library(call, request)
            except InputError as error:
                if request.line is None:
                    raise
                print_error(error.message)
                unreadable += 1
        write(data)
        write(request.ending)
    return unreadable
