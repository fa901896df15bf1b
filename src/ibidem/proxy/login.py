"""Whether a request is paid by use or covered by a subscription, by the kind of its credential."""

from __future__ import annotations

from typing import Literal

from .headers import HeaderList, first, known

LoginKind = Literal["key", "plan"]

CLAUDE_TOKEN = "bearer sk-ant-oat"  # how the login of a subscription starts
CLAUDE_BETA = "oauth-2025-04-20"
CHATGPT_HEADER = "chatgpt-account-id"


def login_kind(headers: HeaderList) -> LoginKind:
    """`plan` for the login of a Claude or ChatGPT subscription. The credential is not kept."""
    headers = known(headers)
    bearer = first(headers, "authorization").lower()
    betas = {beta.strip() for beta in first(headers, "anthropic-beta").split(",")}
    is_claude = bearer.startswith(CLAUDE_TOKEN) or (bearer.startswith("bearer ") and CLAUDE_BETA in betas)
    return "plan" if is_claude or first(headers, CHATGPT_HEADER) else "key"
