"""Plain implementation of codetether's context passes, for comparison with the product.

A message is `{"role": str, "content": [part, ...]}`. Each pass changes the list of messages in place and returns
`(dedup_hits, snippet_hits, total_bytes_saved)`. All sizes are UTF-8 bytes. A window counts messages from the end.
"""

import hashlib
from typing import Any

Message = dict[str, Any]
Counts = tuple[int, int, int]

# White space as Rust defines it. Python's str.strip() also removes U+001C to U+001F.
RUST_WHITESPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
NOISE_CHARACTERS = ".…-_*="
UNAVAILABLE_RESULT = "[tool result unavailable: elided by context management]"


def prune_thinking(messages: list[Message]) -> Counts:
    """Remove thinking from assistant messages before the last 4, then the assistant messages left without parts."""
    hits = saved = 0
    first_recent = max(0, len(messages) - 4)
    for message in messages[:first_recent]:
        if message["role"] != "assistant":
            continue
        removed = sum(utf8_size(part["text"]) for part in message["content"] if part["type"] == "thinking")
        message["content"] = [part for part in message["content"] if part["type"] != "thinking"]
        if removed > 0:
            hits += 1
            saved += removed
    messages[:first_recent] = [
        message for message in messages[:first_recent] if message["role"] != "assistant" or message["content"]
    ]
    return 0, hits, saved


def dedup_tool_outputs(messages: list[Message], window: int = 0) -> Counts:
    """Replace each repeated tool result with a reference to the first one.

    The last `window` messages are neither edited nor remembered. The original systems have no window before release
    4.6.1 and a window of 8 from then on.
    """
    hits = saved = 0
    first_ids: dict[bytes, str] = {}
    for message in messages[: max(0, len(messages) - window)]:
        for part in message["content"]:
            if part["type"] != "tool_result":
                continue
            data = part["content"].encode()
            if len(data) < 256:
                continue
            key = hashlib.sha256(data).digest()
            if key not in first_ids:
                first_ids[key] = part["tool_call_id"]
                continue
            part["content"] = f"[DEDUP] identical to tool_call_id={first_ids[key]} ({len(data)} bytes)"
            hits += 1
            saved += max(0, len(data) - utf8_size(part["content"]))
    return hits, 0, saved


def prune_low_entropy(messages: list[Message]) -> Counts:
    """Clean the text parts of assistant messages before the last 6, if that makes them shorter."""
    hits = saved = 0
    for message in messages[: max(0, len(messages) - 6)]:
        if message["role"] != "assistant":
            continue
        for part in message["content"]:
            if part["type"] != "text":
                continue
            cleaned = clean_text(part["text"])
            difference = utf8_size(part["text"]) - utf8_size(cleaned)
            if difference > 0:
                part["text"] = cleaned
                hits += 1
                saved += difference
    return 0, hits, saved


def clean_text(text: str) -> str:
    """Collapse noise lines and runs of spaces outside fenced code."""
    lines = text.split("\n")
    endings = ["\n"] * (len(lines) - 1) + [""]
    if lines[-1] == "":  # The text is empty or ends with a line feed: no further line follows.
        del lines[-1], endings[-1]
    output = []
    in_code = in_noise = False
    for line, ending in zip(lines, endings, strict=True):
        if line.lstrip(RUST_WHITESPACE).startswith("```"):
            in_code = not in_code
            in_noise = False
            output.append(line + ending)
            continue
        if in_code:
            output.append(line + ending)
            continue
        line = line.rstrip(RUST_WHITESPACE)
        if line.strip(NOISE_CHARACTERS) == "":
            if not in_noise:
                output.append("\n")  # Also for a last line without a line feed.
            in_noise = True
            continue
        in_noise = False
        while "  " in line:
            line = line.replace("  ", " ")
        output.append(line + ending)
    return "".join(output)


def snippet_stale_tool_outputs(messages: list[Message]) -> Counts:
    """Cut the middle out of large tool results before the last 8 messages."""
    hits = saved = 0
    for message in messages[: max(0, len(messages) - 8)]:
        for part in message["content"]:
            if part["type"] != "tool_result":
                continue
            text = part["content"]
            data = text.encode()
            if len(data) < 4096 or "[...elided" in text or text.startswith("[DEDUP]"):
                continue
            head_end = 1024
            while head_end > 0 and not is_character_boundary(data, head_end):
                head_end -= 1
            tail_start = len(data) - 1024
            while tail_start < len(data) and not is_character_boundary(data, tail_start):
                tail_start += 1
            marker = f"\n[...elided {tail_start - head_end} bytes...]\n"
            part["content"] = data[:head_end].decode() + marker + data[tail_start:].decode()
            hits += 1
            saved += max(0, len(data) - utf8_size(part["content"]))
    return 0, hits, saved


def is_character_boundary(data: bytes, index: int) -> bool:
    """Return whether a UTF-8 character starts at `index`, or the data ends there."""
    return index == len(data) or data[index] & 0b1100_0000 != 0b1000_0000


def collapse_duplicate_calls(messages: list[Message]) -> Counts:
    """Replace the arguments of repeated tool calls before the last 8 messages."""
    hits = saved = 0
    first_ids: dict[bytes, str] = {}
    for message in messages[: max(0, len(messages) - 8)]:
        for part in message["content"]:
            if part["type"] != "tool_call":
                continue
            arguments = part["arguments"].encode()
            if len(arguments) < 64 or arguments.startswith(b"[REPEAT"):
                continue
            key = hashlib.sha256(part["name"].encode() + b"\0" + arguments).digest()
            if key not in first_ids:
                first_ids[key] = part["id"]
                continue
            part["arguments"] = f"[REPEAT of call_id={first_ids[key]}, {len(arguments)} bytes]"
            hits += 1
            saved += max(0, len(arguments) - utf8_size(part["arguments"]))
    return hits, 0, saved


def trim_middle(messages: list[Message]) -> Counts:
    """Replace the middle of a history of 22 or more messages with one user message."""
    total = len(messages)
    if total < 22:
        return 0, 0, 0
    start, end = 2, total - 16
    # Neither edge may separate a call from its results.
    while end < total and has_assistant_call(messages[end - 1]):
        end += 1
    while end < total and messages[end]["role"] == "tool":
        end += 1
    while start < end and messages[start]["role"] == "tool":
        start += 1
    if end <= start + 1:
        return 0, 0, 0
    removed = sum(trimmed_size(part) for message in messages[start:end] for part in message["content"])
    marker = (
        f"[...streaming-llm trim: {end - start} messages ({removed} bytes) elided between sinks and recent window...]"
    )
    messages[start:end] = [{"role": "user", "content": [{"type": "text", "text": marker}]}]
    return 0, 1, max(0, removed - utf8_size(marker))


def has_assistant_call(message: Message) -> bool:
    """Return whether this is an assistant message with at least one tool call."""
    return message["role"] == "assistant" and any(part["type"] == "tool_call" for part in message["content"])


def trimmed_size(part: dict[str, Any]) -> int:
    """Return the bytes that `trim_middle` reports for a part. Thinking counts as 0."""
    match part["type"]:
        case "text":
            return utf8_size(part["text"])
        case "tool_result":
            return utf8_size(part["content"])
        case "tool_call":
            return utf8_size(part["arguments"]) + utf8_size(part["name"])
        case "image" | "file":
            return 1024
        case _:
            return 0


def repair_orphans(messages: list[Message]) -> Counts:
    """Answer tool calls that have no result, then remove tool messages whose calls are missing."""
    result_ids = {
        part["tool_call_id"]
        for message in messages
        if message["role"] == "tool"
        for part in message["content"]
        if part["type"] == "tool_result"
    }
    repairs = 0
    answered: list[Message] = []
    for message in messages:
        answered.append(message)
        if message["role"] != "assistant":
            continue
        for part in message["content"]:
            if part["type"] == "tool_call" and part["id"] not in result_ids:
                result = {"type": "tool_result", "tool_call_id": part["id"], "content": UNAVAILABLE_RESULT}
                answered.append({"role": "tool", "content": [result]})
                repairs += 1
    call_ids: set[str] = set()
    paired: list[Message] = []
    for message in answered:
        parts = message["content"]
        call_ids.update(part["id"] for part in parts if part["type"] == "tool_call")
        is_orphan = all(part["type"] == "tool_result" and part["tool_call_id"] not in call_ids for part in parts)
        if message["role"] == "tool" and parts and is_orphan:
            repairs += 1
        else:
            paired.append(message)
    messages[:] = paired
    return 0, repairs, 0


def apply_all(messages: list[Message], order: str = "seed") -> Counts:
    """Run the passes in the order of the original documents ("seed") or of release "4.6.0" or "4.6.1"."""
    if order == "seed":
        counts = [prune_thinking(messages), dedup_tool_outputs(messages), prune_low_entropy(messages)]
    elif order == "4.6.0":
        counts = [
            prune_thinking(messages),
            collapse_duplicate_calls(messages),
            dedup_tool_outputs(messages),
            snippet_stale_tool_outputs(messages),
            prune_low_entropy(messages),
            trim_middle(messages),
        ]
    elif order == "4.6.1":
        counts = [prune_thinking(messages), dedup_tool_outputs(messages, window=8), prune_low_entropy(messages)]
    else:
        raise ValueError(f"unknown order {order!r}. Use seed, 4.6.0 or 4.6.1.")
    counts.append(repair_orphans(messages))
    dedup_hits, snippet_hits, saved = (sum(column) for column in zip(*counts, strict=True))
    return dedup_hits, snippet_hits, saved


def utf8_size(text: str) -> int:
    """Return the number of UTF-8 bytes."""
    return len(text.encode())
