"""What each setting of the proxy may be, wherever it comes from: one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..billing.lifetimes import CACHE_MODES
from ..errors import IbidemError, one_line
from ..store.limits import USE_BYTES, USE_DAYS, are_days
from ..strategies.profiles import PROFILES, is_name

OTEL_MODES = ("off", "spans", "genai")
MAX_WORKERS = 64
"""Processes: each takes its memory, however few cores there are."""


class FieldKind(NamedTuple):
    """A type, how it is called, and how it is read from a text."""

    types: tuple[type, ...]
    name: str
    read: Callable[[str], Any]


_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
TEXT = FieldKind((str,), "a text", str)
WHOLE = FieldKind((int,), "a whole number", int)
NUMBER = FieldKind((int, float), "a number", float)
SWITCH = FieldKind((bool,), "true or false", lambda text: _SWITCH[text.lower()])


class Field(NamedTuple):
    kind: FieldKind
    check: Callable[[Any], bool]
    what: str
    """What to use, where the check fails."""
    secret: bool = False
    """Never repeated in a message."""
    limit: bool = False
    """A smaller one may come from a file in the current folder."""


def _visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _sendable(token: str) -> bool:
    return bool(token) and _visible(token)


def _at_least_one(number: int) -> bool:
    return number >= 1


FIELDS: dict[str, Field] = {
    "host": Field(TEXT, lambda host: bool(host) and _visible(host), "use a name or address like 127.0.0.1"),
    "port": Field(WHOLE, lambda port: 0 <= port <= 65535, "use 1 to 65535, or 0 for a free one"),
    "workers": Field(WHOLE, lambda count: 1 <= count <= MAX_WORKERS, f"use 1 to {MAX_WORKERS}"),
    "token": Field(TEXT, _sendable, "use letters, digits and signs, no spaces", secret=True),
    "page_token": Field(TEXT, _sendable, "use letters, digits and signs, no spaces", secret=True),
    "texts": Field(SWITCH, lambda _: True, ""),
    "cache": Field(TEXT, CACHE_MODES.__contains__, f"use one of {', '.join(CACHE_MODES)}"),
    "profile": Field(TEXT, is_name, f"use one of {', '.join(PROFILES)}, or module:attribute"),
    "store": Field(TEXT, bool, "use a file, a redis:// URL or memory:", secret=True),
    "store_days": Field(NUMBER, are_days, USE_DAYS),
    "store_bytes": Field(WHOLE, lambda size: size >= 0, USE_BYTES),
    "observe": Field(SWITCH, lambda _: True, ""),
    "trial": Field(NUMBER, lambda share: 0 < share < 1, "use a share above 0 and below 1, such as 0.5"),
    "json_log": Field(TEXT, bool, "use a file, or - for standard output"),
    "ledger": Field(SWITCH, lambda _: True, ""),
    "otel": Field(TEXT, OTEL_MODES.__contains__, f"use one of {', '.join(OTEL_MODES)}"),
    "record": Field(TEXT, bool, "use a folder"),
    "record_days": Field(NUMBER, are_days, USE_DAYS),
    "record_bytes": Field(WHOLE, lambda size: size >= 0, USE_BYTES),
    "budget_ms": Field(
        NUMBER, lambda ms: 0 < ms < 1e9, "use milliseconds above 0; --observe rewrites nothing", limit=True
    ),
    "max_body": Field(WHOLE, _at_least_one, "use a number of bytes above 0"),  # no limit: less would refuse requests
    "max_rewrite": Field(WHOLE, _at_least_one, "use a number of bytes above 0", limit=True),
    "conversations": Field(WHOLE, _at_least_one, "use 1 or more", limit=True),
    "memory_mb": Field(WHOLE, _at_least_one, "use 1 or more", limit=True),
    "resend": Field(SWITCH, lambda _: True, ""),
    "websockets": Field(SWITCH, lambda _: True, ""),
}


def checked(name: str, value: Any, where: str) -> Any:
    rule = FIELDS[name]
    right = isinstance(value, rule.kind.types) and (bool in rule.kind.types or not isinstance(value, bool))
    shown = "this" if rule.secret else repr(one_line(str(value)))
    if not right:
        raise IbidemError(f"{where}: {shown} is not {rule.kind.name}: write {rule.kind.name}")
    if not rule.check(value):
        raise IbidemError(f"{where}: {shown} cannot be used: {rule.what}")
    return float(value) if rule.kind is NUMBER else value


def read_text(name: str, text: str, where: str) -> Any:
    """From a text, such as the environment has."""
    rule = FIELDS[name]
    try:
        value = rule.kind.read(text)
    except (ValueError, KeyError):
        value = text  # of the wrong type, then
    return checked(name, value, where)
