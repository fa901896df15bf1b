"""The agents that are known, how each finds the proxy, and the versions that we were run with."""

from __future__ import annotations

from typing import NamedTuple


class KnownClient(NamedTuple):
    command: str
    name: str
    tested: str
    """The version that was run with ibidem; empty where none was."""
    found_by: str
    """How it is led to the proxy."""


KNOWN_CLIENTS = (
    KnownClient("claude", "Claude Code", "2.1.325", "ANTHROPIC_BASE_URL; env in its settings.json is stronger"),
    KnownClient("codex", "Codex", "0.166.0", "openai_base_url in its config.toml, or behind -c; it reads no variable"),
    KnownClient("opencode", "opencode", "1.18.33", "OPENCODE_CONFIG_CONTENT, or baseURL in its configuration"),
    KnownClient("gemini", "Gemini CLI", "0.61.0", "GOOGLE_GEMINI_BASE_URL, with an API key"),
    KnownClient("pi", "pi", "1.5.0", "nothing that ibidem wrap sets: only its logs are read, by ibidem report"),
    KnownClient("aider", "aider", "", "ANTHROPIC_API_BASE, OPENAI_API_BASE, GEMINI_API_BASE"),
    KnownClient("goose", "goose", "", "ANTHROPIC_HOST, OPENAI_HOST, GOOGLE_HOST"),
)

NODE_TESTED = 22
"""On an older Node, npm installs a Claude Code of June 2026 without a word: newer packages ask for this one."""

QUIET = {
    "AIDER_CHECK_UPDATE": "false",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_UPDATE_NOTIFIER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "true",
}
"""Variables that keep programs from looking for updates while they tell their version."""
