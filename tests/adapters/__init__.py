"""Ibidem inside of other programs."""
