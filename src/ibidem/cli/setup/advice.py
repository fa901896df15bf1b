"""Advice that `ibidem setup` prints around the settings of each client: target file, notes, and how to undo them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import snippets

WARNING = "With these settings, the client fails while the proxy is not running, until you undo them."
ALIAS_ADVICE = "This alias in your shell's startup file is safer: if there is no proxy, the client runs without it."


class Advice(NamedTuple):
    """Advice for one client, or for one service manager."""

    program: str
    """Program to run with `ibidem wrap` instead; "" if there is none."""
    target_file: str
    """File for the settings."""
    make_settings: Callable[[str], str]
    """Function that returns the settings for a proxy at an address."""
    notes: tuple[str, ...]
    undo: str
    needs_proxy: bool = True
    lead: str = "For clients that ignore aliases, add this to"


SERVICE_LEAD = "To start the proxy at login, add this to"
NEEDS_RUNNING_PROXY = "The proxy must be running. ibidem setup service prints how to start it at login."

ADVICE: dict[str, Advice] = {
    "claude": Advice(
        "claude",
        "~/.claude/settings.json (merge it with the existing content)",
        snippets.claude_settings,
        (
            "It overrides variables of your shell, and the variables that ibidem wrap sets. Use only one of the two.",
            ".claude/settings.json and .claude/settings.local.json in a project override it.",
            NEEDS_RUNNING_PROXY,
        ),
        "Remove these lines from env.",
    ),
    "codex": Advice(
        "codex",
        "~/.codex/config.toml (above the first line that starts with [)",
        snippets.codex_settings,
        (
            "It does not apply to your own provider (model_provider): set base_url in its table instead.",
            "Start the proxy with --no-websockets: requests that Codex sends through a WebSocket cannot be rewritten.",
            NEEDS_RUNNING_PROXY,
        ),
        "Remove the line.",
    ),
    "opencode": Advice(
        "opencode",
        "~/.config/opencode/opencode.json (merge it with the existing content)",
        snippets.opencode_settings,
        ("With these settings, ibidem wrap does not route opencode.", NEEDS_RUNNING_PROXY),
        "Remove the lines with baseURL.",
    ),
    "ide": Advice(
        "",
        "the settings.json of VS Code, for the Claude Code extension (merge it with the existing content)",
        snippets.vscode_settings,
        (
            "The Claude Code extensions for VS Code and JetBrains also read ~/.claude/settings.json. ibidem setup "
            "claude covers them, and terminals too.",
            "The Codex extension reads ~/.codex/config.toml: see ibidem setup codex.",
            "Other extensions have a field for the base URL of their provider: {url}/anthropic for Anthropic, "
            "{url}/openai/v1 for OpenAI, {url}/gemini for Google.",
            NEEDS_RUNNING_PROXY,
        ),
        "Remove the setting, and reload the window.",
    ),
    "systemd": Advice(
        "claude",
        "~/.config/systemd/user/ibidem.service",
        snippets.systemd_unit,
        (
            "Then: systemctl --user daemon-reload && systemctl --user enable --now ibidem",
            "It does not get variables of your shell. Set proxies and certificates in an override "
            "(systemctl --user edit ibidem), and other settings in ~/.config/ibidem/ibidem.toml.",
            "Log: journalctl --user -u ibidem",
        ),
        "systemctl --user disable --now ibidem, and delete the file. First undo the settings of clients.",
        lead=SERVICE_LEAD,
    ),
    "launchd": Advice(
        "claude",
        f"~/Library/LaunchAgents/{snippets.LABEL}.plist",
        snippets.launchd_plist,
        (
            f"Then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{snippets.LABEL}.plist",
            "It does not get variables of your shell. Set proxies and certificates in its EnvironmentVariables, and "
            "other settings in ~/Library/Application Support/ibidem/ibidem.toml.",
            "Log: ~/Library/Logs/ibidem.log",
        ),
        f"launchctl bootout gui/$(id -u)/{snippets.LABEL}, and delete the file. First undo the settings of clients.",
        lead=SERVICE_LEAD,
    ),
    "statusline": Advice(
        "",
        "~/.claude/settings.json (merge it with the existing content)",
        snippets.statusline_settings,
        ("Savings are shown for sessions that use ibidem. All other numbers come from the client.",),
        "Remove statusLine.",
        needs_proxy=False,
        lead="Add this to",
    ),
}


def lines_before(advice: Advice) -> list[str]:
    """Return the lines before the settings: a warning, a safer alternative, and the target file."""
    lines: list[str] = []
    if advice.needs_proxy:
        lines.append(WARNING)
    if advice.needs_proxy and advice.program:
        lines += [ALIAS_ADVICE, "", f"  alias {advice.program}='ibidem wrap -- {advice.program}'", ""]
    return [*lines, f"{advice.lead} {advice.target_file}:", ""]


def lines_after(advice: Advice, url: str) -> list[str]:
    """Return the lines after the settings: notes, and how to undo them."""
    check = ["Then run ibidem doctor to check that the proxy is reachable."] if advice.needs_proxy else []
    notes = [note.format(url=url) for note in advice.notes]
    return ["", *(f"- {note}" for note in [*notes, *check]), f"- To undo it: {advice.undo}"]
