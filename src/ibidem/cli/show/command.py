"""`ibidem show`"""

from __future__ import annotations

import io
import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from ...engine import pipeline
from ..errors import InputError, reason, say
from ..options import PROFILE, echo_json, format_option, json_option
from ..reading import Input, ask, open_source
from ..view.edits import RequestView, view
from ..writing import output

if TYPE_CHECKING:
    from ..logs import FoundLog


@click.command(short_help="Show the edits of a request, with their reasons.")
@click.argument("file", metavar="[FILE|ID]", required=False)
@click.option("--request", type=int, metavar="N", help="Number of the request in a log; -1 is the last.")
@click.option("--session", metavar="NAME", help="Session to show, if a log has several.")
@click.option("--profile", type=PROFILE, default="lossless", show_default=True, help="Rewriting profile.")
@format_option
@click.option(
    "--html", "out", metavar="OUT", help="Write an HTML page to OUT and print only totals; `-` is standard output."
)
@click.option("--no-color", is_flag=True, help="Disable colors; NO_COLOR=1 does the same.")
@click.option("--all", "everything", is_flag=True, help="Show all lines in full, and in a log also earlier edits.")
@json_option
def show(
    file: str | None,
    request: int | None,
    session: str | None,
    profile: str,
    format: str | None,
    out: str | None,
    no_color: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """Show the edits of a request with their reasons: the original text next to the sent text.

    FILE is one JSON request, or one per line (JSONL); `-` is standard input. The last valid request is shown. Without
    FILE, a bundled sample is shown.

    FILE can also be the log of an agent, and ID the start of a session id, which is searched in the agent logs on this
    machine. Then one request of the session is shown with its cost, as sent and with ibidem: number N, or the last
    request with new edits.
    """
    if out is not None:
        from ...render.templates import check_jinja

        check_jinja()
    asked = request is not None or session is not None
    if file is None:
        if asked:
            raise click.UsageError("--request and --session need a log: pass its path, or a session id")
        return _show_request(open_source(None), file, profile, format, out, no_color, everything, as_json)
    found, source = _opened(file, requests_too=asked)
    if found is not None:
        from .session import SessionOptions, show_session

        return show_session(found, SessionOptions(request, session, profile, out, no_color, everything, as_json))
    if asked:
        raise InputError(source.name, "not a known log format: omit --request and --session")
    return _show_request(source, file, profile, format, out, no_color, everything, as_json)


def _opened(file: str, *, requests_too: bool) -> tuple[FoundLog | None, Input]:
    """Open the argument as a log; if it is not a log, return None and the requests in it."""
    from .. import logs  # importing the log readers takes a while

    empty = Input(file, io.BytesIO())
    there = file == "-" or os.path.exists(file)
    if not there and logs.may_be_id(file):
        return logs.by_id(file), empty
    if logs.is_elsewhere(file):
        return logs.read_sessions(file, logs.fetched(file)), empty
    with open_source(file) as opened:
        try:
            data = opened.stream.read()
        except OSError as error:
            raise InputError(opened.name, reason(error)) from None
    if logs.is_log(data, requests_too=requests_too):
        return logs.read_sessions(file, data), empty
    return None, replace(opened, stream=io.BytesIO(data))


def _show_request(
    source: Input,
    file: str | None,
    profile: str,
    format: str | None,
    out: str | None,
    no_color: bool,
    everything: bool,
    as_json: bool,
) -> int:
    with source:
        found, count = last_readable(source, profile, format)
    with output(out) as write:
        if out is not None:
            from ..view.page import request_page

            write(request_page(found).encode("utf-8", "replace"))
    err = out == "-" or (out is not None and not as_json)
    _introduce(found, file, count, err or as_json)
    if as_json:
        request = found.request
        edits = [part.as_dict() for part in found.parts]
        echo_json({**found.figures.as_dict(), "file": request.file, "line": request.line, "edits": edits}, err)
        return 0
    from ..view.columns import draw  # importing rich takes longer than rewriting most requests

    draw(found, sys.stderr if err else sys.stdout, everything=everything, plain=no_color, texts=out is None)
    return 0


def last_readable(source: Input, profile: str, format: str | None) -> tuple[RequestView, int]:
    """Rewrite the last valid request. Return its view and the number of requests. Reports invalid lines after it."""
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


def _introduce(found: RequestView, file: str | None, count: int, err: bool) -> None:
    if file is None:
        click.echo("No file given. Using the bundled sample conversation.", err=err)
    elif found.request.line is not None:
        line = f"line {found.request.line:,}, the last valid one"
        click.echo(f"{found.request.file} has {count:,} request{'s' * (count != 1)}. Showing {line}.", err=err)
