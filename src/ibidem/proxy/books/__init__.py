"""What happened, and what it cost.

- `records.Records` holds totals, conversations, requests and events, in memory and bounded. `begin` is called when a
  request goes out, `resent` when it goes out again, `end` when its answer is over. `ExchangeRow` and `ConversationRow`
  have the field names of the page, of `/ibidem/api` and of the log: these are promised to users.
- `bill` makes money of what a provider counted, both as it was sent and the other way (`Account`, `untouched`).
- `ledger` says what the client's own marks would have done (`as_asked`), `explained` why a cache was missed.
- `closing` makes the last line of it. `gains` keeps a row of each request that asked a model, in a thread of its own.
- `rows` and `watched` are what is held of a request and of a conversation.
- `taken`, `recorder`, `tapes`: whole exchanges, in files, for who asks for it (`--record`); written by a thread.

The books decide nothing: nobody asks them what to send. What is judged from them is judged by pure functions of
`billing` (`collapse.judge`, `calibration.GrowthFit`). An error in here is told once and reaches no exchange (`guard`).
All but what `gains` and `recorder` do is for one thread, that of the event loop.
"""
