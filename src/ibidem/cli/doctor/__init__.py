"""`ibidem doctor`: whether what a rewritten request passes through is in order on this machine, and what to do if not.

- `command`: its options, the list of checks, and how findings are printed.
- `checking`: runs checks, each for a bounded time; one that fails is a problem of ours, and told as one.
- `checks_machine`: versions, optional parts, agents that are known, and the versions we ran.
- `checks_addresses`: where settings of agents lead, and whether anybody answers there.
- `checks_network`: settings, proxies and certificates on the way out. `checks_proxy`: requests through a real proxy.
- `checks_data`: store, ledger, prices. `checks_logs`: what the newest logs tell.

A new check is a small function that takes a `Machine` and yields findings, and a row in `command.all_checks`. Checks
send requests on loopback only, need no key, and run other programs with `--version` only. Tests:
tests/cli/test_doctor.py.
"""
