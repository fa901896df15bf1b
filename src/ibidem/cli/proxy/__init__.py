"""`ibidem proxy`: the proxy as a program that runs until it is told to end.

- `command`: its options, and nothing that takes time to import: `ibidem --help` loads it.
- `serving`: settings read, the port opened, what is said while it runs and when it ends; `ibidem wrap` uses it too.

A new option is a field of `ibidem.proxy.settings`, which says what it may be and where it may come from, and a line in
`command`. Tests: tests/cli/test_proxy.py.
"""
