"""`ibidem doctor`: check every part of this machine that a rewritten request uses, and print fixes for problems.

- `command`: options, the list of checks, and the output.
- `check_runner`: runs checks with a time limit. A check that raises an unexpected error is reported as a bug in Ibidem.
- `checks_machine`: versions, optional packages, and installed agents with the versions that were tested.
- `checks_addresses`: base URLs in the settings of agents, and whether a server is running there.
- `checks_network`: our settings, HTTP proxies and certificates. `checks_proxy`: requests through a real proxy.
- `checks_data`: store, usage database, prices. `checks_logs`: uncached sessions and unknown models in recent logs.

A new check is a function that takes a `CheckContext` and yields results, and a row in `command.all_checks`. Checks send
requests on loopback only, need no API key, and run other programs only with `--version`. Tests:
tests/cli/test_doctor.py.
"""
