"""Where a proxy listens, and what it has to say when it ends."""

from __future__ import annotations

from typing import Any, NamedTuple


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
