"""Read the session logs of coding agents. Each log format has one reader, selected by file content, not by file name.

A reader (`reader.Reader`) turns a log (`log_file.Log`: rows of a plain or compressed file) into `recording.Recording`s.
A recording has the requests that were sent, in segments that only grow, with the provider's usage of each request.

- `history_builders`, `chat_builder`: rebuild histories from an agent's log.
- `shared_prefixes`: find the common prefix of histories.
- `usage_fields`: token counts in the field names of litellm.
- `session_ids`, `titles`, `projects`: id, title and project of a session.
- `discovery`: find the logs of agents on this machine.
- `log_streams`, `compressed_history`: logs that are too large for memory.
- `detached`, `log_backup`: remove thinking from a log, and replace the log on disk.
- `proxy_recordings`, `body_store`: recordings of Ibidem's proxy (`--record`), with the exact bytes of each request.
- `proxy_json_log`: the proxy's usage log (`--json-log`), which has no histories.

To add a format: write a module with a `READER`, add it to `READERS` and to `discovery.AGENT_LOGS`, and add an example
to tests/recordings, where test_contract.py checks every reader. Logs are untrusted input. A reader skips and reports
each unusable line. It does not guess and does not fail.
"""

from __future__ import annotations

from dataclasses import replace

from ..billing.usage import Usage
from ..model import string_or_empty
from .claude_code import READER as CLAUDE_CODE
from .codex import READER as CODEX
from .compressed_history import compress_segments
from .copilot_cli import READER as COPILOT_CLI
from .gemini_cli import READER as GEMINI_CLI
from .log_file import Log, LogError, read_log
from .log_streams import LogBytes, LogFileStream, StreamedRows
from .mini_swe_agent import READER as MINI_SWE_AGENT
from .opencode import READER as OPENCODE
from .openhands import READER as OPENHANDS
from .pi import READER as PI
from .proxy_json_log import NO_CONVERSATIONS, is_usage_row
from .proxy_recordings import READER as RECORDED
from .reader import Reader
from .recording import RecordedRequest, RecordedSegment, Recording, RequestBody, SkippedLine
from .request_bodies import READER as REQUESTS
from .titles import prompt_title, title_line
from .usage_fields import MAX_TOKENS

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
"""Readers in order of precedence: the first one that recognizes a row reads the file."""

UNKNOWN = "not a log of an agent that is known here"

PROBED_ROWS = 100
"""Number of rows to check before a file counts as unknown."""

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
    "SkippedLine",
    "agent_in",
    "read",
]


def read(path: str, data: LogBytes) -> list[Recording]:
    """Return the sessions in a file. Raises LogError if the file is not a known log or has no requests."""
    log = read_log(path, data)
    reader = find_reader(log)
    sessions = [session for session in reader.read(log) if session.length]
    if not sessions:
        raise LogError(f"{path}: a log of {reader.agent} {_describe_empty_log(log)}")
    for session in sessions:
        session.path = path
        session.project, session.name = string_or_empty(session.project), str(session.name)
        session.id = title_line(string_or_empty(session.id))
        session.title = title_line(string_or_empty(session.title)) or prompt_title(session.segments[0].history)
        for segment in session.segments:
            segment.requests = [_sanitize_request(request) for request in segment.requests]
    sessions[0].skipped = log.skipped
    if isinstance(log.rows, StreamedRows):
        compress_segments(sessions, log.history_cache)
    return sessions


def agent_in(data: bytes) -> str:
    """Return the agent that wrote a log, judged by its first rows.

    `requests` means plain request bodies. The result is empty if the format is unknown.
    """
    try:
        return find_reader(read_log("", data, PROBED_ROWS)).agent
    except LogError:
        return ""


def _describe_empty_log(log: Log) -> str:
    if not log.skipped:
        return "without a model response: it has no requests"
    line, why = log.skipped[0]
    return (
        f"without readable requests: {len(log.skipped):,} lines cannot be used (the first is {line}: {why}). "
        "The file is damaged, or its format is newer than this version of ibidem"
    )


def _sanitize_request(request: RecordedRequest) -> RecordedRequest:
    """Replace names that are not text and counts that are not plausible, because a log may contain anything."""
    usage, billed_usage = _plausible_usage(request.usage), _plausible_usage(request.billed)
    if type(request.model) is type(request.answer) is str and usage is request.usage and billed_usage is request.billed:
        return request
    return replace(
        request,
        model=string_or_empty(request.model),
        answer=string_or_empty(request.answer),
        usage=usage,
        billed=billed_usage,
    )


def _plausible_usage(usage: Usage | None) -> Usage | None:
    counts = usage.counts if usage else ()
    return usage if all(isinstance(count, int) and 0 <= count < MAX_TOKENS for count in counts) else None


def find_reader(log: Log) -> Reader:
    for _, row in log.rows[:PROBED_ROWS]:
        for reader in READERS:
            if reader.knows(row):
                return reader
    is_proxy_log = any(is_usage_row(row) for _, row in log.rows[:PROBED_ROWS])
    raise LogError(f"{log.path}: {NO_CONVERSATIONS if is_proxy_log else UNKNOWN}")
