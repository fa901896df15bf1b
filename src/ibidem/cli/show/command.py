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
from ..command_errors import InputError, describe_os_error, print_error
from ..options import PROFILE, echo_json, format_option, json_option
from ..output_file import open_output
from ..request_input import RequestInput, call_library, open_source
from ..view.edits import RequestView, view_request

if TYPE_CHECKING:
    from ..log_lookup import AgentLog


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
    is_log_requested = request is not None or session is not None
    if file is None:
        if is_log_requested:
            raise click.UsageError("--request and --session need a log: pass its path, or a session id")
        return _print_request(open_source(None), file, profile, format, out, no_color, everything, as_json)
    log, source = _open_argument(file, requests_too=is_log_requested)
    if log is not None:
        from .show_session import SessionOptions, show_session

        return show_session(log, SessionOptions(request, session, profile, out, no_color, everything, as_json))
    if is_log_requested:
        raise InputError(source.name, "not a known log format: omit --request and --session")
    return _print_request(source, file, profile, format, out, no_color, everything, as_json)


def _open_argument(file: str, *, requests_too: bool) -> tuple[AgentLog | None, RequestInput]:
    """Open the argument as a log; if it is not a log, return None and the requests in it."""
    from .. import log_lookup  # importing the log readers takes a while

    empty = RequestInput(file, io.BytesIO())
    is_present = file == "-" or os.path.exists(file)
    if not is_present and log_lookup.may_be_id(file):
        return log_lookup.find_session_by_id(file), empty
    if log_lookup.is_url_or_database(file):
        return log_lookup.read_sessions(file, log_lookup.read_log_bytes(file)), empty
    with open_source(file) as requests:
        try:
            data = requests.stream.read()
        except OSError as error:
            raise InputError(requests.name, describe_os_error(error)) from None
    if log_lookup.is_log(data, requests_too=requests_too):
        return log_lookup.read_sessions(file, data), empty
    return None, replace(requests, stream=io.BytesIO(data))


def _print_request(
    source: RequestInput,
    file: str | None,
    profile: str,
    format: str | None,
    out: str | None,
    no_color: bool,
    everything: bool,
    as_json: bool,
) -> int:
    with source:
        request_view, count = view_last_valid(source, profile, format)
    with open_output(out) as write:
        if out is not None:
            from ..view.page import request_page

            write(request_page(request_view).encode("utf-8", "replace"))
    err = out == "-" or (out is not None and not as_json)
    _print_source(request_view, file, count, err or as_json)
    if as_json:
        request = request_view.request
        edits = [part.as_dict() for part in request_view.parts]
        echo_json({**request_view.figures.as_dict(), "file": request.file, "line": request.line, "edits": edits}, err)
        return 0
    from ..view.columns import draw_view  # importing rich takes longer than rewriting most requests

    draw_view(request_view, sys.stderr if err else sys.stdout, everything=everything, plain=no_color, texts=out is None)
    return 0


def view_last_valid(source: RequestInput, profile: str, format: str | None) -> tuple[RequestView, int]:
    """Rewrite the last valid request. Return its view and the number of requests. Reports invalid lines after it."""
    requests = [request for request in source if not request.is_blank]
    call = partial(pipeline.compact, profile=profile, format=format)
    errors: list[InputError] = []
    for request in reversed(requests):
        try:
            result = call_library(call, request)
        except InputError as error:
            errors.append(error)
            continue
        for later_error in reversed(errors):
            print_error(later_error.message)
        return view_request(request, result, profile), len(requests)
    raise errors[0]


def _print_source(request_view: RequestView, file: str | None, count: int, err: bool) -> None:
    if file is None:
        click.echo("No file given. Using the bundled sample conversation.", err=err)
    elif request_view.request.line is not None:
        line = f"line {request_view.request.line:,}, the last valid one"
        click.echo(f"{request_view.request.file} has {count:,} request{'s' * (count != 1)}. Showing {line}.", err=err)
