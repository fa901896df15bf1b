"""`ibidem report`: many logs, their figures, and four ways to show them.

- `measure`: one log → `figures.FileFigures`. A pure function of the bytes and the settings: it runs anywhere.
  `missed` says how it was cached, `asked` what asking for caching in another way would have cost.
- `trace`: one session, request by request, for `ibidem show`.
- `cache`: figures of logs that were read before. `executors`: on all cores, or on a cluster.
- `totals`: figures of many sessions, added up.
- `numbers`: the one way to write a number.
- `terminal` (with `tables`), `page` (with `charts`, `changes`, `caching`, page.js), `export`: who shows them.

A new figure is a field of `figures`, a sum in `totals`, and a place in each of the four. JSON is a promise to other
programs: docs/report.md. Tests: tests/report, where test_numbers.py holds the page's script to `numbers`.
"""
