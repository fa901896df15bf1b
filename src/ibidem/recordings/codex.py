"""Codex: `~/.codex/sessions/**/rollout-*.jsonl`, rows of `{timestamp, type, payload}`.

`response_item` payloads are the items of the history. One answer is a run of items of the model; the results that
follow belong to the next request. `compacted` replaces the whole history. `token_count` events carry the usage of the
answer before them; it is not certain that every answer has one, so one is given to the latest answer that has none.

What the log does not tell: the tools, the instructions in older releases, and what the provider does with reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..billing.usage import Usage
from .log import Log, seconds
from .reader import Reader
from .recording import Json, RecordedRequest, RecordedSegment, Recording, by_model


def _knows(row: Json) -> bool:
    return isinstance(row.get("payload"), dict) and "timestamp" in row and "type" in row


class _Rollout:
    def __init__(self) -> None:
        self.segments = [RecordedSegment()]
        self.project = ""
        self.head: Json = {}
        self._model = ""
        self._latest: float | None = None
        self._answering = False

    def row(self, row: Json) -> None:
        payload, at = row["payload"], seconds(row["timestamp"])
        match row["type"], payload.get("type"):
            case "response_item", _:
                self._item(payload, at)
            case "compacted", _:
                self._compacted(payload)
            case "turn_context", _:
                self._model = payload.get("model") or self._model
            case "session_meta", _:
                self.project = self.project or payload.get("cwd") or ""
                instructions = payload.get("base_instructions")
                text = instructions.get("text") if isinstance(instructions, dict) else instructions
                self.head = {"instructions": text} if text else self.head
            case "event_msg", "token_count":
                self._count(payload.get("info") or {})
            case "event_msg", "thread_rolled_back":
                self._roll_back(payload.get("num_turns") or 0)

    def _item(self, item: Json, at: float | None) -> None:
        segment = self.segments[-1]
        answer = by_model(item)
        if answer and not self._answering and segment.history:
            segment.requests.append(RecordedRequest(len(segment.history), self._model, self._latest, at))
        elif answer and segment.requests:
            segment.requests[-1] = replace(segment.requests[-1], answered=at)
        else:
            self._latest = at
        self._answering = answer
        segment.history.append(item)

    def _compacted(self, payload: Json) -> None:
        text = [{"type": "input_text", "text": payload.get("message") or ""}]
        kept = payload.get("replacement_history") or [{"type": "message", "role": "user", "content": text}]
        self.segments.append(RecordedSegment(list(kept), [], len(kept), "compaction"))
        self._answering = False

    def _count(self, info: Json) -> None:
        """A request of its own made the compaction's summary: the last answer has its usage already."""
        usage = _usage(info.get("last_token_usage") or {})
        requests = self.segments[-1].requests
        if usage and requests and requests[-1].usage is None:
            requests[-1] = replace(requests[-1], usage=usage)
            self._answering = False

    def _roll_back(self, turns: int) -> None:
        """The user took back their last turns: what was said since is no longer sent."""
        history = self.segments[-1].history
        prompts = [place for place, item in enumerate(history) if item.get("role") == "user"]
        if turns and prompts:
            kept = history[: prompts[-min(turns, len(prompts))]]
            self.segments.append(RecordedSegment(kept, [], len(kept), "rewind"))
            self._answering = False


def _usage(found: Json) -> Usage | None:
    total, read = found.get("input_tokens") or 0, found.get("cached_input_tokens") or 0
    if not total:
        return None
    return Usage(
        fresh=total - read,
        read=read,
        output=found.get("output_tokens") or 0,
        reasoning=found.get("reasoning_output_tokens") or 0,
    )


def _read(log: Log) -> Iterator[Recording]:
    rollout = _Rollout()
    for line, row in log.rows:
        if _knows(row):
            with log.tolerating(line):
                rollout.row(row)
    segments = [segment for segment in rollout.segments if segment.requests]
    yield Recording("codex", "openai-responses", segments, project=rollout.project, head=rollout.head)


READER = Reader("codex", _knows, _read)
