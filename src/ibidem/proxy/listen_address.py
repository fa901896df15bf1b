"""Address of a running proxy, its summary at exit, and the modes of `--otel`. Importing it does not load the proxy."""

from __future__ import annotations

from typing import Any, NamedTuple

OTEL_MODES = ("off", "spans", "genai")


class ListenAddress(NamedTuple):
    """Address on which a proxy listens, with notes for the user."""

    url: str
    port: int
    egress: tuple[str, ...] = ()
    """Outbound proxies in use, each with the variable that names it. Without passwords."""
    trouble: str = ""
    """Requested feature that does not work, in a line for the user."""


class RunSummary(NamedTuple):
    """What a proxy did, for the user at exit."""

    text: str
    state: dict[str, Any]

    def line(self) -> str:
        """Return the summary line."""
        return self.text
