"""Measurements on recorded agent sessions; nothing here is part of the package."""
