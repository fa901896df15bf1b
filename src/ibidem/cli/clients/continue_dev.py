"""Continue's command line, `cn`. Its YAML configuration has the base URL of each model, so `wrap` gives it a copy.

The copy only has additional lines, so no YAML parser is needed. A configuration that this cannot handle is not changed.
Gemini models are routed by a variable. OpenAI models are not routed: with any other base URL, Continue uses Chat
Completions instead of Responses and sends `max_tokens`, which newer models reject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import one_line
from .client_setup import ClientContext, ClientSetup, first_argument, read_settings

BASE_URLS = {"anthropic": "{url}/anthropic/v1/", "openrouter": "{url}/openrouter/v1/"}
"""By Continue's provider: the `apiBase` to insert."""
BY_VARIABLE = frozenset({"gemini"})
SUBCOMMANDS = frozenset({"ls", "serve", "checks", "review", "login", "logout", "remote"})
COPY = "config.yaml"
_UNSUPPORTED = {
    "an apiBase": re.compile("apiBase"),
    "a reference to another file": re.compile(r"\buses:"),  # it may be relative to this one
    "a merge key": re.compile(r"<<\s*:"),  # a model of another provider could inherit a line that is inserted
    "a proxy": re.compile(r"\bproxy[\"']?\s*:"),  # Continue would send the credential to that in clear
    "the text {url} or {folder}": re.compile(r"\{(?:url|folder)\}"),  # `wrap` would replace it
    "bytes that are not UTF-8": re.compile("[\udc80-\udcff]"),
}
"""By name: content that a copy cannot have."""
_MODELS = re.compile(r"models:\s*(?:#.*)?")
_ITEM = re.compile(r"( *)(- +)\S")
_PROVIDER = re.compile(r"""provider:\s+(["']?)([\w.-]+)\1\s*(?:\s#.*)?""")


def prepare_setup(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Return the setup for `cn` with a copy of its configuration."""
    setup = setup.without_providers({"anthropic", "openai"})
    if (command := first_argument(context.command[1:])) in SUBCOMMANDS:
        return setup.with_notices(_direct_notice(f"`cn {command}` gets no configuration from ibidem"))
    own, rest = take_option(context.command[1:], "--config")
    home = Path(context.environment.get("CONTINUE_GLOBAL_DIR") or context.home / ".continue")
    path = context.folder / own if own else home / "config.yaml"
    text = read_settings(path).decode("utf-8", "surrogateescape")
    if not text:
        return setup.with_notices(_direct_notice(f"{one_line(own) or path} is not a file on this machine"))
    if stopper := next((name for name, pattern in _UNSUPPORTED.items() if pattern.search(text)), None):
        return setup.with_notices(_direct_notice(f"{path} has {stopper}, so ibidem cannot copy it"))
    copy, providers = route_models(text)
    if not providers:
        return setup.with_notices(_direct_notice(f"ibidem finds no model with a provider in {path}"))
    if others := sorted(providers - BASE_URLS.keys() - BY_VARIABLE):
        line = f"Continue's models of {', '.join(others)} connect directly, so there are no savings for them."
        setup = setup.with_notices(line)
    if copy == text:
        return setup
    return replace(
        setup,
        command=(context.command[0], *rest),
        arguments=("--config", f"{{folder}}/{COPY}"),
        files={**setup.files, COPY: copy},
    )


def route_models(text: str) -> tuple[str, set[str]]:
    """The configuration with an `apiBase` for each model that can be routed, and the names of all providers in it."""
    lines, providers = list[str](), set[str]()
    in_models, item_indent, key_indent = False, -1, -1
    for line in text.splitlines(keepends=True):
        lines.append(line)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] not in " -":
            in_models, item_indent = bool(_MODELS.fullmatch(line.strip()) and line[0] != " "), -1
            continue
        item = _ITEM.match(line) if in_models else None
        if item and item_indent in (-1, len(item[1])):
            item_indent, key_indent = len(item[1]), len(item[1]) + len(item[2])
        elif not in_models or len(line) - len(line.lstrip()) != key_indent:
            continue
        if match := _PROVIDER.fullmatch(line[key_indent:].rstrip()):
            providers.add(match[2])
            if url := BASE_URLS.get(match[2]):
                end = line[len(line.rstrip("\r\n")) :] or "\n"
                lines[-1] = f"{line.rstrip(chr(13) + chr(10))}{end}{' ' * key_indent}apiBase: {url}{end}"
    return "".join(lines), providers


def take_option(arguments: Sequence[str], name: str) -> tuple[str, tuple[str, ...]]:
    """The last value of an option ("" if it is not given), and the arguments without the option."""
    value, rest, words = "", list[str](), iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == name:
            value = next(words, "")
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
        else:
            rest.append(word)
    return value, tuple(rest)


def _direct_notice(why: str) -> str:
    return f"Continue connects directly, so there are no savings: {why}."
