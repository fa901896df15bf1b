"""A request that is looked at for the first time: its messages up to the first answer, and a title."""

from __future__ import annotations

from collections.abc import Iterator

from .. import formats
from ..errors import IbidemError
from ..model import Message, Text
from ..store.naming import Opening
from ..wire import Scanned, scan
from ..wire.scan import scan_tolerantly
from ..wire.text import parse

TITLE_LENGTH = 80


class Unreadable(IbidemError):
    """A request that the client made like that. It is between the client and its provider."""


class Unpackable(IbidemError):
    """A request that is compressed in a way, or to a size, that is not unpacked here."""


class SingleMessage(IbidemError):
    """A request with one message and no history around it: there is nothing to be said twice."""


def opened(format: str, body: bytes) -> tuple[Scanned, list[Message]]:
    """A request, and its messages up to the first answer."""
    found = scan(body) or scan_tolerantly(body)
    if found is None:
        raise SingleMessage if _is_single(format, body) else Unreadable("no history was found in it")
    return found, list(_beginning(format, found))


def detected(body: bytes, model: str = "") -> str:
    """The format of a request that nobody names. `Unreadable` where it is none, or may be of several."""
    try:
        return formats.detect(parse(body), model or None).name
    except formats.Ambiguous as error:
        choices = " or ".join(each.name for each in error.candidates)
        raise Unreadable(f"it could be of more than one format: say which ({choices})") from None
    except formats.FormatError:
        raise Unreadable("no conversation was found in it") from None
    except IbidemError:
        raise Unreadable("it cannot be read") from None


def _is_single(format: str, body: bytes) -> bool:
    try:
        value = parse(body)
    except IbidemError:
        return False
    return isinstance(value, dict) and isinstance(value.get(formats.named(format).history_key), str | dict)


def _beginning(format: str, scanned: Scanned) -> Iterator[Message]:
    """The messages up to the first answer: they name the conversation."""
    dialect, opening = formats.named(format), Opening()
    for index in range(len(scanned)):
        message = dialect.read(index, scanned.value(index))
        opening.read(message)
        if opening.ended:
            return
        yield message


def title(messages: list[Message]) -> str:
    """The first words of the user that are not a client's own: those stand in tags."""
    said = [message for message in messages if message.role == "user"] or messages[-1:]
    texts = [part.text.strip() for message in said for part in message.parts if isinstance(part, Text)]
    own = [text for text in texts if not text.startswith("<")]
    first = " ".join((own or texts or [""])[-1 if own else 0].split())
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1] + "…"
