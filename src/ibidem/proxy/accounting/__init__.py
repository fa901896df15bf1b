"""Accounting: what happened, and what it cost.

- `live_stats.LiveStats` holds totals, conversations, requests and events, in bounded memory. `begin` is called when a
  request is sent, `resent` when it is sent again, `end` after its response. `ExchangeRow` and `ConversationRow`
  (`exchange_rows`) have the field names of the page, of `/ibidem/api` and of the log, which are promised to users.
- `bill` computes costs from a provider's counts, as sent and without or with edits (`usage_without_edits`).
- `shadow_cache` simulates the client's own cache directives, `miss_cause` explains cache misses.
- `summary_line` builds the line at exit. `usage_writer` stores a row per model call, in its own thread.
- `conversation_stats` is the state of a conversation. `latency` and `otel_spans` measure rewriting time and telemetry.
- `capture`, `recorder` and `capture_files` write whole exchanges to files (`--record`), in their own thread.

Accounting never decides what is sent. Decisions that depend on it are pure functions of `billing`. An error here is
reported once and does not reach an exchange (`error_barrier`). Except for the two writers, everything runs on the
thread of the event loop.
"""
