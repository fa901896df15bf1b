"""Estimate the tokens of thinking, whose text can be empty or a summary.

Providers count the full thinking. The length of its signature or encrypted content grows with it, so that is an
estimate.
"""

from __future__ import annotations

from ..model import Thinking
from .model_versions import ANY, FIRST_CLAUDES, NEVER, Versions, is_version

SEALED_CHARACTERS_PER_TOKEN = 6.0
"""Characters of a signature per token of our count, beyond the length that every signature has.

Measured on Claude Code's logs, as recorded output less visible output. Provider tokens are (characters - 290) / 3.8 on
Fable 5, Opus 4.8 and Sonnet 5, half of the values within 30 tokens, with 1.6 provider tokens per token of ours. Earlier
models also have texts, and 5 characters per token."""


def thinking_tokens(part: Thinking, visible: float) -> float:
    """Estimate the tokens of thinking, from the tokens of its text (`visible`) and the length of its signature."""
    return max(visible, part.sealed / SEALED_CHARACTERS_PER_TOKEN)


# ── rules by model version ──────────────────────────────────────────────────────────────────────────────────────────

FIRST_SIGNED: Versions = {
    "mythos-preview": NEVER,
    **dict.fromkeys(("opus", "sonnet", "haiku", "fable", "mythos"), (5, 1)),
    **dict.fromkeys(FIRST_CLAUDES, NEVER),
    "claude": ANY,
}
"""Part of a model's name → first version that signs thinking together with everything before it."""

FIRST_KEPT: Versions = {
    **{"opus": (4, 5), "sonnet": (4, 6)},
    **dict.fromkeys(("haiku", *FIRST_CLAUDES), (5, 0)),
    **{"gpt": (5, 6), "gemini": NEVER},
}
"""Part of a model's name → first version for which thinking counts as input beyond its turn."""


def signs_thinking(model: str) -> bool:
    """Whether a model signs thinking together with everything before it. Unknown Claude models count as such."""
    return is_version(model, FIRST_SIGNED, unknown=False)


def keeps_thinking(model: str) -> bool:
    """Whether thinking of earlier turns counts as input while it is sent, by the model's name, if usage does not show
    it."""
    return is_version(model, FIRST_KEPT, unknown=True)
