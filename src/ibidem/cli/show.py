"""`ibidem show`"""

from __future__ import annotations

import sys
from functools import partial

import click

from ..engine import pipeline
from .errors import InputError, say
from .options import PROFILE, echo_json, format_option, json_option
from .reading import Input, ask, open_source
from .view.parts import View, view
from .writing import output


@click.command(short_help="Show what is rewritten, and why.")
@click.argument("file", required=False)
@click.option("--profile", type=PROFILE, default="lossless", show_default=True, help="Which strategies run.")
@format_option
@click.option(
    "--html", "out", metavar="OUT", help="Write it as a page to OUT, and only totals here; `-` is standard output."
)
@click.option("--no-color", is_flag=True, help="No colours; NO_COLOR=1 does the same.")
@click.option("--all", "everything", is_flag=True, help="Every line, in full.")
@json_option
def show(
    file: str | None,
    profile: str,
    format: str | None,
    out: str | None,
    no_color: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """Show what is rewritten in the request in FILE, and why: the original beside what is sent.

    FILE holds one JSON request, or one on each line (JSONL), of which the last that can be read is shown; `-` is
    standard input. Without FILE a bundled sample is shown.
    """
    with open_source(file) as source:
        found, count = last_readable(source, profile, format)
    with output(out) as write:
        if out is not None:
            from .view.page import page

            write(page(found).encode())
    err = out == "-" or (out is not None and not as_json)
    _introduce(found, file, count, err or as_json)
    if as_json:
        request = found.request
        edits = [part.as_dict() for part in found.parts]
        echo_json({**found.figures.as_dict(), "file": request.file, "line": request.line, "edits": edits}, err)
        return 0
    from .view.columns import draw  # rich takes longer to import than most requests to rewrite

    draw(found, sys.stderr if err else sys.stdout, everything=everything, plain=no_color, texts=out is None)
    return 0


def last_readable(source: Input, profile: str, format: str | None) -> tuple[View, int]:
    """What is done to it, and how many requests there are. A line behind it that cannot be read is reported."""
    requests = [request for request in source if not request.blank]
    call = partial(pipeline.compact, profile=profile, format=format)
    errors: list[InputError] = []
    for request in reversed(requests):
        try:
            result = ask(call, request)
        except InputError as error:
            errors.append(error)
            continue
        for behind in reversed(errors):
            say(behind.message)
        return view(request, result, profile), len(requests)
    raise errors[0]


def _introduce(found: View, file: str | None, count: int, err: bool) -> None:
    if file is None:
        click.echo("No file given: this is the bundled sample conversation.", err=err)
    elif found.request.line is not None:
        line = f"line {found.request.line:,}, the last that can be read"
        click.echo(f"{found.request.file} has {count:,} request{'s' * (count != 1)}: this is {line}.", err=err)
