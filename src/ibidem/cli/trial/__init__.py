"""`ibidem trial`: a live model is asked whether it does the same with rewritten requests.

- `command`: its options.
- `running`: looks for points, plans, asks, and goes on with a trial that was ended.
- `telling`: what is printed before and after: the plan and its price, and what came of it.

What is asked, and how answers are compared, is in `ibidem.trial`; nothing is decided here.
"""
