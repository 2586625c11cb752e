"""Checks and logs that a release needs."""
