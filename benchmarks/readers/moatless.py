"""moatless: a tree of nodes, as a flat list (`{metadata, nodes}`) or nested in each other (`{root}`).

A node is what was said to the agent, its answer and what came of it: one action, or several steps. The search goes
back to earlier nodes, so the way to every leaf is a segment; a later one inherits the nodes it shares with an earlier
one, and a request is told in the first segment that has it. A node whose parent is not in the file follows the node
before it.

What the log does not tell: the ids of calls (they are made up from the nodes), the system prompt and the tools, and
how old observations were shortened or summed up for a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ibidem.recordings.chat_builder import ChatBuilder
from ibidem.recordings.log_file import Log, parse_timestamp
from ibidem.recordings.reader import Reader
from ibidem.recordings.recording import Json, RecordedRequest, RecordedSegment, Recording
from ibidem.recordings.usage_fields import first_name, litellm_usage

AGENT = "moatless"


def _knows(row: Json) -> bool:
    nodes, root = row.get("nodes"), row.get("root")
    flat = isinstance(nodes, list) and any(isinstance(node, dict) and "node_id" in node for node in nodes)
    return flat or (isinstance(root, dict) and "node_id" in root)


@dataclass(slots=True)
class _Node:
    parent: Any
    said: list[Json] = field(default_factory=list)
    """The entries of the history it adds."""
    sent: RecordedRequest | None = None
    """Its request, with the length counted from its first entry."""


def _flat(row: Json) -> list[Any]:
    """All nodes, each with the id of its parent, in the order in which they were made."""
    if isinstance(row.get("nodes"), list):
        return list(row["nodes"])
    nodes: list[Any] = [{"parent_id": None, **row["root"]}]
    for node in nodes:  # grows while it is walked, as a tree may be deeper than Python's stack
        if isinstance(node, dict) and isinstance(node.get("children"), list):
            parent = {"parent_id": node.get("node_id")}
            nodes.extend({**parent, **child} if isinstance(child, dict) else child for child in node["children"])
    numbered = all(isinstance(node, dict) and isinstance(node.get("node_id"), int) for node in nodes)
    return sorted(nodes, key=lambda node: node["node_id"]) if numbered else nodes


def _nodes(log: Log, line: int, row: Json) -> dict[Any, _Node]:
    nodes: dict[Any, _Node] = {}
    for raw in _flat(row):
        with log.skip_bad_line(line):
            key, parent = raw["node_id"], raw["parent_id"]
            if key is None:
                raise ValueError("a node without an id")
            if parent is not None and parent not in nodes:
                parent = next(reversed(nodes), None)
            if key not in nodes:
                nodes[key] = _Node(parent)
                _tell(nodes[key], raw)
    return nodes


def _tell(node: _Node, raw: Json) -> None:
    steps = [step for step in raw.get("action_steps") or () if step.get("action")]
    if not steps and raw.get("action"):
        steps = [{"action": raw["action"], "observation": raw.get("observation") or raw.get("output")}]
    text = raw.get("assistant_message")
    chat = ChatBuilder()
    if said := raw.get("message") or raw.get("user_message"):
        chat.add_message("user", said)
        node.said.extend(chat.history)
    if steps or text:
        made = [_call(step["action"], f"call_{raw['node_id']}_{number}") for number, step in enumerate(steps, 1)]
        chat.add_response(text or next((thought for thought, _ in made if thought), None), [call for _, call in made])
        for step, (_, call) in zip(steps, made, strict=True):
            if step.get("observation"):
                chat.add_result(call["id"], _observed(step["observation"]))
        node.sent = _sent(raw, steps, len(node.said))
        node.said = chat.finish().history


def _call(action: Json, key: str) -> tuple[str | None, Json]:
    """The thought that goes with a call, and the call."""
    arguments = dict(action)
    name = str(arguments.pop("action_args_class", None) or arguments.pop("name")).rpartition(".")[2]
    thought = arguments.pop("scratch_pad", None) or arguments.pop("thoughts", None)
    return thought, {"id": key, "name": re.sub("(Action)?Arg(ument)?s$", "", name), "arguments": arguments}


def _observed(observation: Any) -> str:
    return observation if isinstance(observation, str) else observation["message"] or ""


def _sent(raw: Json, steps: list[Json], length: int) -> RecordedRequest:
    """A completion that was tried several times is counted as the attempt that gave the answer: the last."""
    found = (raw.get("completions") or {}).get("build_action") or raw.get("completion")
    completion: Json = found or next((step["completion"] for step in steps if step.get("completion")), {})
    attempts = completion.get("attempts") or [completion]
    at = parse_timestamp(completion.get("start_time") or raw.get("timestamp"))
    answered = parse_timestamp(completion.get("end_time") or None)
    return RecordedRequest(
        length, first_name(completion.get("model")), at, answered, litellm_usage(attempts[-1].get("usage"))
    )


def _segments(nodes: dict[Any, _Node]) -> list[RecordedSegment]:
    told: set[Any] = set()
    segments: list[RecordedSegment] = []
    for way in _ways(nodes):
        segment = RecordedSegment(cause="rewind" if segments else "start")
        for key in way:
            node = nodes[key]
            length = len(segment.history) + (node.sent.length if node.sent else 0)
            if node.sent and length and key not in told:
                sent = node.sent
                segment.requests.append(RecordedRequest(length, sent.model, sent.at, sent.answered, sent.usage))
            segment.history.extend(node.said)
            if key in told:
                segment.inherited = len(segment.history)
        if segment.requests:
            told.update(way)
            segments.append(segment)
    return segments


def _ways(nodes: dict[Any, _Node]) -> Iterator[list[Any]]:
    """From the root to every leaf, older branches first: each way shares most with the one before it."""
    children: dict[Any, list[Any]] = {}
    for key, node in nodes.items():
        children.setdefault(node.parent, []).append(key)
    ways = [[key] for key in reversed(children.get(None, []))]
    while ways:
        way = ways.pop()
        below = children.get(way[-1], [])
        if not below:
            yield way
        ways.extend([*way, key] for key in reversed(below))


def _read(log: Log) -> Iterator[Recording]:
    trees = [(line, row) for line, row in log.rows if _knows(row)]
    for line, row in trees:
        metadata = row.get("metadata")
        task = (metadata if isinstance(metadata, dict) else row).get("instance_id") or row.get("instance_id") or ""
        name = str(task or line) if len(trees) > 1 else ""
        segments = _segments(_nodes(log, line, row))
        yield Recording(AGENT, "openai-chat", segments, name=name, id=str(task), project=str(task))


READER = Reader(AGENT, _knows, _read)
