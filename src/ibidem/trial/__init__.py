"""Does an agent do the same with rewritten requests? A live model is asked, and the noise is measured beside it.

A decision point is a recorded request and what the agent did next. The model is asked for its next action on the
original request (A) and on the rewritten one (B), several times each. Answers are put into classes without a judge;
what differs between A and B is told beside what differs between A and A.

`outcomes` has the values that all the others speak of. `points` picks decision points from recordings, `replayed` is
what a profile makes of their requests, `actions` puts answers into classes and `files` knows what a history shows.
`bodies` and `providers` say what is sent, `order` when, and what that costs at worst; `planning` puts these together.
`ask` is the only module that talks to a provider, `driver` tells it what to ask, `ledger` writes down what came back.
`stats` tests and estimates, `verdict` says it in words.

`probes` asks behind the same requests for text that references stand for, and `probed` tells how often that is right.
"""
