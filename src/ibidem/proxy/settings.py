"""Settings of the proxy: flags override the environment, which overrides the user's `ibidem.toml` and the defaults.

`settings_schema` checks each setting, and `read_settings` merges the sources. An error is one line that names the
source.

An `ibidem.toml` in the current folder may be part of code that the user did not write, so it may only restrict. It may
select a recoverable profile if the user selects none, lower limits, and turn off cache directives. Its other settings
are ignored, and so is the whole file if it is invalid. Both are reported, and neither stops the proxy.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ..billing.cache_ttl import CACHE_MODES, CacheMode
from ..environment import read_bounded
from ..errors import IbidemError, one_line
from ..providers.addresses import PROVIDERS as PROVIDERS
from ..providers.addresses import environment_regions as _regions
from ..providers.addresses import is_loopback as is_loopback
from ..providers.addresses import normalize_base_url as normalize_base_url
from ..providers.addresses import parse_upstreams as _upstreams
from ..store.retention import DEFAULT_BYTES, DEFAULT_DAYS, USE_BYTES, USE_DAYS, is_valid_days
from ..strategies.profiles import PROFILES, is_profile_name
from .listen_address import OTEL_MODES
from .settings_schema import REMOVED, SettingField, check_field, parse_field, setting_fields, setting_limits

SETTINGS_FILE = "ibidem.toml"
SETTINGS_TABLE = "proxy"
VARIABLE_PREFIX = "IBIDEM_"
OWN_BYTES = 2**16
FOLDER_BYTES = 2**13
"""Maximum bytes of a settings file. The time of `tomllib` grows with the square of the size."""
FOLDER_PROFILES = ("lossless", "balanced", "recoverable")
"""Profiles that a file in the current folder may name."""
DEFAULT_RECORD_DAYS, DEFAULT_RECORD_BYTES = 30, 1_000_000_000
"""Default retention of recordings: days, and bytes in total."""
MAX_NAMED_KEYS, MAX_KEY_LENGTH, MAX_REASON = 5, 40, 100
"""Ignored keys that a message names, characters of each, and characters of a message from the TOML parser."""


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


Switch = Annotated[bool, setting_limits()]
Token = Annotated[
    str, setting_limits("use letters, digits and signs, no spaces", _is_visible, secret=True, min_length=1)
]
Days = Annotated[float, setting_limits(USE_DAYS, is_valid_days)]
Bytes = Annotated[int, setting_limits(USE_BYTES, ge=0)]
Milliseconds = Annotated[
    float, setting_limits("use milliseconds above 0, or --observe to rewrite none", gt=0, lt=1e9, less=True)
]
SECRETS = frozenset({"token", "page_token", "store"})
"""Settings that are not shown: a URL of a store may hold a password."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a proxy, all checked."""

    host: Annotated[str, setting_limits("use a name or address like 127.0.0.1", _is_visible, min_length=1)] = (
        "127.0.0.1"
    )
    """Where to listen. Anything but loopback needs a token."""
    port: Annotated[int, setting_limits("use 1 to 65535, or 0 for a free one", ge=0, le=65535)] = 8123
    """Port to listen on; 0 for a free one."""
    reuse_port: Switch = False
    """Let other processes of this user listen on the same port. `ibidem wrap` uses its own port."""
    token: Token | None = None
    """Secret that a client must send as `x-ibidem-token`, and a browser as `?token=`. It is never forwarded."""
    page_token: Token | None = None
    """Second secret, as `x-ibidem-page-token` or `?page_token=`, without which no texts of clients are shown."""
    texts: Switch = True
    """True if texts of clients can be shown at all."""
    profile: Annotated[
        str, setting_limits(f"use one of {', '.join(PROFILES)}, or module:attribute", is_profile_name)
    ] = "lossless"
    cache: Annotated[CacheMode, setting_limits(f"use one of {', '.join(CACHE_MODES)}")] = "off"
    """Prompt caching: unchanged (`off`), with another TTL than the client requests (`lifetime`), or with cache
    breakpoints in requests without them too (`auto`)."""
    upstreams: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(PROVIDERS))
    """Base URL by provider, without a trailing slash. Its path, if any, is put before the path of the request."""
    regions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Region by provider, for requests that do not name one."""
    store: Annotated[str, setting_limits("use a file, a redis:// URL or memory:", bool, secret=True)] | None = None
    """Store for originals and conversations. None: the user's default store. A URL may hold a password."""
    store_days: Days = DEFAULT_DAYS
    """Days after which an unused conversation is deleted from the store; 0 for never."""
    store_bytes: Bytes = DEFAULT_BYTES
    """Size above which the least recently used conversations are deleted from the store; 0 for no limit."""
    observe: Switch = False
    """Rewrite nothing, only measure what would have been saved."""
    trial: Annotated[float, setting_limits("use a share above 0 and below 1, such as 0.5", gt=0, lt=1)] | None = None
    """Share of conversations to rewrite. The others are only measured, for `ibidem gain --trial`."""
    json_log: Annotated[str, setting_limits("use a file, or - for standard output", bool)] | None = None
    """File for one JSON object per exchange; `-` for standard output."""
    ledger: Switch = True
    """True if tokens and cost of each request (no texts) are stored for `ibidem gain`."""
    otel: Annotated[str, setting_limits(f"use one of {', '.join(OTEL_MODES)}", OTEL_MODES.__contains__)] = "off"
    """OpenTelemetry data: none, spans of the rewriting (`spans`), or of the model calls too (`genai`)."""
    record: Annotated[str, setting_limits("use a folder", bool)] | None = None
    """Folder for the bodies of requests and responses, one file per conversation. They contain texts."""
    record_days: Days = DEFAULT_RECORD_DAYS
    """Days after its last write when a recording is deleted; 0 for never."""
    record_bytes: Bytes = DEFAULT_RECORD_BYTES
    """Size above which the oldest recordings are deleted; 0 for no limit."""
    budget_ms: Milliseconds = 2000.0
    """Milliseconds for rewriting one request. After that, it is sent without new edits."""
    max_body: Annotated[int, setting_limits("use a number of bytes above 0", ge=1)] = 100 * 2**20
    """Maximum bytes of a request; a larger one gets status 413. Not `less`: a folder's file could block requests."""
    max_rewrite: Annotated[int, setting_limits("use a number of bytes above 0", ge=1, less=True)] = 16 * 2**20
    """Maximum new bytes in a request. With more, it is forwarded unchanged."""
    conversations: Annotated[int, setting_limits("use 1 or more", ge=1, less=True)] = 1000
    """Maximum conversations in memory. The least recently used are evicted."""
    memory_mb: Annotated[int, setting_limits("use 1 or more", ge=1, less=True)] = 256
    """MiB of text that conversations may hold in memory."""
    resend: Switch = True
    """True if a rejected rewritten request is sent again, first without new edits, then unchanged."""
    websockets: Switch = True
    """False: model requests for a WebSocket, where nothing can be rewritten, get status 426 (use HTTP)."""

    def __repr__(self) -> str:
        visible = ((name, value) for name, value in msgspec.structs.asdict(self).items() if name not in SECRETS)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in visible)})"

    @property
    def cache_mode(self) -> CacheMode:
        """Caching mode in effect: `off` if nothing may be rewritten."""
        return "off" if self.observe else self.cache

    @property
    def text_access(self) -> str:
        """Access to texts of clients: `all` users of the proxy, only with the page `token`, or `none`."""
        if not self.texts:
            return "none"
        if self.page_token is not None:
            return "token"
        return "all" if is_loopback(self.host) else "none"


FIELDS = setting_fields(Settings)


class SettingsFile(NamedTuple):
    """Settings file, and which of its settings are in effect."""

    path: str
    taken: tuple[str, ...]
    """Names of settings that this file decides."""
    ignored: tuple[str, ...] = ()
    """Names of settings that a file in the current folder must not change."""
    broken: str = ""
    """Why the file is invalid and therefore ignored."""


class LoadedSettings(NamedTuple):
    """Settings, and the files that they come from."""

    settings: Settings
    files: tuple[SettingsFile, ...]

    def source_line(self, unused: Container[str] = ()) -> str:
        """Return which settings come from which file, in a line; empty if none do. Settings in `unused` are omitted."""
        parts: list[str] = []
        for path, names_taken, ignored, problem in self.files:
            if names := [name for name in names_taken if name not in unused]:
                parts.append(f"{', '.join(names)} from {path}")
            if ignored:
                parts.append(f"{_list_names(ignored)} in {path} ignored: a folder's file may only restrict settings")
            if problem:
                parts.append(f"{path} ignored: {problem}")
        return f"settings: {'; '.join(parts)}" if parts else ""


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own: Path | None = None,
) -> Settings:
    """Load settings without their sources."""
    return read_settings(flags, environment, folder, own).settings


def read_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own: Path | None = None,
) -> LoadedSettings:
    """Merge settings from flags, environment and files.

    `flags` has values by setting; None if omitted. Its `upstream` is a list of texts like `openai=https://…`. If
    `config` (or IBIDEM_CONFIG) names a file, only that file is read, and it must exist. Otherwise `ibidem.toml` in
    `own`, a folder that only this user can write to, is read, and then the one in `folder`, which may only restrict.
    """
    flags, environment = flags or {}, environment or {}
    config_path = flags.get("config") or environment.get(f"{VARIABLE_PREFIX}CONFIG")
    own_path = Path(config_path) if config_path else own / SETTINGS_FILE if own else None
    source = _read_file(own_path, missing=not config_path) if own_path else None
    overriding = (_read_environment(environment), _read_flags(flags))
    values: dict[str, Any] = {}
    upstreams = dict(PROVIDERS)
    for each in (source or SettingsSource({}, {}), *overriding):  # the source with the highest priority comes last
        values.update(each.values)
        upstreams.update(each.upstreams)
    files = [SettingsFile(one_line(str(own_path)), _effective_names(source, overriding))] if source else []
    folder_path = folder / SETTINGS_FILE if folder and not config_path else None
    if folder_path and not (own_path and _is_same_file(own_path, folder_path)):
        restrictions, folder_file = _read_folder_file(
            folder_path, Settings(**values), set(values) & {"profile"} | _names_in(overriding)
        )
        values.update(restrictions)
        files += [folder_file] if folder_file else []
    settings = Settings(**values, upstreams=upstreams, regions=_regions(environment))
    _check_exposure(settings)
    _check_trial(settings)
    return LoadedSettings(settings, tuple(files))


def _check_exposure(settings: Settings) -> None:
    if not is_loopback(settings.host) and settings.token is None:
        raise IbidemError(
            f"host {one_line(settings.host)}: other machines can reach this address: "
            f"set a token (--token, {VARIABLE_PREFIX}TOKEN)"
        )
    if settings.page_token is not None and settings.page_token == settings.token:
        raise IbidemError(f"page_token: this is the token: set another one (--page-token, {VARIABLE_PREFIX}PAGE_TOKEN)")


def _check_trial(settings: Settings) -> None:
    if settings.trial is None:
        return
    if settings.observe:
        raise IbidemError("trial: --observe rewrites no requests, so there are no variants to compare. Remove one")
    if not settings.ledger:
        raise IbidemError("trial: needs the usage database of requests. Remove --no-ledger")


def check_flags(flags: Mapping[str, Any]) -> None:
    """Check flags without loading other sources. Raises IbidemError for an invalid one."""
    _read_flags(flags)


def explicit_upstreams(flags: Mapping[str, Any], environment: Mapping[str, str]) -> set[str]:
    """Return the providers whose upstream a flag or an `IBIDEM_` variable sets."""
    return {*_read_flags(flags).upstreams, *_read_environment(environment).upstreams}


def inherit_upstreams(environment: Mapping[str, str], upstreams: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with more upstreams as `IBIDEM_` variables. Existing variables win."""
    return {**{_upstream_variable(name): url for name, url in upstreams.items()}, **environment}


def _upstream_variable(provider: str) -> str:
    return f"{VARIABLE_PREFIX}UPSTREAM_{provider.upper().replace('-', '_')}"


# --- the sources --------------------------------------------------------------------------------


class SettingsSource(NamedTuple):
    """Settings from one source, checked."""

    values: dict[str, Any]
    upstreams: dict[str, str]


def _check_setting(
    name: str, value: Any, where: str, check: Callable[[SettingField, Any, str], Any] = check_field
) -> Any:
    if name in REMOVED:
        raise IbidemError(f"{where}: {REMOVED[name]}")
    return check(FIELDS[name], value, where)


def _read_flags(flags: Mapping[str, Any]) -> SettingsSource:
    values = {
        name: _check_setting(name, flags[name], f"--{name.replace('_', '-')}")
        for name in (*FIELDS, *REMOVED)
        if flags.get(name) is not None
    }
    upstream_settings = []
    for text in flags.get("upstream") or ():
        name, equals, url = text.partition("=")
        if not equals:
            raise IbidemError("--upstream: expected NAME=URL, such as anthropic=https://api.example.com")
        upstream_settings.append((name.strip().lower(), url.strip(), f"--upstream {one_line(name)}"))
    return SettingsSource(values, _upstreams(upstream_settings))


def _read_environment(environment: Mapping[str, str]) -> SettingsSource:
    """Read the `IBIDEM_` variables. An empty variable is not set."""
    values = {
        name: _check_setting(name, text, variable, parse_field)
        for name in (*FIELDS, *REMOVED)
        if (text := environment.get(variable := f"{VARIABLE_PREFIX}{name.upper()}"))
    }
    start = f"{VARIABLE_PREFIX}UPSTREAM_"
    upstream_variables = [
        (name.removeprefix(start).lower().replace("_", "-"), name) for name in environment if name.startswith(start)
    ]
    return SettingsSource(
        values, _upstreams((it, environment[name], name) for it, name in upstream_variables if environment[name])
    )


def _read_file(path: Path, *, missing: bool) -> SettingsSource | None:
    """Read the user's own file. None if it does not exist and may be missing."""
    where = one_line(str(path))
    tables = _read_toml(path, OWN_BYTES)
    if tables is None and not missing:
        raise IbidemError(f"{where}: No such file or directory: name another with --config")
    if tables is None:
        return None
    table = _check_table(tables, SETTINGS_TABLE, (SETTINGS_TABLE,), where)
    upstreams = _check_table(table, "upstreams", ("upstreams", *FIELDS), f"{where}: {SETTINGS_TABLE}", REMOVED)
    return SettingsSource(
        {
            name: _check_setting(name, value, f"{where}: {SETTINGS_TABLE}.{name}")
            for name, value in table.items()
            if name != "upstreams"
        },
        _upstreams(
            (name, url, f"{where}: {SETTINGS_TABLE}.upstreams.{one_line(name)}") for name, url in upstreams.items()
        ),
    )


def _read_toml(path: Path, most: int) -> dict[str, Any] | None:
    data = read_bounded(path, most, "name another with --config")
    where = one_line(str(path))
    try:
        return None if data is None else tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise IbidemError(f"{where}: not valid UTF-8. Save the file as UTF-8") from None
    except RecursionError:
        raise IbidemError(f"{where}: nested too deeply. Correct the file") from None
    except ValueError as error:  # not only TOMLDecodeError: an integer that is too long raises a plain ValueError
        raise IbidemError(f"{where}: not valid TOML ({one_line(str(error)[:MAX_REASON])}). Correct the file") from None


def _check_table(
    parent: Mapping[str, Any], name: str, known_keys: tuple[str, ...], where: str, removed: Container[str] = ()
) -> dict[str, Any]:
    """Return the table `name` of `parent`. Every other key in `parent` must be known, or removed."""
    for key in parent:
        if key not in known_keys and key not in removed:
            raise IbidemError(f"{where}: unknown key {one_line(key)!r}: use one of {', '.join(sorted(known_keys))}")
    table = parent.get(name, {})
    if not isinstance(table, dict):
        raise IbidemError(f"{where}: {name} is not a table. Start it with [{name}]")
    return table


# --- the file in the current folder -------------------------------------------------------------


def _read_folder_file(
    path: Path, before: Settings, user_settings: Container[str]
) -> tuple[dict[str, Any], SettingsFile | None]:
    """Return the settings that a folder's file may change, and the report about it. `user_settings`: by the user."""
    where = one_line(str(path))
    try:
        tables = _read_toml(path, FOLDER_BYTES)
    except IbidemError as error:
        return {}, SettingsFile(where, (), broken=str(error).removeprefix(f"{where}: "))
    if tables is None:
        return {}, None
    table = tables.get(SETTINGS_TABLE)
    values = table if isinstance(table, dict) else {}
    ignored = [name for name in tables if name != SETTINGS_TABLE or values is not table]
    accepted: dict[str, Any] = {}
    for name, value in values.items():
        if name not in user_settings and _asks_for_less(name, value, before):
            accepted[name] = _check_setting(name, value, where)
        elif name in ("upstreams", *FIELDS) and value == getattr(before, name):
            continue  # no change, so not worth a report
        else:
            ignored.append(name)
    return accepted, SettingsFile(where, tuple(accepted), tuple(ignored)) if accepted or ignored else None


def _asks_for_less(name: str, value: Any, before: Settings) -> bool:
    if name == "profile":
        return value in FOLDER_PROFILES and value != before.profile
    if name == "cache":
        return bool(value == "off" != before.cache)
    rule = FIELDS.get(name)
    if rule is None or not rule.can_be_lowered:
        return False
    try:
        return bool(check_field(rule, value, "") < getattr(before, name))
    except IbidemError:
        return False


def _names_in(sources: Iterable[SettingsSource]) -> set[str]:
    return {name for each in sources for name in each.values}


def _effective_names(source: SettingsSource, overriding: Iterable[SettingsSource]) -> tuple[str, ...]:
    """Return the names of settings that only this source sets, and none with higher priority."""
    urls = {name for each in overriding for name in each.upstreams}
    values = [name for name in source.values if name not in _names_in(overriding)]
    return (*values, *(f"upstreams.{name}" for name in source.upstreams if name not in urls))


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _list_names(names: Sequence[str]) -> str:
    visible = [one_line(name[:MAX_KEY_LENGTH]) for name in names[:MAX_NAMED_KEYS]]
    return ", ".join(visible) + (f" and {len(names) - MAX_NAMED_KEYS:,} more" if len(names) > MAX_NAMED_KEYS else "")
