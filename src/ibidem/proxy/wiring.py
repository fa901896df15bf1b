"""Which clients are known, and how one is led through the proxy without a word in any file of its own.

Most read a variable that holds the address of their provider. What such a variable held before becomes the upstream, so
that whoever was to get the requests, and the credentials in them, still does. A variable that leads somewhere else than
its provider's upstream is left as it is: its client then goes there directly, as before. So nothing is sent to an
address that the client would not have used without us, unless the user names it to us. Where a client's own settings
cannot be read, nobody knows where it would go: IbidemError says so, and it is to run without us.

A variable is only half of an address: some clients put the version into it (`/v1`), some append it themselves.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import IbidemError, one_line
from .files import content
from .settings import PROVIDERS, base_url, is_loopback

MAX_SETTINGS_BYTES = 2**20
"""Bytes that a settings file of a client may have."""
WHAT_TO_DO = "correct it, or start the client without ibidem"


class Variable(NamedTuple):
    name: str
    provider: str
    path: str = ""
    """What its readers want behind the host."""


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
    Variable("ANTHROPIC_BEDROCK_BASE_URL", "bedrock"),
)

_PROVIDER = {each.name: each.provider for each in VARIABLES}
"""It stands at the beginning of every path, so that a request whose path says nothing goes where it should too."""

FIRST_PARTY = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"
"""Claude Code does without tool search, its small model and more where the address is not Anthropic's own. Behind this
proxy it is, and the client should work as it does without us."""

FIRST_PARTY_FLAGS = {"ANTHROPIC_BASE_URL": FIRST_PARTY}
"""By variable: what else is set where it leads to the provider's own address."""

HOOKS_URL, HOOKS_OFF = "IBIDEM_HOOKS_URL", "off"
"""Where the Claude Code plugin finds who answers its hooks: nowhere, where requests come through us, who see more."""

CODEX_LOG, CODEX_SHELL = "RUST_LOG", "shell_environment_policy"
CODEX_QUIET = "error,codex_api::endpoint::responses_websocket=off"
"""Codex tries a WebSocket, which its own provider cannot be told not to, is asked to use HTTP, and does; `codex exec`
prints that as an error. Of what it logs there (errors), this leaves out that one. Commands that Codex runs do not get
it; where its settings or the user say anything about either, both are left alone."""
CODEX_PRINTS_LOG = frozenset({"exec", "e", "review"})

OWN_ADDRESS = "IBIDEM_URL"
"""Where our plugins of other programs find the proxy. They leave alone what goes through it anyway."""
OPENCODE = "OPENCODE_CONFIG_CONTENT"
BEDROCK = "ANTHROPIC_BEDROCK_BASE_URL"


class Client(NamedTuple):
    name: str
    line: str
    """How it is started by hand; `{url}` is the proxy's address."""
    reads: str
    """What `wrap` gives it."""
    note: str = ""


CLIENTS = (
    Client("Claude Code", "ANTHROPIC_BASE_URL={url} claude", "ANTHROPIC_BASE_URL"),
    Client(
        "Claude Code on Vertex",
        "CLAUDE_CODE_USE_VERTEX=1 ANTHROPIC_VERTEX_BASE_URL={url}/v1 claude",
        "ANTHROPIC_VERTEX_BASE_URL",
        "Google's host is that of the region in the request",
    ),
    Client(
        "Claude Code on Bedrock",
        "AWS_BEARER_TOKEN_BEDROCK=… ANTHROPIC_BEDROCK_BASE_URL={url} claude",
        "ANTHROPIC_BEDROCK_BASE_URL",
        "where that is set, with a bearer token; never with AWS credentials, which sign host and body",
    ),
    Client(
        "Codex",
        """codex -c 'openai_base_url="{url}/v1"'""",
        "-c openai_base_url",
        "where it is the command; it is asked to use HTTP, not a WebSocket",
    ),
    Client(
        "opencode",
        """OPENCODE_CONFIG_CONTENT='{{"provider":{{"anthropic":{{"options":{{"baseURL":"{url}/v1"}}}}}}}}' opencode""",
        OPENCODE,
        "left alone where its own configuration has a baseURL",
    ),
    Client(
        "aider",
        "ANTHROPIC_API_BASE={url} OPENAI_API_BASE={url}/v1 aider",
        "ANTHROPIC_API_BASE, OPENAI_API_BASE, GEMINI_API_BASE",
        "and all that uses litellm; aider itself sends no tool results, so there is little to save",
    ),
    Client(
        "goose",
        "ANTHROPIC_HOST={url} OPENAI_HOST={url} goose",
        "ANTHROPIC_HOST, OPENAI_HOST, GOOGLE_HOST",
    ),
    Client(
        "Gemini CLI",
        "GOOGLE_GEMINI_BASE_URL={url} gemini",
        "GOOGLE_GEMINI_BASE_URL",
        "with an API key, once that is chosen in it; not with a Google login",
    ),
    Client("Anthropic SDKs", "ANTHROPIC_BASE_URL={url} …", "ANTHROPIC_BASE_URL"),
    Client("OpenAI SDKs", "OPENAI_BASE_URL={url}/v1 …", "OPENAI_BASE_URL", "older ones: OPENAI_API_BASE"),
    Client("Google Gen AI SDKs", "GOOGLE_GEMINI_BASE_URL={url} …", "GOOGLE_GEMINI_BASE_URL"),
)


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a command is led through the proxy."""

    upstreams: dict[str, str] = field(default_factory=dict)
    """By provider: where its requests went before."""
    paths: dict[str, str] = field(default_factory=dict)
    """By variable that will lead to the proxy: what stands behind the proxy's address."""
    codex: str | None = None
    """What stands behind the proxy's address for Codex, which is told by its command line; None leaves it alone."""
    quiet: bool = False
    """Whether Codex may be kept from printing that it had to use HTTP."""


def inherit(command: Sequence[str], environment: Mapping[str, str], folder: Path, said: Container[str]) -> Wiring:
    """What was set before. For the providers in `said` the upstream is told, so nothing is inherited for them."""
    program = _program(command)
    provider, by_setting = _BY_SETTING.get(program, ("", None))
    providers = [each for each in PROVIDERS if each != provider]
    found = [_from_variables(each, environment, each in said) for each in providers]
    wiring = Wiring(
        {provider: upstream for provider, (upstream, _) in zip(providers, found, strict=True) if upstream},
        {name: path for _, paths in found for name, path in paths.items()},
    )
    if not _takes_bedrock(environment, "bedrock" in said):
        wiring = replace(wiring, paths={name: path for name, path in wiring.paths.items() if name != BEDROCK})
    if by_setting is not None:
        return by_setting(wiring, environment, folder, provider in said)
    files = _OWN_SETTINGS.get(program)
    if files and not files(environment, folder):
        return replace(wiring, paths={name: path for name, path in wiring.paths.items() if environment.get(name)})
    return wiring


def prepared(
    command: Sequence[str], environment: Mapping[str, str], wiring: Wiring, url: str, upstreams: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command and its variables, for a proxy at this address."""
    ready = {**environment, **{name: f"{url}/{_PROVIDER[name]}{path}" for name, path in wiring.paths.items()}}
    ready[OWN_ADDRESS] = url
    for name, flag in FIRST_PARTY_FLAGS.items():
        if name in wiring.paths and upstreams[_PROVIDER[name]] == PROVIDERS[_PROVIDER[name]]:
            ready.setdefault(flag, "1")
    if "ANTHROPIC_BASE_URL" in wiring.paths:
        ready[HOOKS_URL] = HOOKS_OFF
    ready.update(_past_other_proxies(environment))
    change = _SPECIAL.get(_program(command))
    return change(list(command), ready, wiring, url) if change else (list(command), ready)


def leads_to(upstream: str, port: int) -> bool:
    """Whether an upstream is a proxy of this machine on this port: ourselves, if that is our port."""
    parts = urlsplit(upstream)
    return parts.port == port and is_loopback(parts.hostname or "")


# --- what was there before ----------------------------------------------------------------------


def _program(command: Sequence[str]) -> str:
    return Path(command[0]).name.lower().removesuffix(".exe").removesuffix(".cmd") if command else ""


def _from_variables(provider: str, environment: Mapping[str, str], said: bool) -> tuple[str, dict[str, str]]:
    """Where requests went before (nothing, if no variable says so), and the paths behind the proxy's address."""
    variables = [each for each in VARIABLES if each.provider == provider]
    had = {each.name: _parted(environment[each.name], each.path) for each in variables if environment.get(each.name)}
    if said or not had:
        return "", {each.name: each.path for each in variables}
    first = next((each for each in variables if had.get(each.name)), None)
    if first is None or (found := had[first.name]) is None:
        return "", {}  # nothing there is an address: what a client says to that is its own affair
    upstream, path = found
    paths = {name: parts[1] for name, parts in had.items() if parts and parts[0] == upstream}
    if path == first.path:  # where the version is missing, the other names cannot be derived
        paths |= {each.name: each.path for each in variables if each.name not in had}
    return upstream, paths


def _takes_bedrock(environment: Mapping[str, str], said: bool) -> bool:
    """Credentials of Amazon's sign the host and the body: what is signed for this machine is refused there. A token
    signs nothing. The region of a request is known only where an address is set."""
    skips = environment.get("CLAUDE_CODE_SKIP_BEDROCK_AUTH", "").lower() in ("1", "true", "yes", "on")
    unsigned = skips or bool(environment.get("AWS_BEARER_TOKEN_BEDROCK"))
    return unsigned and (said or bool(environment.get(BEDROCK)))


def _parted(text: str, path: str) -> tuple[str, str] | None:
    """An address without what its readers want behind the host, and that; None if it is no address."""
    try:
        url = base_url(text)
    except ValueError:
        return None
    return (url.removesuffix(path), path) if path and url.endswith(path) else (url, "")


def _with_codex(wiring: Wiring, environment: Mapping[str, str], folder: Path, said: bool) -> Wiring:
    """Codex reads no variable, so none is inherited for it or changed: only its own setting counts."""
    home = environment.get("CODEX_HOME") or _home(environment) / ".codex"
    value = _codex_address(Path(home) / "config.toml")
    homes = (Path(home), Path("/etc/codex"), *(each / ".codex" for each in (folder, *folder.parents)))
    said_of_shell = _mentioned(CODEX_SHELL, [each / "config.toml" for each in homes])
    wiring = replace(wiring, quiet=CODEX_LOG not in environment and not said_of_shell)
    if said or value is None:
        return replace(wiring, codex="/v1")
    found = _parted(value, "/v1") if isinstance(value, str) else None
    if found is None:
        return wiring
    upstream, path = found  # it counts for both ways to log in, and the path is not sent on for ChatGPT
    return replace(wiring, upstreams={**wiring.upstreams, "openai": upstream, "chatgpt": upstream + path}, codex=path)


def _codex_address(path: Path) -> Any:
    """What is no TOML to us may be some to Codex, which then has an address that we do not know of."""
    try:
        return tomllib.loads((content(path, MAX_SETTINGS_BYTES, WHAT_TO_DO) or b"").decode()).get("openai_base_url")
    except (ValueError, RecursionError):
        raise IbidemError(f"{one_line(str(path))}: not valid TOML: {WHAT_TO_DO}") from None


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or environment.get("USERPROFILE") or ".")


def opencode_files(environment: Mapping[str, str], folder: Path) -> list[Path]:
    """Where opencode looks for its configuration, from this folder; most of these are not there."""
    config = Path(environment.get("XDG_CONFIG_HOME") or _home(environment) / ".config") / "opencode"
    folders = [config, *(each / sub for each in (folder, *folder.parents) for sub in ("", ".opencode"))]
    if own := environment.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(own))
    files = [each / name for each in folders for name in ("opencode.json", "opencode.jsonc", "config.json")]
    if named := environment.get("OPENCODE_CONFIG"):
        files.append(Path(named))
    return files


def _opencode_takes_it(environment: Mapping[str, str], folder: Path) -> bool:
    """It is left alone where a configuration of its own has an address."""
    return "baseURL" not in environment.get(OPENCODE, "") and not _mentioned(
        "baseURL", opencode_files(environment, folder)
    )


def _gemini_takes_it(environment: Mapping[str, str], folder: Path) -> bool:
    """Where no way to log in is chosen, it takes an address for one, and then does not know it."""
    homes = (Path(environment.get("GEMINI_CLI_HOME") or _home(environment)), folder)
    return _mentioned("selectedType", [home / ".gemini" / "settings.json" for home in homes])


_BY_SETTING: dict[str, tuple[str, Callable[[Wiring, Mapping[str, str], Path, bool], Wiring]]] = {
    "codex": ("openai", _with_codex)
}
"""Clients that have a setting of their own for the address of a provider, and read no variable for it."""

_OWN_SETTINGS: dict[str, Callable[[Mapping[str, str], Path], bool]] = {
    "opencode": _opencode_takes_it,
    "gemini": _gemini_takes_it,
}
"""Clients whose own settings decide whether they can be led through the proxy."""


def _mentioned(word: str, files: Iterable[Path]) -> bool:
    """These files may have comments, so they are not parsed."""
    return any(word.encode() in (content(path, MAX_SETTINGS_BYTES, WHAT_TO_DO) or b"") for path in files)


# --- what is changed ----------------------------------------------------------------------------


def _past_other_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Where a proxy of another kind is set, this one must be reached without it."""
    if not any(text and name.lower() in ("http_proxy", "all_proxy") for name, text in environment.items()):
        return {}
    before = [each.strip() for each in (environment.get("no_proxy") or environment.get("NO_PROXY") or "").split(",")]
    value = ",".join(dict.fromkeys(each for each in (*before, "127.0.0.1", "localhost") if each))
    return {"no_proxy": value, "NO_PROXY": value}


WiringChange = Callable[[list[str], dict[str, str], Wiring, str], tuple[list[str], dict[str, str]]]


def _codex(command: list[str], ready: dict[str, str], wiring: Wiring, url: str) -> tuple[list[str], dict[str, str]]:
    if wiring.codex is None:
        return command, ready
    setting = ["-c", f'openai_base_url="{url}/openai{wiring.codex}"']
    if wiring.quiet and not CODEX_PRINTS_LOG.isdisjoint(command):
        setting += ["-c", f'{CODEX_SHELL}.exclude=["{CODEX_LOG}"]']
        ready = {**ready, CODEX_LOG: CODEX_QUIET}
    return [command[0], *setting, *command[1:]], ready


_OPENCODE = (
    ("anthropic", "ANTHROPIC_BASE_URL", "/v1", True),
    ("openai", "OPENAI_BASE_URL", "/v1", True),
    ("google", "GOOGLE_GEMINI_BASE_URL", "/v1beta", False),
)
"""What it calls a provider, the variable that says the same, what it wants behind the host, and whether the variable
has that too: else, what was inherited from it does not tell where opencode should go."""


def _opencode(command: list[str], ready: dict[str, str], wiring: Wiring, url: str) -> tuple[list[str], dict[str, str]]:
    addresses = {}
    for name, variable, path, tells in _OPENCODE:
        provider = _PROVIDER[variable]
        inherited = provider in wiring.upstreams
        if variable in wiring.paths and (tells or not inherited):
            addresses[name] = f"{url}/{provider}{wiring.paths[variable] if inherited else path}"
    try:
        settings = json.loads(ready.get(OPENCODE) or "{}")
        providers = settings.setdefault("provider", {})
        for name, address in addresses.items():
            providers.setdefault(name, {}).setdefault("options", {})["baseURL"] = address
    except (ValueError, AttributeError, TypeError):
        return command, ready  # settings of a shape that we do not know are left as they are
    return command, {**ready, OPENCODE: json.dumps(settings)} if addresses else ready


_SPECIAL: dict[str, WiringChange] = {"codex": _codex, "opencode": _opencode}


# --- what is printed ----------------------------------------------------------------------------


def lines(url: str) -> list[str]:
    """For each client, how it is started by hand with the proxy at this address."""
    width = max(len(client.name) for client in CLIENTS)
    return [f"{client.name:{width}}  {client.line.format(url=url)}" for client in CLIENTS]


def table(wiring: Wiring, upstreams: Mapping[str, str]) -> list[str]:
    """What `wrap` does for each client, and where requests go then."""
    clients = [("client", "gets", "note"), *((client.name, client.reads, client.note) for client in CLIENTS)]
    variables = [("variable", "provider", "upstream")]
    for each in VARIABLES:
        upstream = upstreams[each.provider] if each.name in wiring.paths else "left as it is"
        variables.append((each.name, each.provider, upstream))
    return [*_aligned(clients), "", *_aligned(variables)]


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:{first}}  {row[1]:{second}}  {row[2]}".rstrip() for row in rows]
