"""Cost of recorded sessions, as recorded and with a profile.

- `replay_bill.Replay`: a session with sizes and prices. It bills any version of the session under the cache rules.
- `simulate`: the edits of a profile in every request, by tool and file.
- `eviction_windows`: texts that may be evicted after they were sent, and from which request on.
- `offline_optimum`: the same evictions at the best times.
- `sizes`: estimated and recorded size of each request.

docs/how-we-measure.md has the assumptions. If a log has counts of cache reads, they override the cache rules. A change
of a number here changes every report, so document its reason there. Tests: tests/replay, and benchmarks/digest.py over
recorded sessions.
"""
