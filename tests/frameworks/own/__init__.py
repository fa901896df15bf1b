"""Checks of frameworks that go beyond the contract, where they are more than a few lines."""
