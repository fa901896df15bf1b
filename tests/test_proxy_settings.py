"""What the proxy is told, by whom, and what is said when that is wrong."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ibidem import IbidemError, machine
from ibidem.proxy.settings import FIELDS, PROVIDERS, Settings, base_url, is_loopback, load

HERE = Path("here")
OWN = Path("own")

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "host": ("127.0.0.2", "::1", "localhost"),
    "port": (1, 0, 65535),
    "token": ("a", "b", "c"),
    "profile": ("recoverable", "codetether", "aggressive"),
    "store": ("a.sqlite3", "redis://localhost", "memory:"),
    "observe": (True, False, True),
    "json_log": ("a.jsonl", "b.jsonl", "-"),
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
        load(**options)
    said = str(caught.value)
    assert "\n" not in said
    return said


# --- which source is the strongest --------------------------------------------------------------


def test_without_a_word_the_defaults_hold() -> None:
    assert load() == load({}, {}, HERE, OWN) == Settings()
    assert Settings().upstreams == PROVIDERS
    assert is_loopback(Settings().host)


def test_every_setting_can_be_said_in_each_way() -> None:
    assert set(VALUES) == set(FIELDS) == set(asdict(Settings())) - {"upstreams"}


@pytest.mark.parametrize("name", VALUES)
def test_flags_beat_the_environment_which_beats_the_file(name: str) -> None:
    in_file, in_environment, in_flag = VALUES[name]
    saved(f"[proxy]\n{name} = {toml(in_file)}\n")
    environment = {f"IBIDEM_{name.upper()}": str(in_environment)}
    assert getattr(load({}, {}, None, OWN), name) == in_file
    assert getattr(load({name: None}, environment, None, OWN), name) == in_environment
    assert getattr(load({name: in_flag}, environment, None, OWN), name) == in_flag


def test_upstreams_are_joined_by_provider() -> None:
    saved('[proxy.upstreams]\nanthropic = "http://file"\nopenai = "http://file"\ngemini = "http://file"\n')
    environment = {"IBIDEM_UPSTREAM_OPENAI": "http://environment", "IBIDEM_UPSTREAM_GEMINI": "http://environment"}
    found = load({"upstream": ("gemini=http://flag",)}, environment, None, OWN).upstreams
    said = {"anthropic": "http://file", "openai": "http://environment", "gemini": "http://flag"}
    assert found == {**PROVIDERS, **said}
    assert load({"upstream": ()}).upstreams == PROVIDERS


@pytest.mark.parametrize("alias", ["openai", "openai-chat", "openai-responses", "OpenAI"])
def test_wire_formats_of_a_provider_share_its_upstream(alias: str) -> None:
    assert load({"upstream": (f"{alias}=https://proxy.example/base/",)}).upstreams["openai"] == (
        "https://proxy.example/base"
    )
    variable = f"IBIDEM_UPSTREAM_{alias.upper().replace('-', '_')}"
    assert load({}, {variable: "http://[::1]:8080"}).upstreams["openai"] == "http://[::1]:8080"


def test_an_empty_variable_is_not_set() -> None:
    names = [*(f"IBIDEM_{name.upper()}" for name in FIELDS), "IBIDEM_UPSTREAM_OPENAI", "IBIDEM_CONFIG"]
    assert load({}, dict.fromkeys(names, "")) == Settings()


def test_variables_of_others_do_not_matter() -> None:
    assert load({}, {"PORT": "1", "IBIDEM_OTHER": "1", "ANTHROPIC_BASE_URL": "http://x"}) == Settings()


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)])
def test_switches_in_the_environment(text: str, value: bool) -> None:
    saved(f"[proxy]\nobserve = {toml(not value)}\n")
    assert load({}, {"IBIDEM_OBSERVE": text}, None, OWN).observe is value


# --- which file ---------------------------------------------------------------------------------


def test_the_file_of_the_folder_goes_before_the_users_own() -> None:
    saved("[proxy]\nport = 1\nconversations = 1\n", OWN)
    assert load({}, {}, HERE, OWN).port == 1
    saved("[proxy]\nport = 2\n", HERE)
    found = load({}, {}, HERE, OWN)
    assert (found.port, found.conversations) == (2, 1000)


def test_a_named_file_goes_before_both() -> None:
    saved("[proxy]\nport = 1\n", OWN)
    saved("[proxy]\nport = 2\n", HERE)
    for name, port in (("a", 3), ("b", 4)):
        Path(f"{name}.toml").write_text(f"[proxy]\nport = {port}\n")
    assert load({}, {"IBIDEM_CONFIG": "a.toml"}, HERE, OWN).port == 3
    assert load({"config": "b.toml"}, {"IBIDEM_CONFIG": "a.toml"}, HERE, OWN).port == 4


def test_a_named_file_must_be_there() -> None:
    assert error(flags={"config": "missing.toml"}).startswith("missing.toml: No such file or directory: name another")


def test_a_file_may_be_empty() -> None:
    saved("")
    assert load({}, {}, None, OWN) == Settings()


PRIVATE = {
    "host": '[proxy]\nhost = "127.0.0.1"\n',
    "token": '[proxy]\ntoken = "a"\n',
    "store": '[proxy]\nstore = "redis://elsewhere"\n',
    "json_log": '[proxy]\njson_log = "/etc/x"\n',
    "upstreams": '[proxy.upstreams]\nanthropic = "https://elsewhere"\n',
}


@pytest.mark.parametrize("name", PRIVATE)
def test_a_file_that_a_folder_brought_along_cannot_say_where_credentials_and_texts_go(name: str) -> None:
    path = saved(PRIVATE[name], HERE)
    said = error(folder=HERE, own=OWN)
    assert said.startswith(f"{path}: proxy.{name}: not from a file in the current folder")
    assert "--config ibidem.toml" in said
    load({"config": str(path)})
    saved(PRIVATE[name], OWN)
    load({}, {}, OWN, OWN)  # my own folder, and I am in it


def test_what_is_private_is_what_is_tested() -> None:
    assert set(PRIVATE) - {"upstreams"} == {name for name, field in FIELDS.items() if field.private}


# --- what is wrong is said in one line ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[proxy\n", ["not valid TOML", "line 1", "correct it there"], id="broken TOML"),
        pytest.param("[prox]\n", ["unknown key 'prox'", "use one of proxy"], id="an unknown table"),
        pytest.param("port = 1\n", ["unknown key 'port'", "use one of proxy"], id="a key outside of the table"),
        pytest.param("proxy = 1\n", ["proxy is not a table: begin one with [proxy]"], id="a key for a table"),
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
        pytest.param("[proxy.upstreams]\nx = 'http://x'\n", ["upstreams.x: unknown format 'x'"], id="a wrong format"),
        pytest.param("[proxy.upstreams]\nopenai = 1\n", ["upstreams.openai: this is no URL"], id="a number for a URL"),
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
    assert error(own=OWN) == f"{path}: not valid UTF-8: save it as UTF-8"


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
        pytest.param("IBIDEM_UPSTREAM_X", "http://x", "unknown format 'x': use one of anthropic", id="a wrong format"),
        pytest.param("IBIDEM_UPSTREAM_OPENAI", "x", "this is no URL", id="no URL"),
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
        pytest.param({"upstream": ("anthropic",)}, "--upstream: expected FORMAT=URL", id="a format without a URL"),
        pytest.param({"upstream": ("https://x",)}, "--upstream: expected FORMAT=URL", id="a URL without a format"),
        pytest.param({"upstream": ("x=https://x",)}, "--upstream x: unknown format 'x'", id="a wrong format"),
        pytest.param(
            {"upstream": ("openai=x",)}, "--upstream openai: this is no URL", id="a format without a real URL"
        ),
        pytest.param(
            {"upstream": ("openai-chat=http://a", "openai-responses=http://b")},
            "--upstream openai-responses: openai has another upstream already",
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
    with pytest.raises(ValueError, match=r"^(this is no|a) URL.*:") as caught:
        base_url(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["https://x", "http://x:80", "HTTPS://X/", "http://[::1]:1/a/b/", "https://ä.example"])
def test_urls_are_kept_without_the_slash_at_their_end(text: str) -> None:
    assert base_url(text) == text.rstrip("/")


# --- safe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert load({"host": host}).token is None


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.7", "example.com", "localhost.example.com", "127.1.example"]
)
def test_an_address_that_others_can_reach_needs_a_token(host: str) -> None:
    assert error(flags={"host": host}).startswith(f"host {host}: others can reach this address: set a token")
    assert error(environment={"IBIDEM_HOST": host}).startswith(f"host {host}: ")
    assert load({"host": host, "token": "t"}).host == load({"host": host}, {"IBIDEM_TOKEN": "t"}).host == host


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "größer", "\x7f"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(token: str) -> None:
    said = error(flags={"token": token})
    assert said == "--token: this cannot be used: use letters, digits and signs, no spaces"


def test_secrets_are_not_shown() -> None:
    shown = repr(load({"token": "hidden-token", "store": "redis://:hidden@x"}))
    assert "hidden" not in shown


# --- this machine -------------------------------------------------------------------------------


def test_the_users_own_folder_is_where_the_system_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert tmp_path in machine.config_folder().parents


def test_the_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IBIDEM_PORT", "1")
    found = machine.environment()
    assert load({}, found).port == 1
    found["IBIDEM_PORT"] = "2"
    assert os.environ["IBIDEM_PORT"] == "1"
