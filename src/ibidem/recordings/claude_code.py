"""Reader for Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, one content block per line.

- Lines with the same message id are one response, at any position. Results logged between them follow it.
- Lines with the same uuid are duplicates. Consecutive user lines are one message, results first.
- Reminders (`claude_attachments`) are a system message after the user message if the model supports that. Otherwise
  they are in the user message, after the results.
- Sidechain lines belong to separate conversations, identified by the agent id or by the parent line.
- `toolUseResult` is a copy for the screen and is never sent.
- If the log has the requests themselves (`claude_requests`), these are used.

Like the client, the reader drops calls without a result, results without a call, responses of only whitespace, and API
errors logged as responses. Other texts that the client logged as responses are sent.

Older logs lack the system prompt, the tools, the fixed sentences of reminders and the request for a summary. They also
do not show which thinking the provider drops.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..billing.usage import Usage
from ..model import string_or_empty
from .claude_attachments import reminder_texts
from .claude_requests import LoggedRequests
from .log_file import Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, RecordedSegment, Recording
from .shared_prefixes import common_prefix_length

CLEARED_RESULT = "[Old tool result content cleared]"
"""Text that replaces a result after a micro-compaction."""
SYNTHETIC = "<synthetic>"
"""Model name of a response that the client wrote."""
NO_SYSTEM_MESSAGES = re.compile(r"(?!claude-)|claude-3|claude-\w+-4(-[0-7])?(-\d{8})?(?![\d-])")
"""Models whose reminders are in user messages: Claude before Opus 4.8, and all other models."""
TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines with a session title, and the field with the title. Later types take precedence: the user's title
replaces the others."""


def _is_log_row(row: Json) -> bool:
    return "parentUuid" in row and "sessionId" in row


def _content_blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


class _ClaudeThread:
    """One conversation of a log. Messages are replaced, never modified, because segments share them."""

    def __init__(self, name: str, logged_requests: LoggedRequests, paired_calls: Collection[str]) -> None:
        self.name = name
        self.segments = [RecordedSegment()]
        self.project = ""
        self.head: Json = {}
        self._logged_requests = logged_requests
        self._paired_calls = paired_calls
        """Ids of calls that have a result anywhere in the log."""
        self._response_indexes: dict[str, int] = {}
        """Response id → index in the history."""
        self._request_indexes: dict[str, int] = {}
        """Response id → index of its request in the segment."""
        self._line_lengths: dict[str, int] = {}
        """Line id → length of the history after this line."""
        self._pending_reminders: list[str] = []
        """Reminders for the next request."""
        self._preserved_messages: list[Json] = []
        """Messages that follow the summary of a compaction."""
        self._latest_time: float | None = None

    @property
    def history(self) -> list[Json]:
        return self.segments[-1].history

    def add_line(self, row: Json) -> None:
        self.project = self.project or project_of(string_or_empty(row.get("cwd")))
        message = row.get("message") or {}
        match row.get("type"), row.get("subtype"):
            case "system", "compact_boundary":
                self._start_compaction(row.get("compactMetadata") or {})
            case "system", "microcompact_boundary":
                self._clear_results(row["microcompactMetadata"]["compactedToolIds"])
            case "system", "local_command" if isinstance(row.get("content"), str):
                self._add_user_content(row["content"])
            case "assistant", _ if not row.get("isApiErrorMessage"):
                self._add_response_line(row, message, parse_timestamp(row.get("timestamp")))
            case "user", _ if message:
                self._add_user_line(row, message["content"])
                self._latest_time = parse_timestamp(row.get("timestamp")) or self._latest_time
            case "attachment", _:
                self._pending_reminders += reminder_texts(row["attachment"])
        self._line_lengths[row["uuid"]] = len(self.history)

    def _add_user_line(self, row: Json, content: str | list[Json]) -> None:
        if row.get("isCompactSummary") and self.history:
            self._start_segment("compaction")
        elif all(block.get("type") != "tool_result" for block in _content_blocks(content)):
            self._rewind_to(row.get("parentUuid"))
        if isinstance(content, list):
            content = [block for block in content if self._is_sent(block)]
        if content:
            self._add_user_content(content)
        if row.get("isCompactSummary"):
            self.history.extend(self._preserved_messages)
            self._preserved_messages = []

    def _add_user_content(self, content: str | list[Json]) -> None:
        if self.history and self.history[-1]["role"] == "user":
            content = _merge_content(_content_blocks(self.history[-1]["content"]), _content_blocks(content))
            self._reopen_last()
        self.history.append({"role": "user", "content": content})

    def _reopen_last(self) -> None:
        """Remove the last message, so that it can be replaced. If it was already sent, start a new segment."""
        requests = self.segments[-1].requests
        if requests and requests[-1].length == len(self.history):
            self._start_segment("rewind", self.history[:-1])
        else:
            self._truncate_history(len(self.history) - 1)

    def _truncate_history(self, length: int) -> None:
        del self.history[length:]
        self.segments[-1].inherited = min(self.segments[-1].inherited, length)

    def _add_response_line(self, row: Json, message: Json, at: float | None) -> None:
        key, model = message["id"], message.get("model") or ""
        usage = _parse_usage(message.get("usage") or {})
        if key not in self._response_indexes:
            self._complete_request(row.get("requestRef"), model)
            self._response_indexes[key] = len(self.history)
            if self.history and model != SYNTHETIC:
                requests = self.segments[-1].requests
                self._request_indexes[key] = len(requests)
                effort = str(row.get("effort") or "")
                requests.append(
                    RecordedRequest(len(self.history), model, self._latest_time, at, usage, key, effort=effort)
                )
        elif key in self._request_indexes:  # usage is repeated on every line and complete on the last
            requests = self.segments[-1].requests
            request = requests[self._request_indexes[key]]
            requests[self._request_indexes[key]] = replace(
                request, answered=at or request.answered, usage=usage or request.usage
            )
        new_blocks = [block for block in _content_blocks(message["content"]) if self._is_sent(block)]
        index = self._response_indexes[key]
        all_blocks = [*(block for known in self.history[index : index + 1] for block in known["content"]), *new_blocks]
        if all_blocks:
            self.history[index : index + 1] = [{"role": "assistant", "content": all_blocks}]

    def _is_sent(self, block: Json) -> bool:
        """Return False for blocks that the client drops. Providers reject blank texts, which models sometimes write."""
        match block.get("type"):
            case "text":
                return bool(block["text"].strip())
            case "tool_use":
                return block["id"] in self._paired_calls
            case "tool_result":
                return block["tool_use_id"] in self._paired_calls
        return True

    def _complete_request(self, request: str | None, model: str) -> None:
        """Complete the history before a new response: with the logged request, or else with the pending reminders."""
        requests = self.segments[-1].requests
        start = requests[-1].length if requests else 0
        if exact := self._logged_requests.find_messages(request, self.history[start:]):
            self.head = self._logged_requests.request_params(request) or self.head
            common = common_prefix_length(self.history, exact)
            if common < start:
                self._start_segment("rewind", self.history[:common])
            self._truncate_history(common)
            self.history.extend(exact[common:])
        elif self._pending_reminders and not NO_SYSTEM_MESSAGES.match(model) and self.history:
            self.history.append({"role": "system", "content": "\n\n".join(self._pending_reminders)})
        elif self._pending_reminders:
            self._add_reminders()
        self._pending_reminders = []

    def _add_reminders(self) -> None:
        reminder_blocks = [
            {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}
            for text in self._pending_reminders
        ]
        user_blocks: list[Json] = []
        if self.history and self.history[-1]["role"] == "user":
            user_blocks = _content_blocks(self.history[-1]["content"])
            self._reopen_last()
        results = [block for block in user_blocks if _is_result(block)]
        self.history.append({"role": "user", "content": [*results, *reminder_blocks, *user_blocks[len(results) :]]})

    def _start_compaction(self, about: Json) -> None:
        preserved_ids = (about.get("preservedMessages") or {}).get("uuids") or ()
        places = sorted({self._line_lengths[uuid] - 1 for uuid in preserved_ids if self._line_lengths.get(uuid)})
        messages = [self.history[place] for place in places if place < len(self.history)]
        self._start_segment("compaction")
        self._preserved_messages = messages

    def _start_segment(self, cause: Cause, prefix: Iterable[Json] = ()) -> None:
        """Start a new segment that inherits `prefix`."""
        history = list(prefix)
        if self.segments[-1].requests:
            self.segments.append(RecordedSegment(history, [], len(history), cause))
        else:
            self.segments[-1].history = history
        self._response_indexes = {key: at for key, at in self._response_indexes.items() if at < len(history)}
        self._request_indexes = {}
        self._line_lengths = {uuid: length for uuid, length in self._line_lengths.items() if length <= len(history)}

    def _clear_results(self, ids: Iterable[str]) -> None:
        """Micro-compaction: replace the results of these calls by a short note in later requests."""
        call_ids = set(ids)
        self._start_segment("micro-compaction", self.history)
        for place, message in enumerate(self.history):
            blocks = _content_blocks(message["content"])
            if any(block.get("tool_use_id") in call_ids for block in blocks):
                self.history[place] = {
                    **message,
                    "content": [
                        {**block, "content": CLEARED_RESULT} if block.get("tool_use_id") in call_ids else block
                        for block in blocks
                    ],
                }

    def _rewind_to(self, parent: str | None) -> None:
        """Drop the history after the prompt's parent line, if there is a response in it.

        Without a response it is not a rewind, because the lines of parallel calls have each other as parents in any
        order. A parent outside this segment is ignored.
        """
        length = self._line_lengths.get(parent or "")
        if length is not None and any(place >= length for place in self._response_indexes.values()):
            self._start_segment("rewind", self.history[:length])


def _is_result(block: Json) -> bool:
    return block.get("type") == "tool_result"


def _merge_content(before: list[Json], after: list[Json]) -> list[Json]:
    """Join two user lines into one message: results first, and a line break between two texts."""
    if before and after and before[-1].get("type") == after[0].get("type") == "text":
        before = [*before[:-1], {**before[-1], "text": before[-1]["text"] + "\n"}]
    return sorted([*before, *after], key=lambda block: not _is_result(block))


def _parse_usage(counts: Json) -> Usage | None:
    fresh, read = counts.get("input_tokens") or 0, counts.get("cache_read_input_tokens") or 0
    write_tokens = counts.get("cache_creation_input_tokens") or 0
    hour = (counts.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    if not fresh + read + write_tokens:
        return None
    return Usage(fresh, read, write_tokens - hour, hour, counts.get("output_tokens") or 0)


def _paired_calls(log: Log) -> set[str]:
    """Return the ids of calls with a result. The whole log is read, because a result can precede its call."""
    call_ids: set[str] = set()
    result_ids: set[str] = set()
    for _, row in log.rows:
        match row:
            case {"message": {"content": list(blocks)}}:
                valid_blocks = [block for block in blocks if isinstance(block, dict)]
                call_ids.update(str(block.get("id")) for block in valid_blocks if block.get("type") == "tool_use")
                result_ids.update(str(block.get("tool_use_id")) for block in valid_blocks if _is_result(block))
    return call_ids & result_ids


def _read_sessions(log: Log) -> Iterator[Recording]:
    logged_requests, paired_calls = LoggedRequests(), _paired_calls(log)
    threads = {"": _ClaudeThread("", logged_requests, paired_calls)}
    chain: dict[str, str] = {}
    """Line id → key of its thread."""
    for line, row in log.rows:
        uuid, parent = row.get("uuid"), row.get("parentUuid")
        with log.skip_bad_line(line):
            if logged_requests.add_row(row) or not uuid or uuid in chain:
                continue
            key = ""
            if row.get("isSidechain"):
                last_thread = next(reversed(threads)) if parent and parent not in chain else ""
                key = row.get("agentId") or chain.get(parent or "") or last_thread or uuid
            chain[uuid] = key
            if key not in threads:
                threads[key] = _ClaudeThread(
                    row.get("agentId") or f"sidechain {len(threads)}", logged_requests, paired_calls
                )
            threads[key].add_line(row)
    id_ = _session_id(log)
    for thread in threads.values():
        session = Recording("claude-code", "anthropic", [each for each in thread.segments if each.requests])
        session.name, session.id, session.project, session.head = thread.name, id_, thread.project, thread.head
        session.title = _session_title(log, id_) if not thread.name else ""
        yield session


def _session_id(log: Log) -> str:
    """Return the session id of the file.

    The file name counts if a line has this id: a resumed session can start with lines of another one. The file of a
    subagent has another name, so the id in its last line counts.
    """
    ids = [id_ for _, row in log.rows if isinstance(id_ := row.get("sessionId"), str)]
    stem = re.split(r"[\\/]", log.path)[-1].partition(".")[0]
    return stem if stem in ids else ids[-1] if ids else ""


def _session_title(log: Log, session: str) -> str:
    """Return the session's title from its log. Summaries of other sessions in the file have a foreign `leafUuid`."""
    rows = [row for _, row in log.rows if string_or_empty(row.get("type")) in TITLES]
    lines = {string_or_empty(row.get("uuid")) for _, row in log.rows} if rows else set()
    own_rows = [
        row
        for row in rows
        if row.get("sessionId", session) == session
        and (row["type"] != "summary" or string_or_empty(row.get("leafUuid")) in lines - {""})
    ]
    latest = {row["type"]: string_or_empty(row.get(TITLES[row["type"]])) for row in own_rows}
    return next((latest[kind] for kind in reversed(TITLES) if latest.get(kind)), "")


READER = Reader("claude-code", _is_log_row, _read_sessions)
