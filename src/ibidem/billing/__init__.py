"""Cost of input tokens, and decisions that depend on it. All functions work on values, without conversations.

- `usage.Usage`: token counts that a provider reports for one request.
- `prices.Prices`: prices of a model on a day, from `genai-prices` or the user's own table.
- `revision_budget`: when a revision of sent text pays for itself. Its docstring has the inequality and the guarantee.
- `cache_ttl`: the cheaper TTL for a request. `cache_misses`: causes of cache misses.
- `calibration`: provider tokens per token of our count.

A provider's cache rules are a row of `cache_rules.CACHING`, its token weights a row of `calibration.WEIGHTS`, each with
its source. Tests: tests/billing. A change of a number here changes every report: see benchmarks/digest.py.
"""
