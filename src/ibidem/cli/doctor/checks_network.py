"""Check how requests leave this machine: our settings, HTTP proxies of the network, and trusted certificates."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from ... import environment
from ...environment import install_command
from ...errors import IbidemError, one_line
from ...providers.egress import find_certificate_sources, find_outbound_proxy
from ...proxy.settings import PROVIDERS
from ..proxy.serve import load_settings
from .check_runner import CheckContext, CheckResult, problem_from_error

PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy")


def check_settings(machine: CheckContext) -> Iterator[CheckResult]:
    """Report the settings that `ibidem proxy` would use here."""
    loaded_settings = load_settings({}, machine.variables)
    settings = loaded_settings.settings
    line = loaded_settings.source_line().removeprefix("settings: ")
    values = f"profile {settings.profile}, cache {settings.cache}, port {settings.port}"
    yield CheckResult("ok", f"{values}{f'; {line}' if line else ''}")
    for provider, url in settings.upstreams.items():
        if url != PROVIDERS[provider]:
            yield CheckResult("ok", f"upstream of {provider}: {one_line(url)}")


def check_outbound_proxy(machine: CheckContext) -> Iterator[CheckResult]:
    """Check that the network's HTTP proxy can be used, and that clients still reach our proxy directly."""
    set_here = sorted(name for name, text in machine.variables.items() if text and name.lower() in PROXY_NAMES)
    upstreams = load_settings({}, machine.variables).settings.upstreams
    providers_by_proxy: dict[str, list[str]] = {}
    for provider, url in upstreams.items():
        if not url:
            continue
        try:
            outbound = find_outbound_proxy(url, machine.variables, environment.system_proxies)
        except IbidemError as error:
            yield problem_from_error(error)
            return
        if outbound is not None:
            providers_by_proxy.setdefault(f"{outbound.redacted_url} ({outbound.variable})", []).append(provider)
            if outbound.is_socks and find_spec("python_socks") is None:
                yield CheckResult("problem", f"{outbound.variable}: a SOCKS proxy", install_command("socks"))
                return
    for proxy_name, providers in providers_by_proxy.items():
        yield CheckResult("ok", f"requests are sent through {proxy_name}: {', '.join(providers)}")
    if not providers_by_proxy:
        yield CheckResult("ok", "no HTTP proxy is set for providers")
    bypass_list = machine.variables.get("no_proxy") or machine.variables.get("NO_PROXY") or ""
    if set_here and not {"127.0.0.1", "*"} & {each.strip() for each in bypass_list.split(",")}:
        text = f"{', '.join(set_here)} is set, but NO_PROXY lacks 127.0.0.1: clients may not reach ibidem proxy"
        yield CheckResult("note", text, "add 127.0.0.1,localhost to NO_PROXY; ibidem wrap does that for its command")


def check_certificates(machine: CheckContext) -> Iterator[CheckResult]:
    """Check that the configured certificate files can be loaded."""
    sources = find_certificate_sources(machine.variables)
    if not sources:
        yield CheckResult("ok", "certificates of the system")
        return
    try:
        from ...proxy.edge.upstream_protocol import tls_context
    except ImportError:
        yield CheckResult("note", "not checked: that needs the proxy package", install_command("proxy"))
        return
    for source in sources:
        try:
            tls_context([source])
        except IbidemError as error:
            yield problem_from_error(error)
        else:
            yield CheckResult("ok", f"{source.variable}: {one_line(str(source.path))}")
