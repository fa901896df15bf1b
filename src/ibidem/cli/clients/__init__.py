"""How `ibidem wrap` routes each client through the proxy, without a change to any file of the user's.

- `client_setup`: the command as the user started it (`ClientContext`), how `wrap` starts it (`ClientSetup`), and the
  base URL variables that most clients read.
- `claude_code`, `codex`, `opencode`, `pi` and so on: one client per file, for settings beyond these variables.
- `catalog`: the clients by program name, clients that cannot be routed, and the table of `ibidem wrap --list`.

A base URL that the user had set becomes the upstream, so requests and credentials reach the same host as before. A new
client is a row in `catalog`. Tests: tests/cli/clients, and tests_slow/test_default_path.py with the real programs.
"""
