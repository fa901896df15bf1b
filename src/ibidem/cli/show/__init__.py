"""`ibidem show`: one request, as it came and as it is sent.

- `command`: the options, and requests in a file.
- `session`: a request of a recorded session, in a log or by the session's id.

What is drawn is in `cli.view`, how logs are found in `cli.logs`. Tests: tests/cli/test_show.py, test_show_log.py.
"""
