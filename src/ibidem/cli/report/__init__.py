"""`ibidem report`: report cost and possible savings of recorded sessions.

- `command`: the options. It imports only what options need, so that `ibidem report --help` is fast.
- `run`: finds logs, has them measured, and prints the report.

The numbers, tables, HTML page, JSON and CSV are made in `ibidem.report`. A new number or a new output format belongs
there, its option here. Tests: tests/cli/test_report.py.
"""
