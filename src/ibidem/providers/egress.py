"""Outbound proxies and trusted certificates, from environment variables and system settings.

A client that calls its provider directly follows these variables, so Ibidem follows them for it. A request never
bypasses a proxy that is set. A setting that cannot be followed is an error that names the variable.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..errors import IbidemError, one_line
from .addresses import is_loopback

PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
"""Default port by URL scheme of a proxy."""

CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class OutboundProxy:
    """Proxy between this machine and an upstream."""

    variable: str
    """Environment variable that names the proxy, for error messages."""
    scheme: str
    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def redacted_url(self) -> str:
        """URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def find_outbound_proxy(
    base: str, environment: Mapping[str, str], system: Callable[[str], Mapping[str, str]]
) -> OutboundProxy | None:
    """Return the proxy for this URL, or None. If no proxy variable is set, `system` returns proxies for a host."""
    parts = urlsplit(base)
    host, port = (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme, 0)
    if is_loopback(host) or _is_excluded(host, port, _environment_value(environment, "no_proxy")[1]):
        return None
    names = (f"{parts.scheme}_proxy", "all_proxy")
    variable_value = next((each for name in names if (each := _environment_value(environment, name))[1]), None)
    if variable_value is None and not any(
        _environment_value(environment, f"{scheme}_proxy")[1] for scheme in ("http", "https", "all")
    ):
        variable_value = ("the system's proxy", system(host).get(parts.scheme, ""))
    return _parse_proxy(*variable_value) if variable_value and variable_value[1] else None


def _environment_value(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the name and value of a variable in any letter case. Lower case wins; an empty variable is not set."""
    spellings = (name, name.upper(), *sorted(each for each in environment if each.lower() == name))
    return next(((each, text) for each in spellings if (text := environment.get(each, "").strip())), (name, ""))


def _parse_proxy(variable: str, text: str) -> OutboundProxy:
    """Parse the URL of a proxy. Error messages do not contain the text, because it may hold a password."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "http", text
    scheme = scheme.lower()
    if scheme not in PORTS:
        problem = f"unknown scheme {scheme!r}" if scheme.isalnum() else "invalid proxy URL"
        raise IbidemError(f"{variable}: {problem}. Use one like http://proxy.example:3128 ({', '.join(PORTS)})")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port == 0 or not rest.isprintable() or re.search(r"[\s\\%]", host):
        raise IbidemError(f"{variable}: invalid proxy URL. Use one like http://proxy.example:3128")
    user = unquote(parts.username) if parts.username is not None else None
    return OutboundProxy(variable, scheme, host, port or PORTS[scheme], user, unquote(parts.password or ""))


# ── hosts without a proxy (NO_PROXY) ────────────────────────────────────────────────────────────────────────────────


def _is_excluded(host: str, port: int, patterns: str) -> bool:
    return any(_matches_pattern(host.lower(), port, each) for each in re.split(r"[\s,;]+", patterns.lower()) if each)


def _matches_pattern(host: str, port: int, pattern: str) -> bool:
    """Return whether a `NO_PROXY` pattern covers a host.

    A name covers itself and its subdomains. `.name` and `*.name` mean the same, as in most programs.
    """
    if pattern == "*":
        return True
    if _parse_network(pattern) is None:
        pattern, _, last = pattern.rpartition(":") if re.search(r":\d+$", pattern) else (pattern, "", "")
        if last and int(last) != port:
            return False
    network, address = _parse_network(pattern.strip("[]")), _parse_network(host.strip("[]"))
    if network is not None or address is not None:
        return network is not None and address is not None and address[0] in network
    name = pattern.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


# ── trusted certificates ────────────────────────────────────────────────────────────────────────────────────────────


class CertificateSource(NamedTuple):
    """File or folder with certificates, and the variable that names it."""

    variable: str
    path: Path


def find_certificate_sources(environment: Mapping[str, str]) -> list[CertificateSource]:
    """Return the files and folders that the certificate variables name.

    In a list of folders, missing ones are skipped. If all are missing, the first is returned, so that its use fails.
    """
    sources: list[CertificateSource] = []
    for variable in CERTIFICATE_VARIABLES:
        text = environment.get(variable, "").strip()
        paths = [Path(each) for each in text.split(os.pathsep) if each] if variable == "SSL_CERT_DIR" else [Path(text)]
        existing = [each for each in paths if os.path.isdir(each)] if len(paths) > 1 else paths
        if text:
            sources += [CertificateSource(variable, each) for each in existing or paths[:1]]
    return sources


def certificate_error(source: CertificateSource, why: str) -> IbidemError:
    """Return the error for certificates that cannot be loaded."""
    where = f"{source.variable}: {one_line(str(source.path))}"
    return IbidemError(f"{where}: {why}. Set it to a file with certificates, or unset {source.variable}")
