"""How numbers, tables, charts and pages look, in the terminal and in HTML.

- `number_format`: the one way to write dollars, tokens, shares and counts.
- `terminal_layout`: lines, tables and bars for a terminal.
- `templates`: HTML from Jinja2 with autoescape; `page.html` is the frame of every page, `tables.html` has its tables.
- `charts`: the geometry of charts that `tables.html` draws.

The report, the trial, the proxy's pages and the command line use it. It does not know their data.
Tests: tests/render; test_number_format.py compares `number_format` with the script of the report's page.
"""
