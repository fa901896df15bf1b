"""The address of a server that is reached by HTTP, the way there, and who may talk to us about it.

We listen on this machine alone. A page in a browser on it can still be made to send us requests, under a name that
leads here (DNS rebinding): so a request must name us by a name of this machine, and come from no page of another.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from .. import environment
from ..errors import IbidemError, one_line
from ..providers.egress import Hop, hop

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile("https?://[^/?#]+", re.IGNORECASE)


class McpUpstream(NamedTuple):
    """Where a server is."""

    origin: str
    """Scheme, name and port: paths are the client's."""
    path: str


def upstream_at(url: str) -> McpUpstream:
    """IbidemError says what to write."""
    shown = one_line(url[:200])
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise IbidemError(f"{shown} is no address: write it as https://host/mcp") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise IbidemError(f"{shown} is no address of a server: write it as https://host/mcp")
    if parts.username is not None or parts.query or parts.fragment:
        raise IbidemError("only scheme, host, port and path are passed on: have the client send the rest as headers")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = urlunsplit((parts.scheme, name if port is None else f"{name}:{port}", "", "", ""))
    return McpUpstream(origin, parts.path or "/")


def hop_to(upstream: McpUpstream) -> Hop | None:
    """The proxy that the environment, or the system, names for this server. IbidemError says what is wrong with it."""
    found = hop(upstream.origin, environment.variables(), environment.system_proxies)
    if found is not None and found.socks:
        raise IbidemError(f"{found.variable}: a SOCKS proxy is not used here: name one like http://proxy.example:3128")
    return found


def credentials(hop: Hop | None) -> dict[str, str]:
    """What the proxy is told of us, as headers."""
    if hop is None or hop.user is None:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{hop.user}:{hop.password}'.encode()).decode()}"}


def refused(host: str, origin: str | None, site: str = "none") -> str:
    """Why a request is not answered; empty if it is. `site` is `Sec-Fetch-Site`: a picture is asked for without
    origin."""
    if _name(f"//{host}") not in LOCAL_NAMES:
        return "this gateway answers to names of this machine alone: use 127.0.0.1 in the client's settings"
    if (origin is not None and _name(origin) not in LOCAL_NAMES) or (origin is None and site == "cross-site"):
        return "this gateway answers no page of another site"
    return ""


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def relocated(location: str, upstream: McpUpstream, own: str) -> str:
    """Where a redirect, or an endpoint that the server names, leads: to us, if it led to the server."""
    found = _ORIGIN.match(location)
    if found is None or _origin(found.group()) != _origin(upstream.origin):
        return location
    return own + location[found.end() :]


def _origin(address: str) -> tuple[str, str | None, int | None] | None:
    """None for what is no address, or names a user."""
    try:
        parts = urlsplit(address)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.username is None else None
