"""Parse JSON text, with errors that name the position."""

from __future__ import annotations

import json
from typing import Any

from ..errors import IbidemError


def parse(text: bytes | str) -> Any:
    """Parse JSON text. If the fast parser rejects it (NaN, lone surrogates), try the tolerant one."""
    import msgspec  # a third of our import time, and not needed for requests that are already values

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError:
        raise IbidemError("nested too deeply to be read: flatten it, or send it as it is") from None
    try:
        # Decode explicitly: json.loads would also accept UTF-16, which no provider does.
        return json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise IbidemError(f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise IbidemError(f"byte {error.start}: not valid UTF-8: {error.reason}") from None
    except RecursionError:
        raise IbidemError("nested too deeply to be read: flatten it, or send it as it is") from None
    except ValueError:  # Python refuses to convert integers of more than 4,300 digits
        raise IbidemError("a number has more digits than can be read: shorten it") from None
