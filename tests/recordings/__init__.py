"""Logs that are made up, one module per agent, and the contract that every reader keeps."""
