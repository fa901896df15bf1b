"""Checks of settings, wherever they come from. `settings.Settings` has a type with its limits for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Meta, ValidationError, convert

from ..errors import IbidemError, one_line

REMOVED = {"workers": "this setting was removed: start one process per core, each with --reuse-port (docs/scale.md)"}
"""Settings of earlier versions, and the replacement."""

_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS: dict[type, tuple[str, Callable[[str], Any]]] = {
    str: ("a text", str),
    int: ("a whole number", int),
    float: ("a number", float),
    bool: ("true or false", lambda text: _SWITCH[text.lower()]),
}
"""For each type: its name in messages, and how it is read from a text."""


def limits(
    fix: str = "",
    check: Callable[[Any], bool] | None = None,
    *,
    secret: bool = False,
    less: bool = False,
    **bounds: float,
) -> Meta:
    """The values that a setting may have. A message for any other names the `fix`.

    A `secret` is never repeated in a message. With `less`, a smaller value may come from a file in the current folder.
    """
    meta: Callable[..., Meta] = Meta  # its overloads take no mapping
    return meta(description=fix, extra={"check": check, "secret": secret, "less": less}, **bounds)


class Field(NamedTuple):
    """One setting: its plain type, and the same with limits."""

    type: type
    limited: Any
    meta: Meta

    @property
    def limit(self) -> bool:
        return bool((self.meta.extra or {})["less"])

    def allows(self, value: Any) -> bool:
        try:
            convert(value, self.limited)
        except ValidationError:
            return False
        check = (self.meta.extra or {})["check"]
        return check is None or bool(check(value))


def fields_of(settings: type) -> dict[str, Field]:
    """The settings that have limits, by name."""
    found: dict[str, Field] = {}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        for each in (hint, *get_args(hint)):  # a setting may also be None
            if get_origin(each) is Annotated:
                plain, meta = get_args(each)
                found[name] = Field(str if get_origin(plain) is Literal else plain, each, meta)
    return found


def checked(field: Field, value: Any, where: str) -> Any:
    """The value, of the field's type. Raises IbidemError with the fix."""
    kind = _KINDS[field.type][0]
    shown = "this" if (field.meta.extra or {})["secret"] else repr(one_line(str(value)))
    try:
        found: Any = convert(value, field.type)
    except ValidationError:
        raise IbidemError(f"{where}: {shown} is not {kind}: write {kind}") from None
    if not field.allows(found):
        raise IbidemError(f"{where}: {shown} cannot be used: {field.meta.description}")
    return found


def read_text(field: Field, text: str, where: str) -> Any:
    """From a text, such as the environment has."""
    try:
        value = _KINDS[field.type][1](text)
    except (ValueError, KeyError):
        value = text  # of the wrong type, then
    return checked(field, value, where)
