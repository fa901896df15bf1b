"""Recorded agent sessions as the provider requests that were sent.

A context only grows until something rewrites it, so a run of requests is one `history` and the
lengths (`cuts`) at which it was sent. What rewrites it starts a new segment: a compaction (begins
with the summary), a Claude Code micro-compaction (the old history with the listed results
cleared), a rewind or a second branch (the part that was kept). No request counts twice: the cuts
of a segment lie after what it inherited. Nothing is repaired: unanswered calls, orphan results
and empty texts stay as recorded. A request whose answer was not logged is no cut.

Files are told apart by what their rows look like, never by their names. Not modelled, because the
logs do not tell: system prompts they lack; what a resumed Claude Code session leaves out; agents
that are only echoed in `progress` lines (their text is missing); how SWE-agent and moatless
shorten old observations. Codex roll-backs and pi or Copilot compactions: there is no sample.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CLEARED = "[Old tool result content cleared]"
"""What Claude Code sends in place of a result that a micro-compaction cleared."""


@dataclass(frozen=True)
class Recorded:
    """One context segment: `history[:n]` for every n in `cuts` was sent as a request."""

    name: str
    """Path below the corpus root, then `:sidechain1` and `#2` where a file holds several."""
    folder: str
    format: str
    """`anthropic`, `openai-chat` or `openai-responses`."""
    history: list[Json]
    cuts: list[int]


@dataclass
class Segment:
    """A history whose first `base` entries were inherited; the label names its sub-agent."""

    history: list[Json] = field(default_factory=list)
    base: int = 0
    label: str = ""


@dataclass
class Log:
    """One file. `answers` is the number of model answer ids, where the log has them."""

    format: str
    segments: list[Segment]
    sessions: int = 1
    answers: int | None = None
    broken: int = 0


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


class Thread:
    """One chain of Anthropic messages. Messages are replaced, never mutated: segments share them.

    User lines that follow each other are one message, results first. Blocks with the same answer
    id are one message wherever they are logged, and results logged in between come after it.
    """

    def __init__(self, label: str = "") -> None:
        self.segments = [Segment(label=label)]
        self.answers: dict[str, int] = {}
        self.marks: dict[str, int] = {}

    @property
    def history(self) -> list[Json]:
        return self.segments[-1].history

    def restart(self, kept: Sequence[Json] = ()) -> None:
        """Go on in a new segment that inherits `kept`."""
        self.segments.append(Segment(list(kept), len(kept), self.segments[0].label))
        self.answers = {key: at for key, at in self.answers.items() if at < len(kept)}
        self.marks = {uuid: n for uuid, n in self.marks.items() if n <= len(kept)}

    def answer(self, key: str, blocks: list[Json]) -> None:
        at = self.answers.setdefault(key, len(self.history))
        if at == len(self.history):
            self.history.append({"role": "assistant", "content": []})
        joined = [*self.history[at]["content"], *blocks]
        self.history[at] = {"role": "assistant", "content": joined}

    def say(self, content: str | list[Json]) -> None:
        if self.history and self.history[-1]["role"] == "user":
            content = [*_blocks(self.history.pop()["content"]), *_blocks(content)]
            content.sort(key=lambda block: block.get("type") != "tool_result")
        self.history.append({"role": "user", "content": content})

    def clear(self, ids: Iterable[str]) -> None:
        """Micro-compaction: from here on the results of these calls are sent as a short note."""
        note = {call: {"content": CLEARED} for call in ids}
        self.restart(self.history)
        for n, message in enumerate(self.history):
            if isinstance(message["content"], list):
                blocks = [b | note.get(b.get("tool_use_id"), {}) for b in message["content"]]
                self.history[n] = message | {"content": blocks}

    def rewind(self, parent: str | None) -> None:
        """Fork: a prompt that hangs below an earlier answer drops all that came after its parent.

        Only a parent in this segment counts, and only if an answer has begun since: the lines of
        one parallel batch hang below each other in any order. A parent that is not in the file
        tells nothing; then the order of the file holds.
        """
        kept = self.marks.get(parent or "")
        if kept is not None and any(at >= kept for at in self.answers.values()):
            self.restart(self.history[:kept])

    def line(self, row: Json) -> None:
        message = row.get("message") or {}
        match row["type"], row.get("subtype"):
            case "system", "compact_boundary":
                self.restart()
            case "system", "microcompact_boundary":
                self.clear(row["microcompactMetadata"]["compactedToolIds"])
            case "assistant", _ if not _placeholder(row):
                self.answer(message["id"], message["content"])
            case "user", _ if message:
                if row.get("isCompactSummary") and self.history:
                    self.restart()
                elif all(b.get("type") != "tool_result" for b in _blocks(message["content"])):
                    self.rewind(row.get("parentUuid"))
                self.say(message["content"])
        self.marks[row["uuid"]] = len(self.history)


def _placeholder(row: Json) -> bool:
    return bool(row.get("isApiErrorMessage")) or row["message"].get("model") == "<synthetic>"


def _claude_code(rows: list[Json]) -> Log:
    """Sidechain lines go to the chain of their agent id, or of the root they descend from."""
    threads = {"": Thread()}
    chain: dict[str, str] = {}
    answers = set()
    for row in rows:
        uuid, parent = row.get("uuid"), row.get("parentUuid")
        if not uuid or uuid in chain:
            continue
        key = ""
        if row.get("isSidechain"):
            stray = next(reversed(threads)) if parent and parent not in chain else ""
            key = row.get("agentId") or chain.get(parent or "") or stray or uuid
        chain[uuid] = key
        threads.setdefault(key, Thread(f":sidechain{len(threads)}")).line(row)
        if row["type"] == "assistant" and not _placeholder(row):
            answers.add(row["message"]["id"])
    segments = [segment for thread in threads.values() for segment in thread.segments]
    return Log("anthropic", segments, answers=len(answers))


def _pi_block(block: Json) -> Json:
    if block["type"] == "toolCall":
        call = {"type": "tool_use", "id": block["id"], "name": block["name"]}
        return call | {"input": block["arguments"]}
    if block["type"] == "thinking":
        thought = {"type": "thinking", "thinking": block["thinking"]}
        return thought | {"signature": block.get("thinkingSignature", "")}
    return block


def _pi(rows: list[Json]) -> Log:
    """An answer without content was aborted before its first block and is never sent back."""
    thread = Thread()
    for number, row in enumerate(rows):
        message = row.get("message") or {}
        match message.get("role"):
            case "user":
                thread.say(message["content"])
            case "assistant" if message["content"]:
                thread.answer(str(number), [_pi_block(block) for block in message["content"]])
            case "toolResult":
                result = {"type": "tool_result", "tool_use_id": message["toolCallId"]}
                error = {"is_error": True} if message.get("isError") else {}
                thread.say([result | {"content": _text(message["content"])} | error])
    return Log("anthropic", thread.segments)


def _codex(rows: list[Json]) -> Log:
    """`response_item` payloads are the items; `compacted` replaces all of them."""
    segments = [Segment()]
    for row in rows:
        payload = row.get("payload") or {}
        if row.get("type") == "response_item":
            segments[-1].history.append(payload)
        elif row.get("type") == "compacted":
            text = [{"type": "input_text", "text": payload.get("message", "")}]
            summary = {"type": "message", "role": "user", "content": text}
            kept = payload.get("replacement_history") or [summary]
            segments.append(Segment(list(kept), len(kept)))
    return Log("openai-responses", segments)


class Chat:
    """Chat messages in wire order: what arrives while results are due waits until they are in."""

    def __init__(self) -> None:
        self.history: list[Json] = []
        self.due: set[str] = set()
        self.waiting: list[Json] = []

    def say(self, role: str, content: Any) -> None:
        (self.waiting if self.due else self.history).append({"role": role, "content": content})

    def answer(self, content: Any, calls: list[Json] | None) -> None:
        self._release()
        message = {"role": "assistant", "content": content}
        if calls:
            self.history.append(message | {"tool_calls": [_wire(call) for call in calls]})
        elif content is not None:
            self.history.append(message)
        self.due = {call["id"] for call in calls or ()}

    def result(self, call: str, content: Any, name: str | None = None) -> None:
        named = {"name": name} if name else {}
        self.history.append({"role": "tool", "tool_call_id": call, **named, "content": content})
        self.due.discard(call)
        if not self.due:
            self._release()

    def _release(self) -> None:
        self.history += self.waiting
        self.waiting, self.due = [], set()

    def done(self, base: int = 0) -> Segment:
        self._release()
        return Segment(self.history, base)


def _wire(call: Json) -> Json:
    """A call in wire form, given that or `{id, name, arguments}`; arguments are a JSON string."""
    function = call.get("function", call)
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": function["name"], "arguments": text}
    return {"id": call["id"], "type": "function", "function": function}


def _copilot(rows: list[Json]) -> Log:
    """The system prompt is logged again at every prompt; only the first one is a message."""
    chat = Chat()
    for row in rows:
        data = row.get("data") or {}
        match row.get("type"):
            case "system.message" if not chat.history:
                chat.say("system", data["content"])
            case "user.message":
                chat.say("user", data.get("transformedContent") or data["content"])
            case "system.notification":
                chat.say("user", data["content"])
            case "assistant.message":
                calls = data.get("toolRequests") or []
                chat.answer(data["content"], [{**call, "id": call["toolCallId"]} for call in calls])
            case "tool.execution_complete":
                outcome = data.get("result") or data.get("error") or {}
                text = outcome.get("content", outcome.get("message", ""))
                chat.result(data["toolCallId"], text)
    return Log("openai-chat", [chat.done()])


def _moatless(rows: list[Json]) -> Log:
    """A tree of nodes: the way to every leaf is a segment, inheriting what an earlier one has."""
    nodes = {node["node_id"]: node for node in rows[0]["nodes"]}
    parents = {node["parent_id"] for node in nodes.values()}
    segments, seen = [], set()
    for leaf in (node for node in nodes if node not in parents):
        way = [leaf]
        while (above := nodes[way[0]]["parent_id"]) is not None:
            way.insert(0, above)
        chat, base = Chat(), 0
        for node in way:
            _moatless_node(chat, nodes[node])
            base = len(chat.history) if node in seen else base
        seen.update(way)
        segments.append(chat.done(base))
    return Log("openai-chat", segments)


def _moatless_node(chat: Chat, node: Json) -> None:
    if node.get("message"):
        chat.say("user", node["message"])
    if node.get("action"):
        arguments = dict(node["action"])
        name = arguments.pop("action_args_class").rpartition(".")[2]
        name = re.sub("(Action)?Arg(ument)?s$", "", name)
        call = f"call_{node['node_id']}"
        thought = arguments.pop("scratch_pad", None)
        chat.answer(thought, [{"id": call, "name": name, "arguments": arguments}])
        if node.get("observation"):
            chat.result(call, node["observation"]["message"])


def _swe_agent(rows: list[Json]) -> Log:
    """Without ids the action is a `bash` call; the user message after it is that call's result."""
    chat, made = Chat(), 0
    for message in rows[0]["history"]:
        role, content = message["role"], message["content"]
        if role == "assistant" and message.get("action") and not message.get("tool_calls"):
            made += 1
            call = {"id": f"call_{made}", "name": "bash"}
            call["arguments"] = json.dumps({"command": message["action"]})
            chat.answer(message.get("thought"), [call])
        elif role == "assistant":
            chat.answer(content, message.get("tool_calls"))
        elif role == "tool":
            chat.result(message["tool_call_ids"][0], content)
        elif role == "user" and chat.due:
            chat.result(f"call_{made}", content)
        else:
            chat.say(role, content)
    return Log("openai-chat", [chat.done()])


def _openhands(rows: list[Json]) -> Log:
    """A row is a session; the events of one model answer carry that answer, and its id, whole."""
    segments = []
    for row in rows:
        chat, seen = Chat(), set()
        for event in row["history"]:
            response = (event.get("tool_call_metadata") or {}).get("model_response")
            if response and event.get("action") and response["id"] not in seen:
                seen.add(response["id"])
                message = response["choices"][0]["message"]
                chat.answer(message["content"], message["tool_calls"])
            elif response and event.get("observation"):
                chat.result(event["tool_call_metadata"]["tool_call_id"], event["content"])
            elif not response:
                _openhands_text(chat, event)
        segments.append(chat.done())
    return Log("openai-chat", segments, len(segments))


def _openhands_text(chat: Chat, event: Json) -> None:
    """Recalls are left out: the log lacks the text they added. An error without a call is told."""
    match event.get("action") or event.get("observation"), event.get("source"):
        case "system", _:
            chat.say("system", event["args"]["content"])
        case "message", "user":
            chat.say("user", event["args"]["content"])
        case "message", _:
            chat.answer(event["args"]["content"], None)
        case "error", _:
            chat.say("user", event["content"])


def _tau(rows: list[Json]) -> Log:
    """tau-bench and tau2: what the simulated user calls and gets is not in the agent's context."""
    segments = []
    for session in (session for row in rows for session in row.get("simulations", [row])):
        chat = Chat()
        for message in session.get("traj") or session["messages"]:
            role, content = message["role"], message.get("content")
            if role == "assistant":
                chat.answer(content, message.get("tool_calls"))
            elif role == "tool" and message.get("requestor") != "user":
                call = message.get("tool_call_id") or message["id"]
                chat.result(call, content, message.get("name"))
            elif role != "tool" and content is not None:
                chat.say(role, content)
        segments.append(chat.done())
    return Log("openai-chat", segments, len(segments))


READERS: tuple[tuple[set[str], Callable[[list[Json]], Log]], ...] = (
    ({"parentUuid", "sessionId"}, _claude_code),
    ({"payload", "timestamp"}, _codex),
    ({"data", "parentId"}, _copilot),
    ({"message", "timestamp"}, _pi),
    ({"nodes"}, _moatless),
    ({"trajectory", "history"}, _swe_agent),
    ({"instance_id", "history"}, _openhands),
    ({"traj"}, _tau),
    ({"simulations"}, _tau),
)
"""The keys that give a row away, and the reader of its file; the first match holds."""


def load(path: Path) -> Log | None:
    """The log in a file, or None if no reader knows its rows. A JSON list is a file of rows."""
    text = path.read_text(encoding="utf-8", errors="replace")
    values: list[Any] = []
    broken = 0
    for part in filter(str.strip, text.split("\n") if path.suffix == ".jsonl" else [text]):
        try:
            value = json.loads(part)
            values += value if isinstance(value, list) else [value]
        except ValueError:
            broken += 1
    rows = [value for value in values if isinstance(value, dict)]
    readers = (read for row in rows for keys, read in READERS if keys <= row.keys())
    if (read := next(readers, None)) is None:
        return None
    log = read(rows)
    log.broken = broken
    return log


def logs(root: Path, folders: Iterable[str] | None = None) -> Iterator[tuple[str, Log]]:
    """Every readable file below the folders of `root`; the others are named on stderr."""
    wanted = None if folders is None else set(folders)
    for path in sorted(path for path in root.glob("*/**/*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        if wanted is not None and name.partition("/")[0] not in wanted:
            continue
        log = load(path)
        if log is None:
            print(f"skipped, unknown shape: {name}", file=sys.stderr)
        else:
            yield name, log


def recorded(name: str, log: Log) -> Iterator[Recorded]:
    """The segments of a file that were sent at least once."""
    number: Counter[str] = Counter()
    for segment in log.segments:
        number[segment.label] += 1
        suffix = f"#{number[segment.label]}" if number[segment.label] > 1 else ""
        if cuts := _cuts(log.format, segment):
            full = f"{name}{segment.label}{suffix}"
            yield Recorded(full, name.partition("/")[0], log.format, segment.history, cuts)


def sessions(root: Path, folders: Iterable[str] | None = None) -> Iterator[Recorded]:
    """Every context segment of the recorded sessions, in the order of the file names."""
    for name, log in logs(root, folders):
        yield from recorded(name, log)


def _cuts(wire: str, segment: Segment) -> list[int]:
    """Chat and Anthropic answers are one message each; a Responses answer is a run of items."""
    own = range(max(segment.base, 1), len(segment.history))
    answers = [_by_model(entry) for entry in segment.history]
    if wire == "openai-responses":
        return [n for n in own if answers[n] and (n == segment.base or not answers[n - 1])]
    return [n for n in own if answers[n]]


def _by_model(entry: Json) -> bool:
    if "role" in entry:
        return bool(entry["role"] == "assistant")
    return not entry["type"].endswith("_output")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if "text" in part)
    return content if isinstance(content, str) else ""


def _calls(entry: Json) -> list[str]:
    """Ids of the calls in an entry that a client has to answer."""
    ids = [b["id"] for b in _blocks(entry.get("content")) if b.get("type") == "tool_use"]
    ids += [call["id"] for call in entry.get("tool_calls", ())]
    if entry.get("type", "").endswith("_call") and entry.get("call_id"):
        ids.append(entry["call_id"])
    return ids


def _results(entry: Json) -> list[tuple[str, str]]:
    """Call id and text of every tool result in an entry."""
    if entry.get("role") == "tool":
        return [(entry["tool_call_id"], _text(entry["content"]))]
    if entry.get("type", "").endswith("_output"):
        return [(entry["call_id"], _text(entry.get("output")))]
    blocks = [b for b in _blocks(entry.get("content")) if b.get("type") == "tool_result"]
    return [(block["tool_use_id"], _text(block.get("content"))) for block in blocks]


def _survey(history: list[Json]) -> Counter[str]:
    """A call is unanswered if no result for it follows but something else of the client's does."""
    count: Counter[str] = Counter(messages=len(history))
    waiting: dict[str, int] = {}
    for n, entry in enumerate(history):
        for call, text in _results(entry):
            count.update(results=1, bytes=len(text.encode("utf-8", "replace")))
            count["orphans"] += waiting.pop(call, None) is None
        waiting.update(dict.fromkeys(_calls(entry), n))
    last = max((n for n, entry in enumerate(history) if not _by_model(entry)), default=0)
    count["unanswered"] = sum(n < last for n in waiting.values())
    return count


COLUMNS: tuple[str, ...] = ("sessions", "segments", "requests", "messages", "results", "bytes")
COLUMNS += ("broken", "unanswered", "orphans")


def main() -> None:
    """Print what the loader finds; what a segment inherited counts again in its messages."""
    root = Path(sys.argv[-1])
    if len(sys.argv) == 1 or not root.is_dir():
        sys.exit("usage: python -m benchmarks.corpus ROOT")
    table: dict[str, Counter[str]] = {}
    for name, log in logs(root):
        count = table.setdefault(name.partition("/")[0], Counter())
        count.update(sessions=log.sessions, broken=log.broken, answers=log.answers or 0)
        for segment in recorded(name, log):
            count.update(segments=1, requests=len(segment.cuts))
            count["answered"] += len(segment.cuts) if log.answers else 0
            count.update(_survey(segment.history))
    print(f"{'folder':12}", *(f"{column:>10}" for column in COLUMNS))
    for folder, count in table.items():
        print(f"{folder:12}", *(f"{count[column]:>10}" for column in COLUMNS))
    for folder, count in table.items():
        if count["answers"]:
            print(f"{folder}: {count['answers']} Claude Code answers, {count['answered']} requests")


if __name__ == "__main__":
    main()
