"""`cache=` of adapters that go by a framework's own classes. What arrives on the wire: `tests.frameworks.caching`."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.adapters import langchain as adapter
from ibidem.adapters._cache_option import check_cache_mode
from ibidem.errors import UsageError

MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


@pytest.mark.parametrize(
    ("cache", "auto", "told"),
    [
        ("lifetime", True, "this seam does not support 'lifetime': set x, or"),
        ("auto", False, "this seam does not support 'auto': set x, or"),
        ("always", True, "'always' is unknown: use off or auto, or"),
        ("always", False, "'always' is unknown: use off, or"),
        (None, True, "None is unknown: use off or auto, or"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(cache: object, auto: bool, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_cache_mode(cache, "this seam", "set x", auto=auto)


@pytest.mark.parametrize("cache", ["lifetime", "always"])
def test_a_refusal_names_the_setting_and_where_to_read_on(cache: str) -> None:
    with pytest.raises(UsageError, match=r"^ibidem_cache: .*docs/caching\.md"):
        check_cache_mode(cache, "this seam", "set x", name="ibidem_cache")


@pytest.mark.parametrize("cache", ["off", "auto"])
def test_what_can_be_asked_for_is_taken(cache: str) -> None:
    assert check_cache_mode(cache, "this seam", "set x") == cache


def _request(**more: Any) -> Any:
    """Of an agent, as its middleware sees it."""
    from langchain.agents.middleware import ModelRequest
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import StructuredTool

    def read(path: str) -> str:
        return path

    return ModelRequest(
        **{
            "model": ChatAnthropic(model="claude-sonnet-4-5", api_key="none"),
            "messages": [HumanMessage("Look.")],
            "system_message": SystemMessage("Be brief."),
            "tools": [StructuredTool.from_function(read, description="Reads.")],
            "model_settings": {},
            **more,
        }
    )


def _sent(request: Any, **settings: Any) -> Any:
    found: list[Any] = []
    adapter.IbidemMiddleware(**settings).wrap_model_call(request, found.append)
    return found[0]


def test_a_request_that_asks_for_nothing_is_marked_in_a_copy() -> None:
    request = _request()
    sent = _sent(request, cache="auto")
    assert sent.model_settings["cache_control"]["type"] == "ephemeral"
    assert sent.tools[0].extras["cache_control"]
    assert not request.model_settings
    assert not request.tools[0].extras
    assert request.system_message.content == "Be brief."


def test_an_agent_that_may_choose_is_one() -> None:
    assert _sent(_request(tool_choice="auto"), cache="auto").model_settings["cache_control"]


def test_off_is_off() -> None:
    request = _request()
    assert _sent(request) is request


def _asking() -> dict[str, dict[str, Any]]:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, SystemMessage

    block: Any = [{"type": "text", "text": "Look.", **MARK}]
    tool = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}, **MARK}
    return {
        "settings": {"model_settings": dict(MARK)},
        "system": {"system_message": SystemMessage(block)},
        "message": {"messages": [HumanMessage(block)]},
        "tool": {"tools": [tool]},
        "model": {"model": ChatAnthropic(model="claude-sonnet-4-5", api_key="none", model_kwargs=dict(MARK))},
    }


@pytest.mark.parametrize("where", ["settings", "system", "message", "tool", "model"])
def test_who_asks_gets_nothing_more(where: str) -> None:
    request = _request(**_asking()[where])
    assert _sent(request, cache="auto") is request


@pytest.mark.parametrize("more", [{"tools": []}, {"tool_choice": "any"}])
@pytest.mark.parametrize("said", [1, 2])
def test_a_single_question_is_not_marked(more: dict[str, Any], said: int) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    request = _request(messages=[HumanMessage("Look.")] * said, **more)
    assert _sent(request, cache="auto") is request
    answered = _request(messages=[HumanMessage("Look."), AIMessage("Yes?"), HumanMessage("There.")], **more)
    assert _sent(answered, cache="auto").model_settings["cache_control"]


def test_a_fault_of_ours_leaves_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_asks", lambda request: 1 // 0)
    request = _request()
    assert _sent(request, cache="auto") is request
