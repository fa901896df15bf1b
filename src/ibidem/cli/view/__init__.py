"""Terminal and HTML output of `ibidem show`, `ibidem compact` and the session pages of `ibidem report`.

- `summary.CompactSummary`: totals of a `compact` run over its requests. `table` prints it in the terminal.
- `edits.RequestView`: every edit with its position, its two texts line by line, and the targets of its markers.
- `session_request`: one request of a recorded session, with the savings of its edits.
- `columns` prints requests in the terminal. `page` and `details` make HTML pages; `edits.html` has the HTML of an edit.

Text of a request is never interpreted as markup or as terminal escapes: `errors.one_line` and autoescape prevent it.
`edits` must know a new marker to show it as one. Tests: tests/cli/test_show.py, tests/cli/test_show_log.py.
"""
