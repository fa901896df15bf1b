"""What the proxy is told: flags before the environment before `ibidem.toml` before what is said here.

One table says what each setting may be, wherever it comes from, and `load` is the only place where they meet. What is
wrong is one line that names where it was said.

A file that is found in the current folder may have come with somebody else's code. Such a file may say how requests are
rewritten, but never where they go, who may ask, or what is written where: those keys are refused there, because the
upstream is what a client's credentials are sent to.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..model import IbidemError, one_line
from ..profiles import PROFILES

FILE = "ibidem.toml"
TABLE = "proxy"
PREFIX = "IBIDEM_"

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": "https://api.anthropic.com",
        "openai": "https://api.openai.com",
        "gemini": "https://generativelanguage.googleapis.com",
        "chatgpt": "https://chatgpt.com/backend-api/codex",  # Codex, for those who log in with ChatGPT
    }
)
"""Who answers, by the name that upstreams are set by."""

ALIASES = {"openai-chat": "openai", "openai-responses": "openai"}
"""Wire formats that share an upstream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    host: str = "127.0.0.1"
    """Where to listen. Anything but loopback needs a token."""
    port: int = 8123
    """0: a free one."""
    token: str | None = field(default=None, repr=False)
    """What a client must send as `x-ibidem-token`, and a browser as `?token=`. It is never forwarded."""
    profile: str = "lossless"
    upstreams: Mapping[str, str] = field(default_factory=lambda: dict(PROVIDERS))
    """Base URL by provider, without a slash at its end. Its path, if any, is put before the path of the request."""
    store: str | None = field(default=None, repr=False)
    """Where originals and conversations are kept. None: the user's own. A URL may hold a password."""
    observe: bool = False
    """Rewrite nothing, only measure what would have been saved."""
    json_log: str | None = None
    """A file that gets one JSON object per exchange; `-` is standard output."""
    budget_ms: float = 2000.0
    """Milliseconds that may be taken for one request; after that it goes out without new edits."""
    max_body: int = 100 * 2**20
    """Bytes; a larger request is answered with 413."""
    max_rewrite: int = 16 * 2**20
    """Bytes of what is new in a request; more of it goes as it came."""
    conversations: int = 1000
    """Kept in memory; those that were not used for longest go."""
    memory_mb: int = 256
    """Of text that conversations may hold in memory."""
    resend: bool = True
    """A rewritten request that its provider refuses is sent once more, without new edits, and then as it came."""
    websockets: bool = True
    """False: who would send requests through a WebSocket, where nothing can be rewritten, is asked for HTTP (426)."""


def load(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own: Path | None = None,
) -> Settings:
    """Flags are by field; None is one that was not given. `upstream` holds texts like `openai=https://…`.

    `config` (or IBIDEM_CONFIG) names a file, which must be there. Otherwise `ibidem.toml` in `folder`, and if there is
    none the one in `own`, which is a folder that only this user writes to.
    """
    flags, environment = flags or {}, environment or {}
    sources = (
        _read_file(flags.get("config") or environment.get(f"{PREFIX}CONFIG"), folder, own),
        _read_environment(environment),
        _read_flags(flags),
    )
    values: dict[str, Any] = {}
    upstreams = dict(PROVIDERS)
    for source in sources:  # the strongest comes last
        values.update(source.values)
        upstreams.update(source.upstreams)
    settings = Settings(**values, upstreams=upstreams)
    if not is_loopback(settings.host) and settings.token is None:
        raise IbidemError(
            f"host {one_line(settings.host)}: others can reach this address: set a token (--token, {PREFIX}TOKEN)"
        )
    return settings


def told(flags: Mapping[str, Any], environment: Mapping[str, str]) -> set[str]:
    """Providers whose upstream a flag or a variable of ours names."""
    return {*_read_flags(flags).upstreams, *_read_environment(environment).upstreams}


def inherited(environment: Mapping[str, str], upstreams: Mapping[str, str]) -> dict[str, str]:
    """The environment, with upstreams that it names in another way. What it says in our own way is stronger."""
    return {**{f"{PREFIX}UPSTREAM_{name.upper()}": url for name, url in upstreams.items()}, **environment}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def base_url(text: str) -> str:
    """An upstream's URL as it is kept. Raises ValueError with what is wrong; the text itself is not in it."""
    try:
        parts = urlsplit(text)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("this is no URL: use one like https://api.example.com")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user or password: leave these out, the client sends its own credentials")
    if "?" in text or "#" in text:
        raise ValueError("a URL with a query or fragment: leave that out")
    return text.rstrip("/")


# --- what each setting may be -------------------------------------------------------------------


class Kind(NamedTuple):
    """A type, how it is called, and how it is read from a text."""

    types: tuple[type, ...]
    name: str
    read: Callable[[str], Any]


_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
TEXT = Kind((str,), "a text", str)
WHOLE = Kind((int,), "a whole number", int)
NUMBER = Kind((int, float), "a number", float)
SWITCH = Kind((bool,), "true or false", lambda text: _SWITCH[text.lower()])


class Field(NamedTuple):
    kind: Kind
    check: Callable[[Any], bool]
    what: str
    """What to use, where the check fails."""
    private: bool = False
    """Says where requests go, who may ask, or what is written where: not for a file that a folder brings along."""
    secret: bool = False
    """Never repeated in a message."""


def _visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _at_least_one(number: int) -> bool:
    return number >= 1


FIELDS: dict[str, Field] = {
    "host": Field(TEXT, lambda host: bool(host) and _visible(host), "use a name or address like 127.0.0.1", True),
    "port": Field(WHOLE, lambda port: 0 <= port <= 65535, "use 1 to 65535, or 0 for a free one"),
    "token": Field(TEXT, lambda it: bool(it) and _visible(it), "use letters, digits and signs, no spaces", True, True),
    "profile": Field(TEXT, lambda name: name in PROFILES, f"use one of {', '.join(PROFILES)}"),
    "store": Field(TEXT, bool, "use a file, a redis:// URL or memory:", True, True),
    "observe": Field(SWITCH, lambda _: True, ""),
    "json_log": Field(TEXT, bool, "use a file, or - for standard output", True),
    "budget_ms": Field(NUMBER, lambda ms: 0 < ms < 1e9, "use milliseconds above 0; --observe rewrites nothing"),
    "max_body": Field(WHOLE, _at_least_one, "use a number of bytes above 0"),
    "max_rewrite": Field(WHOLE, _at_least_one, "use a number of bytes above 0"),
    "conversations": Field(WHOLE, _at_least_one, "use 1 or more"),
    "memory_mb": Field(WHOLE, _at_least_one, "use 1 or more"),
    "resend": Field(SWITCH, lambda _: True, ""),
    "websockets": Field(SWITCH, lambda _: True, ""),
}


def _checked(name: str, value: Any, where: str) -> Any:
    rule = FIELDS[name]
    right = isinstance(value, rule.kind.types) and (bool in rule.kind.types or not isinstance(value, bool))
    shown = "this" if rule.secret else repr(one_line(str(value)))
    if not right:
        raise IbidemError(f"{where}: {shown} is not {rule.kind.name}: write {rule.kind.name}")
    if not rule.check(value):
        raise IbidemError(f"{where}: {shown} cannot be used: {rule.what}")
    return float(value) if rule.kind is NUMBER else value


def _read(name: str, text: str, where: str) -> Any:
    """From a text, such as the environment has."""
    rule = FIELDS[name]
    try:
        value = rule.kind.read(text)
    except (ValueError, KeyError):
        value = text  # of the wrong type, then
    return _checked(name, value, where)


def _upstream(name: str, url: Any, where: str) -> tuple[str, str]:
    provider = ALIASES.get(name, name)
    if provider not in PROVIDERS:
        raise IbidemError(f"{where}: unknown format {one_line(name)!r}: use one of {', '.join((*PROVIDERS, *ALIASES))}")
    try:
        return provider, base_url(url if isinstance(url, str) else "")
    except ValueError as error:
        raise IbidemError(f"{where}: {error}") from None


def _upstreams(given: Iterable[tuple[str, Any, str]]) -> dict[str, str]:
    """From (format, URL, where it was said)."""
    found: dict[str, str] = {}
    for name, url, where in given:
        provider, base = _upstream(name, url, where)
        if found.setdefault(provider, base) != base:
            raise IbidemError(f"{where}: {provider} has another upstream already: all its formats share one")
    return found


# --- the sources --------------------------------------------------------------------------------


class Source(NamedTuple):
    values: dict[str, Any]
    upstreams: dict[str, str]


def _read_flags(flags: Mapping[str, Any]) -> Source:
    values = {
        name: _checked(name, flags[name], f"--{name.replace('_', '-')}")
        for name in FIELDS
        if flags.get(name) is not None
    }
    given = []
    for text in flags.get("upstream") or ():
        name, equals, url = text.partition("=")
        if not equals:
            raise IbidemError("--upstream: expected FORMAT=URL, such as anthropic=https://api.example.com")
        given.append((name.strip().lower(), url.strip(), f"--upstream {one_line(name)}"))
    return Source(values, _upstreams(given))


def _read_environment(environment: Mapping[str, str]) -> Source:
    """An empty variable is one that is not set."""
    values = {
        name: _read(name, text, variable)
        for name in FIELDS
        if (text := environment.get(variable := f"{PREFIX}{name.upper()}"))
    }
    start = f"{PREFIX}UPSTREAM_"
    named = [
        (name.removeprefix(start).lower().replace("_", "-"), name) for name in environment if name.startswith(start)
    ]
    return Source(values, _upstreams((it, environment[name], name) for it, name in named if environment[name]))


def _read_file(named: str | None, folder: Path | None, own: Path | None) -> Source:
    if named:
        return _parsed(Path(named), trusted=True)
    mine = own / FILE if own else None
    brought = folder / FILE if folder else None
    if brought and brought.is_file():
        return _parsed(brought, trusted=mine is not None and mine.is_file() and mine.samefile(brought))
    return _parsed(mine, trusted=True) if mine and mine.is_file() else Source({}, {})


def _parsed(path: Path, *, trusted: bool) -> Source:
    where = one_line(str(path))
    try:
        tables = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise IbidemError(f"{where}: {error.strerror}: name another with --config") from None
    except UnicodeDecodeError:
        raise IbidemError(f"{where}: not valid UTF-8: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise IbidemError(f"{where}: not valid TOML ({one_line(str(error))}): correct it there") from None
    table = _table(tables, TABLE, (TABLE,), where)
    upstreams = _table(table, "upstreams", ("upstreams", *FIELDS), f"{where}: {TABLE}")
    values = {name: value for name, value in table.items() if name != "upstreams"}
    if not trusted:
        _refuse_private([*values, *(["upstreams"] if upstreams else [])], path, where)
    return Source(
        {name: _checked(name, value, f"{where}: {TABLE}.{name}") for name, value in values.items()},
        _upstreams((name, url, f"{where}: {TABLE}.upstreams.{one_line(name)}") for name, url in upstreams.items()),
    )


def _table(parent: Mapping[str, Any], name: str, known: tuple[str, ...], where: str) -> dict[str, Any]:
    """The table of this name; every key beside it must be known."""
    for key in parent:
        if key not in known:
            raise IbidemError(f"{where}: unknown key {one_line(key)!r}: use one of {', '.join(sorted(known))}")
    table = parent.get(name, {})
    if not isinstance(table, dict):
        raise IbidemError(f"{where}: {name} is not a table: begin one with [{name}]")
    return table


def _refuse_private(names: Iterable[str], path: Path, where: str) -> None:
    for name in names:
        if name == "upstreams" or FIELDS[name].private:
            raise IbidemError(
                f"{where}: {TABLE}.{name}: not from a file in the current folder, which may be somebody else's: "
                f"put it in your own {FILE}, or name this one with --config {one_line(path.name)}"
            )
