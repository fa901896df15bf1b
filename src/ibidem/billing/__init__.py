"""What input costs, and when it pays to change it: arithmetic on values, without a conversation in sight.

- `usage.Usage`: what a provider counted for one request; everything is paid in it.
- `prices.Prices`: what a model costs on a day. Prices are `genai-prices`' data, or a table of one's own.
- `budget`: when changing what was sent pays for itself. The inequality, and what it guarantees, stand at its top.
- `calibration`: how many of the provider's tokens one of ours is; the one fit of it.

How a provider caches is a row of `caching.CACHING`, what its tokenizer weighs a row of `calibration.WEIGHTS`, each with
what is known of it. Tests: tests/billing. A figure that changes here changes every report: see benchmarks/digest.py.
"""
