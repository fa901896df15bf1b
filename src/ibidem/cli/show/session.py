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
from ..errors import InputError, at_the_prompt
from ..logs import FoundLog, label
from ..options import echo_json
from ..view.session_request import LoggedRequest, logged_request
from ..waiting import waiting
from ..writing import output


class SessionOptions(NamedTuple):
    """Options of `ibidem show` for a session."""

    request: int | None
    session: str | None
    profile: str
    out: str | None
    no_color: bool
    everything: bool
    as_json: bool


def show_session(found: FoundLog, options: SessionOptions) -> int:
    """Show one request of a session in a log."""
    session = found.named(options.session)
    number = _number(found, session, options.request)
    trace = trace_session(session, options.profile)
    if number is None:
        number = max((place for place, each in enumerate(trace.requests) if each.new), default=len(trace) - 1)
    whole = options.everything or options.as_json
    command = _command(found, session, options)
    shown = logged_request(trace, number, command, everything=whole, linked=options.out is not None)
    with output(options.out) as write:
        if options.out is not None:
            from ..view.page import logged_page

            write(logged_page(shown).encode("utf-8", "replace"))
    err = options.out == "-" or (options.out is not None and not options.as_json)
    _introduce(found, session, err or options.as_json)
    if options.as_json:
        told = {"file": found.where, "session": shown.names.id, "name": session.name, "agent": session.agent}
        told |= {"title": session.title, "format": session.format, "profile": options.profile}
        echo_json({**told, **shown.as_dict()}, err)
        return 0
    _draw(shown, options, err)
    return 0


def _draw(shown: LoggedRequest, options: SessionOptions, err: bool) -> None:
    from ..view.columns import draw_logged  # importing rich takes a while

    stream = sys.stderr if err else sys.stdout
    draw_logged(shown, stream, everything=options.everything, plain=options.no_color, texts=options.out is None)


def trace_session(session: Recording, profile: str) -> SessionTrace:
    """Replay a session with a profile. Raises InputError."""
    try:
        with waiting(f"replaying {plural(session.length, 'request')}"):
            return SessionTrace(session, ReportSettings((profile,)), profile)
    except IbidemError as error:
        raise InputError("show", at_the_prompt(str(error))) from None


def _number(found: FoundLog, session: Recording, wanted: int | None) -> int | None:
    """Return the index of the request that `--request` selects, or None without the option. Raises InputError."""
    if wanted is None:
        return None
    if not 0 < abs(wanted) <= session.length:
        what = f"has {plural(session.length, 'request')}"
        raise InputError(found.where, f"{what}: --request takes 1 to {session.length:,}, or -1 for the last")
    return wanted - 1 if wanted > 0 else session.length + wanted


def _command(found: FoundLog, session: Recording, options: SessionOptions) -> str:
    words = [f"ibidem show {found.argument}"]
    if len(found.sessions) > 1:
        words.append(f"--session {one_line(shlex.quote(label(session)))}")
    if options.profile != "lossless":
        words.append(f"--profile {shlex.quote(options.profile)}")
    return " ".join(words)


def _introduce(found: FoundLog, session: Recording, err: bool) -> None:
    count = len(found.sessions)
    if count > 1:
        others = [label(each) for each in found.sessions if each is not session][:3]
        more = ", …" if count > 4 else ""
        this = f"Showing {label(session)}, with {plural(session.length, 'request')}"
        told = f"{found.where} has {count:,} sessions. {this}. --session NAME shows another: {', '.join(others)}{more}"
        click.echo(one_line(told), err=err)
