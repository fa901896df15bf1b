"""Which recorded sessions are compared, and how one is handed to a peer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import orjson

from ibidem import formats
from ibidem.billing.calibration import Count
from ibidem.billing.prices import Prices
from ibidem.model import Message, Text, ToolCall
from ibidem.recordings import LogError, RecordedSegment, Recording
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.recordings.recording import is_model_entry
from ibidem.replay.replay_bill import Replay, ReplayStep, idle_between, parse_histories
from ibidem.tokens import cached_counter, counter_for

from ..readers import read

Json = dict[str, Any]


@dataclass(frozen=True)
class Sampled:
    """A session, whole."""

    name: str
    """Path below the folder, then which of its sessions where a file holds several."""
    recording: Recording

    @property
    def megabytes(self) -> float:
        """Of all its requests, roughly: every one sends its whole history."""
        segments = self.recording.segments
        return sum(len(orjson.dumps(each.history)) * len(each.requests) / 2 for each in segments) / 1e6

    @cached_property
    def count(self) -> Count:
        models = self.recording.models
        return cached_counter(counter_for(models[0] if models else None))

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.recording, Prices(), self.count, parse_histories(self.recording))


def sampled(folder: Path, number: int, megabytes: float) -> tuple[list[Sampled], int]:
    """So many sessions of no more than so many megabytes, and how many there are: agents take turns, and within one
    the digest of the name decides, so that it is the same sample wherever it is taken."""
    found: dict[str, list[Sampled]] = {}
    total = 0
    for path in find_logs(folder):
        try:
            recordings = read(str(path), load_log(path))
        except LogError:
            continue
        name = path.relative_to(folder).as_posix() if folder.is_dir() else path.name
        for recording in recordings:
            total += 1
            one = Sampled(f"{name} ({recording.name})" if recording.name else name, recording)
            if one.megabytes <= megabytes:
                found.setdefault(recording.agent, []).append(one)
    ordered = (sorted(some, key=lambda one: _digest(one.name)) for _, some in sorted(found.items()))
    turns = chain.from_iterable(zip_longest(*ordered))
    return [one for one in turns if one is not None][:number], total


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def handed_over(one: Sampled, *, parts: bool) -> Json:
    """A session as a worker gets it; with what stands in each entry, for those who convert it."""
    recording, dialect = one.recording, formats.format_named(one.recording.format)
    segments: list[Json] = [{"history": segment.history} for segment in recording.segments]
    if parts:
        for segment, history in zip(segments, one.replay.messages, strict=True):
            segment["parts"] = [_parts(message) for message in history]
    return {
        **{"name": one.name, "agent": recording.agent, "format": recording.format, "key": dialect.history_key},
        **{"head": head_of(one), "segments": segments, "requests": list(_requests(one))},
    }


def _requests(one: Sampled) -> Iterator[Json]:
    """What is known of each request: where in which history it ends, its answer, and how the client has it cached."""
    steps = one.replay.steps
    long = any(step.sent.usage and step.sent.usage.written_1h for step in steps)
    control = {"type": "ephemeral", **({"ttl": "1h"} if long else {})}
    for last, step, after in zip([None, *steps], steps, [*steps[1:], None], strict=False):
        marked = one.recording.format == "anthropic" and step.price.caching.marks
        yield {
            **{"segment": step.segment, "length": step.sent.length, "model": step.sent.model},
            "idle": idle_between(last.sent, step.sent) if last is not None else None,
            "marks": control if marked else None,
            "answer": _answer_end(one.recording.segments[step.segment], step, after),
        }


def _answer_end(segment: RecordedSegment, step: ReplayStep, after: ReplayStep | None) -> int:
    """Up to which entry the model answered."""
    same = after is not None and after.segment == step.segment
    end = step.sent.length
    longest = after.sent.length if same and after is not None else len(segment.history)
    while end < longest and is_model_entry(segment.history[end]):
        end += 1
    return end


STAND_IN = "You are an agent that works on software with the tools that are given to you."
SYSTEM = {"anthropic": "system", "openai-responses": "instructions"}
"""Where a system prompt stands beside the history."""


def head_of(one: Sampled) -> Json:
    """What stands beside the history, as far as the log tells. Where it does not, a line stands for the system prompt,
    and the names of the tools that were called for these: peers know the request of an agent by them."""
    recording = one.recording
    head = dict(recording.head)
    if recording.format in SYSTEM:
        head.setdefault(SYSTEM[recording.format], STAND_IN)
    names = {call.name: None for history in one.replay.messages for message in history for call in message.calls}
    if names and recording.format in TOOLS:
        head.setdefault("tools", [TOOLS[recording.format](name) for name in names])
    return head


_ANY = {"type": "object", "properties": {}}
TOOLS: dict[str, Callable[[str], Json]] = {
    "anthropic": lambda name: {"name": name, "description": name, "input_schema": _ANY},
    "openai-chat": lambda name: {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": _ANY},
    },
    "openai-responses": lambda name: {"type": "function", "name": name, "description": name, "parameters": _ANY},
}
"""A tool of which only the name is known, by format."""


def _parts(message: Message) -> Json:
    """What stands in an entry, whoever its provider is."""
    results = []
    for result in message.results:
        texts = [segment for segment in result.segments if isinstance(segment, Text)]
        if texts:
            text = "\n".join(each.text for each in texts)
            results.append({"id": result.call_id, "text": text, "path": list(texts[0].path)})
    texts_said = [part.text for part in message.parts if isinstance(part, Text)]
    calls = [_call(call) for call in message.calls]
    return {"role": message.role, "texts": texts_said, "calls": calls, "results": results}


def _call(call: ToolCall) -> Json:
    args = call.input if isinstance(call.input, dict) else {"input": call.arguments}
    return {"id": call.id, "name": call.name, "args": args, "arguments": call.arguments}


def floor_seconds(one: Sampled) -> float:
    """Processor time that nobody can do without: each request parsed, its results digested, written again."""
    key, total = formats.format_named(one.recording.format).history_key, 0.0
    for step in one.replay.steps:
        history = one.recording.segments[step.segment].history[: step.sent.length]
        body = orjson.dumps({**one.recording.head, key: history})
        results = _result_texts(one.replay.messages[step.segment][: step.sent.length])
        start = time.process_time()
        value = orjson.loads(body)
        for text in results:
            hashlib.sha256(text).digest()
        orjson.dumps(value)
        total += time.process_time() - start
    return total


def _result_texts(history: Sequence[Message]) -> list[bytes]:
    results = chain.from_iterable(message.results for message in history)
    segments = chain.from_iterable(result.segments for result in results)
    return [each.text.encode("utf-8", "surrogatepass") for each in segments if isinstance(each, Text)]
