"""What the proxy is told, by whom, and what is said when that is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ibidem import IbidemError, environment
from ibidem.proxy.settings import (
    FIELDS,
    PROVIDERS,
    LoadedSettings,
    Settings,
    inherit_upstreams,
    is_loopback,
    load_settings,
    normalize_base_url,
    read_settings,
)

HERE = Path("here")
OWN = Path("own")

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "host": ("127.0.0.2", "::1", "localhost"),
    "port": (1, 0, 65535),
    "reuse_port": (True, False, True),
    "token": ("a", "b", "c"),
    "page_token": ("d", "e", "f"),
    "texts": (False, True, False),
    "profile": ("recoverable", "codetether", "aggressive"),
    "cache": ("auto", "off", "lifetime"),
    "store": ("a.sqlite3", "redis://localhost", "memory:"),
    "store_days": (7.0, 1.0, 0.0),
    "store_bytes": (1, 0, 10**12),
    "observe": (True, False, True),
    "trial": (0.5, 0.1, 0.9),
    "json_log": ("a.jsonl", "b.jsonl", "-"),
    "ledger": (False, True, False),
    "otel": ("spans", "off", "genai"),
    "record": ("a", "b", "c"),
    "record_days": (7.0, 1.0, 0.0),
    "record_bytes": (1, 0, 10**12),
    "budget_ms": (1.5, 2.5, 10.0),
    "max_body": (1, 2, 3),
    "max_rewrite": (1, 2, 3),
    "conversations": (1, 2, 3),
    "memory_mb": (1, 2, 3),
    "resend": (False, True, False),
    "websockets": (False, True, False),
}
"""For each setting: one for the file, one for the environment, one for the flag."""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    HERE.mkdir()
    OWN.mkdir()


def toml(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def saved(text: str, folder: Path = OWN) -> Path:
    path = folder / "ibidem.toml"
    path.write_text(text)
    return path


def error(**options: Any) -> str:
    with pytest.raises(IbidemError) as caught:
        load_settings(**options)
    said = str(caught.value)
    assert "\n" not in said
    return said


# --- which source is the strongest --------------------------------------------------------------


def test_without_a_word_the_defaults_hold() -> None:
    assert load_settings() == load_settings({}, {}, HERE, OWN) == Settings()
    assert Settings().upstreams == PROVIDERS
    assert is_loopback(Settings().host)


def test_every_setting_can_be_said_in_each_way() -> None:
    assert set(VALUES) == set(FIELDS) == set(Settings.__struct_fields__) - {"upstreams", "regions"}


@pytest.mark.parametrize("name", VALUES)
def test_flags_beat_the_environment_which_beats_the_file(name: str) -> None:
    in_file, in_environment, in_flag = VALUES[name]
    saved(f"[proxy]\n{name} = {toml(in_file)}\n")
    environment = {f"IBIDEM_{name.upper()}": str(in_environment)}
    assert getattr(load_settings({}, {}, None, OWN), name) == in_file
    assert getattr(load_settings({name: None}, environment, None, OWN), name) == in_environment
    assert getattr(load_settings({name: in_flag}, environment, None, OWN), name) == in_flag


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, float("nan"), float("inf")])
def test_a_share_of_all_or_nothing_is_no_trial(share: float) -> None:
    said = f"--trial: '{share}' cannot be used: use a share above 0 and below 1, such as 0.5"
    assert error(flags={"trial": share}) == said


@pytest.mark.parametrize(("name", "value"), [("observe", True), ("ledger", False)])
def test_a_trial_that_could_show_nothing_is_refused(name: str, value: bool) -> None:
    assert error(flags={"trial": 0.5, name: value}).startswith("trial: ")


def test_error_for_a_removed_setting_names_it_and_the_replacement() -> None:
    path = saved("[proxy]\nworkers = 4\n")
    replacement = "this setting was removed: start one process per core, each with --reuse-port (docs/scale.md)"
    assert error(own=OWN) == f"{path}: proxy.workers: {replacement}"
    assert error(environment={"IBIDEM_WORKERS": "4"}) == f"IBIDEM_WORKERS: {replacement}"
    assert error(flags={"workers": "4"}) == f"--workers: {replacement}"
    path.rename(HERE / path.name)
    assert "workers in" in read_settings(folder=HERE).source_line(), (
        "a file in the current folder is not trusted, so it stops nothing"
    )


def test_upstreams_are_joined_by_provider() -> None:
    saved('[proxy.upstreams]\nanthropic = "http://file"\nopenai = "http://file"\ngemini = "http://file"\n')
    environment = {"IBIDEM_UPSTREAM_OPENAI": "http://environment", "IBIDEM_UPSTREAM_GEMINI": "http://environment"}
    found = load_settings({"upstream": ("gemini=http://flag",)}, environment, None, OWN).upstreams
    said = {"anthropic": "http://file", "openai": "http://environment", "gemini": "http://flag"}
    assert found == {**PROVIDERS, **said}
    assert load_settings({"upstream": ()}).upstreams == PROVIDERS


@pytest.mark.parametrize("alias", ["openai", "openai-chat", "openai-responses", "OpenAI"])
def test_wire_formats_of_a_provider_share_its_upstream(alias: str) -> None:
    assert load_settings({"upstream": (f"{alias}=https://proxy.example/base/",)}).upstreams["openai"] == (
        "https://proxy.example/base"
    )
    variable = f"IBIDEM_UPSTREAM_{alias.upper().replace('-', '_')}"
    assert load_settings({}, {variable: "http://[::1]:8080"}).upstreams["openai"] == "http://[::1]:8080"


def test_an_inherited_upstream_is_weaker_than_our_own_variable() -> None:
    found = inherit_upstreams({"IBIDEM_UPSTREAM_ANTHROPIC_AWS": "http://ours"}, {"anthropic-aws": "http://theirs"})
    assert load_settings({}, found).upstreams["anthropic-aws"] == "http://ours"
    assert (
        load_settings({}, inherit_upstreams({}, {"anthropic-aws": "http://theirs"})).upstreams["anthropic-aws"]
        == "http://theirs"
    )


def test_an_empty_variable_is_not_set() -> None:
    names = [*(f"IBIDEM_{name.upper()}" for name in FIELDS), "IBIDEM_UPSTREAM_OPENAI", "IBIDEM_CONFIG"]
    assert load_settings({}, dict.fromkeys(names, "")) == Settings()


def test_variables_of_others_do_not_matter() -> None:
    assert load_settings({}, {"PORT": "1", "IBIDEM_OTHER": "1", "ANTHROPIC_BASE_URL": "http://x"}) == Settings()


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)])
def test_switches_in_the_environment(text: str, value: bool) -> None:
    saved(f"[proxy]\nobserve = {toml(not value)}\n")
    assert load_settings({}, {"IBIDEM_OBSERVE": text}, None, OWN).observe is value


# --- which file ---------------------------------------------------------------------------------


def test_a_named_file_goes_before_both() -> None:
    saved("[proxy]\nport = 1\n", OWN)
    saved("[proxy]\nport = 2\n", HERE)
    for name, port in (("a", 3), ("b", 4)):
        Path(f"{name}.toml").write_text(f"[proxy]\nport = {port}\n")
    assert load_settings({}, {"IBIDEM_CONFIG": "a.toml"}, HERE, OWN).port == 3
    assert load_settings({"config": "b.toml"}, {"IBIDEM_CONFIG": "a.toml"}, HERE, OWN).port == 4


def test_a_named_file_must_be_there() -> None:
    assert error(flags={"config": "missing.toml"}).startswith("missing.toml: No such file or directory: name another")


def test_a_file_may_be_empty() -> None:
    saved("")
    assert load_settings({}, {}, None, OWN) == Settings()


# --- a file that a folder brought along ---------------------------------------------------------

LIMITS = {"budget_ms": 2000.0, "max_rewrite": 16 * 2**20, "conversations": 1000, "memory_mb": 256}


def brought(text: str, mine: str = "", flags: Any = None, environment: Any = None) -> LoadedSettings:
    """With this in the current folder, and that in the user's own."""
    saved(mine, OWN)
    saved(text, HERE)
    return read_settings(flags or {}, environment or {}, HERE, OWN)


@pytest.mark.parametrize("name", [name for name in VALUES if name not in (*LIMITS, "profile")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_folder_decides_nothing(name: str, place: int) -> None:
    """Where requests go, who may ask, what is written where, what is rewritten: nothing of that."""
    value = VALUES[name][place]
    found = brought(f"[proxy]\n{name} = {toml(value)}\n")
    assert found.settings == Settings()
    ignored = value != getattr(Settings(), name)
    assert found.source_line() == (
        f"settings: {name} in here/ibidem.toml ignored: a folder's file may only restrict settings" if ignored else ""
    )


def test_a_folder_does_not_say_where_credentials_go() -> None:
    found = brought('[proxy.upstreams]\nanthropic = "https://elsewhere"\n')
    assert found.settings == Settings()
    assert "upstreams in here/ibidem.toml ignored" in found.source_line()


@pytest.mark.parametrize(
    ("text", "mine", "profile"),
    [
        pytest.param("recoverable", "", "recoverable", id="one that loses nothing is taken"),
        pytest.param("recoverable", "lossless", "lossless", id="the user's is stronger"),
        pytest.param("lossless", "recoverable", "recoverable", id="also where the folder's does less"),
        pytest.param("lossless", "", "lossless", id="what holds anyway"),
        pytest.param("aggressive", "", "lossless", id="one that loses something"),
        pytest.param("codetether", "", "lossless", id="one that breaks caches"),
        pytest.param("x", "", "lossless", id="one that is none"),
    ],
)
def test_which_profile_a_folder_may_name(text: str, mine: str, profile: str) -> None:
    own = f"[proxy]\nprofile = '{mine}'\n" if mine else ""
    found = brought(f"[proxy]\nprofile = '{text}'\n", own)
    assert found.settings.profile == profile
    taken = "profile from here/ibidem.toml" in found.source_line()
    assert taken is (profile == text != "lossless")
    assert ("ignored" in found.source_line()) is (profile != text)


@pytest.mark.parametrize(
    ("text", "mine", "holds"),
    [
        pytest.param("off", "auto", "off", id="off is less"),
        pytest.param("off", "lifetime", "off", id="also than other lifetimes"),
        pytest.param("lifetime", "auto", "auto", id="between the two it has no say"),
        pytest.param("auto", "", "off", id="on is more"),
        pytest.param("lifetime", "", "off", id="other lifetimes are more"),
        pytest.param("off", "", "off", id="what holds anyway"),
    ],
)
def test_a_folder_may_have_marks_left_alone_and_never_set(text: str, mine: str, holds: str) -> None:
    found = brought(f"[proxy]\ncache = '{text}'\n", f"[proxy]\ncache = '{mine}'\n" if mine else "")
    assert found.settings.cache == holds
    assert ("cache from here/ibidem.toml" in found.source_line()) is (holds == text and bool(mine))
    assert ("cache in here/ibidem.toml ignored" in found.source_line()) is (holds != text)
    strong = brought("[proxy]\ncache = 'off'\n", flags={"cache": "auto"})
    assert strong.settings.cache == "auto"


def test_nothing_is_marked_while_observing() -> None:
    assert load_settings({"cache": "auto"}).cache_mode == "auto"
    assert load_settings({"cache": "auto", "observe": True}).cache_mode == "off"


def test_a_cache_mode_that_is_none() -> None:
    assert error(flags={"cache": "always"}) == "--cache: 'always' cannot be used: use one of off, lifetime, auto"
    assert error(environment={"IBIDEM_CACHE": "1"}).startswith("IBIDEM_CACHE: '1' cannot be used")


@pytest.mark.parametrize("name", LIMITS)
def test_a_folder_may_ask_for_less_and_not_for_more(name: str) -> None:
    for value, mine, holds in ((7, None, 7), (7, 9, 7), (9, 7, 7), (10**8 * 2, None, LIMITS[name]), (7, 7, 7)):
        found = brought(f"[proxy]\n{name} = {value}\n", f"[proxy]\n{name} = {mine}\n" if mine else "")
        assert getattr(found.settings, name) == holds
        assert (f"{name} from here/ibidem.toml" in found.source_line()) is (holds == value != mine)
        assert (f"{name} in here/ibidem.toml ignored" in found.source_line()) is (holds != value)


@pytest.mark.parametrize("name", [*LIMITS, "profile"])
def test_what_is_said_at_a_prompt_or_in_a_variable_is_stronger_than_a_folder(name: str) -> None:
    said, in_file = ("lossless", "'recoverable'") if name == "profile" else (7, "1")
    for given in ({"flags": {name: said}}, {"environment": {f"IBIDEM_{name.upper()}": str(said)}}):
        assert getattr(brought(f"[proxy]\n{name} = {in_file}\n", **given).settings, name) == said


def test_which_settings_are_limits() -> None:
    assert set(LIMITS) == {name for name, field in FIELDS.items() if field.can_be_lowered}
    assert all(getattr(Settings(), name) == value for name, value in LIMITS.items())


def test_the_users_own_file_is_always_read_and_the_line_says_what_came_from_where() -> None:
    mine = (
        '[proxy]\nport = 1\nobserve = true\ntoken = "t"\n[proxy.upstreams]\ngemini = "http://x"\nopenai = "http://x"\n'
    )
    text = "[proxy]\nport = 2\nmemory_mb = 9\nconversations = 2000\nwebsockets = false\n"
    found = brought(text, mine, {"observe": False}, {"IBIDEM_UPSTREAM_OPENAI": "http://y"})
    assert (found.settings.port, found.settings.memory_mb, found.settings.websockets) == (1, 9, True)
    assert found.source_line() == (
        "settings: port, token, upstreams.gemini from own/ibidem.toml; memory_mb from here/ibidem.toml; "
        "port, conversations, websockets in here/ibidem.toml ignored: a folder's file may only restrict settings"
    )
    assert found.source_line({"port", "token"}).startswith(
        "settings: upstreams.gemini from own/ibidem.toml; memory_mb from"
    )


WRONG: dict[str, tuple[bytes, str]] = {
    "no TOML": (b"[proxy\n", "here/ibidem.toml ignored: not valid TOML"),
    "no text": (b"\xff\xfe", "here/ibidem.toml ignored: not valid UTF-8"),
    "nested": (b"a=" + b"[" * 5000, "here/ibidem.toml ignored: nested too deeply"),
    "a number beyond reading": (b"a=" + b"9" * 5000, "here/ibidem.toml ignored: not valid TOML"),
    "large": (b"a." * 20_000 + b"a = 1\n", "here/ibidem.toml ignored: longer than 8,192 bytes"),
    "a long name twice": ((b"x" * 3000 + b" = 1\n") * 2, "here/ibidem.toml ignored: not valid TOML"),
    "another table": (b"[prox]\n", "prox in here/ibidem.toml ignored"),
    "no table": (b"proxy = 1\n", "proxy in here/ibidem.toml ignored"),
    "an unknown key": (b"[proxy]\nprot = 1\n", "prot in here/ibidem.toml ignored"),
    "a text for a number": (b'[proxy]\nmemory_mb = "1"\n', "memory_mb in here/ibidem.toml ignored"),
    "a switch for a number": (b"[proxy]\nmemory_mb = true\n", "memory_mb in here/ibidem.toml ignored"),
    "nothing": (b"[proxy]\nmemory_mb = 0\n", "memory_mb in here/ibidem.toml ignored"),
    "no number": (b"[proxy]\nbudget_ms = nan\n", "budget_ms in here/ibidem.toml ignored"),
    "a list for a text": (b"[proxy]\nprofile = ['recoverable']\n", "profile in here/ibidem.toml ignored"),
    "an escape sequence": (b'[proxy]\n"\\u001b[0m" = 1\n', r"; \x1b[0m in here/ibidem.toml ignored"),
    "a long name": (b"[proxy]\n" + b"x" * 5000 + b" = 1\n", f"; {'x' * 40} in here"),
    "many names": (b"[proxy]\n" + b"".join(b"x%d = 1\n" % i for i in range(99)), "x0, x1, x2, x3, x4 and 94 more in"),
}


@pytest.mark.parametrize(("data", "words"), WRONG.values(), ids=WRONG)
def test_a_broken_file_in_a_folder_is_told_and_ignored(data: bytes, words: str) -> None:
    (HERE / "ibidem.toml").write_bytes(data)
    saved("[proxy]\nport = 1\n", OWN)
    found = read_settings({}, {}, HERE, OWN)
    assert found.settings == Settings(port=1)
    assert words in found.source_line()
    assert len(found.source_line()) < 400
    assert found.source_line().isprintable()


UNREAD: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a file without end": lambda path: path.symlink_to("/proc/self/pagemap"),
}


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="no such files here")
@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("place", [HERE, OWN], ids=["of a folder", "the user's own"])
def test_what_is_no_file_is_not_waited_for(name: str, place: Path) -> None:
    UNREAD[name](place / "ibidem.toml")
    if place == OWN:
        assert error(folder=HERE, own=OWN).startswith("own/ibidem.toml: ")
        assert error(flags={"config": str(place / "ibidem.toml")}).startswith("own/ibidem.toml: ")
    else:
        found = read_settings({}, {}, HERE, OWN)
        assert found.settings == Settings()
        assert found.source_line().startswith("settings: here/ibidem.toml ignored: ")


def test_a_link_that_leads_nowhere_is_no_file() -> None:
    (HERE / "ibidem.toml").symlink_to("nowhere")
    assert read_settings({}, {}, HERE, OWN) == (Settings(), ())


def test_a_folder_that_is_the_users_own_is_trusted() -> None:
    saved("[proxy]\nport = 1\n", OWN)
    assert read_settings({}, {}, OWN, OWN).source_line() == "settings: port from own/ibidem.toml"
    (HERE / "ibidem.toml").symlink_to("../own/ibidem.toml")
    assert read_settings({}, {}, HERE, OWN).source_line() == "settings: port from own/ibidem.toml"


def test_a_file_of_a_folder_is_trusted_where_it_is_named() -> None:
    path = saved('[proxy.upstreams]\nanthropic = "https://gateway.example"\n', HERE)
    assert load_settings({"config": str(path)}, {}, HERE, OWN).upstreams["anthropic"] == "https://gateway.example"


# --- what is wrong is said in one line ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[proxy\n", ["not valid TOML", "line 1", "Correct the file"], id="broken TOML"),
        pytest.param("[prox]\n", ["unknown key 'prox'", "use one of proxy"], id="an unknown table"),
        pytest.param("port = 1\n", ["unknown key 'port'", "use one of proxy"], id="a key outside of the table"),
        pytest.param("proxy = 1\n", ["proxy is not a table. Start it with [proxy]"], id="a key for a table"),
        pytest.param("[proxy]\nprot = 1\n", ["proxy: unknown key 'prot'", "port"], id="an unknown key"),
        pytest.param('[proxy]\nport = "1"\n', ["proxy.port: '1' is not a whole number"], id="a text for a number"),
        pytest.param("[proxy]\nport = true\n", ["proxy.port: 'True' is not a whole"], id="a switch for a number"),
        pytest.param("[proxy]\nport = 1.0\n", ["proxy.port: '1.0' is not a whole"], id="a fraction for a whole number"),
        pytest.param("[proxy]\nport = 65536\n", ["proxy.port", "use 1 to 65535, or 0"], id="a port out of range"),
        pytest.param("[proxy]\nport = -1\n", ["proxy.port", "use 1 to 65535, or 0"], id="a negative port"),
        pytest.param("[proxy]\nobserve = 1\n", ["proxy.observe: '1' is not true or false"], id="a number for a switch"),
        pytest.param("[proxy]\nhost = 1\n", ["proxy.host: '1' is not a text"], id="a number for a text"),
        pytest.param('[proxy]\nhost = ""\n', ["proxy.host", "127.0.0.1"], id="no host"),
        pytest.param('[proxy]\nprofile = "x"\n', ["proxy.profile: 'x'", "lossless, codetether"], id="a wrong profile"),
        pytest.param("[proxy]\nbudget_ms = 0\n", ["proxy.budget_ms", "above 0"], id="no time"),
        pytest.param("[proxy]\nbudget_ms = nan\n", ["proxy.budget_ms", "above 0"], id="a time that is no number"),
        pytest.param(f"[proxy]\nbudget_ms = {10**400}\n", ["proxy.budget_ms"], id="a time beyond counting"),
        pytest.param("[proxy]\nmax_body = 0\n", ["proxy.max_body", "above 0"], id="no body"),
        pytest.param("[proxy]\nconversations = 0\n", ["proxy.conversations", "1 or more"], id="no conversations"),
        pytest.param("[proxy]\nmemory_mb = 0\n", ["proxy.memory_mb", "1 or more"], id="no memory"),
        pytest.param("[proxy]\nupstreams = 1\n", ["proxy: upstreams is not a table"], id="a number for upstreams"),
        pytest.param("[proxy.upstreams]\nx = 'http://x'\n", ["upstreams.x: unknown provider 'x'"], id="a wrong format"),
        pytest.param("[proxy.upstreams]\nopenai = 1\n", ["upstreams.openai: invalid URL"], id="a number for a URL"),
    ],
)
def test_what_is_wrong_in_a_file(text: str, words: list[str]) -> None:
    path = saved(text)
    said = error(own=OWN)
    assert said.startswith(f"{path}: ")
    assert all(word in said for word in words), said


def test_a_file_that_is_no_text() -> None:
    path = OWN / "ibidem.toml"
    path.write_bytes(b"\xff")
    assert error(own=OWN) == f"{path}: not valid UTF-8. Save the file as UTF-8"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read() -> None:
    path = saved("")
    path.chmod(0)
    assert "Permission denied" in error(own=OWN)


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        pytest.param("IBIDEM_PORT", "x", "'x' is not a whole number: write a whole number", id="a word for a number"),
        pytest.param("IBIDEM_PORT", "1.5", "'1.5' is not a whole number", id="a fraction for a whole number"),
        pytest.param("IBIDEM_PORT", "9" * 5000, "is not a whole number", id="a number beyond reading"),
        pytest.param("IBIDEM_OBSERVE", "maybe", "'maybe' is not true or false", id="neither true nor false"),
        pytest.param("IBIDEM_BUDGET_MS", "inf", "'inf' cannot be used", id="for ever"),
        pytest.param("IBIDEM_PROFILE", "x\ny", r"'x\\ny' cannot be used: use one of lossless", id="a line break"),
        pytest.param(
            "IBIDEM_UPSTREAM_X", "http://x", "unknown provider 'x'. Use one of anthropic", id="a wrong format"
        ),
        pytest.param("IBIDEM_UPSTREAM_OPENAI", "x", "invalid URL", id="no URL"),
    ],
)
def test_what_is_wrong_in_the_environment(variable: str, text: str, words: str) -> None:
    said = error(environment={variable: text})
    assert said.startswith(f"{variable}: ")
    assert words in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param({"port": 70000}, "--port: '70000' cannot be used: use 1 to 65535", id="a port out of range"),
        pytest.param({"budget_ms": 0.0}, "--budget-ms: '0.0' cannot be used", id="no time"),
        pytest.param({"profile": "x"}, "--profile: 'x' cannot be used: use one of lossless", id="a wrong profile"),
        pytest.param({"upstream": ("anthropic",)}, "--upstream: expected NAME=URL", id="a format without a URL"),
        pytest.param({"upstream": ("https://x",)}, "--upstream: expected NAME=URL", id="a URL without a format"),
        pytest.param({"upstream": ("x=https://x",)}, "--upstream x: unknown provider 'x'", id="a wrong format"),
        pytest.param({"upstream": ("openai=x",)}, "--upstream openai: invalid URL", id="a format without a real URL"),
        pytest.param(
            {"upstream": ("openai-chat=http://a", "openai-responses=http://b")},
            "--upstream openai-responses: openai already has a different upstream",
            id="two upstreams for one provider",
        ),
    ],
)
def test_what_is_wrong_in_a_flag(flags: dict[str, Any], words: str) -> None:
    assert error(flags=flags).startswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api.example.com",
        "ftp://x",
        "http://",
        "http:///path",
        "https://x:0",
        "https://x:99999",
        "https://x:port",
        "https://[::1",
        "http://a b",
        "http://x\n",
        "http://x\\@y",
        "https://me:secret@x",
        "https://secret@x",
        "https://x?secret=1",
        "https://x#secret",
        "https://x?",
    ],
)
def test_urls_that_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(invalid|the) URL") as caught:
        normalize_base_url(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["https://x", "http://x:80", "HTTPS://X/", "http://[::1]:1/a/b/", "https://ä.example"])
def test_urls_are_kept_without_the_slash_at_their_end(text: str) -> None:
    assert normalize_base_url(text) == text.rstrip("/")


# --- safe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert load_settings({"host": host}).token is None


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.7", "example.com", "localhost.example.com", "127.1.example"]
)
def test_an_address_that_others_can_reach_needs_a_token(host: str) -> None:
    assert error(flags={"host": host}).startswith(f"host {host}: other machines can reach this address: set a token")
    assert error(environment={"IBIDEM_HOST": host}).startswith(f"host {host}: ")
    assert (
        load_settings({"host": host, "token": "t"}).host
        == load_settings({"host": host}, {"IBIDEM_TOKEN": "t"}).host
        == host
    )


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "größer", "\x7f"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(token: str) -> None:
    said = error(flags={"token": token})
    assert said == "--token: this cannot be used: use letters, digits and signs, no spaces"


def test_secrets_are_not_shown() -> None:
    shown = repr(load_settings({"token": "hidden-token", "page_token": "hidden-too", "store": "redis://:hidden@x"}))
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("said", "access"),
    [
        ({}, "all"),
        ({"token": "t"}, "all"),
        ({"page_token": "p"}, "token"),
        ({"texts": False}, "none"),
        ({"texts": False, "page_token": "p"}, "none"),
        ({"host": "0.0.0.0", "token": "t"}, "none"),
        ({"host": "0.0.0.0", "token": "t", "texts": True}, "none"),
        ({"host": "0.0.0.0", "token": "t", "page_token": "p"}, "token"),
        ({"host": "::1", "token": "t"}, "all"),
        ({"host": "example.com", "token": "t"}, "none"),
    ],
)
def test_who_sees_texts(said: dict[str, Any], access: str) -> None:
    assert load_settings(said).text_access == access


def test_two_doors_have_two_keys() -> None:
    assert error(flags={"token": "same"}, environment={"IBIDEM_PAGE_TOKEN": "same"}).startswith(
        "page_token: this is the token: set another one (--page-token"
    )


# --- this machine -------------------------------------------------------------------------------


def test_the_users_own_folder_is_where_the_system_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert tmp_path in environment.config_folder().parents


def test_the_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IBIDEM_PORT", "1")
    found = environment.environment_variables()
    assert load_settings({}, found).port == 1
    found["IBIDEM_PORT"] = "2"
    assert os.environ["IBIDEM_PORT"] == "1"
