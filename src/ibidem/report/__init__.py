"""`ibidem report`: logs in, costs out, in four output formats.

- `log_summary`: the sessions of a log and their recorded usage. `gather`: the selected requests, and the work to do.
- `measure`: one log → `session_result.FileResult`. A pure function of the bytes and the settings: it runs anywhere.
  `miss_counts` explains cache misses.
- `trace`: one session, request by request, for `ibidem show`.
- `report_cache`: stored results of unchanged logs. `executors`: all cores. `dask_cluster`: a Dask cluster.
- `aggregate`: `ReportRow`, the row of every table and of the total, and the one group-by.
- `terminal`, `page` (with page.js) and `export` show a `Report`.

A new number is a field of `session_result`, an `add` there, and a column in the outputs. `report --json` is a promise
to other programs: docs/report.md. Tests: tests/report.
"""
