"""Test with a live model whether an agent acts the same if its requests are rewritten.

A decision point is a recorded request and the agent's next action. The model generates its next action for the
original request (A) and for the rewritten one (B), several times each. Samples are classified without a judge. The
difference between A and B is compared with the difference between A and A, which is noise.

- `outcomes`: values that the other modules share.
- `decision_points`: selection of points from recordings. `rewritten_histories`: their requests with a profile applied.
- `actions`: classes of samples. `file_views`: the lines of each file that a history shows.
- `request_builder`, `providers`: the content of requests. `schedule`: the order of calls and their maximum cost.
- `planning`: the plan of a trial.
- `client`: the only module that connects to a provider. `trial_runner`: the calls of a trial. `run_log`: its file.
- `trial_statistics`: tests and estimates. `verdict`: the result as text.
- `probes`: questions about text behind references. `probe_results`: how often their answers are right.
"""
