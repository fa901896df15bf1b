"""What a recorded session cost, and what it would have cost under a profile.

- `billing.Replay`: a session measured once, billed for any number of views of it under the provider's cache rules.
- `simulate`: what a profile does to every request of it, and for which tool and file.
- `phases`: which texts may change after they were sent, and since when.
- `hindsight`: the same edits at the best moments that there were.
- `sizes`: how large each request was.

docs/how-we-measure.md says what is assumed. Where a log knows better than the rules (what was read from the cache), the
log is believed. A change that moves a figure moves every report, so it needs a reason there; tests: tests/replay, and
benchmarks/digest.py over recorded sessions.
"""
