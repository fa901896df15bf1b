"""`ibidem proxy`: run the proxy until it is stopped.

- `command`: the options. It imports only what options need, so that `ibidem proxy --help` is fast.
- `serve`: reads settings, opens the port, and prints the start and summary lines. `ibidem wrap` uses it too.

A new option is a field of `ibidem.proxy.settings`, which has its type and its sources, and a line in `command`. Tests:
tests/cli/test_proxy.py.
"""
