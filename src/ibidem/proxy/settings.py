"""What the proxy is told: flags before the environment before the user's own `ibidem.toml` before what is said here.

`fields` says what each setting may be, and `read` is the only place where they meet. What is wrong is one line that
names where it was said.

A file that is found in the current folder may have come with somebody else's code, so it decides nothing: it may name
one of the profiles that lose nothing, where the user names none, ask for less than the user allows, and have marks of
caches left alone. Whatever else it says is ignored, and so is the whole file where it is broken; both are told, and
neither stops anything.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ..billing.lifetimes import CACHE_MODES, CacheMode
from ..environment import read_bounded
from ..errors import IbidemError, one_line
from ..providers.addresses import PROVIDERS as PROVIDERS
from ..providers.addresses import base_url as base_url
from ..providers.addresses import is_loopback as is_loopback
from ..providers.addresses import regions as _regions
from ..providers.addresses import upstreams as _upstreams
from ..store.limits import DEFAULT_BYTES, DEFAULT_DAYS, USE_BYTES, USE_DAYS, are_days
from ..strategies.profiles import PROFILES, is_name
from .address import OTEL_MODES
from .fields import REMOVED, Field, checked, fields_of, limits, read_text

SETTINGS_FILE = "ibidem.toml"
SETTINGS_TABLE = "proxy"
VARIABLE_PREFIX = "IBIDEM_"
OWN_BYTES = 2**16
FOLDER_BYTES = 2**13
"""Most that a settings file has. Python's reader of TOML takes time that grows with the square of what it is given."""
FOLDER_PROFILES = ("lossless", "balanced", "recoverable")
"""Profiles that a file in the current folder may name."""
DEFAULT_RECORD_DAYS, DEFAULT_RECORD_BYTES = 30, 1_000_000_000
"""How long and how much is kept of recordings where nobody says otherwise."""
MAX_NAMED_KEYS, MAX_KEY_LENGTH, MAX_REASON = 5, 40, 100
"""Of keys that are ignored, so many are named; characters of each, and of what the reader of TOML says."""


def _visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


Switch = Annotated[bool, limits()]
Token = Annotated[str, limits("use letters, digits and signs, no spaces", _visible, secret=True, min_length=1)]
Days = Annotated[float, limits(USE_DAYS, are_days)]
Bytes = Annotated[int, limits(USE_BYTES, ge=0)]
Milliseconds = Annotated[float, limits("use milliseconds above 0; --observe rewrites nothing", gt=0, lt=1e9, less=True)]
SECRETS = frozenset({"token", "page_token", "store"})
"""Settings that are not shown: a URL of a store may hold a password."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    host: Annotated[str, limits("use a name or address like 127.0.0.1", _visible, min_length=1)] = "127.0.0.1"
    """Where to listen. Anything but loopback needs a token."""
    port: Annotated[int, limits("use 1 to 65535, or 0 for a free one", ge=0, le=65535)] = 8123
    """0: a free one."""
    reuse_port: Switch = False
    """Let other processes of this user listen on the same port. `ibidem wrap` has a port of its own."""
    token: Token | None = None
    """What a client must send as `x-ibidem-token`, and a browser as `?token=`. It is never forwarded."""
    page_token: Token | None = None
    """What must come besides, as `x-ibidem-page-token` or `?page_token=`, before texts of clients are shown."""
    texts: Switch = True
    """False: no text of a client is shown to anybody."""
    profile: Annotated[str, limits(f"use one of {', '.join(PROFILES)}, or module:attribute", is_name)] = "lossless"
    cache: Annotated[CacheMode, limits(f"use one of {', '.join(CACHE_MODES)}")] = "off"
    """Whether providers may be asked to keep what they are sent (`auto`), or to keep it for longer or shorter than the
    client asks (`lifetime`)."""
    upstreams: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(PROVIDERS))
    """Base URL by provider, without a slash at its end. Its path, if any, is put before the path of the request."""
    regions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Region by provider, for requests that do not name one."""
    store: Annotated[str, limits("use a file, a redis:// URL or memory:", bool, secret=True)] | None = None
    """Where originals and conversations are kept. None: the user's own. A URL may hold a password."""
    store_days: Days = DEFAULT_DAYS
    """For how long a conversation that is not used is remembered there; 0 is for ever."""
    store_bytes: Bytes = DEFAULT_BYTES
    """Above which those that were not used for longest are forgotten; 0 is no limit."""
    observe: Switch = False
    """Rewrite nothing, only measure what would have been saved."""
    trial: Annotated[float, limits("use a share above 0 and below 1, such as 0.5", gt=0, lt=1)] | None = None
    """The share of conversations that are rewritten; the others are only measured, for `ibidem gain --trial`."""
    json_log: Annotated[str, limits("use a file, or - for standard output", bool)] | None = None
    """A file that gets one JSON object per exchange; `-` is standard output."""
    ledger: Switch = True
    """Figures of each request are kept for `ibidem gain`, no texts."""
    otel: Annotated[str, limits(f"use one of {', '.join(OTEL_MODES)}", OTEL_MODES.__contains__)] = "off"
    """What OpenTelemetry is told: nothing, of the rewriting (`spans`), or of the asking too (`genai`)."""
    record: Annotated[str, limits("use a folder", bool)] | None = None
    """A folder that gets the bodies of requests and answers, a file per conversation: texts, as they are."""
    record_days: Days = DEFAULT_RECORD_DAYS
    """For how long a file is kept there after it was last written; 0 is for ever."""
    record_bytes: Bytes = DEFAULT_RECORD_BYTES
    """Above which the oldest files there are deleted; 0 is no limit."""
    budget_ms: Milliseconds = 2000.0
    """Milliseconds that may be taken for one request; after that it goes out without new edits."""
    max_body: Annotated[int, limits("use a number of bytes above 0", ge=1)] = 100 * 2**20
    """Bytes; a larger request is answered with 413. Not `less`, because a folder's file would then reject requests."""
    max_rewrite: Annotated[int, limits("use a number of bytes above 0", ge=1, less=True)] = 16 * 2**20
    """Bytes of what is new in a request; more of it goes as it came."""
    conversations: Annotated[int, limits("use 1 or more", ge=1, less=True)] = 1000
    """Kept in memory; those that were not used for longest go."""
    memory_mb: Annotated[int, limits("use 1 or more", ge=1, less=True)] = 256
    """Of text that conversations may hold in memory."""
    resend: Switch = True
    """A rewritten request that its provider refuses is sent once more, without new edits, and then as it came."""
    websockets: Switch = True
    """False: who would send requests through a WebSocket, where nothing can be rewritten, is asked for HTTP (426)."""

    def __repr__(self) -> str:
        shown = ((name, value) for name, value in msgspec.structs.asdict(self).items() if name not in SECRETS)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown)})"

    @property
    def asks_to_keep(self) -> CacheMode:
        """What is done of that: nothing where nothing may be rewritten."""
        return "off" if self.observe else self.cache

    @property
    def text_access(self) -> str:
        """Who is shown texts of clients: `all` who may use the proxy, those with the page `token`, or `none`."""
        if not self.texts:
            return "none"
        if self.page_token is not None:
            return "token"
        return "all" if is_loopback(self.host) else "none"


FIELDS = fields_of(Settings)


class File(NamedTuple):
    """What a settings file came to."""

    path: str
    taken: tuple[str, ...]
    """Names of settings that hold because it says so."""
    ignored: tuple[str, ...] = ()
    broken: str = ""
    """What is wrong with it, if that is why it is ignored."""


class Loaded(NamedTuple):
    settings: Settings
    files: tuple[File, ...]

    def line(self, unused: Container[str] = ()) -> str:
        """Which settings came from which file; empty where none did. `unused` are those that do not matter here."""
        parts: list[str] = []
        for path, taken, ignored, broken in self.files:
            if names := [name for name in taken if name not in unused]:
                parts.append(f"{', '.join(names)} from {path}")
            if ignored:
                parts.append(f"{_named(ignored)} in {path} ignored: a folder's file may only ask for less")
            if broken:
                parts.append(f"{path} ignored: {broken}")
        return f"settings: {'; '.join(parts)}" if parts else ""


def load(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own: Path | None = None,
) -> Settings:
    """As `read`, for who does not ask where they came from."""
    return read(flags, environment, folder, own).settings


def read(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own: Path | None = None,
) -> Loaded:
    """Flags are by field; None is one that was not given. `upstream` holds texts like `openai=https://…`.

    `config` (or IBIDEM_CONFIG) names a file, which must be there, and is then the only one. Otherwise `ibidem.toml` in
    `own`, which is a folder that only this user writes to, and then the one in `folder`, for what it may say.
    """
    flags, environment = flags or {}, environment or {}
    named = flags.get("config") or environment.get(f"{VARIABLE_PREFIX}CONFIG")
    mine = Path(named) if named else own / SETTINGS_FILE if own else None
    source = _parsed(mine, missing=not named) if mine else None
    louder = (_read_environment(environment), _read_flags(flags))
    values: dict[str, Any] = {}
    upstreams = dict(PROVIDERS)
    for each in (source or SettingsSource({}, {}), *louder):  # the strongest comes last
        values.update(each.values)
        upstreams.update(each.upstreams)
    files = [File(one_line(str(mine)), _left(source, louder))] if source else []
    brought = folder / SETTINGS_FILE if folder and not named else None
    if brought and not (mine and _same(mine, brought)):
        less, found = _from_folder(brought, Settings(**values), set(values) & {"profile"} | _said(louder))
        values.update(less)
        files += [found] if found else []
    settings = Settings(**values, upstreams=upstreams, regions=_regions(environment))
    _refuse_open_doors(settings)
    _refuse_vain_trials(settings)
    return Loaded(settings, tuple(files))


def _refuse_open_doors(settings: Settings) -> None:
    if not is_loopback(settings.host) and settings.token is None:
        raise IbidemError(
            f"host {one_line(settings.host)}: others can reach this address: "
            f"set a token (--token, {VARIABLE_PREFIX}TOKEN)"
        )
    if settings.page_token is not None and settings.page_token == settings.token:
        raise IbidemError(f"page_token: this is the token: set another one (--page-token, {VARIABLE_PREFIX}PAGE_TOKEN)")


def _refuse_vain_trials(settings: Settings) -> None:
    if settings.trial is None:
        return
    if settings.observe:
        raise IbidemError("trial: nothing is rewritten with --observe, so there is nothing to compare: leave one out")
    if not settings.ledger:
        raise IbidemError("trial: it is noted with the figures of each request: leave --no-ledger out")


def check(flags: Mapping[str, Any]) -> None:
    """Raises IbidemError for a flag that cannot be used, whatever else is said."""
    _read_flags(flags)


def told(flags: Mapping[str, Any], environment: Mapping[str, str]) -> set[str]:
    """Providers whose upstream a flag or a variable of ours names."""
    return {*_read_flags(flags).upstreams, *_read_environment(environment).upstreams}


def inherited(environment: Mapping[str, str], upstreams: Mapping[str, str]) -> dict[str, str]:
    """The environment, with upstreams that it names in another way. What it says in our own way is stronger."""
    return {**{_upstream_variable(name): url for name, url in upstreams.items()}, **environment}


def _upstream_variable(provider: str) -> str:
    return f"{VARIABLE_PREFIX}UPSTREAM_{provider.upper().replace('-', '_')}"


# --- the sources --------------------------------------------------------------------------------


class SettingsSource(NamedTuple):
    values: dict[str, Any]
    upstreams: dict[str, str]


def _checked(name: str, value: Any, where: str, check: Callable[[Field, Any, str], Any] = checked) -> Any:
    if name in REMOVED:
        raise IbidemError(f"{where}: {REMOVED[name]}")
    return check(FIELDS[name], value, where)


def _read_flags(flags: Mapping[str, Any]) -> SettingsSource:
    values = {
        name: _checked(name, flags[name], f"--{name.replace('_', '-')}")
        for name in (*FIELDS, *REMOVED)
        if flags.get(name) is not None
    }
    given = []
    for text in flags.get("upstream") or ():
        name, equals, url = text.partition("=")
        if not equals:
            raise IbidemError("--upstream: expected NAME=URL, such as anthropic=https://api.example.com")
        given.append((name.strip().lower(), url.strip(), f"--upstream {one_line(name)}"))
    return SettingsSource(values, _upstreams(given))


def _read_environment(environment: Mapping[str, str]) -> SettingsSource:
    """An empty variable is one that is not set."""
    values = {
        name: _checked(name, text, variable, read_text)
        for name in (*FIELDS, *REMOVED)
        if (text := environment.get(variable := f"{VARIABLE_PREFIX}{name.upper()}"))
    }
    start = f"{VARIABLE_PREFIX}UPSTREAM_"
    named = [
        (name.removeprefix(start).lower().replace("_", "-"), name) for name in environment if name.startswith(start)
    ]
    return SettingsSource(values, _upstreams((it, environment[name], name) for it, name in named if environment[name]))


def _parsed(path: Path, *, missing: bool) -> SettingsSource | None:
    """What the user's own file says; None where there is none, if it may be missing."""
    where = one_line(str(path))
    tables = _toml(path, OWN_BYTES)
    if tables is None and not missing:
        raise IbidemError(f"{where}: No such file or directory: name another with --config")
    if tables is None:
        return None
    table = _table(tables, SETTINGS_TABLE, (SETTINGS_TABLE,), where)
    upstreams = _table(table, "upstreams", ("upstreams", *FIELDS), f"{where}: {SETTINGS_TABLE}", REMOVED)
    return SettingsSource(
        {
            name: _checked(name, value, f"{where}: {SETTINGS_TABLE}.{name}")
            for name, value in table.items()
            if name != "upstreams"
        },
        _upstreams(
            (name, url, f"{where}: {SETTINGS_TABLE}.upstreams.{one_line(name)}") for name, url in upstreams.items()
        ),
    )


def _toml(path: Path, most: int) -> dict[str, Any] | None:
    data = read_bounded(path, most, "name another with --config")
    where = one_line(str(path))
    try:
        return None if data is None else tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise IbidemError(f"{where}: not valid UTF-8: save it as UTF-8") from None
    except RecursionError:
        raise IbidemError(f"{where}: nested too deeply: correct it there") from None
    except ValueError as error:  # a number too long to be read is one that the reader of TOML does not know of
        raise IbidemError(f"{where}: not valid TOML ({one_line(str(error)[:MAX_REASON])}): correct it there") from None


def _table(
    parent: Mapping[str, Any], name: str, known: tuple[str, ...], where: str, removed: Container[str] = ()
) -> dict[str, Any]:
    """The table of this name; every key beside it must be known, or removed."""
    for key in parent:
        if key not in known and key not in removed:
            raise IbidemError(f"{where}: unknown key {one_line(key)!r}: use one of {', '.join(sorted(known))}")
    table = parent.get(name, {})
    if not isinstance(table, dict):
        raise IbidemError(f"{where}: {name} is not a table: begin one with [{name}]")
    return table


# --- a file that a folder brought along ---------------------------------------------------------


def _from_folder(path: Path, before: Settings, said: Container[str]) -> tuple[dict[str, Any], File | None]:
    """What it may say, and what is told of it. `said` are settings that the user spoke of in a stronger way."""
    where = one_line(str(path))
    try:
        tables = _toml(path, FOLDER_BYTES)
    except IbidemError as error:
        return {}, File(where, (), broken=str(error).removeprefix(f"{where}: "))
    if tables is None:
        return {}, None
    table = tables.get(SETTINGS_TABLE)
    values = table if isinstance(table, dict) else {}
    ignored = [name for name in tables if name != SETTINGS_TABLE or values is not table]
    taken: dict[str, Any] = {}
    for name, value in values.items():
        if name not in said and _asks_for_less(name, value, before):
            taken[name] = _checked(name, value, where)
        elif name in ("upstreams", *FIELDS) and value == getattr(before, name):
            continue  # as it is without
        else:
            ignored.append(name)
    return taken, File(where, tuple(taken), tuple(ignored)) if taken or ignored else None


def _asks_for_less(name: str, value: Any, before: Settings) -> bool:
    if name == "profile":
        return value in FOLDER_PROFILES and value != before.profile
    if name == "cache":
        return bool(value == "off" != before.cache)
    rule = FIELDS.get(name)
    if rule is None or not rule.limit:
        return False
    try:
        return bool(checked(rule, value, "") < getattr(before, name))
    except IbidemError:
        return False


def _said(sources: Iterable[SettingsSource]) -> set[str]:
    return {name for each in sources for name in each.values}


def _left(source: SettingsSource, louder: Iterable[SettingsSource]) -> tuple[str, ...]:
    """Names of what it says and nothing stronger does."""
    urls = {name for each in louder for name in each.upstreams}
    values = [name for name in source.values if name not in _said(louder)]
    return (*values, *(f"upstreams.{name}" for name in source.upstreams if name not in urls))


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _named(names: Sequence[str]) -> str:
    shown = [one_line(name[:MAX_KEY_LENGTH]) for name in names[:MAX_NAMED_KEYS]]
    return ", ".join(shown) + (f" and {len(names) - MAX_NAMED_KEYS:,} more" if len(names) > MAX_NAMED_KEYS else "")
