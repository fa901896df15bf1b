"""`ibidem report`: what recorded sessions cost, and would have cost.

- `command`: its options, and nothing that takes time to import: `ibidem --help` loads it.
- `run`: what it does. Finds logs, has them looked at, shows what was found.

Figures are made in `ibidem.report`, and so are the terminal's tables, the page, JSON and CSV: a new figure or a new way
to show it belongs there, an option for it here. Tests: tests/cli/test_report.py.
"""
