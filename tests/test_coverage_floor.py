"""Coverage floors: what is added up, and what is said about a package that is below, new or gone."""

from __future__ import annotations

import pytest

from .coverage_floor import Coverage, by_package, percentage, problems

SUMMARY = {"num_statements": 10, "covered_lines": 9, "num_branches": 4, "covered_branches": 1}


def test_files_are_added_up_by_first_folder() -> None:
    files = dict.fromkeys(("src/ibidem/a/x.py", "src/ibidem/a/b/y.py", "src/ibidem/plan.py"), SUMMARY)
    assert by_package(files) == {"a": Coverage(20, 18, 8, 2), "ibidem": Coverage(10, 9, 4, 1)}


def test_percentages_are_rounded_down() -> None:
    assert percentage(1999, 2000) == 99.9
    assert percentage(0, 0) == 100.0


@pytest.mark.parametrize(
    ("floors", "messages"),
    [
        ({"a": [90.0, 25.0]}, []),
        ({"a": [90.1, 25.0]}, ["a: line coverage 90.0% is below 90.1%. "]),
        ({"a": [90.0, 26.0]}, ["a: branch coverage 25.0% is below 26.0%. "]),
        ({}, ["tests/coverage_floor.toml: no row for package a. Add: a = [90.0, 25.0]"]),
        ({"a": [1, 1], "b": [1, 1]}, ["tests/coverage_floor.toml: no package b. Delete its row."]),
    ],
    ids=["reached", "too few lines", "too few branches", "new package", "package that is gone"],
)
def test_each_problem_has_a_message_with_the_fix(floors: dict[str, list[float]], messages: list[str]) -> None:
    found = problems({"a": Coverage(10, 9, 4, 1)}, floors)
    assert len(found) == len(messages)
    assert all(one.startswith(start) for one, start in zip(found, messages, strict=True))
