"""How requests leave this machine: our own settings, proxies of the network, and who is believed there."""

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
    """What `ibidem proxy` would run with here."""
    found = loaded({}, machine.variables)
    settings = found.settings
    line = found.line().removeprefix("settings: ")
    shown = f"profile {settings.profile}, cache {settings.cache}, port {settings.port}"
    yield CheckResult("ok", f"{shown}{f'; {line}' if line else ''}")
    for provider, url in settings.upstreams.items():
        if url != PROVIDERS[provider]:
            yield CheckResult("ok", f"upstream of {provider}: {one_line(url)}")


def egress(machine: Machine) -> Iterator[CheckResult]:
    """A proxy of the network: whether it can be followed, and whether clients still find us."""
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
        yield CheckResult("ok", f"requests leave through {shown}: {', '.join(providers)}")
    if not ways:
        yield CheckResult("ok", "no proxy on the way to providers")
    past = machine.variables.get("no_proxy") or machine.variables.get("NO_PROXY") or ""
    if set_here and not {"127.0.0.1", "*"} & {each.strip() for each in past.split(",")}:
        text = f"{', '.join(set_here)} is set, and NO_PROXY does not name 127.0.0.1: clients may not reach ibidem proxy"
        yield CheckResult("note", text, "add 127.0.0.1,localhost to NO_PROXY; ibidem wrap does so for its command")


def certificates(machine: Machine) -> Iterator[CheckResult]:
    sources = certificate_sources(machine.variables)
    if not sources:
        yield CheckResult("ok", "those of the system")
        return
    try:
        from ...proxy.edge.connections import context
    except ImportError:
        yield CheckResult("note", "not looked at: that needs the proxy", install_command("proxy"))
        return
    for source in sources:
        try:
            context([source])
        except IbidemError as error:
            yield problem_of(error)
        else:
            yield CheckResult("ok", f"{source.variable}: {one_line(str(source.path))}")
