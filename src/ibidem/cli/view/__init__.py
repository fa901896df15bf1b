"""What `ibidem show`, `ibidem compact` and the details of a report draw.

- `summary.CompactSummary`: what a run did, added up over its requests. `table` draws it in the terminal.
- `edits.RequestView`: every edit with its place and its two texts, line by line, and what its markers point at.
- `session_request`: a request of a recorded session, with what its edits save.
- `columns` draws them in the terminal, `page` and `details` as HTML pages; `edits.html` has the markup of an edit.

Texts of a request are never markup or terminal escapes: `errors.one_line` and autoescape see to that. A new marker must
be known to `edits` to be shown as one. Tests: tests/cli/test_show.py, tests/cli/test_show_log.py.
"""
