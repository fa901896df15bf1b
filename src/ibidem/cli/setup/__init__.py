"""`ibidem setup`: what to put where, so that a client uses the proxy without being asked. It writes nothing.

- `command`: its argument and options.
- `advice`: what is said around it: what it is good for, where it goes, and the way back.
- `settings`: what is to be put there, as JSON, TOML, a unit of systemd or a list of launchd.

What is to be put there is printed on standard output and nothing else is, so that it can be sent to a file. A new
client is a row in `advice.ADVICE`. Tests: tests/cli/test_setup.py, which parse all that is printed.
"""
