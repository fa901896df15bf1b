"""Who is compared, by which interface, with which settings.

A peer's first setting is its documented default; the others are what its documentation advises for agents, or the best
of those that were tried for it. docs/benchmarks.md says where each comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic", "openai-chat", "openai-responses", "gemini"
ALL = (ANTHROPIC, CHAT, RESPONSES, GEMINI)
KOMPRESS = ("kompress-v2-base, the model that its text compression asks",)


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    label: str
    door: str
    """A class in `inside`."""
    options: dict[str, Any] = field(default_factory=dict)
    shapes: tuple[str, ...] = ALL
    """Formats that it takes; sessions of others are left out of its row."""
    converted: bool = False
    """It sees messages of its own kind, made from the recorded ones."""
    lacks: tuple[str, ...] = ()
    """What it downloads at the first start, and cannot without a network."""


@dataclass(frozen=True)
class Peer:
    name: str
    requirements: tuple[str, ...]
    """What is installed: the peer itself comes first."""
    settings: tuple[Setting, ...]
    environment: dict[str, str] = field(default_factory=dict)
    """Variables for it; `{packages}` is where it is installed."""


HEADROOM_PROXY = {
    "command": ["headroom", "proxy", "--port", "{port}", "--no-rate-limit", "--no-cache"],
    "environment": {
        **dict.fromkeys(("ANTHROPIC_TARGET_API_URL", "OPENAI_TARGET_API_URL"), "{upstream}"),
        "HEADROOM_UPDATE_CHECK": "off",
    },
    "recovery": "headroom",
}
ENTROLY_PROXY = {
    "command": ["entroly", "proxy", "--port", "{port}"],
    "environment": {
        **dict.fromkeys(("ENTROLY_ANTHROPIC_BASE", "ENTROLY_OPENAI_BASE"), "{upstream}"),
        "ENTROLY_RATE_LIMIT": "0",
    },
    "recovery": "entroly",
}

CLEAR_MUCH = {"trigger": 50_000, "clear_at_least": 25_000}

PEERS = (
    Peer("nothing done", (str(ROOT),), (Setting("", "Nothing"),)),
    Peer(
        "ibidem",
        (str(ROOT),),
        (
            Setting("lossless (default)", "Ibidem", {"profile": "lossless"}),
            Setting("recoverable", "Ibidem", {"profile": "recoverable"}),
        ),
    ),
    Peer(
        "headroom-ai",
        ("headroom-ai[proxy]",),
        (
            Setting("compress()", "Headroom", shapes=(ANTHROPIC, CHAT), lacks=KOMPRESS),
            Setting('compress(mode="agent")', "Headroom", {"mode": "agent"}, (ANTHROPIC, CHAT)),
            Setting("headroom proxy", "Proxied", HEADROOM_PROXY, (ANTHROPIC, CHAT, RESPONSES), lacks=KOMPRESS),
        ),
        # What it would download at the first start, from what is installed with it.
        {
            "TIKTOKEN_CACHE_DIR": "{packages}/litellm/litellm_core_utils/tokenizers",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    ),
    Peer(
        "llmtrim",
        ("llmtrim",),
        (
            Setting("compress()", "Llmtrim"),
            Setting('preset "agent"', "Llmtrim", {"preset": "agent"}),
            Setting('preset "safe"', "Llmtrim", {"preset": "safe"}),
        ),
    ),
    Peer(
        "entroly",
        ("entroly",),
        (
            Setting("compress_messages()", "Entroly"),
            Setting("compress_messages(client_key=…)", "Entroly", {"keyed": True}),
            Setting("compress_proxy_payload()", "EvidenceLocked"),
            Setting("entroly proxy", "Proxied", ENTROLY_PROXY, (ANTHROPIC, CHAT, RESPONSES)),
        ),
    ),
    Peer(
        "langchain",
        ("langchain",),
        (
            Setting("ClearToolUsesEdit()", "LangChain", converted=True),
            Setting("… trigger=30k", "LangChain", {"trigger": 30_000}, converted=True),
            Setting("… 50k, clear_at_least=25k", "LangChain", CLEAR_MUCH, converted=True),
        ),
    ),
    Peer(
        "openai-agents",
        ("openai-agents",),
        (
            Setting("ToolOutputTrimmer()", "Agents", converted=True),
            Setting("… recent_turns=1", "Agents", {"recent_turns": 1}, converted=True),
        ),
    ),
)
