"""Check how requests leave this machine: our settings, HTTP proxies of the network, and trusted certificates."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from ... import environment
from ...environment import install_command
from ...errors import IbidemError, one_line
from ...providers.egress import certificate_sources, hop
from ...proxy.settings import PROVIDERS
from ..proxy.serving import loaded
from .checking import CheckResult, Machine, problem_of

PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy")


def own_settings(machine: Machine) -> Iterator[CheckResult]:
    """Report the settings that `ibidem proxy` would use here."""
    found = loaded({}, machine.variables)
    settings = found.settings
    line = found.line().removeprefix("settings: ")
    shown = f"profile {settings.profile}, cache {settings.cache}, port {settings.port}"
    yield CheckResult("ok", f"{shown}{f'; {line}' if line else ''}")
    for provider, url in settings.upstreams.items():
        if url != PROVIDERS[provider]:
            yield CheckResult("ok", f"upstream of {provider}: {one_line(url)}")


def egress(machine: Machine) -> Iterator[CheckResult]:
    """Check that the network's HTTP proxy can be used, and that clients still reach our proxy directly."""
    set_here = sorted(name for name, text in machine.variables.items() if text and name.lower() in PROXY_NAMES)
    upstreams = loaded({}, machine.variables).settings.upstreams
    ways: dict[str, list[str]] = {}
    for provider, url in upstreams.items():
        if not url:
            continue
        try:
            way = hop(url, machine.variables, environment.system_proxies)
        except IbidemError as error:
            yield problem_of(error)
            return
        if way is not None:
            ways.setdefault(f"{way.url} ({way.variable})", []).append(provider)
            if way.socks and find_spec("python_socks") is None:
                yield CheckResult("problem", f"{way.variable}: a SOCKS proxy", install_command("socks"))
                return
    for shown, providers in ways.items():
        yield CheckResult("ok", f"requests are sent through {shown}: {', '.join(providers)}")
    if not ways:
        yield CheckResult("ok", "no HTTP proxy is set for providers")
    past = machine.variables.get("no_proxy") or machine.variables.get("NO_PROXY") or ""
    if set_here and not {"127.0.0.1", "*"} & {each.strip() for each in past.split(",")}:
        text = f"{', '.join(set_here)} is set, but NO_PROXY lacks 127.0.0.1: clients may not reach ibidem proxy"
        yield CheckResult("note", text, "add 127.0.0.1,localhost to NO_PROXY; ibidem wrap does that for its command")


def certificates(machine: Machine) -> Iterator[CheckResult]:
    """Check that the configured certificate files can be loaded."""
    sources = certificate_sources(machine.variables)
    if not sources:
        yield CheckResult("ok", "certificates of the system")
        return
    try:
        from ...proxy.edge.connections import context
    except ImportError:
        yield CheckResult("note", "not checked: that needs the proxy package", install_command("proxy"))
        return
    for source in sources:
        try:
            context([source])
        except IbidemError as error:
            yield problem_of(error)
        else:
            yield CheckResult("ok", f"{source.variable}: {one_line(str(source.path))}")
