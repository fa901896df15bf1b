"""Rules about a server's tools, in a small TOML file: `ibidem mcp --rules FILE`.

style = "devboy"                    # hints and sizes of devboy (default: those of ibidem)

[tools.update_issue]
invalidates = ["get_issue"]         # tools whose results become obsolete: the next one is sent in full, even if equal

[tools.write_file]
path = "path"                       # the argument that names a file
kind = "write"                      # makes earlier results of tools of kind "read" for that file obsolete

[tools.get_secret]
never = true                        # no hint in place of its results, and none that points at them
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from ..cache import HintVerbosity, MemorySettings, NearRefConfig, ToolKind
from ..cache.outputs import MAX_SHOWN_CHARS
from ..environment import read_bounded
from ..errors import IbidemError, one_line

MAX_RULES_BYTES = 2**20
MAX_REASON = 200
_FILE_FIX = "name another with --rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """Rule for one tool."""

    invalidates: tuple[str, ...] = ()
    """Tools whose earlier results this tool makes obsolete."""
    path: str | None = None
    """Argument that names a file."""
    kind: ToolKind | None = None
    """What the tool does to that file. None: derived from the tool's name."""
    never: bool = False
    """True if its results are always forwarded unchanged and never stored."""


UNDECLARED = ToolRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRules:
    """All rules of the gateway: memory, style of the hints, and rules for single tools."""

    style: Literal["ibidem", "devboy"] = "ibidem"
    memory: MemorySettings = field(default_factory=MemorySettings)
    verbosity: HintVerbosity = HintVerbosity.STANDARD
    """Length of devboy's hints."""
    max_chars: int = MAX_SHOWN_CHARS
    """Longer results are forwarded and not stored, because clients truncate them in different ways."""
    tools: Mapping[str, ToolRule] = field(default_factory=dict)

    def rule_for(self, tool: str) -> ToolRule:
        """Return the rule of a tool, or the rule `*`."""
        return self.tools.get(tool) or self.tools.get("*", UNDECLARED)


def load_rules(path: Path) -> GatewayRules:
    """Load a rules file. Raises IbidemError with the file, the line or field, and the fix."""
    where = one_line(str(path))
    data = read_bounded(path, MAX_RULES_BYTES, _FILE_FIX)
    if data is None:
        raise IbidemError(f"{where}: no such file: {_FILE_FIX}")
    try:
        table = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise IbidemError(f"{where}: line {line}: not valid UTF-8. Save the file as UTF-8") from None
    except RecursionError:
        raise IbidemError(f"{where}: nested too deeply. Correct the file") from None
    except ValueError as error:  # not only TOMLDecodeError: an integer that is too long raises a plain ValueError
        raise IbidemError(f"{where}: not valid TOML ({one_line(str(error)[:MAX_REASON])}). Correct the file") from None
    return parse_rules(table, where)


def parse_rules(table: Mapping[str, Any], where: str) -> GatewayRules:
    """Check a table of rules. `where` is the file, for error messages."""
    values = {name: _check_field(_FIELDS, name, value, where, "") for name, value in table.items()}
    tools = {name: _parse_tool(name, each, where) for name, each in values.pop("tools", {}).items()}
    style = values.pop("style", "ibidem")
    verbosity = values.pop("verbosity", None)
    if verbosity is not None and style != "devboy":
        raise IbidemError(f'{where}: verbosity: only with devboy\'s hints. Add style = "devboy", or remove verbosity')
    for name in ("max_calls", "max_age"):
        if style == "devboy" and name in values:
            raise IbidemError(f"{where}: {name}: devboy evicts by capacity only. Remove {name}")
    near, max_chars = values.pop("near", style != "devboy"), values.pop("max_chars", MAX_SHOWN_CHARS)
    memory = replace(MemorySettings(near=NearRefConfig() if near else None), **values)
    return GatewayRules(
        style=style,
        memory=memory,
        verbosity=verbosity or HintVerbosity.STANDARD,
        max_chars=max_chars,
        tools=tools,
    )


def _parse_tool(name: str, table: Any, where: str) -> ToolRule:
    field_name = f"tools.{one_line(name)}"
    if not isinstance(table, dict):
        raise IbidemError(f"{where}: {field_name}: not a table. Start it with [{field_name}]")
    values = {key: _check_field(_TOOL_FIELDS, key, value, where, f"{field_name}.") for key, value in table.items()}
    rule = ToolRule(**values)
    kind = rule.kind or ToolKind.from_tool_name(name)
    if rule.path is not None and kind is ToolKind.OTHER:
        raise IbidemError(f'{where}: {field_name}.path: has no effect alone. Add kind = "read" or kind = "write"')
    return rule


_Check = tuple[Callable[[Any], Any], str]


def _check_whole(least: int) -> _Check:
    def check_value(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError
        return value

    return check_value, f"must be a whole number from {least} on"


def _check_choice(**choices: Any) -> _Check:
    return choices.__getitem__, "must be " + " or ".join(f'"{each}"' for each in choices)


def _check_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _check_table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return value


def _check_seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise ValueError
    return float(value)


def _check_name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _check_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_check_name, value))


_FIELDS: dict[str, _Check] = {
    "style": _check_choice(ibidem="ibidem", devboy="devboy"),
    "verbosity": _check_choice(**{each.value: each for each in HintVerbosity}),
    "capacity": _check_whole(1),
    "max_calls": _check_whole(1),
    "max_age": (_check_seconds, "must be a number of seconds above 0"),
    "min_bytes": _check_whole(1),
    "max_chars": _check_whole(1),
    "near": (_check_flag, "must be true or false"),
    "tools": (_check_table, "not a table. Start one for each tool, such as [tools.get_issue]"),
}
_TOOL_FIELDS: dict[str, _Check] = {
    "invalidates": (_check_names, 'must be a list of tools: write ["get_issue"]'),
    "path": (_check_name, 'must name an argument of the tool: write "file_path"'),
    "kind": _check_choice(read=ToolKind.FILE_READ, write=ToolKind.FILE_MUTATE, other=ToolKind.OTHER),
    "never": (_check_flag, "must be true or false"),
}


def _check_field(checks: Mapping[str, _Check], name: str, value: Any, where: str, prefix: str) -> Any:
    if name not in checks:
        near = get_close_matches(name, checks, 1)
        fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(checks)}"
        raise IbidemError(f"{where}: {prefix}{one_line(name)}: unknown: {fix}")
    check, must = checks[name]
    try:
        return check(value)
    except (ValueError, KeyError, TypeError):
        raise IbidemError(f"{where}: {prefix}{name}: {must}") from None
