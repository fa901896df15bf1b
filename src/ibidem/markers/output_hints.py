"""The markers of the tool-output cache. Only a model reads them, so this module has wording and no parser.

    [ibidem: unchanged, same as the result 3 calls ago, Read(src/app.py)]
    [ibidem: unchanged, same as the result 2 calls ago but for total: 12→13, get_order(id=42)]

A program that sees single outputs knows neither a result's number in the request nor the user's first words, so there
is no tag and no digest. The earlier result is named as the model saw it: how many calls ago, by which tool, with which
arguments. The call is last, because its arguments may contain any words, including these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..tool_arguments import FILE_KEYS, FREE_TEXT, MAIN_KEYS
from .backref import EXPLANATION

SENT_AGAIN = "the same call again brings it in full"

MAX_TOOL = 64
"""Characters of a tool's name."""
MAX_MAIN = 72
"""Characters of the main argument."""
MAX_OTHERS = 48
"""Characters of all other arguments."""
MAX_ITEMS = 16
"""Words of a command that is given as a list."""
CUT = "…"

_REFERENCES = ("> [ref: ", "> [near-ref: ")
_BRACKETS = str.maketrans("[]", "()")


def repeat_hint(
    ago: int, call: str, *, unit: str = "call", call_kind: str = "", but: str = "", has_explanation: bool = False
) -> str:
    """Return one line for an output that was sent `ago` calls or turns ago. `but` names the fields that differ.

    `call_kind` names the calls that count if the model also makes others: `git` for `3 git calls ago`.
    """
    kind = f"{_one_line(call_kind, MAX_TOOL)} " if call_kind else ""
    where = f"{ago} {kind}{unit}{'s' * (ago != 1)} ago" + (f" but for {but}" if but else "")
    why = f". {EXPLANATION}; {SENT_AGAIN}" if has_explanation else ""
    return f"[ibidem: unchanged, same as the result {where}, {call}{why}]"


def contains_reference(text: str) -> bool:
    """Return True if a text contains a reference of Ibidem or devboy. References must not point at such a text."""
    return "[ibidem" in text or text.startswith(_REFERENCES)


def short_call(tool: str, arguments: Any) -> str:
    """Return `Read(src/app.py, offset=120)`: a call with its arguments, on one line of limited length.

    Omitted text is shown as omitted, so that a long argument is never mistaken for a short one.
    """
    name = _one_line(tool, MAX_TOOL) or "a tool"
    text = _format_arguments(parse_arguments(arguments))
    return f"{name}({text})" if text else name


def _format_arguments(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return "" if arguments is None else _format_value(arguments, MAX_MAIN)
    main = next((key for key in (*MAIN_KEYS, FREE_TEXT) if arguments.get(key)), None)
    pieces = [] if main is None else [_format_value(arguments[main], MAX_MAIN, keep_end=main in FILE_KEYS)]
    characters_left = MAX_OTHERS if pieces else MAX_MAIN
    for key, value in arguments.items():
        if key == main:
            continue
        text = f"{_one_line(str(key), MAX_OTHERS)}={_format_value(value, characters_left)}"
        if len(text) > characters_left:
            return ", ".join([*pieces, CUT])
        pieces.append(text)
        characters_left -= len(text)
    return ", ".join(pieces)


def parse_arguments(arguments: Any) -> Any:
    """Return arguments as a value, also if they were sent as the text of a JSON object."""
    if not isinstance(arguments, str) or not arguments.lstrip().startswith("{"):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _format_value(value: Any, most: int, *, keep_end: bool = False) -> str:
    if isinstance(value, str):
        return _one_line(value, most, keep_end=keep_end)
    if isinstance(value, list):
        return _one_line(" ".join(_list_words(value)), most)
    if isinstance(value, dict):
        return f"{{{CUT}}}" if value else "{}"
    return _one_line(json.dumps(value) if value is None or isinstance(value, bool | int | float) else CUT, most)


def _list_words(values: list[Any]) -> Iterator[str]:
    """Yield the first words of a call argument that is a list, such as a command, and `CUT` if there are more."""
    for word in islice(values, MAX_ITEMS):
        yield word[:MAX_MAIN] + CUT * (len(word) > MAX_MAIN) if isinstance(word, str) else _format_value(word, MAX_MAIN)
    if len(values) > MAX_ITEMS:
        yield CUT


def _one_line(text: str, max_length: int, *, keep_end: bool = False) -> str:
    """Return printable text without brackets. Excess text is cut, at the start of a path and at the end of others."""
    probed_length = 8 * max_length  # a limit for long texts; more than `most`, because a run of spaces becomes one
    probed = text if len(text) <= probed_length else text[-probed_length:] if keep_end else text[:probed_length]
    line = " ".join("".join(each if each.isprintable() else " " for each in probed).split()).translate(_BRACKETS)
    if len(line) <= max_length and probed is text:
        return line
    return CUT + line[-max_length:] if keep_end else line[:max_length] + CUT
