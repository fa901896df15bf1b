"""Base URL variables, a command as the user started it, and how `wrap` starts it instead.

Most clients read their provider's base URL from a variable. The value that the user had set becomes the upstream. If a
variable names another host than the upstream of its provider, it stays unchanged and its client connects directly. So
requests are sent only to addresses that the client would have used without us, or that the user passes with
`--upstream`. If a client's own settings cannot be read, IbidemError is raised, and the client runs without us.

A variable may have only a part of the URL: some clients expect the version (`/v1`) in it, others append it themselves.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ...environment import read_bounded
from ...proxy.settings import PROVIDERS, is_loopback, normalize_base_url

MAX_SETTINGS_BYTES = 2**20
"""Largest settings file of a client that is read."""
WHAT_TO_DO = "correct it, or start the client without ibidem"
OWN_ADDRESS = "IBIDEM_URL"
"""Variable in which plugins for other programs find the proxy."""
HOOKS_URL, HOOKS_OFF = "IBIDEM_HOOKS_URL", "off"
"""Variable with the address for the Claude Code plugin's hooks. `wrap` disables them, because the proxy sees more."""
TOOL_SEARCH = "ENABLE_TOOL_SEARCH"
"""Documented variable of Claude Code for proxies that forward `tool_reference` blocks. Behind another base URL than
Anthropic's it otherwise sends the schemas of all tools: 25 instead of 9 in version 2.1.197."""
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
LOOPBACK = ("127.0.0.1", "localhost")


class Variable(NamedTuple):
    """A base URL variable."""

    name: str
    provider: str
    path: str = ""
    """Path that its readers expect after the host."""


VARIABLES = (
    Variable("ANTHROPIC_BASE_URL", "anthropic"),
    Variable("ANTHROPIC_API_BASE", "anthropic"),
    Variable("ANTHROPIC_HOST", "anthropic"),
    Variable("OPENAI_BASE_URL", "openai", "/v1"),
    Variable("OPENAI_API_BASE", "openai", "/v1"),
    Variable("OPENAI_HOST", "openai"),
    Variable("GOOGLE_GEMINI_BASE_URL", "gemini"),
    Variable("GEMINI_API_BASE", "gemini", "/v1beta"),
    Variable("GOOGLE_HOST", "gemini"),
    Variable("ANTHROPIC_VERTEX_BASE_URL", "vertex", "/v1"),
)


@dataclass(frozen=True, slots=True)
class ClientContext:
    """A command as the user started it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    """Current folder."""
    explicit_providers: Container[str] = ()
    """Providers whose upstream the user named with `--upstream`. Base URLs are not inherited for them."""

    @property
    def program(self) -> str:
        """Name of the program, without its folder and extension."""
        if not self.command:
            return ""
        return Path(self.command[0]).name.lower().removesuffix(".exe").removesuffix(".cmd")

    @property
    def home(self) -> Path:
        return Path(self.environment.get("HOME") or self.environment.get("USERPROFILE") or ".")

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on, with the values that Claude Code accepts."""
        return self.environment.get(name, "").strip().lower() in ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """How `wrap` starts a command. In variables, arguments and files, `{url}` is replaced by the proxy's address and
    `{folder}` by a temporary folder."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    """By provider: base URL that the client used before."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables to set, over the user's own value."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables to set if the user has not set them."""
    unset: tuple[str, ...] = ()
    """Variables to remove because they exclude one that is set."""
    arguments: tuple[str, ...] = ()
    """Arguments to insert after the program's name."""
    command: tuple[str, ...] = ()
    """The user's command without arguments that conflict with `arguments`; empty if the command is unchanged."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By name: text of a file in the temporary folder."""
    notices: tuple[str, ...] = ()
    """Lines that the user reads before the command starts."""

    def with_routes(
        self, *, upstreams: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None
    ) -> ClientSetup:
        """Return this setup with more upstreams and variables."""
        return replace(
            self,
            upstreams={**self.upstreams, **(upstreams or {})},
            variables={**self.variables, **(variables or {})},
        )

    def without_variables(self, names: Container[str]) -> ClientSetup:
        """Return this setup without these variables."""
        return replace(self, variables={name: text for name, text in self.variables.items() if name not in names})

    def without_providers(self, providers: Container[str]) -> ClientSetup:
        """Return this setup without these providers' variables and upstreams: the client ignores such variables."""
        names = {variable.name for variable in VARIABLES if variable.provider in providers}
        upstreams = {name: url for name, url in self.upstreams.items() if name not in providers}
        return replace(self.without_variables(names), upstreams=upstreams)

    def with_notices(self, *lines: str) -> ClientSetup:
        """Return this setup with more notices."""
        return replace(self, notices=(*self.notices, *lines))


def inherit_base_urls(context: ClientContext) -> ClientSetup:
    """Return a setup for any command: base URL variables name the proxy, and their old values become upstreams."""
    upstreams: dict[str, str] = {}
    variables: dict[str, str] = {}
    for provider in dict.fromkeys(variable.provider for variable in VARIABLES):
        upstream, paths = _inherit_provider(provider, context)
        if upstream:
            upstreams[provider] = upstream
        variables |= {name: f"{{url}}/{provider}{path}" for name, path in paths.items()}
    return ClientSetup(upstreams, variables)


def _inherit_provider(provider: str, context: ClientContext) -> tuple[str, dict[str, str]]:
    """Return the provider's old base URL ("" if no variable is set), and for each variable the path after the proxy's
    address."""
    variables = [variable for variable in VARIABLES if variable.provider == provider]
    values = {variable.name: context.environment.get(variable.name, "") for variable in variables}
    previous_urls = {each.name: split_base_url(values[each.name], each.path) for each in variables if values[each.name]}
    if provider in context.explicit_providers or not previous_urls:
        return "", {variable.name: variable.path for variable in variables}
    first = next((variable for variable in variables if previous_urls.get(variable.name)), None)
    if first is None or (parts := previous_urls[first.name]) is None:
        return "", {}  # not a URL: let the client complain about it
    upstream, path = parts
    paths = {name: each[1] for name, each in previous_urls.items() if each and each[0] == upstream}
    if path == first.path:  # if the version is missing, the other names cannot be derived
        paths |= {variable.name: variable.path for variable in variables if variable.name not in previous_urls}
    return upstream, paths


def split_base_url(text: str, path: str) -> tuple[str, str] | None:
    """Split a base URL into upstream and `path`; the path is "" if the URL does not end with it. None if not a URL."""
    try:
        url = normalize_base_url(text)
    except ValueError:
        return None
    return (url.removesuffix(path), path) if path and url.endswith(path) else (url, "")


def start_command(
    context: ClientContext, setup: ClientSetup, url: str, folder: str, upstreams: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment for a proxy at `url`. `upstreams` are the proxy's, by provider."""

    def fill_placeholders(text: str) -> str:
        return text.replace("{url}", url).replace("{folder}", folder)

    defaults, variables = dict(setup.defaults), dict(setup.variables)
    if "ANTHROPIC_BASE_URL" in variables:
        variables[HOOKS_URL] = HOOKS_OFF
        # Behind a gateway of the user's, the client does without tool search also if it connects directly.
        if upstreams["anthropic"] == PROVIDERS["anthropic"]:
            defaults[TOOL_SEARCH] = "true"
    environment = {name: text for name, text in context.environment.items() if name not in setup.unset}
    variables = {name: fill_placeholders(text) for name, text in variables.items()}
    defaults = {name: fill_placeholders(text) for name, text in defaults.items()}
    child_environment = {**defaults, **environment, **variables, OWN_ADDRESS: url, **bypass_other_proxies(environment)}
    program, *rest = setup.command or context.command
    return [program, *map(fill_placeholders, setup.arguments), *rest], child_environment


def bypass_other_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that make a client connect to loopback directly if any HTTP proxy is set.

    Claude Code uses HTTPS_PROXY for http URLs too: that proxy would see the credentials in clear.
    """
    if not any(text and name.lower() in PROXY_VARIABLES for name, text in environment.items()):
        return {}
    values = {name: environment.get(name) or environment.get(other) or "" for name, other in _NO_PROXY.items()}
    return {name: ",".join(_with_loopback(text)) for name, text in values.items()}


_NO_PROXY = {"no_proxy": "NO_PROXY", "NO_PROXY": "no_proxy"}


def _with_loopback(text: str) -> Iterable[str]:
    return dict.fromkeys(host for host in (*map(str.strip, text.split(",")), *LOOPBACK) if host)


def is_own_address(upstream: str, port: int) -> bool:
    """Return whether an upstream is on this machine and this port. It is then the proxy itself, if that is its port."""
    parts = urlsplit(upstream)
    return parts.port == port and is_loopback(parts.hostname or "")


def read_settings(path: Path) -> bytes:
    """Read a settings file; empty if it does not exist. Raises IbidemError if it is too large or not readable."""
    return read_bounded(path, MAX_SETTINGS_BYTES, WHAT_TO_DO) or b""


def is_mentioned(word: str, files: Iterable[Path]) -> bool:
    """Return whether a word occurs in a file. The files may contain comments, so they are not parsed."""
    return any(word.encode() in read_settings(path) for path in files)


def first_argument(arguments: Sequence[str]) -> str:
    """Return the first argument that is not an option, such as a subcommand."""
    return next((text for text in arguments if not text.startswith("-")), "")
