"""The clients of tests_slow/test_default_path.py: programs, logins that can be played, and their scripted sessions."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ibidem.testing import Answer, Calls, Says

from .default_path import COMMANDS, END, NEW, OLD, PROMPT, Client, Json

ANTHROPIC_KEY, OPENAI_KEY, GEMINI_KEY = "sk-ant-api03-no-door", "sk-proj-opens-no-door", "AIzaSyOpensNoDoor"
DAY_MS = 86_400_000

Call = tuple[str, Json | str]


def session(read: Call, run: Callable[[str], Call], edit: Call) -> list[Answer]:
    """Read a file, show it by commands, edit it, and run one command twice."""
    cat, head, tail, once, twice = map(run, COMMANDS)
    calls = [read, cat, head, edit, cat, tail, once, twice]
    return [Calls(calls[0], says="Let me look."), *map(Calls, calls[1:]), Says(END)]


def _claude_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("Read", {"file_path": path}),
        lambda command: ("Bash", {"command": command, "description": "Show the file"}),
        ("Edit", {"file_path": path, "old_string": OLD, "new_string": NEW}),
    )


CLAUDE = ("-p", PROMPT, "--output-format", "json", "--allowedTools", "Read,Bash,Edit")
CLAUDE_LOGIN: Json = {
    "accessToken": "sk-ant-oat01-opens-no-door",
    "refreshToken": "sk-ant-ort01-opens-no-door",
    "expiresAt": int(time.time() * 1000) + DAY_MS,
    "scopes": ["user:inference", "user:profile"],
    "subscriptionType": "max",
    "rateLimitTier": "default_claude_max_5x",
}

CLAUDE_KEY = Client(
    program="claude",
    login="API key",
    format="anthropic",
    arguments=CLAUDE,
    session=_claude_session,
    variables={"ANTHROPIC_API_KEY": ANTHROPIC_KEY},
)
AUTO_MODE = replace(
    CLAUDE_KEY,
    arguments=("-p", PROMPT, "--output-format", "stream-json", "--verbose", "--permission-mode", "auto"),
)
CLAUDE_SUBSCRIPTION = Client(
    program="claude",
    login="subscription",
    format="anthropic",
    arguments=CLAUDE,
    session=_claude_session,
    files={".claude/.credentials.json": {"claudeAiOauth": CLAUDE_LOGIN}},
)


def _codex_session(_: Path) -> list[Answer]:
    patch = f"*** Begin Patch\n*** Update File: a.py\n@@\n-{OLD}\n+{NEW}\n*** End Patch\n"
    return session(
        codex_exec("cat -n a.py"), codex_exec, ("exec", f"text(await tools.apply_patch({json.dumps(patch)}));")
    )


def codex_exec(command: str) -> Call:
    """Run a command with the tool that the model has in Codex: JavaScript that calls the real tools."""
    given = json.dumps({"cmd": command})
    return "exec", f"const r = await tools.exec_command({given});\ntext(r.output);"


def _token(claims: Json) -> str:
    """An unsigned JWT."""
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, "c2ln"])


CODEX = ("exec", "--skip-git-repo-check", "--json", "--sandbox", "danger-full-access", PROMPT)
CODEX_KEY = Client(
    program="codex",
    login="API key",
    format="openai-responses",
    arguments=CODEX,
    session=_codex_session,
    variables={"CODEX_API_KEY": OPENAI_KEY},
)
ACCOUNT = "account-1"
CHATGPT_CLAIMS: Json = {
    "email": "nobody@example.com",
    "exp": int(time.time()) + 86_400,
    "https://api.openai.com/auth": {
        "chatgpt_plan_type": "pro",
        "chatgpt_account_id": ACCOUNT,
        "chatgpt_user_id": "user-1",
    },
}
CHATGPT_LOGIN: Json = {
    "auth_mode": "chatgpt",
    "OPENAI_API_KEY": None,
    "tokens": {
        "id_token": _token(CHATGPT_CLAIMS),
        "access_token": _token(CHATGPT_CLAIMS),
        "refresh_token": "opens-no-door",
        "account_id": ACCOUNT,
    },
    "last_refresh": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
}


def _workspace(origin: str, override: str) -> Json:
    """The answer to Codex's question where the requests of a workspace go."""
    routing = {"workspace_backend_origin": origin, "account_routing_override": override}
    return {"accounts": [{"id": ACCOUNT, "plan_type": "pro", **routing}]}


CODEX_SUBSCRIPTION = Client(
    program="codex",
    login="ChatGPT",
    format="openai-responses",
    arguments=CODEX,
    session=_codex_session,
    files={".codex/auth.json": CHATGPT_LOGIN},
    canned={"wham/accounts/check": _workspace("NO_CONSTRAINT", "NO_CONSTRAINT")},
)
CODEX_RESIDENCY = replace(
    CODEX_SUBSCRIPTION,
    login="ChatGPT, routing header",
    canned={"wham/accounts/check": _workspace("https://chatgpt.com", "us")},
    routed=False,
)
"""Its requests have a header that Codex sends to its own base URL only."""
CODEX_WORKSPACE = replace(
    CODEX_SUBSCRIPTION,
    login="ChatGPT, another origin",
    canned={"wham/accounts/check": _workspace("https://us.chatgpt.example", "us")},
    routed=False,
)


def _opencode_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("read", {"filePath": path}),
        lambda command: ("bash", {"command": command, "description": "Show the file"}),
        ("edit", {"filePath": path, "oldString": OLD, "newString": NEW}),
    )


OPENCODE_MODEL: Json = {
    "reasoning": False,
    "tool_call": True,
    "limit": {"context": 200_000, "output": 8_000},
    "modalities": {"input": ["text"], "output": ["text"]},
}


def _opencode(login: str, provider: str, model: str, format: str, **variables: str) -> Client:
    """Models are described in its settings: it fetches its list of them from a host of its own."""
    models = {model: {"name": model, **OPENCODE_MODEL}}
    settings = {"provider": {provider: {"models": models}}, "permission": {"*": "allow"}, "autoupdate": False}
    quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    return Client(
        program="opencode",
        login=login,
        format=format,
        arguments=("run", "-m", f"{provider}/{model}", PROMPT),
        session=_opencode_session,
        variables={**quiet, **variables},
        files={".config/opencode/opencode.json": settings},
    )


OPENCODE_ANTHROPIC = _opencode(
    "Anthropic key", "anthropic", "claude-sonnet-4-5", "anthropic", ANTHROPIC_API_KEY=ANTHROPIC_KEY
)
OPENCODE_OPENAI = _opencode("OpenAI key", "openai", "gpt-4.1", "openai-responses", OPENAI_API_KEY=OPENAI_KEY)
OPENCODE_GOOGLE = _opencode(
    "Google key", "google", "gemini-2.5-flash", "gemini", GOOGLE_GENERATIVE_AI_API_KEY=GEMINI_KEY
)


def _run_slowly(command: str) -> Call:
    """Run a command that stays for a moment: Qwen Code may lose the output of one that ends at once."""
    return "run_shell_command", {"command": f"{command}; sleep 0.3", "description": "Show", "is_background": False}


def _gemini_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("read_file", {"file_path": path}),
        _run_slowly,
        ("replace", {"file_path": path, "old_string": OLD, "new_string": NEW, "instruction": "Change function_77."}),
    )


GEMINI_SETTINGS: Json = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "general": {"disableAutoUpdate": True},
}
GEMINI = Client(
    program="gemini",
    login="API key",
    format="gemini",
    arguments=("--yolo", "-m", "gemini-2.5-flash", "-p", PROMPT),
    session=_gemini_session,
    variables={"GEMINI_API_KEY": GEMINI_KEY},
    files={".gemini/settings.json": GEMINI_SETTINGS},
)


def _qwen_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("read_file", {"file_path": path}),
        _run_slowly,
        ("edit", {"file_path": path, "old_string": OLD, "new_string": NEW}),
    )


QWEN_SETTINGS: Json = {
    "security": {"auth": {"selectedType": "openai"}},
    "privacy": {"usageStatisticsEnabled": False},
}
QWEN_DEFAULT = Client(
    program="qwen",
    login="key, no base URL",
    format="openai-chat",
    arguments=("--yolo", "-p", PROMPT),
    session=_qwen_session,
    variables={"OPENAI_API_KEY": OPENAI_KEY, "OPENAI_MODEL": "qwen3-coder-plus"},
    files={".qwen/settings.json": QWEN_SETTINGS},
    routed=False,
)
"""Sends its key to Alibaba, not to OpenAI."""
QWEN = replace(
    QWEN_DEFAULT,
    login="OpenAI key and base URL",
    variables={
        "OPENAI_API_KEY": OPENAI_KEY,
        "OPENAI_MODEL": "gpt-5",
        "OPENAI_BASE_URL": "https://api.openai.com/v1",
    },
    routed=True,
)


def _pi_session(_: Path) -> list[Answer]:
    return session(
        ("read", {"path": "a.py"}),
        lambda command: ("bash", {"command": command}),
        ("edit", {"path": "a.py", "edits": [{"oldText": OLD, "newText": NEW}]}),
    )


PI = Client(
    program="pi",
    login="Anthropic key",
    format="anthropic",
    arguments=("--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", PROMPT),
    session=_pi_session,
    variables={"ANTHROPIC_API_KEY": ANTHROPIC_KEY},
)


def _copilot_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("view", {"path": path}),
        lambda command: ("bash", {"command": command, "description": "Show", "mode": "sync"}),
        ("edit", {"path": path, "old_str": OLD, "new_str": NEW}),
    )


def _copilot(kind: str, format: str, url: str, model: str, key: str) -> Client:
    return Client(
        program="copilot",
        login=f"own provider, {kind}",
        format=format,
        arguments=("-p", PROMPT, "--allow-all-tools", "-s"),
        session=_copilot_session,
        variables={
            "COPILOT_PROVIDER_TYPE": kind,
            "COPILOT_PROVIDER_BASE_URL": url,
            "COPILOT_PROVIDER_API_KEY": key,
            "COPILOT_MODEL": model,
        },
    )


COPILOT_OPENAI = _copilot("openai", "openai-chat", "https://api.openai.com/v1", "gpt-4.1", OPENAI_KEY)
COPILOT_ANTHROPIC = _copilot("anthropic", "anthropic", "https://api.anthropic.com", "claude-sonnet-4-5", ANTHROPIC_KEY)


def _cline_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("read_files", {"files": [{"path": path}]}),
        lambda command: ("run_commands", {"commands": [command]}),
        ("editor", {"path": path, "old_text": OLD, "new_text": NEW}),
    )


CLINE = Client(
    program="cline",
    login="Anthropic key",
    format="anthropic",
    arguments=("-P", "anthropic", "-m", "claude-sonnet-4-5", "-k", ANTHROPIC_KEY, PROMPT),
    session=_cline_session,
)


def _continue_session(project: Path) -> list[Answer]:
    path = str(project / "a.py")
    return session(
        ("Read", {"filepath": path}),
        lambda command: ("Bash", {"command": command}),
        ("MultiEdit", {"file_path": path, "edits": [{"old_string": OLD, "new_string": NEW}]}),
    )


CONTINUE_CONFIG = f"""name: test
version: 1.0.0
schema: v1
models:
  - name: claude
    provider: anthropic
    model: claude-sonnet-4-5
    apiKey: {ANTHROPIC_KEY}
    roles: [chat]
"""
CONTINUE = Client(
    program="cn",
    login="Anthropic key",
    format="anthropic",
    arguments=("--auto", "-p", PROMPT),
    session=_continue_session,
    files={".continue/config.yaml": CONTINUE_CONFIG},
)

CLIENTS = (
    CLAUDE_KEY,
    CLAUDE_SUBSCRIPTION,
    CODEX_KEY,
    CODEX_SUBSCRIPTION,
    CODEX_RESIDENCY,
    CODEX_WORKSPACE,
    OPENCODE_ANTHROPIC,
    OPENCODE_OPENAI,
    OPENCODE_GOOGLE,
    GEMINI,
    QWEN,
    QWEN_DEFAULT,
    PI,
    COPILOT_OPENAI,
    COPILOT_ANTHROPIC,
    CLINE,
    CONTINUE,
)
