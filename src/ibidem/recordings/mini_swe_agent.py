"""Reader for mini-SWE-agent: a `.traj.json` file, one JSON object of `{info, messages, trajectory_format}`.

The messages are in wire format and in order. Their field `extra` has the complete provider response and a time.

- Version 1 has commands in the text of responses and their output in user messages, as they were sent. Version 2 uses
  tool calls. With the Responses API, a message is a whole response, and its items were sent.
- The agent drops a response that it cannot parse. Only its error message (`FormatError`) shows that request.
- The last message can have the role `exit`. It was never sent.

Not in the log: the tools, and the times of the first messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from .log_file import Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Json, RecordedRequest, RecordedSegment, Recording
from .usage_fields import first_name, litellm_usage

AGENT = "mini-swe-agent"

ROLES = ("system", "developer", "user", "assistant", "tool")
LOG_FIELDS = ("extra", "timestamp")
"""Fields of a message that are not sent."""


def _is_log_row(row: Json) -> bool:
    if str(row.get("trajectory_format")).startswith(AGENT):
        return isinstance(row.get("messages"), list)
    info = row.get("info")
    return isinstance(row.get("messages"), list) and isinstance(info, dict) and "mini_version" in info


class _MiniSweAgentRun:
    def __init__(self, model: str) -> None:
        self.segment = RecordedSegment()
        self._model = model
        self._latest_time: float | None = None

    def add_message(self, message: Json) -> None:
        extra = message.get("extra") or {}
        at = parse_timestamp(extra.get("timestamp", message.get("timestamp")))
        if message.get("object") == "response":
            self._add_request(message, at)
            self.segment.history.extend(_without_notes(item) for item in message["output"])
            return
        role = message.get("role")
        is_dropped_response = extra.get("interrupt_type") == "FormatError" and not self._ends_in_response()
        if role == "assistant" or is_dropped_response:
            self._add_request(extra.get("response") or {}, at)
        if role in ROLES:
            self.segment.history.append(_without_notes({"content": None, **message}))
        elif message.get("type") == "function_call_output":
            self.segment.history.append(_without_notes(message))
        elif role != "exit":
            raise ValueError(f"a message of role {role!r}")
        if role != "assistant":
            self._latest_time = at

    def _ends_in_response(self) -> bool:
        """Return True if the history ends in a response, so that a format error refers to it."""
        last = self.segment.history[-1:]
        return any(entry.get("role") == "assistant" or entry.get("type") == "function_call" for entry in last)

    def _add_request(self, response: Json, at: float | None) -> None:
        """Add a request. If the message before has no time, use the creation time of the response."""
        if self.segment.history:
            sent_at = self._latest_time or parse_timestamp(response.get("created", response.get("created_at")))
            model = first_name(response.get("model"), self._model)
            usage = litellm_usage(response.get("usage"))
            self.segment.requests.append(RecordedRequest(len(self.segment.history), model, sent_at, at, usage))


def _without_notes(message: Json) -> Json:
    """Return a message as it was sent: without log fields and without empty fields, except `content`."""
    return {
        key: value
        for key, value in message.items()
        if key not in LOG_FIELDS and (value is not None or (key == "content" and "role" in message))
    }


def _read_sessions(log: Log) -> Iterator[Recording]:
    runs = [(line, row) for line, row in log.rows if _is_log_row(row)]
    for line, row in runs:
        model = project = ""
        with log.skip_bad_line(line):
            config = (row.get("info") or {}).get("config") or {}
            model = str((config.get("model") or {}).get("model_name") or "")
            folder = (config.get("environment") or {}).get("cwd")
            project = str(row.get("instance_id") or project_of(str(folder or "")))
        run = _MiniSweAgentRun(model)
        for message in row["messages"]:
            with log.skip_bad_line(line):
                run.add_message(message)
        responses = any(isinstance(each, dict) and each.get("object") == "response" for each in row["messages"])
        wire = "openai-responses" if responses else "openai-chat"
        task = str(row.get("instance_id") or "")
        name = (task or str(line)) if len(runs) > 1 else ""
        yield Recording(AGENT, wire, [run.segment], name=name, id=task, project=project)


READER = Reader(AGENT, _is_log_row, _read_sessions)
