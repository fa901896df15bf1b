"""On CI generated examples are the same every time, so that a landing does not hang on luck; elsewhere they vary."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
