"""Objects of an SDK in a history: `messages.append(response.choices[0].message)`, `input += response.output`.

They are read as the JSON that the SDK would send for them. A message without SDK objects stays the same object.
"""

from __future__ import annotations

from typing import Any

HISTORY_KEYS = ("messages", "input", "contents")
JSON_TYPES = (dict, list, str, int, float, type(None))


def dump_history(history: list[Any]) -> list[Any]:
    """Replace SDK objects by their JSON values: messages, and items of lists in them such as content blocks."""
    messages = [_dump_message(message) for message in history]
    return messages if any(new is not old for new, old in zip(messages, history, strict=True)) else history


def dump_request(request: Any) -> Any:
    """Replace SDK objects in the history of a request. Returns the same request if it has no SDK objects."""
    if isinstance(request, list):
        return dump_history(request)
    if not isinstance(request, dict):
        return request
    histories = {key: dump_history(request[key]) for key in HISTORY_KEYS if isinstance(request.get(key), list)}
    new_fields = {key: value for key, value in histories.items() if value is not request[key]}
    return {**request, **new_fields} if new_fields else request


def dump_object(value: Any) -> Any:
    """Return the JSON value of an SDK object. Any other value is returned unchanged."""
    if isinstance(value, JSON_TYPES):
        return value
    try:
        if hasattr(type(value), "model_dump"):  # pydantic; a mock has every attribute, but not on its type
            json_value = value.model_dump(mode="json", exclude_unset=True, by_alias=True)
        else:
            names = getattr(type(value), "__match_args__", ())  # dataclasses and attrs
            fields = ((name, getattr(value, name)) for name in names)
            json_value = {name: _dump_message(field) for name, field in fields if field is not None}
    except Exception:  # foreign code: the object stays, and `validate` reports it
        return value
    return json_value if isinstance(json_value, dict) and json_value else value


def _dump_message(message: Any) -> Any:
    if isinstance(message, list):
        return dump_list(message)
    if not isinstance(message, dict):
        return dump_object(message)
    new_fields = {}
    for key, value in message.items():
        json_value = dump_list(value) if isinstance(value, list) else dump_object(value)
        if json_value is not value:
            new_fields[key] = json_value
    return {**message, **new_fields} if new_fields else message


def dump_list(items: list[Any]) -> list[Any]:
    """Replace SDK objects in a list. Returns the same list if it has no SDK objects."""
    if all(isinstance(item, JSON_TYPES) for item in items):
        return items
    return [dump_object(item) for item in items]
