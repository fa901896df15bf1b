"""Tests of the arguments of tool calls and of the files that they access."""
