"""Which lines are inserted into the configuration of Continue, and which configurations are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibidem.cli.clients.continue_dev import route_models, take_option

from .test_setup import URL, changed, prepare, start

HEAD = "name: Mine\nversion: 1.0.0\nmodels:\n"
MODEL = "  - name: Claude\n    provider: anthropic\n    model: claude-sonnet-4-5\n"
LED = "  - name: Claude\n    provider: anthropic\n    apiBase: {url}/anthropic/v1/\n    model: claude-sonnet-4-5\n"


def write(folder: Path, text: str, name: str = ".continue/config.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(HEAD + MODEL, HEAD + LED, id="a model"),
        pytest.param(
            HEAD + MODEL + "rules:\n  - Be brief\n", HEAD + LED + "rules:\n  - Be brief\n", id="more behind it"
        ),
        pytest.param(HEAD + MODEL + MODEL, HEAD + LED + LED, id="two models"),
        pytest.param(
            "models: # mine\n- provider: 'openrouter' # x\n  model: a/b",
            "models: # mine\n- provider: 'openrouter' # x\n  apiBase: {url}/openrouter/v1/\n  model: a/b",
            id="provider first, not indented, no newline at the end",
        ),
        pytest.param("models:\r\n  - provider: anthropic\r\n", None, id="lines that end with CR LF"),
        pytest.param(
            "models:\n  - model: x\n    roles:\n    - chat\n\n    # comment\n    provider: anthropic",
            "models:\n  - model: x\n    roles:\n    - chat\n\n    # comment\n"
            "    provider: anthropic\n    apiBase: {url}/anthropic/v1/\n",
            id="a list in a model, and the provider at the end of the file",
        ),
    ],
)
def test_base_url_is_inserted_below_the_provider(before: str, after: str | None) -> None:
    after = after or "models:\r\n  - provider: anthropic\r\n    apiBase: {url}/anthropic/v1/\r\n"
    assert route_models(before)[0] == after


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("other:\n  - provider: anthropic\n", id="another list"),
        pytest.param("models:\n  - name: x\nother:\n  - provider: anthropic\n", id="the list ended"),
        pytest.param("x:\n  models:\n    - provider: anthropic\n", id="a list of this name in another key"),
        pytest.param("models:\n  - x: |\n      provider: anthropic\n    name: y\n", id="a text"),
        pytest.param("models:\n  - x:\n      provider: anthropic\n", id="a nested key"),
        pytest.param("models: [{provider: anthropic, model: x}]\n", id="flow style"),
        pytest.param("models:\n  - provider: anthropic-like\n", id="another provider"),
        pytest.param(HEAD + MODEL.replace("anthropic", "openai"), id="OpenAI"),
    ],
)
def test_other_lines_are_left_alone(text: str) -> None:
    assert route_models(text)[0] == text


def test_continue_gets_a_copy_of_its_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + MODEL)
    setup = prepare("cn -p hi", {"ANTHROPIC_BASE_URL": "https://ignored"}, tmp_path)
    assert (dict(setup.files), setup.upstreams, setup.notices) == ({"config.yaml": HEAD + LED}, {}, ())
    assert start("cn -p hi", {}, tmp_path)[0] == ["cn", "--config", "/temporary/config.yaml", "-p", "hi"]
    assert path.read_text() == HEAD + MODEL
    write(tmp_path, HEAD + LED, "other.yaml")
    write(tmp_path, "models:\n  - provider: openrouter\n", "mine/c.yaml")
    setup = prepare("cn --config mine/c.yaml hi", {}, tmp_path)
    assert "openrouter" in setup.files["config.yaml"]
    started = start("cn --auto --config mine/c.yaml hi", {}, tmp_path)[0]
    assert started == ["cn", "--config", "/temporary/config.yaml", "--auto", "hi"]
    write(tmp_path, "models:\n  - provider: openrouter\n", "global/config.yaml")
    setup = prepare("cn", {"CONTINUE_GLOBAL_DIR": str(tmp_path / "global")}, tmp_path)
    assert "openrouter" in setup.files["config.yaml"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "config.yaml is not a file"),
        (HEAD + LED, "an apiBase"),
        (HEAD + MODEL + "rules:\n  - uses: file://./rules.md\n", "a reference to another file"),
        (HEAD + MODEL + "  - <<: *base\n    provider: gemini\n", "a merge key"),
        (HEAD + MODEL + "    requestOptions: {proxy: http://corp}\n", "a proxy"),
        (HEAD + MODEL + "prompts:\n  - prompt: Read {url}\n", "the text {url}"),
        ("models: []\n", "no model with a provider"),
        (HEAD + MODEL.replace("anthropic", "openai"), "Continue's models of openai connect directly"),
    ],
)
def test_configuration_that_cannot_be_copied_is_left_alone(tmp_path: Path, text: str, why: str) -> None:
    if text:
        write(tmp_path, text)
    setup = prepare("cn hi", {}, tmp_path)
    (notice,) = setup.notices
    assert why in notice
    assert "there are no savings" in notice
    assert (setup.files, start("cn hi", {}, tmp_path)[0]) == ({}, ["cn", "hi"])


def test_configuration_on_the_hub_and_subcommands_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, HEAD + MODEL)
    assert start("cn --config owner/package hi", {}, tmp_path)[0] == ["cn", "--config", "owner/package", "hi"]
    assert "owner/package is not a file" in prepare("cn --config owner/package hi", {}, tmp_path).notices[0]
    assert start("cn review", {}, tmp_path)[0] == ["cn", "review"]
    assert "`cn review`" in prepare("cn review", {}, tmp_path).notices[0]


def test_gemini_models_are_led_by_their_variable(tmp_path: Path) -> None:
    write(tmp_path, "models:\n  - provider: gemini\n")
    assert prepare("cn", {}, tmp_path).notices == ()
    assert changed("cn", {}, tmp_path)["GOOGLE_GEMINI_BASE_URL"] == f"{URL}/gemini"


def test_option_is_taken_from_arguments() -> None:
    assert take_option(["-p", "--config", "a", "--config=b", "hi"], "--config") == ("b", ("-p", "hi"))
    assert take_option(["hi", "--", "--config", "a"], "--config") == ("", ("hi", "--", "--config", "a"))
