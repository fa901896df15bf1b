"""What the first request of a session tells the provider, as comparable facts, and how two of them differ.

A fact is a set of texts, so that a difference is what is gone and what is new. Ids and times are masked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ibidem.testing import Seen

Json = dict[str, Any]
Facts = dict[str, set[str]]

CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{32,}|ses_\w+|\b1[0-9]{9,12}(\.[0-9]+)?\b|:\d{5}\b"
    r"|_\d{6}(?!\d)|\d{4}-\d\d-\d\dT[\d:.]+|(?<=Wall time )[0-9.]+|(?<=PGID: )[0-9]+|(?<=PID: )[0-9]+"
)
"""Ids, times, ports, durations and process ids."""
BILLING = "x-anthropic-billing-header:"
OWN_HEADERS = {"host", "content-length", "connection", "accept-encoding", "keep-alive", "transfer-encoding"}
"""Headers of a connection and of its transport coding, which Ibidem makes itself."""
NOT_PARAMETERS = {"messages", "input", "contents", "system", "instructions", "systemInstruction", "tools", "metadata"}


@dataclass(frozen=True)
class Known:
    """A difference that is allowed, with its reason."""

    reason: str
    gone: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()


def masked(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return CHANGING.sub("*", text)


def facts(seen: Seen) -> Facts:
    body: Json = seen.json
    offered = tools(body)
    beta = seen.header("anthropic-beta") or seen.header("openai-beta") or ""
    return {
        "model": {str(body.get("model") or seen.path)},
        "number of tools": {str(len(offered))},
        "bytes of tools": {str(tool_bytes(body))},
        "tools": {masked(without_marks(tool)) for tool in offered},
        "system prompt": {masked(" ".join(system_text(body).split()))},
        "billing fields": billing_fields(body),
        "first messages": {masked(each) for each in messages(body)},
        "betas": {each.strip() for each in beta.split(",") if each.strip()},
        "cache lifetimes": _counted(mark.get("ttl", "5m") for mark in marks(body)),
        "cache scopes": {mark["scope"] for mark in marks(body) if "scope" in mark},
        "fields": set(body),
        "parameters": {f"{name}={masked(body[name])}" for name in set(body) - NOT_PARAMETERS},
        "headers": {name.lower() for name, _ in seen.headers} - OWN_HEADERS,
    }


def differences(direct: Facts, wrapped: Facts, known: Mapping[str, Known]) -> dict[str, tuple[set[str], set[str]]]:
    """For each fact, what is gone and what is new in the wrapped run, without what is known."""
    found = {}
    for name in direct:
        allowed = known.get(name, Known(""))
        gone = direct[name] - wrapped[name] - allowed.gone
        new = wrapped[name] - direct[name] - allowed.new
        if gone or new:
            found[name] = (gone, new)
    return found


def tools(body: Json) -> list[Any]:
    """The tools, with those of namespaces and of Gemini's declarations one by one."""
    given = list(body.get("tools") or ())
    for item in body.get("input") or ():
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            given += item["tools"]
    found: list[Any] = []
    for tool in given:
        found += tool.get("tools") or tool.get("functionDeclarations") or [tool]
    return found


def tool_bytes(body: Json) -> int:
    return sum(len(json.dumps(without_marks(tool), ensure_ascii=False).encode()) for tool in tools(body))


def without_marks(tool: Any) -> Any:
    return {key: value for key, value in tool.items() if key != "cache_control"}


def system_text(body: Json) -> str:
    """The system prompt without the billing line."""
    blocks = body.get("system") or body.get("instructions") or body.get("systemInstruction", {}).get("parts") or ""
    if isinstance(blocks, str):
        return blocks
    return " ".join(block["text"] for block in blocks if BILLING not in block["text"])


def billing_fields(body: Json) -> set[str]:
    """Names of the fields in the billing line of Claude Code."""
    blocks = body.get("system")
    text = blocks[0].get("text", "") if isinstance(blocks, list) and blocks else ""
    if not text.startswith(BILLING):
        return set()
    return {field.partition("=")[0].strip() for field in text.removeprefix(BILLING).split(";") if field.strip()}


def messages(body: Json) -> Iterator[Any]:
    """The history without cache marks and ids of items."""
    for item in body.get("messages") or body.get("input") or body.get("contents") or ():
        if item.get("type") == "additional_tools":
            continue
        plain = {key: value for key, value in item.items() if key != "id"}
        content = plain.get("content")
        if isinstance(content, list):
            plain["content"] = [without_marks(block) for block in content]
        yield plain


def marks(value: Any) -> Iterator[Json]:
    """All cache marks."""
    if isinstance(value, dict):
        if isinstance(mark := value.get("cache_control"), dict):
            yield mark
        for each in value.values():
            yield from marks(each)
    elif isinstance(value, list):
        for each in value:
            yield from marks(each)


def _counted(texts: Iterator[str]) -> set[str]:
    return {f"{count} × {text}" for text, count in Counter(texts).items()}
