"""Codex. It reads no base URL variable, so its command line names the proxy: `-c openai_base_url=…`.

With a ChatGPT login, Codex queries chatgpt.com for the routing of the user's workspace: an origin, and an override in a
header. `openai_base_url` makes Codex ignore both. So `wrap` sends the same query with the same credential. If the
response has a constraint or does not arrive, `wrap` does not route Codex.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import IbidemError, one_line
from .client_setup import WHAT_TO_DO, ClientContext, ClientSetup, is_mentioned, read_settings, split_base_url

LOG_VARIABLE, SHELL_POLICY = "RUST_LOG", "shell_environment_policy"
QUIET_LOG = "error,codex_api::endpoint::responses_websocket=off"
"""Log filter for `codex exec`. Codex tries a WebSocket first, and the proxy makes it fall back to HTTP. Codex prints
that as an error; the filter removes this one message. Commands that Codex runs do not get the variable. If the user or
Codex's settings mention either setting, both stay unchanged."""
PRINTS_LOG = frozenset({"exec", "e", "review"})
ORIGIN = "https://chatgpt.com"
ACCOUNTS_URL = f"{ORIGIN}/backend-api/wham/accounts/check"
PATIENCE = 5.0
"""Seconds to wait for the response of `ACCOUNTS_URL`."""
MAX_ANSWER_BYTES = 2**20
ROUTING_FIELDS = ("workspace_backend_origin", "account_routing_override")
NO_CONSTRAINT = "NO_CONSTRAINT"
"""Value of both routing fields if the workspace has no custom origin or override."""


def prepare_setup(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Return the setup for Codex: its base URL as a `-c` argument."""
    setup = setup.without_providers({"openai"})
    home = _codex_home(context)
    settings = _read_config(home / "config.toml")
    if (own := settings.get("model_provider", "openai")) != "openai":
        return setup.with_notices(_own_provider_notice(one_line(str(own))))
    value, path = settings.get("openai_base_url"), "/v1"
    if "openai" not in context.explicit_providers and value is not None:
        parts = split_base_url(value, "/v1") if isinstance(value, str) else None
        if parts is None:
            return setup
        upstream, path = parts
        # The setting applies to both logins. For ChatGPT, Codex does not send the path.
        setup = setup.with_routes(upstreams={"openai": upstream, "chatgpt": upstream + path})
    elif "chatgpt" not in context.explicit_providers and (why := routing_constraint(home, context)):
        return setup.with_notices(f"Codex connects directly, so there are no savings: {why}.")
    setup = replace(setup, arguments=("-c", f'openai_base_url="{{url}}/openai{path}"'))
    return _filter_log(setup, context, home)


def _filter_log(setup: ClientSetup, context: ClientContext, home: Path) -> ClientSetup:
    folders = (home, Path("/etc/codex"), *(each / ".codex" for each in (context.folder, *context.folder.parents)))
    is_set = LOG_VARIABLE in context.environment or PRINTS_LOG.isdisjoint(context.command)
    if is_set or is_mentioned(SHELL_POLICY, [folder / "config.toml" for folder in folders]):
        return setup
    arguments = (*setup.arguments, "-c", f'{SHELL_POLICY}.exclude=["{LOG_VARIABLE}"]')
    return replace(setup, arguments=arguments).with_routes(variables={LOG_VARIABLE: QUIET_LOG})


def _codex_home(context: ClientContext) -> Path:
    return Path(context.environment.get("CODEX_HOME") or context.home / ".codex")


def _read_config(path: Path) -> dict[str, Any]:
    """Parse config.toml. Raises IbidemError if it is not TOML: Codex may find a base URL in it that we do not know."""
    try:
        return tomllib.loads(read_settings(path).decode())
    except (ValueError, RecursionError):
        raise IbidemError(f"{one_line(str(path))}: not valid TOML: {WHAT_TO_DO}") from None


def _own_provider_notice(name: str) -> str:
    return (
        f"Codex connects directly, so there are no savings: config.toml selects the provider {name}. Set the base_url "
        "of that provider to an `ibidem proxy`, and pass its current value with --upstream openai=URL."
    )


# ── ChatGPT workspaces ──────────────────────────────────────────────────────────────────────────────────────────────


def routing_constraint(home: Path, context: ClientContext) -> str:
    """Return why a ChatGPT login cannot be routed; "" if its workspace has no constraint, or an API key is used."""
    login = chatgpt_login(home, context)
    if login is None:
        return ""
    token, account = login
    headers = {"authorization": f"Bearer {token}", "chatgpt-account-id": account, "accept": "application/json"}
    try:
        answer = json.loads(_fetch(ACCOUNTS_URL, headers, PATIENCE, MAX_ANSWER_BYTES))
        constraints = routing_constraints(answer, account)
    except (OSError, ValueError, RecursionError):
        return f"{urlsplit(ORIGIN).netloc} did not return the routing of this ChatGPT account"
    if not constraints:
        return ""
    return f"requests of this ChatGPT workspace are routed to {one_line(min(constraints)[:100])}"


def chatgpt_login(home: Path, context: ClientContext) -> tuple[str, str] | None:
    """Return access token and account id if Codex is logged in with ChatGPT and no API key is used."""
    if context.environment.get("CODEX_API_KEY"):
        return None
    try:
        login = json.loads(read_settings(home / "auth.json") or b"{}")
        if login.get("auth_mode", "chatgpt").lower() != "chatgpt":
            return None
        tokens = login.get("tokens") or {}
        token, account = tokens.get("access_token"), tokens.get("account_id")
    except (ValueError, RecursionError, AttributeError):
        return None
    return (token, account) if isinstance(token, str) and isinstance(account, str) and token and account else None


def routing_constraints(answer: Any, account: str) -> set[str]:
    """Return the origins and overrides of this account; of all accounts if the response does not have this one.

    Raises ValueError if the response has another structure.
    """
    if not isinstance(answer, dict) or not isinstance(accounts := answer.get("accounts"), list | dict):
        raise ValueError("not a list of accounts")
    rows = accounts.values() if isinstance(accounts, dict) else accounts
    entries = [row for row in rows if isinstance(row, dict)]
    own = [row for row in entries if account in (row.get("id"), row.get("account_id"))]
    values = {str(row.get(name) or "").rstrip("/") for row in own or entries for name in ROUTING_FIELDS}
    return values - {"", ORIGIN, NO_CONSTRAINT}


def _fetch(url: str, headers: dict[str, str], seconds: float, limit: int) -> bytes:
    """GET a URL. Raises OSError."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Stop here: urllib would send the credential to the new host too."""

    with build_opener(NoRedirects).open(Request(url, headers=headers), timeout=seconds) as answer:
        return bytes(answer.read(limit))
