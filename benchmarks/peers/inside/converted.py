"""Doors of frameworks: their filters see their own kind of messages, made of the parts of each entry.

The session brings, for each entry, what stands in it: who says it, texts, calls, and results with the place of their
text. A result that a filter changes is written to that place in the request; everything else stays as it came.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from .libraries import Door, Json


class Converted(Door):
    """A filter that changes results alone."""

    def send(self, body: Json, request: Json) -> Json:
        segment = self.session["segments"][request["segment"]]
        entries = segment["parts"][: request["length"]]
        history = body[self.session["key"]]
        for place, path, text in self.changed(entries):
            history[place] = put(history[place], path, text)
        return body

    def changed(self, entries: list[Json]) -> Iterator[tuple[int, list[Any], str]]:
        """Results that the filter changes: the entry, the place in it, and what stands there now."""
        raise NotImplementedError


def put(entry: Any, path: list[Any], text: str) -> Any:
    """The entry with a text at a place; where a list of blocks stands there, the text stands for all of it."""
    if len(path) >= 2 and path[-1] == "text" and isinstance(path[-2], int):
        path = path[:-2]
    target = entry
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = text
    return entry


class LangChain(Converted):
    """`ContextEditingMiddleware(edits=[ClearToolUsesEdit(…)])`, called as an agent calls it before the model."""

    def __init__(self, **options: Any) -> None:
        self.messages: Any = importlib.import_module("langchain_core.messages")
        middleware: Any = importlib.import_module("langchain.agents.middleware")
        self.request: Any = importlib.import_module("langchain.agents.middleware.types").ModelRequest
        self.middleware = middleware.ContextEditingMiddleware(edits=[middleware.ClearToolUsesEdit(**options)])

    def changed(self, entries: list[Json]) -> Iterator[tuple[int, list[Any], str]]:
        made: list[Any] = []
        results: list[tuple[int, int, Json]] = []
        for place, entry in enumerate(entries):
            for message, result in self._messages(entry, made):
                made.append(message)
                if result is not None:
                    results.append((len(made) - 1, place, result))
        seen: list[Any] = []
        self.middleware.wrap_model_call(self.request(model=None, messages=made), lambda one: seen.extend(one.messages))
        for number, place, result in results:
            if seen[number].content != made[number].content:
                yield place, result["path"], seen[number].content

    def _messages(self, entry: Json, made: list[Any]) -> Iterator[tuple[Any, Json | None]]:
        words, results = "\n".join(entry["texts"]), entry["results"]
        for result in results:
            yield self.messages.ToolMessage(result["text"], tool_call_id=result["id"]), result
        if entry["role"] == "assistant":
            calls = [{"name": call["name"], "args": call["args"], "id": call["id"]} for call in entry["calls"]]
            last = made[-1] if made else None
            if isinstance(last, self.messages.AIMessage):  # an answer of several entries is one message
                last.content += words
                last.tool_calls += calls
            else:
                yield self.messages.AIMessage(words, tool_calls=calls), None
        elif entry["role"] in ("system", "developer"):
            yield self.messages.SystemMessage(words), None
        elif words:
            yield self.messages.HumanMessage(words), None


class Agents(Converted):
    """`ToolOutputTrimmer(…)`, called as `RunConfig.call_model_input_filter` is."""

    def __init__(self, **options: Any) -> None:
        config: Any = importlib.import_module("agents.run_config")
        self.data, self.input = config.CallModelData, config.ModelInputData
        self.trimmer = importlib.import_module("agents.extensions.tool_output_trimmer").ToolOutputTrimmer(**options)

    def changed(self, entries: list[Json]) -> Iterator[tuple[int, list[Any], str]]:
        items: list[Json] = []
        results = []
        for place, entry in enumerate(entries):
            for result in entry["results"]:
                results.append((len(items), place, result))
                items.append({"type": "function_call_output", "call_id": result["id"], "output": result["text"]})
            for call in entry["calls"]:
                name, arguments = call["name"], call["arguments"]
                items.append({"type": "function_call", "call_id": call["id"], "name": name, "arguments": arguments})
            # What a client adds beside results is no turn of the user.
            if entry["texts"] and not entry["results"] and not entry["calls"]:
                items.append({"role": entry["role"], "content": "\n".join(entry["texts"])})
        model_data = self.input(input=items, instructions=None)
        seen = self.trimmer(self.data(model_data=model_data, agent=None, context=None)).input
        for number, place, result in results:
            if seen[number]["output"] != result["text"]:
                yield place, result["path"], seen[number]["output"]
