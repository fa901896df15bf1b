"""`ibidem compact`"""

from __future__ import annotations

import sys
from functools import partial

import click

from ..engine import pipeline
from .command_errors import InputError, print_error
from .options import PROFILE, echo_json, format_option, json_option
from .output_file import Write, open_output
from .request_input import RequestInput, call_library, open_source, raise_input_error
from .view.compact_summary import CompactSummary


@click.command(short_help="Deduplicate a request and show the savings.")
@click.argument("file", required=False)
@click.option(
    "-o", "--output", "out", metavar="OUT", help="Write the rewritten request to OUT; `-` is standard output."
)
@click.option("--profile", type=PROFILE, default="lossless", show_default=True, help="Rewriting profile.")
@format_option
@json_option
def compact(file: str | None, out: str | None, profile: str, format: str | None, as_json: bool) -> int:
    """Deduplicate the request in FILE and show the savings.

    FILE is one JSON request, or one per line (JSONL); `-` is standard input. Without FILE, a bundled sample is used.
    All other text is unchanged, byte for byte.
    """
    # `source` twice: it must be closed before OUT, maybe the same file, is replaced, and also if opening OUT fails.
    with open_source(file) as source, open_output(out) as write, source:
        figures = compact_requests(source, write, profile, format)
    err = out == "-" or (out is not None and not as_json)
    if file is None:
        click.echo("No file given. Using the bundled sample conversation.", err=err or as_json)
    _print_summary(figures, as_json, err)
    return 2 if figures.unreadable_count else 0


def compact_requests(source: RequestInput, write: Write, profile: str, format: str | None) -> CompactSummary:
    """Write every request compacted, and invalid lines unchanged. Return the savings."""
    figures = CompactSummary(source.name, profile, source.size_bytes)
    call = partial(pipeline.compact, profile=profile, format=format)
    for request in source:
        data = request.data
        if not request.is_blank:
            try:
                result = call_library(call, request)
            except InputError as error:
                if not figures.has_started:
                    raise_input_error(source, request)
                if request.line is None:
                    raise
                print_error(error.message)
                figures.add_unreadable(request, error.what)
            else:
                if not result.format and not figures.has_started:
                    raise_input_error(source, request)
                figures.add(request, result)
                data = result.request
        write(data)
        write(request.ending)
    return figures


def _print_summary(figures: CompactSummary, as_json: bool, err: bool) -> None:
    if as_json:
        echo_json(figures.as_dict(), err)
        return
    from .view.summary_table import draw_summary  # importing rich takes longer than rewriting most requests

    draw_summary(figures, sys.stderr if err else sys.stdout)
