"""How large thinking is for its provider, which shows us a summary of it, or nothing.

Its text may be empty or a summary, while the provider counts what the model thought. What is sealed beside it (a
signature, encrypted content) grows with that, so its length tells the size.
"""

from __future__ import annotations

from ..model import Thinking
from .versions import ANY, FIRST_CLAUDES, NEVER, Versions, reaches

SEALED_CHARACTERS_PER_TOKEN = 6.0
"""Characters of a seal, beyond those that every one has, for a token as we count them.

Measured on Claude Code's logs, where recorded output less what is visible tells the size: tokens of the provider are
(characters - 290) / 3.8 on Fable 5, Opus 4.8 and Sonnet 5, half of them within 30 tokens, and there are 1.6 of them for
one of ours. Models before have texts as well, and 5 characters for a token."""


def thinking_tokens(part: Thinking, visible: float) -> float:
    """Tokens that a provider counts for thinking, given those of its text."""
    return max(visible, part.sealed / SEALED_CHARACTERS_PER_TOKEN)


# ── what models make of it ──────────────────────────────────────────────────────────────────────────────────────────

FIRST_SIGNED: Versions = {
    "mythos-preview": NEVER,
    **dict.fromkeys(("opus", "sonnet", "haiku", "fable", "mythos"), (5, 1)),
    **dict.fromkeys(FIRST_CLAUDES, NEVER),
    "claude": ANY,
}
"""By what a model's name holds, the first version that signs thinking against all that was sent before it."""

FIRST_KEPT: Versions = {
    **{"opus": (4, 5), "sonnet": (4, 6)},
    **dict.fromkeys(("haiku", *FIRST_CLAUDES), (5, 0)),
    **{"gpt": (5, 6), "gemini": NEVER},
}
"""Likewise, the first one for which thinking counts beyond its turn."""


def signs_thinking(model: str) -> bool:
    """Whether thinking is signed against all that was sent before it: by name, since no count tells.

    A name of Claude that tells no version, or a family that is not known, counts as one that does.
    """
    return reaches(model, FIRST_SIGNED, unknown=False)


def keeps_thinking(model: str) -> bool:
    """Whether thinking of earlier turns counts as long as it is sent, where nothing that was counted tells."""
    return reaches(model, FIRST_KEPT, unknown=True)
