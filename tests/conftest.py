"""On CI generated examples are the same every time, so that a landing does not hang on luck; elsewhere they vary."""

import os

from hypothesis import settings

os.environ["IBIDEM_STORE"] = "memory:"  # what tests let go is kept nowhere else

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
