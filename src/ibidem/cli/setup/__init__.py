"""`ibidem setup`: print the settings with which a client always uses the proxy. It writes no files.

- `command`: argument and options.
- `advice`: for each client, the file for the settings, notes, and how to undo them.
- `snippets`: the settings as JSON, TOML, a systemd unit or a launchd property list.

Standard output has only the settings, so that users can redirect it to a file. Advice is on standard error. A new
client is a row in `advice.ADVICE`. Tests: tests/cli/test_setup.py. They parse everything that is printed.
"""
