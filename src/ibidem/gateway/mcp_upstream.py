"""URL of an MCP server, the proxy to reach it, and checks of who may use the gateway.

The gateway listens on this machine only. A browser page can still send requests to it, under a host name that resolves
to this machine (DNS rebinding). So a request must name a local host, and must not come from a page of another site.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from .. import environment
from ..errors import IbidemError, one_line
from ..providers.egress import OutboundProxy, find_outbound_proxy

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile("https?://[^/?#]+", re.IGNORECASE)


class McpUpstream(NamedTuple):
    """URL of an MCP server."""

    origin: str
    """Scheme, host and port. The path of a request is the client's."""
    path: str


def parse_mcp_upstream(url: str) -> McpUpstream:
    """Parse the URL of an MCP server. Raises IbidemError with the fix."""
    url_text = one_line(url[:200])
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise IbidemError(f"{url_text}: invalid URL. Use one like https://host/mcp") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise IbidemError(f"{url_text}: invalid URL of a server. Use one like https://host/mcp")
    if parts.username is not None or parts.query or parts.fragment:
        raise IbidemError("the URL may only have scheme, host, port and path. Let the client send the rest as headers")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = urlunsplit((parts.scheme, name if port is None else f"{name}:{port}", "", "", ""))
    return McpUpstream(origin, parts.path or "/")


def proxy_for(upstream: McpUpstream) -> OutboundProxy | None:
    """Return the proxy for this server from the environment or the system. Raises IbidemError if it is unusable."""
    proxy = find_outbound_proxy(upstream.origin, environment.environment_variables(), environment.system_proxies)
    if proxy is not None and proxy.is_socks:
        raise IbidemError(f"{proxy.variable}: SOCKS is not supported here. Use a proxy like http://proxy.example:3128")
    return proxy


def proxy_headers(proxy: OutboundProxy | None) -> dict[str, str]:
    """Return the headers with the credentials for the proxy."""
    if proxy is None or proxy.user is None:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{proxy.user}:{proxy.password}'.encode()).decode()}"}


def rejection_reason(host: str, origin: str | None, site: str = "none") -> str:
    """Return why a request is rejected; empty if it is allowed.

    `site` is `Sec-Fetch-Site`, because browsers request images without `Origin`.
    """
    if _host_name(f"//{host}") not in LOCAL_NAMES:
        return "this gateway accepts requests for local host names only. Use 127.0.0.1 in the client's settings"
    if (origin is not None and _host_name(origin) not in LOCAL_NAMES) or (origin is None and site == "cross-site"):
        return "this gateway rejects requests from pages of other sites"
    return ""


def _host_name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def rewrite_location(location: str, upstream: McpUpstream, own_origin: str) -> str:
    """Return a redirect or endpoint URL with the server's origin replaced by `own_origin`, the gateway's."""
    match = _ORIGIN.match(location)
    if match is None or _parse_origin(match.group()) != _parse_origin(upstream.origin):
        return location
    return own_origin + location[match.end() :]


def _parse_origin(address: str) -> tuple[str, str | None, int | None] | None:
    """Return scheme, host and port. None if the URL is invalid or has a user."""
    try:
        parts = urlsplit(address)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.username is None else None
