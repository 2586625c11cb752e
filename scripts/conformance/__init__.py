"""Test suites of other projects, and checks against reference implementations."""
