"""Check values of settings from every source. `settings.Settings` has a type with limits for each setting."""

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
"""For each type: its name in messages, and a parser for texts."""


def setting_limits(
    fix: str = "",
    check: Callable[[Any], bool] | None = None,
    *,
    secret: bool = False,
    less: bool = False,
    **bounds: float,
) -> Meta:
    """Return the limits of a setting, for its type annotation. The message for an invalid value contains `fix`.

    A `secret` is never repeated in a message. With `less`, a smaller value may come from a file in the current folder.
    """
    meta: Callable[..., Meta] = Meta  # its overloads take no mapping
    return meta(description=fix, extra={"check": check, "secret": secret, "less": less}, **bounds)


class SettingField(NamedTuple):
    """Setting with its plain type, and the type with limits."""

    type: type
    limited: Any
    meta: Meta

    @property
    def can_be_lowered(self) -> bool:
        """True if a file in the current folder may lower it."""
        return bool((self.meta.extra or {})["less"])

    def is_allowed(self, value: Any) -> bool:
        """Return whether `value` is within the limits."""
        try:
            convert(value, self.limited)
        except ValidationError:
            return False
        check = (self.meta.extra or {})["check"]
        return check is None or bool(check(value))


def setting_fields(settings: type) -> dict[str, SettingField]:
    """Return the settings of a class that have limits, by name."""
    fields: dict[str, SettingField] = {}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        for each in (hint, *get_args(hint)):  # for an optional setting, the limits are in a part of the union
            if get_origin(each) is Annotated:
                plain, meta = get_args(each)
                fields[name] = SettingField(str if get_origin(plain) is Literal else plain, each, meta)
    return fields


def check_field(field: SettingField, value: Any, where: str) -> Any:
    """Return the value with the field's type. Raises IbidemError with the fix."""
    kind = _KINDS[field.type][0]
    value_text = "this" if (field.meta.extra or {})["secret"] else repr(one_line(str(value)))
    try:
        result: Any = convert(value, field.type)
    except ValidationError:
        raise IbidemError(f"{where}: {value_text} is not {kind}: write {kind}") from None
    if not field.is_allowed(result):
        raise IbidemError(f"{where}: {value_text} cannot be used: {field.meta.description}")
    return result


def parse_field(field: SettingField, text: str, where: str) -> Any:
    """Parse and check a value from a text, as in the environment."""
    try:
        value = _KINDS[field.type][1](text)
    except (ValueError, KeyError):
        value = text  # has the wrong type, so the check below raises
    return check_field(field, value, where)
