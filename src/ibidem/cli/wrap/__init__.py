"""`ibidem wrap -- COMMAND`: a command that speaks to its provider through a proxy of its own.

- `command`: its options, and nothing that takes time to import: `ibidem --help` loads it.
- `running`: a proxy in a thread, the command with its terminal and its signals, and one line when it ends.

The command must not notice us: it gets its own exit code, signals, input and output. How each client is led to
the proxy is in `ibidem.cli.clients`. Tests: tests/cli/test_wrap.py.
"""
