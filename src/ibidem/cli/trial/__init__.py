"""`ibidem trial`: test whether a live model acts the same on rewritten requests.

- `command`: the options.
- `run_trial`: finds decision points, plans, calls the model, and resumes an interrupted trial.
- `trial_output`: prints the plan with its price, and the result.

`ibidem.trial` makes the requests and compares the samples.
"""
