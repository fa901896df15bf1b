"""Wire formats: one dialect per file, one table. `detect_format` finds the format of a request, or reports ambiguity.

A dialect (`model.Dialect`) parses a message into values with their paths, and has the facts about its provider: where
results are, how tools are named, which fields set which option. All facts about one provider's requests are in its
file, and no other code decides by the name of a format.

- `codetether`: the message format of the system that `ibidem.codetether` reproduces. No provider accepts it.

- `evidence`: fields that identify a format. Bodies of two formats can be equal; then no format is guessed.
- `wire_format`: the base class, with the common defaults.

A new format is a file, an entry in `FORMATS`, rows in tests/formats/test_formats.py, and its rules (`ibidem.rules`). A
new fact about all formats is a line in `model.Dialect` and a value in `wire_format`, or in each file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import IbidemError
from ..model import Conversation, type_name
from .anthropic import Anthropic
from .codetether import Codetether
from .gemini import Gemini
from .openai_chat import OpenAIChat
from .openai_responses import OpenAIResponses

Format = Anthropic | OpenAIChat | OpenAIResponses | Gemini | Codetether

FORMATS: dict[str, Format] = {known.name: known for known in (Anthropic(), OpenAIChat(), OpenAIResponses(), Gemini())}
"""Formats of providers, by name."""
CODETETHER = Codetether()
ALL_FORMATS: dict[str, Format] = {**FORMATS, CODETETHER.name: CODETETHER}
"""All formats that requests are parsed in."""

CHECKSUM_REASON = "it carries a checksum of its body (cch in the first system block)"
"""Why a request is forwarded unchanged if `Dialect.has_checksum` is true."""


class FormatError(IbidemError):
    """The wire format is unknown, or the request fits more than one."""


class AmbiguousFormat(FormatError):
    """The request fits more than one format, and no field decides which."""

    def __init__(self, candidates: Sequence[Format]) -> None:
        choices = " or ".join(f"format={candidate.name!r}" for candidate in candidates)
        super().__init__(f"this request could be of more than one format: pass {choices}")
        self.candidates = tuple(candidates)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.candidates,)


def format_named(name: str) -> Format:
    """Return a format by name. Raises FormatError for an unknown name."""
    try:
        return ALL_FORMATS[name]
    except (KeyError, TypeError):
        raise FormatError(f"unknown format {name!r}: use one of {', '.join(ALL_FORMATS)}") from None


def detect_format(request: Any, model: str | None = None) -> Format:
    """Return the only format that fits a request. Raises FormatError if none does, `AmbiguousFormat` if several do.

    `model` is the model's name, if the request does not contain it.
    """
    candidates: list[Format]
    if isinstance(request, list):
        candidates, history = list(FORMATS.values()), request
    elif isinstance(request, dict):
        candidates = [candidate for candidate in FORMATS.values() if candidate.history_key in request]
        if not candidates:
            candidates = [known for known in FORMATS.values() if known.evidence.matches_body(request)]
            if len(candidates) != 1:
                keys = ", ".join(dict.fromkeys(known.history_key for known in FORMATS.values()))
                raise FormatError(f"no conversation found: a request body has one of the fields {keys}")
        value = request.get(candidates[0].history_key)
        history = value if isinstance(value, list) else []
    else:
        raise FormatError(f"a request is an object or a list of messages, not {type_name(request)}")
    return candidates[0] if len(candidates) == 1 else _decide_by_evidence(candidates, request, history, model)


EVIDENCE_MESSAGES = 64
"""Messages that are checked even after evidence was found: enough to notice that two formats are mixed."""


def _decide_by_evidence(candidates: list[Format], request: Any, history: list[Any], model: str | None) -> Format:
    """Return the candidate that all evidence supports. Raises `AmbiguousFormat` for contradicting or missing
    evidence."""
    for message in history[:EVIDENCE_MESSAGES]:
        candidates = [
            candidate for candidate in candidates if not candidate.evidence.ruled_out_by(message)
        ] or candidates
    body = request if isinstance(request, dict) else {}
    matches = [known for known in candidates if known.evidence.matches_body(body)]
    for number, message in enumerate(history):
        if len(matches) == 1 and number >= EVIDENCE_MESSAGES:
            break
        if CODETETHER.evidence.excludes_others(message):
            if CODETETHER not in matches and CODETETHER.evidence.matches_message(message):
                matches.append(CODETETHER)
            continue
        matches.extend(
            known for known in candidates if known not in matches and known.evidence.matches_message(message)
        )
    matches = matches or [known for known in candidates if known.evidence.matches_roles(history)]
    if not matches and isinstance(name := model or body.get("model"), str):
        matches = [known for known in candidates if known.evidence.matches_model(name)]
    if len(matches) == 1:
        return matches[0]
    raise AmbiguousFormat(matches or candidates)


def parse_request(request: Any, dialect: Format) -> Conversation:
    """Parse a request. Raises FormatError if its history has the wrong type."""
    head: dict[str, Any] = {}
    history = request
    if isinstance(request, dict):
        head = {key: value for key, value in request.items() if key != dialect.history_key}
        history = request.get(dialect.history_key)
        if history is None and dialect.server_history(head):
            return Conversation((), dialect, head, whole=False)
    if isinstance(history, dialect.single):
        return Conversation((), dialect, head, whole=False)
    if not isinstance(history, list):
        if isinstance(request, dict) and dialect.history_key not in request:
            raise FormatError(
                f"the field {dialect.history_key!r} is missing: is this request of format {dialect.name}?"
            )
        where = f"the field {dialect.history_key!r}" if isinstance(request, dict) else "a bare request"
        raise FormatError(f"{where} must be a list of messages, not {type_name(history)}")
    read = dialect.read_message
    return Conversation(tuple([read(index, wire) for index, wire in enumerate(history)]), dialect, head)
