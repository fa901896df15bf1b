"""Adapters of frameworks that are light enough for every run; the others: python -m tests_slow.frameworks."""

from __future__ import annotations

import os

import pytest

from tests.frameworks.contract import Contract, alone, framework_named

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # what frameworks warn of is theirs

LIGHT = (("sdks", "anthropic"), ("sdks", "openai-chat"), ("sdks", "openai-responses"), ("sdks", "gemini"))


@pytest.mark.parametrize(("name", "format"), LIGHT)
def test_an_adapter_keeps_the_contract(name: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {**os.environ}.items():
        monkeypatch.setenv(variable, value)  # so that what is changed is put back
    alone()
    assert not Contract(framework_named(name), [format]).run().failed
