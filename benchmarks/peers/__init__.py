"""Other people's ways to make requests smaller, on the same recorded sessions: `python -m benchmarks.peers FOLDER`.

- `peers`: who is compared, by which interface and with which settings.
- `environments`: an environment for each, with nothing in it but the peer.
- `inside`: what runs there, away from the network: a session in, what the peer sends instead out.
- `sessions`: which recorded sessions, and how they are handed over.
- `pricing`: what the same provider would have charged for what was sent, as `ibidem report` prices it.
- `table`: what is printed.
"""
