"""What `ibidem show` and `ibidem compact` draw.

- `figures.Figures`: what a run did, added up over its requests.
- `table`: those, for people.
- `parts.View`: every edit with its place and its two texts, line by line, and what its markers point at.
- `columns`, `page`: a view in the terminal, and as one HTML page that needs nothing else.
- `logged`, `logged_page`: a request of a recorded session, with what its edits save. `details`: all of a session.

Whatever stands in a request is text here, never markup or a terminal's escape: `errors.one_line` and `html.escape` are
the ways in. A new marker needs to be known to `parts` to be shown as one. Tests: tests/cli/test_show.py,
tests/cli/test_show_log.py.
"""
