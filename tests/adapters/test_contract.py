"""Adapters of frameworks that are light enough for every run; the others: python -m tests_slow.frameworks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.frameworks.contract import Contract, alone, framework_named

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what frameworks warn of is theirs

LIGHT = {
    "sdks": ("anthropic", "openai-chat", "openai-responses", "gemini"),
    "langchain": ("anthropic",),
    "openai_agents": ("openai-responses",),
    "pydantic_ai": ("openai-chat",),
    "anthropic": ("anthropic",),
}


def checks() -> list[object]:
    found: list[object] = []
    for name, formats in LIGHT.items():
        contract = Contract(framework_named(name), formats)
        found += [pytest.param(name, check, id=f"{name}: {said}") for said, check in contract.checks()]
        if name == "sdks":
            found.append(pytest.param(name, contract.example, id=f"{name}: example"))
    return found


@pytest.fixture(autouse=True)
def _variables() -> Iterator[None]:
    """What frameworks are run with ends with the test."""
    before = dict(os.environ)
    alone()
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(("name", "check"), checks())
def test_an_adapter_keeps_the_contract(name: str, check: Callable[[], None]) -> None:
    os.environ.update(framework_named(name).variables)
    check()
