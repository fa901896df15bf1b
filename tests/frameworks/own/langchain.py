"""What is true of the LangChain middleware beside the contract: of results of every kind, and of odd histories."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import ibidem
from ibidem.testing import Calls, Says, Upstream, by_turn

from ..framework import Task

if TYPE_CHECKING:
    from ..langchain import LangChain

PACKAGES = {"anthropic": "langchain_anthropic", "gemini": "langchain_google_genai"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CODE = "\n".join(f"def function_{number}(): return {number * 7919 % 1000}" for number in range(90))
RESULTS: dict[str, Any] = {
    "text": CODE,
    "blocks": [{"type": "text", "text": CODE}, {"type": "text", "text": CODE.upper()}],
    "picture": [{"type": "text", "text": CODE}, PICTURE, {"type": "text", "text": CODE.upper()}],
    "blank": [{"type": "text", "text": " "}, {"type": "text", "text": CODE}],
    "object": {"stdout": CODE, "lines": CODE.split("\n")},
    "list": json.dumps(CODE.split("\n"), indent=1),
    "string": json.dumps(CODE),
    "number": 12345,
    "nothing": "",
}


def own(framework: LangChain) -> dict[str, Callable[[], None]]:
    return {
        "results of every kind": lambda: _results(framework),
        "agents of one thread": lambda: _one_thread(framework),
        "a provider that forgets": _forgets,
        "calls and results that are sent otherwise": _otherwise,
        "a model inside of another": _wrapped,
    }


def _formats(framework: LangChain) -> list[str]:
    """Those whose packages are here."""
    return [each for each in framework.formats if find_spec(PACKAGES.get(each, "langchain_openai"))]


def _results(framework: LangChain) -> None:
    calls = [("read", {"path": each}) for each in RESULTS]
    script = by_turn([Calls(*calls), Calls(*reversed(calls)), Calls(*calls), Says("done")])
    for format in _formats(framework):
        before, after = (
            _sent(framework, script, Task("", format, "sync", ("go",), RESULTS.__getitem__, adapter))
            for adapter in (None, framework.adapter(format))
        )
        assert [ibidem.expand(each, format=format) for each in after] == before, f"{format} does not expand"
        assert len(json.dumps(after[-1])) < len(json.dumps(before[-1])), f"{format} is not smaller"


def _sent(framework: LangChain, script: Any, *tasks: Task) -> list[Any]:
    with Upstream(script) as upstream:
        for task in tasks:
            framework.run(replace(task, url=upstream.url))
        return [each.json for each in upstream.seen]


def _one_thread(framework: LangChain) -> None:
    """A sub-agent has the thread of its parent, and here it begins like it, too."""
    format = _formats(framework)[-1]
    adapter = framework.adapter(format)
    script = by_turn([Calls(("read", {"path": "text"}))] * 3 + [Says("done")])
    inner = Task("", format, "sync", ("go",), lambda path: CODE.upper(), adapter)
    with Upstream(script) as upstream:

        def read(path: str) -> str:
            framework.run(replace(inner, url=upstream.url))
            return CODE

        framework.run(replace(inner, url=upstream.url, read=read))
        bodies = [each.json for each in upstream.seen]
    assert len(bodies) == 4 * 4
    for body in bodies:
        whole = json.dumps(ibidem.expand(body, format=format))
        assert "[ibidem " not in whole
        assert (json.dumps(CODE)[1:-1] in whole) + (json.dumps(CODE.upper())[1:-1] in whole) <= 1, "two became one"
    assert "[ibidem " in json.dumps(bodies[-1])


# ── histories that stay as they are ─────────────────────────────────────────────────────────────────────────────────


def _forgets() -> None:
    """Where results leave the context on the provider's side, nothing refers to them."""
    assert _is_rewritten()
    assert not _is_rewritten(use_previous_response_id=True)
    assert not _is_rewritten(truncation="auto")
    assert not _is_rewritten(context_management=[{"type": "compaction", "compact_threshold": 1000}])


def _otherwise() -> None:
    from langchain_core.messages import HumanMessage

    messages = _history()
    assert _is_rewritten(messages)
    assert not _is_rewritten([HumanMessage([PICTURE]), *messages[1:]])
    assert not _is_rewritten(
        [HumanMessage([{"type": "text", "text": "go"}, {"type": "text", "text": " "}]), *messages[1:]]
    )
    assert _is_rewritten([HumanMessage([{"type": "text", "text": "go"}, PICTURE]), *messages[1:]])
    block = {"type": "tool_use", "id": "other", "name": "read", "input": {}}
    assert not _is_rewritten([*messages, messages[-2].model_copy(update={"content": [block]})])
    if not find_spec("langchain_google_genai"):
        return
    assert _is_rewritten(messages, gemini=True)
    assert not _is_rewritten([messages[2], *messages], gemini=True)
    assert not _is_rewritten([*messages[:-1], HumanMessage("wait"), messages[-1]], gemini=True)


def _wrapped() -> None:
    """Settings that are bound to a model count, and results are written as the model inside writes them."""
    assert _is_rewritten(wrap=lambda model: model.bind(stop=["end"]))
    assert not _is_rewritten(wrap=lambda model: model.bind(truncation="auto"))
    assert not _is_rewritten(wrap=lambda model: model.with_fallbacks([model]))
    if find_spec("langchain_google_genai"):
        result = json.dumps({"stdout": CODE})
        assert _is_rewritten(_history(result))
        assert not _is_rewritten(_history(result), gemini=True)
        assert not _is_rewritten(_history(result), gemini=True, wrap=lambda model: model.bind(stop=["end"]))


def _history(result: str = CODE) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    history: list[Any] = [HumanMessage("go")]
    for number in "12":
        history.append(AIMessage("", tool_calls=[{"id": number, "name": "read", "args": {"path": "a.py"}}]))
        history.append(ToolMessage(result, tool_call_id=number))
    return history


def _is_rewritten(
    messages: list[Any] | None = None, gemini: bool = False, wrap: Callable[[Any], Any] | None = None, **settings: Any
) -> bool:
    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import AIMessage

    from ibidem.adapters.langchain import IbidemMiddleware

    from ..langchain import model

    made = model(Task("http://127.0.0.1:9", "gemini" if gemini else "openai-responses", "sync", (), str))
    made = made.model_copy(update=settings)
    request = ModelRequest(model=wrap(made) if wrap else made, messages=messages or _history())
    seen: list[Any] = []

    def handle(given: Any) -> Any:
        seen.append(given)
        return AIMessage("done")

    IbidemMiddleware().wrap_model_call(request, handle)
    return seen[0] is not request
