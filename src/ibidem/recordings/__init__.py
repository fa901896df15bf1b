"""Recorded sessions of the agents people use: one reader per log format, told apart by content, never by name.

A reader (`reader.Reader`) turns a log (`log.Log`: rows, plain or packed) into `recording.Recording`s: the requests that
were sent, in segments that only grow, with what the provider counted for each.

- `builders`, `chat`: histories from what an agent's own log tells of a conversation.
- `counts`: token counts as agents copy them.
- `ids`: by what a user can name a session.
- `discovery`: where agents keep their logs on this machine.
- `streams`, `packed`: logs that are too large to be held whole.
- `detached`, `log_backup`: logs without thinking, and how a log is replaced.
- `titles`, `projects`: what a session is called, and what it belongs to.
- `recorded`, `bodies`: what ibidem's own proxy recorded, with every request to the byte.
- `json_log`: the figures that ibidem's own proxy writes, which are no recording.

A new format is a file with a `READER`, a row in `READERS`, a row in `discovery.AGENT_LOGS`, and an example
in tests/recordings, where test_contract.py holds every reader to the same contract. Logs are anybody's: what cannot be
used is skipped and named, never guessed, and never an error of ours.
"""

from __future__ import annotations

from dataclasses import replace

from ..billing.usage import Usage
from ..model import string
from .claude_code import READER as CLAUDE_CODE
from .codex import READER as CODEX
from .copilot_cli import READER as COPILOT_CLI
from .counts import MAX_TOKENS
from .gemini_cli import READER as GEMINI_CLI
from .json_log import REFUSAL, is_logged
from .log import Log, LogError, read_log
from .mini_swe_agent import READER as MINI_SWE_AGENT
from .opencode import READER as OPENCODE
from .openhands import READER as OPENHANDS
from .packed import pack
from .pi import READER as PI
from .reader import Reader
from .recorded import READER as RECORDED
from .recording import RecordedRequest, RecordedSegment, Recording, RequestBody, Skipped
from .requests import READER as REQUESTS
from .streams import LogBytes, LogFileStream, StreamedRows
from .titles import on_one_line, title_of

READERS: tuple[Reader, ...] = (
    RECORDED,
    CLAUDE_CODE,
    CODEX,
    COPILOT_CLI,
    GEMINI_CLI,
    PI,
    OPENCODE,
    MINI_SWE_AGENT,
    OPENHANDS,
    REQUESTS,
)
"""The first that knows a row of the file reads it."""

UNKNOWN = "not a log of an agent that is known here"

PROBED_ROWS = 100
"""Rows that are looked at before a file is given up."""

__all__ = [
    "READERS",
    "UNKNOWN",
    "Log",
    "LogBytes",
    "LogError",
    "LogFileStream",
    "Reader",
    "RecordedRequest",
    "RecordedSegment",
    "Recording",
    "RequestBody",
    "Skipped",
    "agent_in",
    "read",
]


def read(path: str, data: LogBytes) -> list[Recording]:
    """The sessions in a file. Raises LogError when it is no log, or one without a request."""
    log = read_log(path, data)
    reader = reader_of(log)
    sessions = [session for session in reader.read(log) if session.length]
    if not sessions:
        raise LogError(f"{path}: a log of {reader.agent} {_nothing_in(log)}")
    for session in sessions:
        session.path = path
        session.project, session.name = string(session.project), str(session.name)
        session.id = on_one_line(string(session.id))
        session.title = on_one_line(string(session.title)) or title_of(session.segments[0].history)
        for segment in session.segments:
            segment.requests = [_sound(sent) for sent in segment.requests]
    sessions[0].skipped = log.skipped
    if isinstance(log.rows, StreamedRows):
        pack(sessions, log.unpacked)
    return sessions


def agent_in(data: bytes) -> str:
    """Whose log it is, by its first rows; `requests` for request bodies, and empty for what nobody here knows."""
    try:
        return reader_of(read_log("", data, PROBED_ROWS)).agent
    except LogError:
        return ""


def _nothing_in(log: Log) -> str:
    if not log.skipped:
        return "without an answer of the model: no requests in it"
    line, why = log.skipped[0]
    return (
        f"in which no request can be read: {len(log.skipped):,} lines cannot be used (the first is {line}: {why}); "
        "it is damaged, or its format is newer than this version of ibidem"
    )


def _sound(sent: RecordedRequest) -> RecordedRequest:
    """Whatever a log held, names are text and counts are counts."""
    usage, billed = _counts(sent.usage), _counts(sent.billed)
    if type(sent.model) is type(sent.answer) is str and usage is sent.usage and billed is sent.billed:
        return sent
    return replace(sent, model=string(sent.model), answer=string(sent.answer), usage=usage, billed=billed)


def _counts(usage: Usage | None) -> Usage | None:
    counts = usage.counts if usage else ()
    return usage if all(isinstance(count, int) and 0 <= count < MAX_TOKENS for count in counts) else None


def reader_of(log: Log) -> Reader:
    for _, row in log.rows[:PROBED_ROWS]:
        for reader in READERS:
            if reader.knows(row):
                return reader
    proxys = any(is_logged(row) for _, row in log.rows[:PROBED_ROWS])
    raise LogError(f"{log.path}: {REFUSAL if proxys else UNKNOWN}")
