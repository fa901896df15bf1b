"""`ibidem wrap -- COMMAND`: run a command with its own proxy.

- `command`: the options. It imports only what options need, so that `ibidem wrap --help` is fast.
- `run_wrapped`: a proxy in a thread, the command with its terminal and signals, and a summary line at exit.

The command runs as usual: its exit code, signals, input and output are unchanged. `ibidem.cli.clients` routes each
client through the proxy. Tests: tests/cli/test_wrap.py.
"""
