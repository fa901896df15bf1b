"""What is said around the settings of each client: where they go, what else counts, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import settings

WARNING = "A client whose settings lead to the proxy fails whenever the proxy does not run, until you undo them."
FIRST_CHOICE = "Rather put this into the startup file of your shell; without a proxy the client then runs as before:"


class Advice(NamedTuple):
    """How one client, or the system, is set up."""

    wrapped: str
    """The program that `ibidem wrap` would run instead; empty where there is none."""
    where: str
    """The file to put it in."""
    text: Callable[[str], str]
    """What to put there, for a proxy at an address."""
    notes: tuple[str, ...]
    undo: str
    needs_proxy: bool = True
    lead: str = "For clients that no alias reaches, put this into"


SERVICE_LEAD = "To have the proxy started when you log in, for clients that are led to it, put this into"
STARTED = "The proxy must run: ibidem setup service prints how to have it started for you."

ADVICE: dict[str, Advice] = {
    "claude": Advice(
        "claude",
        "~/.claude/settings.json (join it with what is there)",
        settings.claude,
        (
            "It is stronger than variables of your shell, also than what ibidem wrap sets: use one of the two.",
            "Stronger still are .claude/settings.json and .claude/settings.local.json in a project.",
            STARTED,
        ),
        "Remove these lines from env.",
    ),
    "codex": Advice(
        "codex",
        "~/.codex/config.toml (above the first line that begins with [)",
        settings.codex,
        (
            "A provider of your own (model_provider) goes past it: set base_url in its table instead.",
            "Start the proxy with --no-websockets: what Codex sends through a WebSocket cannot be rewritten.",
            STARTED,
        ),
        "Remove the line.",
    ),
    "opencode": Advice(
        "opencode",
        "~/.config/opencode/opencode.json (join it with what is there)",
        settings.opencode,
        ("ibidem wrap leaves opencode alone from then on.", STARTED),
        "Remove the lines with baseURL.",
    ),
    "ide": Advice(
        "",
        "the settings.json of VS Code, for the extension of Claude Code (join it with what is there)",
        settings.ide,
        (
            "Extensions of Claude Code, also that of JetBrains, read ~/.claude/settings.json: ibidem setup claude is "
            "enough for them, and counts in terminals too.",
            "The extension of Codex reads ~/.codex/config.toml: see ibidem setup codex.",
            "Other extensions have a field for the address of their provider: {url}/anthropic for Anthropic, "
            "{url}/openai/v1 for OpenAI, {url}/gemini for Google.",
            STARTED,
        ),
        "Remove the setting, and reload the window.",
    ),
    "systemd": Advice(
        "claude",
        "~/.config/systemd/user/ibidem.service",
        settings.systemd,
        (
            "Then: systemctl --user daemon-reload && systemctl --user enable --now ibidem",
            "It does not see variables of your shell: proxies and certificates go into an override "
            "(systemctl --user edit ibidem), settings into ~/.config/ibidem/ibidem.toml.",
            "What it says: journalctl --user -u ibidem",
        ),
        "systemctl --user disable --now ibidem, and delete the file. First undo what leads clients to it.",
        lead=SERVICE_LEAD,
    ),
    "launchd": Advice(
        "claude",
        f"~/Library/LaunchAgents/{settings.LABEL}.plist",
        settings.launchd,
        (
            f"Then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{settings.LABEL}.plist",
            "It does not see variables of your shell: proxies and certificates go into EnvironmentVariables there, "
            "settings into ~/Library/Application Support/ibidem/ibidem.toml.",
            "What it says: ~/Library/Logs/ibidem.log",
        ),
        f"launchctl bootout gui/$(id -u)/{settings.LABEL}, and delete the file. First undo what leads clients to it.",
        lead=SERVICE_LEAD,
    ),
    "statusline": Advice(
        "",
        "~/.claude/settings.json (join it with what is there)",
        settings.statusline,
        ("What was saved is known for sessions whose requests come through ibidem; the rest is the client's own.",),
        "Remove statusLine.",
        needs_proxy=False,
        lead="Put this into",
    ),
}


def before(advice: Advice) -> list[str]:
    """What to know first, and where it goes."""
    lines: list[str] = []
    if advice.needs_proxy:
        lines.append(WARNING)
    if advice.needs_proxy and advice.wrapped:
        lines += [FIRST_CHOICE, "", f"  alias {advice.wrapped}='ibidem wrap -- {advice.wrapped}'", ""]
    return [*lines, f"{advice.lead} {advice.where}:", ""]


def after(advice: Advice, url: str) -> list[str]:
    """What else counts, and the way back."""
    check = ["Afterwards, ibidem doctor says whether the proxy is found."] if advice.needs_proxy else []
    notes = [note.format(url=url) for note in advice.notes]
    return ["", *(f"- {note}" for note in [*notes, *check]), f"- To undo it: {advice.undo}"]
