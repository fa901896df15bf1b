"""`ibidem show`: show one request before and after rewriting.

- `command`: the options, and requests in a file.
- `show_session`: a request of a recorded session, from a log or by session id.

`cli.view` prints requests, and `cli.log_lookup` finds logs. Tests: tests/cli/test_show.py, test_show_log.py.
"""
