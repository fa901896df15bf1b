"""Show one request of a recorded session."""

from __future__ import annotations

import shlex
import sys
from typing import NamedTuple

import click

from ...errors import IbidemError, one_line
from ...recordings import Recording
from ...render.number_format import plural
from ...report.measure import ReportSettings
from ...report.trace import SessionTrace
from ..command_errors import InputError, reword_for_cli
from ..elapsed_time import show_elapsed_time
from ..log_lookup import AgentLog, session_name
from ..options import echo_json
from ..output_file import open_output
from ..view.session_request import LoggedRequest, view_logged_request


class SessionOptions(NamedTuple):
    """Options of `ibidem show` for a session."""

    request: int | None
    session: str | None
    profile: str
    out: str | None
    no_color: bool
    everything: bool
    as_json: bool


def show_session(log: AgentLog, options: SessionOptions) -> int:
    """Show one request of a session in a log."""
    session = log.find_session(options.session)
    number = _request_index(log, session, options.request)
    trace = trace_session(session, options.profile)
    if number is None:
        number = max((place for place, each in enumerate(trace.requests) if each.new), default=len(trace) - 1)
    show_all = options.everything or options.as_json
    command = _show_command(log, session, options)
    request = view_logged_request(trace, number, command, everything=show_all, with_targets=options.out is not None)
    with open_output(options.out) as write:
        if options.out is not None:
            from ..view.page import logged_page

            write(logged_page(request).encode("utf-8", "replace"))
    err = options.out == "-" or (options.out is not None and not options.as_json)
    _print_source(log, session, err or options.as_json)
    if options.as_json:
        values = {"file": log.display_name, "session": request.names.id, "name": session.name, "agent": session.agent}
        values |= {"title": session.title, "format": session.format, "profile": options.profile}
        echo_json({**values, **request.as_dict()}, err)
        return 0
    _draw_request(request, options, err)
    return 0


def _draw_request(request: LoggedRequest, options: SessionOptions, err: bool) -> None:
    from ..view.columns import draw_logged  # importing rich takes a while

    stream = sys.stderr if err else sys.stdout
    draw_logged(request, stream, everything=options.everything, plain=options.no_color, texts=options.out is None)


def trace_session(session: Recording, profile: str) -> SessionTrace:
    """Replay a session with a profile. Raises InputError."""
    try:
        with show_elapsed_time(f"replaying {plural(session.length, 'request')}"):
            return SessionTrace(session, ReportSettings((profile,)), profile)
    except IbidemError as error:
        raise InputError("show", reword_for_cli(str(error))) from None


def _request_index(log: AgentLog, session: Recording, number: int | None) -> int | None:
    """Return the index of the request that `--request` selects, or None without the option. Raises InputError."""
    if number is None:
        return None
    if not 0 < abs(number) <= session.length:
        what = f"has {plural(session.length, 'request')}"
        raise InputError(log.display_name, f"{what}: --request takes 1 to {session.length:,}, or -1 for the last")
    return number - 1 if number > 0 else session.length + number


def _show_command(log: AgentLog, session: Recording, options: SessionOptions) -> str:
    words = [f"ibidem show {log.quoted_argument}"]
    if len(log.sessions) > 1:
        words.append(f"--session {one_line(shlex.quote(session_name(session)))}")
    if options.profile != "lossless":
        words.append(f"--profile {shlex.quote(options.profile)}")
    return " ".join(words)


def _print_source(log: AgentLog, session: Recording, err: bool) -> None:
    count = len(log.sessions)
    if count > 1:
        others = [session_name(each) for each in log.sessions if each is not session][:3]
        more = ", …" if count > 4 else ""
        this = f"Showing {session_name(session)}, with {plural(session.length, 'request')}"
        another = f"--session NAME shows another: {', '.join(others)}{more}"
        sentence = f"{log.display_name} has {count:,} sessions. {this}. {another}"
        click.echo(one_line(sentence), err=err)
