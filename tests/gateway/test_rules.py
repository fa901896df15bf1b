"""The file of `ibidem mcp --rules`: what it may say, and one line for what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibidem.cache import HintVerbosity, ToolKind
from ibidem.errors import IbidemError
from ibidem.gateway.tool_rules import GatewayRules, ToolRule, load_rules


def loaded(tmp_path: Path, text: str | bytes) -> GatewayRules:
    path = tmp_path / "rules.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_rules(path)


def test_everything_that_can_be_declared(tmp_path: Path) -> None:
    rules = loaded(
        tmp_path,
        """
        capacity = 9
        max_calls = 30
        max_age = 60
        min_bytes = 300
        max_chars = 99
        near = false
        [tools.update_issue]
        invalidates = ["get_issue"]
        [tools.write_file]
        path = "path"
        kind = "write"
        [tools.secret]
        never = true
        """,
    )
    memory = rules.memory
    assert (memory.capacity, memory.max_calls, memory.max_age, memory.min_bytes, memory.near) == (9, 30, 60, 300, None)
    assert rules.max_chars == 99
    assert rules.rule_for("update_issue") == ToolRule(invalidates=("get_issue",))
    assert rules.rule_for("write_file") == ToolRule(path="path", kind=ToolKind.FILE_MUTATE)
    assert rules.rule_for("secret").never
    assert rules.rule_for("other") == ToolRule()
    assert loaded(tmp_path, "") == GatewayRules()


def test_a_rule_for_all_tools_counts_for_tools_without_their_own(tmp_path: Path) -> None:
    rules = loaded(
        tmp_path,
        """
        [tools."*"]
        invalidates = ["get_issue"]
        never = true
        [tools.get_issue]
        [tools.update_issue]
        invalidates = ["get_issues"]
        """,
    )
    assert rules.rule_for("any") == rules.rule_for("") == ToolRule(invalidates=("get_issue",), never=True)
    assert rules.rule_for("get_issue") == ToolRule()
    assert rules.rule_for("update_issue") == ToolRule(invalidates=("get_issues",))


def test_devboy_has_its_own_defaults(tmp_path: Path) -> None:
    rules = loaded(tmp_path, 'style = "devboy"\nverbosity = "terse"')
    assert (rules.memory.capacity, rules.memory.near, rules.verbosity) == (5, None, HintVerbosity.TERSE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("near = false\ncapacity = x", "not valid TOML (Invalid value (at line 2, column 12)). Correct the file"),
        (b"# \xff\n", "line 1: not valid UTF-8. Save the file as UTF-8"),
        ("capasity = 5", "capasity: unknown: did you mean capacity?"),
        (
            "x = 5",
            "x: unknown: use one of style, verbosity, capacity, max_calls, max_age, min_bytes, max_chars, near, tools",
        ),
        ("[tool.x]\nnever = true", "tool: unknown: did you mean tools?"),
        ("max_chars = 0", "max_chars: must be a whole number from 1 on"),
        ("capacity = 0", "capacity: must be a whole number from 1 on"),
        ("capacity = true", "capacity: must be a whole number from 1 on"),
        ("max_age = -1", "max_age: must be a number of seconds above 0"),
        ("max_age = nan", "max_age: must be a number of seconds above 0"),
        ("near = 1", "near: must be true or false"),
        ('style = "other"', 'style: must be "ibidem" or "devboy"'),
        ("style = [1]", 'style: must be "ibidem" or "devboy"'),
        ('verbosity = "terse"', 'verbosity: only with devboy\'s hints. Add style = "devboy", or remove verbosity'),
        ('style = "devboy"\nmax_age = 5', "max_age: devboy evicts by capacity only. Remove max_age"),
        ("tools = 5", "tools: not a table. Start one for each tool, such as [tools.get_issue]"),
        ("[tools]\na = 5", "tools.a: not a table. Start it with [tools.a]"),
        (
            '[tools.a]\ninvalidates = "b"',
            'tools.a.invalidates: must be a list of tools: write ["get_issue"]',
        ),
        ("[tools.a]\nnevr = true", "tools.a.nevr: unknown: did you mean never?"),
        ('[tools.a]\npath = "p"', 'tools.a.path: has no effect alone. Add kind = "read" or kind = "write"'),
        ('[tools."\\u001b[2J"]\nnever = 1', "tools.\\x1b[2J.never: must be true or false"),
        ("a = " + "[" * 10_000, None),
        ("a = " + "9" * 10_000, None),
    ],
)
def test_a_mistake_is_one_line_that_says_where_and_what_to_do(tmp_path: Path, text: str, said: str | None) -> None:
    with pytest.raises(IbidemError) as caught:
        loaded(tmp_path, text)
    where, line = str(tmp_path / "rules.toml"), str(caught.value)
    assert line.startswith(f"{where}: ")
    assert line.isprintable()
    assert said is None or line == f"{where}: {said}"


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(IbidemError, match="--rules"):
            load_rules(path)
