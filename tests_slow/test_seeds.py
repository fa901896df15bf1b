"""The whole comparison with the plain implementations of both original systems. The counts are printed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.seeds.compare import (
    WIRES,
    check_history,
    check_json_pair,
    check_operations,
    check_outputs,
    check_provider_form,
)

HISTORIES = 20_000
PROVIDER_HISTORIES = 5_000
SEQUENCES = 10_000
PAIRS = 60_000


def test_histories(capsys: pytest.CaptureFixture[str]) -> None:
    runs = sum(check_history(number) for number in range(HISTORIES))
    with capsys.disabled():
        print(f"\ncodetether: {runs} runs on {HISTORIES} histories, no difference")


@pytest.mark.parametrize("wire", WIRES)
def test_provider_histories(wire: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = Counter(check_provider_form(number, wire) for number in range(PROVIDER_HISTORIES))
    with capsys.disabled():
        print(f"\n{wire}: {outcomes['exact']} histories exact, {outcomes['deviates']} deviate to stay acceptable")


def test_cache_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    operations = sum(check_operations(number) for number in range(SEQUENCES))
    outputs = sum(check_outputs(number) for number in range(SEQUENCES))
    eligible = sum(check_json_pair(number) for number in range(PAIRS))
    with capsys.disabled():
        print(f"\ndevboy: {operations} operations and {outputs} outputs in {SEQUENCES} sequences each, no difference")
        print(f"near-references: {PAIRS} pairs of bodies, {eligible} eligible, no difference")
