"""Where a proxy listens, what it has to say when it ends, and what an option may be."""

from __future__ import annotations

from typing import Any, NamedTuple

OTEL_MODES = ("off", "spans", "genai")


class Address(NamedTuple):
    url: str
    port: int
    egress: tuple[str, ...] = ()
    """The proxies that requests leave this machine through, and who named each. Nothing secret is in it."""
    trouble: str = ""
    """What the user asked for and does not get."""


class Summary(NamedTuple):
    text: str
    state: dict[str, Any]

    def line(self) -> str:
        return self.text
