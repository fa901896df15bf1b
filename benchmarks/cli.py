"""The `ibidem` command, which here also reads benchmark logs: `python -m benchmarks.cli report FOLDER`."""

from __future__ import annotations

from ibidem.cli import launch

from .readers import register

register()  # not guarded: the worker processes of a report import this module too

if __name__ == "__main__":
    launch()
