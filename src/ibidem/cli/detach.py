"""`ibidem detach`"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..environment import environment_variables, home_folder
from ..errors import IbidemError, one_line
from .command_errors import InputError, describe_os_error

if TYPE_CHECKING:
    from ..recordings import Recording
    from ..recordings.detached import EditableLog, ThinkingSurvey
    from ..recordings.log_backup import FileSignature, ReplaceableLog

UNCHANGED = " Nothing was changed."
EFFECT_NOTE = "The model no longer sees its earlier thinking in this conversation. Everything else stays."


@click.command(short_help="Prepare a conversation to continue without Ibidem.")
@click.argument("session")
@click.option("--dry-run", is_flag=True, help="Show which thinking would be removed, without changes.")
@click.option("--undo", is_flag=True, help="Restore the log from its backup.")
def detach(session: str, dry_run: bool, undo: bool) -> int:
    """Remove thinking from the log of SESSION, so that the conversation continues without Ibidem.

    Newer Claude models sign their thinking over everything that was sent before it. If Ibidem rewrote that, the
    provider rejects the thinking when a client sends the conversation without Ibidem. It accepts the conversation
    without thinking.

    SESSION is the id of a Claude Code or pi session, its first characters, or the path of its log. Quit the client
    first. The original log is saved next to the new one as a backup.
    """
    if dry_run and undo:
        raise click.UsageError("--dry-run and --undo exclude each other")
    recording = _find_recording(session)
    from ..recordings.detached import EDITABLE_LOGS

    layout = EDITABLE_LOGS.get(recording.agent)
    if layout is None:
        return _explain_uneditable(recording)
    target = DetachTarget(recording, layout, session)
    if undo:
        return _restore_backup(target)
    return _print_dry_run(target) if dry_run else _detach_session(target)


@dataclass(frozen=True, slots=True)
class LogSurvey:
    """A log with its signature when it was read, and the thinking found in it."""

    file: ReplaceableLog
    signature: FileSignature
    survey: ThinkingSurvey


class DetachTarget:
    """The session that a user named, with all of its logs."""

    def __init__(self, recording: Recording, layout: EditableLog, argument: str) -> None:
        from ..recordings.log_backup import ReplaceableLog
        from ..recordings.session_ids import session_id

        self.agent, self.layout = recording.agent, layout
        self.path = Path(os.path.abspath(recording.path))
        self.id = session_id(recording)
        self.argument = one_line(shlex.quote(argument))
        """The user's argument, quoted for a shell command."""
        root = next((each for each in self.path.parents if each.name == layout.root), self.path.parent)
        self.files = [ReplaceableLog(path, root) for path in (*layout.companions(self.path, self.id), self.path)]
        """Logs of subagents first: if something fails, the main log is still the original."""

    @property
    def name(self) -> str:
        return one_line(f"session {self.id} ({self.layout.title})")

    @property
    def continue_hint(self) -> str:
        return one_line(f"continue without Ibidem: {self.layout.resume} {shlex.quote(self.id)}")

    def survey_logs(self) -> list[LogSurvey]:
        """Read all logs. Raises InputError if one cannot be edited."""
        from ..recordings.detached import survey_log

        surveys = []
        for file in self.files:
            with _report_errors(file):
                signature = file.read_signature()
                survey = survey_log(file.read_lines(), self.layout)
            if not survey.rows:
                problem = "not one JSON object per line: decompress it first if it is compressed"
                raise InputError(_display_path(file.path), f"{problem}.{UNCHANGED}")
            surveys.append(LogSurvey(file, signature, survey))
        return surveys

    def newest_backup(self) -> int:
        """The number of the newest backup of a log of the session; 0 if there is none."""
        numbers = [0]
        for file in self.files:
            with _report_errors(file):
                numbers += file.backup_numbers()
        return max(numbers)

    def reject_running_client(self, folders: Iterable[str]) -> None:
        """Raise InputError if a client may be writing to the log."""
        from .running_clients import WatchedSession, describe_client

        registry = next((each.parent / "sessions" for each in self.path.parents if each.name == "projects"), None)
        session = WatchedSession(
            self.agent,
            self.layout.title,
            self.id,
            tuple(file.path for file in reversed(self.files)),
            frozenset(folders),
            registry if self.agent == "claude-code" else None,
        )
        if client := describe_client(session):
            raise InputError(self.name, f"{one_line(client)}{UNCHANGED}")


def detach_advice(state: Mapping[str, Any], since: float) -> str:
    """Return a hint to run `ibidem detach`, printed when a proxy stops; "" if no conversation in this folder needs it.

    A conversation needs it if Ibidem removed text from it, its model signs thinking, and an agent whose logs can be
    edited wrote a log in this folder since the proxy started.
    """
    from ..billing.thinking_size import signs_thinking

    if state["observe"] or not any(row["removed"] and signs_thinking(row["model"]) for row in state["conversations"]):
        return ""
    sessions = list(_sessions_here(since))
    if not sessions:
        return ""
    session = one_line(shlex.quote(sessions[0])) if len(sessions) == 1 else "SESSION"
    return f"to continue this conversation without Ibidem, run: ibidem detach {session}"


def _sessions_here(since: float) -> Iterator[str]:
    """Yield the ids of sessions in this folder whose logs were written after `since`."""
    from ..recordings.detached import EDITABLE_LOGS
    from ..recordings.discovery import discover_by_agent
    from ..recordings.session_ids import file_name_ids

    with suppress(OSError, IbidemError):  # the folder was deleted, or the user has no home
        here = _folder_key(os.getcwd())
        logs = discover_by_agent(environment_variables(), home_folder(), sys.platform)
        for path in (path for agent in EDITABLE_LOGS for path in logs.get(agent, ())):
            if _folder_key(path.parent.name) == here and path.stat().st_mtime >= since:
                yield file_name_ids(str(path))[0]


def _folder_key(folder: str) -> str:
    """Reduce a folder's path to letters, digits and `-`, as agents do when they name a log folder after it."""
    return re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")


def _find_recording(session: str) -> Recording:
    """Find the session by id or path; the first session of a log with several. Raises InputError."""
    from . import log_lookup  # importing the log readers takes a while

    if "://" in session:
        raise InputError(one_line(session), "only a log on this machine can be edited: pass its path or a session id")
    if not os.path.lexists(session) and log_lookup.may_be_id(session):
        return log_lookup.find_session_by_id(session).sessions[0]
    try:
        kind = os.stat(session).st_mode
    except OSError as error:
        raise InputError(_display_path(session), describe_os_error(error)) from None
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # reading from a pipe would wait for a writer
        raise InputError(_display_path(session), "not a regular file: pass the path of a log, or a session id")
    return log_lookup.read_sessions(session, log_lookup.read_log_bytes(session)).sessions[0]


def _explain_uneditable(recording: Recording) -> int:
    """Explain what to do about a session whose log cannot be edited."""
    from ..recordings.detached import may_hold_signed_thinking
    from ..recordings.session_ids import session_id

    name = one_line(f"session {session_id(recording)} ({recording.agent})")
    if may_hold_signed_thinking(recording):
        problem = "the logs of this agent cannot be edited. Start a new conversation, or continue this one with Ibidem."
        raise InputError(name, f"{problem}{UNCHANGED}")
    click.echo(f"{name}: its models do not sign thinking over the history. You can continue without Ibidem.")
    return 0


def _detach_session(target: DetachTarget) -> int:
    surveys = target.survey_logs()
    signed_surveys = [each for each in surveys if each.survey.has_signed_thinking]
    if not signed_surveys:
        return _report_no_thinking(target, surveys)
    target.reject_running_client(folder for each in surveys for folder in each.survey.folders)
    backups = _replace_all(signed_surveys, target)
    click.echo(f"Removed {_count_blocks(signed_surveys)} from {target.name}.")
    for backup in backups:
        click.echo(f"Backup: {_display_path(backup)}")
    click.echo(EFFECT_NOTE)
    click.echo(f"You can now {target.continue_hint}")
    click.echo(f"To undo this before you continue: ibidem detach --undo {target.argument}")
    return 0


def _replace_all(signed_surveys: list[LogSurvey], target: DetachTarget) -> list[Path]:
    """Replace all logs or none, and return the paths of their backups."""
    from ..recordings.detached import RowLinks, remove_thinking

    links = RowLinks(each.survey for each in signed_surveys)
    number = target.newest_backup() + 1
    backups: dict[ReplaceableLog, Path] = {}
    try:
        for each in signed_surveys:
            edit = partial(remove_thinking, layout=target.layout, links=links, remaining=each.survey.remaining_ids)
            with _report_errors(each.file):
                backups[each.file] = each.file.replace(each.signature, edit, number)
    except BaseException:
        for file in backups:
            with _report_errors(file, "detached, and could not be restored. Run: ibidem detach --undo"):
                file.restore(number)
        raise
    return list(backups.values())


def _print_dry_run(target: DetachTarget) -> int:
    surveys = target.survey_logs()
    signed_surveys = [each for each in surveys if each.survey.has_signed_thinking]
    if not signed_surveys:
        return _report_no_thinking(target, surveys)
    click.echo(f"Would remove {_count_blocks(signed_surveys)} from {target.name}:")
    for each in signed_surveys:
        click.echo(f"  {each.survey.blocks:,} in {_display_path(each.file.path)}")
    click.echo("Nothing was changed.")
    return 0


def _report_no_thinking(target: DetachTarget, surveys: list[LogSurvey]) -> int:
    blocks = sum(each.survey.blocks for each in surveys)
    why = "its models do not sign thinking over the history" if blocks else "its log has no thinking"
    click.echo(f"{target.name}: {why}. Nothing was changed. You can {target.continue_hint}")
    return 0


def _restore_backup(target: DetachTarget) -> int:
    from ..recordings.detached import survey_log

    number = target.newest_backup()
    if not number:
        raise InputError(_display_path(target.path), f"there is no backup.{UNCHANGED}")
    changed_files = [file for file in target.files if number in file.backup_numbers()]
    folders: set[str] = set()
    for file in changed_files:
        with _report_errors(file):
            file.check_unchanged(number)
            folders |= survey_log(file.read_lines(), target.layout).folders
    target.reject_running_client(folders)
    for file in changed_files:
        with _report_errors(file, "could not be restored. Run this again"):
            file.restore(number)
    what = "its log" if len(changed_files) == 1 else f"{len(changed_files):,} logs"
    click.echo(f"Restored {what} of {target.name}. This conversation continues only with Ibidem.")
    return 0


def _count_blocks(surveys: list[LogSurvey]) -> str:
    blocks = sum(each.survey.blocks for each in surveys)
    where = f" in {len(surveys):,} logs" if len(surveys) > 1 else ""
    return f"{blocks:,} thinking block{'s' if blocks != 1 else ''}{where}"


def _display_path(path: Path | str) -> str:
    return one_line(click.format_filename(path))


@contextmanager
def _report_errors(file: ReplaceableLog, outcome: str = "nothing was changed") -> Iterator[None]:
    """Raise errors of the operating system and of a log as InputError, with the `outcome` for the log."""
    from ..recordings.log_backup import LogFileError

    path, what = file.path, ""
    try:
        yield
        return
    except OSError as error:
        what = describe_os_error(error)
    except LogFileError as error:
        path, what = error.path, error.what
    except IbidemError as error:
        what = str(error)
    raise InputError(_display_path(path), one_line(f"{what} ({outcome})"))
