"""Claude Code on Anthropic's API and on the clouds that offer its models.

For each cloud it has a switch (`CLAUDE_CODE_USE_…`) and a base URL variable. The upstream is the URL that the user has
set, or the host that Claude Code derives from a region or a resource name. Requests that AWS credentials sign cannot
be routed: SigV4 covers host and body.

The `env` block of its settings files overrides variables of the process, so both are read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .client_setup import ClientContext, ClientSetup, bypass_other_proxies, read_settings, split_base_url

MANAGED_SETTINGS = {
    "linux": "/etc/claude-code/managed-settings.json",
    "darwin": "/Library/Application Support/ClaudeCode/managed-settings.json",
}
"""By platform: settings that an administrator wrote."""
SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}[a-z0-9]", re.IGNORECASE)
"""A region or a resource name. Only such names are inserted into a host name."""
VERTEX_CHECKSUM = (
    "Claude Code on Vertex adds a checksum to each request. Such requests are forwarded unchanged, so there are no "
    "savings."
)


class Cloud(NamedTuple):
    """How Claude Code reaches its models on a cloud."""

    name: str
    switch: str
    variable: str
    """Base URL variable."""
    provider: str
    host: str = ""
    """Upstream if the user has set none; `{place}` is the value of the first of `places` that is set."""
    places: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    """Variables with a bearer token. If none is set, AWS credentials sign requests, which then cannot be routed."""
    skip: str = ""
    """Switch that turns authentication off."""
    excludes: tuple[str, ...] = ()
    """Variables that may not be set together with the base URL."""


_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
CLOUDS = (
    Cloud(
        "Bedrock",
        "CLAUDE_CODE_USE_BEDROCK",
        "ANTHROPIC_BEDROCK_BASE_URL",
        "bedrock",
        "https://bedrock-runtime.{place}.amazonaws.com",
        _REGION,
        ("AWS_BEARER_TOKEN_BEDROCK",),
        "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    ),
    Cloud(
        "Bedrock Mantle",
        "CLAUDE_CODE_USE_MANTLE",
        "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        "mantle",
        "https://bedrock-mantle.{place}.api.aws/anthropic",
        _REGION,
        ("AWS_BEARER_TOKEN_BEDROCK",),
        "CLAUDE_CODE_SKIP_MANTLE_AUTH",
    ),
    Cloud(
        "AWS",
        "CLAUDE_CODE_USE_ANTHROPIC_AWS",
        "ANTHROPIC_AWS_BASE_URL",
        "anthropic-aws",
        "https://aws-external-anthropic.{place}.api.aws",
        _REGION,
        ("ANTHROPIC_AWS_API_KEY",),
        "CLAUDE_CODE_SKIP_ANTHROPIC_AWS_AUTH",
    ),
    Cloud(
        "Foundry",
        "CLAUDE_CODE_USE_FOUNDRY",
        "ANTHROPIC_FOUNDRY_BASE_URL",
        "foundry",
        "https://{place}.services.ai.azure.com/anthropic",
        ("ANTHROPIC_FOUNDRY_RESOURCE",),
        excludes=("ANTHROPIC_FOUNDRY_RESOURCE",),
    ),
    # Its URL has a project, a location and a workspace in the path. Ibidem does not guess it.
    Cloud(
        "Google Cloud",
        "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
        "ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
        "anthropic-google",
    ),
)
OTHER_REGION = "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION"
"""Region of the small model. One base URL cannot serve two regions."""


def route_to_clouds(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Add the base URL variable of each cloud whose switch is on, for any command: it may start Claude Code."""
    for cloud in CLOUDS:
        if context.is_on(cloud.switch) or (cloud.provider == "bedrock" and context.environment.get(cloud.variable)):
            setup = _route_to(cloud, setup, context)
    return setup


def _route_to(cloud: Cloud, setup: ClientSetup, context: ClientContext) -> ClientSetup:
    environment, is_named = context.environment, cloud.provider in context.explicit_providers
    lead = f"Claude Code on {cloud.name} connects directly, so there are no savings: "
    if cloud.tokens and not context.is_on(cloud.skip) and not any(map(environment.get, cloud.tokens)):
        return setup.with_notices(f"{lead}AWS credentials sign host and body. Set {cloud.tokens[0]} instead.")
    previous_url = environment.get(cloud.variable)
    place = next((environment[name] for name in cloud.places if environment.get(name)), "").strip()
    variables = {cloud.variable: f"{{url}}/{cloud.provider}"}
    if is_named:
        return _without_excluded(setup.with_routes(variables=variables), cloud)
    if previous_url:
        parts = split_base_url(previous_url, "")
        upstream = parts[0] if parts else ""
    elif cloud.places == _REGION and environment.get(OTHER_REGION, place) != place:
        return setup.with_notices(f"{lead}{OTHER_REGION} names another region than {cloud.places[0]}.")
    else:
        upstream = cloud.host.replace("{place}", place) if SAFE_NAME.fullmatch(place) else ""
    if not upstream:
        return setup.with_notices(f"{lead}set {cloud.variable}, or name the upstream: --upstream {cloud.provider}=URL.")
    return _without_excluded(setup.with_routes(upstreams={cloud.provider: upstream}, variables=variables), cloud)


def _without_excluded(setup: ClientSetup, cloud: Cloud) -> ClientSetup:
    return replace(setup, unset=(*setup.unset, *cloud.excludes))


def prepare_setup(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Return the setup for Claude Code itself, with warnings about settings that bypass the proxy."""
    for path, variables in settings_variables(context):
        for name in variables.keys() & setup.variables.keys():
            if _is_used(name, {**context.environment, **variables}):
                what = f"{path} sets {name}, which overrides the variable that ibidem sets"
                setup = setup.with_notices(
                    f"There are no savings: {what}. Remove it there, and pass it with --upstream."
                )
    if context.is_on("CLAUDE_CODE_USE_VERTEX"):
        setup = setup.with_notices(VERTEX_CHECKSUM)
    return _without_contradiction(_with_bypass(setup, context), context)


def _with_bypass(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Set NO_PROXY if only a settings file names a proxy. Route nothing if settings files exclude loopback from it."""
    bypass, origins = bypass_other_proxies(context.environment), dict[str, Path]()
    for path, variables in settings_variables(context):
        origins |= dict.fromkeys(variables.keys() & bypass.keys(), path)
    # Claude Code connects directly to a host that either spelling names.
    if bypass and all(name in origins and not _names_loopback(context.environment[name]) for name in bypass):
        line = "Claude Code connects directly, so nothing will be saved: your proxy would see the API key. Add "
        return ClientSetup(notices=(*setup.notices, f"{line}127.0.0.1 to NO_PROXY in {origins['NO_PROXY']}."))
    return setup.with_routes(variables=bypass)


def _names_loopback(hosts: str) -> bool:
    return not {"127.0.0.1", "*"}.isdisjoint(hosts.replace(",", " ").split())


def _without_contradiction(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Drop a base URL if a settings file has a variable that excludes it: Claude Code would end with an error."""
    for path, variables in settings_variables(context):
        for cloud in CLOUDS:
            excluded = next((name for name in cloud.excludes if variables.get(name)), None)
            if excluded and cloud.variable in setup.variables:
                why = f"{path} sets {excluded}, which excludes a base URL. Set it as a variable of the shell instead"
                line = f"Claude Code on {cloud.name} connects directly, so there are no savings: {why}."
                setup = setup.without_variables({cloud.variable}).with_notices(line)
    return setup


def _is_used(variable: str, environment: Mapping[str, str]) -> bool:
    """Return whether Claude Code reads this base URL variable, given its switches."""
    context = ClientContext((), environment, Path())
    switches = {cloud.variable: cloud.switch for cloud in CLOUDS} | {
        "ANTHROPIC_VERTEX_BASE_URL": "CLAUDE_CODE_USE_VERTEX"
    }
    if variable in switches:
        return context.is_on(switches[variable])
    return variable == "ANTHROPIC_BASE_URL" and not any(map(context.is_on, switches.values()))


def effective_context(context: ClientContext) -> ClientContext:
    """The context with the `env` blocks of Claude Code's settings files applied."""
    environment = dict(context.environment)
    for _, variables in settings_variables(context):
        environment |= variables
    return replace(context, environment=environment)


def settings_variables(context: ClientContext) -> Iterator[tuple[Path, dict[str, str]]]:
    """The `env` block of each settings file that has one, the strongest last. Unreadable files are skipped."""
    for path in settings_files(context):
        try:
            settings = json.loads(read_settings(path) or b"{}")
        except (ValueError, RecursionError):
            continue  # Claude Code reports it
        block = settings.get("env") if isinstance(settings, dict) else None
        if isinstance(block, dict):
            yield path, {name: text for name, text in block.items() if isinstance(text, str)}


def settings_files(context: ClientContext) -> list[Path]:
    """Return the settings files that Claude Code reads here, the strongest last. Some may not exist."""
    own = context.environment.get("CLAUDE_CONFIG_DIR", "").split(",")[0].strip()
    folders = dict.fromkeys([Path(own) if own else context.home / ".claude", context.folder / ".claude"])
    files = [folder / name for folder in folders for name in ("settings.json", "settings.local.json")]
    managed = MANAGED_SETTINGS.get(sys.platform)
    return [*files, Path(managed)] if managed else files
